"""Versions of the schema on PostgreSQL. Version 1 is `schema.sql`; each file of `migrations/` leads from one to the next.

Several nodes may start at once, and nodes of the version before may still be running: each step is one transaction
under an advisory lock, and a step may only add what the version before can work with.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress

import asyncpg

from nonchalant.errors import StoreUnavailable
from nonchalant.installation import Installation
from nonchalant.store import at_once, migrations, queries
from nonchalant.store.connections import BEGINNINGS, LOST
from nonchalant.store.migrations import Migration, Status
from nonchalant.store.statements import in_schema
from nonchalant.values import replace

ANSWER_SECONDS = 10.0

_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('nonchalant.migration', 0))"


async def prepare(installation: Installation, store_id: str) -> bool:
    """Make the schema if it is missing, refuse one of another version. True: a pooler stands before the server.

    A connection that is lost on the way is replaced: every step can be taken twice, and is done once.
    """
    for _ in range(BEGINNINGS - 1):
        with suppress(*LOST):
            return await _prepared(installation, store_id)
    return await _prepared(installation, store_id)


async def _prepared(installation: Installation, store_id: str) -> bool:
    async with connected(installation) as connection:
        if await version_of(connection, installation) == 0:
            await advance(connection, installation, known(), store_id)
        migrations.check_version(await version_of(connection, installation), known()[-1].version)
        return await is_pooled(connection)


def known() -> Sequence[Migration]:
    made = at_once.functions(queries.load("postgres"))
    found = migrations.known(migrations.folder_of("postgres"))
    return [replace(step, script=step.script.replace(at_once.MARKER, made)) for step in found]


async def status(installation: Installation, steps: Sequence[Migration] | None = None) -> Status:
    """What is there, without changing it."""
    with unreachable(installation):
        async with connected(installation) as connection:
            found = await version_of(connection, installation)
    return Status(installation, found, (steps or known())[-1].version)


async def migrate(installation: Installation, store_id: str, steps: Sequence[Migration] | None = None) -> Status:
    """Bring the schema to the newest version, making it if it is missing."""
    migrations.refuse_newer(await status(installation, steps))
    with unreachable(installation):
        async with connected(installation) as connection:
            await advance(connection, installation, steps or known(), store_id)
    return await status(installation, steps)


async def is_pooled(connection: asyncpg.Connection) -> bool:
    """A pooler answers for itself when a connection begins: the process it names is not the one that works."""
    works: int = await connection.fetchval("SELECT pg_backend_pid()")
    named: int = connection.get_server_pid()
    return works != named


async def stands_behind_a_pooler(installation: Installation) -> bool:
    with unreachable(installation):
        async with connected(installation) as connection:
            return await is_pooled(connection)


async def weaknesses(installation: Installation) -> dict[str, str]:
    """Settings of the server with which an acknowledged commit can be lost, and the remedy of each."""
    with unreachable(installation):
        async with connected(installation) as connection:
            found = await connection.fetch(
                "SELECT name, setting FROM pg_settings WHERE name IN ('fsync', 'full_page_writes')"
            )
    return {
        f"the server runs with {row['name']} = off: a crash loses what was acknowledged": f"set {row['name']} = on there"
        for row in found
        if row["setting"] == "off"
    }


async def version_of(connection: asyncpg.Connection, installation: Installation) -> int:
    """0: nothing is there yet."""
    # From the tables themselves: what a session remembers of names may be older than its snapshot.
    there = await connection.fetchval(
        "SELECT 1 FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace"
        " WHERE nspname = $1 AND relname = 'meta'",
        installation.schema,
    )
    if there is None:
        return 0
    version: int = await connection.fetchval(in_schema("SELECT version FROM nonchalant.meta", installation.schema))
    return version


async def advance(
    connection: asyncpg.Connection,
    installation: Installation,
    steps: Sequence[Migration],
    store_id: str,
) -> None:
    """Take the steps that are missing. Each is one transaction."""
    for step in steps:
        async with connection.transaction():
            await connection.execute(in_schema(_LOCK, installation.schema))
            # Looked at under the lock: another node may have taken this step meanwhile.
            if await version_of(connection, installation) >= step.version:
                continue
            if step.version == 1:
                await connection.execute(f'CREATE SCHEMA IF NOT EXISTS "{installation.schema}"')
            await connection.execute(in_schema(step.script, installation.schema))
            await _record(connection, installation, step.version, store_id)


async def _record(connection: asyncpg.Connection, installation: Installation, version: int, store_id: str) -> None:
    if version == 1:
        first = in_schema("INSERT INTO nonchalant.meta (version, store_id) VALUES (1, $1)", installation.schema)
        await connection.execute(first, store_id)
    else:
        await connection.execute(in_schema("UPDATE nonchalant.meta SET version = $1", installation.schema), version)


@contextmanager
def unreachable(installation: Installation) -> Iterator[None]:
    """What goes wrong at the first contact, with the name of the server and without its password."""
    try:
        yield
    except (asyncpg.PostgresError, *LOST) as error:
        raise StoreUnavailable(f"cannot use {installation}: {str(error) or type(error).__name__}") from error


@asynccontextmanager
async def connected(installation: Installation) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(
        installation.dsn,
        timeout=ANSWER_SECONDS,
        statement_cache_size=0,
        server_settings={"application_name": "nonchalant"},
    )
    try:
        yield connection
    finally:
        await connection.close()
