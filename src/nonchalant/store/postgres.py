"""The store on PostgreSQL: any number of nodes, each on connections of its own.

Every procedure is one transaction at READ COMMITTED. What that leaves open is closed by row locks and by guards in the
statements themselves. Nothing is kept in a session, so a pooler may give every transaction another one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from typing import Any, TypeVar

import asyncpg
import structlog

from nonchalant.errors import BadSettings, CommitUnknown, LeaseLost, RowMoved, StoreUnavailable
from nonchalant.history import fact_of
from nonchalant.installation import Installation
from nonchalant.model import Change, Control, Event, LaneKey, Lease, Mode, Request, Stranger, Transaction
from nonchalant.ports import Acceptance, Entropy, Wished
from nonchalant.store import owning, postgres_schema, rows
from nonchalant.store.contract import SqlStore
from nonchalant.store.statements import Statements
from nonchalant.store.talk import (
    Answer,
    Ask,
    AskForEach,
    Fence,
    Keys,
    Moment,
    Number,
    Procedure,
    Step,
    Tell,
    holder,
    millis,
)
from nonchalant.store.wakes import Wakes
from nonchalant.store.whereabouts import Whereabouts
from nonchalant.wishes import Wish

log = structlog.get_logger()

T = TypeVar("T")

# Connections of one node. Leases have some of their own: they must be renewed however busy the rest is.
FOR_WORK = 10
FOR_LEASES = 2

# A question that takes longer is given up; the stages ask again.
ANSWER_SECONDS = 10.0

# What keeps a transaction waiting, a lock or a node that does not go on, ends it after this time. It must be shorter than
# the part of a lease at its end in which the owner does not act, or a frozen owner could hold a take-over up.
STALL_SECONDS = 1.0

# How often a transaction is begun anew on another connection: nothing has happened yet.
BEGINNINGS = 3

# What ends a connection, or the use of it.
LOST = (asyncpg.PostgresConnectionError, asyncpg.InterfaceError, OSError, TimeoutError)


class PostgresStore(SqlStore):
    """`ports.Store` on PostgreSQL."""

    def __init__(
        self,
        *,
        installation: Installation,
        work: asyncpg.Pool,
        leases: asyncpg.Pool,
        wakes: Wakes | None,
        stall_seconds: float = STALL_SECONDS,
    ) -> None:
        super().__init__()
        self.schema = installation.schema
        self.wakes = wakes
        self._work = work
        self._leases = leases
        self._sql = Statements(installation.schema)
        stall = f"{millis(stall_seconds)}ms"
        self._begin = (
            "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; "
            f"SET LOCAL lock_timeout = '{stall}'; SET LOCAL idle_in_transaction_session_timeout = '{stall}'"
        )
        self._seen: Whereabouts | None = None
        self._incarnation = 0

    @classmethod
    async def open(
        cls, url: str, *, entropy: Entropy, listen_url: str | None = None, stall_seconds: float = STALL_SECONDS
    ) -> PostgresStore:
        """Reach the server, making the schema if it is missing; one of another version is refused until migrated."""
        installation = _parsed(url)
        direct = installation if listen_url is None else _parsed(listen_url)
        async with AsyncExitStack() as opened:
            with postgres_schema.unreachable(installation):
                pooled = await postgres_schema.prepare(installation, entropy.token())
                work, leases = [await _pool(installation, most, pooled=pooled) for most in (FOR_WORK, FOR_LEASES)]
            wakes = None if pooled and listen_url is None else Wakes(direct, installation.schema)
            store = cls(installation=installation, work=work, leases=leases, wakes=wakes, stall_seconds=stall_seconds)
            opened.push_async_callback(store.close)
            await store._look_around()
            if wakes is not None:
                await wakes.start()
            opened.pop_all()
        return store

    async def close(self) -> None:
        if self.wakes is not None:
            await self.wakes.stop()
        for pool in (self._work, self._leases):
            pool.terminate()

    # what others are waiting for

    async def accept(self, requests: Sequence[Request], *, limits: Mapping[LaneKey, int]) -> Sequence[Acceptance]:
        answers = await super().accept(requests, limits=limits)
        self._wake(*{answer.lane for answer in answers if isinstance(answer, Transaction)})
        return answers

    async def alter_queued(self, tx: Transaction, events: Sequence[Event], twin: Stranger | None = None) -> None:
        await super().alter_queued(tx, events, twin)
        self._wake(tx.lane)

    async def wish(self, wish: Wish, *, limit: int) -> Wished:
        answer = await super().wish(wish, limit=limit)
        self._wake(wish.lane)
        return answer

    async def control(self, lane: LaneKey, mode: Mode, reason: str) -> Control:
        before = await super().control(lane, mode, reason)
        self._wake(lane)
        return before

    async def commit(self, change: Change, lease: Lease) -> None:
        await super().commit(change, lease)
        if change.events:
            self._wake()

    def _wake(self, *lanes: LaneKey) -> None:
        if self.wakes is not None:
            self.wakes.tell(lanes)

    # leases

    async def heartbeat(self, owner: str, ttl: float) -> int:
        await self._look_around()
        return await self._write(owning.heartbeat(owner, ttl), leases=True)

    async def acquire(self, lane: LaneKey, owner: str, ttl: float) -> int | None:
        try:
            return await self._write(owning.acquire(lane, owner, ttl), leases=True)
        except Locked:
            return None  # whoever holds on to it for so long has it

    async def renew(self, leases: Sequence[Lease], ttl: float) -> Sequence[LaneKey]:
        """All in one statement; those that a transaction had locked one by one, so that none waits for another's."""
        renewed = set(await self._write(owning.renew(leases, ttl), leases=True))
        for lease in leases:
            if lease.lane not in renewed:
                with suppress(Locked):
                    renewed.update(await self._write(owning.renew_one(lease, ttl), leases=True))
        return sorted(renewed)

    async def release(self, leases: Sequence[Lease], owner: str | None = None) -> None:
        await self._write(owning.release(leases, owner), leases=True)
        self._wake(*(lease.lane for lease in leases))

    # a store that lost commits

    async def _look_around(self) -> None:
        """See where the server stands, and whether it is where it was."""
        seen, incarnation = self._seen, self._incarnation
        found, position = await self._write(_looked(), leases=True)
        if seen is None:
            # A node that starts begins where the store was last seen; how far its log went then, nobody knows.
            seen = Whereabouts(position["system_identifier"], position["timeline"], 0)
            incarnation = position["incarnation"]
        if found.has_lost(seen):
            await self._raise_incarnation(found, incarnation, seen)
            return
        self._incarnation = max(self._incarnation, position["incarnation"])
        self._seen = found.since(self._seen or found)

    async def _raise_incarnation(self, found: Whereabouts, known: int, seen: Whereabouts) -> None:
        log.error("store.lost_commits", timeline=found.timeline, wal=found.wal, seen=seen.wal)
        self._incarnation = await self._write(_raised(found, known), leases=True)
        self._seen = found

    def _check_fence(self, answer: Answer, seen: Whereabouts | None, incarnation: int) -> None:
        """`_Lost` if the store lost commits since: the copy of the lane in memory is worth nothing."""
        for row in answer.rows:
            found = Whereabouts.of(row)
            if seen is not None and found.has_lost(seen):
                raise _Lost(found, seen, incarnation)
            if self._seen is not None:
                self._seen = found.since(self._seen)

    # how a procedure reaches the database

    async def _write(self, procedure: Procedure[T], *, leases: bool = False) -> T:
        try:
            async with self._transaction(self._leases if leases else self._work) as connection:
                return await self._run(connection, procedure)
        except _Lost as loss:
            await self._raise_incarnation(loss.found, loss.incarnation, loss.seen)
            raise LeaseLost("the store has lost commits; every lane is compared with its chain first") from None

    @asynccontextmanager
    async def _transaction(self, pool: asyncpg.Pool) -> AsyncIterator[asyncpg.Connection]:
        with _refusals():
            connection = await self._begun(pool)
        try:
            try:
                with _refusals():
                    yield connection
            except BaseException:
                await _roll_back(connection)
                raise
            await _commit(connection)
        finally:
            await pool.release(connection)

    async def _begun(self, pool: asyncpg.Pool) -> asyncpg.Connection:
        """A connection with a transaction on it. One that turns out to be dead is replaced: nothing has happened yet."""
        for beginning in range(1, BEGINNINGS + 1):
            connection = await pool.acquire(timeout=ANSWER_SECONDS)
            try:
                await connection.execute(self._begin)
            except BaseException as error:
                _cut(connection)
                await pool.release(connection)
                if not isinstance(error, LOST) or beginning == BEGINNINGS:
                    raise
            else:
                return connection
        raise AssertionError("the last beginning returns or raises")

    async def _read(self, procedure: Procedure[T]) -> T:
        with _refusals():
            return await self._run(None, procedure)

    async def _run(self, connection: asyncpg.Connection | None, procedure: Procedure[T]) -> T:
        try:
            step = next(procedure)
            while True:
                step = procedure.send(await self._take(connection, step))
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            procedure.close()

    async def _take(self, connection: asyncpg.Connection | None, step: Step) -> Answer:
        match step:
            case Ask(query, columns, narrow):
                given = frozenset(columns)
                statement = self._sql.narrowed(query, given) if narrow else self._sql[query]
                return await self._ask(connection, statement.sql, statement.values(columns), statement.gives_rows)
            case AskForEach(query, each, common):
                statement = self._sql[query]
                values = statement.values_of_each(each, common)
                return await self._ask(connection, statement.sql, values, statement.gives_rows)
            case Fence(lease):
                # Before the question: answers on other connections may overtake this one.
                seen, incarnation = self._seen, self._incarnation
                answer = await self._take(connection, Ask("fence", holder(lease)))
                self._check_fence(answer, seen, incarnation)
                return answer
            case Moment():
                return await self._take(connection, Ask("moment"))
            case Keys(alone):
                return await self._take(connection, Ask("own_keys" if alone else "share_keys"))
            case Tell(events):
                each = [{**rows.event_columns(event), "fact": fact_of(event)} for event in events]
                return await self._take(connection, AskForEach("insert_event", each))
            case Number():
                if (await self._take(connection, Ask("unnumbered"))).rows:
                    await self._write(_numbered())
                return Answer()

    async def _ask(
        self,
        connection: asyncpg.Connection | None,
        sql: str,
        values: Sequence[Any],
        gives_rows: bool,
    ) -> Answer:
        if connection is None:
            return await self._ask_alone(sql, values)
        if gives_rows:
            found = await connection.fetch(sql, *values)
            return Answer(found, len(found))
        return Answer(count=int((await connection.execute(sql, *values)).rpartition(" ")[2]))

    async def _ask_alone(self, sql: str, values: Sequence[Any]) -> Answer:
        """A statement that only reads, outside of any transaction. It is asked again if its connection was lost."""
        for beginning in range(1, BEGINNINGS + 1):
            connection = await self._work.acquire(timeout=ANSWER_SECONDS)
            try:
                found = await connection.fetch(sql, *values)
                return Answer(found, len(found))
            except LOST:
                _cut(connection)
                if beginning == BEGINNINGS:
                    raise
            finally:
                await self._work.release(connection)
        raise AssertionError("the last question returns or raises")


