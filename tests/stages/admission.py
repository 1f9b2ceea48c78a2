"""What tests of admission share: a lane that is at work, with nothing waiting there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from nonchalant.model import Admission, Change, Fees, Lease
from nonchalant.sim.gate import Ambush, Boundary
from nonchalant.sim.node import Life
from nonchalant.words import State, TxId
from tests.stages.acts import owner_of
from tests.stages.rig import ALICE, GWEI, Rig

GAS = 100_000
BELOW_BASE_FEE = Fees(10 * GWEI, 1 * GWEI)


async def at_work(rig: Rig) -> Life:
    """One was sent, so that a node has the lane; nothing waits there, and it signs by itself."""
    rig.signer.in_process = True
    await rig.reaches(await rig.submit("first"), State.SENT)
    await rig.advance(1.0)
    owner = await owner_of(rig)
    assert owner.engine.desks[ALICE].arrivals.is_open
    return owner


def commits(rig: Rig) -> int:
    return int(rig.database.execute("SELECT commits FROM meta").fetchone()[0])


def counted(rig: Rig, step: str) -> list[float]:
    """When this node next does this, once; empty: it did not."""
    seen: list[float] = []
    rig.node.gate.lay(Ambush(step, Boundary.BEFORE, 0, lambda: seen.append(rig.loop.time())))
    return seen


async def all_ran(rig: Rig, *labels: str) -> None:
    """These, in this order, each once; no nonce is left out, and the next one follows."""
    await rig.advance(15.0)
    last = await rig.submit("last of all", gas=GAS)
    await rig.reaches(last, State.SENT, 60.0)
    await rig.mine(3)
    assert rig.order_of_execution() == [*labels, "last of all"]
    assert list(rig.slots()) == list(range(len(labels) + 1))
    await rig.finalise()
    await rig.advance(5.0)
    assert await rig.state(last) is State.CONFIRMED


def restarts(rig: Rig) -> list[str]:
    return [line for line in rig.trace.lines if "lane.restarted" in line or "lane.broke" in line]


def delays(rig: Rig) -> list[float]:
    """How long the next signatures take: a test adds to it. To be called before anything is signed."""
    waits: list[float] = []
    sign = rig.signer.sign

    async def slowly(digests: Sequence[bytes]) -> Sequence[bytes]:
        signatures = await sign(digests)
        if waits:
            await rig.advance(waits.pop(0))
        return signatures

    rig.signer.sign = slowly  # type: ignore[method-assign]
    return waits


Entries = Mapping[TxId, Admission]


def meanwhile(rig: Rig, act: Callable[[Callable[[], Awaitable[Entries]]], Awaitable[Entries]]) -> None:
    """Of this lane's commits, those that accept something go through this."""
    desk = rig.node.engine.desks[ALICE]
    store = desk.store

    class Odd:
        def __getattr__(self, name: str) -> Any:
            return getattr(store, name)

        async def commit(self, change: Change, lease: Lease) -> Entries:
            if not change.accepted:
                return await store.commit(change, lease)
            return await act(lambda: store.commit(change, lease))

    desk.store = Odd()  # type: ignore[assignment]


def hanging(rig: Rig, *, before: float = 0.0, after: float = 0.0) -> None:
    async def slowly(commit: Callable[[], Awaitable[Entries]]) -> Entries:
        await rig.advance(before)
        entries = await commit()
        await rig.advance(after)
        return entries

    meanwhile(rig, slowly)


def failing(rig: Rig, error: BaseException) -> None:
    """Nothing is written."""

    async def fail(_commit: Callable[[], Awaitable[Entries]]) -> Entries:
        raise error

    meanwhile(rig, fail)
