"""A wish that nobody can grant is answered, and stops neither its lane nor other wishes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from nonchalant.model import Draft, Fees, Payload
from nonchalant.wishes import Bump, Cancel, Replace, Wish
from nonchalant.words import AttemptKind, State
from tests.lessons import lesson
from tests.stages.rig import ALICE, GWEI, Rig, staged


async def answer_to(rig: Rig, wish_id: str) -> str | None:
    """The code of the refusal; None: it was granted."""
    reply = await rig.store.reply(wish_id)
    assert reply is not None
    return reply.refused


def breaking_at(poison: Payload, digest: Callable[[Draft], bytes]) -> Callable[[Draft], bytes]:
    """An encoder that fails on this one payload as nobody expected."""

    def encode(draft: Draft) -> bytes:
        if draft.payload == poison:
            raise ZeroDivisionError("nobody expected this")
        return digest(draft)

    return encode


@lesson("poisonous-row")
@staged()
async def test_a_wish_at_which_a_stage_breaks_is_refused_as_internal_and_the_lane_goes_on(rig: Rig) -> None:
    rig.tolerate("wish.broke")
    poisoned, cancelled = await rig.submit_all(["poisoned", "cancelled"])
    await rig.reaches(cancelled, State.SENT)
    poison = rig.payload("other")
    rig.chain.digest = breaking_at(poison, rig.chain.digest)  # type: ignore[method-assign]
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
