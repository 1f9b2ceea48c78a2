"""Owners against one another on a real server, in figures: orders of statements, renewals under load, frozen owners.

    python -m tests.store.contention --record

What must hold is tested (`test_interleavings.py`, `test_postgres.py`); here is how often it was tried, and how long it
takes. The load: every lane's owner commits without a pause, as much as the node's connections let it.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence
from contextlib import suppress

import asyncpg

from nonchalant.model import Change, Lease
from nonchalant.store.postgres import PostgresStore
from nonchalant.store.statements import Statement
from nonchalant.store.talk import Fence, Procedure
from nonchalant.words import LaneKey
from tests import postgres, results
from tests.examples import LANE
from tests.postgres import Cluster
from tests.store.acts import Counting, ManualClock, on_postgres, take
from tests.store.test_interleavings import (
    WRITING,
    Stage,
    filling,
    read_too_late,
    releasing,
    renewing,
    renewing_all,
    stale_writes,
)

LANES = 64
SECONDS = 15.0
FROZEN = 10
LEASE_SECONDS = 2.0


async def orders(cluster: Cluster) -> list[str]:
    clock, told = ManualClock(), []
    async with on_postgres(cluster, clock, stall_seconds=20) as store:
        observer = await asyncpg.connect(cluster.dsn)
        stage = Stage(store, clock, observer)
        for stale in WRITING:
            tried, bad = await stale_writes(stage, stale)
            told.append(f"{stale.__name__} against a take-over, in all {tried} orders: {bad} stale writes")
        tried, bad = await read_too_late(stage)
        told.append(f"loading against a take-over, in all {tried} orders: believed too late {bad} times")
        for stale in (renewing, renewing_all, releasing):
            tried, _ = await stale_writes(stage, stale)
            name = stale.__name__.replace("_", " ")
            told.append(f"{name} against a take-over, in all {tried} orders: the new lease is whole after each")
        fence = store._sql["fence"]
        unlocked = fence.sql.replace("FOR NO KEY UPDATE", "")
        store._sql._known["fence"] = Statement(unlocked, fence.names, fence.gives_rows)
        tried, bad = await stale_writes(stage, filling)
        told.append(f"without the row lock, in the same {tried} orders: {bad} stale writes")
        await observer.close()
    return told


async def renewals(cluster: Cluster) -> list[str]:
    """With the time-outs that a node has."""
    store = await PostgresStore.open(f"{cluster.dsn}?schema=renewals", entropy=Counting())
    lanes = [LaneKey(7, f"0x{number:040x}") for number in range(LANES)]
    await store.declare(lanes)
    leases = [await take(store, lane=lane) for lane in lanes]
    over, commits, waits = time.monotonic() + SECONDS, 0, list[float]()

    async def own(lease: Lease) -> None:
        nonlocal commits
        while time.monotonic() < over:
            await store.commit(Change(), lease)
            commits += 1

    async def renew() -> None:
        while time.monotonic() < over:
            began = time.monotonic()
            renewed = await store.renew(leases, 60)
            waits.append(time.monotonic() - began)
            assert len(renewed) == LANES
            await asyncio.sleep(0.05)

    await asyncio.gather(renew(), *map(own, leases))
    await store.close()
    return [
        f"renewing {LANES} leases while their owner makes {commits / SECONDS:.0f} fenced transactions a second that write nothing: {spread(waits)}"
    ]


def _only_fence(lease: Lease) -> Procedure[None]:
    yield Fence(lease)


async def frozen(cluster: Cluster) -> list[str]:
    """Who is frozen holds the lease's row; the other asks as soon as the lease is over."""
    url, waits = f"{cluster.dsn}?schema=frozen", []
    store, other = [await PostgresStore.open(url, entropy=Counting()) for _ in range(2)]
    await store.declare([LANE])
    for number in range(FROZEN):
        epoch = await store.acquire(LANE, f"frozen {number}", LEASE_SECONDS)
        assert epoch is not None
        ends = time.monotonic() + LEASE_SECONDS
        await asyncio.sleep(LEASE_SECONDS - 0.1)
        connection = await store._work.begun()
        await store._run(connection, _only_fence(Lease(LANE, f"frozen {number}", epoch, 0.0)), [])
        await asyncio.sleep(max(0.0, ends - time.monotonic()))
        while (taken := await other.acquire(LANE, "other", LEASE_SECONDS)) is None:  # noqa: ASYNC110 - as a sweep does
            await asyncio.sleep(0.05)
        waits.append(time.monotonic() - ends)
        with suppress(asyncpg.InterfaceError):  # the driver noticed that it is gone, and took it back
            connection.terminate()
        store._work.pool.release(connection)
        await other.release([Lease(LANE, "other", taken, 0.0)])
    await store.close()
    await other.close()
    return [
        f"taking over from {FROZEN} owners that froze within a fenced transaction, after the lease's end: {spread(waits)}"
    ]


def spread(seconds: Sequence[float]) -> str:
    found = sorted(seconds)
    middle, most = found[len(found) // 2], found[min(len(found) - 1, len(found) * 95 // 100)]
    return f"median {middle * 1000:.0f} ms, 95 % {most * 1000:.0f} ms, longest {found[-1] * 1000:.0f} ms"


async def run() -> list[str]:
    with postgres.running() as cluster:
        return [*await orders(cluster), *await renewals(cluster), *await frozen(cluster)]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.store.contention", description=__doc__)
    parser.add_argument("--record", action="store_true", help="add the figures to bench/RESULTS.md")
    options = parser.parse_args()
    told = asyncio.run(run())
    print("\n".join(told))
    if options.record:
        results.record(
            "Owners against one another", " ".join(["python -m tests.store.contention", *sys.argv[1:]]), told
        )


if __name__ == "__main__":
    main()
