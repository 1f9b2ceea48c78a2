"""Replacing and bumping: the same slot, the same id, another payload or a better price; or a refusal with its reason."""

from __future__ import annotations

from itertools import pairwise

import pytest

from nonchalant.errors import TooLate, WishRefused
from nonchalant.fees import FeeRules
from nonchalant.model import Fees, Payload, Transaction
from nonchalant.policy import Patience
from nonchalant.sim.gate import Boundary
from nonchalant.sim.pool import BESU
from nonchalant.sim.wire import Effect
from nonchalant.values import replace
from nonchalant.wishes import Bump, Replace, Wish
from nonchalant.words import AttemptKind, Mode, Speed, State
from tests.lessons import lesson
from tests.stages.acts import CHEAP, DEAR, sent
from tests.stages.rig import ALICE, ETHER, GWEI, Rig, refused, staged, unreachable

ORIGINAL, BUMP, REPLACEMENT = AttemptKind.ORIGINAL, AttemptKind.BUMP, AttemptKind.REPLACEMENT
CANCEL = AttemptKind.CANCEL
PATIENCE = 5.0  # seconds that an owner has to answer in


async def asked(rig: Rig, act: Bump | Replace) -> Transaction:
    if isinstance(act, Bump):
        return await rig.asking.bump(act.tx_id, act.fees, patience=PATIENCE)
    return await rig.asking.replace(act.tx_id, act.payload, act.fees, patience=PATIENCE)


async def refused_for(
    rig: Rig, tx: Transaction, payload: Payload | None = None, fees: Speed | Fees | None = None
) -> str:
    """The code with which the owner refuses the replacement, or the bump; nothing of it was signed."""
    before = await rig.attempts(tx)
    act = Bump(tx.id, fees) if payload is None else Replace(tx.id, payload, fees)
    with pytest.raises(WishRefused) as refusal:
        await asked(rig, act)
    assert await rig.attempts(tx) == before
    assert rig.wishes_open() == 0
    return refusal.value.why


async def version_that_ran(rig: Rig, tx: Transaction) -> int:
    ended = await rig.ends(tx)
    assert ended.state is State.CONFIRMED
    [version] = [one.payload_version for one in await rig.attempts(tx) if one.hash == ended.hash]
    return version


# replacing


@lesson("replace-for-real")
@pytest.mark.parametrize("place", [0, 1, 2], ids=["head", "middle", "tail"])
@staged()
async def test_a_sent_transaction_is_replaced_at_its_own_slot_under_its_own_id(rig: Rig, place: int) -> None:
    txs = await sent(rig, "a", "b", "c")
    was = txs[place]
    replaced = await rig.asking.replace(was.id, rig.payload("other"), patience=PATIENCE)
    assert (replaced.id, replaced.nonce, replaced.payload_version) == (was.id, was.nonce, 2)
    assert (replaced.payload, replaced.earlier) == (rig.payload("other"), (was.payload,))
    await rig.advance(1.0)
    assert await version_that_ran(rig, was) == 2
    assert await rig.states(txs) == [State.CONFIRMED] * 3
    labels = ["a", "b", "c"]
    labels[place] = "other"
    assert rig.order_of_execution() == labels
    assert await rig.kinds(was) == [ORIGINAL, REPLACEMENT]
    assert await rig.told(was, "tx.replaced") == [{"payload_version": 2}]


@staged()
async def test_a_queued_transaction_is_replaced_where_it_waits(rig: Rig) -> None:
    await rig.asking.control(ALICE, Mode.PAUSED)
    tx, behind = await rig.submit("pay"), await rig.submit("behind")
    await rig.asking.replace(tx.id, rig.payload("other"), Speed.FAST)
    await rig.asking.control(ALICE, Mode.OPEN)
    await rig.reaches(behind, State.SENT)
    assert await version_that_ran(rig, tx) == 2
    assert rig.order_of_execution() == ["other", "behind"]
    assert rig.sent("pay") == []
    assert (await rig.read(tx)).fees is Speed.FAST


