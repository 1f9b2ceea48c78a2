"""A store that lost commits must not pay twice."""

from __future__ import annotations

import pytest

from nonchalant.errors import MayHaveRun, WishRefused
from nonchalant.wishes import Fill, Reserve, Use
from nonchalant.words import Mode, State
from tests.stages.acts import lose_one
from tests.stages.rig import ETHER, Rig, staged

WINDOW = 3


@staged(window=WINDOW, largest_window=WINDOW)
async def test_nothing_is_assigned_until_every_nonce_that_was_lost_is_final(rig: Rig) -> None:
    first = await rig.submit("first")
    await rig.reaches(first, State.SENT)
    await rig.mine()
    await lose_one(rig)
    later = await rig.submit("later")
    await rig.advance(20.0)
    assert await rig.lane_mark() == "quarantine"
    assert await rig.state(later) is State.QUEUED
    assert rig.slots() == {0: first.id}
    await rig.finalise(empty=True)
    # How far the loss reached is known now, and what may be in use is filled; pools hold our lost bytes at one nonce.
    assert rig.slots() == {0: first.id, 1: "filler", 2: "filler", 3: "filler"}
    await rig.mine()
    assert await rig.state(later) is State.QUEUED
    await rig.finalise()
    await rig.advance(5.0)
    assert await rig.lane_mark() is None
    await rig.mine()
    await rig.finalise()
    assert await rig.states([first, later]) == [State.CONFIRMED] * 2
    assert rig.executions("lost") == 1
    assert len(await rig.events("lane.reset")) == 1


@staged(window=WINDOW, largest_window=WINDOW)
async def test_after_a_quarantine_the_chain_is_still_the_one_it_was(rig: Rig) -> None:
    """How far the lane was seen is a height and a hash of one block: of two, they would say that finality broke."""
    first = await rig.submit("first")
    await rig.reaches(first, State.SENT)
    await rig.mine()
    await rig.finalise()
    await lose_one(rig)
    later = await rig.submit("later")
    for _ in range(60):
        if await rig.events("lane.reset"):
            break
        await rig.mine()
    rig.kill(rig.node)
    await rig.start_node()
    await rig.mine(20)
    assert (await rig.lane()).control.mode is Mode.OPEN
    assert await rig.state(later) is State.CONFIRMED


@staged(window=WINDOW, largest_window=WINDOW)
async def test_a_nonce_that_its_holder_never_used_can_be_given_up_in_quarantine(rig: Rig) -> None:
    """He says that he signed something, and nothing ever comes: nothing else would ever end the quarantine."""
    first = await rig.submit("first")
    await rig.reaches(first, State.SENT)
    await rig.mine()
    lane, holder = first.lane, "somebody"
    reply = await rig.asking.of_lane(lane, Reserve(holder, 60_000))
    await rig.asking.of_lane(lane, Use(1, holder, "0x" + "77" * 32))
    assert reply.data["nonce"] == 1
    await lose_one(rig)
    await rig.advance(5.0)
    with pytest.raises(WishRefused):  # what was lost may reach further than is known by now
        await rig.asking.of_lane(lane, Fill(1))
    await rig.mine(12)
    assert await rig.lane_mark() == "quarantine"
    await rig.asking.of_lane(lane, Fill(1))
    later = await rig.submit("later")
    await rig.mine(30)
    assert await rig.state(later) is State.CONFIRMED


@staged(window=WINDOW, largest_window=WINDOW)
async def test_what_was_paid_before_the_restore_is_held_and_not_paid_again(rig: Rig) -> None:
    """The copy still has it queued; the chain has it executed."""
    rig.signer.down = True
    tx, other = await rig.submit("pay", value=ETHER), await rig.submit("other")
    copy = rig.database.serialize()
    rig.signer.down = False
    await rig.reaches(tx, State.SENT)
    rig.kill(rig.node)
    for voice in rig.endpoints:
        voice.endpoint.pool.evict(tx.lane.address, 1)  # `other` was lost on its way
    await rig.mine()
    await rig.restore_store(copy)
    # Nobody knows yet whether it ran: to call it off would be a story.
    with pytest.raises(MayHaveRun, match="ask again"):
        await rig.asking.cancel(tx.id)
    with pytest.raises(MayHaveRun, match="0 were asked for; of 2 more"):
        await rig.asking.cancel_all(tx.lane)
    await rig.mine(12)
    held = await rig.read(tx)
    assert (held.state, held.held) == (State.QUEUED, True)
    assert await rig.mark(tx) == "same_payload_executed"
    assert (await rig.history(tx))[-1] == "tx.held"
    await rig.finalise()
    assert await rig.state(other) is State.CONFIRMED
    assert (rig.executions("pay"), rig.executions("other")) == (1, 1)


@staged(window=WINDOW, largest_window=WINDOW)
async def test_without_a_witness_the_chain_shows_that_commits_are_missing(rig: Rig) -> None:
    first = await rig.submit("first")
    await rig.reaches(first, State.SENT)
    await rig.mine()
    await rig.reaches(first, State.MINED)
    rig.signer.down = True
    tx = await rig.submit("pay", value=ETHER)
    copy = rig.database.serialize()
    rig.signer.down = False
    await rig.reaches(tx, State.SENT)
    await rig.mine()
    await rig.finalise()
    rig.kill(rig.node)
    rig.forget_witness()
    await rig.restore_store(copy)
    await rig.advance(10.0)
    await rig.mine(12)
    held = await rig.read(tx)
    assert (held.state, held.held) == (State.QUEUED, True)
    assert rig.executions("pay") == 1


@staged(window=WINDOW, largest_window=WINDOW)
async def test_an_attempt_that_was_lost_and_consumed_a_slot_of_ours_holds_its_transaction(rig: Rig) -> None:
    """The copy knows the slot, but not the bump that won it."""
    tx = await rig.submit("pay")
    await rig.reaches(tx, State.SENT)
    copy = rig.database.serialize()
    await rig.advance(60.0)
    await rig.mine(2, empty=True)
    assert len(await rig.attempts(tx)) == 2
    rig.kill(rig.node)
    await rig.mine()
    await rig.restore_store(copy)
    await rig.mine(12)
    held = await rig.read(tx)
    assert (held.state, held.held) == (State.QUEUED, True)
    assert rig.executions("pay") == 1


@staged(window=WINDOW, largest_window=WINDOW)
async def test_a_copy_that_is_not_older_is_no_reason_to_wait(rig: Rig) -> None:
    first = await rig.submit("first")
    await rig.reaches(first, State.SENT)
    rig.kill(rig.node)
    await rig.advance(1.0)
    await rig.restore_store(rig.database.serialize())
    second = await rig.submit("second")
    await rig.reaches(second, State.SENT)
    assert await rig.lane_mark() is None
    assert list(rig.slots()) == [0, 1]


@staged(window=WINDOW, largest_window=WINDOW)
async def test_a_quarantine_outlives_a_crash(rig: Rig) -> None:
    await lose_one(rig)
    later = await rig.submit("later")
    await rig.advance(5.0)
    assert await rig.lane_mark() == "quarantine"
    rig.kill(rig.node)
    await rig.start_node()
    await rig.advance(20.0)
    assert await rig.state(later) is State.QUEUED
    await rig.mine()
    await rig.finalise()
    await rig.advance(5.0)
    await rig.mine(2)
    assert (rig.executions("lost"), rig.executions("later")) == (1, 1)
