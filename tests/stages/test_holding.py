"""Holding, releasing, and what becomes of a transaction whose nonce somebody else used."""

from __future__ import annotations

import pytest

from nonchalant.errors import TooLate, WishRefused
from nonchalant.model import Transaction
from nonchalant.wishes import MOST_REPLACEMENTS, Replace, Wish
from nonchalant.words import Mode, OnSuperseded, State
from tests.lessons import lesson
from tests.stages.rig import ALICE, Rig, staged

HOLD, REQUEUE = OnSuperseded.HOLD, OnSuperseded.REQUEUE


@staged()
async def test_a_held_transaction_waits_and_others_pass_it_until_it_is_released(rig: Rig) -> None:
    await rig.asking.control(ALICE, Mode.PAUSED)
    tx, other = await rig.submit("held"), await rig.submit("other")
    held = await rig.asking.hold(tx.id, "ask Bob first")
    assert held.held
    assert held.attention is not None
    assert (held.attention.code, held.attention.reason) == ("held", "ask Bob first")
    await rig.asking.control(ALICE, Mode.OPEN)
    await rig.reaches(other, State.SENT)
    await rig.advance(30.0)
    assert await rig.state(tx) is State.QUEUED
    released = await rig.asking.release(tx.id)
    assert (released.held, released.attention) == (False, None)
    assert (await rig.reaches(tx, State.SENT)).nonce == 1
    assert await rig.history(tx) == ["tx.accepted", "tx.held", "tx.released", "tx.signed", "tx.sent"]


@staged()
async def test_what_is_called_off_while_it_is_queued_spends_no_nonce_and_what_has_a_slot_is_left_alone(
    rig: Rig,
) -> None:
    await rig.asking.control(ALICE, Mode.PAUSED)
    tx = await rig.submit("pay")
    assert (await rig.asking.call_off(tx.id)).state is State.CANCELLED
    await rig.asking.control(ALICE, Mode.OPEN)
    other = await rig.reaches(await rig.submit("other"), State.SENT)
    assert other.nonce == 0
    with pytest.raises(TooLate):
        await rig.asking.call_off(other.id)
    await rig.mine()
    assert await rig.state(other) is State.MINED
    assert rig.executions("other") == 1


@lesson("requeued-place")
@staged()
async def test_a_released_transaction_has_the_place_it_had(rig: Rig) -> None:
    await rig.asking.control(ALICE, Mode.PAUSED)
    txs = await rig.submit_all(f"pay-{n}" for n in range(3))
    await rig.asking.hold(txs[0].id)
    await rig.asking.release(txs[0].id)
    await rig.asking.control(ALICE, Mode.OPEN)
    await rig.reaches(txs[-1], State.SENT)
    assert await rig.nonces(txs) == [0, 1, 2]


@staged()
async def test_holding_and_releasing_again_changes_nothing(rig: Rig) -> None:
    await rig.asking.control(ALICE, Mode.PAUSED)
    tx = await rig.submit("pay")
    held = await rig.asking.hold(tx.id, "first")
    assert await rig.asking.hold(tx.id, "second") == held
    free = await rig.asking.release(tx.id)
    assert await rig.asking.release(tx.id) == free
    assert await rig.history(tx) == ["tx.accepted", "tx.held", "tx.released"]


@staged()
async def test_what_has_a_slot_can_be_neither_held_nor_released(rig: Rig) -> None:
    tx = await rig.reaches(await rig.submit("pay"), State.SENT)
    for ask in (rig.asking.hold, rig.asking.release):
        with pytest.raises(TooLate, match="only what is queued"):
            await ask(tx.id)
    await rig.ends(tx)
    with pytest.raises(TooLate, match="is confirmed already"):
        await rig.asking.hold(tx.id)


@staged()
async def test_holding_while_it_is_being_assigned_holds_it_and_discards_the_bytes(rig: Rig) -> None:
    rig.freeze_at(rig.node, "signer.sign", 2.0)
    tx, other = await rig.submit_all(["pay", "other"])
    await rig.advance(1.0)
    assert (await rig.asking.hold(tx.id)).held
    await rig.reaches(other, State.SENT)
    assert rig.sent("pay") == []
    assert rig.slots() == {0: other.id}


# whose nonce somebody else used