class Locked(StoreUnavailable):
    """Somebody else's transaction holds what this one needs; nothing happened."""


class _Lost(Exception):
    """Commits that were seen are missing."""

    def __init__(self, found: Whereabouts, seen: Whereabouts, incarnation: int) -> None:
        super().__init__()
        self.found = found
        self.seen = seen
        self.incarnation = incarnation


def _looked() -> Procedure[tuple[Whereabouts, rows.Row]]:
    """Where the server stands, and where the store was last seen; at its very first start, that is here."""
    here = yield Ask("place")
    found = Whereabouts.of(here.rows[0])
    yield Ask("settle_down", {"system_identifier": found.system, "timeline": found.timeline})
    position = yield Ask("position")
    return found, position.rows[0]


def _raised(found: Whereabouts, known: int) -> Procedure[int]:
    columns = {"seen": known, "system_identifier": found.system, "timeline": found.timeline}
    raised = yield Ask("raise_incarnation", columns)
    if raised.rows:
        yield Ask("end_leases")
        return int(raised.rows[0]["incarnation"])
    position = yield Ask("position")
    return int(position.rows[0]["incarnation"])


def _numbered() -> Procedure[None]:
    """Give positions to what is committed. Of what tells the same again, only the first and the newest stay."""
    locked = yield Ask("lock_numbering")
    yield Ask("join_repeats")
    yield Ask("drop_repeats")
    numbered = yield Ask("number_events", {"last": locked.rows[0]["last"]})
    yield Ask("end_numbering", {"numbered": numbered.count})


