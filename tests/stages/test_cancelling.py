"""Cancelling: from `signed` on it is a race at the same slot, and the outcome names who won it."""

from __future__ import annotations

import pytest

from nonchalant.errors import NotFound, TooLate
from nonchalant.sim.pool import BESU
from nonchalant.wishes import Cancel, Wish
from nonchalant.words import AttemptKind, Mode, OnSuperseded, State
from tests.lessons import lesson
from tests.stages.acts import cancelled_at_its_slot, sent
from tests.stages.rig import ALICE, BOB, GWEI, Rig, staged

CANCEL, ORIGINAL = AttemptKind.CANCEL, AttemptKind.ORIGINAL
HOLD = OnSuperseded.HOLD


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