async def superseded(rig: Rig, **wish: object) -> Transaction:
    tx = await rig.reaches(await rig.submit("pay", **wish), State.SENT)
    rig.intrude()
    await rig.mine()
    await rig.finalise()
    return await rig.tells(tx, "tx.superseded")


async def goes_again(rig: Rig, tx: Transaction) -> None:
    again = await rig.reaches(tx, State.SENT)
    assert again.nonce == 1
    assert (await rig.ends(tx)).state is State.CONFIRMED
    assert rig.executions("pay") == 1


async def waits_for_a_person(rig: Rig, tx: Transaction) -> None:
    await rig.mine(5)
    held = await rig.read(tx)
    assert (held.state, held.held, held.nonce) == (State.QUEUED, True, None)
    assert await rig.mark(tx) == "superseded"
    assert rig.executions("pay") == 0


@pytest.mark.parametrize("asked", [None, REQUEUE])
@staged()
async def test_with_a_finality_tag_it_goes_again_unless_it_asked_not_to(rig: Rig, asked: OnSuperseded | None) -> None:
    await goes_again(rig, await superseded(rig, on_superseded=asked))


@staged()
async def test_who_asks_to_be_held_is_held_and_goes_again_when_released(rig: Rig) -> None:
    tx = await superseded(rig, on_superseded=HOLD)
    await waits_for_a_person(rig, tx)
    with pytest.raises(WishRefused, match=r"held for another reason .* the mark superseded") as refused:
        await rig.asking.release(tx.id)
    assert (refused.value.code, refused.value.data) == ("held_for_another_reason", {"mark": "superseded"})
    assert (await rig.read(tx)).held
    assert await rig.asking.release(tx.id, "superseded")
    await goes_again(rig, tx)


@staged()
async def test_what_was_held_for_its_nonce_can_be_cancelled(rig: Rig) -> None:
    tx = await superseded(rig, on_superseded=HOLD)
    await waits_for_a_person(rig, tx)
    assert (await rig.asking.cancel(tx.id)).state is State.CANCELLED
    await rig.mine(2)
    assert rig.executions("pay") == 0


@pytest.mark.parametrize("asked", [None, HOLD])
@staged(depth=4)
async def test_with_a_depth_it_waits_for_a_person_unless_it_asked_not_to(rig: Rig, asked: OnSuperseded | None) -> None:
    await waits_for_a_person(rig, await superseded(rig, on_superseded=asked))


@staged(depth=4)
async def test_with_a_depth_who_asks_to_go_again_does(rig: Rig) -> None:
    await goes_again(rig, await superseded(rig, on_superseded=REQUEUE))


@staged()
async def test_what_may_have_run_as_somebody_else_s_is_held_whatever_was_asked(rig: Rig) -> None:
    tx = await rig.reaches(await rig.submit("pay", on_superseded=REQUEUE), State.SENT)
    rig.intrude_as(rig.sent("pay")[0])
    await rig.mine()
    await rig.finalise()
    await rig.tells(tx, "tx.superseded")
    assert await rig.mark(tx) == "same_payload_executed"
    assert (await rig.read(tx)).held
    with pytest.raises(WishRefused):
        await rig.asking.release(tx.id)
    # Called off, the record still says that something did the same.
    cancelled = await rig.asking.cancel(tx.id)
    assert cancelled.attention is not None
    assert (cancelled.state, cancelled.attention.code) == (State.CANCELLED, "same_payload_executed")


@staged()
async def test_replacements_are_counted_where_they_are_granted_too(rig: Rig) -> None:
    """Wishes wait for an owner, and each may have been asked for while there was room for one more."""
    await rig.asking.control(ALICE, Mode.PAUSED)
    tx = await rig.submit("pay")
    for _ in range(MOST_REPLACEMENTS):
        await rig.asking.replace(tx.id, tx.payload)
    await rig.asking.control(ALICE, Mode.OPEN)
    await rig.reaches(tx, State.SENT)
    await rig.store.wish(Wish("one-more", tx.lane, Replace(tx.id, tx.payload)), limit=99)
    await rig.advance(30.0)
    reply = await rig.store.reply("one-more")
    assert reply is not None
    assert reply.refused == "too_many_replacements"
    assert len((await rig.read(tx)).earlier) == MOST_REPLACEMENTS