def _cut(connection: asyncpg.Connection) -> None:
    """Whatever state it is in, nobody uses it again."""
    with suppress(asyncpg.InterfaceError):  # the driver noticed that it is gone, and took it back
        connection.terminate()


async def _commit(connection: asyncpg.Connection) -> None:
    try:
        said = await connection.execute("COMMIT")
    except asyncpg.PostgresError as error:
        if getattr(error, "severity_en", error.severity) == "ERROR":
            raise StoreUnavailable(f"the store refused the commit: {error}") from error
        _cut(connection)
        raise CommitUnknown(f"the commit did not report back: {error}") from error
    except LOST as error:
        _cut(connection)
        raise CommitUnknown(f"the commit did not report back: {str(error) or type(error).__name__}") from error
    if said != "COMMIT":
        raise StoreUnavailable("the store rolled the transaction back")


async def _roll_back(connection: asyncpg.Connection) -> None:
    """What cannot be rolled back is cut off: the server rolls back what it has of it."""
    try:
        await connection.execute("ROLLBACK")
    except (asyncpg.PostgresError, *LOST):
        _cut(connection)


@contextmanager
def _refusals() -> Iterator[None]:
    """What PostgreSQL and its driver say, in our words. Nothing happened."""
    try:
        yield
    except asyncpg.IntegrityConstraintViolationError as error:
        raise RowMoved(f"the database refused the change: {error}") from error
    except asyncpg.DataError as error:
        # A value that no retry makes storable: whoever gave it has to know.
        raise ValueError(f"the database cannot keep this: {error}") from error
    except asyncpg.LockNotAvailableError as error:
        raise Locked(f"the store cannot be used now: {error}") from error
    except (asyncpg.PostgresError, *LOST) as error:
        raise StoreUnavailable(f"the store cannot be used now: {str(error) or type(error).__name__}") from error


def _parsed(url: str) -> Installation:
    try:
        return Installation.parse(url)
    except ValueError as error:
        raise BadSettings(f"store: {error}") from None


async def _no_reset(_: object) -> None:
    """Nothing is kept in a session, so there is nothing to reset: it would cost a round trip each time."""


async def _pool(installation: Installation, most: int, *, pooled: bool) -> asyncpg.Pool:
    return await asyncpg.create_pool(
        installation.dsn,
        min_size=1,
        max_size=most,
        max_inactive_connection_lifetime=300.0,
        command_timeout=ANSWER_SECONDS,
        timeout=ANSWER_SECONDS,
        # A pooler gives every transaction another session, which does not know what was prepared on the last one.
        statement_cache_size=0 if pooled else 1_000,
        max_cached_statement_lifetime=0,
        reset=_no_reset,
        server_settings={"application_name": "nonchalant"},
    )
