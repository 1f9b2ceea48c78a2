"""What an operator does to a lane: look, fill, reset; and what a lane does when its chain is not the one it was."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from nonchalant.assign import assign
from nonchalant.errors import WishPending, WishRefused
from nonchalant.grant import grant
from nonchalant.model import Account, BlockRef, LaneKey, Mode, State, Transaction
from nonchalant.wishes import Fill, Release, Reserve, Reset, Sync, Wish
from tests.lessons import lesson
from tests.stages.rig import ALICE, BOB, Rig, staged, unreachable
from tests.stages.voices import Voice

HOLDER = "the holder's secret"


async def ask(rig: Rig, act: Any, lane: LaneKey = ALICE) -> Mapping[str, object]:
    return (await rig.asking.of_lane(lane, act)).data


async def refused(rig: Rig, act: Any, lane: LaneKey = ALICE) -> WishRefused:
    with pytest.raises(WishRefused) as caught:
        await rig.asking.of_lane(lane, act)
    return caught.value


async def settled(rig: Rig, label: str, lane: LaneKey = ALICE) -> Transaction:
    tx = await rig.submit(label, lane)
    await rig.reaches(tx, State.SENT)
    await rig.mine()
    await rig.finalise()
    return await rig.reaches(tx, State.CONFIRMED)


async def grown(rig: Rig, blocks: int = 6) -> None:
    """So long that a chain that was reset is far behind."""
    await rig.mine(blocks)


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
    assert (await refused(rig, Fill(0))).why == "not_a_hole"
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
    assert (await refused(rig, Fill(0))).why == "not_a_hole"
    assert (await refused(rig, Fill(1))).why == "reserved"
    assert (await refused(rig, Fill(2))).why == "not_a_hole"
    await rig.mine()
    assert (await refused(rig, Fill(0))).why == "not_a_hole"


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
    answer = await refused(rig, Reset())
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


# a chain that is not what it was


@staged()
async def test_a_lane_on_a_chain_that_was_reset_sends_nothing_until_it_is_resumed_and_reset(rig: Rig) -> None:
    first = await settled(rig, "first")
    await grown(rig)  # nobody holds the lane any more
    await rig.reset_chain(blocks=2)
    again = await rig.submit("again")
    await rig.advance(30.0)
    assert await rig.lane_mark() == "chain_behind"
    assert rig.sent("again") == []
    await rig.asking.control(ALICE, Mode.OPEN)
    await rig.advance(20.0)
    assert await rig.lane_mark() == "reset_needed"
    assert await rig.state(again) is State.QUEUED
    assert (await refused(rig, Reserve(HOLDER, 60_000))).why == "reset_needed"
    assert (await refused(rig, Reset())).why == "was_final"
    told = await ask(rig, Reset(force=True))
    assert (told["settled_below"], told["settled_below_before"], told["next_nonce"]) == (0, 1, 0)
    assert (await rig.reaches(again, State.SENT)).nonce == 0
    await rig.mine()
    await rig.finalise()
    assert await rig.state(again) is State.CONFIRMED
    assert await rig.state(first) is State.CONFIRMED  # what was told stays told
    assert await rig.lane_mark() is None


@staged(lease_seconds=4.0)
async def test_a_node_that_starts_on_a_chain_that_was_reset_does_the_same(rig: Rig) -> None:
    await settled(rig, "first")
    await rig.stop(rig.node)
    await rig.reset_chain()
    await rig.start_node()
    again = await rig.submit("again")
    await rig.advance(20.0)
    assert await rig.lane_mark() == "chain_behind"
    await rig.asking.control(ALICE, Mode.OPEN)
    await rig.advance(5.0)
    assert await rig.lane_mark() == "reset_needed"
    await ask(rig, Reset(force=True))
    assert (await rig.reaches(again, State.SENT)).nonce == 0


@staged()
async def test_a_chain_that_was_reset_and_has_grown_past_what_was_final_halts_its_lanes(rig: Rig) -> None:
    await settled(rig, "first")
    await rig.reset_chain(blocks=rig.chain.head.number + 4)
    again = await rig.submit("again")
    await rig.advance(10.0)
    assert (await rig.lane()).control.mode is Mode.HALTED
    with pytest.raises(WishPending):
        await ask(rig, Reset(force=True))
    for mode in (Mode.PAUSED, Mode.DRAINING):
        with pytest.raises(WishRefused, match="resume"):
            await rig.asking.control(ALICE, mode)
    assert (await rig.lane()).control.mode is Mode.HALTED
    await rig.asking.control(ALICE, Mode.OPEN)
    await rig.advance(5.0)
    assert await rig.lane_mark() == "reset_needed"
    await ask(rig, Reset(force=True))
    await rig.reaches(again, State.SENT)
    await rig.mine()
    await rig.finalise()
    assert await rig.state(again) is State.CONFIRMED


@staged()
async def test_what_was_on_its_way_when_the_chain_was_reset_runs_once_on_the_new_one(rig: Rig) -> None:
    await settled(rig, "first")
    await grown(rig)
    flying = await rig.submit("flying")
    await rig.reaches(flying, State.SENT)
    await rig.reset_chain(blocks=2)
    await rig.advance(30.0)
    assert await rig.lane_mark() == "chain_behind"
    await rig.asking.control(ALICE, Mode.OPEN)
    await rig.advance(20.0)
    assert (await refused(rig, Reset())).why == "attempts_live"
    told = await ask(rig, Reset(force=True))
    assert (told["settled_below"], told["next_nonce"]) == (0, 2)
    assert await rig.mark(flying) == "reset"
    await rig.advance(30.0)
    await rig.mine(2)
    await rig.finalise()
    assert rig.order_of_execution() == ["", "flying"]  # its nonce was kept, and the hole below it was closed
    assert await rig.state(flying) is State.CONFIRMED


@staged()
async def test_a_mined_transaction_whose_chain_was_reset_is_sent_again_at_its_nonce(rig: Rig) -> None:
    await settled(rig, "first")
    mined = await rig.submit("mined")
    await rig.reaches(mined, State.SENT)
    await rig.mine()
    await rig.reaches(mined, State.MINED)
    await rig.reset_chain()
    await rig.advance(30.0)
    await rig.asking.control(ALICE, Mode.OPEN)
    await rig.advance(20.0)
    await ask(rig, Reset(force=True))
    await rig.advance(30.0)
    await rig.mine(2)
    await rig.finalise()
    assert rig.executions("mined") == 1
    assert await rig.state(mined) is State.CONFIRMED


@staged()
async def test_each_lane_of_a_chain_that_was_reset_is_resumed_by_itself(rig: Rig) -> None:
    await settled(rig, "alice's")
    await settled(rig, "bob's", BOB)
    alices, bobs = await rig.submit("alice's next"), await rig.submit("bob's next", BOB)
    await rig.reaches(bobs, State.SENT)
    await rig.reset_chain()
    await rig.advance(30.0)
    await rig.asking.control(ALICE, Mode.OPEN)
    await rig.advance(20.0)
    assert [await rig.lane_mark(lane) for lane in (ALICE, BOB)] == ["reset_needed", "chain_behind"]
    await ask(rig, Reset(force=True))
    await rig.advance(30.0)
    await rig.mine(2)
    assert rig.executions("alice's next") == 1
    assert await rig.lane_mark(BOB) == "chain_behind"
    assert await rig.state(bobs) is State.SENT
    assert rig.account(BOB).count == 0
    assert await rig.state(alices) is State.MINED


@staged()
async def test_endpoints_that_fall_behind_and_catch_up_need_nobody(rig: Rig) -> None:
    await settled(rig, "first")
    tops = [(voice.endpoint.head, voice.endpoint.final) for voice in rig.endpoints]
    genesis = rig.chain.head.at(0)
    assert genesis is not None
    for voice in rig.endpoints:
        voice.endpoint.head = voice.endpoint.final = genesis
    follower = rig.node.engine.followers[ALICE.chain_id]
    final = follower._known.final
    tx = await rig.submit("tx", gas=60_000)
    await rig.advance(30.0)
    assert await rig.lane_mark() == "chain_behind"
    assert follower._known.final == final  # it never moves back unasked
    assert await rig.state(tx) is State.QUEUED
    for voice, (head, final) in zip(rig.endpoints, tops, strict=True):
        voice.endpoint.head, voice.endpoint.final = head, final
    assert (await rig.reaches(tx, State.SENT)).nonce == 1
    assert await rig.lane_mark() is None


def count_nothing(rig: Rig, *voices: Voice) -> None:
    """These say that the account has executed nothing."""

    def script(voice: Voice) -> Callable[..., Awaitable[Account]]:
        async def account(address: str, block: BlockRef) -> Account:
            return replace(await voice.endpoint.account(address, block), count=0)

        return account

    for voice in voices:
        voice.answer("account", script(voice))


@staged()
async def test_counts_that_were_wrong_for_a_while_need_nobody(rig: Rig) -> None:
    await settled(rig, "first")
    await rig.advance(10.0)
    count_nothing(rig, *rig.endpoints)
    tx = await rig.submit("tx")
    await rig.advance(5.0)
    assert await rig.lane_mark() == "reset_needed"
    assert await rig.state(tx) is State.QUEUED
    for voice in rig.endpoints:
        voice.heal()
    await rig.mine()
    assert (await rig.reaches(tx, State.SENT)).nonce == 1
    assert await rig.lane_mark() is None


@staged()
async def test_one_endpoint_that_counts_too_little_is_not_a_chain_that_was_reset(rig: Rig) -> None:
    await settled(rig, "first")
    await rig.advance(10.0)
    liar, *others = rig.endpoints
    count_nothing(rig, liar)
    for voice in others:
        voice.fail("account", unreachable())
    tx = await rig.submit("tx")
    assert (await rig.reaches(tx, State.SENT)).nonce == 1
    assert await rig.lane_mark() is None


@staged()
async def test_a_chain_that_nobody_speaks_for_is_marked_for_as_long_as_that_lasts(rig: Rig) -> None:
    tx = await rig.submit("tx")
    await rig.reaches(tx, State.SENT)
    for voice in rig.endpoints:
        voice.down()
    await rig.advance(10.0)
    assert await rig.lane_mark() is None
    await rig.advance(70.0)
    assert await rig.lane_mark() == "chain_trouble"
    for voice in rig.endpoints:
        voice.heal()
    await rig.mine()
    await rig.finalise()
    assert await rig.state(tx) is State.CONFIRMED
    assert await rig.lane_mark() is None


# halts


@staged(lease_seconds=4.0)
async def test_a_restart_keeps_a_halt_and_somebody_must_end_it(rig: Rig) -> None:
    await settled(rig, "first")
    flying = await rig.submit("flying")
    await rig.reaches(flying, State.SENT)
    await rig.store.halt(ALICE.chain_id, "a final block vanished")
    await rig.advance(5.0)
    assert await rig.lane_mark() == "chain_halted"
    queued = await rig.submit("queued")
    rig.kill(rig.node)
    await rig.start_node()
    for voice in rig.endpoints:
        voice.forget_pool()
    sends = len(rig.arrivals)
    await rig.advance(60.0)
    await rig.mine(2)
    assert len(rig.arrivals) == sends  # rescue stands still too
    assert await rig.states([flying, queued]) == [State.SENT, State.QUEUED]
    await rig.asking.control(ALICE, Mode.OPEN)
    await rig.reaches(queued, State.SENT)
    await rig.mine()
    await rig.finalise()
    assert await rig.states([flying, queued]) == [State.CONFIRMED, State.CONFIRMED]
    assert await rig.lane_mark() is None


@staged(nodes=2)
async def test_a_halt_stops_the_lanes_of_other_nodes_too(rig: Rig) -> None:
    txs = [await rig.submit(f"tx of {lane.address}", lane) for lane in (ALICE, BOB)]
    for tx in txs:
        await rig.reaches(tx, State.SENT)
    await rig.store.halt(ALICE.chain_id, "a final block vanished")
    await rig.advance(5.0)
    for voice in rig.endpoints:
        voice.forget_pool()
    sends = len(rig.arrivals)
    await rig.advance(60.0)
    assert len(rig.arrivals) == sends
    assert [await rig.lane_mark(lane) for lane in (ALICE, BOB)] == ["chain_halted", "chain_halted"]
    await rig.asking.control(BOB, Mode.OPEN)
    await rig.advance(20.0)
    await rig.mine()
    assert await rig.states(txs) == [State.SENT, State.MINED]


@lesson("lower-count")
@staged()
async def test_a_lane_that_was_never_worked_waits_for_its_chain_like_any_other(rig: Rig) -> None:
    """Nothing on record says what was final for it; what this node has seen does, until somebody resumes the lane."""
    await settled(rig, "alice's")
    tops = [(voice.endpoint.head, voice.endpoint.final) for voice in rig.endpoints]
    genesis = rig.chain.head.at(0)
    assert genesis is not None
    for voice in rig.endpoints:
        voice.endpoint.head = voice.endpoint.final = genesis
    tx = await rig.submit("bob's first", BOB)
    await rig.advance(120.0)
    assert await rig.lane_mark(BOB) == "chain_behind"
    assert rig.sent("bob's first") == []
    for voice, (head, final) in zip(rig.endpoints, tops, strict=True):
        voice.endpoint.head, voice.endpoint.final = head, final
    await rig.reaches(tx, State.SENT)
    assert await rig.lane_mark(BOB) is None
    await rig.mine()
    await rig.finalise()
    assert await rig.state(tx) is State.CONFIRMED


@staged()
async def test_a_lane_that_was_never_worked_begins_on_a_chain_that_was_reset_once_it_is_resumed(rig: Rig) -> None:
    await settled(rig, "alice's")
    await grown(rig)
    await rig.asking.control(BOB, Mode.OPEN)  # before anything happened: this says nothing of what comes
    await rig.advance(5.0)
    await rig.reset_chain()
    tx = await rig.submit("bob's first", BOB)
    await rig.advance(60.0)
    assert await rig.lane_mark(BOB) == "chain_behind"
    assert rig.sent("bob's first") == []
    await rig.asking.control(BOB, Mode.OPEN)
    await rig.reaches(tx, State.SENT)
    await rig.mine()
    await rig.finalise()
    assert await rig.state(tx) is State.CONFIRMED


@lesson("lower-count")
@staged(nodes=0)
async def test_a_first_start_on_endpoints_that_lag_pays_once_and_in_the_end(rig: Rig) -> None:
    """The key was used before: as they see it, its first nonce is free."""
    rig.chain.intrude(ALICE.address)
    for voice in rig.endpoints:
        voice.lag()
    await rig.mine()
    await rig.finalise()
    await rig.start_node()
    tx = await rig.submit("pay")
    await rig.reaches(tx, State.SENT)
    assert rig.executions("pay") == 0
    for voice in rig.endpoints:
        voice.heal()
    await rig.mine(2)
    await rig.finalise()
    await rig.mine(3)
    await rig.finalise()
    assert await rig.state(tx) is State.CONFIRMED
    assert rig.executions("pay") == 1