@staged()
async def test_a_transaction_replaced_twice_runs_as_it_was_asked_for_last(rig: Rig) -> None:
    [tx] = await sent(rig, "pay")
    for label in ("second", "third"):
        await rig.asking.replace(tx.id, rig.payload(label), patience=PATIENCE)
        await rig.advance(1.0)
    assert await version_that_ran(rig, tx) == 3
    assert rig.order_of_execution() == ["third"]
    ended = await rig.read(tx)
    assert ended.earlier == (rig.payload("pay"), rig.payload("second"))
    prices = [attempt.fees.max_fee for attempt in await rig.attempts(tx)]
    assert prices == sorted(set(prices))


@staged()
async def test_an_older_payload_that_is_mined_all_the_same_is_the_outcome(rig: Rig) -> None:
    [tx] = await sent(rig, "pay")
    for voice in rig.endpoints:
        voice.refuse("txpool is full")
    await rig.asking.replace(tx.id, rig.payload("other"), patience=PATIENCE)
    await rig.advance(1.0)
    assert await version_that_ran(rig, tx) == 1
    assert (rig.executions("pay"), rig.executions("other")) == (1, 0)


@staged(flavours=(BESU,) * 3)
async def test_after_a_reorg_the_replacement_is_sent_again_and_not_what_it_replaced(rig: Rig) -> None:
    [tx] = await sent(rig, "pay")
    await rig.asking.replace(tx.id, rig.payload("other"), patience=PATIENCE)
    await rig.advance(1.0)
    await rig.mine()
    assert await rig.state(tx) is State.MINED
    sends = len(rig.sent("pay"))
    await rig.reorg(1)
    await rig.advance(5.0)
    assert await version_that_ran(rig, tx) == 2
    assert len(rig.sent("pay")) == sends


@pytest.mark.parametrize("step", ["signer.sign", "store.commit", "node.send"])
@pytest.mark.parametrize("side", Boundary)
@staged()
async def test_a_crash_while_it_is_replaced_leaves_one_replacement_and_one_execution(
    rig: Rig, step: str, side: Boundary
) -> None:
    first, tx = await sent(rig, "first", "pay")
    rig.kill_at(rig.node, step, side)
    await rig.asking.replace(tx.id, rig.payload("other"))
    await rig.advance(1.0)
    await rig.start_node()
    await rig.advance(20.0)  # the dead one's lease runs out
    assert rig.wishes_open() == 0
    assert (await rig.read(tx)).payload_version == 2
    assert await version_that_ran(rig, tx) == 2
    assert rig.order_of_execution() == ["first", "other"]
    assert await rig.state(first) is State.CONFIRMED


@staged()
async def test_a_replaced_transaction_that_lost_its_nonce_goes_again_as_it_was_asked_for_last(rig: Rig) -> None:
    [tx] = await sent(rig, "pay")
    await rig.asking.replace(tx.id, rig.payload("other"), patience=PATIENCE)
    rig.intrude()
    await rig.mine()
    await rig.finalise()
    await rig.tells(tx, "tx.requeued")
    again = await rig.reaches(tx, State.SENT)
    assert again.nonce == 1
    assert await version_that_ran(rig, tx) == 2
    assert (rig.executions("pay"), rig.executions("other")) == (0, 1)


@staged()
async def test_a_replacement_that_its_owner_finds_when_the_transaction_is_queued_again_is_granted_there(
    rig: Rig,
) -> None:
    [tx] = await sent(rig, "pay")
    await rig.stop(rig.node)
    await rig.asking.replace(tx.id, rig.payload("other"), Speed.FAST)
    rig.intrude()
    await rig.mine()
    await rig.finalise()
    await rig.start_node()
    await rig.tells(tx, "tx.replaced")
    await rig.reaches(tx, State.SENT)
    assert await version_that_ran(rig, tx) == 2
    assert (await rig.read(tx)).fees is Speed.FAST
    assert rig.executions("pay") == 0


