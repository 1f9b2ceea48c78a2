"""What people do to lanes, and what happens to them, in one line each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from nonchalant.errors import WishRefused
from nonchalant.model import Draft, Fees, Payload, Sealed, Transaction
from nonchalant.policy import Patience
from nonchalant.sim import wire
from nonchalant.sim.node import Life
from nonchalant.sim.wire import Order, SimTx
from nonchalant.wishes import Reserve
from nonchalant.words import AttemptKind, LaneKey, Speed, State, Wei
from tests.stages.rig import ALICE, ETHER, GWEI, RECIPIENT, Rig

HOLDER = "the holder's secret"
CHEAP = Fees(30 * GWEI, 1 * GWEI)  # at once at its own cap
DEAR = Fees(200 * GWEI, 5 * GWEI)
QUICK_BUMP = Patience(bump_after=dict.fromkeys(Speed, 20_000))


async def sent(rig: Rig, *labels: str, **wish: object) -> list[Transaction]:
    txs = await rig.submit_all(labels, **wish)
    return [await rig.reaches(tx, State.SENT) for tx in txs]


async def settled(rig: Rig, label: str, lane: LaneKey = ALICE) -> Transaction:
    tx = await rig.submit(label, lane)
    await rig.reaches(tx, State.SENT)
    await rig.mine()
    await rig.finalise()
    return await rig.reaches(tx, State.CONFIRMED)


async def bumped_in_vain(rig: Rig) -> Transaction:
    """In flight; every endpoint holds its first bytes, and none takes the dearer ones."""
    [tx] = await sent(rig, "pay")
    for voice in rig.endpoints:
        voice.refuse("replacement transaction underpriced")
    await rig.mine(8, empty=True)
    return tx


async def stuck(rig: Rig, label: str = "pay") -> Transaction:
    """In flight, and marked because its price is at its cap; with `QUICK_BUMP` patience."""
    [tx] = await sent(rig, label, fees=CHEAP)
    for _ in range(10):
        await rig.mine(empty=True)
    await rig.tells(tx, "tx.attention", 60.0)
    await rig.advance(10.0)
    return tx


async def drained_in_flight(rig: Rig) -> tuple[list[Transaction], Wei]:
    """Three in flight, that pools forgot and that the account cannot pay any more; and how much was taken from it."""
    txs = await rig.submit_all((f"pay-{n}" for n in range(3)), value=ETHER)
    await rig.reaches(txs[-1], State.SENT)
    amount = rig.drain()
    for voice in rig.endpoints:
        voice.forget_pool()
    await rig.mine()
    return txs, amount


async def goes_once_all_are_well(rig: Rig, tx: Transaction) -> None:
    for voice in rig.endpoints:
        voice.heal()
    await rig.advance(20.0)
    await rig.mine()
    await rig.finalise()
    assert await rig.state(tx) is State.CONFIRMED


async def lose_one(rig: Rig) -> None:
    """The store is put back to what it was before `lost` was sent."""
    copy = rig.database.serialize()
    await sent(rig, "lost")
    await rig.restore_store(copy)


async def owner_of(rig: Rig, lane: LaneKey = ALICE) -> Life:
    owner = (await rig.lane(lane)).owner
    [node] = [node for node in rig.nodes if node.engine.cluster.owner == owner]
    return node


async def ask(rig: Rig, act: Any, lane: LaneKey = ALICE) -> Mapping[str, object]:
    """What the lane's owner answers."""
    return (await rig.asking.of_lane(lane, act)).data


async def refusal(rig: Rig, act: Any, lane: LaneKey = ALICE) -> WishRefused:
    with pytest.raises(WishRefused) as caught:
        await rig.asking.of_lane(lane, act)
    return caught.value


async def reserve(rig: Rig, seconds: float = 60.0, holder: str = HOLDER, lane: LaneKey = ALICE) -> int:
    nonce = (await ask(rig, Reserve(holder, round(seconds * 1000)), lane))["nonce"]
    assert isinstance(nonce, int)
    return nonce


def signed(nonce: int, label: str = "outside", *, fees: Fees = DEAR, lane: LaneKey = ALICE) -> Sealed:
    """What a holder of the key signs by himself."""
    data = Order(label).data()
    payload = Payload(to=RECIPIENT, data=data)
    draft = Draft(lane=lane, nonce=nonce, payload=payload, gas=wire.intrinsic_gas(data) + 30_000, fees=fees)
    return wire.seal(draft, wire.signature(lane.address, wire.digest(draft)))


def send_outside(rig: Rig, sealed: Sealed) -> SimTx:
    """Its holder sends it, past us."""
    tx = wire.read(sealed.raw)
    for voice in rig.endpoints:
        voice.endpoint.hear(tx)
    return tx


async def cancelled_at_its_slot(rig: Rig, tx: Transaction) -> Transaction:
    """It ends as cancelled, by what does nothing at its own nonce."""
    ended = await rig.ends(tx)
    assert ended.state is State.CANCELLED
    winner = next(attempt for attempt in await rig.attempts(tx) if attempt.hash == ended.hash)
    assert (winner.kind, winner.nonce) == (AttemptKind.CANCEL, tx.nonce)
    return ended
