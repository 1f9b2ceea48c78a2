"""PostgreSQL itself: connections that are lost, locks that are held, positions, wake-ups, installations side by side."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from nonchalant.errors import BadSettings, CommitUnknown, LeaseLost, RowMoved, StoreUnavailable
from nonchalant.installation import Installation
from nonchalant.lifecycle import Cancelled, step
from nonchalant.model import Change, Event, LaneKey, Lease, Mode
from nonchalant.ports import Duplicate, Filter
from nonchalant.store import connections, postgres_schema, queries
from nonchalant.store.migrations import Migration
from nonchalant.store.postgres import FOR_WORK, PostgresStore
from nonchalant.store.talk import Ask, Fence, Procedure
from nonchalant.wishes import Sync, Wish
from tests.conftest import ROOT
from tests.examples import LANE, a_request
from tests.postgres import Cluster, running
from tests.store.acts import LIMITS, OTHER_LANE, REFUSED, Counting, accept, assign, filler, on_postgres, sql, take


@pytest.fixture
async def store(postgres: Cluster) -> AsyncIterator[PostgresStore]:
    """On the server's own clock."""
    async with on_postgres(postgres) as store:
        await store.declare([LANE, OTHER_LANE])
        yield store


async def second(store: PostgresStore, cluster: Cluster, **options: Any) -> PostgresStore:
    """Another node's access to the same data."""
    return await PostgresStore.open(f"{cluster.dsn}?schema={store.schema}", entropy=Counting(), **options)


def told(number: int) -> Event:
    return Event(kind="lane.filled", lane=LANE, at=0, data={"number": number})


# one set of queries


def test_both_dialects_have_the_same_queries() -> None:
    sqlite, postgres = queries.load("sqlite").keys(), queries.load("postgres").keys()
    # What SQLite's one writer needs: its own count of commits, and repeats that are joined when they are told.
    assert sqlite - postgres == {"count_commit", "first_told"}
    # What many writers need.
    assert postgres - sqlite == {
        *("moment", "place", "settle_down", "end_leases", "share_keys", "own_keys", "held_leases", "renew_lease"),
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


async def test_a_node_goes_on_after_the_server_was_restarted() -> None:
    with running() as cluster:
        async with on_postgres(cluster) as store:
            await store.declare([LANE])
            await accept(store, "before")
            cluster.stop()
            with pytest.raises(StoreUnavailable):
                await store.accept([a_request("meanwhile")], limits=LIMITS)
            with pytest.raises(StoreUnavailable):
                await store.transaction("before")
            cluster.start()
            await accept(store, "after")
            assert [tx.id for tx in await store.transactions(Filter())] == ["after", "before"]
            assert await store.incarnation() == 0


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


async def test_a_server_that_is_not_there_is_named_without_its_password() -> None:
    with pytest.raises(StoreUnavailable, match=r"postgresql://me@127.0.0.1:1/db") as caught:
        await PostgresStore.open("postgresql://me:secret@127.0.0.1:1/db", entropy=Counting())
    assert "secret" not in str(caught.value)


async def test_a_wrong_password_is_not_repeated(postgres: Cluster) -> None:
    wrong = f"postgresql://nobody:secret@127.0.0.1:{postgres.port}/nowhere"
    with pytest.raises(StoreUnavailable) as caught:
        await PostgresStore.open(wrong, entropy=Counting())
    assert "secret" not in str(caught.value)


# addresses


@pytest.mark.parametrize(
    ("url", "dsn", "schema", "shown"),
    [
        ("postgresql://u@h/d", "postgresql://u@h/d", "nonchalant", "postgresql://u@h/d"),
        ("postgres://u:p@h:1/d?schema=two", "postgres://u:p@h:1/d", "two", "postgres://u@h:1/d?schema=two"),
        (
            "postgresql://u:p@h/d?sslmode=require&schema=x1&sslpassword=s",
            "postgresql://u:p@h/d?sslmode=require&sslpassword=s",
            "x1",
            "postgresql://u@h/d?schema=x1",
        ),
        ("postgresql:///d?host=/run", "postgresql:///d?host=%2Frun", "nonchalant", "postgresql:///d"),
    ],
)
def test_an_address_is_read_and_shown(url: str, dsn: str, schema: str, shown: str) -> None:
    found = Installation.parse(url)
    assert (found.dsn, found.schema, str(found)) == (dsn, schema, shown)
    assert ":p@" not in repr(found)


@pytest.mark.parametrize(
    "url", ["mysql://h/d", "postgresql://h/d?schema=Two", "postgresql://h/d?schema=", "postgresql://h/d?schema=pg_x"]
)
def test_an_address_that_cannot_be_used_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"schema|postgresql://"):
        Installation.parse(url)


