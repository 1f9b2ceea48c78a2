"""What people do to lanes, in one line each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from nonchalant.errors import WishRefused
from nonchalant.model import Draft, Fees, LaneKey, Payload, Sealed, State, Transaction
from nonchalant.sim import wire
from nonchalant.sim.wire import Order, SimTx
from nonchalant.wishes import Reserve
from tests.stages.rig import ALICE, GWEI, RECIPIENT, Rig

HOLDER = "the holder's secret"
DEAR = Fees(200 * GWEI, 5 * GWEI)


async def sent(rig: Rig, *labels: str, **wish: object) -> list[Transaction]:
    txs = await rig.submit_all(labels, **wish)
    return [await rig.reaches(tx, State.SENT) for tx in txs]


async def settled(rig: Rig, label: str, lane: LaneKey = ALICE) -> Transaction:
    tx = await rig.submit(label, lane)
    await rig.reaches(tx, State.SENT)
    await rig.mine()
    await rig.finalise()
    return await rig.reaches(tx, State.CONFIRMED)


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
