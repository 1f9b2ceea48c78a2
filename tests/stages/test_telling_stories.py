"""Outcomes are facts: what the linked chain shows, from endpoints that have the block, at finality."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from nonchalant.follow import MAX_WALK
from nonchalant.model import View
from nonchalant.panel import STALLED_SECONDS
from nonchalant.sim.blocks import SimBlock
from nonchalant.sim.pool import BESU
from nonchalant.words import State
from tests.lessons import lesson
from tests.stages.acts import QUICK_BUMP, bumped_in_vain
from tests.stages.rig import ALICE, BLOCK_SECONDS, BOB, Rig, staged, unreachable
from tests.stages.voices import Voice

# reorgs


@lesson("receipt-after-reorg")
@staged(flavours=(BESU,) * 3)
async def test_reorg_puts_a_mined_transaction_back_in_flight_and_sends_it_again_at_once(rig: Rig) -> None:
    tx = await rig.submit("pay")
    await rig.reaches(tx, State.SENT)
    await rig.mine()
    before = await rig.reaches(tx, State.MINED)
    sends = len(rig.sent("pay"))
    await rig.reorg(1)
    assert rig.executions("pay") == 0
    after = await rig.read(tx)
    assert (after.state, after.receipt, after.nonce, after.hash) == (State.SENT, None, before.nonce, before.hash)
    assert "tx.reorged" in await rig.history(tx)
    assert len(rig.sent("pay")) == sends + 3  # within seconds, to every endpoint
    await rig.mine()
    again = await rig.read(tx)
    assert again.state is State.MINED
    assert again.receipt is not None
    assert before.receipt is not None
    assert again.receipt.block != before.receipt.block
    await rig.finalise()
    assert await rig.state(tx) is State.CONFIRMED


@lesson("one-receipt")
@staged()
async def test_a_reorg_that_takes_it_along_moves_the_receipt_to_the_new_block(rig: Rig) -> None:
    tx = await rig.submit("pay")
    await rig.reaches(tx, State.SENT)
    await rig.mine(2)
    await rig.reorg(2, keep=True)
    moved = await rig.reaches(tx, State.MINED)
    [block] = rig.chain.executions("pay")
    assert moved.receipt is not None
    assert moved.receipt.block == block.ref
    await rig.finalise()
    confirmed = await rig.read(tx)
    assert confirmed.receipt == moved.receipt


@lesson("receipt-after-reorg")
@staged(patience=QUICK_BUMP)
async def test_after_a_reorg_the_other_attempt_may_win(rig: Rig) -> None:
    tx = await bumped_in_vain(rig)
    original, bump = (await rig.attempts(tx))[:2]
    await rig.mine()
    assert (await rig.read(tx)).hash == original.hash
    for voice in rig.endpoints:
        voice.heal()
    await rig.reorg(1)
    await rig.mine(8)
    confirmed = await rig.read(tx)
    assert (confirmed.state, confirmed.hash) == (State.CONFIRMED, (await rig.attempts(tx))[-1].hash)
    assert confirmed.hash != original.hash
    assert bump.nonce == original.nonce


@lesson("receipt-after-reorg")
@staged()
async def test_a_reorg_while_nobody_looked_is_seen_by_the_next_owner(rig: Rig) -> None:
    tx = await rig.submit("pay")
    await rig.reaches(tx, State.SENT)
    await rig.mine()
    await rig.reaches(tx, State.MINED)
    rig.kill(rig.node)
    await rig.reorg(1)
    for voice in rig.endpoints:
        voice.forget_pool()
    await rig.start_node()
    await rig.reaches(tx, State.SENT)
    await rig.advance(2.0)
    await rig.mine()
    await rig.finalise()
    assert await rig.state(tx) is State.CONFIRMED


@staged()
async def test_a_reorg_behind_other_transactions_sends_all_of_them_again_in_order(rig: Rig) -> None:
    txs = await rig.submit_all(f"pay-{n}" for n in range(5))
    await rig.reaches(txs[-1], State.SENT)
    await rig.mine()
    await rig.mine(empty=True)
    await rig.reorg(2)
    assert await rig.states(txs) == [State.SENT] * 5
    await rig.mine()
    await rig.finalise()
    assert await rig.states(txs) == [State.CONFIRMED] * 5
    assert rig.order_of_execution() == [f"pay-{n}" for n in range(5)]


@staged()
async def test_one_endpoint_on_a_branch_of_its_own_settles_nothing(rig: Rig) -> None:
    tx = await rig.submit("pay")
    await rig.reaches(tx, State.SENT)
    rig.chain.fork(rig.endpoints[0].endpoint, 0)  # it has executed our transaction, one block ahead of all
    await rig.advance(BLOCK_SECONDS)
    assert rig.executions("pay") == 0
    for _ in range(8):
        await rig.mine(empty=True)
        assert await rig.state(tx) in {State.SENT, State.MINED}
    rig.chain.rejoin(rig.endpoints[0].endpoint)
    await rig.advance(30.0)
    assert await rig.state(tx) is State.SENT
    await rig.mine()
    await rig.finalise()
    assert await rig.state(tx) is State.CONFIRMED


# counts


@lesson("lower-count")
@staged()
async def test_a_lower_count_from_a_lagging_node_is_not_believed(rig: Rig) -> None:
    first = await rig.submit("first")
    await rig.reaches(first, State.SENT)
    rig.endpoints[0].lag()
    rig.endpoints[1].lag()
    await rig.mine()
    await rig.reaches(first, State.MINED)
    rig.kill(rig.node)
    await rig.start_node()
    second = await rig.submit("second")
    assigned = await rig.reaches(second, State.SENT, 60.0)
    assert assigned.nonce == 1
    for voice in rig.endpoints:
        voice.heal()
    await rig.advance(20.0)
    await rig.mine()
    await rig.finalise()
    assert await rig.states([first, second]) == [State.CONFIRMED] * 2


@lesson("consumed-by-ourselves")
@pytest.mark.parametrize("question", ["executed", "block", "receipts", "find", "account"])
@staged()
async def test_nothing_is_called_consumed_by_others_while_the_calls_that_would_prove_it_fail(
    rig: Rig, question: str
) -> None:
    """Our own attempt consumed the nonce; a new owner comes late and cannot ask everything."""
    tx = await rig.submit("pay")
    await rig.reaches(tx, State.SENT)
    rig.kill(rig.node)
    await rig.mine()
    await rig.finalise()
    await rig.mine(3)
    for voice in rig.endpoints:
        voice.fail(question, unreachable())
    await rig.start_node()
    await rig.advance(60.0)
    assert await rig.state(tx) in {State.SENT, State.CONFIRMED}
    for voice in rig.endpoints:
        voice.heal()
    await rig.reaches(tx, State.CONFIRMED, 60.0)
    assert "tx.superseded" not in await rig.history(tx)
    assert await rig.events("lane.foreign") == []


# finality


@lesson("one-receipt")
@staged()
async def test_one_endpoint_that_lies_about_finality_settles_nothing_early(rig: Rig) -> None:
    rig.endpoints[0].lie_about_finality()
    tx = await rig.submit("pay")
    await rig.reaches(tx, State.SENT)
    await rig.mine(rig.setting.finality_lag)
    assert await rig.state(tx) is State.MINED
    await rig.reorg(rig.setting.finality_lag)
    assert await rig.state(tx) is State.SENT
    await rig.mine()
    await rig.finalise()
    assert await rig.state(tx) is State.CONFIRMED


@staged()
async def test_endpoints_that_disagree_about_a_final_block_stop_settling_with_a_reason(rig: Rig) -> None:
    await rig.mine(6)
    tx = await rig.submit("pay")
    await rig.reaches(tx, State.SENT)
    liar = rig.endpoints[0]
    rig.chain.fork(liar.endpoint, 0)
    liar.lie_about_finality()
    await rig.mine()
    await rig.finalise()
    [follower] = rig.node.engine.followers.values()
    assert rig.chain.final.number > 6
    assert await rig.state(tx) is State.MINED
    assert follower.trouble is not None
    assert "disagree" in follower.trouble
    liar.heal()
    await rig.mine()
    await rig.reaches(tx, State.CONFIRMED)
    assert follower.trouble is None


@staged()
async def test_endpoints_that_do_not_answer_are_not_said_to_disagree(rig: Rig) -> None:
    tx = await rig.submit("pay")
    await rig.reaches(tx, State.SENT)
    for voice in rig.endpoints[:2]:

        async def silent(which: int | str, voice: Voice = voice) -> object:
            """It tells its head and the way to it, and not what was at a height before."""
            if isinstance(which, int):
                raise unreachable()
            return await voice.endpoint.block(which)

        voice.answer("block", silent)
    await rig.mine()
    await rig.finalise()
    [follower] = rig.node.engine.followers.values()
    assert await rig.state(tx) is State.MINED
    assert follower.trouble is not None
    assert "too few endpoints tell block" in follower.trouble
    assert not any("finality.disagreed" in line for line in rig.trace.lines)
    for voice in rig.endpoints[:2]:
        voice.heal()
    await rig.mine()
    await rig.reaches(tx, State.CONFIRMED)


@staged()
async def test_too_few_endpoints_stop_settling_with_a_reason(rig: Rig) -> None:
    tx = await rig.submit("pay")
    await rig.reaches(tx, State.SENT)
    rig.endpoints[0].down()
    rig.endpoints[1].down()
    await rig.mine()
    await rig.finalise()
    await rig.advance(20.0)
    assert await rig.state(tx) is State.MINED
    [follower] = rig.node.engine.followers.values()
    assert follower.trouble is not None
    assert "too few endpoints" in follower.trouble
    rig.endpoints[1].heal()
    await rig.reaches(tx, State.CONFIRMED)


@staged()
async def test_an_endpoint_that_stands_still_is_left_out_after_a_while(rig: Rig) -> None:
    tx = await rig.submit("pay")
    await rig.reaches(tx, State.SENT)
    rig.endpoints[0].lag()
    stalled_at = rig.loop.time()
    await rig.mine()
    await rig.finalise()
    while rig.loop.time() < stalled_at + STALLED_SECONDS - 10.0:
        await rig.mine()
        assert await rig.state(tx) is State.MINED  # its word still counts
    await rig.mine(6)
    assert await rig.state(tx) is State.CONFIRMED


@staged()
async def test_an_endpoint_without_a_finalized_tag_is_an_error_and_never_a_silent_depth(rig: Rig) -> None:
    tx = await rig.submit("pay")
    await rig.reaches(tx, State.SENT)
    voice = rig.endpoints[0]

    async def no_tag() -> View:
        return View(voice.endpoint.head.ref, None)

    voice.answer("view", no_tag)
    await rig.mine()
    await rig.finalise()
    await rig.mine(20)
    assert await rig.state(tx) is State.MINED
    [follower] = rig.node.engine.followers.values()
    assert follower.trouble is not None
    voice.heal()
    await rig.reaches(tx, State.CONFIRMED)


@staged()
async def test_finality_never_moves_back(rig: Rig) -> None:
    await rig.mine(10)
    [follower] = rig.node.engine.followers.values()
    final = follower.head.final
    assert final.number == 6
    lower = rig.chain.head.at(2)
    assert lower is not None
    for voice in rig.endpoints:
        voice.answer("view", _view_of(voice, lower))
    await rig.mine(3)
    assert follower.head.final == final


def _view_of(voice: Voice, final: SimBlock) -> Callable[[], Awaitable[View]]:
    async def view() -> View:
        return View(voice.endpoint.head.ref, final.ref)

    return view


@staged()
async def test_a_final_block_that_vanishes_halts_every_lane_of_the_chain_with_a_mark(rig: Rig) -> None:
    alice, bob = await rig.submit("alice", ALICE), await rig.submit("bob", BOB)
    await rig.reaches(bob, State.SENT)
    for voice in rig.endpoints:
        voice.lie_about_finality()
    await rig.mine()
    assert await rig.states([alice, bob]) == [State.CONFIRMED] * 2
    more = await rig.submit("more", ALICE)
    await rig.submit("more of bob's", BOB)
    await rig.reaches(more, State.SENT)
    for voice in rig.endpoints:
        voice.heal()
    await rig.reorg(2)
    await rig.mine(2, empty=True)
    assert await rig.lane_mark(ALICE) == "chain_halted"
    assert await rig.lane_mark(BOB) == "chain_halted"
    assert await rig.states([alice, bob]) == [State.CONFIRMED] * 2  # ends stay
    for voice in rig.endpoints:
        voice.forget_pool()
    sends, attempts = len(rig.arrivals), rig.attempts_ever()
    await rig.submit("after", ALICE)
    await rig.advance(300.0)
    assert (len(rig.arrivals), rig.attempts_ever()) == (sends, attempts)


@staged()
async def test_one_endpoint_that_denies_a_final_block_halts_nothing(rig: Rig) -> None:
    tx = await rig.submit("pay")
    await rig.reaches(tx, State.SENT)
    await rig.mine()
    other = rig.endpoints[0]
    rig.chain.fork(other.endpoint, 1)
    await rig.mine(8)
    await rig.submit("next")
    await rig.advance(5.0)
    [follower] = rig.node.engine.followers.values()
    assert follower.halted is None
    assert await rig.lane_mark() is None
    other.heal()
    await rig.mine(5)
    assert await rig.state(tx) is State.CONFIRMED
    assert rig.executions("next") == 1


# what was not seen


@staged()
async def test_after_a_long_outage_everything_is_looked_up(rig: Rig) -> None:
    txs = await rig.submit_all(f"pay-{n}" for n in range(3))
    await rig.reaches(txs[-1], State.SENT)
    for _ in range(MAX_WALK + 50):  # faster than the follower can look
        rig.chain.mine()
    await rig.advance(10.0)
    assert await rig.states(txs) == [State.CONFIRMED] * 3
    [follower] = rig.node.engine.followers.values()
    assert follower.head.top == rig.chain.head.ref


@pytest.mark.parametrize("blocks", [1, 3, 40])
@staged()
async def test_blocks_that_come_faster_than_the_follower_looks_are_all_read(rig: Rig, blocks: int) -> None:
    txs = await rig.submit_all(f"pay-{n}" for n in range(3))
    await rig.reaches(txs[-1], State.SENT)
    for _ in range(blocks):
        rig.chain.mine()
    await rig.advance(5.0)
    assert all(state in {State.MINED, State.CONFIRMED} for state in await rig.states(txs))
    assert all(voice.asked["find"] <= 2 for voice in rig.endpoints)