async def test_a_bad_address_is_a_bad_setting() -> None:
    with pytest.raises(BadSettings, match="schema is one word"):
        await PostgresStore.open("postgresql://h/d?schema=a;b", entropy=Counting())


# installations


async def test_installations_in_one_database_know_nothing_of_each_other(postgres: Cluster) -> None:
    async with on_postgres(postgres) as one, on_postgres(postgres) as two:
        for store, epochs in ((one, 1), (two, 2)):
            await store.declare([LANE])
            await accept(store, "same", idempotency_key="same")
            for _ in range(epochs):
                lease = await take(store)
            assert lease.epoch == epochs
        assert len(await one.transactions(Filter())) == 1
        assert [event.kind for event in await one.events_after(0, limit=9)] == ["tx.accepted", "lane.lease"]


@pytest.mark.parametrize("round_", range(3))
async def test_nodes_that_start_at_once_make_one_schema(postgres: Cluster, round_: int) -> None:
    url = f"{postgres.dsn}?schema=at_once_{round_}"
    stores = await asyncio.gather(*(PostgresStore.open(url, entropy=Counting()) for _ in range(6)))
    await asyncio.gather(*(store.declare([LANE, OTHER_LANE]) for store in stores))
    assert len(await stores[0].lanes()) == 2
    for store in stores:
        await store.close()


# versions


def later(script: str) -> list[Migration]:
    steps = list(postgres_schema.known())
    return [*steps, Migration(len(steps) + 1, "later", script)]


async def test_a_step_is_taken_once_however_many_take_it_and_nodes_of_the_version_before_go_on(
    store: PostgresStore, postgres: Cluster
) -> None:
    installation = Installation.parse(f"{postgres.dsn}?schema={store.schema}")
    await accept(store, "before")
    steps = later(
        "ALTER TABLE nonchalant.nodes ADD COLUMN host TEXT; ALTER TABLE nonchalant.transactions ADD COLUMN more TEXT;"
        "UPDATE nonchalant.meta SET incarnation = 7"
    )
    for _ in range(9):  # until the server has plans of its own for these
        await store.transaction("before")
    await asyncio.gather(*(postgres_schema.migrate(installation, "x", steps) for _ in range(4)))
    assert (await postgres_schema.status(installation, steps)).is_current
    # The one that was running does not mind, and one of its version does not start any more.
    await accept(store, "a")
    assert await store.transaction("before") is not None
    await store.heartbeat("n", 10)
    assert await store.incarnation() == 7
    with pytest.raises(BadSettings, match=r"schema version 2, this program needs 1; upgrade Nonchalant"):
        await second(store, postgres)


