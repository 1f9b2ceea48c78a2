"""A long past, made quickly: copies of transactions that really ran, below them in every lane."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import asyncpg

from bench import site
from bench.order import Outcome
from bench.site import Site
from tests.postgres import Cluster

LANES: Final = 20
REAL: Final = 1_000  # transactions that are copied
PER_LANE: Final = REAL // LANES

# What tells copy `g` from its original; all other columns are as they were.
HASH: Final = "'0x' || md5(hash || g) || md5(g || hash)"
COPIES: Final = {
    "transactions": {
        "place": f"place + {REAL} * g",
        "id": "id || '~' || g",
        "nonce": f"nonce - {PER_LANE} * g",
        "hash": HASH,
    },
    "slots": {"nonce": f"nonce - {PER_LANE} * g", "tx_id": "tx_id || '~' || g"},
    "attempts": {"nonce": f"nonce - {PER_LANE} * g", "tx_id": "tx_id || '~' || g", "hash": HASH},
    "told_events": {
        "told": "told + ((SELECT max(telling) FROM tellings) * g << 20)",
        "tx_id": "tx_id || '~' || g",
        "fact": "fact || '~' || g",
    },
    "tellings": {
        "telling": "telling + (SELECT max(telling) FROM tellings) * g",
        "base": "base + (SELECT last FROM numbering) * g",
    },
}
# Of all tables it is the transactions' part that is copied.
WHOSE: Final = {
    "transactions": "TRUE",
    "tellings": "telling IN (SELECT told >> 20 FROM told_events WHERE tx_id IS NOT NULL)",
}
COLUMNS: Final = """
SELECT column_name FROM information_schema.columns
WHERE table_schema = 'nonchalant' AND table_name = $1 AND is_generated = 'NEVER' AND (is_identity = 'NO' OR identity_generation = 'BY DEFAULT')
ORDER BY ordinal_position
"""
AFTER: Final = (
    "SELECT setval('places', (SELECT max(place) FROM transactions))",
    "SELECT setval(pg_get_serial_sequence('tellings', 'telling'), (SELECT max(telling) FROM tellings))",
    "UPDATE numbering SET last = (SELECT max(base + events) FROM tellings) - 1",
)


@asynccontextmanager
async def settled(cluster: Cluster, count: int) -> AsyncIterator[Site]:
    """A site whose lanes have so many settled transactions between them: none, or a multiple of `REAL`."""
    async with site.opened(cluster, lanes=LANES, first_nonce=max(0, count - REAL) // LANES) as place:
        if count:
            await site.contest(place.order("library", count=REAL), Outcome)
            await _copy(place.store, count // REAL - 1)
        yield place


async def _copy(store: str, times: int) -> None:
    connection = await asyncpg.connect(store, server_settings={"search_path": "nonchalant"})
    try:
        # Neither triggers nor foreign keys: the originals passed them all.
        await connection.execute("SET session_replication_role = replica")
        for table, changed in COPIES.items():
            columns = [row["column_name"] for row in await connection.fetch(COLUMNS, table)]
            names = ", ".join(f'"{name}"' for name in columns)
            values = ", ".join(changed.get(name, f'"{name}"') for name in columns)
            await connection.execute(
                f"INSERT INTO {table} ({names}) SELECT {values} FROM {table}, generate_series(1, $1::BIGINT) AS g"
                f" WHERE {WHOSE.get(table, 'tx_id IS NOT NULL')}",
                times,
            )
        for statement in AFTER:
            await connection.execute(statement)
        await connection.execute("VACUUM ANALYZE")
        await connection.execute("CHECKPOINT")
    finally:
        await connection.close()
