"""A store on a real file, with a clock that a test moves. One suite for every store: add yours to `params`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from nonchalant.ports import Store
from nonchalant.store.sqlite import SqliteStore
from tests.examples import LANE
from tests.store.acts import OTHER_LANE, Counting, ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=["sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> AsyncIterator[Store]:
    """A new store with two lanes."""
    opened = SqliteStore.open(tmp_path / "nonchalant.db", clock=clock, entropy=Counting())
    await opened.declare([LANE, OTHER_LANE])
    yield opened
    await opened.close()
