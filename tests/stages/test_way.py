"""The way of a transaction when nothing goes wrong: order, window, price, and what it is called at each step."""

from __future__ import annotations

from nonchalant.fees import FeeRules
from nonchalant.model import Fees
from nonchalant.policy import Patience
from nonchalant.sim.wire import Effect
from nonchalant.words import AttemptKind, Speed, State
from tests.lessons import lesson
from tests.stages.rig import ALICE, BOB, GWEI, Rig, staged


@staged()
async def test_a_transaction_is_signed_sent_mined_and_confirmed_at_finality(rig: Rig) -> None:
    tx = await rig.submit("pay")
    await rig.reaches(tx, State.SENT)
    await rig.mine()
    assert await rig.state(tx) is State.MINED
    await rig.finalise()
    confirmed = await rig.read(tx)
    assert confirmed.state is State.CONFIRMED
    assert await rig.history(tx) == ["tx.accepted", "tx.signed", "tx.sent", "tx.mined", "tx.confirmed"]
    [block] = rig.chain.executions("pay")
    assert confirmed.receipt == block.receipts[confirmed.hash or ""]


@lesson("one-receipt")
@staged()
async def test_one_receipt_is_mined_and_not_yet_confirmed(rig: Rig) -> None:
    tx = await rig.submit("pay")
    await rig.reaches(tx, State.SENT)
    for _ in range(rig.setting.finality_lag):
        await rig.mine()
        assert await rig.state(tx) is State.MINED
    await rig.mine()
    assert await rig.state(tx) is State.CONFIRMED


@lesson("reverted-is-reverted")
@staged()
async def test_a_reverted_transaction_is_called_reverted_and_only_at_finality(rig: Rig) -> None:
    tx = await rig.submit("pay", effect=Effect.REVERTS)
    await rig.reaches(tx, State.SENT)
    await rig.mine()
    assert await rig.state(tx) is State.MINED
    await rig.finalise()
    assert await rig.state(tx) is State.REVERTED
    assert (await rig.history(tx))[-1] == "tx.reverted"


@staged(depth=2, finality_lag=50)
async def test_finality_by_depth_waits_for_that_many_blocks(rig: Rig) -> None:
    tx = await rig.submit("pay")
    await rig.reaches(tx, State.SENT)
    await rig.mine(2)
    assert await rig.state(tx) is State.MINED
    await rig.mine()
    assert await rig.state(tx) is State.CONFIRMED


@staged(window=3)
async def test_no_more_than_the_window_is_in_flight_and_what_is_mined_makes_room(rig: Rig) -> None:
    txs = await rig.submit_all(f"pay-{n}" for n in range(8))
    await rig.advance(5.0)
    assert [endpoint.pooled(ALICE) for endpoint in rig.endpoints] == [[0, 1, 2]] * 3
    await rig.mine()  # not final: executed is enough
    assert [endpoint.pooled(ALICE) for endpoint in rig.endpoints] == [[3, 4, 5]] * 3
    await rig.mine(2)
    await rig.finalise()
    assert await rig.states(txs) == [State.CONFIRMED] * 8
    assert rig.order_of_execution() == [f"pay-{n}" for n in range(8)]


@staged(unsettled=3)
async def test_what_is_not_final_has_a_limit_of_its_own(rig: Rig) -> None:
    await rig.submit_all(f"pay-{n}" for n in range(5))
    await rig.advance(3.0)
    await rig.mine()
    assert rig.account().count == 3
    assert list(rig.slots()) == [0, 1, 2]
    await rig.finalise()
    assert list(rig.slots()) == [0, 1, 2, 3, 4]


@staged(batch=2)
async def test_what_does_not_fit_a_batch_goes_with_the_next_one_at_once(rig: Rig) -> None:
    await rig.submit_all(f"pay-{n}" for n in range(7))
    await rig.advance(2.0)
    assert rig.endpoints[0].pooled(ALICE) == list(range(7))


@staged(window=1)
async def test_priority_orders_only_what_is_queued(rig: Rig) -> None:
    first = await rig.submit("first", priority=0)
    await rig.reaches(first, State.SENT)
    await rig.submit("plain")
    await rig.submit("urgent", priority=9)
    await rig.submit("plain too")
    await rig.submit("whenever", priority=1)
    await rig.mine(6)
    assert rig.order_of_execution() == ["first", "urgent", "plain", "plain too", "whenever"]


@lesson("dependent-estimates")
@staged()
async def test_dependent_transactions_wait_and_then_go(rig: Rig) -> None:
    approve = await rig.submit("approve")
    transfer = await rig.submit("transfer", effect=Effect.AFTER, after="approve")
    other = await rig.submit("other")
    await rig.advance(3.0)
    assert await rig.states([approve, transfer, other]) == [State.SENT, State.QUEUED, State.SENT]
    assert await rig.mark(transfer) == "waits_for_earlier"
    await rig.mine()
    assert (await rig.read(transfer)).nonce == 2  # others passed it
    await rig.mine()
    await rig.finalise()
    assert await rig.states([approve, transfer, other]) == [State.CONFIRMED] * 3
    assert (await rig.read(transfer)).attention is None


@staged()
async def test_a_dependent_transaction_whose_predecessor_reverted_fails_when_nothing_is_ahead_of_it(rig: Rig) -> None:
    approve = await rig.submit("approve", effect=Effect.REVERTS)
    transfer = await rig.submit("transfer", effect=Effect.AFTER, after="approve")
    await rig.reaches(approve, State.SENT)
    await rig.advance(5.0)
    assert await rig.state(transfer) is State.QUEUED
    await rig.mine()
    assert await rig.state(transfer) is State.FAILED
    assert rig.account().count == 1
    assert list(rig.slots()) == [0]


