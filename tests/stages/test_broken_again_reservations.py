"""What an adversary broke in reserving nonces."""

from __future__ import annotations

import pytest

from nonchalant.wishes import Release, Reserve
from nonchalant.words import State
from tests.stages.rig import ALICE, Rig, staged

HOLDER = "the holder's secret"


@staged()
async def test_a_filler_that_was_given_back_is_no_part_of_the_reservation_that_has_its_nonce_now(rig: Rig) -> None:
    for voice in rig.endpoints:
        voice.refuse("intrinsic gas too low", only=lambda tx: tx.order.label in ("poor", ""))
    poor, rich = await rig.submit_all(["poor", "rich"], gas=60_000)
    await rig.reaches(rich, State.SENT)
    await rig.advance(5.0)
    assert await rig.state(poor) is State.FAILED
    assert await rig.lane_mark() == "filler_refused"
    reply = await rig.node.asking.of_lane(ALICE, Reserve(HOLDER, 60_000))
    assert reply.data["nonce"] == 0
    rig.kill(rig.node)
    for voice in rig.endpoints:
        voice.heal()
    signed = rig.attempts_ever()
    await rig.start_node()
    await rig.advance(30.0)
    assert rig.attempts_ever() == signed
    await rig.node.asking.of_lane(ALICE, Release(0, HOLDER))
    await rig.advance(10.0)
    await rig.mine(2)
    await rig.finalise()
    assert await rig.state(rich) is State.CONFIRMED


@staged()
@pytest.mark.parametrize("skew", [-3_600_000, 3_600_000])
async def test_a_wrong_clock_neither_takes_a_reserved_nonce_away_nor_keeps_it_too_long(rig: Rig, skew: int) -> None:
    rig.node.clock.skew_millis = skew
    kept = await rig.node.asking.of_lane(ALICE, Reserve(HOLDER, 60_000))
    left = await rig.node.asking.of_lane(ALICE, Reserve(HOLDER, 60_000))
    await rig.advance(30.0)
    assert rig.attempts_ever() == 0
    await rig.node.asking.of_lane(ALICE, Release(left.data["nonce"], HOLDER))
    await rig.advance(40.0)
    await rig.mine()
    await rig.finalise()
    assert [event.data["nonce"] for event in await rig.events("lane.filled")] == [kept.data["nonce"]]