@pytest.mark.parametrize("trouble", [unreachable(), refused("rate limit exceeded", -32005)], ids=["silent", "busy"])
@staged()
async def test_a_replacement_waits_for_nodes_that_do_not_answer_and_is_not_refused_for_it(
    rig: Rig, trouble: Exception
) -> None:
    [tx] = await sent(rig, "pay")
    for voice in rig.endpoints:
        voice.fail("estimate", trouble)
    await rig.asking.replace(tx.id, rig.payload("other"))
    await rig.advance(10.0)
    assert rig.wishes_open() == 1
    for voice in rig.endpoints:
        voice.heal()
    await rig.tells(tx, "tx.replaced")
    await rig.advance(1.0)
    assert await version_that_ran(rig, tx) == 2


@staged()
async def test_a_replacement_waits_for_the_signer(rig: Rig) -> None:
    [tx] = await sent(rig, "pay")
    rig.signer.down = True
    await rig.asking.replace(tx.id, rig.payload("other"))
    await rig.advance(20.0)
    assert (await rig.read(tx)).payload_version == 1
    rig.signer.down = False
    await rig.tells(tx, "tx.replaced")
    await rig.advance(1.0)
    assert await version_that_ran(rig, tx) == 2


# what is refused, and leaves the transaction as it was


@staged()
async def test_after_a_cancel_a_replacement_is_refused_and_the_cancel_goes_on(rig: Rig) -> None:
    [tx] = await sent(rig, "pay")
    await rig.asking.cancel(tx.id, patience=PATIENCE)
    await rig.tells(tx, "attempt.bumped")
    await rig.advance(1.0)  # until it is told that nodes took it
    assert await refused_for(rig, tx, rig.payload("other")) == "already_cancelled"
    assert (await rig.ends(tx)).state is State.CANCELLED


@lesson("policy-on-replacement")
@staged(fees=FeeRules(max_fee=100 * GWEI, max_priority=10 * GWEI))
async def test_what_would_not_be_sent_does_not_replace_what_was(rig: Rig) -> None:
    [tx] = await sent(rig, "pay")
    rejected = [
        (rig.payload("other", Effect.NEVER), None, "would_revert"),
        (rig.payload("other", gas=30_000, value=99 * ETHER), None, "insufficient_funds"),
        (rig.payload("other", value=99 * ETHER), None, "cannot_be_sent"),
        (rig.payload("other", gas=10**9), None, "gas_above_block"),
        (rig.payload("other"), Fees(101 * GWEI, 10 * GWEI), "fee_above_cap"),
        (rig.payload("other"), Fees(100 * GWEI, 11 * GWEI), "fee_above_cap"),
        (rig.payload("other"), Fees(1, 1), "underpriced"),
        (rig.payload("other"), Fees(99 * GWEI), "wrong_fee_type"),
    ]
    for payload, fees, why in rejected:
        assert await refused_for(rig, tx, payload, fees) == why
    assert await rig.read(tx) == tx
    assert await version_that_ran(rig, tx) == 1


@staged()
async def test_what_a_block_has_executed_is_not_replaced(rig: Rig) -> None:
    [tx] = await sent(rig, "pay")
    await rig.mine()
    await rig.reaches(tx, State.MINED)
    with pytest.raises(TooLate, match="executed in block 1 already"):
        await rig.asking.replace(tx.id, rig.payload("other"))
    # Written a moment before it was mined:
    for id, act in (("r", Replace(tx.id, rig.payload("other"))), ("b", Bump(tx.id))):
        await rig.store.wish(Wish(id, ALICE, act), limit=9)
        await rig.advance(3.0)
        reply = await rig.store.reply(id)
        assert reply is not None
        assert reply.refused == "already_executed"
    await rig.finalise()
    assert await rig.state(tx) is State.CONFIRMED


@staged()
async def test_what_lost_its_nonce_at_the_head_is_not_replaced_there(rig: Rig) -> None:
    [tx] = await sent(rig, "pay")
    rig.intrude()
    await rig.mine()
    await rig.advance(20.0)
    assert await refused_for(rig, tx, rig.payload("other")) == "nonce_used"
    assert await refused_for(rig, tx, fees=Speed.FAST) == "nonce_used"


# bumping


@staged()
async def test_a_bump_offers_more_at_once_wherever_it_stands(rig: Rig) -> None:
    txs = await sent(rig, *"abcdefg")
    tx = txs[-1]
    await rig.asking.bump(tx.id, patience=PATIENCE)
    first, second = await rig.attempts(tx)
    assert second.kind is BUMP
    assert second.fees.max_fee >= first.fees.max_fee * 11 // 10
    assert second.fees.priority >= first.fees.priority * 11 // 10
    await rig.advance(1.0)
    assert (await rig.ends(tx)).hash == second.hash


