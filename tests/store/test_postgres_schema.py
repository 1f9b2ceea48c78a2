"""An installation on PostgreSQL: its address, its schema, what that refuses, and the versions it goes through."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from nonchalant.errors import BadSettings, StoreUnavailable
from nonchalant.installation import Installation
from nonchalant.ports import Filter
from nonchalant.store import postgres_schema
from nonchalant.store.connections import BEGINNINGS
from nonchalant.store.migrations import Migration
from nonchalant.store.postgres import PostgresStore
from tests.conftest import ROOT
from tests.e2e.chaos.links import Link
from tests.examples import LANE
from tests.postgres import Cluster
from tests.store.acts import (
    OTHER_LANE,
    REFUSED,
    Counting,
    accept,
    assign,
    on_a_server,
    on_postgres,
    open_patiently,
    second,
    sql,
    take,
)

store = pytest.fixture(on_a_server)

LATEST = postgres_schema.known()[-1].version

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
    stores = await asyncio.gather(*(open_patiently(url) for _ in range(6)))
    await asyncio.gather(*(store.declare([LANE, OTHER_LANE]) for store in stores))
    assert len(await stores[0].lanes()) == 2
    for store in stores:
        await store.close()


class Cutting(Link):
    """It cuts the first so many connections, and leads on from there."""

    def __init__(self, target: int, connections: int) -> None:
        super().__init__(target)
        self.cut = 0
        self._connections = connections

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.cut < self._connections:
            self.cut += 1
        else:
            await super()._carry(reader, writer)


async def test_a_node_that_is_cut_off_before_it_has_seen_the_schema_begins_anew(postgres: Cluster) -> None:
    async with Cutting(postgres.port, BEGINNINGS - 1).standing() as link:
        url = f"postgresql://postgres@127.0.0.1:{link.port}/postgres?schema=cut_off"
        store = await open_patiently(url, listen_url=postgres.dsn)
        await store.declare([LANE])
        await store.close()
        assert link.cut == BEGINNINGS - 1


async def test_a_server_that_cuts_everybody_off_is_given_up_by_its_name(postgres: Cluster) -> None:
    async with Cutting(postgres.port, 100).standing() as link:
        with pytest.raises(
            StoreUnavailable, match=f"cannot use postgresql://postgres@127.0.0.1:{link.port}/"
        ) as caught:
            await open_patiently(f"postgresql://postgres:secret@127.0.0.1:{link.port}/postgres")
        assert link.cut == BEGINNINGS
    assert "secret" not in str(caught.value)


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
    with pytest.raises(
        BadSettings, match=rf"schema version {LATEST + 1}, this program needs {LATEST}; upgrade Nonchalant"
    ):
        await second(store, postgres)


async def test_what_a_node_had_prepared_before_a_step_fails_once_at_most_and_can_be_tried_again(
    store: PostgresStore, postgres: Cluster
) -> None:
    """Rows with a column more are no answer to what was prepared without it."""
    installation = Installation.parse(f"{postgres.dsn}?schema={store.schema}")
    lease = await take(store)
    [tx] = await accept(store, "tx")
    await assign(store, lease, (tx, 0))
    acts: list[Callable[[], Awaitable[object]]] = [lambda: accept(store, "tx"), lambda: store.load(lease)]
    for act in acts:
        await act()
    tables = ("lanes", "slots", "transactions", "attempts", "told_events", "wishes")
    await postgres_schema.migrate(
        installation, "x", later(";".join(f"ALTER TABLE nonchalant.{table} ADD COLUMN more TEXT" for table in tables))
    )
    failed = 0
    for act in acts * 2:
        try:
            await act()
        except StoreUnavailable:
            failed += 1
    assert failed <= 1


async def test_an_older_schema_is_refused_with_the_remedy(
    store: PostgresStore, postgres: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = later("SELECT 1")
    monkeypatch.setattr(postgres_schema, "known", lambda: steps)
    with pytest.raises(BadSettings, match=rf"needs {LATEST + 1}; run `nonchalant db migrate`"):
        await second(store, postgres)


async def test_a_step_that_fails_leaves_the_version_before_it_whole(store: PostgresStore, postgres: Cluster) -> None:
    installation = Installation.parse(f"{postgres.dsn}?schema={store.schema}")
    steps = later("CREATE TABLE nonchalant.more (x INT); INSERT INTO nonchalant.nowhere VALUES (1)")
    with pytest.raises(StoreUnavailable, match="nowhere"):
        await postgres_schema.migrate(installation, "x", steps)
    assert (await postgres_schema.status(installation)).is_current
    assert await sql(store, "SELECT to_regclass('more') AS there") == [(None,)]


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


async def first_version(postgres: Cluster, schema: str) -> Installation:
    """An installation as it was made at first, whatever the code says now."""
    frozen = (ROOT / "tests" / "data" / "postgres-schema-1.sql").read_text()
    installation = Installation.parse(f"{postgres.dsn}?schema={schema}")
    async with postgres_schema.connected(installation) as connection:
        await connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
        await postgres_schema.advance(connection, installation, [Migration(1, "schema", frozen)], "x")
    return installation


async def test_an_installation_of_the_first_version_is_led_to_the_schema_that_a_new_one_has(
    store: PostgresStore, postgres: Cluster
) -> None:
    """Whoever changes the schema writes a migration; until the first release, the copy may be renewed instead."""
    installation = await first_version(postgres, "frozen")
    await postgres_schema.migrate(installation, "x")
    old = await open_patiently(f"{postgres.dsn}?schema=frozen")
    found, new = [
        [tuple(str(value).replace(one.schema, "S") for value in row) for row in await sql(one, CATALOGUE)]
        for one in (old, store)
    ]
    assert found == new
    await old.close()


async def test_what_was_told_before_the_step_keeps_its_position_and_what_had_none_gets_the_next(
    postgres: Cluster,
) -> None:
    installation = await first_version(postgres, "told")
    async with postgres_schema.connected(installation) as connection:
        await connection.execute(
            "INSERT INTO told.events (position, kind, chain_id, address, at, data)"
            " SELECT position, 'lane.filled', 1, '0x00', at, '{}'"
            " FROM (VALUES (3, 1), (2, 2), (7, 3), (NULL, 4)) AS old (position, at);"
            " UPDATE told.numbering SET last = 7"
        )
    await postgres_schema.migrate(installation, "x")
    store = await open_patiently(f"{postgres.dsn}?schema=told")
    try:
        await store.declare([LANE])
        await accept(store, "new")
        told = [(event.position, event.at) for event in await store.events_after(0, limit=9)]
        assert told[:4] == [(2, 2), (3, 1), (7, 3), (8, 4)]
        assert [event.position for event in await store.history("new")] == [9]
    finally:
        await store.close()
