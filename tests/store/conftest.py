"""Each store on its real database, with a clock that a test moves. One suite for all: add yours to `params`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from nonchalant.ports import Store
from nonchalant.store.sqlite import SqliteStore
from tests.examples import LANE
from tests.postgres import Cluster
from tests.store.acts import OTHER_LANE, Counting, ManualClock, on_postgres


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=["sqlite", "postgres"])
async def store(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> AsyncIterator[Store]:
    """A new store with two lanes."""
    if request.param == "postgres":
        cluster: Cluster = request.getfixturevalue("postgres")
        async with on_postgres(cluster, clock) as store:
            await store.declare([LANE, OTHER_LANE])
            yield store
        return
    opened = SqliteStore.open(tmp_path / "nonchalant.db", clock=clock, entropy=Counting())
    await opened.declare([LANE, OTHER_LANE])
    yield opened
    await opened.close()
