"""Whoever asked can learn what became of it, however late: a refusal is in the transaction's history."""

from __future__ import annotations

from nonchalant.model import Event, Fees, Transaction
from nonchalant.wishes import Bump, Cancel, Replace, Wish
from nonchalant.words import OnSuperseded, Speed, State
from tests.stages.rig import ALICE, GWEI, Rig, staged


async def refusals(rig: Rig, tx: Transaction) -> list[tuple[object, object]]:
    """What was wanted and why not, in order."""
    return [(event.data["wish"], event.data["refused"]) for event in await told(rig, tx)]


async def told(rig: Rig, tx: Transaction) -> list[Event]:
    return [event for event in await rig.store.history(tx.id) if event.data.get("code") == "wish_refused"]


async def wish_what_the_store_never_takes(rig: Rig, bump: Bump) -> None:
    """Its transaction loses its slot while nobody works the lane; a price for what is queued then is refused each time."""
    await rig.store.wish(Wish("w", ALICE, bump), limit=9)
    rig.intrude()
    await rig.mine()
    await rig.finalise()
    rig.database.execute(
        "CREATE TRIGGER never BEFORE UPDATE OF fees ON transactions WHEN new.fees <> old.fees "
        "BEGIN SELECT RAISE(ABORT, 'never'); END"
    )
    await rig.start_node()


@staged()
async def test_a_wish_refused_after_its_asker_left_is_told_in_the_history(rig: Rig) -> None:
    tx = await rig.reaches(await rig.submit("pay"), State.SENT)
    await rig.stop(rig.node)
    await rig.asking.bump(tx.id, Fees(1, 1), patience=5.0)  # nobody answers in that time
    await rig.start_node()
    await rig.advance(5.0)
    [event] = await told(rig, tx)
    assert event.kind == "tx.attention"
    assert (event.data["wish"], event.data["refused"]) == ("bump", "underpriced")
    assert "nodes want at least" in str(event.data["reason"])
    assert (await rig.read(tx)).attention is None  # the transaction goes on as it was
    assert (await rig.ends(tx)).state is State.CONFIRMED


@staged()
async def test_each_kind_of_refusal_stays_in_the_history_and_a_repeated_one_is_counted(rig: Rig) -> None:
    tx = await rig.reaches(await rig.submit("pay"), State.SENT)
    acts = [Bump(tx.id, Fees(1, 1)), Replace(tx.id, rig.payload("other", gas=10**9)), Bump(tx.id, Fees(1, 1))]
    for number, act in enumerate([*acts, Bump(tx.id, Fees(1, 1))]):
        await rig.store.wish(Wish(f"w{number}", ALICE, act), limit=9)
        rig.node.engine.poke(ALICE)
        await rig.advance(2.0)
    assert await refusals(rig, tx) == [("bump", "underpriced"), ("replace", "gas_above_block"), ("bump", "underpriced")]
    assert (await told(rig, tx))[-1].times == 3


@staged()
async def test_a_wish_that_comes_after_the_end_adds_nothing_to_the_history(rig: Rig) -> None:
    tx = await rig.reaches(await rig.submit("pay"), State.SENT)
    await rig.store.wish(Wish("w", ALICE, Cancel(tx.id)), limit=9)
    await rig.stop(rig.node)
    rig.database.execute("UPDATE wishes SET tx_id = 'nobody'")
    await rig.start_node()
    await rig.advance(5.0)
    reply = await rig.store.reply("w")
    assert reply is not None
    assert reply.refused == "already_ended"
    assert await refusals(rig, tx) == []


@staged()
async def test_a_wish_that_the_store_never_takes_is_answered_in_the_end_also_in_a_lane_with_nothing_else_to_do(
    rig: Rig,
) -> None:
    tx = await rig.submit("pay", on_superseded=OnSuperseded.HOLD)
    await rig.reaches(tx, State.SENT)
    await rig.stop(rig.node)
    await wish_what_the_store_never_takes(rig, Bump(tx.id, Speed.FAST))
    await rig.advance(60.0)
    assert (await rig.read(tx)).held  # it lost its slot, so the wish is about a queued row now
    assert await rig.store.reply("w") is None  # somebody else may have changed the row each time
    await rig.advance(120.0)
    reply = await rig.store.reply("w")
    assert reply is not None
    assert (reply.refused, reply.data["reason"]) == (
        "internal",
        "the store refuses it each time; this node's log says why",
    )
    assert await refusals(rig, tx) == [("bump", "internal")]
    await rig.advance(30.0)
    assert await rig.store.lanes_with_work() == []
    assert (await rig.lane()).owner is None  # and the lane was let go


@staged()
async def test_a_wish_that_is_taken_back_while_it_is_tried_keeps_no_lane(rig: Rig) -> None:
    tx = await rig.submit("pay", on_superseded=OnSuperseded.HOLD)
    await rig.reaches(tx, State.SENT)
    await rig.stop(rig.node)
    await wish_what_the_store_never_takes(rig, Bump(tx.id, Fees(99 * GWEI, 9 * GWEI)))
    await rig.advance(20.0)
    assert (await rig.lane()).owner is not None
    assert await rig.store.withdraw("w")
    await rig.advance(20.0)
    assert (await rig.lane()).owner is None
