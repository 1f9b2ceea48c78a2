"""A lane as its owner holds it in memory: nonce arithmetic, and the one way to change it.

Everything with a slot is exact for as long as the lease's epoch stands. A stage prepares a `Work`, the store commits
it, and only then the lane applies it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import count, filterfalse, islice, takewhile

from msgspec.structs import replace

from nonchalant import lifecycle
from nonchalant.model import (
    TX_ACCEPTED,
    Attempt,
    Attention,
    Change,
    Event,
    LaneRecord,
    Receipt,
    Reply,
    Request,
    Slot,
    Stranger,
    Transaction,
)
from nonchalant.words import LESSER_MARKS, Hash, LaneKey, Millis, SlotKind, TxId, Wei

# The place of what is not accepted yet.
UNPLACED = 0

# A mark whose words have changed (an amount, a nonce, an endpoint's name) is written anew at most this often.
RENEWED_AFTER: Millis = 300_000


class Lane:
    """The slots of a lane that are not final, with their transactions, and what the chain last said of the account."""

    def __init__(
        self,
        record: LaneRecord,
        slots: Iterable[Slot] = (),
        transactions: Iterable[Transaction] = (),
        strangers: Iterable[Stranger] = (),
        final_below: int = 0,
    ) -> None:
        self.record = record
        self._final_below = final_below  # nonces are consumed in order: below one that is final, all are
        self.slots = {slot.nonce: slot for slot in sorted(slots, key=lambda slot: slot.nonce)}
        self.transactions = {tx.id: tx for tx in transactions}
        self._nonces = {attempt.hash: slot.nonce for slot in self.slots.values() for attempt in slot.attempts}
        self.strangers = {stranger.hash: stranger for stranger in strangers}  # whose twin may still come
        self.count = 0  # executed at our head
        self.is_vouched = True  # whether at least half of the endpoints told that count
        self.final_count = 0  # executed at the final block
        self.final_at_most = 0  # executed there, as the endpoint says that says most
        self.pooled = 0  # of a shared account: below, what is not ours is in some pool, from somebody else
        self.balance: Wei = 0
        self.delegated = False  # its code is: pools hold one transaction of it
        self.marked_at: Millis = 0  # when its mark was last written here, in whatever words
        self._exposures: dict[int, tuple[Slot, Transaction | None, Wei]] = {}  # by nonce, of whom they were told
        self.data_fees: dict[int, Wei] = {}  # by nonce: what the chain takes beside gas for publishing it, if it does

    @property
    def key(self) -> LaneKey:
        return self.record.key

    @property
    def next_nonce(self) -> int:
        """The first nonce never given out; a lane that was never synchronised starts where the chain stands."""
        recorded = self.record.next_nonce
        return self.count if recorded is None else max(recorded, self.count)

    def transaction_of(self, slot: Slot) -> Transaction | None:
        """None for a filler, for a nonce that is reserved, and for what the store has lost."""
        return None if slot.tx_id is None else self.transactions.get(slot.tx_id)

    def is_consumed(self, slot: Slot) -> bool:
        """Whether the head shows the nonce used, by us or by anybody."""
        return slot.receipt is not None or slot.nonce < self.count

    def open_slots(self) -> list[Slot]:
        """What waits for the chain, lowest nonce first."""
        count = self.count
        return [slot for slot in self.slots.values() if slot.receipt is None and slot.nonce >= count]

    def lost_slots(self) -> list[Slot]:
        """Slots whose nonce is used although none of their attempts is known to have run."""
        return [slot for slot in self.slots.values() if slot.receipt is None and slot.nonce < self.count]

    def holes(self) -> list[int]:
        """Nonces below `next_nonce` that are neither used nor bound to anything."""
        return list(self._holes())

    def _holes(self) -> Iterator[int]:
        return filterfalse(self.slots.__contains__, range(self._lowest, self.next_nonce))

    @property
    def _lowest(self) -> int:
        """Nobody else has a nonce from here on, as far as we know."""
        return max(self._used_below, self.pooled)

    @property
    def _used_below(self) -> int:
        """Of the nonces below, all are used, whatever those say who lag."""
        return max(self.record.settled_below, self._final_below, self.count)

    @property
    def first_unbound(self) -> int:
        """The first nonce above what is known to be used that is bound to nothing."""
        return next(nonce for nonce in count(self._used_below) if nonce not in self.slots)

    def gaps(self) -> list[int]:
        """Holes that something already signed waits behind."""
        highest = next((slot.nonce for slot in reversed(self.slots.values()) if slot.attempts), -1)
        return list(takewhile(lambda nonce: nonce < highest, self._holes()))

    def vacant(self, below: int) -> list[int]:
        """Every nonce up to there that nobody is known to use."""
        return [nonce for nonce in range(self._lowest, below) if nonce not in self.slots]

    def borrowed(self) -> list[int]:
        """Nonces before something of ours that somebody else's transactions in pools have, and may lose again."""
        lowest, highest = self._used_below, next(reversed(self.slots), -1)
        return [nonce for nonce in range(lowest, min(self.pooled, highest)) if nonce not in self.slots]

    def free_nonces(self) -> Iterator[int]:
        """Nonces to give out: the lowest holes first, then upward without leaving any."""
        yield from self._holes()
        nonce = max(self.next_nonce, self.pooled)
        while True:
            yield nonce
            nonce += 1

    def can_give(self, nonce: int) -> bool:
        """Whether nobody has it, as far as we know."""
        return nonce >= max(self.next_nonce, self.pooled) or (nonce >= self._lowest and nonce not in self.slots)

    def take(self, count: int) -> list[int]:
        return list(islice(self.free_nonces(), count))

    def next_after(self, taken: Sequence[int] = (), freed: Collection[int] = ()) -> int:
        """What `next_nonce` is once these are bound or freed: trailing holes are given back, and only those."""
        kept = next((nonce for nonce in reversed(self.slots) if nonce not in freed), -1)
        highest = max((kept, *taken))
        return max(highest + 1, self._used_below)

    @property
    def is_behind(self) -> bool:
        """Whether the chain has executed less than what was final here: it was reset, or is another one."""
        return self.count < self.record.settled_below

    def settled_prefix(self, settled: Iterable[int] = ()) -> int:
        """The lowest nonce not known to be final, once the slots at `settled` are."""
        done = set(settled)
        # Nonces are consumed in order: below one that is final, everything is.
        known = max(self.record.settled_below, self.final_count, max(done, default=-1) + 1)
        return min(known, next((nonce for nonce in self.slots if nonce not in done), known))

    def committed(self) -> Wei:
        """The most that everything in flight can still take from the balance."""
        data_fees = sum(self.data_fees.get(slot.nonce, 0) for slot in self.open_slots()) if self.data_fees else 0
        return sum([self._exposure(slot) for slot in self.open_slots()]) + data_fees

    def _exposure(self, slot: Slot) -> Wei:
        tx, known = self.transaction_of(slot), self._exposures.get(slot.nonce)
        if known is None or known[0] is not slot or known[1] is not tx:
            known = self._exposures[slot.nonce] = (slot, tx, exposure(slot, tx))
        return known[2]

    def can_pay(self, slot: Slot, cost: Wei) -> bool:
        """Whether the balance covers this at the slot, beside everything else in flight."""
        return cost <= self.balance - (self.committed() - exposure(slot, self.transaction_of(slot)))

    def room(self, *, window: int, unsettled: int) -> int:
        """How many more may be signed: limited by what is in flight, and apart from it by what is not final."""
        return max(0, min(window - len(self.open_slots()), unsettled - len(self.slots)))

    def attempt_hashes(self) -> list[Hash]:
        return list(self._nonces)

    def twin_of(self, tx: Transaction) -> Stranger | None:
        """Something the account did unknown to the store that does just what this transaction would."""
        if not self.strangers:
            return None
        deeds = tx.deeds
        return next((stranger for stranger in self.strangers.values() if stranger.deed in deeds), None)

    def nonce_of(self, hash: Hash) -> int | None:
        """The slot an attempt was signed for; None if it is not live here."""
        return self._nonces.get(hash)

    def apply(self, change: Change) -> None:
        """What the store has committed becomes true here too."""
        if change.lane is not None:
            self.record = change.lane
        if change.unsettled_from is not None:
            self._final_below = min(self._final_below, change.unsettled_from)
        for nonce in change.freed:
            self._forget(self.slots.pop(nonce))
        unsorted = False
        highest = next(reversed(self.slots), -1)
        for slot in (*change.slots, *change.shown):
            if slot.settled:
                self._forget(self.slots.pop(slot.nonce))
                self._final_below = max(self._final_below, slot.nonce + 1)
                continue
            unsorted |= slot.nonce < highest and slot.nonce not in self.slots
            highest = max(highest, slot.nonce)
            self.slots[slot.nonce] = slot
        for attempt in change.attempts:
            self._nonces[attempt.hash] = attempt.nonce
        for attempt in change.answered:
            bound = self.slots.get(attempt.nonce)
            if bound is not None:  # it may have been freed on the same answer
                known = [attempt if attempt.hash == old.hash else old for old in bound.attempts]
                self.slots[attempt.nonce] = replace(bound, attempts=tuple(known))
        for tx in change.transactions:
            if tx.live and tx.nonce is not None:
                self.transactions[tx.id] = tx
            else:
                self.transactions.pop(tx.id, None)
        if unsorted:
            self.slots = dict(sorted(self.slots.items()))
        self._meet(change.strangers)

    def _meet(self, strangers: Iterable[Stranger]) -> None:
        for stranger in strangers:
            if stranger.tx_id is None:
                self.strangers[stranger.hash] = stranger
            else:
                self.strangers.pop(stranger.hash, None)

    def _forget(self, slot: Slot) -> None:
        self.data_fees.pop(slot.nonce, None)
        self._exposures.pop(slot.nonce, None)
        for attempt in slot.attempts:
            del self._nonces[attempt.hash]


