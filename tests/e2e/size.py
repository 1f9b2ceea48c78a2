"""How much room a settled transaction takes: in PostgreSQL's tables, indexes and log, and in SQLite's file.

    python -m tests.e2e.size --transactions 10000

They are really sent through a node and executed by anvil: plain transfers with an idempotency key, none of them bumped.
Tables are measured as autovacuum leaves them, and once more after VACUUM FULL.
"""

from __future__ import annotations

import argparse
import asyncio
import sqlite3
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

import asyncpg

from nonchalant.app import Nonchalant
from nonchalant.config import Settings
from nonchalant.values import replace
from tests import anvil, postgres, results
from tests.e2e import ledger
from tests.e2e.restart import ACCOUNTS, BLOCK_SECONDS, WINDOW, send_payments
from tests.e2e.rig import settings, until

SIZES = """
SELECT relname, pg_table_size(oid) AS rows, pg_indexes_size(oid) AS indexes
FROM pg_class WHERE relnamespace = 'nonchalant'::regnamespace AND relkind = 'r'
"""
LIVE = "SELECT count(*) FROM nonchalant.transactions WHERE state IN ('queued', 'signed', 'sent', 'mined')"
LOG = "SELECT (pg_current_wal_insert_lsn() - '0/0'::PG_LSN)::BIGINT"


async def on_postgres(made: Settings, count: int) -> list[str]:
    with postgres.running({"full_page_writes": "on"}) as cluster:
        connection = await asyncpg.connect(cluster.dsn)

        async def room() -> dict[str, tuple[int, int]]:
            return {row["relname"]: (row["rows"], row["indexes"]) for row in await connection.fetch(SIZES)}

        async def settled() -> bool:
            return bool(await connection.fetchval(LIVE) == 0)

        try:
            async with Nonchalant.open(replace(made, store=cluster.dsn)) as node:
                empty, log = await room(), await connection.fetchval(LOG)
                began = time.monotonic()
                await send_payments(node, "tx", count)
                await until(settled, "all settled", seconds=600, every=0.2)
                took, log = time.monotonic() - began, await connection.fetchval(LOG) - log
            full = await room()
            await connection.execute("VACUUM FULL")
            tight = await room()
        finally:
            await connection.close()

    def each(found: dict[str, tuple[int, int]]) -> int:
        return round(sum(sum(found[name]) - sum(empty[name]) for name in found) / count)

    parts = {name: sum(full[name]) - sum(empty[name]) for name in full}
    largest = sorted(parts, key=lambda name: -parts[name])[:4]
    told = (
        f"PostgreSQL: {count} settled transactions in {took:.0f} s take {each(full)} bytes each, indexes included"
        f" ({', '.join(f'{name} {parts[name] / count:.0f}' for name in largest)}); {each(tight)} after VACUUM FULL;"
        f" {log / count:.0f} bytes of log each"
    )
    return [told]


async def on_sqlite(made: Settings, folder: Path, count: int) -> list[str]:
    file = folder / "nonchalant.db"
    async with Nonchalant.open(made) as node:
        await send_payments(node, "tx", count)
        await until(lambda: ledger.count_states(file)["confirmed"] == count, "all settled", seconds=600, every=0.2)
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        full = file.stat().st_size
        connection.execute("VACUUM")
    return [f"SQLite: {full / count:.0f} bytes each, {file.stat().st_size / count:.0f} after VACUUM"]


async def run(count: int) -> list[str]:
    options = {"window": WINDOW, "queue_limit": 100_000, "timeout": 30, "accounts": ACCOUNTS, "poll": 0.1, "lease": 10}
    told = []
    for store in ("postgresql", "sqlite"):
        with tempfile.TemporaryDirectory(prefix="size-") as name:
            async with anvil.running(
                "--gas-limit", "300000000000", "--order", "fifo", block_time=BLOCK_SECONDS
            ) as chain:
                made = settings(Path(name), chain.url, **options)
                told += await (
                    on_postgres(made, count) if store == "postgresql" else on_sqlite(made, Path(name), count)
                )
    return told


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.size", description=__doc__)
    parser.add_argument("--transactions", type=int, default=10_000)
    parser.add_argument("--record", action="store_true", help="add the figures to bench/RESULTS.md")
    options = parser.parse_args()
    told = asyncio.run(run(options.transactions))
    print("\n".join(told))
    if options.record:
        results.record("Room for a transaction", " ".join(["python -m tests.e2e.size", *sys.argv[1:]]), told)


if __name__ == "__main__":
    main()
