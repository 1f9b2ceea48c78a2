"""What a node does with a store, in one line each."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import sqlite3
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from nonchalant.errors import RowMoved
from nonchalant.lanes import Lane, Work
from nonchalant.lifecycle import Assigned, Confirmed, Included
from nonchalant.model import Attempt, Change, Event, LaneRecord, Lease, Transaction
from nonchalant.ports import Acceptance, Filter, Store
from nonchalant.store.postgres import PostgresStore
from nonchalant.store.sqlite import SqliteStore
from nonchalant.store.statements import in_schema
from nonchalant.values import replace
from nonchalant.words import LaneKey, SlotKind
from tests.examples import BOB, LANE, a_hash, a_receipt, a_request, an_attempt
from tests.postgres import Cluster

OTHER_LANE = LaneKey(7, BOB)
LIMITS = {LANE: 1_000, OTHER_LANE: 1_000}
TTL = 10.0

# What a database says when a constraint or a trigger of the schema refuses.
REFUSED = (sqlite3.IntegrityError, asyncpg.IntegrityConstraintViolationError)


class ManualClock:
    """Stands still until a test, or somebody's sleep, moves it. With a file, a server can look at it too."""

    def __init__(self, start: int = 1_000_000) -> None:
        self._millis = start
        self._file: int | None = None

    @property
    def millis(self) -> int:
        return self._millis

    @millis.setter
    def millis(self, value: int) -> None:
        self._millis = value
        if self._file is not None:
            os.pwrite(self._file, b"%020d" % value, 0)

    def show_in(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
        self.millis = self._millis

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def now(self) -> int:
        return self.millis

    def monotonic(self) -> float:
        return self.millis / 1000

    async def sleep(self, seconds: float) -> None:
        self.pass_seconds(seconds)
        await asyncio.sleep(0)

    def pass_seconds(self, seconds: float) -> None:
        self.millis += round(seconds * 1000)


class Counting:
    """Entropy that a test can foresee."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def token(self) -> str:
        return f"{next(self._numbers):032x}"

    def uniform(self, low: float, high: float) -> float:
        return low


_schemas = itertools.count(1)


@asynccontextmanager
async def on_postgres(
    cluster: Cluster, clock: ManualClock | None = None, **options: Any
) -> AsyncIterator[PostgresStore]:
    """A store in a schema of its own. With a clock, the server goes by it."""
    schema = f"test_{os.getpid()}_{next(_schemas)}"
    file = cluster.folder / f"clock-{schema}"
    store = await open_patiently(f"{cluster.dsn}?schema={schema}", **options)
    try:
        if clock is not None:
            clock.show_in(file)
            await sql(
                store,
                f"CREATE OR REPLACE FUNCTION nonchalant.millis() RETURNS BIGINT LANGUAGE sql VOLATILE"
                f" RETURN pg_read_file('{file}')::BIGINT",
            )
        yield store
    finally:
        await store.close()
        if clock is not None:
            clock.close()
            file.unlink()
        connection = await asyncpg.connect(cluster.dsn)
        await connection.execute(f"SET client_min_messages = error; DROP SCHEMA {schema} CASCADE")
        await connection.close()


async def on_a_server(postgres: Cluster) -> AsyncIterator[PostgresStore]:
    """A fixture's body: two lanes, on the server's own clock."""
    async with on_postgres(postgres) as store:
        await store.declare([LANE, OTHER_LANE])
        yield store


async def second(store: PostgresStore, cluster: Cluster, **options: Any) -> PostgresStore:
    """Another node's access to the same data."""
    return await open_patiently(f"{cluster.dsn}?schema={store.schema}", **options)


async def open_patiently(url: str, **options: Any) -> PostgresStore:
    """As a node does; but a test that a busy machine holds up within a transaction is no node that froze."""
    return await PostgresStore.open(url, entropy=Counting(), **{"stall_seconds": 60.0} | options)


async def sql(store: Store, statement: str, *values: object) -> Sequence[Any]:
    """Look or meddle behind the store's back. Values stand for `?`; tables have no schema."""
    if isinstance(store, SqliteStore):
        return store._writer.execute(statement, values).fetchall()
    assert isinstance(store, PostgresStore)
    numbers = itertools.count(1)
    statement = re.sub(r"\?", lambda _: f"${next(numbers)}", in_schema(statement, store.schema))
    async with store._work.pool.lent() as connection, connection.transaction():
        await connection.execute(f'SET LOCAL search_path = "{store.schema}"')
        return await connection.fetch(statement, *values)  # type: ignore[no-any-return]


async def begun(store: PostgresStore, act: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """Once it waits for somebody else, or has ended because it did not."""
    task = asyncio.create_task(act)
    waiting = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    while not (task.done() or await sql(store, waiting)):  # noqa: ASYNC110 - nobody tells who waits
        await asyncio.sleep(0.01)
    return task


async def empty(store: PostgresStore) -> None:
    """Nothing is left, and no trigger asked: to make another schema would take longer."""
    tables = [
        "events",
        "wishes",
        "strangers",
        "attempts",
        "slots",
        "removed",
        "transactions",
        "waiting",
        "nodes",
        "controls",
        "leases",
        "lanes",
    ]
    deletes = "; ".join(f'DELETE FROM "{store.schema}".{table}' for table in tables)
    async with store._work.pool.lent() as connection:
        await connection.execute(f"BEGIN; SET LOCAL session_replication_role = replica; {deletes}; COMMIT")


async def accept(store: Store, *ids: str, limits: Mapping[LaneKey, int] = LIMITS, **fields: Any) -> list[Transaction]:
    """New transactions with these ids."""
    answers = await store.accept([a_request(id, **fields) for id in ids], limits=limits)
    return [only_transaction(answer) for answer in answers]


def only_transaction(answer: Acceptance) -> Transaction:
    assert isinstance(answer, Transaction)
    return answer


async def take(store: Store, owner: str = "node-a", lane: LaneKey = LANE) -> Lease:
    epoch = await store.acquire(lane, owner, TTL)
    assert epoch is not None
    return Lease(lane, owner, epoch, 0.0)


def work(lease: Lease, at: int = 0, **record: Any) -> Work:
    return Work(Lane(LaneRecord(key=lease.lane, **record)), at)


def assignment(lease: Lease, *pairs: tuple[Transaction, int]) -> Change:
    """What assigning these to their nonces commits."""
    making = work(lease)
    for tx, nonce in pairs:
        attempt = an_attempt(a_hash(f"{tx.id}@{nonce}"), nonce, tx.id, epoch=lease.epoch)
        making.move(tx, Assigned(nonce, attempt.hash))
        making.bind(nonce, SlotKind.TRANSACTION, attempt)
    return making.change()


def filler(lease: Lease, nonce: int) -> Change:
    making = work(lease)
    making.bind(nonce, SlotKind.FILLER, an_attempt(a_hash(f"filler@{nonce}"), nonce, None, epoch=lease.epoch))
    return making.change()


async def assign(store: Store, lease: Lease, *pairs: tuple[Transaction, int]) -> list[Transaction]:
    """Bind them; the transactions as they stand then."""
    change = assignment(lease, *pairs)
    await store.commit(change, lease)
    return list(change.transactions)


@dataclass(frozen=True)
class Everything:
    """All that a store shows of itself; two that are equal hold the same."""

    transactions: list[Transaction]
    attempts: dict[str, list[Attempt]]
    lanes: list[Any]
    events: list[Any]


async def everything(store: Store) -> Everything:
    transactions = list(await store.transactions(Filter(limit=10_000)))
    attempts = await store.attempts([tx.id for tx in transactions])
    return Everything(
        transactions=transactions,
        attempts={tx_id: list(found) for tx_id, found in attempts.items()},
        lanes=list(await store.lanes()),
        events=list(await store.events_after(0, limit=10_000)),
    )


async def settle(store: Store, lease: Lease, tx_id: str, move: object = None) -> Transaction:
    """Bring a transaction with a slot to its end."""
    tx = await store.transaction(tx_id)
    assert tx is not None
    slot = next(slot for slot in (await store.load(lease)).slots if slot.tx_id == tx_id)
    making = work(lease)
    making.move(tx, Included(a_receipt(slot.newest.hash)))
    ended = making.move(tx, move or Confirmed())  # type: ignore[arg-type]
    making.settle(slot)
    await store.commit(making.change(), lease)
    return ended


async def refused(store: Store, change: Change, lease: Lease) -> None:
    """The change is refused and leaves no trace, though it begins and ends with things that would be fine."""
    fine = Event(kind="lane.paused", lane=lease.lane, at=1)
    before = await snapshot(store, lease)
    with pytest.raises(RowMoved):
        await store.commit(replace(change, events=(fine, *change.events)), lease)
    assert await snapshot(store, lease) == before


async def snapshot(store: Store, lease: Lease) -> tuple[Everything, object]:
    return await everything(store), await store.load(lease)
