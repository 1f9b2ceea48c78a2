"""Connections to a PostgreSQL server: transactions on them, and what is safe when one is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import Any

import asyncpg

from nonchalant.errors import CommitUnknown, RowMoved, StoreUnavailable, Unstorable
from nonchalant.installation import Installation
from nonchalant.store.pool import Pool
from nonchalant.store.talk import Answer, millis

# A question that takes longer is given up; the stages ask again.
ANSWER_SECONDS = 10.0

# What keeps a transaction waiting, a lock or a node that does not go on, ends it after this time. Where it has locked a
# lease, that must be shorter than the part of a lease at its end in which the owner does not act, or a frozen owner could
# hold a take-over up: with short leases it is less than this.
STALL_SECONDS = 1.0

# How often something is begun anew on another connection, where nothing has happened yet.
BEGINNINGS = 3

# What ends a connection, or the use of it. The driver calls it an error of its own if it is asked for something after the
# server's farewell and before the end of the connection.
LOST = (
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
    TimeoutError,
)


class Declined(StoreUnavailable):
    """The server says no, for a reason that may be this one transaction's; nothing happened."""


class Locked(Declined):
    """Somebody else's transaction holds what this one needs."""


class Connections:
    """Some of them, made when they are needed and used in turn. Nothing is kept in a session."""

    def __init__(self, pool: Pool, stall_seconds: float) -> None:
        self.pool = pool
        self.stall = _stall(stall_seconds)
        self.patience = _stall(max(stall_seconds, STALL_SECONDS))  # of what locks no lease
        self._begin = _beginning(stall_seconds)
        self._begin_unhurried = _beginning(max(stall_seconds, STALL_SECONDS))

    @classmethod
    def open(cls, installation: Installation, most: int, *, pooled: bool, stall_seconds: float) -> Connections:
        connect = partial(
            asyncpg.connect,
            installation.dsn,
            command_timeout=ANSWER_SECONDS,
            timeout=ANSWER_SECONDS,
            # A pooler gives every transaction another session, which does not know what was prepared on the last one.
            statement_cache_size=0 if pooled else 1_000,
            max_cached_statement_lifetime=0,
            server_settings={"application_name": "nonchalant"},
        )
        pool = Pool(connect, most, patience=ANSWER_SECONDS)
        return cls(pool, stall_seconds)

    def terminate(self) -> None:
        self.pool.terminate()

    @asynccontextmanager
    async def transaction(self, *, locks_leases: bool = True) -> AsyncIterator[asyncpg.Connection]:
        """Committed at the end of the block, or rolled back. One that locks no lease may take longer about it."""
        with refusals():
            connection = await self.begun(locks_leases=locks_leases)
        try:
            try:
                with refusals():
                    yield connection
            except BaseException:  # cancelled, too: a connection goes back to the pool with nothing begun on it
                await roll_back(connection)
                raise
            await commit(connection)
        finally:
            self.pool.release(connection)

    async def begun(self, *, locks_leases: bool = True) -> asyncpg.Connection:
        """One with a transaction on it. One that turns out to be dead is replaced: nothing has happened yet."""
        begin = self._begin if locks_leases else self._begin_unhurried
        for beginning in range(1, BEGINNINGS + 1):
            connection = await self.pool.acquire()
            try:
                await connection.execute(begin)
            except BaseException as error:  # cancelled, too: nobody knows what became of the BEGIN
                _cut(connection)
                self.pool.release(connection)
                if not isinstance(error, LOST) or beginning == BEGINNINGS:
                    raise
            else:
                return connection
        raise AssertionError("the last beginning returns or raises")

    async def commit_alone(self, sql: str, values: Sequence[Any]) -> asyncpg.Record:
        """One statement that is a whole transaction, and gives one row. `CommitUnknown` if nobody can tell whether it
        happened."""
        try:
            with refusals():
                connection = await self.pool.acquire()
        except Declined as error:  # nothing of this transaction can be to blame
            raise StoreUnavailable(str(error)) from error
        try:
            with refusals(), _outcome(connection):
                row: asyncpg.Record = await connection.fetchrow(sql, *values)
        except asyncio.CancelledError:
            self.pool.release_interrupted(connection)
            raise
        except BaseException:
            self.pool.release(connection)
            raise
        self.pool.release(connection)
        return row

    async def ask_alone(self, sql: str, values: Sequence[Any]) -> Answer:
        """A statement outside of any transaction. It is asked again if its connection was lost, so it only reads, or may
        be run twice."""
        for beginning in range(1, BEGINNINGS + 1):
            connection = await self.pool.acquire()
            try:
                found = await connection.fetch(sql, *values)
            except asyncio.CancelledError:
                self.pool.release_interrupted(connection)
                raise
            except BaseException as error:
                if isinstance(error, LOST):
                    _cut(connection)
                self.pool.release(connection)
                if not isinstance(error, LOST) or beginning == BEGINNINGS:
                    raise
            else:
                self.pool.release(connection)
                return Answer(found, len(found))
        raise AssertionError("the last question returns or raises")


