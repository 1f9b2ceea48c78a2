"""PostgreSQL itself: connections that are lost, locks that are held, nodes that accept at once, plans of queries."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import asyncpg
import pytest

from nonchalant.errors import CommitUnknown, LeaseLost, RowMoved, StoreUnavailable
from nonchalant.lifecycle import Cancelled, step
from nonchalant.model import Lease
from nonchalant.ports import Duplicate, Filter
from nonchalant.store import connections, queries
from nonchalant.store.postgres import FOR_WORK, PostgresStore
from nonchalant.store.talk import Ask, AskForEach, Fence, Keys, Procedure
from nonchalant.words import LaneKey
from tests.examples import LANE, a_request
from tests.postgres import Cluster, running
from tests.store.acts import (
    LIMITS,
    OTHER_LANE,
    Counting,
    accept,
    begun,
    filler,
    on_a_server,
    on_postgres,
    open_patiently,
    second,
    sql,
    take,
)

store = pytest.fixture(on_a_server)


# one set of queries


def test_both_dialects_have_the_same_queries() -> None:
    sqlite, postgres = queries.load("sqlite").keys(), queries.load("postgres").keys()
    # What SQLite's one writer needs: its own count of commits and of positions, and repeats that are joined when they are
    # told. It has no round trips to save when a node says that it lives.
    assert sqlite - postgres == {
        *("count_commit", "begin_positions", "first_told"),
        *("heartbeat", "forget_dead_nodes", "live_nodes"),
    }
    # What many writers need.
    assert postgres - sqlite == {
        *(
            "moment",
            "place",
            "settle_down",
            "beat",
            "end_leases",
            "fence_all",
            "share_keys",
            "try_keys",
            "own_keys",
            "held_leases",
            "renew_lease",
        ),
        *("unnumbered", "lock_numbering", "join_repeats", "number_events", "end_numbering"),
    }


# connections


async def test_a_node_goes_on_after_its_backends_were_terminated(store: PostgresStore) -> None:
    lease = await take(store)
    await store.commit(filler(lease, 0), lease)
    for number in range(3):
        await sql(
            store,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'nonchalant' AND pid <> pg_backend_pid()",
        )
        await accept(store, f"tx{number}")
        await store.commit(filler(lease, number + 1), lease)
    assert len((await store.load(lease)).slots) == 4


async def test_a_node_goes_on_after_the_server_was_restarted(caplog: pytest.LogCaptureFixture) -> None:
    with running() as cluster:
        async with on_postgres(cluster) as store:
            await store.declare([LANE])
            await accept(store, "before")
            cluster.stop()
            await asyncio.sleep(0.1)  # until the driver has seen that its connections are gone
            with pytest.raises(StoreUnavailable):
                await store.accept([a_request("meanwhile")], limits=LIMITS)
            with pytest.raises(StoreUnavailable, match="Connect call failed"):
                await store.transaction("before")
            cluster.start()
            await accept(store, "after")
            assert [tx.id for tx in await store.transactions(Filter())] == ["after", "before"]
            assert await store.incarnation() == 0
    words = [record for record in caplog.records if record.name.startswith("asyncpg")]
    assert words == [], "the driver has nothing to say that was not said in our words"


@pytest.mark.parametrize("happened", [False, True])
async def test_a_commit_that_does_not_report_back_is_unknown_and_can_be_repeated(
    store: PostgresStore, happened: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def cut(connection: Any) -> None:
        """The connection is lost when COMMIT is asked for, before or after it happened."""
        if happened:
            await connection.execute("COMMIT")
        connection.terminate()
        await commit(connection)

    commit = connections.commit
    monkeypatch.setattr(connections, "commit", cut)
    with pytest.raises(CommitUnknown):
        await store.accept([a_request("a")], limits=LIMITS)
    monkeypatch.undo()
    assert (await store.transaction("a") is not None) is happened
    await accept(store, "a")
    assert len(await store.history("a")) == 1


async def test_what_is_refused_by_the_database_is_rolled_back_and_the_connection_used_again(
    store: PostgresStore,
) -> None:
    lease = await take(store)
    for _ in range(30):
        with pytest.raises(RowMoved):
            await store.accept([a_request("a"), a_request("bad", priority=10)], limits=LIMITS)
    await accept(store, "b")
    await store.commit(filler(lease, 0), lease)
    assert [tx.id for tx in await store.transactions(Filter())] == ["b"]


async def test_a_node_that_is_held_up_while_it_starts_begins_anew(postgres: Cluster) -> None:
    """On a busy machine: the server ends what takes too long."""
    waiting = "SELECT xact_start FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%' || $1 || '%'"
    async with on_postgres(postgres, stall_seconds=2) as store:
        other, observer = [await asyncpg.connect(postgres.dsn) for _ in range(2)]
        began: set[object] = set()
        async with other.transaction():
            await other.execute(f"LOCK TABLE {store.schema}.lanes")
            declared = asyncio.create_task(store.declare([LANE]))
            while len(began) < 2 and not declared.done():
                began |= {row["xact_start"] for row in await observer.fetch(waiting, store.schema)}
                await asyncio.sleep(0.01)
        await declared
        for connection in (other, observer):
            await connection.close()
        assert await store.lane(LANE) is not None


@pytest.mark.parametrize("table", ["lanes", "meta"])
async def test_a_node_that_is_cut_off_while_it_starts_begins_anew(postgres: Cluster, table: str) -> None:
    """When it makes its lanes known, and when it looks where the server stands."""
    cut = """SELECT pid, pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE wait_event_type = 'Lock' AND query LIKE '%' || $1 || '%'"""
    async with on_postgres(postgres) as store, AsyncExitStack() as opened:

        async def start() -> None:
            node = await second(store, postgres)
            opened.push_async_callback(node.close)
            await node.declare([LANE])

        holder, observer = [await asyncpg.connect(postgres.dsn) for _ in range(2)]
        async with holder.transaction():
            await holder.execute(f"LOCK TABLE {store.schema}.{table} IN SHARE MODE")
            starting = asyncio.create_task(start())
            while not await observer.fetch(cut, store.schema):
                assert not starting.done()
                await asyncio.sleep(0.01)
        await starting
        for connection in (holder, observer):
            await connection.close()
        assert await store.lane(LANE) is not None


async def test_a_server_that_is_not_there_is_named_without_its_password() -> None:
    with pytest.raises(StoreUnavailable, match=r"postgresql://me@127.0.0.1:1/db") as caught:
        await PostgresStore.open("postgresql://me:secret@127.0.0.1:1/db", entropy=Counting())
    assert "secret" not in str(caught.value)


async def test_a_wrong_password_is_not_repeated(postgres: Cluster) -> None:
    wrong = f"postgresql://nobody:secret@127.0.0.1:{postgres.port}/nowhere"
    with pytest.raises(StoreUnavailable) as caught:
        await PostgresStore.open(wrong, entropy=Counting())
    assert "secret" not in str(caught.value)


# leases and locks


async def test_a_lease_is_judged_by_the_server_s_clock(store: PostgresStore) -> None:
    epoch = await store.acquire(LANE, "a", 60)
    assert epoch == 1
    assert await store.acquire(LANE, "b", 10) is None
    await sql(store, "UPDATE leases SET expires_at = nonchalant.millis()")
    lease = Lease(LANE, "a", epoch, 0.0)
    assert await store.renew([lease], 10) == []
    with pytest.raises(LeaseLost):
        await store.commit(filler(lease, 0), lease)
    assert await store.acquire(LANE, "b", 10) == 2


async def test_a_renewal_does_not_wait_for_a_lane_that_is_busy_and_renews_it_in_its_turn(
    store: PostgresStore,
) -> None:
    lanes = [LaneKey(7, f"0x{number:040x}") for number in range(20)]
    await store.declare(lanes)
    leases = [await take(store, lane=lane) for lane in lanes]
    entered, go_on = asyncio.Event(), asyncio.Event()

    async def busy() -> None:
        async with store._work.transaction() as connection:
            await store._run(connection, _only_fence(leases[3]), [])
            entered.set()
            await go_on.wait()

    task = asyncio.create_task(busy())
    await entered.wait()
    renewal = asyncio.create_task(store.renew(leases, 60))
    for lease in (leases[0], leases[-1]):
        while (await _expiry(store, lease.lane)) < 30_000:  # noqa: ASYNC110 - a server tells nobody
            await asyncio.sleep(0.005)
    assert not renewal.done()
    assert await _expiry(store, leases[3].lane) < 30_000
    go_on.set()
    await task
    assert sorted(await renewal) == sorted(lanes)


def _only_fence(lease: Lease) -> Procedure[None]:
    yield Fence(lease)


async def _expiry(store: PostgresStore, lane: LaneKey) -> int:
    """In how many milliseconds."""
    [row] = await sql(
        store, "SELECT expires_at - nonchalant.millis() AS left FROM leases WHERE address = ?", lane.address
    )
    return int(row["left"])


async def test_an_owner_that_is_frozen_inside_its_transaction_does_not_hold_a_take_over_up(
    postgres: Cluster,
) -> None:
    async with on_postgres(postgres, stall_seconds=0.3) as store:
        await store.declare([LANE])
        epoch = await store.acquire(LANE, "frozen", 0.1)
        assert epoch is not None
        lease = Lease(LANE, "frozen", epoch, 0.0)
        connection = await store._work.begun()
        await store._run(connection, _only_fence(lease), [])
        # It does not go on; whoever wants the lane asks until he has it.
        other = await second(store, postgres, stall_seconds=0.3)
        async with asyncio.timeout(60):
            while await other.acquire(LANE, "other", 10) is None:  # noqa: ASYNC110 - as a sweep does
                await asyncio.sleep(0.01)
        with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
            await connection.execute("COMMIT")
        store._work.pool.release(connection)
        await other.close()


async def test_only_who_locks_a_lease_has_little_time_where_leases_are_short(
    store: PostgresStore, postgres: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "STALL_SECONDS", 60.0)
    [old] = await accept(store, "old")
    lease = await take(store)
    hasty = await second(store, postgres, stall_seconds=0.3)
    holder = await asyncpg.connect(postgres.dsn)
    async with holder.transaction():
        await holder.execute(f"LOCK TABLE {store.schema}.leases, {store.schema}.transactions IN EXCLUSIVE MODE")
        accepting = await begun(store, hasty.accept([a_request("new")], limits=LIMITS))
        with pytest.raises(StoreUnavailable):
            await hasty.commit(filler(lease, 0), lease)
        with pytest.raises(StoreUnavailable):
            await hasty.alter_queued(*step(old, Cancelled(), 5))
        assert not accepting.done()
    [new] = await accepting
    assert type(new).__name__ == "Transaction"
    await holder.close()
    await hasty.close()


async def test_leases_are_renewed_however_busy_a_node_is(store: PostgresStore) -> None:
    lease = await take(store)
    taken = [await store._work.pool.acquire() for _ in range(FOR_WORK)]
    async with asyncio.timeout(60):
        assert await store.heartbeat("node-a", 10) == 1
        assert await store.renew([lease], 10) == [LANE]
        assert await store.acquire(OTHER_LANE, "node-a", 10) == 1
        await store.release([lease])
    for connection in taken:
        store._work.pool.release(connection)


async def test_leases_of_many_lanes_are_locked_in_one_order(store: PostgresStore, postgres: Cluster) -> None:
    """Renewals and releases of the same lanes in opposite orders wait for each other, and never in a circle."""
    lanes = [LaneKey(7, f"0x{number:040x}") for number in range(50)]
    await store.declare(lanes)
    leases = [await take(store, lane=lane) for lane in lanes]
    other = await second(store, postgres)
    for _ in range(10):
        await asyncio.gather(
            store.renew(leases, 10), other.renew(leases[::-1], 10), store.release(leases), other.release(leases[::-1])
        )
        leases = [await take(store, lane=lane) for lane in lanes]
    await other.close()


# intake


async def test_nodes_that_accept_the_same_keys_at_once_in_any_order_make_one_transaction_of_each(
    store: PostgresStore, postgres: Cluster
) -> None:
    others = [await second(store, postgres) for _ in range(3)]
    for round_ in range(8):
        batches = [
            [a_request(f"{node}-{round_}-{key}", idempotency_key=f"{round_}-{key}") for key in keys]
            for node, keys in enumerate((range(12), range(11, -1, -1), range(12), range(11, -1, -1)))
        ]
        answers = await asyncio.gather(
            *(node.accept(batch, limits=LIMITS) for node, batch in zip((store, *others), batches, strict=True))
        )
        found = {tx.idempotency_key for tx in await store.transactions(Filter(limit=1000))}
        assert {f"{round_}-{key}" for key in range(12)} <= found
        kinds = [type(answer).__name__ for batch in answers for answer in batch]
        assert (kinds.count("Transaction"), kinds.count("Duplicate")) == (12, 36)
    for other in others:
        await other.close()


async def test_a_key_that_is_just_being_removed_executes_nothing_again(store: PostgresStore, postgres: Cluster) -> None:
    """Retention takes a key from one table to another; who accepts meanwhile must not find it in neither."""
    [tx] = await accept(store, "old", idempotency_key="k")
    moved, events = step(tx, Cancelled(), 0)
    await store.alter_queued(moved, events)
    other = await second(store, postgres)
    async with store._work.transaction() as connection:
        await store._run(connection, _removing("old"), [])
        again = await begun(store, other.accept([a_request("new", idempotency_key="k")], limits=LIMITS))
        assert not again.done()
    [answer] = await again
    assert type(answer).__name__ == "Removed"
    assert await store.transactions(Filter()) == []
    await other.close()


def _removing(tx_id: str) -> Procedure[None]:
    yield Keys(alone=True)
    yield AskForEach("keep_key", [{"id": tx_id}], {"at": 0})
    yield AskForEach("remove_history", [{"id": tx_id}])
    yield AskForEach("remove_transaction", [{"id": tx_id}])


async def test_a_repeated_request_is_answered_by_another_node(store: PostgresStore, postgres: Cluster) -> None:
    other = await second(store, postgres)
    [tx] = await accept(store, "a", idempotency_key="k")
    assert await other.accept([a_request("b", idempotency_key="k")], limits=LIMITS) == [Duplicate(tx)]
    await other.close()


# plans: what is done often must not grow with what is done


GROWING = ("transactions", "waiting", "slots", "attempts", "events", "removed", "strangers", "wishes")


@pytest.mark.parametrize(
    ("query", "columns"),
    [
        ("queued", {"chain_id": [7, 7], "address": ["0x", "0y"], "limit": [9, 9], "asking": 9, "skip": []}),
        ("load_slots", LANE._asdict()),
        ("load_attempts", LANE._asdict()),
        ("load_transactions", LANE._asdict()),
        ("events_after", {"position": 5, "limit": 9}),
        ("unnumbered", {}),
        ("marked", {**LANE._asdict(), "limit": 9, "after": 0}),
        ("lanes_with_work", {"marked": True}),
        ("queued_before", {**LANE._asdict(), "place": 5}),
        ("transaction", {"id": "x"}),
        ("history", {"tx_id": "x"}),
        ("count_wishes", {**LANE._asdict(), "limit": 9}),
        ("backlog", {"limit": 9}),
    ],
)
async def test_no_query_that_is_asked_often_reads_a_whole_table(
    store: PostgresStore, query: str, columns: dict[str, Any]
) -> None:
    statement = store._sql[query]
    async with store._work.pool.lent() as connection, connection.transaction():
        await connection.execute("SET LOCAL enable_seqscan = off")
        plan = await connection.fetch(f"EXPLAIN {statement.sql}", *statement.values(columns))
    scans = [row[0] for row in plan if "Seq Scan on" in row[0] and any(f" {table}" in row[0] for table in GROWING)]
    assert scans == []


async def test_a_query_that_is_not_there_is_a_bug_and_not_an_outage(store: PostgresStore) -> None:
    def procedure() -> Procedure[None]:
        yield Ask("nothing of the kind")

    with pytest.raises(KeyError):
        await store._write(procedure())


# wake-ups


async def test_nodes_hear_of_each_other_whatever_their_schema_is_called(postgres: Cluster) -> None:
    url = f"{postgres.dsn}?schema={'long_' * 12}xyz"
    one, other = [await open_patiently(url) for _ in range(2)]
    heard: list[LaneKey] = []
    assert other.wakes is not None
    other.wakes.hear = heard.extend
    await one.declare([LANE])
    async with asyncio.timeout(30):
        number = 0
        while not heard:  # until it listens
            await accept(one, f"tx{number}")
            number += 1
            await asyncio.sleep(0.02)
    assert set(heard) == {LANE}
    await one.close()
    await other.close()
