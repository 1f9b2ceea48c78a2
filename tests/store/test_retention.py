"""What ended long ago is forgotten, and nothing else: no live slot, no key that a client may still repeat (P8)."""

from pathlib import Path
from typing import Any

import pytest

from nonchalant.lifecycle import Assigned, Cancelled, Confirmed, Failed, Included, Superseded, step
from nonchalant.model import Change, Event, LaneRecord, Lease, Stranger, Transaction
from nonchalant.ports import Duplicate, Filter, KeyTaken, Removed
from nonchalant.store.contract import SqlStore
from nonchalant.store.sqlite import SqliteStore
from nonchalant.store.talk import now
from nonchalant.values import replace
from nonchalant.words import LaneKey, Mode, SlotKind, State
from tests.examples import LANE, a_hash, a_receipt, a_request, a_slot, an_attempt
from tests.lessons import lesson
from tests.store.acts import LIMITS, OTHER_LANE, REFUSED, Counting, ManualClock, accept, assign, filler, sql, take, work

DAY = 24 * 3600
KEPT = 30 * DAY * 1000


async def end(store: SqlStore, lease: Lease, tx: Transaction, nonce: int, *, below: int | None = None) -> None:
    """Its slot is final and it is confirmed; every nonce below `below` is final with it."""
    making = work(lease, await store._read(now()), next_nonce=nonce + 1)
    slot = a_slot(nonce, an_attempt(a_hash(f"{tx.id}@{nonce}"), nonce, tx.id), tx_id=tx.id)
    making.move(tx, Included(a_receipt(a_hash(f"{tx.id}@{nonce}"))))
    making.move(tx, Confirmed())
    making.settle(slot)
    bound = nonce + 1 if below is None else below
    making.record(LaneRecord(key=lease.lane, next_nonce=max(nonce + 1, bound), settled_below=bound))
    await store.commit(making.change(), lease)


async def run(store: SqlStore, id: str, nonce: int, lane: LaneKey = LANE, **fields: Any) -> Transaction:
    """A transaction from its acceptance to its end."""
    lease = await take(store, lane=lane)
    [tx] = await accept(store, id, lane=lane, **fields)
    [tx] = await assign(store, lease, (tx, nonce))
    await end(store, lease, tx, nonce)
    return tx


async def forget(store: SqlStore, limit: int = 100) -> bool:
    return await store.forget_settled(older_than=KEPT, limit=limit)


async def count(store: SqlStore, table: str) -> int:
    [found] = await sql(store, f"SELECT count(*) AS n FROM {table}")
    return int(found["n"])


async def ids(store: SqlStore) -> list[str]:
    return sorted(tx.id for tx in await store.transactions(Filter(limit=10_000)))


async def test_what_ended_long_ago_goes_with_all_that_belongs_to_it(store: SqlStore, clock: ManualClock) -> None:
    await run(store, "old", 0)
    clock.pass_seconds(20 * DAY)
    await run(store, "young", 1)
    clock.pass_seconds(15 * DAY)
    await forget(store)
    assert await ids(store) == ["young"]
    assert await store.transaction("old") is None
    assert await store.history("old") == []
    assert (await store.attempts(["old"]))["old"] == []
    assert [row["tx_id"] for row in await sql(store, "SELECT tx_id FROM slots")] == ["young"]
    assert len(await store.history("young")) == 4


async def test_retention_counts_from_the_end_and_not_from_the_acceptance(store: SqlStore, clock: ManualClock) -> None:
    [tx] = await accept(store, "slow")
    clock.pass_seconds(300 * DAY)
    await forget(store)
    assert await ids(store) == ["slow"]
    lease = await take(store)
    [tx] = await assign(store, lease, (tx, 0))
    await end(store, lease, tx, 0)
    clock.pass_seconds(29 * DAY)
    await forget(store)
    assert await ids(store) == ["slow"]
    clock.pass_seconds(2 * DAY)
    await forget(store)
    assert await ids(store) == []


@pytest.mark.parametrize("ahead", [-31 * DAY * 1000, 31 * DAY * 1000])
async def test_retention_counts_by_the_stores_clock_and_not_by_a_nodes(
    store: SqlStore, clock: ManualClock, ahead: int
) -> None:
    """A node whose clock is wrong by a month would have it removed at once, or kept for twice as long."""
    lease = await take(store)
    cancelled, failed = await accept(store, "cancelled", "failed")
    moved, events = step(cancelled, Cancelled(), await store._read(now()) + ahead)
    await store.alter_queued(moved, events)
    making = work(lease, await store._read(now()) + ahead)
    making.move(failed, Failed("it would revert"))
    await store.commit(making.change(), lease)
    clock.pass_seconds(29 * DAY)
    await forget(store)
    assert await ids(store) == ["cancelled", "failed"]
    clock.pass_seconds(2 * DAY)
    await forget(store)
    assert await ids(store) == []


