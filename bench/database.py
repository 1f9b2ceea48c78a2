"""PostgreSQL for the benchmark: one server, with everything on that keeps what was acknowledged, and a database a run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from itertools import count
from types import MappingProxyType
from typing import Final

import asyncpg

from tests import postgres
from tests.postgres import Cluster

# Durable, unlike the tests' own; and room enough that no checkpoint falls into one contestant's run and not another's.
SETTINGS: Final = {
    "fsync": "on",
    "full_page_writes": "on",
    "synchronous_commit": "on",
    "shared_buffers": "512MB",
    "max_wal_size": "8GB",
    "checkpoint_timeout": "1h",
}

_numbers = count(1)


@contextmanager
def server(more: Mapping[str, str] = MappingProxyType({})) -> Iterator[Cluster]:
    with postgres.running({**SETTINGS, **more}) as cluster:
        yield cluster


@asynccontextmanager
async def database(cluster: Cluster) -> AsyncIterator[str]:
    """The address of a new, empty one; it is gone afterwards."""
    name = f"bench_{next(_numbers)}"
    connection = await asyncpg.connect(cluster.dsn)
    try:
        await connection.execute(f"CREATE DATABASE {name}")
        await connection.execute("CHECKPOINT")
        yield f"postgresql://postgres@127.0.0.1:{cluster.port}/{name}"
        await connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
    finally:
        await connection.close()
