"""The real store, with the checker looking over its shoulder."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

from nonchalant.model import Admission, Change, Control, Event, Lease, Request, Stranger, Transaction
from nonchalant.ports import Acceptance, Clock, Loaded, Wished
from nonchalant.store.migrations import create
from nonchalant.store.sqlite import SqliteStore, prepare
from nonchalant.store.witness import Witness
from nonchalant.wishes import Wish
from nonchalant.words import LaneKey, Mode, TxId

T = TypeVar("T")


class Auditor(Protocol):
    """Who is told of every commit, with nothing happening between the commit and the telling."""

    def accepted(self, requests: Sequence[Request], answers: Sequence[Acceptance]) -> None: ...

    def acquired(self, who: str, lane: LaneKey, epoch: int) -> None: ...

    def committing(self, who: str, lease: Lease) -> None:
        """Just before the store is asked to commit in the name of this lease."""

    def committed(self, who: str, change: Change, lease: Lease) -> None: ...

    def asked(self, change: Change, lease: Lease) -> None:
        """An owner hands a change over; whether and when it is committed is another matter."""

    def loaded(self, lease: Lease) -> None:
        """The owner has read the lane in the name of this lease."""

    def altered(self, who: str, tx: Transaction, events: Sequence[Event]) -> None:
        """A queued transaction was changed from outside its lane."""

    def wished(self, who: str, wish: Wish) -> None:
        """A wish was written down, for the lane's owner to find."""

    def controlled(self, who: str, lane: LaneKey, mode: Mode) -> None: ...

    def halted(self, who: str, chain_id: int, reason: str) -> None:
        """All lanes of the chain are to stop, because finality broke."""


class SimWitness:
    """Remembers how far the store had come, and outlives it; a fault may make it forget."""

    def __init__(self) -> None:
        self._seen: tuple[str, int] | None = None

    def seen(self) -> tuple[str, int] | None:
        return self._seen

    def saw(self, store_id: str, commits: int) -> None:
        self._seen = store_id, commits

    def forget(self) -> None:
        self._seen = None


def new_database(store_id: str) -> sqlite3.Connection:
    connection = _connect()
    create(connection, store_id)
    return connection


def older_database(copy: bytes) -> sqlite3.Connection:
    connection = _connect()
    connection.deserialize(copy)
    return connection


def _connect() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None, cached_statements=256)
    prepare(connection)
    return connection


class WatchedStore(SqliteStore):
    """One node's access to the database that all nodes share. SQLite is called in place: each call is one instant."""

    def __init__(
        self,
        who: str,
        connection: sqlite3.Connection,
        clock: Clock,
        witness: Witness,
        auditor: Auditor,
        refuse: Callable[[Change], None] = lambda _change: None,
    ) -> None:
        super().__init__(
            writer=connection,
            reader=connection,
            offload_write=_in_place,
            offload_read=_in_place,
            clock=clock,
            witness=witness,
        )
        self._who = who
        self._auditor = auditor
        self._refuse = refuse  # raises, for what it will not have written

    async def accept(self, requests: Sequence[Request], *, limits: Mapping[LaneKey, int]) -> Sequence[Acceptance]:
        answers = await super().accept(requests, limits=limits)
        self._auditor.accepted(requests, answers)
        return answers

    async def accept_together(
        self, requests: Sequence[Request], *, limits: Mapping[LaneKey, int]
    ) -> Sequence[Acceptance]:
        answers = await super().accept_together(requests, limits=limits)
        if all(isinstance(answer, Transaction) for answer in answers):
            self._auditor.accepted(requests, answers)
        return answers

    async def acquire(self, lane: LaneKey, owner: str, ttl: float) -> int | None:
        epoch = await super().acquire(lane, owner, ttl)
        if epoch is not None:
            self._auditor.acquired(self._who, lane, epoch)
        return epoch

    async def load(self, lease: Lease) -> Loaded:
        loaded = await super().load(lease)
        self._auditor.loaded(lease)
        return loaded

    def asked(self, change: Change, lease: Lease) -> None:
        self._auditor.asked(change, lease)

    async def alter_queued(self, tx: Transaction, events: Sequence[Event], twin: Stranger | None = None) -> None:
        await super().alter_queued(tx, events, twin)
        self._auditor.altered(self._who, tx, events)

    async def wish(self, wish: Wish, *, limit: int) -> Wished:
        answer = await super().wish(wish, limit=limit)
        if answer is Wished.TAKEN:
            self._auditor.wished(self._who, wish)
        return answer

    async def control(self, lane: LaneKey, mode: Mode, reason: str) -> Control:
        before = await super().control(lane, mode, reason)
        self._auditor.controlled(self._who, lane, mode)
        return before

    async def halt(self, chain_id: int, reason: str) -> None:
        await super().halt(chain_id, reason)
        self._auditor.halted(self._who, chain_id, reason)

    async def commit(self, change: Change, lease: Lease) -> Mapping[TxId, Admission]:
        self._refuse(change)
        self._auditor.committing(self._who, lease)
        entries = await super().commit(change, lease)
        admitted = [request.accepted(*entries[request.id]) for request in change.accepted]
        self._auditor.accepted(change.accepted, admitted)
        self._auditor.committed(self._who, change, lease)
        return entries


async def _in_place(act: Callable[[], T]) -> T:
    return act()