async def test_what_ended_before_its_end_was_written_down_goes_by_its_last_change(
    store: SqlStore, clock: ManualClock
) -> None:
    [tx] = await accept(store, "tx")
    moved, events = step(tx, Cancelled(), await store._read(now()))
    await store.alter_queued(moved, events)
    if isinstance(store, SqliteStore):
        await sql(store, "DROP TRIGGER ends_are_final")
        await sql(store, "UPDATE transactions SET ended_at = NULL")
    else:  # the schema is other tests' too
        await sql(store, "ALTER TABLE transactions DISABLE TRIGGER ends_are_final")
        await sql(store, "UPDATE transactions SET ended_at = NULL")
        await sql(store, "ALTER TABLE transactions ENABLE TRIGGER ends_are_final")
    clock.pass_seconds(29 * DAY)
    await forget(store)
    assert await ids(store) == ["tx"]
    clock.pass_seconds(2 * DAY)
    await forget(store)
    assert await ids(store) == []


@pytest.mark.parametrize("state", [State.QUEUED, State.SIGNED, State.SENT, State.MINED])
async def test_what_lives_is_never_removed_however_old(store: SqlStore, clock: ManualClock, state: State) -> None:
    lease = await take(store)
    [tx] = await accept(store, "tx")
    if state is not State.QUEUED:
        [tx] = await assign(store, lease, (tx, 0))
    if state is State.MINED:
        making = work(lease)
        making.move(tx, Included(a_receipt(a_hash("tx@0"))))
        await store.commit(making.change(), lease)
    clock.pass_seconds(400 * DAY)
    before = [await count(store, table) for table in ("transactions", "slots", "attempts")]
    await forget(store)
    assert [await count(store, table) for table in ("transactions", "slots", "attempts")] == before
    with pytest.raises(REFUSED, match="nothing that is accepted is lost"):
        await sql(store, "DELETE FROM transactions")


async def test_a_slot_above_the_settled_bound_keeps_its_transaction(store: SqlStore, clock: ManualClock) -> None:
    """Settled on its own evidence, while one below it is not: the nonce must stay taken."""
    lease = await take(store)
    low, high = await accept(store, "low", "high")
    low, high = await assign(store, lease, (low, 0), (high, 1))
    await end(store, lease, high, 1, below=0)
    clock.pass_seconds(31 * DAY)
    await forget(store)
    assert await ids(store) == ["high", "low"]
    lease = await take(store)
    await end(store, lease, low, 0, below=2)
    await forget(store)
    assert await ids(store) == ["low"]


async def test_a_lost_slot_of_the_past_goes_with_the_transaction_that_had_it(
    store: SqlStore, clock: ManualClock
) -> None:
    """Superseded at nonce 0, it ran at nonce 1."""
    lease = await take(store)
    [tx] = await accept(store, "tx")
    [tx] = await assign(store, lease, (tx, 0))
    making = work(lease, next_nonce=1)
    requeued = making.move(tx, Superseded("0xff"))
    making.settle(a_slot(0, an_attempt(a_hash("tx@0"), 0, "tx")))
    making.record(LaneRecord(key=LANE, next_nonce=1, settled_below=1))
    await store.commit(making.change(), lease)
    [tx] = await assign(store, lease, (requeued, 1))
    await end(store, lease, tx, 1)
    clock.pass_seconds(31 * DAY)
    await forget(store)
    assert [await count(store, table) for table in ("transactions", "slots", "attempts")] == [0, 0, 0]


async def test_an_attempt_that_never_left_goes_although_its_nonce_lives_again(
    store: SqlStore, clock: ManualClock
) -> None:
    lease = await take(store)
    bad, good = await accept(store, "bad", "good")
    [bad] = await assign(store, lease, (bad, 0))
    making = work(lease)
    making.move(bad, Failed("no node accepts these bytes"))
    making.free(a_slot(0, an_attempt(a_hash("bad@0"), 0, "bad"), tx_id="bad"))
    await store.commit(making.change(), lease)
    await assign(store, lease, (good, 0))
    clock.pass_seconds(31 * DAY)
    await forget(store)
    assert await ids(store) == ["good"]
    assert [attempt.tx_id for attempt in (await store.attempts(["good"]))["good"]] == ["good"]


async def test_what_ended_without_a_nonce_goes_too(store: SqlStore, clock: ManualClock) -> None:
    [tx] = await accept(store, "tx")
    moved, events = step(tx, Cancelled(), clock.now())
    await store.alter_queued(moved, events)
    clock.pass_seconds(31 * DAY)
    await forget(store)
    assert await ids(store) == []


