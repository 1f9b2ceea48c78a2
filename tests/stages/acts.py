"""What people do to lanes, in one line each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from nonchalant.errors import WishRefused
from nonchalant.model import LaneKey, State, Transaction
from nonchalant.wishes import Reserve
from tests.stages.rig import ALICE, Rig

HOLDER = "the holder's secret"


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
