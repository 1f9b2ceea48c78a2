"""Connections are lent to one at a time, to no more than there may be, and none is lost on the way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest

from nonchalant.store import pool as pools
from nonchalant.store.pool import Pool
from tests.postgres import Cluster


@pytest.fixture
async def pool(postgres: Cluster) -> AsyncIterator[Pool]:
    made = Pool(lambda: asyncpg.connect(postgres.dsn), 2, patience=30.0)
    yield made
    made.terminate()


async def waits(pool: Pool) -> asyncio.Task[asyncpg.Connection]:
    task = asyncio.create_task(pool.acquire())
    await asyncio.sleep(0.01)
    assert not task.done()
    return task


async def test_the_one_that_was_used_last_goes_first_and_no_more_are_made_than_needed(pool: Pool) -> None:
    first = await pool.acquire()
    pool.release(first)
    assert await pool.acquire() is first
    second = await pool.acquire()
    pool.release(first)
    pool.release(second)
    assert await pool.acquire() is second


async def test_who_waits_gets_what_is_given_back_in_turn(pool: Pool) -> None:
    first, second = await pool.acquire(), await pool.acquire()
    early, late = await waits(pool), await waits(pool)
    pool.release(second)
    assert await early is second
    assert not late.done()
    pool.release(first)
    assert await late is first


async def test_one_that_is_gone_makes_room_for_another(pool: Pool) -> None:
    first, second = await pool.acquire(), await pool.acquire()
    waiting = await waits(pool)
    first.terminate()
    pool.release(first)
    made = await waiting
    assert made not in (first, second)
    assert await made.fetchval("SELECT 1") == 1
    second.terminate()
    pool.release(second)
    pool.release(made)
    made.terminate()  # while nobody has it
    assert await (await pool.acquire()).fetchval("SELECT 2") == 2


@pytest.mark.parametrize("dead", [False, True])
async def test_what_is_given_to_somebody_who_gives_up_is_the_next_ones(pool: Pool, dead: bool) -> None:
    first = await pool.acquire()
    await pool.acquire()
    gives_up, stays = await waits(pool), await waits(pool)
    if dead:
        first.terminate()
    pool.release(first)
    gives_up.cancel()  # before it could take it
    with pytest.raises(asyncio.CancelledError):
        await gives_up
    async with asyncio.timeout(30):
        assert await (await stays).fetchval("SELECT 3") == 3


async def test_who_waits_too_long_is_told_so_and_nothing_is_lost(postgres: Cluster) -> None:
    pool = Pool(lambda: asyncpg.connect(postgres.dsn), 1, patience=0.05)
    only = await pool.acquire()
    with pytest.raises(TimeoutError):
        await pool.acquire()
    pool.release(only)
    assert await pool.acquire() is only
    pool.terminate()


async def test_one_that_cannot_be_made_keeps_no_room() -> None:
    async def never() -> asyncpg.Connection:
        raise OSError("no server")

    pool = Pool(never, 1, patience=1.0)
    for _ in range(3):
        with pytest.raises(OSError, match="no server"):
            await pool.acquire()


async def test_what_nobody_used_for_long_is_closed(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = await pool.acquire(), await pool.acquire()
    pool.release(first)
    monkeypatch.setattr(pools, "IDLE_SECONDS", 0.0)
    await asyncio.sleep(0.001)
    pool.release(second)
    assert first.is_closed()
    assert not second.is_closed()
    await asyncio.sleep(0.001)
    third = await pool.acquire()  # nobody gave anything back for so long
    assert third is not second
    assert second.is_closed()


async def test_when_it_ends_all_are_cut_off_and_nobody_waits_for_ever(pool: Pool) -> None:
    lent, free = await pool.acquire(), await pool.acquire()
    waiting = await waits(pool)
    pool.release(free)
    other = await waiting
    waiting = await waits(pool)
    pool.terminate()
    with pytest.raises(asyncpg.InterfaceError):
        await waiting
    assert lent.is_closed()
    assert other.is_closed()
    pool.release(lent)
    with pytest.raises(asyncpg.InterfaceError):
        await pool.acquire()
