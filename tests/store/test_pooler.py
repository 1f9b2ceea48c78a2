"""A real PgBouncer in transaction mode before the server: every transaction may be on another session."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from nonchalant.errors import LeaseLost
from nonchalant.installation import Installation
from nonchalant.model import Lease
from nonchalant.ports import Filter
from nonchalant.store import postgres_schema
from nonchalant.store.postgres import PostgresStore
from nonchalant.words import LaneKey
from tests.examples import LANE
from tests.postgres import Cluster, pooler
from tests.store.acts import accept, assign, filler, open_patiently, take

SCHEMAS = iter(range(1_000))


@pytest.fixture(scope="module")
def pooled(postgres: Cluster) -> Iterator[str]:
    with pooler(postgres) as dsn:
        yield dsn


@pytest.fixture
async def nodes(pooled: str, postgres: Cluster) -> AsyncIterator[list[PostgresStore]]:
    """Two nodes through the pooler, which hear of each other past it."""
    schema = f"pooled_{next(SCHEMAS)}"
    url, direct = f"{pooled}?schema={schema}", postgres.dsn
    nodes = [await open_patiently(url, listen_url=direct) for _ in range(2)]
    yield nodes
    for node in nodes:
        await node.close()


async def test_a_pooler_is_noticed(pooled: str, postgres: Cluster) -> None:
    assert await postgres_schema.stands_behind_a_pooler(Installation.parse(pooled))
    assert not await postgres_schema.stands_behind_a_pooler(Installation.parse(postgres.dsn))


async def test_nodes_work_through_it_at_once(nodes: list[PostgresStore]) -> None:
    lanes = [LaneKey(7, f"0x{number:040x}") for number in range(12)]
    await nodes[0].declare(lanes)

    async def work(node: PostgresStore, lane: LaneKey) -> None:
        lease = await take(node, lane.address, lane)
        for nonce in range(5):
            [tx] = await accept(node, f"{lane.address}-{nonce}", lane=lane, limits={lane: 100})
            await assign(node, lease, (tx, nonce))
            assert await node.renew([lease], 10) == [lane]
        assert len((await node.load(lease)).slots) == 5

    await asyncio.gather(*(work(nodes[n % 2], lane) for n, lane in enumerate(lanes)))
    assert len(await nodes[0].transactions(Filter(limit=1000))) == 60
    assert len(await nodes[1].lanes()) == 12
    events = await nodes[1].events_after(0, limit=1000)
    assert len(events) == len({event.position for event in events})
    assert sum(event.kind == "tx.accepted" for event in events) == 60


async def test_a_fence_holds_through_it(nodes: list[PostgresStore]) -> None:
    await nodes[0].declare([LANE])
    epoch = await nodes[0].acquire(LANE, "a", 0.05)
    assert epoch == 1
    stale = Lease(LANE, "a", epoch, 0.0)
    async with asyncio.timeout(60):
        while await nodes[1].acquire(LANE, "b", 10) is None:  # noqa: ASYNC110 - as a sweep does
            await asyncio.sleep(0.01)
    with pytest.raises(LeaseLost):
        await nodes[0].commit(filler(stale, 0), stale)


async def test_nodes_wake_each_other_past_it(nodes: list[PostgresStore]) -> None:
    await nodes[0].declare([LANE])
    heard: asyncio.Queue[LaneKey] = asyncio.Queue()
    assert nodes[1].wakes is not None

    def hear(lanes: object) -> None:
        for lane in lanes:  # type: ignore[attr-defined]
            heard.put_nowait(lane)

    nodes[1].wakes.hear = hear
    async with asyncio.timeout(60):
        number = 0
        while heard.empty():
            await accept(nodes[0], f"tx{number}")
            number += 1
            await asyncio.sleep(0.02)
    assert heard.get_nowait() == LANE


async def test_without_a_way_past_it_there_are_no_wake_ups(pooled: str) -> None:
    store = await open_patiently(f"{pooled}?schema=pooled_deaf")
    assert store.wakes is None
    await store.declare([LANE])
    await accept(store, "a")
    await store.close()