@staged()
async def test_a_bump_at_a_stated_price_offers_exactly_that_and_is_the_new_cap(rig: Rig) -> None:
    [tx] = await sent(rig, "pay")
    price = Fees(90 * GWEI, 9 * GWEI)
    bumped = await rig.asking.bump(tx.id, price, patience=PATIENCE)
    assert bumped.fees == price
    assert (await rig.attempts(tx))[-1].fees == price


@staged()
async def test_a_stated_price_below_the_step_is_refused_with_the_price_that_is_needed(rig: Rig) -> None:
    [tx] = await sent(rig, "pay", fees=Fees(50 * GWEI, 2 * GWEI))
    for short in (Fees(55 * GWEI - 1, 9 * GWEI), Fees(90 * GWEI, 2_200_000_000 - 1)):
        with pytest.raises(WishRefused, match=f"max_fee {55 * GWEI}, priority {2_200_000_000}") as refusal:
            await rig.asking.bump(tx.id, short, patience=PATIENCE)
        assert refusal.value.why == "underpriced"
    assert await rig.read(tx) == tx
    await rig.asking.bump(tx.id, Fees(55 * GWEI, 2_200_000_000), patience=PATIENCE)
    assert await rig.kinds(tx) == [ORIGINAL, BUMP]


@staged(fees=FeeRules(max_fee=100 * GWEI, max_priority=10 * GWEI))
async def test_a_stated_price_above_the_cap_of_another_kind_or_too_dear_is_refused(rig: Rig) -> None:
    [tx] = await sent(rig, "pay")
    assert await refused_for(rig, tx, fees=Fees(101 * GWEI, 9 * GWEI)) == "fee_above_cap"
    assert await refused_for(rig, tx, fees=Fees(90 * GWEI, 11 * GWEI)) == "fee_above_cap"
    assert await refused_for(rig, tx, fees=Fees(90 * GWEI)) == "wrong_fee_type"
    rig.drain(leave=1000 * GWEI)
    await rig.mine(empty=True)
    await rig.tells(await rig.submit("waiting"), "tx.attention")  # for it the balance is asked
    assert await refused_for(rig, tx, fees=Fees(90 * GWEI, 9 * GWEI)) == "insufficient_funds"
    assert await refused_for(rig, tx, fees=Speed.FAST) == "insufficient_funds"


@staged(fees=FeeRules(max_fee=50 * GWEI))
async def test_at_the_cap_a_bump_by_speed_is_refused(rig: Rig) -> None:
    [tx] = await sent(rig, "pay", fees=Fees(50 * GWEI, 2 * GWEI))
    assert await refused_for(rig, tx, fees=Speed.FAST) == "price_at_cap"
    assert await refused_for(rig, tx) == "price_at_cap"
    assert (await rig.ends(tx)).state is State.CONFIRMED


@staged()
async def test_a_bump_without_a_price_lifts_the_price_that_was_named(rig: Rig) -> None:
    [tx] = await sent(rig, "pay", fees=Fees(30 * GWEI, 1 * GWEI))
    bumped = await rig.asking.bump(tx.id, patience=PATIENCE)
    assert isinstance(bumped.fees, Fees)
    assert bumped.fees == (await rig.attempts(tx))[-1].fees
    assert bumped.fees.max_fee >= 33 * GWEI


@staged()
async def test_while_a_cancel_is_wanted_a_bump_raises_the_cancel(rig: Rig) -> None:
    [tx] = await sent(rig, "pay", fees=Speed.SLOW)
    await rig.asking.cancel(tx.id)
    await rig.tells(tx, "attempt.bumped")
    await rig.asking.bump(tx.id, patience=PATIENCE)
    await rig.asking.bump(tx.id, Fees(500 * GWEI, 90 * GWEI), patience=PATIENCE)
    assert await rig.kinds(tx) == [ORIGINAL, CANCEL, CANCEL, CANCEL]
    assert (await rig.read(tx)).fees is Speed.SLOW  # what was asked for the payload stands
    await rig.advance(1.0)
    ended = await rig.ends(tx)
    assert (ended.state, ended.hash) == (State.CANCELLED, (await rig.attempts(tx))[-1].hash)


