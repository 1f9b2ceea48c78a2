"""Cancelling: from `signed` on it is a race at the same slot, and the outcome names who won it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from nonchalant.errors import MayHaveRun, NotFound, TooLate
from nonchalant.fees import FeeRules
from nonchalant.model import Answer, AttemptKind, Fees, Mode, OnSuperseded, Refused, State, Transaction
from nonchalant.sim.gate import Boundary
from nonchalant.sim.pool import BESU
from nonchalant.wishes import Cancel, Wish
from tests.lessons import lesson
from tests.stages.acts import QUICK_BUMP, lose_one, sent
from tests.stages.rig import ALICE, BOB, GWEI, Rig, staged, unreachable

CANCEL, ORIGINAL = AttemptKind.CANCEL, AttemptKind.ORIGINAL
HOLD = OnSuperseded.HOLD


async def cancelled_at_its_slot(rig: Rig, tx: Transaction) -> Transaction:
    """It ends as cancelled, by what does nothing at its own nonce."""
    ended = await rig.ends(tx)
    assert ended.state is State.CANCELLED
    winner = next(attempt for attempt in await rig.attempts(tx) if attempt.hash == ended.hash)
    assert (winner.kind, winner.nonce) == (CANCEL, tx.nonce)
    return ended


# before it has a slot


@staged()
async def test_a_queued_transaction_is_cancelled_at_once_and_spends_no_nonce(rig: Rig) -> None:
    await rig.asking.control(ALICE, Mode.PAUSED)
    tx = await rig.submit("pay")
    cancelled = await rig.asking.cancel(tx.id)
    assert (cancelled.state, cancelled.nonce, cancelled.hash) == (State.CANCELLED, None, None)
    await rig.asking.control(ALICE, Mode.OPEN)
    later = await rig.submit("later")
    assert (await rig.reaches(later, State.SENT)).nonce == 0
    assert await rig.history(tx) == ["tx.accepted", "tx.cancelled"]
    assert await rig.attempts(tx) == []


@staged()
async def test_a_held_transaction_can_be_cancelled(rig: Rig) -> None:
    await rig.asking.control(ALICE, Mode.PAUSED)
    tx = await rig.submit("pay")
    await rig.asking.hold(tx.id)
    await rig.asking.control(ALICE, Mode.OPEN)
    cancelled = await rig.asking.cancel(tx.id)
    assert (cancelled.state, cancelled.held, cancelled.attention) == (State.CANCELLED, False, None)
    await rig.advance(5.0)
    assert rig.sent("pay") == []


@staged()
async def test_cancelling_while_it_is_being_assigned_has_one_outcome_or_the_other(rig: Rig) -> None:
    """The row moves between the read and the write: whoever asks finds it again where it is."""
    rig.freeze_at(rig.node, "signer.sign", 2.0)
    tx = await rig.submit("pay")
    await rig.advance(1.0)
    assert (await rig.asking.cancel(tx.id)).state is State.CANCELLED
    await rig.advance(10.0)
    assert rig.sent("pay") == []
    assert rig.slots() == {}


# at each place of the line


@pytest.mark.parametrize("place", [0, 1, 2], ids=["head", "middle", "tail"])
@staged()
async def test_a_sent_transaction_is_cancelled_at_its_own_slot_and_the_others_run(rig: Rig, place: int) -> None:
    txs = await sent(rig, "a", "b", "c")
    await rig.asking.cancel(txs[place].id)
    await rig.tells(txs[place], "attempt.bumped")
    await rig.advance(1.0)
    ended = await cancelled_at_its_slot(rig, txs[place])
    assert (await rig.history(txs[place]))[-1] == "tx.cancelled"
    assert ended.receipt is not None
    others = [tx for tx in txs if tx.id != ended.id]
    assert await rig.states(others) == [State.CONFIRMED] * 2
    assert rig.order_of_execution() == ["" if n == place else label for n, label in enumerate("abc")]
    assert await rig.nonces(txs) == [0, 1, 2]


@staged()
async def test_everything_in_flight_can_be_cancelled_not_only_the_lowest_slots(rig: Rig) -> None:
    txs = await sent(rig, *(f"pay-{n}" for n in range(12)))
    assert await rig.asking.cancel_all(ALICE) == 12
    await rig.advance(3.0)
    await rig.ends(txs[-1])
    assert await rig.states(txs) == [State.CANCELLED] * 12
    assert rig.order_of_execution() == [""] * 12


@staged()
async def test_a_signed_transaction_that_no_node_took_is_not_sent_any_more(rig: Rig) -> None:
    for voice in rig.endpoints:
        voice.refuse("txpool is full", only=lambda tx: tx.order.label == "pay")
    tx = await rig.reaches(await rig.submit("pay"), State.SIGNED)
    await rig.advance(2.0)
    assert await rig.state(tx) is State.SIGNED
    await rig.asking.cancel(tx.id)
    await rig.tells(tx, "attempt.bumped")
    for voice in rig.endpoints:
        voice.heal()
    await rig.advance(60.0)
    assert rig.sent("pay") == []
    await cancelled_at_its_slot(rig, tx)


@lesson("cancel-resends")
@staged(flavours=(BESU,) * 3)
async def test_what_is_cancelled_is_never_sent_again_however_long_it_waits_and_whatever_pools_forget(rig: Rig) -> None:
    [tx] = await sent(rig, "pay")
    await rig.asking.cancel(tx.id)
    await rig.tells(tx, "attempt.bumped")
    known = len(rig.sent("pay"))
    for _ in range(4):
        for voice in rig.endpoints:
            voice.forget_pool()
        await rig.advance(60.0)
        await rig.mine(empty=True)
    assert len(rig.sent("pay")) == known
    await rig.advance(20.0)
    await cancelled_at_its_slot(rig, tx)


@staged()
async def test_a_payload_that_wins_the_race_is_confirmed_and_the_history_tells_of_the_cancel(rig: Rig) -> None:
    [tx] = await sent(rig, "pay")
    for voice in rig.endpoints:
        voice.refuse("txpool is full")
    await rig.asking.cancel(tx.id)
    await rig.tells(tx, "attempt.bumped")
    ended = await rig.ends(tx)
    assert ended.state is State.CONFIRMED
    assert await rig.kinds(tx) == [ORIGINAL, CANCEL]
    assert rig.executions("pay") == 1


# when the chain has executed it


@staged()
async def test_what_is_mined_already_stays_what_it_is_unless_the_chain_takes_it_back(rig: Rig) -> None:
    [tx] = await sent(rig, "pay")
    await rig.mine()
    await rig.reaches(tx, State.MINED)
    await rig.asking.cancel(tx.id, patience=5.0)
    await rig.finalise()
    assert await rig.state(tx) is State.CONFIRMED
    assert await rig.kinds(tx) == [ORIGINAL]


@lesson("cancel-resends")
@staged(flavours=(BESU,) * 3)
async def test_a_reorg_that_takes_a_cancelled_transaction_back_sends_the_cancel_and_not_the_payload(rig: Rig) -> None:
    [tx] = await sent(rig, "pay")
    await rig.mine()
    await rig.reaches(tx, State.MINED)
    await rig.asking.cancel(tx.id, patience=5.0)
    sends = len(rig.sent("pay"))
    await rig.reorg(1)
    await rig.tells(tx, "attempt.bumped")
    await rig.advance(2.0)
    await cancelled_at_its_slot(rig, tx)
    assert len(rig.sent("pay")) == sends
    assert rig.executions("pay") == 0


@staged(flavours=(BESU,) * 3)
async def test_a_reorg_that_takes_the_cancel_back_sends_it_again_and_not_the_payload(rig: Rig) -> None:
    [tx] = await sent(rig, "pay")
    await rig.asking.cancel(tx.id)
    await rig.tells(tx, "attempt.bumped")
    await rig.advance(1.0)
    await rig.mine()
    assert await rig.state(tx) is State.MINED
    sends = len(rig.sent("pay"))
    await rig.reorg(1)
    assert await rig.state(tx) is State.SENT
    await rig.advance(5.0)
    await cancelled_at_its_slot(rig, tx)
    assert len(rig.sent("pay")) == sends


@staged()
async def test_after_a_reorg_the_payload_may_come_back_and_then_it_ran(rig: Rig) -> None:
    """Miners remember what pools of ours do not; the outcome is what the chain says."""
    [tx] = await sent(rig, "pay")
    await rig.mine(2)
    await rig.asking.cancel(tx.id, patience=5.0)
    await rig.reorg(2, keep=True)
    await rig.finalise()
    assert await rig.state(tx) is State.CONFIRMED
    assert rig.executions("pay") == 1


# when somebody else uses the nonce


@pytest.mark.parametrize("on_superseded", [None, HOLD])
@staged()
async def test_a_cancelled_transaction_whose_nonce_somebody_else_used_ends_as_cancelled(
    rig: Rig, on_superseded: OnSuperseded | None
) -> None:
    [tx] = await sent(rig, "pay", on_superseded=on_superseded)
    rig.intrude()
    await rig.asking.cancel(tx.id)
    ended = await rig.ends(tx)
    assert (ended.state, ended.nonce, ended.receipt) == (State.CANCELLED, None, None)
    assert (await rig.history(tx))[-2:] == ["tx.superseded", "tx.cancelled"]
    await rig.mine(3)
    assert rig.executions("pay") == 0


@staged(depth=4)
async def test_with_a_depth_as_finality_a_cancelled_transaction_ends_too(rig: Rig) -> None:
    first, second = await sent(rig, "first", "second")
    assert rig.chain.intrude_pools(ALICE.address, 1, 400 * GWEI)
    for tx in (first, second):
        await rig.asking.cancel(tx.id)
    await rig.advance(3.0)
    await rig.ends(first)
    assert await rig.states([first, second]) == [State.CANCELLED] * 2
    assert (await rig.nonces([first, second])) == [0, None]


@staged()
async def test_a_wish_that_its_owner_finds_only_when_the_transaction_is_queued_again_is_granted_there(rig: Rig) -> None:
    [tx] = await sent(rig, "pay")
    await rig.stop(rig.node)
    await rig.asking.cancel(tx.id)
    rig.intrude()
    await rig.mine()
    await rig.finalise()
    await rig.start_node()
    await rig.reaches(tx, State.CANCELLED)
    assert (await rig.history(tx))[-3:] == ["tx.superseded", "tx.requeued", "tx.cancelled"]
    assert rig.wishes_open() == 0
    await rig.mine(3)
    assert rig.executions("pay") == 0


# when something is missing


@staged()
async def test_without_funds_the_cancel_is_marked_and_signed_when_they_come(rig: Rig) -> None:
    [tx] = await sent(rig, "pay")
    money = rig.drain()
    await rig.mine(empty=True)
    waiting = await rig.submit("waiting")  # for it the balance is asked
    await rig.tells(waiting, "tx.attention")
    await rig.asking.cancel(tx.id)
    await rig.tells(tx, "tx.attention")
    assert await rig.mark(tx) == "insufficient_funds"
    assert await rig.kinds(tx) == [ORIGINAL]
    rig.fund(money)
    await rig.mine(empty=True)
    await rig.tells(tx, "attempt.bumped")
    await rig.advance(1.0)
    await cancelled_at_its_slot(rig, tx)


@staged()
async def test_a_cancel_that_nodes_refuse_for_lack_of_funds_is_sent_until_they_come(rig: Rig) -> None:
    [tx] = await sent(rig, "pay")
    money = rig.drain()
    await rig.mine(empty=True)
    await rig.asking.cancel(tx.id)
    await rig.advance(60.0)
    assert await rig.mark(tx) == "insufficient_funds"
    assert await rig.kinds(tx) == [ORIGINAL, CANCEL]
    rig.fund(money)
    await rig.mine(empty=True)
    await rig.advance(20.0)
    await cancelled_at_its_slot(rig, tx)
    assert await rig.mark(tx) is None


@staged()
async def test_with_the_signer_down_the_payload_is_not_sent_again_and_the_cancel_comes_when_it_is_back(
    rig: Rig,
) -> None:
    [tx] = await sent(rig, "pay")
    rig.signer.down = True
    await rig.asking.cancel(tx.id)
    sends = len(rig.sent("pay"))
    await rig.advance(60.0)
    assert await rig.lane_mark() == "signer_failed"
    assert len(rig.sent("pay")) == sends
    rig.signer.down = False
    await rig.tells(tx, "attempt.bumped")
    await rig.advance(1.0)
    await cancelled_at_its_slot(rig, tx)


@staged()
async def test_with_no_prices_to_be_had_the_cancel_waits_for_them(rig: Rig) -> None:
    [tx] = await sent(rig, "pay")
    for voice in rig.endpoints:
        voice.fail("market", unreachable())
    await rig.mine(empty=True)
    await rig.asking.cancel(tx.id)
    await rig.advance(10.0)
    assert await rig.kinds(tx) == [ORIGINAL]
    for voice in rig.endpoints:
        voice.heal()
    await rig.tells(tx, "attempt.bumped")
    await rig.advance(1.0)
    await cancelled_at_its_slot(rig, tx)


@lesson("price-cap")
@staged(fees=FeeRules(max_fee=50 * GWEI), flavours=(BESU,) * 3)
async def test_at_the_cap_the_cancel_offers_all_it_may_and_is_sent_until_nodes_take_it(rig: Rig) -> None:
    [tx] = await sent(rig, "pay", fees=Fees(50 * GWEI, 2 * GWEI))
    await rig.asking.cancel(tx.id)
    await rig.tells(tx, "attempt.bumped")
    await rig.advance(1.0)
    cancel = (await rig.attempts(tx))[-1]
    assert (cancel.kind, cancel.fees.max_fee) == (CANCEL, 50 * GWEI)
    assert not any(voice.endpoint.pool.holds(cancel.hash) for voice in rig.endpoints)
    for voice in rig.endpoints:
        voice.forget_pool()
    await rig.advance(30.0)
    assert all(voice.endpoint.pool.holds(cancel.hash) for voice in rig.endpoints)
    await cancelled_at_its_slot(rig, tx)


@staged()
async def test_what_was_offered_beyond_reason_can_be_cancelled(rig: Rig) -> None:
    first, dear = await rig.submit("first"), await rig.submit("dear", fees=Fees(4_000 * GWEI, 3_000 * GWEI))
    await rig.reaches(dear, State.SENT)
    await rig.asking.cancel(dear.id)
    await rig.tells(dear, "attempt.bumped")
    await rig.advance(1.0)
    await rig.ends(first)
    assert await rig.states([first, dear]) == [State.CONFIRMED, State.CANCELLED]


@staged(patience=QUICK_BUMP)
async def test_a_cancel_that_waits_gets_a_better_price(rig: Rig) -> None:
    [tx] = await sent(rig, "pay")
    await rig.asking.cancel(tx.id)
    await rig.tells(tx, "attempt.bumped")
    for _ in range(12):
        await rig.mine(empty=True)
    kinds = await rig.kinds(tx)
    assert kinds[:3] == [ORIGINAL, CANCEL, CANCEL]
    assert set(kinds[1:]) == {CANCEL}
    prices = [attempt.fees.max_fee for attempt in await rig.attempts(tx)]
    assert prices == sorted(set(prices))
    await cancelled_at_its_slot(rig, tx)


@staged(window=3, largest_window=3)
async def test_in_quarantine_what_has_a_slot_is_cancelled_there_and_what_waits_only_after_it(rig: Rig) -> None:
    """A client may have asked again for what the store lost: whether what waits ran already shows at the end."""
    [tx] = await sent(rig, "pay")
    await lose_one(rig)
    waiting = await rig.submit("waiting")
    await rig.advance(15.0)
    assert await rig.lane_mark() == "quarantine"
    await rig.asking.cancel(tx.id)
    with pytest.raises(MayHaveRun):
        await rig.asking.cancel(waiting.id)
    await rig.asking.hold(waiting.id)  # that it can be told at any time
    await rig.tells(tx, "attempt.bumped")
    await rig.advance(1.0)
    await rig.mine(2)
    await rig.finalise()
    await rig.finalise()
    assert await rig.state(tx) is State.CANCELLED
    assert (await rig.asking.cancel(waiting.id)).state is State.CANCELLED
    assert (rig.executions("pay"), rig.executions("waiting"), rig.executions("lost")) == (0, 0, 1)


@staged()
async def test_when_every_node_refuses_the_bytes_of_payload_and_cancel_alike_the_slot_is_given_back(rig: Rig) -> None:
    async def slowly(raws: Sequence[bytes]) -> Sequence[Answer]:
        await rig.advance(5.0)
        return [Refused("invalid sender", -32000) for _ in raws]

    for voice in rig.endpoints:
        voice.answer("send", slowly)
    tx = await rig.submit("pay")
    await rig.reaches(tx, State.SIGNED)
    await rig.asking.cancel(tx.id)
    ended = await rig.reaches(tx, State.CANCELLED)
    assert (ended.nonce, ended.failure) == (None, None)
    assert rig.slots() == {}
    for voice in rig.endpoints:
        voice.heal()
    later = await rig.submit("later")
    assert (await rig.reaches(later, State.SENT)).nonce == 0


# when a process dies


@lesson("cancel-recorded-first")
@pytest.mark.parametrize("step", ["signer.sign", "store.commit", "node.send"])
@pytest.mark.parametrize("side", Boundary)
@staged()
async def test_a_crash_while_a_cancel_in_the_middle_is_granted_loses_neither_wish_nor_order(
    rig: Rig, step: str, side: Boundary
) -> None:
    before, tx, after = await sent(rig, "before", "pay", "after")
    rig.kill_at(rig.node, step, side)
    sends = len(rig.sent("pay"))
    await rig.asking.cancel(tx.id)
    await rig.advance(1.0)
    await rig.start_node()
    await rig.advance(15.0)  # the dead one's lease runs out
    await rig.tells(tx, "attempt.bumped")
    await rig.advance(2.0)
    assert len(rig.sent("pay")) == sends
    await cancelled_at_its_slot(rig, tx)
    assert await rig.states([before, after]) == [State.CONFIRMED] * 2


@staged(nodes=2)
async def test_a_wish_written_while_the_owner_stands_still_is_granted_by_who_takes_over(rig: Rig) -> None:
    [tx] = await sent(rig, "pay")
    owner = (await rig.lane()).owner
    old = next(node for node in rig.nodes if node.engine.cluster.owner == owner)
    old.gate.pause(40.0)
    await rig.asking.cancel(tx.id)
    await rig.tells(tx, "attempt.bumped", seconds=30.0)
    assert (await rig.lane()).owner != owner
    await rig.advance(30.0)  # the old one wakes up, and finds that it lost the lane
    await cancelled_at_its_slot(rig, tx)
    assert await rig.kinds(tx) == [ORIGINAL, CANCEL]


# what is asked


@staged()
async def test_cancelling_again_changes_nothing(rig: Rig) -> None:
    [tx] = await sent(rig, "pay")
    for _ in range(3):
        await rig.asking.cancel(tx.id, patience=5.0)
    await rig.advance(2.0)
    assert await rig.kinds(tx) == [ORIGINAL, CANCEL]
    ended = await cancelled_at_its_slot(rig, tx)
    assert await rig.asking.cancel(tx.id) == ended


@staged()
async def test_what_has_ended_otherwise_cannot_be_cancelled_and_nobody_is_nobody(rig: Rig) -> None:
    [tx] = await sent(rig, "pay")
    await rig.ends(tx)
    with pytest.raises(TooLate, match="is confirmed already"):
        await rig.asking.cancel(tx.id)
    with pytest.raises(NotFound):
        await rig.asking.cancel("nobody")


@staged()
async def test_a_wish_that_comes_after_the_end_is_refused(rig: Rig) -> None:
    """It was written while the transaction had a slot; its owner settled that first."""
    [tx] = await sent(rig, "pay")
    await rig.mine()
    await rig.stop(rig.node)
    await rig.store.wish(Wish("late", ALICE, Cancel(tx.id)), limit=9)
    await rig.finalise()
    await rig.start_node()
    await rig.reaches(tx, State.CONFIRMED)
    await rig.advance(2.0)
    reply = await rig.store.reply("late")
    assert reply is not None
    assert reply.refused == "already_ended"


@lesson("cancel-all-cancels")
@staged(window=4)
async def test_cancelling_all_cancels_what_waits_and_what_is_in_flight(rig: Rig) -> None:
    txs = await rig.submit_all(f"pay-{n}" for n in range(10))
    other = await rig.submit("other", BOB)
    await rig.reaches(txs[3], State.SENT)
    assert await rig.asking.cancel_all(ALICE) == 10
    assert await rig.states(txs[4:]) == [State.CANCELLED] * 6
    await rig.advance(3.0)
    await rig.ends(txs[0])
    assert await rig.states(txs) == [State.CANCELLED] * 10
    assert rig.order_of_execution() == [""] * 4
    assert await rig.state(other) is State.CONFIRMED


@staged(window=300, account_limit=400, largest_window=300)
async def test_wishes_by_the_hundred_are_all_granted(rig: Rig) -> None:
    txs = await rig.submit_all(f"pay-{n}" for n in range(260))
    await rig.reaches(txs[-1], State.SENT, 60.0)
    doomed = txs[::2]
    for tx in doomed:
        await rig.asking.cancel(tx.id)
    await rig.advance(20.0)
    assert rig.wishes_open() == 0
    while rig.account().count < len(txs):  # a block holds a dozen
        await rig.mine()
    await rig.finalise()
    assert set(await rig.states(doomed)) == {State.CANCELLED}
    assert set(await rig.states(txs[1::2])) == {State.CONFIRMED}
    assert all(rig.executions(f"pay-{n}") == n % 2 for n in range(260))
