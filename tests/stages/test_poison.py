"""What a stage breaks at, a wish or a payload, stops neither its lane nor others; a wish is answered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from nonchalant.model import Address, AttemptKind, BlockRef, Draft, Fees, Payload, Speed, State
from nonchalant.policy import Patience
from nonchalant.wishes import Bump, Cancel, Replace, Wish
from tests.lessons import lesson
from tests.stages.rig import ALICE, GWEI, Rig, staged
from tests.stages.voices import Voice


async def answer_to(rig: Rig, wish_id: str) -> str | None:
    """The code of the refusal; None: it was granted."""
    reply = await rig.store.reply(wish_id)
    assert reply is not None
    return reply.refused


def breaking_at(voice: Voice, poison: Payload) -> Callable[..., Awaitable[int]]:
    """An endpoint whose answer to this one payload nobody expected."""

    async def estimate(sender: Address, payload: Payload, block: BlockRef) -> int:
        if payload == poison:
            raise ZeroDivisionError("nobody expected this")
        return await voice.endpoint.estimate(sender, payload, block)

    return estimate


@lesson("poisonous-row")
@staged()
async def test_a_wish_at_which_a_stage_breaks_is_refused_as_internal_and_the_lane_goes_on(rig: Rig) -> None:
    rig.tolerate("wish.broke")
    poisoned, cancelled = await rig.submit_all(["poisoned", "cancelled"])
    await rig.reaches(cancelled, State.SENT)
    poison = rig.payload("other")
    for voice in rig.endpoints:
        voice.answer("estimate", breaking_at(voice, poison))
    await rig.stop(rig.node)
    for id, act in (("w1", Replace(poisoned.id, poison)), ("w2", Cancel(cancelled.id))):
        await rig.store.wish(Wish(id, ALICE, act), limit=9)
    await rig.start_node()
    await rig.advance(5.0)
    assert (await answer_to(rig, "w1"), await answer_to(rig, "w2")) == ("internal", None)
    await rig.tells(cancelled, "attempt.bumped")
    later = await rig.submit("later")
    await rig.reaches(later, State.SENT)
    await rig.ends(later)
    assert await rig.states([poisoned, cancelled, later]) == [State.CONFIRMED, State.CANCELLED, State.CONFIRMED]
    assert rig.executions("other") == 0


@lesson("poisonous-row")
@staged()
async def test_a_wish_that_cannot_be_read_is_refused_and_those_behind_it_are_granted(rig: Rig) -> None:
    tx = await rig.reaches(await rig.submit("pay"), State.SENT)
    await rig.stop(rig.node)
    for id in ("w1", "w2"):
        await rig.store.wish(Wish(id, ALICE, Cancel(tx.id)), limit=9)
    rig.database.execute("UPDATE wishes SET kind = 'fly' WHERE id = 'w1'")
    await rig.start_node()
    await rig.tells(tx, "attempt.bumped")
    assert (await answer_to(rig, "w1"), await answer_to(rig, "w2")) == ("undecodable", None)
    await rig.advance(1.0)
    assert (await rig.ends(tx)).state is State.CANCELLED
    await rig.advance(30.0)
    assert await rig.store.lanes_with_work() == []


@staged()
async def test_what_stands_in_for_a_row_that_cannot_be_read_is_neither_bumped_nor_replaced_but_can_be_cancelled(
    rig: Rig,
) -> None:
    tx = await rig.reaches(await rig.submit("pay"), State.SENT)
    await rig.stop(rig.node)
    rig.database.execute("UPDATE transactions SET payload = '{' WHERE id = ?", [tx.id])
    wishes = {
        "replace": Replace(tx.id, rig.payload("other")),
        "bump": Bump(tx.id, Fees(500 * GWEI, 90 * GWEI)),
        "cancel": Cancel(tx.id),
    }
    for id, act in wishes.items():
        await rig.store.wish(Wish(id, ALICE, act), limit=9)
    await rig.start_node()
    await rig.advance(5.0)
    assert [await answer_to(rig, id) for id in wishes] == ["undecodable", "undecodable", None]
    assert await rig.kinds(tx) == [AttemptKind.ORIGINAL, AttemptKind.CANCEL]
    await rig.mine()
    await rig.finalise()
    [row] = rig.database.execute("SELECT state, payload FROM transactions").fetchall()
    assert tuple(row) == ("cancelled", "{")


@staged()
async def test_a_wish_about_a_queued_row_that_cannot_be_read_is_refused(rig: Rig) -> None:
    tx = await rig.reaches(await rig.submit("pay"), State.SENT)
    await rig.stop(rig.node)
    await rig.store.wish(Wish("w", ALICE, Cancel(tx.id)), limit=9)
    rig.intrude()
    await rig.mine()
    await rig.finalise()
    rig.database.execute("UPDATE transactions SET payload = '{' WHERE id = ?", [tx.id])
    await rig.start_node()
    await rig.advance(10.0)
    assert await answer_to(rig, "w") == "undecodable"
    assert (await rig.submit("later")).id
    await rig.advance(5.0)
    assert rig.sent("later")


@staged()
async def test_a_wish_about_nothing_is_refused(rig: Rig) -> None:
    tx = await rig.reaches(await rig.submit("pay"), State.SENT)
    await rig.stop(rig.node)
    await rig.store.wish(Wish("w", ALICE, Cancel(tx.id)), limit=9)
    rig.database.execute("UPDATE wishes SET tx_id = 'nobody'")
    await rig.start_node()
    await rig.advance(5.0)
    assert await answer_to(rig, "w") == "already_ended"


@pytest.mark.parametrize("granted", [True, False])
@staged()
async def test_a_wish_that_is_taken_back_while_it_is_answered_stops_nothing(rig: Rig, granted: bool) -> None:
    tx = await rig.reaches(await rig.submit("pay"), State.SENT)
    fees = Fees(500 * GWEI, 90 * GWEI) if granted else Fees(1, 1)
    rig.freeze_at(rig.node, "store.commit", 3.0)
    await rig.store.wish(Wish("w", ALICE, Bump(tx.id, fees)), limit=9)
    rig.node.engine.poke(ALICE)
    await rig.advance(1.0)
    assert await rig.store.withdraw("w")
    await rig.advance(5.0)
    assert await rig.kinds(tx) == [AttemptKind.ORIGINAL]
    assert len(await rig.events("lane.lease")) == 1  # it was not started anew
    assert (await rig.ends(tx)).state is State.CONFIRMED


# payloads


@lesson("poisonous-row")
@lesson("head-of-line")
@staged()
async def test_a_payload_at_which_assigning_breaks_waits_with_a_mark_and_others_pass_it(rig: Rig) -> None:
    rig.tolerate("tx.broke")
    for voice in rig.endpoints:
        voice.answer("estimate", breaking_at(voice, rig.payload("poison")))
    poison, other = await rig.submit_all(["poison", "other"])
    await rig.reaches(other, State.SENT)
    assert (await rig.read(other)).nonce == 0
    assert await rig.mark(poison) == "internal"
    assert len(await rig.events("lane.lease")) == 1
    for voice in rig.endpoints:
        voice.heal()
    await rig.reaches(poison, State.SENT)
    assert await rig.mark(poison) is None
    await rig.ends(poison)
    assert await rig.states([poison, other]) == [State.CONFIRMED] * 2


@lesson("poisonous-row")
@staged()
async def test_a_payload_that_breaks_its_encoding_waits_with_a_mark_and_leaves_no_hole(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.tolerate("tx.broke")
    encode = rig.chain.digest

    def breaking(draft: Draft) -> bytes:
        if draft.payload == rig.payload("poison"):
            raise ZeroDivisionError("nobody expected this")
        return encode(draft)

    monkeypatch.setattr(rig.chain, "digest", breaking)
    poison, *others = await rig.submit_all(["poison", "a", "b"])
    await rig.reaches(others[-1], State.SENT)
    assert await rig.nonces([poison, *others]) == [None, 0, 1]
    assert await rig.mark(poison) == "internal"
    assert (await rig.asking.cancel(poison.id)).state is State.CANCELLED


@lesson("poisonous-row")
@staged(patience=Patience(bump_after=dict.fromkeys(Speed, 20_000)))
async def test_a_slot_at_which_rescuing_breaks_is_left_alone_and_the_others_are_rescued(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.tolerate("slot.broke")
    poison, other = await rig.submit_all(["poison", "other"])
    await rig.reaches(other, State.SENT)
    encode = rig.chain.digest

    def breaking(draft: Draft) -> bytes:
        if draft.nonce == 0:
            raise ZeroDivisionError("nobody expected this")
        return encode(draft)

    monkeypatch.setattr(rig.chain, "digest", breaking)
    for _ in range(10):
        await rig.mine(empty=True)
    assert await rig.kinds(poison) == [AttemptKind.ORIGINAL]
    assert AttemptKind.BUMP in await rig.kinds(other)
    assert len(await rig.events("lane.lease")) == 1
    assert len([line for line in rig.trace.lines if "slot.broke" in line]) == 1
    await rig.ends(other)
    assert await rig.states([poison, other]) == [State.CONFIRMED] * 2