async def commit(connection: asyncpg.Connection) -> None:
    """`CommitUnknown` if nobody can tell whether it happened."""
    try:
        with _outcome(connection):
            said = await connection.execute("COMMIT")
    except asyncio.CancelledError:
        _cut(connection)
        raise
    except asyncpg.PostgresError as error:
        raise StoreUnavailable(f"the store refused the commit: {_words(error)}") from error
    if said != "COMMIT":
        raise StoreUnavailable("the store rolled the transaction back")


@contextmanager
def _outcome(connection: asyncpg.Connection) -> Iterator[None]:
    """Whatever ends what commits, other than a refusal, leaves it unknown."""
    try:
        yield
    except (asyncpg.PostgresError, *LOST) as error:
        if isinstance(error, asyncpg.PostgresError) and _has_refused(error):
            raise
        _cut(connection)
        raise CommitUnknown(f"the commit did not report back: {_words(error)}") from error


def _has_refused(error: asyncpg.PostgresError) -> bool:
    """Whether it is a refusal: nothing happened. Anything worse ends the session, and may have come after the commit.

    The driver's own errors have no severity: that a value cannot be written says that nothing was sent, that the connection
    is gone says nothing.
    """
    severity = getattr(error, "severity_en", error.severity)
    return severity == "ERROR" or (severity is None and isinstance(error, asyncpg.DataError))


async def roll_back(connection: asyncpg.Connection) -> None:
    """What cannot be rolled back is cut off: the server rolls back what it has of it."""
    try:
        await connection.execute("ROLLBACK")
    except (asyncpg.PostgresError, *LOST):
        _cut(connection)
    except BaseException:  # cancelled once more: nobody knows how far it came
        _cut(connection)
        raise


@contextmanager
def refusals() -> Iterator[None]:
    """What PostgreSQL and its driver say, in our words. Nothing happened."""
    try:
        yield
    except asyncpg.IntegrityConstraintViolationError as error:
        raise RowMoved(f"the database refused the change: {_words(error)}") from error
    except asyncpg.DataError as error:
        raise Unstorable(f"the database cannot keep this: {_words(error)}") from error
    except asyncpg.LockNotAvailableError as error:
        raise Locked(f"the store cannot be used now: {_words(error)}") from error
    except LOST as error:
        raise StoreUnavailable(f"the store cannot be used now: {_words(error)}") from error
    except asyncpg.PostgresError as error:
        raise Declined(f"the store cannot be used now: {_words(error)}") from error


def _stall(seconds: float) -> str:
    return f"{millis(seconds)}ms"


def _beginning(stall_seconds: float) -> str:
    stall = _stall(stall_seconds)
    return (
        "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; "
        f"SET LOCAL lock_timeout = '{stall}'; SET LOCAL idle_in_transaction_session_timeout = '{stall}'; "
        # Whatever is written is named by its key. A plan that was made while a table was small would go on reading all of
        # it, until somebody analyses the table. Where there is no other way, it looks dear, and is not worth compiling.
        "SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; "
        "SET LOCAL enable_bitmapscan = off; SET LOCAL jit = off; "
        # A commit that is acknowledged before it is flushed could be lost without a trace.
        "SELECT set_config('synchronous_commit', 'local', TRUE) WHERE current_setting('synchronous_commit') = 'off'"
    )


def _cut(connection: asyncpg.Connection) -> None:
    """Whatever state it is in, nobody uses it again."""
    with suppress(asyncpg.InterfaceError):  # the driver noticed that it is gone, and took it back
        connection.terminate()


def _words(error: BaseException) -> str:
    """Without the row that PostgreSQL quotes below its message. The first word of the system's errors is a number."""
    said = error if isinstance(error, OSError) or not error.args else error.args[0]
    return str(said) or type(error).__name__
