"""The store on PostgreSQL: any number of nodes, each on connections of its own.

Every procedure is one transaction at READ COMMITTED. What that leaves open is closed by row locks and by guards in the
statements themselves. Nothing is kept in a session, so a pooler may give every transaction another one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from typing import Any, TypeVar

import asyncpg
import structlog

from nonchalant.errors import BadSettings, CommitUnknown, LeaseLost, RowMoved, StoreUnavailable
from nonchalant.history import fact_of
from nonchalant.installation import Installation
from nonchalant.model import Admission, Change, Control, Event, Lease, Request, Stranger, Transaction
from nonchalant.ports import Acceptance, Entropy, Wished
from nonchalant.store import at_once, owning, postgres_schema, rows, wishing
from nonchalant.store.at_once import Owned
from nonchalant.store.connections import BEGINNINGS, STALL_SECONDS, Connections, Declined, Locked, refusals
from nonchalant.store.contract import SqlStore
from nonchalant.store.lines import Lines
from nonchalant.store.room import BELIEVED
from nonchalant.store.statements import Statements
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
    holder,
    millis,
)
from nonchalant.store.together import CommitsLost, Together
from nonchalant.store.wakes import Wakes
from nonchalant.store.whereabouts import Whereabouts
from nonchalant.store.wishing import Found, Line
from nonchalant.store.witness import POSITIONS_SKIPPED
from nonchalant.wishes import Wish
from nonchalant.words import LaneKey, Mode, TxId

log = structlog.get_logger()

T = TypeVar("T")

# Connections of one node. Leases have some of their own: they must be renewed however busy the rest is.
FOR_WORK = 10
FOR_LEASES = 2

# Tellings that get their positions in one commit: some tenth of a second.
NUMBERED_AT_ONCE = 10_000

LOST_COMMITS = "the store has lost commits; every lane is compared with its chain first"


class PostgresStore(SqlStore):
    """`ports.Store` on PostgreSQL."""

    def __init__(
        self,
        *,
        installation: Installation,
        work: Connections,
        leases: Connections,
        wakes: Wakes | None,
    ) -> None:
        super().__init__()
        self.schema = installation.schema
        self.wakes = wakes
        self._work = work
        self._leases = leases
        self._sql = Statements(installation.schema)
        self._together = Together(self._commit_at_once)
        self._lines = Lines(lambda lines: self._read(wishing.queued(lines)))
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
                work, leases = [
                    Connections.open(installation, most, pooled=pooled, stall_seconds=stall_seconds)
                    for most in (FOR_WORK, FOR_LEASES)
                ]
            wakes = None if pooled and listen_url is None else Wakes(direct, installation.schema)
            store = cls(installation=installation, work=work, leases=leases, wakes=wakes)
            opened.push_async_callback(store.close)
            await _persistently(store._look_around)
            if wakes is not None:
                await wakes.start()
            opened.pop_all()
        return store

    async def close(self) -> None:
        if self.wakes is not None:
            await self.wakes.stop()
        await self._together.close()
        for connections in (self._work, self._leases):
            connections.terminate()

    async def declare(self, lanes: Sequence[LaneKey]) -> None:
        await _persistently(lambda: super(PostgresStore, self).declare(lanes))

    # what others are waiting for

    async def accept(self, requests: Sequence[Request], *, limits: Mapping[LaneKey, int]) -> Sequence[Acceptance]:
        answers = await self._accept_at_once(requests, limits) or await super().accept(requests, limits=limits)
        self._wake(*{answer.lane for answer in answers if isinstance(answer, Transaction)})
        return answers

    async def accept_together(
        self, requests: Sequence[Request], *, limits: Mapping[LaneKey, int]
    ) -> Sequence[Acceptance]:
        answers = await self._accept_at_once(requests, limits)
        answers = answers or await super().accept_together(requests, limits=limits)
        self._wake(*{answer.lane for answer in answers if isinstance(answer, Transaction)})
        return answers

    async def _accept_at_once(
        self, requests: Sequence[Request], limits: Mapping[LaneKey, int]
    ) -> Sequence[Acceptance] | None:
        """All of them, in one round trip, which is the whole transaction. None: it is no ordinary case, and nothing was
        accepted."""
        if not at_once.are_ordinary(requests):
            return None
        wanted = Counter(request.lane for request in requests)
        counted_at = self._room.ample_since(wanted, limits)
        if counted_at is None:
            return None
        given = {"counted_at": counted_at, "believed_for": BELIEVED, "stall_for": self._work.patience}
        groups: dict[str, Sequence[Columns]] = {
            "lane_": [lane._asdict() for lane in sorted(wanted)],
            "insert_transaction_": [{"n": n, **rows.request_columns(request)} for n, request in enumerate(requests)],
        }
        statement, values = self._sql.for_groups(at_once.ACCEPT, groups, given)
        try:
            row = await self._work.commit_alone(statement.sql, values)
        except RowMoved:
            return None
        if row["verdict"] != at_once.DONE:
            return None
        places = dict(zip(row["ids"], row["places"], strict=True))
        return [request.accepted(places[request.id], row["found_at"]) for request in requests]

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

    async def commit(self, change: Change, lease: Lease) -> Mapping[TxId, Admission]:
        try:
            if not at_once.is_ordinary(change):
                raise _NotOrdinary
            accepted = await self._together.commit(Owned(change, lease))
        except _NotOrdinary:
            if change.accepted:  # step by step, whoever removes keys would be waited for with the lease locked
                raise RowMoved("what is accepted with its nonce is accepted at once, or not at all") from None
            accepted = await super().commit(change, lease)
        if change.events:
            self._wake()
        return accepted

    async def _commit_at_once(self, commits: Sequence[Owned]) -> Mapping[TxId, Admission]:
        """In one round trip, which is the whole transaction. Of several commits all happen, or none."""
        seen, incarnation = self._seen, self._incarnation
        parts = at_once.parts_of(commits)
        given = {
            **{f"insert_event_{name}": value for name, value in _about(parts["insert_event"]).items()},
            "seen_timeline": None if seen is None else seen.timeline,
            "seen_wal": None if seen is None else seen.wal,
            "seen_home": None if seen is None else seen.home,
            "stall_for": self._work.stall,
        }
        groups: dict[str, Sequence[Columns]] = {f"{part}_": rows for part, rows in parts.items()}
        groups["fence_"] = [holder(lease) for _, lease in commits]
        statement, values = self._sql.for_groups(at_once.COMMIT, groups, given)
        row = await self._work.commit_alone(statement.sql, values)
        found = Whereabouts(None, row["found_timeline"], row["found_wal"], row["found_home"])
        if row["verdict"] == at_once.NOT_ORDINARY:
            raise _NotOrdinary
        if row["verdict"] == at_once.LEASE_LOST:
            lost = " or ".join(f"{lease.lane} at epoch {lease.epoch}" for _, lease in commits)
            raise LeaseLost(f"lease of {lost} is not ours any more")
        if row["verdict"] == at_once.COMMITS_LOST:
            assert seen is not None
            try:
                await self._raise_incarnation(found, incarnation, seen)
            except Declined as error:  # it is of all lanes, and none is tried by itself
                raise StoreUnavailable(str(error)) from error
            raise CommitsLost(LOST_COMMITS)
        self._remember([found], incarnation)
        entries = zip(row["ids"] or (), row["places"] or (), strict=True)
        return {tx_id: Admission(place, row["accepted_at"]) for tx_id, place in entries}

    async def _in_line(self, line: Line) -> Found:
        return await self._lines.find(line)

    def _wake(self, *lanes: LaneKey) -> None:
        if self.wakes is not None:
            self.wakes.tell(lanes)

    # leases

    async def heartbeat(self, owner: str, ttl: float) -> int:
        # Before the question: answers on other connections may overtake this one.
        seen, incarnation, beat = self._seen, self._incarnation, self._sql["beat"]
        with refusals():
            answer = await self._leases.ask_alone(beat.sql, beat.values({"owner": owner, "ttl": millis(ttl)}))
        [row] = answer.rows
        found = Whereabouts.of(row)
        await self._compare(found, row["incarnation"], seen or found, incarnation)
        self._remember([found], incarnation)
        return int(row["live_nodes"])

    async def acquire(self, lane: LaneKey, owner: str, ttl: float) -> int | None:
        try:
            return await self._write(owning.acquire(lane, owner, ttl), leases=True)
        except Locked:
            return None  # whoever holds on to it for so long has it

    async def renew(self, leases: Sequence[Lease], ttl: float) -> Sequence[LaneKey]:
        """All in one statement; those that a transaction had locked one by one, so that none waits for another's."""
        renewed = set(await self._write(owning.renew(leases, ttl), leases=True))
        others = [lease for lease in leases if lease.lane not in renewed]
        locked = await self._write(owning.still_held(others), leases=True) if others else frozenset()
        for lease in others:
            if lease.lane in locked:
                with suppress(Locked):  # not renewed: the caller reads that from what is missing
                    renewed.update(await self._write(owning.renew_one(lease, ttl), leases=True))
        return sorted(renewed)

    async def release(self, leases: Sequence[Lease], owner: str | None = None) -> None:
        await self._write(owning.release(leases, owner), leases=True)
        if self.wakes is not None and leases:
            self.wakes.tell_free(lease.lane for lease in leases)

    # a store that lost commits

    async def _look_around(self) -> None:
        """See where the server stands. A node that starts begins where the store was last seen."""
        found, position = await self._write(_looked())
        # How far its log went then, nobody knows.
        seen = Whereabouts(position["system_identifier"], position["timeline"], 0, position["home"])
        await self._compare(found, position["incarnation"], seen, position["incarnation"])

    async def _compare(self, found: Whereabouts, told: int, seen: Whereabouts, known: int) -> None:
        """Whether the server is where it was seen, and has lost commits no more often than it says."""
        if found.has_lost(seen):
            await self._raise_incarnation(found, known, seen)
            return
        self._incarnation = max(self._incarnation, told)
        self._seen = self._seen or seen

    def _remember(self, places: Sequence[Whereabouts], incarnation: int) -> None:
        """Where the server stood before a commit that it acknowledged; of no use if it was found to have lost some since.

        Not before: the end of its log that is not on disk yet goes in a crash, and no commit with it.
        """
        for place in places:
            if self._seen is not None and incarnation == self._incarnation:
                self._seen = place.since(self._seen)

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

    # how a procedure reaches the database

    async def _write(self, procedure: Procedure[T], *, leases: bool = False) -> T:
        incarnation, passed = self._incarnation, list[Whereabouts]()
        try:
            first = next(procedure)
        except StopIteration as end:
            nothing: T = end.value
            return nothing
        hurried = leases or _locks_a_lease(first)
        try:
            async with (self._leases if leases else self._work).transaction(locks_leases=hurried) as connection:
                result = await self._run(connection, procedure, passed, first)
        except _Lost as loss:
            await self._raise_incarnation(loss.found, loss.incarnation, loss.seen)
            raise LeaseLost(LOST_COMMITS) from None
        self._remember(passed, incarnation)
        return result

    async def _read(self, procedure: Procedure[T]) -> T:
        with refusals():
            return await self._run(None, procedure, [])

    async def _run(
        self,
        connection: asyncpg.Connection | None,
        procedure: Procedure[T],
        passed: list[Whereabouts],
        first: Step | None = None,
    ) -> T:
        """`passed` becomes where the server stood at each fence. `first` is what the procedure waits for, if it has begun."""
        try:
            step = next(procedure) if first is None else first
            while True:
                answer = await self._take(connection, step)
                if isinstance(step, Fence):
                    passed += map(Whereabouts.of, answer.rows)
                step = procedure.send(answer)
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
                statement, values = self._sql.for_each(query, each, common)
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
                each, about = _told(events)
                return await self._take(connection, AskForEach("insert_event", each, about))
            case Number():
                if (await self._take(connection, Ask("unnumbered"))).rows:
                    with suppress(Locked):  # somebody else is at it, or froze there: what has a position can be read
                        while await self._write(_numbered()) == NUMBERED_AT_ONCE:
                            pass
                return Answer()

    async def _ask(
        self,
        connection: asyncpg.Connection | None,
        sql: str,
        values: Sequence[Any],
        gives_rows: bool,
    ) -> Answer:
        if connection is None:
            return await self._work.ask_alone(sql, values)
        if gives_rows:
            found = await connection.fetch(sql, *values)
            return Answer(found, len(found))
        return Answer(count=int((await connection.execute(sql, *values)).rpartition(" ")[2]))


