"""Lanes at rest cost nothing: what a node asks of its store at rest does not depend on how many there are."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from nonchalant.ports import LaneWork, Store
from nonchalant.store.contract import DECLARED_AT_ONCE
from nonchalant.store.postgres import PostgresStore
from nonchalant.store.sqlite import SqliteStore
from nonchalant.words import LaneKey
from tests.examples import a_request
from tests.postgres import Cluster
from tests.store.acts import Counting, ManualClock, assign, on_postgres, take

MANY = 2_000


def lane(chain_id: int, number: int) -> LaneKey:
    return LaneKey(chain_id, f"0x{number:040x}")


async def queue(store: Store, *lanes: LaneKey, each: int = 1) -> None:
    requests = [a_request(f"{number}.{key}", lane=key) for key in lanes for number in range(each)]
    await store.accept(requests, limits=dict.fromkeys(lanes, 1_000))


@pytest.fixture
async def on_server(postgres: Cluster) -> AsyncIterator[PostgresStore]:
    async with on_postgres(postgres) as store:
        yield store


async def test_work_is_found_in_every_lane_of_every_chain_and_in_their_order(store: Store) -> None:
    lanes = [lane(chain_id, number) for chain_id in (1, 9, 10, 2**40) for number in range(40)]
    await store.declare(lanes)
    busy = [lane(1, 0), lane(1, 1), lane(1, 39), lane(9, 7), lane(2**40, 0), lane(2**40, 39)]
    await queue(store, *reversed(busy), each=3)
    assert list(await store.lanes_with_work()) == [LaneWork(key, None) for key in busy]
    # One has a slot, and nothing queued any more; another is somebody's.
    lease = await take(store, "a", lane(9, 7))
    queued = await store.queued(lane(9, 7), limit=9)
    await assign(store, lease, *((tx, nonce) for nonce, tx in enumerate(queued)))
    await take(store, "b", lane(1, 1))
    owners = {lane(9, 7): "a", lane(1, 1): "b"}
    assert list(await store.lanes_with_work()) == [LaneWork(key, owners.get(key)) for key in busy]


async def test_thousands_of_lanes_are_declared_in_short_transactions(on_server: PostgresStore) -> None:
    """A node that is slow inside of one is cut off: with all lanes in one it could not start on a busy machine."""
    asked: list[str] = []
    async with on_server._work.pool.lent() as connection:
        connection.add_query_logger(lambda query: asked.append(query.query))
    await on_server.declare([lane(1, number) for number in range(MANY)])
    await asyncio.sleep(0.01)  # the driver tells of a query after its answer
    assert sum(query == "COMMIT" for query in asked) == MANY // DECLARED_AT_ONCE
    assert len(await on_server.lanes()) == MANY


# what it costs


async def test_sqlite_looks_for_work_in_as_many_steps_however_many_lanes_rest(tmp_path: Path) -> None:
    """The steps of SQLite's own machine, counted."""
    store = SqliteStore.open(tmp_path / "nonchalant.db", clock=ManualClock(), entropy=Counting())
    counts = []
    for lanes, each in ((3, 1), (MANY, 1), (MANY, 200)):
        await store.declare([lane(1, number) for number in range(lanes)])
        await queue(store, lane(1, 0), lane(1, 2), each=each)
        # A restored store has every lane to compare, once it has work.
        store._writer.execute("UPDATE meta SET incarnation = incarnation + 1")
        await store.lanes_with_work()  # reads the schema, the first time
        steps = 0

        def count() -> int:
            nonlocal steps
            steps += 1
            return 0

        store._reader.set_progress_handler(count, 1)
        assert len(await store.lanes_with_work(marked=True)) == 2
        store._reader.set_progress_handler(None, 1)
        counts.append(steps)
    await store.close()
    assert len(set(counts)) == 1


async def test_postgres_looks_for_work_in_about_as_many_pages_however_many_lanes_rest(on_server: PostgresStore) -> None:
    looks = on_server._sql["lanes_with_work"]
    pages = []
    for lanes in (3, MANY):
        await on_server.declare([lane(1, number) for number in range(lanes)])
        await queue(on_server, lane(1, 0), lane(1, 2), each=50)
        async with on_server._work.pool.lent() as connection:
            schema = f'"{on_server.schema}"'
            await connection.execute(f"UPDATE {schema}.meta SET incarnation = incarnation + 1")
            await connection.execute(f"ANALYZE {schema}.lanes, {schema}.leases, {schema}.transactions")
            # Once more than it takes to read the catalogue: that is not counted with the pages.
            for _ in range(2):
                told = await connection.fetchval(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {looks.sql}", True)
        plan: dict[str, Any] = json.loads(told)[0]["Plan"]
        assert plan["Actual Rows"] == 2
        pages.append(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])
    # An index that has grown by a level takes a page more each time; the tables have a hundred.
    assert pages[1] <= 2 * pages[0]


@pytest.mark.parametrize(
    ("act", "queries"),
    [
        (lambda store: store.lanes_with_work(), 1),
        (lambda store: store.overdue(limit=9), 1),
        (lambda store: store.events_after(0, limit=9), 2),
        (lambda store: store.heartbeat("node", 10), 1),
    ],
    ids=["sweep", "overdue", "events", "beat"],
)
async def test_what_a_node_asks_at_rest_takes_few_queries(
    on_server: PostgresStore, act: Callable[[PostgresStore], Awaitable[object]], queries: int
) -> None:
    """Each of these once a second, or less often: together they are what a node at rest asks."""
    asked: list[str] = []

    def note(query: asyncpg.connection.LoggedQuery) -> None:
        asked.append(query.query)

    await act(on_server)  # whatever is only done the first time
    for connections in (on_server._work, on_server._leases):
        async with connections.pool.lent() as connection:
            connection.add_query_logger(note)
    await act(on_server)
    await asyncio.sleep(0.01)  # as above
    assert len(asked) == queries, asked
