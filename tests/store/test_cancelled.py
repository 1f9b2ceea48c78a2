"""Whoever is cancelled, also twice and at any moment, leaves no connection behind on which another would write in vain."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import asyncpg
import pytest

from nonchalant.store.postgres import PostgresStore
from tests.postgres import Cluster
from tests.store.acts import accept, on_a_server, sql

store = pytest.fixture(on_a_server)


async def several_steps(store: PostgresStore) -> None:
    async with store._work.transaction(locks_leases=False) as connection:
        await connection.execute(f'UPDATE "{store.schema}".lanes SET next_nonce = next_nonce')
        await connection.execute("SELECT pg_sleep(0.002)")


@pytest.mark.parametrize("times", [1, 2, 5])
async def test_nothing_that_is_lent_again_is_within_a_transaction(store: PostgresStore, times: int) -> None:
    for attempt in range(60):
        task = asyncio.create_task(several_steps(store))
        await asyncio.sleep(0.0002 * (attempt % 30))
        for _ in range(times):
            task.cancel()
            await asyncio.sleep(0)
        with suppress(asyncio.CancelledError, Exception):
            await task
        assert not [one for _, one in store._work.pool._free if not one.is_closed() and one.is_in_transaction()]
        [tx] = await accept(store, f"{times} {attempt}")
        assert await sql(store, "SELECT 1 FROM transactions WHERE id = ?", tx.id)


async def test_a_question_that_nobody_waits_for_is_called_off_and_its_connection_lent_again(
    store: PostgresStore, postgres: Cluster
) -> None:
    watcher = await asyncpg.connect(postgres.dsn)
    asleep = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep(30)%' AND state = 'active'"
    for _ in range(30):
        asking = asyncio.create_task(store._work.ask_alone("SELECT pg_sleep(30)", []))
        while not asking.done() and not await watcher.fetchval(asleep):  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.001)
        asking.cancel()
        await asyncio.wait([asking])
    async with asyncio.timeout(20):
        while await watcher.fetchval(asleep) or store._work.pool._recovering:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.01)
    assert len(store._work.pool._all) <= 10
    await watcher.close()
