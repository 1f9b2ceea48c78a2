"""A history tells what happened, when, how often and what was last said, and does not grow with retries."""

from collections import Counter
from pathlib import Path

import pytest

from nonchalant.model import Change, Event, Lease
from nonchalant.ports import Store
from nonchalant.store.sqlite import SqliteStore
from tests.examples import LANE
from tests.lessons import lesson
from tests.store.acts import Counting, ManualClock, accept, assign, sql, take


def refused(at: int, *, endpoint: str = "a", reason: str = "txpool_full", message: str = "") -> Event:
    data = {"endpoint": endpoint, "reason": reason, "message": message}
    return Event(kind="attempt.refused", lane=LANE, at=at, tx_id="tx", data=data)


async def tell(store: Store, lease: Lease, *events: Event) -> None:
    await store.commit(Change(events=events), lease)


async def test_of_a_fact_that_repeats_the_first_and_the_newest_stay_and_the_newest_counts(store: Store) -> None:
    lease = await take(store)
    await accept(store, "tx")
    for at in range(100, 105):
        await tell(store, lease, refused(at, message=f"said at {at}"))
    first, newest = (await store.history("tx"))[1:]
    assert (first.at, first.data["message"], first.times, first.since) == (100, "said at 100", 1, None)
    assert (newest.at, newest.data["message"], newest.times, newest.since) == (104, "said at 104", 5, 100)


async def test_facts_are_told_apart_by_transaction_endpoint_and_class(store: Store) -> None:
    lease = await take(store)
    await accept(store, "tx", "other")
    told = [
        refused(1),
        refused(1, endpoint="b"),
        refused(1, reason="nonce_too_high"),
        Event(kind="attempt.refused", lane=LANE, at=1, tx_id="other", data=dict(refused(1).data)),
    ]
    for _ in range(3):
        await tell(store, lease, *told)
    for tx_id, facts in (("tx", 3), ("other", 1)):
        counted = Counter(event.times for event in await store.history(tx_id) if event.kind == "attempt.refused")
        assert counted == {1: facts, 3: facts}


async def test_what_happens_by_itself_each_time_is_told_each_time(store: Store) -> None:
    lease = await take(store)
    for nonce in range(3):
        await tell(store, lease, Event(kind="lane.filled", lane=LANE, at=nonce, data={"nonce": nonce}))
    filled = [event for event in await store.events_after(0, limit=99) if event.kind == "lane.filled"]
    assert [(event.data["nonce"], event.times) for event in filled] == [(0, 1), (1, 1), (2, 1)]


async def test_a_lane_that_is_taken_again_and_again_keeps_two_events_an_owner(store: Store) -> None:
    for _ in range(50):
        await take(store, "node-a")
    lease = await take(store, "node-a")
    await store.release([lease])
    await take(store, "node-b")
    leases = [event for event in await store.events_after(0, limit=99) if event.kind == "lane.lease"]
    assert [(event.data, event.times) for event in leases] == [
        ({"owner": "node-a", "epoch": 1}, 1),
        ({"owner": "node-a", "epoch": 51}, 51),
        ({"owner": "node-b", "epoch": 52}, 1),
    ]


async def test_a_reader_by_position_meets_each_fact_after_what_caused_it_and_never_behind_itself(store: Store) -> None:
    """One that reads after every commit, and one that reads once at the end: both see causes before effects."""
    lease = await take(store)
    [tx] = await accept(store, "tx")
    position, met = await store.last_position(), list[Event]()
    await assign(store, lease, (tx, 0))
    for at in range(100, 130):
        mark = Event(kind="tx.attention", lane=LANE, at=at, tx_id="tx", data={"code": "txpool_full"})
        # A mark rests on the refusal that is told in the same commit.
        await tell(store, lease, refused(at), mark)
        news = await store.events_after(position, limit=99)
        assert [event.position for event in news] == sorted(event.position for event in news)
        assert all(event.position > position for event in news)
        position = news[-1].position
        met += news
    assert [event.times for event in met if event.kind == "attempt.refused"] == list(range(1, 31))
    late = await store.history("tx")
    assert [event.kind for event in late] == [
        "tx.accepted",
        "tx.signed",
        "attempt.refused",
        "tx.attention",
        "attempt.refused",
        "tx.attention",
    ]
    assert [event.at for event in late[2:]] == [100, 100, 129, 129]


@lesson("bounded-history")
async def test_ten_thousand_retries_leave_a_bounded_history_and_slow_nothing_down(
    tmp_path: Path, clock: ManualClock
) -> None:
    """Rows, statements and the steps of SQLite's own machine, counted: none grows with the number of retries."""
    store = SqliteStore.open(tmp_path / "nonchalant.db", clock=clock, entropy=Counting())
    await store.declare([LANE])
    await accept(store, "tx")
    store._writer.execute("PRAGMA synchronous = OFF")  # what is counted here is not the disk
    rows, costs = [], []
    for retry in range(10_000):
        lease = await take(store)
        clock.pass_seconds(1)
        told = (
            refused(retry, endpoint="a"),
            refused(retry, endpoint="b", reason="nonce_too_high"),
            Event(kind="attempt.sent", lane=LANE, at=retry, tx_id="tx", data={"hash": "0x1"}),
            Event(kind="tx.attention", lane=LANE, at=retry, tx_id="tx", data={"code": "txpool_full"}),
            Event(kind="lane.attention", lane=LANE, at=retry, data={"code": "signer_failed"}),
        )
        if retry % 1000 not in (10, 999):
            await tell(store, lease, *told)
            continue
        statements, steps = 0, 0

        def count_statement(_sql: str) -> None:
            nonlocal statements
            statements += 1

        def count_step() -> int:
            nonlocal steps
            steps += 1
            return 0

        store._writer.set_trace_callback(count_statement)
        store._writer.set_progress_handler(count_step, 1)
        await tell(store, lease, *told)
        store._writer.set_trace_callback(None)
        store._writer.set_progress_handler(None, 1)
        rows.append(store._writer.execute("SELECT count(*) FROM events").fetchone()[0])
        costs.append((statements, steps))
    # One of the acceptance, and two of each fact: five that are told here, and the lease.
    assert rows == [13] * 20
    assert len({statements for statements, _ in costs}) == 1
    assert max(steps for _, steps in costs) <= 1.1 * min(steps for _, steps in costs)
    newest = (await store.history("tx"))[-1]
    assert (newest.times, newest.since) == (10_000, 0)
    await store.close()


@pytest.mark.parametrize("spoilt", ["{", ""])
async def test_a_repeat_of_an_event_that_cannot_be_read_is_counted_all_the_same(store: Store, spoilt: str) -> None:
    lease = await take(store)
    await accept(store, "tx")
    await tell(store, lease, refused(1))
    await tell(store, lease, refused(2))
    await store.last_position()  # whoever reads gives them their places
    await sql(store, "UPDATE events SET data = ? WHERE kind = 'attempt.refused'", spoilt)
    await tell(store, lease, refused(3))
    assert [(event.kind, event.times) for event in await store.history("tx")] == [
        ("tx.accepted", 1),
        ("attempt.refused", 3),
    ]
