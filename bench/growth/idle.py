"""What a node costs whose lanes have nothing to do."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Final

import asyncpg

from bench import database, site, usage

CALM_SECONDS: Final = 10.0  # a node that just started may still do something
LOOK_SECONDS: Final = 20.0

# All of them, BEGIN and COMMIT too, but not our own.
CALLS: Final = "SELECT sum(calls)::BIGINT FROM pg_stat_statements WHERE query NOT LIKE '%pg_stat_%'"


@dataclass(frozen=True, slots=True)
class Idle:
    lanes: int
    queries: float  # a second
    memory: float  # resident, in bytes
    cpu: float  # share of one core


async def measured(lanes: int) -> Idle:
    """On a server of its own, which counts."""
    with database.server({"shared_preload_libraries": "pg_stat_statements"}) as cluster:
        async with site.opened(cluster, lanes=lanes, nodes=1) as place:
            [ours] = place.services
            connection = await asyncpg.connect(place.store)
            try:
                await connection.execute("CREATE EXTENSION pg_stat_statements SCHEMA public")
                await asyncio.sleep(CALM_SECONDS)
                began, calls, used = time.monotonic(), await connection.fetchval(CALLS), usage.cpu(ours.pid)
                await asyncio.sleep(LOOK_SECONDS)
                calls = await connection.fetchval(CALLS) - calls
                seconds = time.monotonic() - began
                return Idle(lanes, calls / seconds, usage.memory(ours.pid), (usage.cpu(ours.pid) - used) / seconds)
            finally:
                await connection.close()