def _told(events: Sequence[Event]) -> tuple[list[Columns], Columns]:
    """The rows of what is told at once, and what is to be known of them."""
    each: list[Columns] = [rows.told_columns(event, fact_of(event)) for event in events]
    return each, _about(each)


def _about(told: Sequence[Columns]) -> Columns:
    """What is to be known of all that is told at once."""
    return {"count": len(told), "repeats": any(columns["fact"] is not None for columns in told)}


class _NotOrdinary(Exception):
    """It takes several steps; nothing was done."""


class _Lost(Exception):
    """Commits that were seen are missing."""

    def __init__(self, found: Whereabouts, seen: Whereabouts, incarnation: int) -> None:
        super().__init__()
        self.found = found
        self.seen = seen
        self.incarnation = incarnation


def _locks_a_lease(first: Step) -> bool:
    """Whoever locks a lease at all does so before anything else."""
    return isinstance(first, Fence) or (isinstance(first, Ask) and first.query == "lock_lane")


def _looked() -> Procedure[tuple[Whereabouts, rows.Row]]:
    """Where the server stands, and where the store was last seen; at its very first start, that is here."""
    here = yield Ask("place")
    found = Whereabouts.of(here.rows[0])
    yield Ask("settle_down", {"system_identifier": found.system, "timeline": found.timeline})
    position = yield Ask("position")
    return found, position.rows[0]


