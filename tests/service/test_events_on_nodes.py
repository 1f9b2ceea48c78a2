"""A reader that goes from node to node while both write: nothing is skipped, and nothing comes out of order."""

import asyncio
import itertools
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from tests.postgres import Cluster
from tests.service.conftest import OTHER, SENDER, SETTINGS, Running, running
from tests.service.listening import listening

SCHEMA = "events_on_nodes"


@pytest.fixture
async def nodes(tmp_path: Path, postgres: Cluster) -> AsyncIterator[list[Running]]:
    settings = SETTINGS.replace("sqlite:nonchalant.db", f"{postgres.dsn}?schema={SCHEMA}")
    async with AsyncExitStack() as life:
        yield [await life.enter_async_context(running(tmp_path, settings)) for _ in range(2)]
    connection = await asyncpg.connect(postgres.dsn)
    await connection.execute(f"SET client_min_messages = error; DROP SCHEMA {SCHEMA} CASCADE")
    await connection.close()


async def write(node: Running, count: int) -> None:
    """Each is accepted, held and released, so that its events have an order of their own."""
    body = {"chain_id": 31337, "from": SENDER, "to": OTHER, "value": 1}
    for _ in range(count):
        _, tx, _ = await node.post(body)
        for verb in ("hold", "release"):
            await node.call("POST", f"/v1/transactions/{tx['id']}/{verb}")


async def test_a_reader_that_goes_from_node_to_node_misses_nothing(nodes: list[Running]) -> None:
    writers, each = 6, 15
    total = 3 * writers * each
    chance, seen, last_id = random.Random(5), list[dict[str, Any]](), "0"
    writing = asyncio.gather(*(write(nodes[number % 2], each) for number in range(writers)))
    for node in itertools.cycle(nodes):
        async with listening(node.session, node.url, last_id, kind="tx.accepted,tx.held,tx.released") as listener:
            enough = min(chance.randint(1, 25), total - len(seen))
            seen += await listener.until(lambda found: len(found) >= enough)  # noqa: B023
            last_id = listener.last_id
        if len(seen) >= total:
            break
    await writing
    positions = [event["position"] for event in seen]
    assert positions == sorted(set(positions))
    store = nodes[0].node.store
    everything = [event for event in await store.events_after(0, limit=10_000) if event.kind.startswith("tx.")]
    kept = [event.position for event in everything if event.kind in ("tx.accepted", "tx.held", "tx.released")]
    assert positions == kept
    by_transaction: dict[str, list[str]] = {}
    for event in seen:
        by_transaction.setdefault(event["tx"], []).append(event["kind"])
    assert len(by_transaction) == writers * each
    assert set(map(tuple, by_transaction.values())) == {("tx.accepted", "tx.held", "tx.released")}
