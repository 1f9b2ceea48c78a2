"""What an operator does to a lane: look, fill, reset."""

from __future__ import annotations

import pytest

from nonchalant.assign import assign
from nonchalant.errors import WishPending
from nonchalant.grant import grant
from nonchalant.wishes import Fill, Release, Reserve, Reset, Sync, Wish
from nonchalant.words import State
from tests.lessons import lesson
from tests.stages.acts import HOLDER, ask, refusal, settled
from tests.stages.rig import ALICE, Rig, staged


async def leave_a_trailing_hole(rig: Rig) -> None:
    """Nonce 0 was given out, and given back: no node took the bytes."""
    for voice in rig.endpoints:
        voice.refuse("intrinsic gas too low")
    tx = await rig.submit("refused")
    await rig.reaches(tx, State.FAILED)
    for voice in rig.endpoints:
        voice.heal()
    assert (await rig.lane()).record.next_nonce == 1


# sync


@staged()
async def test_sync_tells_what_the_chain_says_and_takes_trailing_nonces_back(rig: Rig) -> None:
    await leave_a_trailing_hole(rig)
    found = await ask(rig, Sync())
    assert (found["count"], found["next_nonce"], found["live"], found["holes"]) == (0, 0, 0, [])
    assert (await rig.lane()).record.next_nonce == 0


@staged()
async def test_sync_finds_what_is_executed_and_what_is_not(rig: Rig) -> None:
    await settled(rig, "first")
    second, third = await rig.submit("second"), await rig.submit("third")
    await rig.reaches(second, State.SENT)
    await rig.mine()
    await rig.reaches(third, State.MINED)
    fourth = await rig.submit("fourth")
    await rig.reaches(fourth, State.SENT)
    found = await ask(rig, Sync())
    expected = {
        "count": 3,
        "final_count": 1,
        "next_nonce": 4,
        "settled_below": 1,
        "live": 3,
        "executed": 2,
        "holes": [],
    }
    assert expected.items() <= found.items()


@staged()
async def test_sync_sees_foreign_use_at_once(rig: Rig) -> None:
    await settled(rig, "first")
    await ask(rig, Reserve(HOLDER, 300_000))
    rig.intrude()
    rig.intrude()
    await rig.mine()
    found = await ask(rig, Sync())
    assert (found["count"], found["next_nonce"]) == (3, 3)


# fill


@staged()
async def test_fill_closes_the_hole_that_is_named(rig: Rig) -> None:
    await leave_a_trailing_hole(rig)
    assert await ask(rig, Fill()) == {"filled": [], "left": 0}  # nothing waits behind it
    assert await ask(rig, Fill(0)) == {"filled": [0], "left": 0}
    assert rig.slots() == {0: "filler"}
    assert (await refusal(rig, Fill(0))).why == "not_a_hole"
    await rig.mine()
    await rig.finalise()
    [event] = await rig.events("lane.filled")
    assert event.data["nonce"] == 0


@staged()
async def test_fill_closes_nothing_that_belongs_to_somebody(rig: Rig) -> None:
    tx = await rig.submit("ours")
    await rig.reaches(tx, State.SENT)
    reserved = (await ask(rig, Reserve(HOLDER, 60_000)))["nonce"]
    assert reserved == 1
    assert (await refusal(rig, Fill(0))).why == "not_a_hole"
    assert (await refusal(rig, Fill(1))).why == "reserved"
    assert (await refusal(rig, Fill(2))).why == "not_a_hole"
    await rig.mine()
    assert (await refusal(rig, Fill(0))).why == "not_a_hole"


@staged()
async def test_a_filler_that_cannot_be_signed_now_is_asked_for_until_it_can(rig: Rig) -> None:
    await leave_a_trailing_hole(rig)
    rig.signer.down = True
    with pytest.raises(WishPending):
        await ask(rig, Fill(0))
    rig.signer.down = False
    assert await ask(rig, Fill(0)) == {"filled": [0], "left": 0}


