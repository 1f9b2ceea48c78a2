"""Where a node meets the world. Every I/O of a node passes its gate, and there it can be slow, paused or dead.

A dead node's calls wait for ever: cancelling is not crashing, because it would run the node's `finally`.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any, TypeVar, cast

from nonchalant.errors import CommitUnknown, NonchalantError, StoreUnavailable
from nonchalant.ports import Endpoint, Signer, Store
from nonchalant.sim.chance import Chance
from nonchalant.sim.loop import SimLoop
from nonchalant.sim.trouble import Poison, Troubles

T = TypeVar("T")
HandedOver = Callable[[str, Sequence[bytes]], None]  # by whom, and what


class StoreAilment(StrEnum):
    """What can go wrong between a node and the store."""

    REFUSED = "store_error_before_commit"
    DONE_UNSAID = "commit_done_reply_lost"
    LOST_UNSAID = "commit_lost_reply_lost"
    DONE_LATE = "commit_done_late"  # the node was told that nobody knows; then it was done after all


# The others say the same again soon.
LATE_WRITES = frozenset(
    {"accept", "accept_together", "acquire", "commit", "declare", "alter_queued", "wish", "withdraw", "control"}
)
WRITES = LATE_WRITES | {"heartbeat", "renew", "release", "halt", "forget_replies"}
READ_AILMENTS = (StoreAilment.REFUSED,)
WRITE_AILMENTS = (StoreAilment.REFUSED, StoreAilment.DONE_UNSAID, StoreAilment.LOST_UNSAID)
LATE_AILMENTS = tuple(StoreAilment)


class Boundary(StrEnum):
    """Which side of an I/O step."""

    BEFORE = "before"
    AFTER = "after"


@dataclass(slots=True)
class Ambush:
    """Waits for the node at an I/O step: the `skip`-th from now whose name begins with `where`, on one side of it."""

    where: str
    side: Boundary
    skip: int
    spring: Callable[[], None]

    def meets(self, what: str, side: Boundary) -> bool:
        if side is not self.side or not what.startswith(self.where):
            return False
        self.skip -= 1
        return self.skip < 0


class Gate:
    """One life of one node. A restarted node gets a new gate."""

    def __init__(self, name: str, loop: SimLoop, chance: Chance) -> None:
        self.name = name
        self.dead = False
        self.died: asyncio.Future[None] = loop.create_future()
        self.store_troubles = Troubles(chance)
        self.wake_troubles = Troubles(chance)
        self._loop = loop
        self._chance = chance
        self._paused_until = 0.0
        self._harmed = False  # whether something may be in the way; looked at so often that it is worth knowing
        self._ambushes: list[Ambush] = []
        self._graves: list[asyncio.Future[None]] = []  # or the collector would close what waits there
        self._ghosts: set[asyncio.Task[None]] = set()

    def lay(self, ambush: Ambush) -> None:
        self._ambushes.append(ambush)
        self._harmed = True

    def clear(self) -> None:
        """No more ambushes, no more trouble."""
        self._ambushes.clear()
        self.store_troubles.end()
        self.wake_troubles.end()

    def kill(self) -> None:
        """The process is gone; the calls that are under way never return."""
        self.dead = self._harmed = True
        if not self.died.done():
            self.died.set_result(None)

    def pause(self, seconds: float) -> None:
        """The process stands still; its clocks do not."""
        self._paused_until = max(self._paused_until, self._loop.time() + seconds)
        self._harmed = True

    async def call(self, what: str, latency: float, action: Callable[..., Awaitable[T]], *args: Any, **named: Any) -> T:
        """Do the I/O step as this node would: after a while, and only if it still lives."""
        if self._harmed:
            await self._cross(what, Boundary.BEFORE)
        await self._loop.sleep(latency * (0.5 + self._chance.random()))
        if self._harmed:
            await self._cross("", Boundary.BEFORE)
        try:
            return await action(*args, **named)
        finally:
            if self._harmed:
                await self._cross(what, Boundary.AFTER)

    async def sleep(self, seconds: float) -> None:
        """As long as asked, or as the node is paused, or for ever."""
        await self._loop.sleep(seconds)
        if self._harmed:
            await self._cross("sleep", Boundary.AFTER)

    def haunt(self, seconds: float, action: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Do it later, whatever has become of the node by then."""

        async def ghost() -> None:
            await self._loop.sleep(seconds)
            with suppress(NonchalantError, Poison):  # nobody is there to be told
                await action()

        task = self._loop.create_task(ghost())
        self._ghosts.add(task)
        task.add_done_callback(self._ghosts.discard)

    async def _cross(self, what: str, side: Boundary) -> None:
        if what:
            for ambush in self._ambushes:
                if ambush.meets(what, side):
                    self._ambushes.remove(ambush)
                    ambush.spring()
                    break
        while self._paused_until > self._loop.time() and not self.dead:
            await self._loop.sleep(self._paused_until - self._loop.time())
        if self.dead:
            grave = self._loop.create_future()
            self._graves.append(grave)
            await grave
        self._harmed = bool(self._ambushes) or self._paused_until > self._loop.time()


