"""How much of a database a settled transaction takes."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import asyncpg

from bench import site
from bench.order import Outcome
from tests.postgres import Cluster

SIZE: Final = """
SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::BIGINT
FROM pg_class WHERE relnamespace = 'nonchalant'::regnamespace AND relkind = 'r'
"""


@dataclass(frozen=True, slots=True)
class Room:
    """Bytes a transaction, indexes included: as the run left it, and at its tightest."""

    left: float
    tight: float


async def on_postgres(cluster: Cluster, count: int) -> Room:
    async with site.opened(cluster, nodes=1) as place:
        connection = await asyncpg.connect(place.store)
        try:
            empty = await connection.fetchval(SIZE)
            await site.contest(place.order("rest-batches", count=count), Outcome)
            left = await connection.fetchval(SIZE)
            await connection.execute("VACUUM FULL")
            tight = await connection.fetchval(SIZE)
        finally:
            await connection.close()
    return Room((left - empty) / count, (tight - empty) / count)


async def on_sqlite(cluster: Cluster, count: int) -> Room:
    async with site.opened(cluster, store="sqlite") as place:
        await site.contest(place.order("library", count=count), Outcome)
        file = Path(place.store.removeprefix("sqlite:"))
        with closing(sqlite3.connect(file)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            left = file.stat().st_size
            connection.execute("VACUUM")
        return Room(left / count, file.stat().st_size / count)