@pytest.mark.parametrize("trouble", ["quarantined", "unreconciled", "halted"])
async def test_a_lane_that_is_not_in_order_keeps_everything_and_others_do_not(
    store: SqlStore, clock: ManualClock, trouble: str
) -> None:
    await run(store, "here", 0)
    await run(store, "there", 0, OTHER_LANE)
    clock.pass_seconds(31 * DAY)
    lease = await take(store)
    record = LaneRecord(key=LANE, next_nonce=1, settled_below=1)
    match trouble:
        case "quarantined":
            await store.commit(Change(lane=replace(record, quarantined_below=9)), lease)
        case "unreconciled":
            await sql(store, "UPDATE meta SET incarnation = 1")
            other = await take(store, lane=OTHER_LANE)
            await store.commit(Change(lane=replace(record, key=OTHER_LANE, incarnation=1)), other)
        case "halted":
            await store.control(LANE, Mode.HALTED, "a final block vanished")
    await forget(store)
    assert await ids(store) == ["here"]
    match trouble:
        case "halted":
            await store.control(LANE, Mode.OPEN, "")
        case _:
            await store.commit(Change(lane=replace(record, incarnation=await store.incarnation())), lease)
    await forget(store)
    assert await ids(store) == []


async def test_nonces_do_not_depend_on_what_is_removed(store: SqlStore, clock: ManualClock) -> None:
    for nonce in range(3):
        await run(store, f"tx{nonce}", nonce)
    clock.pass_seconds(31 * DAY)
    before = await store.lane(LANE)
    assert before is not None
    await forget(store)
    assert await ids(store) == []
    after = await store.lane(LANE)
    assert after is not None
    assert after.record == before.record
    assert (after.record.next_nonce, after.record.settled_below) == (3, 3)
    # And no nonce below is ever given out again, though no row tells of it any more.
    lease = await take(store)
    [tx] = await accept(store, "late")
    making = work(lease)
    making.move(tx, Assigned(1, a_hash("late@1")))
    making.bind(1, SlotKind.TRANSACTION, an_attempt(a_hash("late@1"), 1, "late", epoch=lease.epoch))
    with pytest.raises(Exception, match="this nonce is final already"):
        await store.commit(making.change(), lease)


# what is kept of it


@lesson("idempotency-key-again")
async def test_a_key_whose_transaction_was_removed_never_executes_again(store: SqlStore, clock: ManualClock) -> None:
    await run(store, "old", 0, idempotency_key="invoice", body_hash="h")
    clock.pass_seconds(31 * DAY)
    await forget(store)
    again = a_request("new", idempotency_key="invoice", body_hash="h")
    other = a_request("new", idempotency_key="invoice", body_hash="other")
    elsewhere = a_request("else", idempotency_key="invoice", body_hash="h", tenant="somebody else")
    assert await store.accept([again, other], limits=LIMITS) == [Removed("old"), KeyTaken()]
    assert await ids(store) == []
    # A full lane, too, says what became of it.
    full = dict.fromkeys(LIMITS, 0)
    assert await store.accept([again], limits=full) == [Removed("old")]
    [accepted] = await store.accept([elsewhere], limits=LIMITS)
    assert isinstance(accepted, Transaction)


async def test_a_key_is_kept_for_as_long_again_as_its_transaction_was(store: SqlStore, clock: ManualClock) -> None:
    await run(store, "old", 0, idempotency_key="invoice", body_hash="h")
    clock.pass_seconds(31 * DAY)
    await forget(store)
    again = a_request("new", idempotency_key="invoice", body_hash="h")
    clock.pass_seconds(29 * DAY)
    await forget(store)
    assert await store.accept([again], limits=LIMITS) == [Removed("old")]
    clock.pass_seconds(2 * DAY)
    await forget(store)
    assert await count(store, "removed") == 0
    [accepted] = await store.accept([again], limits=LIMITS)
    assert isinstance(accepted, Transaction)


async def test_a_key_whose_transaction_is_still_kept_answers_it(store: SqlStore, clock: ManualClock) -> None:
    await run(store, "old", 0, idempotency_key="invoice", body_hash="h")
    clock.pass_seconds(29 * DAY)
    await forget(store)
    [answer] = await store.accept([a_request("new", idempotency_key="invoice", body_hash="h")], limits=LIMITS)
    assert isinstance(answer, Duplicate)


async def test_what_had_no_key_leaves_nothing_behind(store: SqlStore, clock: ManualClock) -> None:
    await run(store, "old", 0)
    clock.pass_seconds(31 * DAY)
    await forget(store)
    assert await count(store, "removed") == 0


# what belongs to no transaction


