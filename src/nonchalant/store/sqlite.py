"""The store on SQLite: one file, write-ahead log, one writer at a time, every acknowledged commit on disk.

Several processes may open the same file; leases fence them off from each other as on any other store. The connection
is used off the event loop, through an injected offload: a thread of its own in production, in place in the simulator.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import TypeVar

import structlog

from nonchalant.errors import BadSettings, CommitUnknown, RowMoved, StoreUnavailable, Unstorable
from nonchalant.history import fact_of, repeated
from nonchalant.model import Event
from nonchalant.ports import Clock, Entropy, Offload
from nonchalant.store import migrations, queries, rows
from nonchalant.store.contract import SqlStore
from nonchalant.store.migrations import BUSY_SECONDS
from nonchalant.store.talk import (
    Answer,
    Ask,
    AskForEach,
    Columns,
    Fence,
    Keys,
    Moment,
    Number,
    Procedure,
    Step,
    Tell,
    ask,
    change,
    holder,
)
from nonchalant.store.witness import FileWitness, Witness, notice_restore
from nonchalant.words import Millis

log = structlog.get_logger()

T = TypeVar("T")

# How often a new file is tried to be switched to its log while other processes write to it.
SWITCH_TRIES = 20

# Columns that are lists: SQLite reads them as JSON.
LISTS = frozenset({"deeds", "skip"})


class SqliteStore(SqlStore):
    """`ports.Store` on SQLite."""

    def __init__(
        self,
        *,
        writer: sqlite3.Connection,
        reader: sqlite3.Connection,
        offload_write: Offload,
        offload_read: Offload,
        clock: Clock,
        witness: Witness,
        on_close: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        super().__init__()
        self._writer = writer
        self._reader = reader
        self._offload_write = offload_write
        self._offload_read = offload_read
        self._clock = clock
        self._witness = witness
        self._on_close = on_close
        self._witness_fails = False
        self._sql = queries.load("sqlite")
        self._store_id = str(writer.execute(self._sql["position"]).fetchone()["store_id"])

    @classmethod
    def open(cls, path: str | Path, *, clock: Clock, entropy: Entropy) -> SqliteStore:
        """Open the file, making it if it is missing; a file of another version is refused until it is migrated."""
        writer, reader = connect(path), connect(path)
        witness = FileWitness(Path(f"{path}-witness"))
        try:
            with _refusals():
                if migrations.version_of(writer) == 0:
                    migrations.create(writer, entropy.token())
                migrations.check(writer)
                notice_restore(writer, witness)
        except BaseException:  # interrupted, too: nobody else would close them
            reader.close()
            writer.close()
            raise
        threads = [ThreadPoolExecutor(1, thread_name_prefix=f"sqlite-{use}") for use in ("write", "read")]

        async def shut() -> None:
            # Each where its statements run, after the last of them; the loop goes on meanwhile. The writer goes last:
            # whoever is last puts the log into the file.
            for thread, connection in zip(reversed(threads), (reader, writer), strict=True):
                await _in_thread(thread)(connection.close)
                thread.shutdown(wait=False)
            witness.close()

        return cls(
            writer=writer,
            reader=reader,
            offload_write=_in_thread(threads[0]),
            offload_read=_in_thread(threads[1]),
            clock=clock,
            witness=witness,
            on_close=shut,
        )

    async def close(self) -> None:
        if self._on_close is not None:
            await self._on_close()

    # how a procedure reaches the database

    async def _write(self, procedure: Procedure[T]) -> T:
        return await self._offload_write(lambda: self._transact(procedure))

    async def _read(self, procedure: Procedure[T]) -> T:
        def guarded() -> T:
            with _refusals():
                return Session(self._reader, self._sql, self._clock.now()).run(procedure)

        return await self._offload_read(guarded)

    def _transact(self, procedure: Procedure[T]) -> T:
        with _refusals():
            self._writer.execute("BEGIN IMMEDIATE")
        try:
            with _refusals():
                # Time is read inside the write lock, so that no wait for it can stretch a lease.
                result = Session(self._writer, self._sql, self._clock.now()).run(procedure)
                commits = int(self._writer.execute(self._sql["count_commit"]).fetchone()["commits"])
        except BaseException:  # interrupted, too: the next one must find nothing begun
            self._roll_back()
            raise
        try:
            self._writer.execute("COMMIT")
        except sqlite3.Error as error:
            # What did not reach the disk for sure may still be found there after a crash.
            self._roll_back()
            raise CommitUnknown(f"the commit did not report back: {error}") from error
        self._tell_witness(commits)
        return result

    def _tell_witness(self, commits: int) -> None:
        """What is committed stays so, whatever becomes of this; the witness catches up at the next commit."""
        try:
            self._witness.saw(self._store_id, commits)
        except OSError as error:
            if not self._witness_fails:
                log.warning("witness.unwritable", error=str(error))
            self._witness_fails = True
        else:
            self._witness_fails = False

    def _roll_back(self) -> None:
        if self._writer.in_transaction:  # a full or failing disk ends it without being asked
            self._writer.execute("ROLLBACK")


class Session:
    """One procedure on one connection, at one moment."""

    def __init__(self, connection: sqlite3.Connection, sql: dict[str, str], now: Millis) -> None:
        self._connection = connection
        self._sql = sql
        self._now = now

    def run(self, procedure: Procedure[T]) -> T:
        try:
            step = next(procedure)
            while True:
                step = procedure.send(self._take(step))
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            procedure.close()

    def _take(self, step: Step) -> Answer:
        match step:
            case Ask(query, columns, narrow):
                return self._ask(query, columns, narrow=narrow)
            case AskForEach(query, each, common):
                if not queries.gives_rows(self._sql[query]):
                    return self._change_each(query, each, common)
                answers = [self._ask(query, {**common, **columns}) for columns in each]
                return Answer(
                    [row for answer in answers for row in answer.rows], sum(answer.count for answer in answers)
                )
            case Fence(lease):
                return self._ask("fence", holder(lease))
            case Moment() | Keys():
                return Answer([{"now": self._now}], 1)
            case Tell(events):
                for is_plain, some in groupby(events, key=lambda event: fact_of(event) is None):
                    if is_plain:
                        self._change_each("insert_event", [rows.event_columns(event, None) for event in some], {})
                    else:
                        for event in some:
                            self.run(_tell(event))
                return Answer()
            case Number():
                return Answer()  # with one writer, the rowid is a position that never becomes visible out of order

    def _change_each(self, query: str, each: Sequence[Columns], common: Columns) -> Answer:
        """Many rows by one statement that gives none back: for a plain insert 2.3 µs a row where one by one takes 3.4 to 5."""
        common = {**common, "now": self._now}
        changed = self._connection.executemany(self._sql[query], [{**common, **columns} for columns in each])
        return Answer(count=changed.rowcount)

    def _ask(self, query: str, columns: Columns, *, narrow: bool = False) -> Answer:
        given = {**columns, "now": self._now}
        for listed in LISTS & given.keys():
            given[listed] = rows.to_json(given[listed])
        sql = queries.narrowed(self._sql[query], given.keys()) if narrow else self._sql[query]
        cursor = self._connection.execute(sql, given)
        if cursor.description is None:
            return Answer(count=cursor.rowcount)
        found = cursor.fetchall()
        return Answer(found, len(found))


def _tell(event: Event) -> Procedure[None]:
    fact = fact_of(event)
    told = [] if fact is None else (yield from ask("first_told", fact=fact))
    for first in told:
        dropped = yield from ask("drop_repeats", fact=fact, first=first["position"])
        times = max(row["times"] for row in (first, *dropped)) + 1
        event = repeated(event, times, first["at"] if first["since"] is None else first["since"])
    yield from change("insert_event", **rows.event_columns(event, fact))


def connect(path: str | Path) -> sqlite3.Connection:
    try:
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=BUSY_SECONDS)
        prepare(connection)
    except sqlite3.Error as error:
        raise BadSettings(
            f"store: cannot open {path} ({error}); check that the folder exists and is writable"
        ) from error
    return connection


def prepare(connection: sqlite3.Connection) -> None:
    connection.row_factory = sqlite3.Row
    connection.execute(f"PRAGMA busy_timeout = {int(BUSY_SECONDS * 1000)}")
    _keep_a_log(connection)
    # Every commit reaches the disk before it is acknowledged.
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA fullfsync = ON")  # what that takes on macOS; elsewhere it changes nothing
    connection.execute("PRAGMA foreign_keys = ON")


def _keep_a_log(connection: sqlite3.Connection) -> None:
    """Switch a new file to the write-ahead log.

    For this SQLite does not wait if another process writes: two who both switch would wait for each other. So we wait
    for the write lock, which it does wait for, and try again.
    """
    for _ in range(SWITCH_TRIES):
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                raise
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")
    connection.execute("PRAGMA journal_mode = WAL")


@contextmanager
def _refusals() -> Iterator[None]:
    """What SQLite says, in our words."""
    try:
        yield
    except sqlite3.IntegrityError as error:
        raise RowMoved(f"the database refused the change: {error}") from error
    except sqlite3.Error as error:
        raise StoreUnavailable(f"the store cannot be used now: {error}") from error
    except (OverflowError, UnicodeEncodeError) as error:  # a number beyond 64 bit, half of a character
        raise Unstorable(f"the database cannot keep this: {error}") from error


def _in_thread(thread: ThreadPoolExecutor) -> Offload:
    async def offload(act: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(thread, act)

    return offload
