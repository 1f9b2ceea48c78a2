"""What a lane does when its chain is not the one it was, or only seems so; and halts, which somebody must end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import pytest

from nonchalant.errors import WishPending, WishRefused
from nonchalant.model import Account, BlockRef
from nonchalant.values import replace
from nonchalant.wishes import Reserve, Reset
from nonchalant.words import Mode, State
from tests.lessons import lesson
from tests.stages.acts import HOLDER, ask, refusal, settled
from tests.stages.rig import ALICE, BOB, Rig, staged, unreachable
from tests.stages.voices import Voice


async def grown(rig: Rig, blocks: int = 6) -> None:
    """So long that a chain that was reset is far behind."""
    await rig.mine(blocks)


@contextmanager
def everyone_at_the_genesis(rig: Rig) -> Iterator[None]:
    """Every endpoint falls behind for a while, and then catches up."""
    genesis = rig.chain.head.at(0)
    assert genesis is not None
    tops = [(voice.endpoint.head, voice.endpoint.final) for voice in rig.endpoints]
    for voice in rig.endpoints:
        voice.endpoint.head = voice.endpoint.final = genesis
    yield
    for voice, (head, final) in zip(rig.endpoints, tops, strict=True):
        voice.endpoint.head, voice.endpoint.final = head, final


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
    assert (await refusal(rig, Reserve(HOLDER, 60_000))).why == "reset_needed"
    assert (await refusal(rig, Reset())).why == "was_final"
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
    assert (await refusal(rig, Reset())).why == "attempts_live"
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
    follower = rig.node.engine.followers[ALICE.chain_id]
    final = follower._known.final
    with everyone_at_the_genesis(rig):
        tx = await rig.submit("tx", gas=60_000)
        await rig.advance(30.0)
        assert await rig.lane_mark() == "chain_behind"
        assert follower._known.final == final  # it never moves back unasked
        assert await rig.state(tx) is State.QUEUED
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
    with everyone_at_the_genesis(rig):
        tx = await rig.submit("bob's first", BOB)
        await rig.advance(120.0)
        assert await rig.lane_mark(BOB) == "chain_behind"
        assert rig.sent("bob's first") == []
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