async def test_an_older_schema_is_refused_with_the_remedy(
    store: PostgresStore, postgres: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = later("SELECT 1")
    monkeypatch.setattr(postgres_schema, "known", lambda: steps)
    with pytest.raises(BadSettings, match=r"needs 2; run `nonchalant db migrate`"):
        await second(store, postgres)


async def test_a_step_that_fails_leaves_the_version_before_it_whole(store: PostgresStore, postgres: Cluster) -> None:
    installation = Installation.parse(f"{postgres.dsn}?schema={store.schema}")
    steps = later("CREATE TABLE nonchalant.more (x INT); INSERT INTO nonchalant.nowhere VALUES (1)")
    with pytest.raises(StoreUnavailable, match="nowhere"):
        await postgres_schema.migrate(installation, "x", steps)
    assert (await postgres_schema.status(installation)).is_current
    assert await sql(store, "SELECT to_regclass('more') AS there") == [(None,)]


# leases and locks


async def test_a_lease_is_judged_by_the_server_s_clock(store: PostgresStore) -> None:
    epoch = await store.acquire(LANE, "a", 0.15)
    assert epoch == 1
    assert await store.acquire(LANE, "b", 10) is None
    await sql(store, "SELECT pg_sleep(0.2)")
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
            await store._run(connection, _only_fence(leases[3]))
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
        await store._run(connection, _only_fence(lease))
        # It does not go on; whoever wants the lane asks until he has it.
        other = await second(store, postgres, stall_seconds=0.3)
        async with asyncio.timeout(10):
            while await other.acquire(LANE, "other", 10) is None:  # noqa: ASYNC110 - as a sweep does
                await asyncio.sleep(0.01)
        with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
            await connection.execute("COMMIT")
        await store._work.pool.release(connection)
        await other.close()


async def test_leases_are_renewed_however_busy_a_node_is(store: PostgresStore) -> None:
    lease = await take(store)
    taken = [await store._work.pool.acquire() for _ in range(FOR_WORK)]
    async with asyncio.timeout(5):
        assert await store.heartbeat("node-a", 10) == 1
        assert await store.renew([lease], 10) == [LANE]
        assert await store.acquire(OTHER_LANE, "node-a", 10) == 1
        await store.release([lease])
    for connection in taken:
        await store._work.pool.release(connection)


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
        await store._run(connection, _removing("old"))
        again = asyncio.create_task(other.accept([a_request("new", idempotency_key="k")], limits=LIMITS))
        await asyncio.sleep(0.1)
        assert not again.done()
    [answer] = await again
    assert type(answer).__name__ == "Removed"
    assert await store.transactions(Filter()) == []
    await other.close()


def _removing(tx_id: str) -> Procedure[None]:
    from nonchalant.store.talk import AskForEach, Keys

    yield Keys(alone=True)
    yield AskForEach("keep_key", [{"id": tx_id}], {"at": 0})
    yield AskForEach("remove_history", [{"id": tx_id}])
    yield AskForEach("remove_transaction", [{"id": tx_id}])


# events


async def test_a_position_is_seen_only_after_all_lower_ones(store: PostgresStore, postgres: Cluster) -> None:
    """One that was told first commits last; a reader that saw the other must not miss it."""
    lease, late = await take(store), await take(store, lane=OTHER_LANE)
    await store.last_position()
    seen: list[int] = []
    position = await store.last_position()
    async with store._work.transaction() as connection:
        await store._run(connection, _telling(late, told(1)))
        await store.commit(Change(events=(told(2),)), lease)
        for event in await store.events_after(position, limit=9):
            seen.append(int(str(event.data["number"])))
            position = event.position
        assert seen == [2]
    seen += [int(str(event.data["number"])) for event in await store.events_after(position, limit=9)]
    assert seen == [2, 1]


def _telling(lease: Lease, *events: Event) -> Procedure[None]:
    from nonchalant.store.talk import Tell

    yield Fence(lease)
    yield Tell(events)


async def test_readers_at_once_see_every_event_once_and_in_one_order_while_many_write(
    store: PostgresStore, postgres: Cluster
) -> None:
    lanes = [LaneKey(7, f"0x{number:040x}") for number in range(6)]
    await store.declare(lanes)
    leases = [await take(store, lane=lane) for lane in lanes]
    others = [await second(store, postgres) for _ in range(2)]
    start, writing = await store.last_position(), True

    async def write(node: PostgresStore, lease: Lease) -> None:
        for number in range(25):
            at = Event(kind="lane.filled", lane=lease.lane, at=number, data={"number": number})
            await node.commit(Change(events=(at,)), lease)

    async def read(node: PostgresStore) -> list[tuple[str, int]]:
        found: list[tuple[str, int]] = []
        position = start
        while True:
            last_look = not writing
            for event in await node.events_after(position, limit=7):
                assert event.position > position
                position = event.position
                found.append((event.lane.address, event.at))
            if last_look and position == await node.last_position():
                return found

    readers = [asyncio.create_task(read(node)) for node in (store, *others)]
    nodes = (store, *others)
    await asyncio.gather(*(write(nodes[n % 3], lease) for n, lease in enumerate(leases)))
    writing = False
    first, *rest = await asyncio.gather(*readers)
    assert all(found == first for found in rest)
    assert sorted(first) == sorted((lane.address, number) for lane in lanes for number in range(25))
    for lane in lanes:
        assert [number for address, number in first if address == lane.address] == list(range(25))
    for other in others:
        await other.close()


# wake-ups


async def test_what_one_node_accepts_another_hears_of_and_nobody_hears_himself(
    store: PostgresStore, postgres: Cluster
) -> None:
    other = await second(store, postgres)
    heard: asyncio.Queue[list[LaneKey]] = asyncio.Queue()
    own: list[LaneKey] = []
    assert store.wakes is not None
    assert other.wakes is not None
    other.wakes.hear = lambda lanes: heard.put_nowait(list(lanes))
    store.wakes.hear = own.extend

    async def hears(lane: LaneKey) -> None:
        async with asyncio.timeout(10):
            while lane not in await heard.get():
                pass

    while heard.empty():  # until it listens
        await accept(store, f"first{own}", lane=OTHER_LANE)
        await asyncio.sleep(0.01)
        own.append(OTHER_LANE)
    own.clear()
    [tx] = await accept(store, "a")
    await hears(LANE)
    moved, events = step(tx, Cancelled(), 0)
    await store.alter_queued(moved, events)
    await hears(LANE)
    await store.wish(Wish("w", OTHER_LANE, Sync()), limit=9)
    await hears(OTHER_LANE)
    await store.control(LANE, Mode.PAUSED, "")
    await hears(LANE)
    lease = await take(store)
    await store.release([lease])
    await hears(LANE)
    assert own == []
    await other.close()


async def test_ears_that_were_cut_off_grow_again(store: PostgresStore, postgres: Cluster) -> None:
    other = await second(store, postgres)
    heard: asyncio.Queue[list[LaneKey]] = asyncio.Queue()
    assert other.wakes is not None
    other.wakes.hear = lambda lanes: heard.put_nowait(list(lanes))
    await sql(store, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'")
    async with asyncio.timeout(20):
        number = 0
        while True:
            await accept(store, f"tx{number}")
            number += 1
            await asyncio.sleep(0.05)
            if not heard.empty() and LANE in heard.get_nowait():
                break
    await other.close()


# the schema repeats the promises


async def test_the_schema_refuses_what_must_not_be(store: PostgresStore) -> None:
    lease = await take(store)
    [tx] = await accept(store, "tx")
    await assign(store, lease, (tx, 0))
    for statement, words in (
        ("DELETE FROM leases", "never deleted"),
        ("UPDATE leases SET epoch = 0", "never decreases"),
        ("UPDATE attempts SET raw = ''", "never changes"),
        ("DELETE FROM attempts", "until its slot is final"),
        ("DELETE FROM transactions", "nothing that is accepted is lost"),
        ("INSERT INTO lanes (chain_id, address) VALUES (7, '0xAB')", "address"),
        ("UPDATE lanes SET settled_below = 1, next_nonce = 1", "not final yet"),
        ("UPDATE transactions SET state = 'flying'", "state"),
        ("UPDATE transactions SET held = TRUE", "transactions_check"),
        ("UPDATE slots SET kind = 'nothing'", "slots_"),
    ):
        with pytest.raises(REFUSED, match=words):
            await sql(store, statement)


async def test_a_repeated_request_is_answered_by_another_node(store: PostgresStore, postgres: Cluster) -> None:
    other = await second(store, postgres)
    [tx] = await accept(store, "a", idempotency_key="k")
    assert await other.accept([a_request("b", idempotency_key="k")], limits=LIMITS) == [Duplicate(tx)]
    await other.close()


# plans: what is done often must not grow with what is done


GROWING = ("transactions", "slots", "attempts", "events", "removed", "strangers", "wishes")


@pytest.mark.parametrize(
    ("query", "columns"),
    [
        ("queued", {**LANE._asdict(), "limit": 9, "skip": []}),
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
    ],
)
async def test_no_query_that_is_asked_often_reads_a_whole_table(
    store: PostgresStore, query: str, columns: dict[str, Any]
) -> None:
    statement = store._sql[query]
    async with store._work.pool.acquire() as connection, connection.transaction():
        await connection.execute("SET LOCAL enable_seqscan = off")
        plan = await connection.fetch(f"EXPLAIN {statement.sql}", *statement.values(columns))
    scans = [row[0] for row in plan if "Seq Scan on" in row[0] and any(f" {table}" in row[0] for table in GROWING)]
    assert scans == []


async def test_a_query_that_is_not_there_is_a_bug_and_not_an_outage(store: PostgresStore) -> None:
    def procedure() -> Procedure[None]:
        yield Ask("nothing of the kind")

    with pytest.raises(KeyError):
        await store._write(procedure())


# the schema of those who installed it


CATALOGUE = """
SELECT 'column', c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull::TEXT,
    pg_get_expr(d.adbin, d.adrelid)
FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid LEFT JOIN pg_attrdef d ON (d.adrelid, d.adnum) = (c.oid, a.attnum)
WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped
UNION ALL SELECT 'index', '', indexname, indexdef, '', '' FROM pg_indexes WHERE schemaname = current_schema()
UNION ALL SELECT 'check', conrelid::regclass::TEXT, conname, pg_get_constraintdef(oid), '', ''
FROM pg_constraint WHERE connamespace = current_schema()::regnamespace
UNION ALL SELECT 'trigger', tgrelid::regclass::TEXT, tgname, pg_get_triggerdef(oid), '', ''
FROM pg_trigger WHERE NOT tgisinternal AND tgrelid IN (
    SELECT oid FROM pg_class WHERE relnamespace = current_schema()::regnamespace
)
UNION ALL SELECT 'function', '', proname, pg_get_functiondef(oid), '', ''
FROM pg_proc WHERE pronamespace = current_schema()::regnamespace
ORDER BY 1, 2, 3, 4
"""


async def test_an_installation_of_the_first_version_is_led_to_the_schema_that_a_new_one_has(
    store: PostgresStore, postgres: Cluster
) -> None:
    """Whoever changes the schema writes a migration; until the first release, the copy may be renewed instead."""
    frozen = (ROOT / "tests" / "data" / "postgres-schema-1.sql").read_text()
    installation = Installation.parse(f"{postgres.dsn}?schema=frozen")
    async with postgres_schema.connected(installation) as connection:
        await connection.execute("DROP SCHEMA IF EXISTS frozen CASCADE")
        await postgres_schema.advance(connection, installation, [Migration(1, "schema", frozen)], "x")
    await postgres_schema.migrate(installation, "x")
    old = await PostgresStore.open(f"{postgres.dsn}?schema=frozen", entropy=Counting())
    found, new = [
        [tuple(str(value).replace(one.schema, "S") for value in row) for row in await sql(one, CATALOGUE)]
        for one in (old, store)
    ]
    assert found == new
    await old.close()