class _Gated:
    """A port behind a gate: every coroutine method of `port` passes it first."""

    def __init__(self, port: object, gate: Gate, prefix: str, latency: float) -> None:
        self._port = port
        self._gate = gate
        self._prefix = prefix
        self._latency = latency

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._port, name)
        call = self._gated(name, value) if inspect.iscoroutinefunction(value) else value
        setattr(self, name, call)
        return call

    def _gated(self, name: str, method: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Awaitable[Any]]:
        return partial(self._gate.call, self._prefix + name, self._latency, method)


class _GatedStore(_Gated):
    """The store, which can also fail before, after and instead of a commit."""

    def __init__(self, store: Store, gate: Gate, loop: SimLoop, chance: Chance) -> None:
        super().__init__(store, gate, "store.", 0.003)
        # Told when a commit is asked for: a late one is done long after that.
        self._asked = getattr(store, "asked", lambda *_args, **_named: None)
        self._loop = loop
        self._chance = chance

    def _gated(self, name: str, method: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Awaitable[Any]]:
        ailments = LATE_AILMENTS if name in LATE_WRITES else WRITE_AILMENTS if name in WRITES else READ_AILMENTS

        async def action(*args: Any, **named: Any) -> Any:
            trouble = self._gate.store_troubles.strike(self._loop.time(), ailments)
            if trouble is None:
                return await method(*args, **named)
            return await self._ail(StoreAilment(trouble.kind), lambda: method(*args, **named))

        call = super()._gated(name, action)
        if name != "commit":
            return call

        def commit(*args: Any, **named: Any) -> Awaitable[Any]:
            self._asked(*args, **named)
            return call(*args, **named)

        return commit

    async def _ail(self, ailment: StoreAilment, action: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        match ailment:
            case StoreAilment.REFUSED:
                raise StoreUnavailable
            case StoreAilment.DONE_UNSAID:
                await action()
            case StoreAilment.LOST_UNSAID:
                pass
            case StoreAilment.DONE_LATE:
                # Often just when the node has had its rest and reads anew.
                latest = 8.0 if self._chance.random() < 0.5 else 0.9
                self._gate.haunt(self._chance.uniform(0.05, latest), action)
        raise CommitUnknown


class _GatedEndpoint(_Gated):
    """A node of the chain; `handed_over` is told what is sent, at the moment in which that is decided."""

    def __init__(self, endpoint: Endpoint, gate: Gate, handed_over: HandedOver) -> None:
        super().__init__(endpoint, gate, "node.", 0.04)
        self._handed_over = handed_over

    def _gated(self, name: str, method: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Awaitable[Any]]:
        call = super()._gated(name, method)
        if name != "send":
            return call

        def send(raws: Sequence[bytes]) -> Awaitable[Any]:
            if not self._gate.dead:
                self._handed_over(self._gate.name, raws)
            return call(raws)

        return send


def gated_endpoint(endpoint: Endpoint, gate: Gate, handed_over: HandedOver = lambda _who, _raws: None) -> Endpoint:
    return cast("Endpoint", _GatedEndpoint(endpoint, gate, handed_over))


def gated_signer(signer: Signer, gate: Gate) -> Signer:
    return cast("Signer", _Gated(signer, gate, "signer.", 0.005))


def gated_store(store: Store, gate: Gate, loop: SimLoop, chance: Chance) -> Store:
    return cast("Store", _GatedStore(store, gate, loop, chance))