async def test_final_fillers_old_lane_events_and_strangers_go_too(store: SqlStore, clock: ManualClock) -> None:
    lease = await take(store)
    await store.commit(filler(lease, 0), lease)
    [slot] = (await store.load(lease)).slots
    making = work(lease, clock.now())
    making.settle(slot)
    making.record(LaneRecord(key=LANE, next_nonce=1, settled_below=1))
    making.stranger(Stranger("0x1", 5, "deed"))
    making.event("lane.filled", nonce=0)
    await store.commit(making.change(), lease)
    tables = ("slots", "attempts", "strangers", "events")
    before = [await count(store, table) for table in tables]
    await forget(store)
    assert [await count(store, table) for table in tables] == before
    clock.pass_seconds(31 * DAY)
    await forget(store)
    assert [await count(store, table) for table in tables] == [0, 0, 0, 0]


async def test_a_live_filler_stays_with_its_attempts(store: SqlStore, clock: ManualClock) -> None:
    lease = await take(store)
    await store.commit(filler(lease, 0), lease)
    clock.pass_seconds(400 * DAY)
    await forget(store)
    assert [await count(store, table) for table in ("slots", "attempts")] == [1, 1]


async def test_events_of_a_transaction_that_lives_stay_however_old(store: SqlStore, clock: ManualClock) -> None:
    await accept(store, "tx")
    clock.pass_seconds(400 * DAY)
    await forget(store)
    assert [event.kind for event in await store.history("tx")] == ["tx.accepted"]


async def test_positions_go_on_rising_when_every_event_was_removed(store: SqlStore, clock: ManualClock) -> None:
    await run(store, "old", 0)
    last = await store.last_position()
    clock.pass_seconds(31 * DAY)
    await forget(store)
    assert await count(store, "events") == 0
    await accept(store, "new")
    [event] = await store.events_after(last, limit=9)
    assert (event.kind, event.tx_id) == ("tx.accepted", "new")


async def test_a_fact_whose_first_telling_was_removed_still_says_since_when(
    store: SqlStore, clock: ManualClock
) -> None:
    lease, start = await take(store), clock.now()

    async def tell() -> None:
        mark = Event(kind="lane.attention", lane=LANE, at=clock.now(), data={"code": "signer_failed"})
        await store.commit(Change(events=(mark,)), lease)

    await tell()
    clock.pass_seconds(1)
    await tell()
    await store.last_position()  # whoever reads gives them their places
    await sql(store, "DELETE FROM events WHERE times = 1 AND kind = 'lane.attention'")
    await tell()
    told = [event for event in await store.events_after(0, limit=99) if event.kind == "lane.attention"]
    assert [(event.times, event.since) for event in told] == [(2, start), (3, start)]


# in small steps


async def test_one_step_removes_no_more_than_it_may_and_says_that_there_is_more(
    store: SqlStore, clock: ManualClock
) -> None:
    for nonce in range(5):
        await run(store, f"tx{nonce}", nonce)
    clock.pass_seconds(31 * DAY)
    left = []
    while await forget(store, limit=2):
        left.append(len(await ids(store)))
    assert left[:2] == [3, 1]
    assert await ids(store) == []


async def test_what_may_not_go_yet_does_not_hold_up_what_may(store: SqlStore, clock: ManualClock) -> None:
    lease = await take(store)
    low, *high = await accept(store, "low", "a", "b", "c")
    await assign(store, lease, *((tx, nonce) for nonce, tx in enumerate((low, *high))))
    for nonce, tx in enumerate(high, start=1):
        await end(store, lease, replace(tx, version=2, state=State.SIGNED, nonce=nonce, hash="0x"), nonce, below=0)
    clock.pass_seconds(1)
    await run(store, "free", 0, OTHER_LANE)
    clock.pass_seconds(31 * DAY)
    await forget(store, limit=1)
    assert await ids(store) == ["a", "b", "c", "low"]


async def test_removing_one_costs_the_same_among_a_long_history(tmp_path: Path, clock: ManualClock) -> None:
    """The steps of SQLite's own machine, counted."""
    store = SqliteStore.open(tmp_path / "nonchalant.db", clock=clock, entropy=Counting())
    await store.declare([LANE])
    store._writer.execute("PRAGMA synchronous = OFF")
    costs, nonce = [], 0
    for younger in (0, 500):
        await run(store, f"old{nonce}", nonce, idempotency_key=f"old{nonce}")
        nonce += 1
        clock.pass_seconds(31 * DAY)
        for _ in range(younger):
            await run(store, f"young{nonce}", nonce)
            nonce += 1
        steps = 0

        def step() -> int:
            nonlocal steps
            steps += 1
            return 0

        store._writer.set_progress_handler(step, 1)
        await forget(store)
        store._writer.set_progress_handler(None, 1)
        assert len(await ids(store)) == younger
        costs.append(steps)
    assert costs[1] < 1.5 * costs[0]
    await store.close()