@staged(largest_window=100, account_limit=200)
async def test_a_lane_has_only_so_many_fillers_at_once(rig: Rig) -> None:
    rig.chain.room = 200
    copy = rig.database.serialize()
    await settled(rig, "lost")
    await rig.restore_store(copy)
    await rig.submit("later")
    most = 0
    for _ in range(30):
        await rig.mine()
        most = max(most, sum(not rig.account().count > nonce for nonce in rig.slots()))
    assert most == 64
    assert (await rig.lane()).record.quarantined_below is None


# reset


@staged()
async def test_a_lane_with_nothing_on_its_way_is_reset_to_what_the_chain_says(rig: Rig) -> None:
    await leave_a_trailing_hole(rig)
    told = await ask(rig, Reset())
    assert (told["next_nonce"], told["settled_below"], told["recalled"], told["kept"]) == (0, 0, [], [])
    lane = await rig.lane()
    assert (lane.record.next_nonce, lane.record.resets) == (0, 1)
    [event] = await rig.events("lane.reset")
    assert event.data["next_nonce"] == 0


@lesson("reset-while-live")
@staged()
async def test_a_reset_is_refused_while_attempts_live_and_says_which(rig: Rig) -> None:
    tx = await rig.submit("on its way")
    sent = await rig.reaches(tx, State.SENT)
    await ask(rig, Reserve(HOLDER, 60_000))
    answer = await refusal(rig, Reset())
    assert answer.why == "attempts_live"
    assert answer.data["live"] == [
        {"nonce": 0, "kind": "transaction", "tx": tx.id, "hash": sent.hash},
        {"nonce": 1, "kind": "reservation", "tx": None, "hash": None},
    ]
    assert (await rig.lane()).record.resets == 0
    assert await rig.events("lane.reset") == []


@lesson("reset-while-live")
@staged()
async def test_by_force_what_left_keeps_its_nonce_and_runs_once(rig: Rig) -> None:
    tx = await rig.submit("on its way")
    await rig.reaches(tx, State.SENT)
    for voice in rig.endpoints:
        voice.forget_pool()  # as far as anybody can see, it is gone
    told = await ask(rig, Reset(force=True))
    assert told["recalled"] == []
    assert [kept["tx"] for kept in told["kept"]] == [tx.id]  # type: ignore[attr-defined]
    assert await rig.mark(tx) == "reset"
    later = await rig.submit("later")
    assert (await rig.reaches(later, State.SENT)).nonce == 1
    assert (await rig.read(tx)).nonce == 0
    await rig.advance(20.0)
    await rig.mine()
    await rig.finalise()
    assert rig.order_of_execution() == ["on its way", "later"]
    assert await rig.states([tx, later]) == [State.CONFIRMED, State.CONFIRMED]


@lesson("reset-while-live")
@staged()
async def test_by_force_what_never_left_is_queued_again(rig: Rig) -> None:
    await ask(rig, Reserve(HOLDER, 300_000))
    desk = rig.node.engine.desks[ALICE]
    rig.lose_wake_ups(rig.node)
    tx = await rig.submit("signed only")
    desk.assign_due = True
    assert await assign(desk)  # and now, before anything is sent:
    assert await rig.state(tx) is State.SIGNED
    await rig.store.wish(Wish("reset", ALICE, Reset(force=True)), limit=10)
    desk.orders_due = True
    assert await grant(desk)
    reply = await rig.store.reply("reset")
    assert reply is not None
    assert reply.data["recalled"] == [tx.id]
    assert [kept["kind"] for kept in reply.data["kept"]] == ["reservation"]  # type: ignore[attr-defined]
    assert await rig.state(tx) is State.QUEUED
    assert (await rig.lane()).record.next_nonce == 1
    assert rig.sent("signed only") == []
    await rig.reaches(tx, State.SENT)  # the very same bytes, at the same nonce
    assert (await rig.read(tx)).nonce == 1
    await ask(rig, Release(0, HOLDER))
    await rig.advance(5.0)
    await rig.mine()
    await rig.finalise()
    assert rig.executions("signed only") == 1


@staged()
async def test_what_was_final_is_given_up_by_force_only_and_only_if_the_chain_denies_it(rig: Rig) -> None:
    await settled(rig, "first")
    told = await ask(rig, Reset(force=True))
    assert (told["settled_below"], told["settled_below_before"], told["next_nonce"]) == (1, 1, 1)
