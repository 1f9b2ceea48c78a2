"""The store on SQLite: one file, write-ahead log, one writer at a time, every acknowledged commit on disk.

Several processes may open the same file; leases fence them off from each other as on any other store. The connection
is used off the event loop, through an injected offload: a thread of its own in production, in place in the simulator.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import structlog

from nonchalant.errors import BadSettings, CommitUnknown, LeaseLost, MayHaveRun, RowMoved, StoreUnavailable, Unreadable
from nonchalant.history import fact_of, repeated
from nonchalant.model import (
    Attempt,
    Attention,
    Change,
    Control,
    Event,
    Hash,
    LaneKey,
    Lease,
    Millis,
    Mode,
    Receipt,
    Reply,
    Request,
    Slot,
    SlotKind,
    State,
    Transaction,
    TxId,
    Wanted,
)
from nonchalant.ports import (
    Acceptance,
    Clock,
    Draining,
    Duplicate,
    Entropy,
    Filter,
    FirstOpen,
    Illegible,
    KeyTaken,
    LaneSummary,
    LaneWork,
    Loaded,
    NoRoom,
    Offload,
    OpenWish,
    Orders,
    Overdue,
    Removed,
    Reserved,
    Standing,
    Wished,
)
from nonchalant.store import migrations, queries, retention, rows
from nonchalant.store.witness import FileWitness, Witness, notice_restore
from nonchalant.wishes import Wish

log = structlog.get_logger()

T = TypeVar("T")

# How long a writer waits for another process's commit before it gives up.
BUSY_SECONDS = 5.0

# The depth of a lane that takes nothing new.
CLOSED = -1

# Wishes an owner reads in one go, and those that whoever looks at the lane is shown.
WISHES_AT_ONCE = 500
WISHES_SHOWN = 100


class SqliteStore:
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
        on_close: Callable[[], None] = lambda: None,
    ) -> None:
        self._writer = writer
        self._reader = reader
        self._offload_write = offload_write
        self._offload_read = offload_read
        self._clock = clock
        self._witness = witness
        self._on_close = on_close
        self._witness_fails = False
        self._unreadable: set[tuple[str, object]] = set()  # rows that were warned of: once is enough
        self._sql = queries.load("sqlite")
        self._store_id = str(self._one("position")["store_id"])

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
        except BaseException:
            reader.close()
            writer.close()
            raise
        threads = [ThreadPoolExecutor(1, thread_name_prefix=f"sqlite-{use}") for use in ("write", "read")]

        def shut() -> None:
            for thread in threads:
                thread.shutdown(wait=True)
            reader.close()
            writer.close()
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

    # intake

    async def accept(self, requests: Sequence[Request], *, limits: Mapping[LaneKey, int]) -> Sequence[Acceptance]:
        def act(now: int) -> list[Acceptance]:
            depths: dict[LaneKey, int] = {}
            return [self._accept_one(request, depths, limits[request.lane], now) for request in requests]

        return await self._write(act)

    def _accept_one(self, request: Request, depths: dict[LaneKey, int], limit: int, now: int) -> Acceptance:
        lane = request.lane
        if lane not in depths:
            depths[lane] = self._depth(lane, limit)
        if depths[lane] == CLOSED:
            return self._known(request) or Draining()
        if request.valid_until is not None and request.valid_until <= now:
            return self._known(request) or Overdue()
        if depths[lane] >= limit:
            return self._known(request) or NoRoom()
        row = self._run("insert_transaction", **rows.request_columns(request), now=now).fetchone()
        if row is None:
            known = self._known(request)
            assert known is not None
            return known
        depths[lane] += 1
        self._tell(Event(kind="tx.accepted", lane=lane, at=now, tx_id=request.id))
        return rows.accepted(request, row["place"], now)

    def _depth(self, lane: LaneKey, limit: int) -> int:
        """How many wait in the lane, or `CLOSED`."""
        if rows.control(self._run("control", **lane._asdict()).fetchone()).mode is Mode.DRAINING:
            return CLOSED
        return self._scalar("queue_depth", **lane._asdict(), limit=limit)

    def _known(self, request: Request) -> Acceptance | None:
        key = request.idempotency_key
        row = self._run("known_request", id=request.id, tenant=request.tenant, idempotency_key=key).fetchone()
        if row is None:
            return self._removed(request)
        if row["id"] != request.id and row["body_hash"] != request.body_hash:
            return KeyTaken()
        try:
            known = rows.transaction(row)
        except rows.UNDECODABLE:
            self._warn("tx", row["id"])
            return Illegible(row["id"])
        # With our own id it is our own commit, whose outcome we had not learnt.
        return known if known.id == request.id else Duplicate(known)

    def _removed(self, request: Request) -> Removed | KeyTaken | None:
        key = request.idempotency_key
        row = self._run("removed_request", tenant=request.tenant, idempotency_key=key).fetchone()
        if row is None:
            return None
        return Removed(row["id"]) if row["body_hash"] == request.body_hash else KeyTaken()

    async def declare(self, lanes: Sequence[LaneKey]) -> None:
        def act(_: int) -> None:
            for lane in lanes:
                self._run("declare_lane", **lane._asdict())
                self._run("declare_lease", **lane._asdict())

        await self._write(act)

    async def incarnation(self) -> int:
        return await self._read(lambda: int(self._one("position", self._reader)["incarnation"]))

    # ownership

    async def lanes_with_work(self, *, marked: bool = False) -> Sequence[LaneWork]:
        def act() -> list[LaneWork]:
            found = self._all("lanes_with_work", now=self._clock.now(), marked=int(marked))
            return [LaneWork(LaneKey(row["chain_id"], row["address"]), row["owner"]) for row in found]

        return await self._read(act)

    async def heartbeat(self, owner: str, ttl: float) -> int:
        def act(now: int) -> int:
            self._run("heartbeat", owner=owner, expires_at=now + _millis(ttl))
            self._run("forget_dead_nodes", now=now)
            return self._scalar("live_nodes", now=now)

        return await self._write(act)

    async def acquire(self, lane: LaneKey, owner: str, ttl: float) -> int | None:
        def act(now: int) -> int | None:
            row = self._run(
                "acquire_lease", **lane._asdict(), owner=owner, now=now, expires_at=now + _millis(ttl)
            ).fetchone()
            if row is None:
                return None
            event = Event(kind="lane.lease", lane=lane, at=now, data={"owner": owner, "epoch": row["epoch"]})
            self._tell(event)
            return int(row["epoch"])

        return await self._write(act)

    async def renew(self, leases: Sequence[Lease], ttl: float) -> Sequence[LaneKey]:
        def act(now: int) -> list[LaneKey]:
            expires_at = now + _millis(ttl)
            return [
                lease.lane
                for lease in leases
                if self._run("renew_lease", **_holder(lease), now=now, expires_at=expires_at).rowcount
            ]

        return await self._write(act)

    async def release(self, leases: Sequence[Lease], owner: str | None = None) -> None:
        def act(_: int) -> None:
            for lease in leases:
                self._run("release_lease", **_holder(lease))
            if owner is not None:
                self._run("release_node", owner=owner)

        await self._write(act)

    # what people want

    async def alter_queued(self, tx: Transaction, events: Sequence[Event]) -> None:
        def act(_: int) -> None:
            if not tx.live:
                deeds = rows.to_json(sorted(tx.deeds))
                if self._run("may_have_run", **tx.lane._asdict(), deeds=deeds).fetchone() is not None:
                    raise MayHaveRun(
                        f"nobody can say yet whether {tx.id} ran: the store lost commits, and its lane is being compared "
                        "with the chain; ask again"
                    )
            self._expect_one("alter_queued", rows.transaction_columns(tx) | rows.wish_columns(tx))
            for event in events:
                self._tell(event)

        await self._write(act)

    async def overdue(self, *, limit: int) -> Sequence[Transaction]:
        def act() -> list[sqlite3.Row]:
            incarnation = self._one("position", self._reader)["incarnation"]
            return self._all("overdue", now=self._clock.now(), incarnation=incarnation, limit=limit)

        found = await self._read(act)
        overdue = self._readable_transactions(found)
        legible = {tx.id for tx in overdue}
        illegible = [row for row in found if row["id"] not in legible]
        if illegible:
            await self._expire_undecodable(illegible)
        return overdue

    async def _expire_undecodable(self, overdue: Sequence[sqlite3.Row]) -> None:
        """Nobody needs to read what they ask for to know that it is not wanted any more."""

        def act(now: int) -> None:
            for row in overdue:
                if self._run("expire_queued", id=row["id"], now=now).rowcount:
                    lane = LaneKey(row["chain_id"], row["address"])
                    self._tell(Event(kind="tx.expired", lane=lane, at=now, tx_id=row["id"]))

        await self._write(act)

    async def wish(self, wish: Wish, *, limit: int) -> Wished:
        def act(now: int) -> Wished:
            if self._run("wish", id=wish.id).fetchone() is not None:
                return Wished.TAKEN  # our own commit, whose outcome we had not learnt
            if self._scalar("count_wishes", **wish.lane._asdict(), limit=limit) >= limit:
                return Wished.TOO_MANY
            taken = self._run("insert_wish", **rows.wish_row(wish), now=now).rowcount
            return Wished.TAKEN if taken else Wished.NOT_NOW

        return await self._write(act)

    async def reply(self, wish_id: str) -> Reply | None:
        found = await self._read(lambda: self._all("wish", id=wish_id))
        if not found or found[0]["reply"] is None:
            return None
        try:
            return rows.reply(found[0]["reply"])
        except rows.UNDECODABLE:
            return Reply("undecodable", {"reason": "the answer cannot be read in the store; look what became of it"})

    async def withdraw(self, wish_id: str) -> bool:
        def act(_: int) -> bool:
            self._run("withdraw_wish", id=wish_id)
            return self._run("wish", id=wish_id).fetchone() is None

        return await self._write(act)

    async def forget_replies(self, *, older_than: Millis) -> int:
        return await self._write(lambda now: self._run("forget_replies", before=now - older_than).rowcount)

    async def forget_settled(self, *, older_than: Millis, limit: int) -> bool:
        def act(now: int) -> bool:
            incarnation = int(self._one("position")["incarnation"])
            return retention.forget(self._run, before=now - older_than, now=now, incarnation=incarnation, limit=limit)

        return await self._write(act)

    async def control(self, lane: LaneKey, mode: Mode, reason: str) -> Control:
        def act(now: int) -> Control:
            before = rows.control(self._run("control", **lane._asdict()).fetchone())
            self._put_control(lane, Control(mode, reason, now))
            return before

        return await self._write(act)

    async def halt(self, chain_id: int, reason: str) -> None:
        def act(now: int) -> None:
            for row in self._run("lanes_of_chain", chain_id=chain_id).fetchall():
                lane = LaneKey(chain_id, row["address"])
                before = rows.control(self._run("control", **lane._asdict()).fetchone())
                if before.mode is not Mode.HALTED:
                    self._put_control(lane, Control(Mode.HALTED, reason, now))

        await self._write(act)

    def _put_control(self, lane: LaneKey, after: Control) -> None:
        if after.mode is Mode.OPEN:
            self._run("believe_chain", **lane._asdict())
        columns = {"mode": after.mode.value, "reason": after.reason, "now": after.since}
        if self._run("put_control", **lane._asdict(), **columns).rowcount == 0:
            return  # it is halted, and stays so
        told = Event(
            kind="lane.resumed" if after.mode is Mode.OPEN else "lane.paused",
            lane=lane,
            at=after.since,
            data={"mode": after.mode.value, "reason": after.reason},
        )
        self._tell(told)

    # the owner's work

    async def orders(self, lane: LaneKey) -> Orders:
        def act() -> tuple[Control, list[sqlite3.Row]]:
            found = self._all("control", **lane._asdict())
            return rows.control(found[0] if found else None), self._all(
                "open_wishes", **lane._asdict(), limit=WISHES_AT_ONCE
            )

        control, found = await self._read(act)
        wishes: list[Wish] = []
        broken: list[str] = []
        for row in found:
            try:
                wishes.append(rows.a_wish(row))
            except rows.UNDECODABLE:
                self._warn("wish", row["id"])
                broken.append(row["id"])
        if broken:
            await self._refuse_undecodable(lane, broken)
        return Orders(control, wishes)

    async def _refuse_undecodable(self, lane: LaneKey, broken: Sequence[str]) -> None:
        """A wish that cannot be read is answered, or it would be work for ever. Whoever made it can make it again."""
        no = rows.reply_text(Reply("undecodable", {"reason": "its row in the store cannot be read; ask again"}))

        def act(_: int) -> None:
            for wish_id in broken:
                self._run("reply_to_wish", id=wish_id, **lane._asdict(), reply=no)

        await self._write(act)

    async def load(self, lease: Lease) -> Loaded:
        def act(now: int) -> Loaded:
            self._fence(lease, now)
            lane = lease.lane._asdict()
            attempts: dict[int, list[Attempt]] = {}
            signed: dict[TxId | None, list[Attempt]] = {}
            for row in self._run("load_attempts", **lane):
                attempt = self._attempt(row)
                attempts.setdefault(attempt.nonce, []).append(attempt)
                signed.setdefault(attempt.tx_id, []).append(attempt)
            transactions = {
                row["id"]: self._with_a_slot(row, signed.get(row["id"], ()), now)
                for row in self._run("load_transactions", **lane)
            }
            slots = [
                self._slot(
                    row,
                    attempts.get(row["nonce"], ()),
                    transactions[row["tx_id"]].receipt if row["tx_id"] else self._filler_receipt(row),
                )
                for row in self._run("load_slots", **lane)
            ]
            record = rows.lane_record(self._run("load_lane", **lane).fetchone())
            strangers = [rows.stranger(row) for row in self._run("load_strangers", **lane)]
            return Loaded(record, slots, list(transactions.values()), strangers, now)

        return await self._write(act)

    def _attempt(self, row: sqlite3.Row) -> Attempt:
        try:
            return rows.attempt(row)
        except rows.UNDECODABLE:
            self._warn("attempt", row["hash"])
            return rows.attempt_stand_in(dict(row))

    def _slot(self, row: sqlite3.Row, attempts: Sequence[Attempt], receipt: Receipt | None) -> Slot:
        try:
            return rows.slot(row, attempts, receipt)
        except rows.UNDECODABLE:
            self._warn("slot", row["nonce"])
            return rows.slot_stand_in(row, attempts, receipt)

    def _with_a_slot(self, row: sqlite3.Row, signed: Sequence[Attempt], now: int) -> Transaction:
        try:
            return rows.with_payloads_of(rows.transaction(row), signed)
        except rows.UNDECODABLE:
            self._warn("tx", row["id"])
            return rows.stand_in(dict(row), signed, now)

    def _filler_receipt(self, row: sqlite3.Row) -> Receipt | None:
        try:
            return rows.receipt(row["receipt"])
        except rows.UNDECODABLE:
            self._warn("filler", row["nonce"])
            return None  # the owner finds it on the chain again

    async def queued(self, lane: LaneKey, *, limit: int, skip: Collection[TxId] = ()) -> Sequence[Transaction]:
        def act() -> tuple[list[Transaction], list[TxId]]:
            good: list[Transaction] = []
            broken: list[TxId] = []
            asked = {"limit": limit, "skip": rows.to_json(list(skip)), "now": self._clock.now()}
            for row in self._all("queued", **lane._asdict(), **asked):
                try:
                    good.append(rows.transaction(row))
                except rows.UNDECODABLE:
                    broken.append(row["id"])
            return good, broken

        good, broken = await self._read(act)
        if broken:
            await self._hold_undecodable(lane, broken)
        return good

    async def _hold_undecodable(self, lane: LaneKey, broken: Sequence[TxId]) -> None:
        """A row that cannot be read leaves the line, with a mark: it must not stop what is behind it."""

        def act(now: int) -> None:
            mark = Attention("undecodable", "its row in the store cannot be read; restore it, or send it anew", now)
            for tx_id in broken:
                self._run("hold_queued", id=tx_id, attention=rows.attention_text(mark), now=now)
                self._tell(Event(kind="tx.held", lane=lane, at=now, tx_id=tx_id, data={"code": mark.code}))

        await self._write(act)

    async def marked(self, lane: LaneKey, *, limit: int, after: int = 0) -> Sequence[Transaction]:
        def page(start: int | None, limit: int) -> list[sqlite3.Row]:
            return self._all("marked", **lane._asdict(), after=start, limit=limit)

        return await self._read(lambda: self._full_page(page, "place", after, limit, self._readable_transactions))

    async def has_queued_before(self, tx: Transaction) -> bool:
        found = await self._read(lambda: self._all("queued_before", **tx.lane._asdict(), place=tx.place))
        return bool(found)

    async def known_attempts(self, hashes: Sequence[Hash]) -> frozenset[Hash]:
        return await self._read(lambda: frozenset(hash for hash in hashes if self._all("knows_attempt", hash=hash)))

    async def commit(self, change: Change, lease: Lease) -> None:
        await self._write(lambda now: self._commit(change, lease, now))

    def _commit(self, change: Change, lease: Lease, now: int) -> None:
        self._fence(lease, now)
        lane = lease.lane
        for nonce in change.freed:
            self._expect_one("free_slot", {**lane._asdict(), "nonce": nonce})
        for tx in change.transactions:
            self._expect_one("update_transaction", {**rows.transaction_columns(tx), **lane._asdict(), "now": now})
            if tx.id in change.rewritten:
                self._expect_one("rewrite_transaction", rows.wish_columns(tx))
        if change.unsettled_from is not None:
            self._run("unsettle_slots", **lane._asdict(), nonce=change.unsettled_from)
            # Before the slots: they may be bound below what was final until now.
            assert change.lane is not None
            self._expect_one("update_lane", {**rows.lane_columns(change.lane), **lane._asdict()})
        for slot in change.slots:
            self._expect_one("put_slot", {**rows.slot_columns(slot, lane), "now": now})
        for attempt in change.attempts:
            self._expect_one("insert_attempt", rows.attempt_columns(attempt, lane))
        for attempt in change.answered:
            self._expect_one("answer_attempt", rows.attempt_columns(attempt, lane))
        # After the slots: what this change settles is still above the bound that it may raise.
        if change.lane is not None:
            self._expect_one("update_lane", {**rows.lane_columns(change.lane), **lane._asdict()})
        for stranger in change.strangers:
            self._run("put_stranger", **rows.stranger_columns(stranger, lane), now=now)
        for wish_id, reply in change.granted.items():
            self._expect_one("reply_to_wish", {"id": wish_id, **lane._asdict(), "reply": rows.reply_text(reply)})
        for event in change.events:
            self._tell(event)

    def _tell(self, event: Event) -> None:
        """Write an event down. Of those that tell the same again, only the first and the newest stay."""
        fact = fact_of(event)
        first = None if fact is None else self._run("first_told", fact=fact).fetchone()
        if first is not None:
            dropped = self._run("drop_repeats", fact=fact, first=first["position"]).fetchall()
            times = max(row["times"] for row in (first, *dropped)) + 1
            event = repeated(event, times, first["at"] if first["since"] is None else first["since"])
        self._run("insert_event", **rows.event_columns(event), fact=fact)

    def _fence(self, lease: Lease, now: int) -> None:
        if self._run("fence", **_holder(lease), now=now).fetchone() is None:
            raise LeaseLost(f"lease of {lease.lane} at epoch {lease.epoch} is not ours any more")

    def _expect_one(self, query: str, columns: dict[str, object]) -> None:
        if self._run(query, **columns).rowcount != 1:
            raise RowMoved(f"{query}: {columns.get('id') or columns.get('nonce')} is not as it was read")

    # reading

    async def transaction(self, tx_id: TxId) -> Transaction | None:
        found = await self._read(lambda: self._all("transaction", id=tx_id))
        try:
            return rows.transaction(found[0]) if found else None
        except rows.UNDECODABLE as error:
            raise Unreadable(f"the row of transaction {tx_id} cannot be read; restore it: {error}") from error

    async def transactions(self, filter: Filter) -> Sequence[Transaction]:
        columns = {
            "state": filter.state and filter.state.value,
            "chain_id": filter.chain_id,
            "address": filter.sender,
            "nonce": filter.nonce,
            "hash": filter.hash,
            "idempotency_key": filter.idempotency_key,
            "live": filter.live or None,
            "before": filter.before,
            "limit": filter.limit,
        }
        asked = {column: value for column, value in columns.items() if value is not None}

        def page(before: int | None, limit: int) -> list[sqlite3.Row]:
            columns = asked | {"limit": limit} | ({} if before is None else {"before": before})
            query = queries.narrowed(self._sql["transactions"], columns.keys())
            return self._reader.execute(query, columns).fetchall()

        def act() -> list[Transaction]:
            return self._full_page(page, "place", filter.before, filter.limit, self._readable_transactions)

        return await self._read(act)

    async def standings(self, transactions: Sequence[Transaction], *, limit: int) -> Mapping[TxId, Standing]:
        def act() -> dict[TxId, Standing]:
            live = [tx for tx in transactions if tx.live]
            first = {lane: self._first_open(lane) for lane in {tx.lane for tx in live}}
            return {tx.id: replace(self._standing(tx, limit), first=first[tx.lane]) for tx in live}

        return await self._read(act)

    def _first_open(self, lane: LaneKey) -> FirstOpen | None:
        found = self._all("first_open_slot", **lane._asdict())
        return FirstOpen(found[0]["nonce"], SlotKind(found[0]["kind"]), found[0]["tx_id"]) if found else None

    def _standing(self, tx: Transaction, limit: int) -> Standing:
        if tx.state is State.QUEUED:
            if tx.held:
                return Standing()
            [counted] = self._all(
                "queued_ahead", **tx.lane._asdict(), priority=tx.priority, place=tx.place, limit=limit + 1
            )
            return Standing(ahead=counted["n"])
        found = self._all("slot_of_transaction", tx_id=tx.id)
        return (
            Standing(wanted=Wanted(found[0]["wanted"]), payload_version=found[0]["payload_version"])
            if found
            else Standing()
        )

    async def attempts(self, tx_ids: Sequence[TxId]) -> Mapping[TxId, Sequence[Attempt]]:
        return await self._read(
            lambda: {tx_id: [self._attempt(row) for row in self._all("attempts", tx_id=tx_id)] for tx_id in tx_ids}
        )

    async def history(self, tx_id: TxId) -> Sequence[Event]:
        return await self._read(lambda: self._readable_events(self._all("history", tx_id=tx_id)))

    async def events_after(self, position: int, *, limit: int) -> Sequence[Event]:
        def page(after: int | None, limit: int) -> list[sqlite3.Row]:
            return self._all("events_after", position=after, limit=limit)

        return await self._read(lambda: self._full_page(page, "position", position, limit, self._readable_events))

    def _full_page(
        self,
        page: Callable[[int | None, int], list[sqlite3.Row]],
        cursor: str,
        start: int | None,
        limit: int,
        readable: Callable[[Iterable[sqlite3.Row]], list[T]],
    ) -> list[T]:
        """Read on past rows that cannot be read: a short page tells its reader that nothing follows."""
        good: list[T] = []
        while len(good) < limit:
            missing = limit - len(good)
            found = page(start, missing)
            good += readable(found)
            if len(found) < missing:
                break
            start = found[-1][cursor]
        return good

    def _readable_transactions(self, found: Iterable[sqlite3.Row]) -> list[Transaction]:
        return list(self._readable(found, rows.transaction, "tx", "id"))

    def _readable_events(self, found: Iterable[sqlite3.Row]) -> list[Event]:
        return list(self._readable(found, rows.event, "position", "position"))

    def _readable(
        self, found: Iterable[sqlite3.Row], decode: Callable[[rows.Row], T], what: str, name: str
    ) -> Iterator[T]:
        for row in found:
            try:
                yield decode(row)
            except rows.UNDECODABLE:
                self._warn(what, row[name])

    def _warn(self, what: str, name: object) -> None:
        if (what, name) not in self._unreadable:
            self._unreadable.add((what, name))
            log.warning("row.undecodable", **{what: name})

    async def last_position(self) -> int:
        return await self._read(lambda: int(self._all("last_position")[0][0]))

    async def lane(self, key: LaneKey) -> LaneSummary | None:
        found = await self._read(lambda: self._summaries(key))
        return found[0] if found else None

    async def lanes(self) -> Sequence[LaneSummary]:
        return await self._read(lambda: self._summaries(None))

    def _summaries(self, key: LaneKey | None) -> list[LaneSummary]:
        which = key._asdict() if key else {"chain_id": None, "address": None}
        return [self._summary(row) for row in self._all("lanes", **which)]

    def _summary(self, row: sqlite3.Row) -> LaneSummary:
        record = rows.lane_record(row)
        lane = record.key._asdict()
        return LaneSummary(
            record=record,
            control=rows.control(row),
            states={State(found["state"]): found["n"] for found in self._all("live_states", **lane)},
            slots={found["kind"]: found["n"] for found in self._all("live_slots", **lane)},
            reservations=[
                Reserved(found["nonce"], found["deadline"], found["hash"])
                for found in self._all("reservations", **lane)
            ],
            wishes=[
                OpenWish(found["kind"], found["tx_id"], found["made_at"])
                for found in self._all("open_wishes", **lane, limit=WISHES_SHOWN)
            ],
            owner=row["owner"] if row["expires_at"] > self._clock.now() else None,
            epoch=row["epoch"],
            expires_at=row["expires_at"],
        )

    async def close(self) -> None:
        self._on_close()

    # how a call reaches the database

    async def _write(self, act: Callable[[int], T]) -> T:
        return await self._offload_write(lambda: self._transact(act))

    def _transact(self, act: Callable[[int], T]) -> T:
        with _refusals():
            self._writer.execute("BEGIN IMMEDIATE")
        try:
            with _refusals():
                # Time is read inside the write lock, so that no wait for it can stretch a lease.
                result = act(self._clock.now())
                commits = self._scalar("count_commit")
        except BaseException:
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

    async def _read(self, act: Callable[[], T]) -> T:
        def guarded() -> T:
            with _refusals():
                return act()

        return await self._offload_read(guarded)

    def _run(self, query: str, **columns: object) -> sqlite3.Cursor:
        return self._writer.execute(self._sql[query], columns)

    def _scalar(self, query: str, **columns: object) -> int:
        return int(self._run(query, **columns).fetchone()[0])

    def _one(self, query: str, connection: sqlite3.Connection | None = None) -> sqlite3.Row:
        row: sqlite3.Row = (connection or self._writer).execute(self._sql[query]).fetchone()
        return row

    def _all(self, query: str, **columns: object) -> list[sqlite3.Row]:
        return self._reader.execute(self._sql[query], columns).fetchall()


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
    connection.execute("PRAGMA journal_mode = WAL")
    # Every commit reaches the disk before it is acknowledged.
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA fullfsync = ON")  # what that takes on macOS; elsewhere it changes nothing
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute(f"PRAGMA busy_timeout = {int(BUSY_SECONDS * 1000)}")


@contextmanager
def _refusals() -> Iterator[None]:
    """What SQLite says, in our words."""
    try:
        yield
    except sqlite3.IntegrityError as error:
        raise RowMoved(f"the database refused the change: {error}") from error
    except sqlite3.Error as error:
        raise StoreUnavailable(f"the store cannot be used now: {error}") from error


def _in_thread(thread: ThreadPoolExecutor) -> Offload:
    async def offload(act: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(thread, act)

    return offload


def _holder(lease: Lease) -> dict[str, Any]:
    return {**lease.lane._asdict(), "owner": lease.owner, "epoch": lease.epoch}


def _millis(seconds: float) -> int:
    return round(seconds * 1000)