@lesson("replacement-step")
@staged(patience=Patience(bump_after=dict.fromkeys(Speed, 20_000)))
async def test_a_bump_raises_every_fee_field_by_a_tenth_rounded_up_when_prices_fell(rig: Rig) -> None:
    tx = await rig.submit("pay", fees=Speed.FAST)
    await rig.reaches(tx, State.SENT)
    rig.chain.fee_level = 10 * GWEI + 7
    await rig.mine(8, empty=True)
    first, second = (await rig.attempts(tx))[:2]
    assert (first.kind, second.kind) == (AttemptKind.ORIGINAL, AttemptKind.BUMP)
    assert second.fees == Fees(_plus_tenth(first.fees.max_fee), _plus_tenth(first.fees.priority or 0))
    # Nodes took it in place of the first one.
    assert all(voice.endpoint.pool.holds(second.hash) for voice in rig.endpoints)


@lesson("replacement-step")
@staged(patience=Patience(bump_after=dict.fromkeys(Speed, 20_000)))
async def test_a_bump_takes_the_fresh_price_when_that_is_higher(rig: Rig) -> None:
    tx = await rig.submit("pay")
    await rig.reaches(tx, State.SENT)
    rig.chain.fee_level = 100 * GWEI
    await rig.mine(8, empty=True)
    first, second = (await rig.attempts(tx))[:2]
    assert second.fees.max_fee > 2 * rig.setting.base_fee * 11 // 10 + 2 * GWEI
    base_fee_then = rig.chain.head.at(7)
    assert base_fee_then is not None
    assert second.fees.max_fee >= base_fee_then.base_fee
    assert (second.fees.priority or 0) >= _plus_tenth(first.fees.priority or 0)
    await rig.mine()
    await rig.finalise()
    assert await rig.state(tx) is State.CONFIRMED


@lesson("replacement-step")
@staged(legacy=True, patience=Patience(bump_after=dict.fromkeys(Speed, 20_000)))
async def test_a_bump_on_a_chain_without_base_fee_raises_the_gas_price_by_a_tenth(rig: Rig) -> None:
    tx = await rig.submit("pay")
    await rig.reaches(tx, State.SENT)
    await rig.mine(8, empty=True)
    first, second = (await rig.attempts(tx))[:2]
    assert second.fees == Fees(_plus_tenth(first.fees.max_fee))
    await rig.mine()
    assert (await rig.read(tx)).hash == (await rig.attempts(tx))[-1].hash


@staged(patience=Patience(bump_after=dict.fromkeys(Speed, 20_000)))
async def test_only_the_lowest_slots_are_bumped(rig: Rig) -> None:
    txs = await rig.submit_all(f"pay-{n}" for n in range(6))
    await rig.advance(20.0)
    await rig.mine(2, empty=True)
    assert [len(await rig.attempts(tx)) for tx in txs] == [2, 2, 2, 2, 1, 1]


@staged(fees=FeeRules(max_fee=60 * GWEI))
async def test_a_price_named_by_the_user_is_kept_as_it_is(rig: Rig) -> None:
    tx = await rig.submit("pay", fees=Fees(33 * GWEI, GWEI))
    await rig.reaches(tx, State.SENT)
    [attempt] = await rig.attempts(tx)
    assert attempt.fees == Fees(33 * GWEI, GWEI)


@staged()
async def test_a_price_below_the_base_fee_waits_with_a_mark_and_others_pass(rig: Rig) -> None:
    thrifty = await rig.submit("thrifty", fees=Fees(15 * GWEI, GWEI))
    other = await rig.submit("other")
    await rig.reaches(other, State.SENT)
    assert await rig.state(thrifty) is State.QUEUED
    assert await rig.mark(thrifty) == "price_below_base_fee"
    rig.chain.fee_level = 10 * GWEI
    await rig.mine(30)
    assert rig.order_of_execution() == ["other", "thrifty"]


@staged()
async def test_lanes_share_a_chain_and_each_has_its_own_nonces(rig: Rig) -> None:
    for n in range(3):
        await rig.submit(f"alice-{n}", ALICE)
        await rig.submit(f"bob-{n}", BOB)
    await rig.advance(3.0)
    await rig.mine()
    assert rig.order_of_execution(ALICE) == [f"alice-{n}" for n in range(3)]
    assert rig.order_of_execution(BOB) == [f"bob-{n}" for n in range(3)]


@staged()
async def test_an_idle_lane_is_released_and_costs_nothing(rig: Rig) -> None:
    tx = await rig.submit("pay")
    await rig.reaches(tx, State.SENT)
    assert (await rig.lane()).owner is not None
    await rig.mine()
    await rig.finalise()
    await rig.reaches(tx, State.CONFIRMED)
    await rig.advance(10.0)
    assert (await rig.lane()).owner is None
    epoch = (await rig.lane()).epoch
    before = [voice.asked.copy() for voice in rig.endpoints]
    await rig.mine(20)
    asked = [set(voice.asked - then) for voice, then in zip(rig.endpoints, before, strict=True)]
    assert all(questions <= {"view", "block"} for questions in asked)
    assert (await rig.lane()).epoch == epoch


@staged()
async def test_a_busy_lane_keeps_its_lease_for_as_long_as_it_is_busy(rig: Rig) -> None:
    tx = await rig.submit("pay")
    await rig.reaches(tx, State.SENT)
    epoch = (await rig.lane()).epoch
    await rig.advance(600.0)
    assert (await rig.lane()).epoch == epoch
    assert (await rig.lane()).owner == rig.node.engine.cluster.owner


def _plus_tenth(amount: int) -> int:
    return -(-amount * 11 // 10)