@staged()
async def test_a_cancel_that_is_not_signed_yet_cannot_be_raised(rig: Rig) -> None:
    [tx] = await sent(rig, "pay")
    for voice in rig.endpoints:
        voice.fail("market", unreachable())
    await rig.mine(empty=True)
    await rig.asking.cancel(tx.id, patience=PATIENCE)
    assert await refused_for(rig, tx, fees=Fees(500 * GWEI, 90 * GWEI)) == "not_signed"


@staged()
async def test_bumping_what_is_queued_changes_what_will_be_offered(rig: Rig) -> None:
    await rig.asking.control(ALICE, Mode.PAUSED)
    tx = await rig.submit("pay", fees=Speed.SLOW)
    await rig.asking.bump(tx.id)
    assert (await rig.read(tx)).fees is Speed.SLOW
    await rig.asking.bump(tx.id, Fees(77 * GWEI, 7 * GWEI))
    await rig.asking.control(ALICE, Mode.OPEN)
    await rig.reaches(tx, State.SENT)
    [attempt] = await rig.attempts(tx)
    assert attempt.fees == Fees(77 * GWEI, 7 * GWEI)


@staged(fees=FeeRules(max_fee=100 * GWEI))
async def test_a_price_above_the_cap_is_refused_also_when_the_transaction_is_queued_again(rig: Rig) -> None:
    [tx] = await sent(rig, "pay")
    await rig.stop(rig.node)
    dear = Fees(101 * GWEI, 1 * GWEI)
    for id, act in (("r", Replace(tx.id, rig.payload("other"), dear)), ("b", Bump(tx.id, dear))):
        await rig.store.wish(Wish(id, ALICE, act), limit=9)
    rig.intrude()
    await rig.mine()
    await rig.finalise()
    await rig.start_node()
    await rig.tells(tx, "tx.requeued")
    await rig.reaches(tx, State.SENT)
    for id in ("r", "b"):
        reply = await rig.store.reply(id)
        assert reply is not None
        assert reply.refused == "fee_above_cap"
    assert (await rig.read(tx)).payload_version == 1


@staged(patience=Patience(bump_after=dict.fromkeys(Speed, 20_000)))
async def test_what_was_bumped_by_hand_is_bumped_on_from_there(rig: Rig) -> None:
    [tx] = await sent(rig, "pay")
    await rig.asking.bump(tx.id, Speed.FAST, patience=PATIENCE)
    for _ in range(12):
        await rig.mine(empty=True)
    prices = [attempt.fees.max_fee for attempt in await rig.attempts(tx)]
    assert len(prices) >= 3
    assert all(after * 10 >= before * 11 for before, after in pairwise(prices))
    assert (await rig.ends(tx)).state is State.CONFIRMED


@staged()
async def test_prices_that_were_only_to_begin_with_are_raised_as_far_as_a_replacement_needs(rig: Rig) -> None:
    wish = replace(DEAR, firm=False)
    [tx] = await sent(rig, "pay", fees=wish)
    await rig.asking.replace(tx.id, replace(tx.payload, value=7))
    await rig.tells(tx, "tx.replaced", 30.0)
    first, second = await rig.attempts(tx)
    assert first.fees == DEAR
    assert second.fees.max_fee >= DEAR.max_fee * 11 // 10
    assert (await rig.read(tx)).fees == wish


@staged()
async def test_a_better_price_that_is_only_to_begin_with_is_taken_as_it_is_where_it_replaces(rig: Rig) -> None:
    [tx] = await sent(rig, "pay", fees=CHEAP)
    wish = replace(DEAR, firm=False)
    await rig.asking.bump(tx.id, wish)
    await rig.tells(tx, "attempt.bumped", 30.0)
    assert [attempt.fees for attempt in await rig.attempts(tx)] == [CHEAP, DEAR]
    assert (await rig.read(tx)).fees == wish
