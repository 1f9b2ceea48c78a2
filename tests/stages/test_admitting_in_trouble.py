"""Of those at a desk nobody waits for long, is lost, is told what is not so, or runs twice: whatever hangs, dies or leaves."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from nonchalant.arrivals import HELD_UP_SECONDS, PATIENCE_SECONDS
from nonchalant.errors import (
    CommitUnknown,
    LaneDraining,
    LeaseLost,
    RowMoved,
    ShuttingDown,
    StoreUnavailable,
    Unreachable,
    Unstorable,
)
from nonchalant.follow import MARKET_SECONDS
from nonchalant.model import Transaction
from nonchalant.sim.gate import Ambush, Boundary, StoreAilment
from nonchalant.words import Mode, State
from tests.stages.acts import owner_of
from tests.stages.admission import BELOW_BASE_FEE, GAS, all_ran, at_work, delays, failing, hanging
from tests.stages.rig import ALICE, ETHER, GWEI, Rig, staged, unreachable

# who must wait is sent to the queue


@staged()
async def test_a_signer_that_hangs_keeps_no_caller_waiting_and_what_it_signs_too_late_is_never_sent(rig: Rig) -> None:
    waits = delays(rig)
    await at_work(rig)
    waits.append(5.0)
    began = rig.loop.time()
    tx = await rig.submit("second", gas=GAS)
    assert tx.state is State.QUEUED
    assert PATIENCE_SECONDS <= rig.loop.time() - began < PATIENCE_SECONDS + 0.1
    urgent = await rig.submit("urgent", gas=GAS, priority=9)  # nobody is let in while it hangs
    assert rig.loop.time() - began < PATIENCE_SECONDS + 0.2
    assert urgent.state is State.QUEUED
    assert list(rig.slots()) == [0]
    await rig.advance(10.0)
    # What was signed meanwhile had the nonce that is another's now.
    assert {one.nonce for one in rig.sent("second")} == {2}
    assert {one.nonce for one in rig.sent("urgent")} == {1}
    assert rig.attempts_ever() == 3
    await all_ran(rig, "first", "urgent", "second")


@staged()
async def test_nodes_that_hang_keep_no_caller_waiting(rig: Rig) -> None:
    await at_work(rig)

    async def hang() -> Any:
        await rig.advance(3.0)
        raise unreachable()

    for voice in rig.endpoints:
        voice.answer("market", hang)
    await rig.advance(MARKET_SECONDS + 1.0)  # what was known of prices is old
    began = rig.loop.time()
    tx = await rig.submit("second", gas=GAS)
    assert tx.state is State.QUEUED
    assert PATIENCE_SECONDS <= rig.loop.time() - began < PATIENCE_SECONDS + 0.1
    for voice in rig.endpoints:
        voice.heal()
    await rig.reaches(tx, State.SENT)
    await all_ran(rig, "first", "second")


@staged()
async def test_nodes_that_do_not_answer_send_it_to_the_queue_at_once(rig: Rig) -> None:
    await at_work(rig)
    for voice in rig.endpoints:
        voice.fail("market", unreachable())
    await rig.advance(MARKET_SECONDS + 1.0)
    began = rig.loop.time()
    tx = await rig.submit("second", gas=GAS)
    assert tx.state is State.QUEUED
    assert rig.loop.time() - began < PATIENCE_SECONDS
    for voice in rig.endpoints:
        voice.heal()
    await rig.reaches(tx, State.SENT)
    await all_ran(rig, "first", "second")


@pytest.mark.parametrize("setting", [{}, {"shared": True}, {"data_price": GWEI}], ids=["signer", "pools", "data"])
def test_where_others_are_asked_for_each_batch_nobody_waits_for_that(setting: dict[str, Any]) -> None:
    """A signer elsewhere; pools of a shared account; what its data costs."""

    @staged(**setting)
    async def queued(rig: Rig) -> None:
        rig.signer.in_process = bool(setting)
        await rig.reaches(await rig.submit("first"), State.SENT)
        await rig.advance(1.0)
        assert (await rig.submit("second", gas=GAS)).state is State.QUEUED
        await all_ran(rig, "first", "second")

    queued()


@pytest.mark.parametrize("more", range(2, 9))
@staged(window=4)
async def test_whom_the_window_has_no_room_for_is_queued_behind_those_it_has(rig: Rig, more: int) -> None:
    await at_work(rig)
    labels = [f"pay {n}" for n in range(more)]
    txs = await rig.submit_all(labels, gas=GAS)
    assert [tx.place for tx in txs] == sorted(tx.place for tx in txs)
    for _ in range(3):
        await rig.mine()
    await all_ran(rig, "first", *labels)


@staged(batch=2)
async def test_whom_a_batch_has_no_room_for_is_queued_behind_those_it_has(rig: Rig) -> None:
    await at_work(rig)
    await rig.submit_all(["a", "b", "c"], gas=GAS)
    await all_ran(rig, "first", "a", "b", "c")


@pytest.mark.parametrize("odd", [{"fees": BELOW_BASE_FEE}, {"value": 100 * ETHER}, {"gas": 10**12}], ids=str)
@staged()
async def test_those_that_can_go_are_signed_though_another_is_sent_to_the_queue(rig: Rig, odd: dict[str, Any]) -> None:
    """Else whoever sends what cannot go has all that comes with it signed in vain."""
    await at_work(rig)
    wishes = [{}, odd, {}]
    txs = await asyncio.gather(*(rig.submit(f"{n}", **{"gas": GAS} | wish) for n, wish in enumerate(wishes)))
    assert [tx.state for tx in txs] == [State.SIGNED, State.QUEUED, State.SIGNED]
    assert rig.signer.asked == 2


@staged(window=1)
async def test_where_there_is_no_room_at_all_everybody_is_queued(rig: Rig) -> None:
    rig.signer.in_process = True
    await rig.reaches(await rig.submit("first"), State.SENT)
    await rig.advance(1.0)
    txs = await rig.submit_all(["a", "b"], gas=GAS)
    assert [tx.state for tx in txs] == [State.QUEUED] * 2
    assert rig.signer.asked == 1
    await rig.mine(4)
    await all_ran(rig, "first", "a", "b")


# crashes, lost leases, lost replies

SIDES = [Boundary.BEFORE, Boundary.AFTER]
STEPS = [(step, side) for step in ("signer.sign", "store.commit", "node.send") for side in SIDES]


@pytest.mark.parametrize("repeats", [True, False], ids=["repeats", "gone"])
@pytest.mark.parametrize(("step", "side"), STEPS, ids=str)
@staged()
async def test_a_crash_at_any_step_leaves_no_gap_and_nothing_twice(
    rig: Rig, step: str, side: Boundary, repeats: bool
) -> None:
    """Whether or not the caller asks again."""
    await at_work(rig)
    old = rig.node
    rig.kill_at(old, step, side)
    asked = rig.request("second", gas=GAS, key="k")
    asking = rig.spawn(old.intake.submit(asked))
    await rig.advance(1.0)
    assert old.gate.dead
    kept = await rig.store.transaction(asked.id)
    assert (kept is not None) == ((step, side) not in STEPS[:3])
    assert asking.done() == (step == "node.send")
    if asking.done():
        assert asking.result() == (kept, True)
    await rig.start_node()
    if repeats:
        again = await rig.submit("second", gas=GAS, key="k")
        assert kept is None or again.id == kept.id
    await all_ran(rig, "first", *(["second"] if repeats or kept is not None else []))


@staged()
async def test_a_crash_of_many_at_once_leaves_all_or_none(rig: Rig) -> None:
    await at_work(rig)
    old = rig.node
    rig.kill_at(old, "store.commit", Boundary.AFTER)
    for n in range(5):
        rig.spawn(old.intake.submit(rig.request(f"pay {n}", gas=GAS)))
    await rig.advance(1.0)
    assert list(rig.slots()) == [0, 1, 2, 3, 4, 5]
    await rig.start_node()
    await all_ran(rig, "first", *(f"pay {n}" for n in range(5)))


@pytest.mark.parametrize(("step", "side"), STEPS[:4], ids=str)
@staged()
async def test_an_owner_that_froze_until_another_took_over_writes_nothing_and_answers(
    rig: Rig, step: str, side: Boundary
) -> None:
    await at_work(rig)
    old = rig.node
    rig.freeze_at(old, step, 25.0, side)
    asking = rig.spawn(rig.submit("second", gas=GAS))
    await rig.advance(1.0)
    heir = await rig.start_node()
    between = await rig.submit("between")
    await rig.reaches(between, State.SENT)
    assert await owner_of(rig) is heir
    was_written = (step, side) == STEPS[3]
    assert (await rig.read(between)).nonce == (2 if was_written else 1)
    await rig.advance(30.0)
    tx = asking.result()
    assert tx.state is (State.SIGNED if was_written else State.QUEUED)
    assert {one.nonce for one in rig.sent("second")} == {1 if was_written else 2}
    assert len(await rig.attempts(tx)) == 1
    await all_ran(rig, "first", *(["second", "between"] if was_written else ["between", "second"]))


@pytest.mark.parametrize("ailment", list(StoreAilment))
@staged()
async def test_a_commit_that_does_not_report_back_is_executed_once_and_its_caller_is_answered(
    rig: Rig, ailment: StoreAilment
) -> None:
    await at_work(rig)
    gate = rig.node.gate
    gate.lay(Ambush("signer.sign", Boundary.AFTER, 0, lambda: rig.spoil_store(rig.node, ailment)))
    gate.lay(Ambush("store.commit", Boundary.AFTER, 0, gate.store_troubles.end))
    requests = [rig.request(label, gas=GAS) for label in ("second", "third")]
    answers = await asyncio.gather(*(rig.node.intake.submit(request) for request in requests))
    assert [(tx.id, is_new) for tx, is_new in answers] == [(request.id, True) for request in requests]
    was_done = ailment is StoreAilment.DONE_UNSAID
    assert [(tx.state, tx.nonce) for tx, _ in answers] == (
        [(State.SIGNED, 1), (State.SIGNED, 2)] if was_done else [(State.QUEUED, None)] * 2
    )
    await all_ran(rig, "first", "second", "third")
    for tx, _ in answers:
        assert (await rig.history(tx)).count("tx.accepted") == 1
        assert len(await rig.attempts(tx)) == 1


@staged()
async def test_who_may_have_been_accepted_is_never_told_that_nothing_was(rig: Rig) -> None:
    """The commit is done, its reply is lost, and then the store stays away: a caller who takes that for a refusal pays
    twice."""
    await at_work(rig)
    gate = rig.node.gate
    gate.lay(Ambush("signer.sign", Boundary.AFTER, 0, lambda: rig.spoil_store(rig.node, StoreAilment.DONE_UNSAID)))

    def stay_away() -> None:
        gate.store_troubles.end()
        rig.spoil_store(rig.node, StoreAilment.REFUSED)

    gate.lay(Ambush("store.commit", Boundary.AFTER, 0, stay_away))
    with pytest.raises(CommitUnknown):
        await rig.submit("second", gas=GAS)
    gate.store_troubles.end()
    await all_ran(rig, "first", "second")


WRITTEN_BY_NOBODY = [RowMoved("x"), StoreUnavailable("x"), Unstorable("x"), LeaseLost("x"), Unreachable("x")]
IN_DOUBT = [CommitUnknown("x"), asyncio.CancelledError()]


@pytest.mark.parametrize("error", [*WRITTEN_BY_NOBODY, *IN_DOUBT], ids=lambda error: type(error).__name__)
@staged()
async def test_what_was_not_written_is_the_queue_s_to_refuse_and_only_a_doubt_stays_one(
    rig: Rig, error: BaseException
) -> None:
    await at_work(rig)
    failing(rig, error)
    asking = rig.spawn(rig.submit("second", gas=GAS))
    await rig.store.control(ALICE, Mode.DRAINING, "no more of it")
    await rig.advance(2.0)
    assert asking.done()
    assert type(asking.exception()) is (CommitUnknown if error in IN_DOUBT else LaneDraining)
    assert rig.node.intake.waiting == 0


@pytest.mark.parametrize("is_done", [False, True])
@staged()
async def test_a_lane_that_is_stopped_in_its_commit_answers_everybody_at_once(rig: Rig, is_done: bool) -> None:
    """In doubt: it was written, or will be, or not; and those behind it for certain not."""
    await at_work(rig)
    hanging(rig, **{"after" if is_done else "before": 5.0})
    asked = [rig.spawn(rig.submit(label, gas=GAS)) for label in ("second", "third")]
    await rig.advance(0.05)
    behind = rig.spawn(rig.submit("behind", gas=GAS))
    await rig.advance(0.05)
    await rig.store.control(ALICE, Mode.DRAINING, "no more of it")
    rig.node.engine._workers[ALICE].cancel()
    await rig.advance(0.5)
    assert all(task.done() for task in (*asked, behind))
    assert isinstance(behind.exception(), LaneDraining)
    if is_done:
        assert [task.result().state for task in asked] == [State.SIGNED] * 2
    else:
        assert [str(task.exception()) for task in asked] == ["it was cut short: CancelledError"] * 2
    assert rig.node.intake.waiting == 0


@staged()
async def test_a_commit_that_hangs_keeps_nobody_behind_it_for_long(rig: Rig) -> None:
    """One connection is dead; the store would take at once what comes meanwhile."""
    await at_work(rig)
    hanging(rig, before=7.0)
    first = rig.spawn(rig.submit("second", gas=GAS))
    await rig.advance(0.05)
    began = rig.loop.time()
    behind = [rig.spawn(rig.submit("third", gas=GAS)), rig.spawn(rig.submit("no gas"))]
    await rig.advance(PATIENCE_SECONDS + HELD_UP_SECONDS)
    assert [task.result().state for task in behind] == [State.QUEUED] * 2
    late = await rig.submit("late", gas=GAS)  # nor does whoever comes now
    assert rig.loop.time() - began < PATIENCE_SECONDS + HELD_UP_SECONDS + 0.1
    assert late.state is State.QUEUED
    await rig.advance(7.0)
    assert first.result().state is State.QUEUED  # it overtakes nobody
    await all_ran(rig, "first", "third", "no gas", "late", "second")


@staged()
async def test_one_that_was_written_before_it_hung_is_before_those_that_did_not_wait_for_it(rig: Rig) -> None:
    await at_work(rig)
    hanging(rig, after=7.0)
    first = rig.spawn(rig.submit("second", gas=GAS))
    await rig.advance(0.05)
    behind = rig.spawn(rig.submit("third", gas=GAS))
    await rig.advance(PATIENCE_SECONDS + HELD_UP_SECONDS)
    assert behind.result().state is State.QUEUED
    await rig.advance(7.0)
    assert first.result().nonce == 1
    await all_ran(rig, "first", "second", "third")


@staged()
async def test_if_nothing_was_written_they_stand_in_the_queue_as_they_came(rig: Rig) -> None:
    """Also those that could not be signed."""
    await at_work(rig)
    failing(rig, StoreUnavailable("not now"))
    labels = {"cheap": {"fees": BELOW_BASE_FEE}, "usual": {}, "poor": {"value": 100 * ETHER}, "last": {}}
    asked = [rig.spawn(rig.submit(label, gas=GAS, **fields)) for label, fields in labels.items()]
    await rig.advance(0.5)
    places = [task.result().place for task in asked]
    assert places == sorted(places)


@staged()
async def test_who_was_sent_away_while_it_was_signed_is_told_once(rig: Rig) -> None:
    waits = delays(rig)
    await at_work(rig)
    waits.append(2.0)
    await rig.submit("second", gas=GAS)
    await rig.advance(5.0)
    assert rig.node.intake.waiting == 0
    assert rig.node.engine.desks[ALICE].admit_after == 0  # nothing was tried in vain
    await all_ran(rig, "first", "second")


@staged()
async def test_it_was_accepted_when_the_store_says_so_however_late_its_owner_heard_the_time(rig: Rig) -> None:
    rig.freeze_at(rig.node, "store.load", 3.0, Boundary.AFTER)
    await at_work(rig)
    tx = await rig.submit("second", gas=GAS)
    assert tx.state is State.SIGNED
    accepted, *_ = await rig.store.history(tx.id)
    assert (accepted.kind, accepted.at) == ("tx.accepted", tx.created_at)


# who stops, and who leaves


@staged()
async def test_whoever_closes_the_intake_waits_for_those_at_the_desk(rig: Rig) -> None:
    waits = delays(rig)
    await at_work(rig)
    waits.append(0.1)
    asking = rig.spawn(rig.submit("second", gas=GAS))
    await rig.advance(0.01)
    assert rig.node.intake.waiting == 1
    closing = rig.spawn(rig.node.intake.close())
    await rig.advance(0.01)
    assert not closing.done()
    with pytest.raises(ShuttingDown):
        await rig.submit("too late", gas=GAS)
    await closing
    assert asking.done()
    assert asking.result().state is State.SIGNED
    assert rig.node.intake.waiting == 0


@staged()
async def test_whoever_closes_the_intake_waits_for_those_that_a_desk_sent_to_the_queue(rig: Rig) -> None:
    waits = delays(rig)
    await at_work(rig)
    waits.append(5.0)
    asking = rig.spawn(rig.submit("second", gas=GAS))
    await rig.advance(0.01)
    await rig.node.intake.close()
    assert asking.done()
    assert asking.result().state is State.QUEUED


@pytest.mark.parametrize("hangs", [0.05, 60.0])
@staged(drain_seconds=2.0)
async def test_an_engine_that_stops_answers_those_at_its_desks(rig: Rig, hangs: float) -> None:
    waits = delays(rig)
    await at_work(rig)
    waits.append(hangs)
    asking = rig.spawn(rig.submit("second", gas=GAS))
    await rig.advance(0.01)
    stopping = rig.spawn(rig.node.engine.stop())
    await rig.advance(0.5)
    tx = asking.result()
    assert tx.state is (State.QUEUED if hangs > 1 else State.SIGNED)
    await stopping
    after = await rig.submit("after", gas=GAS)  # there is no desk any more
    assert after.state is State.QUEUED
    rig.kill(rig.node)
    await rig.start_node()
    await all_ran(rig, "first", "second", "after")


@pytest.mark.parametrize("after", [n / 1000 for n in range(0, 26, 2)])
@staged()
async def test_a_node_that_stops_at_any_moment_answers_everybody_and_loses_nobody(rig: Rig, after: float) -> None:
    await at_work(rig)

    async def many() -> None:
        for n in range(10):
            asked.append(rig.spawn(rig.submit(f"pay {n}", gas=GAS, via=old)))
            await rig.advance(0.002)

    old, asked = rig.node, list[asyncio.Task[Transaction]]()
    coming = rig.spawn(many())
    await rig.advance(after)
    stopping = rig.spawn(rig.stop(old))
    await coming
    await stopping
    assert all(task.done() for task in asked)
    refused = [n for n, task in enumerate(asked) if isinstance(task.exception(), ShuttingDown)]
    accepted = [n for n in range(10) if n not in refused]
    await rig.start_node()
    await rig.advance(10.0)
    await rig.mine(2)
    assert sorted(rig.order_of_execution()) == sorted(["first", *(f"pay {n}" for n in accepted)])
    assert [await rig.state(asked[n].result()) for n in accepted] == [State.MINED] * len(accepted)
    assert list(rig.slots()) == list(range(len(accepted) + 1))


@pytest.mark.parametrize("step", ["signer.sign", "store.commit"])
@pytest.mark.parametrize("side", SIDES)
@staged()
async def test_a_caller_that_leaves_has_asked_for_an_ordinary_transaction(rig: Rig, step: str, side: Boundary) -> None:
    """As in the queue: whoever is cut off asks again by his key, and finds it."""
    await at_work(rig)
    asked = rig.request("second", gas=GAS, key="k")
    leaving, staying = (rig.spawn(rig.node.intake.submit(one)) for one in (asked, rig.request("third", gas=GAS)))
    rig.node.gate.lay(Ambush(step, side, 0, leaving.cancel))  # type: ignore[arg-type]
    await rig.advance(0.1)
    assert leaving.cancelled()
    kept = await rig.store.transaction(asked.id)
    assert kept is not None
    assert (kept.nonce, staying.result()[0].nonce) == (1, 2)
    assert rig.node.intake.waiting == 0
    assert (await rig.submit("second", gas=GAS, key="k")).id == asked.id
    await all_ran(rig, "first", "second", "third")


@staged()
async def test_who_leaves_before_anybody_looked_at_it_is_not_forgotten_either(rig: Rig) -> None:
    await at_work(rig)
    asked = rig.request("second", gas=GAS)
    leaving = rig.spawn(rig.node.intake.submit(asked))
    await asyncio.sleep(0)
    assert len(rig.node.engine.desks[ALICE].arrivals) == 1
    leaving.cancel()
    await all_ran(rig, "first", "second")
