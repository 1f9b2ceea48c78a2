"""`ports.Store` in terms of procedures: one place for both databases. Each says only how a procedure is run on it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import TypeVar

from nonchalant.access import EVERYTHING, Within
from nonchalant.audit import Deed, Entry, Head
from nonchalant.keys import Key, KeyId, KeyRequest, Live, Written
from nonchalant.model import Admission, Attempt, Change, Control, Event, Lease, Reply, Request, Stranger, Transaction
from nonchalant.ports import (
    Acceptance,
    Duplicate,
    EventRange,
    Filter,
    LaneSummary,
    LaneWork,
    Loaded,
    Numbering,
    Orders,
    Overview,
    Roll,
    Standing,
    WebhookWork,
    Wished,
)
from nonchalant.store import accepting, auditing, hooking, keeping, owning, reading, retention, wishing
from nonchalant.store.legible import Legible
from nonchalant.store.room import KnownRoom
from nonchalant.store.talk import Procedure, ask
from nonchalant.store.wishing import Found, Line
from nonchalant.webhooks import Delivery, DeliveryState, Parcel, Webhook
from nonchalant.wishes import Wish
from nonchalant.words import Hash, LaneKey, Millis, Mode, TxId

T = TypeVar("T")

DECLARED_AT_ONCE = 500


class SqlStore(ABC):
    """A store that is a database with named queries."""

    def __init__(self) -> None:
        self._legible = Legible()
        self._room = KnownRoom()
        self._forgotten_to = 0  # the place at which the next look for what may be forgotten goes on

    @abstractmethod
    async def _write(self, procedure: Procedure[T]) -> T:
        """Run it in one transaction, and commit."""

    @abstractmethod
    async def _read(self, procedure: Procedure[T]) -> T:
        """Run it outside of any."""

    @abstractmethod
    async def close(self) -> None: ...

    # intake

    async def accept(self, requests: Sequence[Request], *, limits: Mapping[LaneKey, int]) -> Sequence[Acceptance]:
        return await self._write(accepting.accept(requests, limits, self._room, self._legible))

    async def accept_together(
        self, requests: Sequence[Request], *, limits: Mapping[LaneKey, int]
    ) -> Sequence[Acceptance]:
        try:
            return await self._write(accepting.accept_together(requests, limits, self._room, self._legible))
        except accepting.NotTogether as refusal:
            first, *_ = refusal.answers
            if not isinstance(first, Duplicate):
                return refusal.answers
            known = await self._read(accepting.batch_of(first.transaction, self._legible))
            return [Duplicate(tx) for tx in known]

    async def declare(self, lanes: Sequence[LaneKey]) -> None:
        # In one order: two nodes that start at once must not wait for each other. In parts: a server cuts off whoever is
        # slow inside a transaction, and thousands at once take their time on a busy machine.
        ordered = sorted(lanes)
        for start in range(0, len(ordered), DECLARED_AT_ONCE):
            await self._write(accepting.declare(ordered[start : start + DECLARED_AT_ONCE]))

    async def incarnation(self) -> int:
        [position] = await self._read(ask("position"))
        return int(position["incarnation"])

    # ownership

    async def lanes_with_work(self, *, marked: bool = False) -> Sequence[LaneWork]:
        return await self._read(owning.lanes_with_work(marked))

    async def heartbeat(self, owner: str, ttl: float) -> int:
        return await self._write(owning.heartbeat(owner, ttl))

    async def acquire(self, lane: LaneKey, owner: str, ttl: float) -> int | None:
        return await self._write(owning.acquire(lane, owner, ttl))

    async def renew(self, leases: Sequence[Lease], ttl: float) -> Sequence[LaneKey]:
        return await self._write(owning.renew(leases, ttl))

    async def release(self, leases: Sequence[Lease], owner: str | None = None) -> None:
        await self._write(owning.release(leases, owner))

    # what people want

    async def alter_queued(self, tx: Transaction, events: Sequence[Event], twin: Stranger | None = None) -> None:
        await self._write(wishing.alter_queued(tx, events, twin))

    async def twin_of(self, tx: Transaction) -> Stranger | None:
        return await self._read(wishing.twin_of(tx))

    async def overdue(self, *, limit: int) -> Sequence[Transaction]:
        found = await self._read(wishing.overdue(limit))
        overdue = self._legible.transactions(found)
        legible = {tx.id for tx in overdue}
        illegible = [row for row in found if row["id"] not in legible]
        if illegible:
            await self._write(wishing.expire_undecodable(illegible))
        return overdue

    async def wish(self, wish: Wish, *, limit: int) -> Wished:
        return await self._write(wishing.wish(wish, limit))

    async def reply(self, wish_id: str) -> Reply | None:
        return await self._read(wishing.reply(wish_id))

    async def withdraw(self, wish_id: str) -> bool:
        return await self._write(wishing.withdraw(wish_id))

    async def forget_replies(self, *, older_than: Millis) -> int:
        return await self._write(wishing.forget_replies(older_than))

    async def forget_settled(self, *, older_than: Millis, limit: int) -> bool:
        # What goes has a position: whoever stopped reading before it is told that something is missing.
        await self.last_position()
        more, self._forgotten_to = await self._write(retention.forget(older_than, limit, self._forgotten_to))
        return more

    async def control(self, lane: LaneKey, mode: Mode, reason: str) -> Control:
        return await self._write(wishing.control(lane, mode, reason))

    async def halt(self, chain_id: int, reason: str) -> None:
        await self._write(wishing.halt(chain_id, reason))

    # the owner's work

    async def orders(self, lane: LaneKey) -> Orders:
        found, broken = await self._read(wishing.orders(lane, self._legible))
        if broken:
            await self._write(wishing.refuse_undecodable(lane, broken))
        return found

    async def load(self, lease: Lease) -> Loaded:
        return await self._write(owning.load(lease, self._legible))

    async def queued(self, lane: LaneKey, *, limit: int, skip: Collection[TxId] = ()) -> Sequence[Transaction]:
        good, broken = await self._in_line(Line(lane, limit, skip))
        if broken:
            await self._write(wishing.hold_undecodable(lane, broken))
        return good

    async def _in_line(self, line: Line) -> Found:
        return (await self._read(wishing.queued([line])))[line.lane]

    async def marked(self, lane: LaneKey, *, limit: int, after: int = 0) -> Sequence[Transaction]:
        return await self._read(reading.marked(lane, limit, after, self._legible))

    async def has_queued_before(self, tx: Transaction) -> bool:
        return await self._read(reading.has_queued_before(tx))

    async def bound(self, lane: LaneKey, *, first: int, below: int) -> frozenset[int]:
        return await self._read(reading.bound(lane, first, below))

    async def known_attempts(self, hashes: Sequence[Hash]) -> frozenset[Hash]:
        return await self._read(reading.known_attempts(hashes))

    async def commit(self, change: Change, lease: Lease) -> Mapping[TxId, Admission]:
        return await self._write(owning.commit(change, lease))

    # webhooks

    async def add_webhook(self, webhook: Webhook, *, most: int) -> bool:
        return await self._write(hooking.add(webhook, most))

    async def webhooks(self) -> Sequence[Webhook]:
        return await self._read(hooking.webhooks())

    async def webhook(self, webhook_id: str) -> Webhook | None:
        found = await self._read(hooking.webhooks(webhook_id))
        return found[0] if found else None

    async def alter_webhook(self, webhook: Webhook) -> None:
        await self._write(hooking.alter(webhook))

    async def rewind_webhook(self, webhook_id: str, position: int) -> bool:
        return await self._write(hooking.rewind(webhook_id, position))

    async def remove_webhook(self, webhook_id: str) -> bool:
        return await self._write(hooking.remove(webhook_id))

    async def webhook_owners(self) -> Roll:
        return await self._read(hooking.owners())

    async def own_webhooks(self, webhook_ids: Sequence[str], owner: str, ttl: float) -> frozenset[str]:
        return await self._write(hooking.own(webhook_ids, owner, ttl))

    async def release_webhooks(self, owner: str) -> None:
        await self._write(hooking.release(owner))

    async def load_webhook(self, webhook_id: str, owner: str, *, limit: int) -> WebhookWork:
        return await self._write(hooking.load(webhook_id, owner, limit))

    async def fan_out(self, webhook: Webhook, owner: str, upto: int, parcels: Sequence[Parcel]) -> Sequence[Delivery]:
        return await self._write(hooking.fan_out(webhook, owner, upto, parcels))

    async def record_deliveries(
        self, webhook_id: str, owner: str, tried: Sequence[Delivery], *, disable: str | None = None, hurry: bool = False
    ) -> None:
        await self._write(hooking.record(webhook_id, owner, tried, disable, hurry))

    async def deliveries(
        self,
        webhook_id: str,
        *,
        state: DeliveryState | None = None,
        position: int | None = None,
        before: int | None = None,
        limit: int,
    ) -> Sequence[Delivery]:
        return await self._read(
            hooking.deliveries(webhook_id, state=state, position=position, before=before, limit=limit)
        )

    async def replay_delivery(self, webhook_id: str, position: int) -> bool:
        return await self._write(hooking.replay(webhook_id, position))

    async def forget_deliveries(self, *, older_than: Millis, limit: int) -> int:
        return await self._write(hooking.forget(older_than, limit))

    async def position_since(self, since: Millis) -> int | None:
        return await self._read(hooking.position_since(since))

    # reading

    async def transaction(self, tx_id: TxId) -> Transaction | None:
        return await self._read(reading.transaction(tx_id))

    async def transactions(self, filter: Filter) -> Sequence[Transaction]:
        return await self._read(reading.transactions(filter, self._legible))

    async def standings(self, transactions: Sequence[Transaction], *, limit: int) -> Mapping[TxId, Standing]:
        return await self._read(reading.standings(transactions, limit))

    async def attempts(self, tx_ids: Sequence[TxId]) -> Mapping[TxId, Sequence[Attempt]]:
        return await self._read(reading.attempts(tx_ids, self._legible))

    async def history(self, tx_id: TxId) -> Sequence[Event]:
        return await self._read(reading.history(tx_id, self._legible))

    async def lane_history(self, lane: LaneKey, *, limit: int, before: int | None = None) -> Sequence[Event]:
        return await self._read(reading.lane_history(lane, before, limit, self._legible))

    async def events_after(self, position: int, *, limit: int) -> Sequence[Event]:
        return await self._read(reading.events_after(position, limit, self._legible))

    async def last_position(self) -> int:
        return (await self.event_range()).last

    async def event_range(self) -> EventRange:
        return await self._read(reading.event_range())

    async def tenants(self, tx_ids: Sequence[TxId]) -> Mapping[TxId, str]:
        return await self._read(reading.tenants(tx_ids))

    async def numbering(self, key: LaneKey) -> Numbering:
        return await self._read(reading.numbering(key))

    async def lane(self, key: LaneKey) -> LaneSummary | None:
        return await self._read(reading.lane(key))

    async def lanes(self, within: Within = EVERYTHING) -> Sequence[LaneSummary]:
        return await self._read(reading.lanes(within))

    async def overview(self, *, limit: int) -> Overview:
        return await self._read(reading.overview(limit))

    # keys, and what people did with their power

    async def add_key(
        self, written: Written, wanted: KeyRequest, deed: Deed, *, only_first: bool = False
    ) -> Key | None:
        return await self._write(keeping.add(written, wanted, deed, only_first=only_first))

    async def revoke_key(self, key_id: KeyId, deed: Deed) -> Key | None:
        return await self._write(keeping.revoke(key_id, deed))

    async def live_keys(self, ids: Sequence[KeyId]) -> Mapping[KeyId, Live]:
        return await self._read(keeping.live(ids, self._legible))

    async def key(self, key_id: KeyId) -> Key | None:
        return await self._read(keeping.one(key_id))

    async def keys(self, *, before: int | None = None, limit: int) -> Sequence[Key]:
        return await self._read(keeping.listed(before, limit, self._legible))

    async def note(self, deed: Deed) -> int:
        return await self._write(auditing.note(deed))

    async def audit_after(self, position: int, *, limit: int) -> Sequence[Entry]:
        return await self._read(auditing.after(position, limit))

    async def audit_head(self) -> Head:
        return await self._read(auditing.head())
