"""What an adversary broke in halting and resuming lanes."""

from __future__ import annotations

import pytest

from nonchalant.errors import WishRefused
from nonchalant.model import Transaction
from nonchalant.words import Mode, State
from tests.stages.acts import settled
from tests.stages.rig import ALICE, BOB, Rig, staged


@staged(finality_lag=2)
async def test_pausing_a_halted_lane_does_not_set_it_going(rig: Rig) -> None:
    """The block that vanished is younger than the lane's last word on finality: that alone would not stop it again."""
    await settled(rig, "first")
    more = await rig.submit("more")
    await rig.reaches(more, State.SENT)
    for voice in rig.endpoints:
        voice.lie_about_finality()
    await rig.mine(3, empty=True)
    for voice in rig.endpoints:
        voice.heal()
    await rig.reorg(2)
    await rig.mine(2, empty=True)
    assert await rig.lane_mark() == "chain_halted"
    with pytest.raises(WishRefused):
        await rig.node.asking.control(ALICE, Mode.PAUSED, "let me look")
    await rig.advance(5.0)
    for voice in rig.endpoints:
        voice.forget_pool()
    sends = len(rig.arrivals)
    await rig.advance(300.0)
    assert len(rig.arrivals) == sends
    assert await rig.lane_mark(ALICE) == "chain_halted"
    assert await rig.state(more) is State.SENT


@staged(finality_lag=2)
async def test_a_resumed_lane_goes_on_and_does_not_halt_for_the_same_block_again(rig: Rig) -> None:
    more = await _halted(rig)
    after = await rig.submit("after")
    await rig.advance(20.0)
    for lane in (ALICE, BOB):
        await rig.node.asking.control(lane, Mode.OPEN)
    await rig.advance(30.0)
    assert (await rig.lane(ALICE)).control.mode is Mode.OPEN
    await rig.mine(3)
    await rig.finalise()
    await rig.advance(30.0)
    assert (await rig.lane(ALICE)).control.mode is Mode.OPEN
    assert await rig.states([more, after]) == [State.CONFIRMED] * 2


async def _halted(rig: Rig) -> Transaction:
    first = await rig.submit("first")
    await rig.reaches(first, State.SENT)
    for voice in rig.endpoints:
        voice.lie_about_finality()
    await rig.mine()
    assert await rig.state(first) is State.CONFIRMED
    more = await rig.submit("more")
    await rig.reaches(more, State.SENT)
    for voice in rig.endpoints:
        voice.heal()
    await rig.reorg(2, keep=True)
    await rig.mine(2, empty=True)
    assert await rig.lane_mark() == "chain_halted"
    return more
