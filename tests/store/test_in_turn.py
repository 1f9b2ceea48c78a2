"""What must wait until another transaction has ended, on a real server: looked at in between, it would pay twice."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from nonchalant.errors import MayHaveRun
from nonchalant.lifecycle import Cancelled, step
from nonchalant.model import Change, Stranger
from nonchalant.ports import Removed
from nonchalant.store import owning, retention
from nonchalant.store.postgres import PostgresStore
from nonchalant.store.talk import Procedure
from nonchalant.words import State
from tests.examples import LANE, a_request
from tests.postgres import Cluster
from tests.store.acts import LIMITS, accept, begun, on_postgres, take


@pytest.fixture
async def store(postgres: Cluster) -> AsyncIterator[PostgresStore]:
    """One that lets others wait for as long as a busy machine takes."""
    async with on_postgres(postgres, stall_seconds=60) as store:
        await store.declare([LANE])
        yield store


@asynccontextmanager
async def under_way(store: PostgresStore, procedure: Procedure[Any]) -> AsyncIterator[None]:
    """It has done everything, and commits at the end of the block."""
    async with store._work.transaction() as connection:
        await store._run(connection, procedure, [])
        yield


async def test_a_key_that_is_on_its_way_to_what_is_removed_is_known_all_the_same(store: PostgresStore) -> None:
    """It goes from one table to another: in between it is in neither, and the request would run again."""
    [tx] = await accept(store, "old", idempotency_key="invoice", body_hash="h")
    await store.alter_queued(*step(tx, Cancelled(), 5))
    again = a_request("new", idempotency_key="invoice", body_hash="h")
    async with under_way(store, retention.forget(0, 100, 0)):
        asked = await begun(store, store.accept([again], limits=LIMITS))
    assert await asked == [Removed("old")]


async def test_nobody_calls_off_what_an_owner_is_about_to_find_executed(store: PostgresStore) -> None:
    [tx] = await accept(store, "a")
    lease = await take(store)
    found = Change(strangers=(Stranger("0xf1", 3, tx.payload.deed),))
    async with under_way(store, owning.commit(found, lease)):
        asked = await begun(store, store.alter_queued(*step(tx, Cancelled(), 5)))
    with pytest.raises(MayHaveRun):
        await asked
    kept = await store.transaction("a")
    assert kept is not None
    assert kept.state is State.QUEUED