async def _persistently(act: Callable[[], Awaitable[None]]) -> None:
    """What a node does when it starts, and may do twice: on a busy machine it may hold itself up until the server gives up."""
    for _ in range(BEGINNINGS - 1):
        try:
            return await act()
        except (StoreUnavailable, CommitUnknown) as error:
            log.warning("store.begun_anew", reason=str(error))
    return await act()


def _raised(found: Whereabouts, known: int) -> Procedure[int]:
    columns = {"seen": known, "system_identifier": found.system, "timeline": found.timeline}
    raised = yield Ask("raise_incarnation", columns)
    if raised.rows:
        yield Ask("end_leases")
        yield Ask("skip_positions", {"skipped": POSITIONS_SKIPPED})
        return int(raised.rows[0]["incarnation"])
    position = yield Ask("position")
    return int(position.rows[0]["incarnation"])


def _numbered() -> Procedure[int]:
    """Give positions to what is committed, to so many tellings at most; how many there were. Of what tells the same again,
    only the first and the newest stay."""
    locked = yield Ask("lock_numbering")
    last = {"last": locked.rows[0]["last"]}
    # First of all: each of these sees what was committed before it began, and they must mean the same events.
    numbered = yield Ask("number_events", {**last, "limit": NUMBERED_AT_ONCE})
    yield Ask("join_repeats", last)
    yield Ask("drop_repeats", last)
    yield Ask("end_numbering")
    return numbered.count


def _parsed(url: str) -> Installation:
    try:
        return Installation.parse(url)
    except ValueError as error:
        raise BadSettings(f"store: {error}") from None