def doubt_for(stranger: Stranger, at: Millis) -> Attention:
    """Why what would do the same must not go by itself, nor be called off."""
    reason = (
        f"{stranger.hash} did the same, unknown to this store; release it if it should happen twice, else cancel it"
    )
    return Attention("same_payload_executed", reason, at)


def exposure(slot: Slot, tx: Transaction | None) -> Wei:
    """The most that whichever attempt of the slot is executed takes from the balance."""
    return max([_cost(attempt, tx) for attempt in slot.attempts], default=0)


def _cost(attempt: Attempt, tx: Transaction | None) -> Wei:
    version = attempt.payload_version
    value = tx.payload_of(version).value if tx is not None and version else 0
    return value + attempt.gas * attempt.fees.max_fee


# What changes what the user asks for.
_REWRITING = frozenset[type[lifecycle.Move]]({lifecycle.Valued, lifecycle.Replaced})


class Work:
    """One change of a lane in the making. It reads its own writes; nothing is true before it is committed."""

    def __init__(self, lane: Lane, at: Millis) -> None:
        self.at = at
        self._lane = lane
        self._before: dict[TxId, Transaction] = {}
        self._after: dict[TxId, Transaction] = {}
        self._rewritten: set[TxId] = set()
        self._slots: dict[int, Slot] = {}
        self._freed: list[int] = []
        self._attempts: list[Attempt] = []
        self._answered: dict[Hash, Attempt] = {}
        self._record: LaneRecord | None = None
        self._strangers: dict[Hash, Stranger] = {}
        self._granted: dict[str, Reply] = {}
        self._unsettled_from: int | None = None
        self._events: list[Event] = []
        self._accepted: list[Request] = []

    def accept(self, request: Request, at: Millis) -> Transaction:
        """Take it in with this work; where it stands is known once that is committed."""
        self._accepted.append(request)
        self._events.append(Event(kind=TX_ACCEPTED, lane=request.lane, at=at, tx_id=request.id))
        return request.accepted(UNPLACED, at)

    def move(self, tx: Transaction, move: lifecycle.Move) -> Transaction:
        """Step the transaction, from what this work has made of it so far."""
        read = self._before.setdefault(tx.id, tx)
        moved, events = lifecycle.step(self._after.get(tx.id, tx), move, self.at)
        moved = self._after[tx.id] = lifecycle.one_version_on(moved, read)
        self._events += events
        if type(move) in _REWRITING:
            self._rewritten.add(tx.id)
        return moved

    def latest(self, tx: Transaction) -> Transaction:
        """The transaction as this work leaves it."""
        return self._after.get(tx.id, tx)

    def bind(self, nonce: int, kind: SlotKind, attempt: Attempt) -> None:
        self._slots[nonce] = Slot(
            nonce=nonce, kind=kind, tx_id=attempt.tx_id, attempts=(attempt,), payload_version=attempt.payload_version
        )
        self._attempts.append(attempt)

    def slot(self, slot: Slot) -> None:
        self._slots[slot.nonce] = slot

    def add_attempt(self, slot: Slot, attempt: Attempt) -> None:
        """Sign once more for the same slot."""
        self._slots[slot.nonce] = slot.with_attempt(attempt)
        self._attempts.append(attempt)

    def answered(self, attempt: Attempt) -> None:
        self._answered[attempt.hash] = attempt

    def as_answered(self, attempt: Attempt) -> Attempt:
        """The attempt, with the last thing nodes said about it, this work included."""
        return self._answered.get(attempt.hash, attempt)

    def free(self, slot: Slot) -> None:
        self._freed.append(slot.nonce)

    def include(self, slot: Slot, receipt: Receipt) -> Slot:
        included = replace(slot, receipt=receipt)
        self._slots[slot.nonce] = included
        return included

    def settle(self, slot: Slot, receipt: Receipt | None = None) -> None:
        """`receipt` None: none of its attempts ran."""
        self._slots[slot.nonce] = replace(slot, receipt=receipt, settled=True)

    @property
    def lane_record(self) -> LaneRecord:
        """The lane's record, as this work leaves it."""
        return self._record or self._lane.record

    def record(self, record: LaneRecord) -> None:
        if record != self._lane.record:
            self._record = record

    def reply(self, wish_id: str, refused: str | None = None, **data: object) -> None:
        """Answer a wish: granted, or refused for this reason."""
        self._granted[wish_id] = Reply(refused, data)

    def unsettle_from(self, nonce: int) -> None:
        """Nonces from here on are not final after all, because an operator says so."""
        self._unsettled_from = nonce

    def stranger(self, stranger: Stranger) -> None:
        self._strangers[stranger.hash] = stranger

    def hold_for(self, tx: Transaction, stranger: Stranger) -> None:
        """The transaction may have run already, as this stranger: a person decides. The stranger holds nobody else."""
        self.move(tx, lifecycle.Held(doubt_for(stranger, self.at)))
        self.stranger(replace(stranger, tx_id=tx.id))

    def mark(self, tx: Transaction, attention: Attention) -> None:
        """Mark the transaction; another reason is news, the same one in other words is not, and is kept now and then."""
        known = self.latest(tx).attention
        if known is None or known.code != attention.code:
            self.move(tx, lifecycle.Marked(attention))
        elif known.reason != attention.reason and (tx.id in self._after or self.at - tx.updated_at >= RENEWED_AFTER):
            self.move(tx, lifecycle.Marked(replace(attention, since=known.since), renewed=True))

    def mark_lane(self, attention: Attention | None) -> None:
        """Set or clear the lane's mark; saying the same thing again is not news, and is kept now and then."""
        known = self.lane_record.attention
        if known is not None and attention is not None and known.code == attention.code:
            if known.reason == attention.reason or self.at - self._lane.marked_at < RENEWED_AFTER:
                return
            attention = replace(attention, since=known.since)
        elif known is attention:
            return
        elif attention is not None:
            self.event("lane.attention", code=attention.code, reason=attention.reason)
        self._lane.marked_at = self.at
        self._record = replace(self.lane_record, attention=attention)

    def note_lane(self, attention: Attention) -> None:
        """Set the lane's mark, unless it has one that says more."""
        known = self.lane_record.attention
        if known is None or known.code in LESSER_MARKS or known.code == attention.code:
            self.mark_lane(attention)

    def judge(self, unhealthy: Attention | None) -> None:
        """Have the lane give out no more nonces, for this reason, or go on. A reason in other words is no news."""
        known = self.lane_record.unhealthy
        if known is not None and unhealthy is not None and known.code == unhealthy.code:
            unhealthy = replace(known, reason=unhealthy.reason)
        elif unhealthy is not None:
            self.event("lane.paused", code=unhealthy.code, reason=unhealthy.reason)
        elif known is not None:
            self.event("lane.resumed", code=known.code)
        else:
            return
        self.record(replace(self.lane_record, unhealthy=unhealthy))

    def event(self, kind: str, tx_id: TxId | None = None, **data: object) -> None:
        self._events.append(Event(kind=kind, lane=self._lane.key, at=self.at, tx_id=tx_id, data=data))

    def __bool__(self) -> bool:
        """Whether there is anything to commit. Most rounds of a lane find nothing to do."""
        return bool(
            self._after
            or self._slots
            or self._freed
            or self._attempts
            or self._answered
            or self._record
            or self._strangers
            or self._granted
            or self._events
        )

    def change(self) -> Change:
        written, shown = list[Slot](), list[Slot]()
        for slot in self._slots.values():
            (written if self._is_news_for_its_row(slot) else shown).append(slot)
        return Change(
            accepted=tuple(self._accepted),
            transactions=tuple(self._after.values()),
            rewritten=frozenset(self._rewritten),
            slots=tuple(written),
            shown=tuple(shown),
            freed=tuple(self._freed),
            attempts=tuple(self._attempts),
            answered=tuple(self._answered.values()),
            lane=self._record,
            strangers=tuple(self._strangers.values()),
            granted=dict(self._granted),
            unsettled_from=self._unsettled_from,
            events=tuple(self._events),
        )

    def _is_news_for_its_row(self, slot: Slot) -> bool:
        """Attempts have rows of their own, and a transaction's receipt stands in the transaction's."""
        known = None if slot.nonce in self._freed else self._lane.slots.get(slot.nonce)
        return known is None or slot.settled or _row(slot) != _row(known)  # what is settled is no more in the lane


def _row(slot: Slot) -> tuple[object, ...]:
    """What the store keeps of a slot beside its attempts."""
    receipt = slot.receipt if slot.tx_id is None else None
    return slot.kind, slot.tx_id, slot.wanted, slot.payload_version, slot.reservation, receipt, slot.settled
