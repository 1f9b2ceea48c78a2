"""What a store says, read past our own code: how many live, what became of each, and when."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, closing
from typing import Any, Final, NamedTuple, Protocol

import asyncpg

from nonchalant.installation import Installation

LOOK_SECONDS: Final = 0.2
MOST_SECONDS: Final = 240.0

ROWS: Final = "SELECT address, nonce, hash, state, payload, created_at FROM transactions"
STATES: Final = "SELECT state, count(*) FROM transactions GROUP BY state"
LAST: Final = "SELECT max(at) FROM events WHERE kind = 'tx.mined'"
MINED: Final = """
SELECT transactions.hash, max(events.at) FROM events JOIN transactions ON transactions.id = events.tx_id
WHERE events.kind = 'tx.mined' GROUP BY transactions.hash
"""


class NotSettled(Exception):
    """Something is still under way that should have ended long ago; the states follow."""


class Row(NamedTuple):
    address: str
    nonce: int | None
    hash: str | None
    state: str
    value: int = 0  # what was asked for
    accepted_at: int = 0  # in milliseconds


class Books(Protocol):
    live: str  # what finds those that live, by an index: whoever looks all the time must not be a part of the cost

    async def ask(self, query: str) -> Sequence[Sequence[Any]]: ...


class _Postgres:
    live = (
        "SELECT 1 FROM (SELECT address FROM waiting UNION ALL SELECT address FROM slots WHERE NOT settled) AS live"
        " WHERE TRUE"
    )

    def __init__(self, connection: asyncpg.Connection) -> None:
        self._connection = connection

    async def ask(self, query: str) -> Sequence[Sequence[Any]]:
        found: Sequence[Sequence[Any]] = await self._connection.fetch(query)
        return found


class _Sqlite:
    live = "SELECT 1 FROM transactions WHERE state IN ('queued', 'signed', 'sent', 'mined')"

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    async def ask(self, query: str) -> Sequence[Sequence[Any]]:
        return await asyncio.to_thread(lambda: self._connection.execute(query).fetchall())


@asynccontextmanager
async def opened(store: str) -> AsyncIterator[Books]:
    """A store's books, by the address that the settings have."""
    if Installation.is_meant_by(store):
        connection = await asyncpg.connect(store, server_settings={"search_path": "nonchalant"})
        try:
            yield _Postgres(connection)
        finally:
            await connection.close()
        return
    with closing(sqlite3.connect(store.removeprefix("sqlite:"), check_same_thread=False)) as file:
        yield _Sqlite(file)


async def settled(books: Books, lanes: Iterable[str] = ()) -> None:
    """Wait until nothing lives any more, or nothing of these accounts; `NotSettled` if that takes too long."""
    named = ", ".join(f"'{address}'" for address in lanes)
    any_live = f"SELECT EXISTS ({books.live}{f' AND address IN ({named})' if named else ''})"
    try:
        async with asyncio.timeout(MOST_SECONDS):
            while (await books.ask(any_live))[0][0]:  # noqa: ASYNC110 - looked at from outside, nobody tells
                await asyncio.sleep(LOOK_SECONDS)
    except TimeoutError:
        raise NotSettled(f"after {MOST_SECONDS:g} s the store holds {await states(books)}") from None


async def rows(books: Books) -> list[Row]:
    return [
        Row(address, nonce, hash, state, int(json.loads(payload)["value"]), accepted_at)
        for address, nonce, hash, state, payload, accepted_at in await books.ask(ROWS)
    ]


async def states(books: Books) -> dict[str, int]:
    return {row[0]: row[1] for row in await books.ask(STATES)}


async def last_mined(books: Books) -> int:
    """When the last transaction was seen in a block, in milliseconds by the calendar."""
    [[found]] = await books.ask(LAST)
    return int(found)


async def mined(books: Books) -> dict[str, int]:
    """When each was seen in a block, by its hash."""
    return {row[0]: row[1] for row in await books.ask(MINED)}
