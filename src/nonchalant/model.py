"""The values everything else speaks in. Frozen, with their unit in the name or the type.

None of them can be a part of a cycle, so the garbage collector need not look at them (`gc=False`): with thousands of them
alive it took a sixth of a node's time.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Final, NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from nonchalant.words import (
    DOUBTS,
    LIVE_STATES,
    AccessList,
    Address,
    AttemptKind,
    Hash,
    LaneKey,
    Millis,
    Mode,
    OnSuperseded,
    SlotKind,
    Speed,
    State,
    TxId,
    Wanted,
    Wei,
)


class Fees(Struct, frozen=True, gc=False):
    """What one unit of gas may cost. `priority` is None on chains without a base fee: then `max_fee` is the gas price.

    `firm` False: only what to begin with; how much is paid in the end is for the account's caps to say.
    """

    max_fee: Wei
    priority: Wei | None = None
    firm: bool = True


class Payload(Struct, frozen=True, kw_only=True, gc=False):
    """What the user wants executed. `to` None creates a contract; `gas` None means: estimate it.

    `abi` is the JSON text of the errors that the contract may revert with, for telling why; it is never signed.
    """

    to: Address | None
    value: Wei = 0
    data: bytes = b""
    gas: int | None = None
    access_list: AccessList = ()
    abi: str | None = None

    @staticmethod
    def nothing(address: Address) -> Payload:
        """What consumes a nonce and does nothing else: a transfer of nothing to oneself."""
        return Payload(to=address)

    @property
    def is_known(self) -> bool:
        """False for what stands in for one that cannot be read: nobody can ask for a contract without its code."""
        return self.to is not None or bool(self.data)

    @property
    def deed(self) -> str:
        """What it does, whatever it costs: equal for payloads that do the same."""
        return deed_of(self.to, self.value, self.data)


def deed_of(to: Address | None, value: Wei, data: bytes) -> str:
    return sha256(b"%s %d %s" % ((to or "").encode(), value, data)).hexdigest()


class Request(Struct, frozen=True, kw_only=True, gc=False):
    """A validated wish to send, with the id it will have for life."""

    id: TxId
    lane: LaneKey
    payload: Payload
    fees: Speed | Fees
    priority: int = 5
    simulate: bool = False  # run it on the head before it is signed, also where its gas is given
    tenant: str = "default"
    idempotency_key: str | None = None
    body_hash: str = ""  # what makes two requests with one idempotency key the same
    metadata: Mapping[str, object] | None = None
    valid_until: Millis | None = None
    confirmations: int | None = None
    on_superseded: OnSuperseded | None = None
    asked_nonce: int | None = None  # this nonce, or it fails; None: whichever is next
    batch: str | None = None  # with which others it was accepted

    def accepted(self, place: int, at: Millis) -> Transaction:
        """The transaction that it becomes, as it stands in the store."""
        return Transaction(
            id=self.id,
            lane=self.lane,
            place=place,
            version=1,
            state=State.QUEUED,
            payload=self.payload,
            fees=self.fees,
            priority=self.priority,
            tenant=self.tenant,
            created_at=at,
            updated_at=at,
            idempotency_key=self.idempotency_key,
            metadata=self.metadata,
            valid_until=self.valid_until,
            confirmations=self.confirmations,
            on_superseded=self.on_superseded,
            simulate=self.simulate,
            asked_nonce=self.asked_nonce,
            batch=self.batch,
        )


class BlockRef(NamedTuple):
    number: int
    hash: Hash


class Block(Struct, frozen=True, gc=False):
    """One block as the follower needs it: its link and what it executed."""

    number: int
    hash: Hash
    parent: Hash
    transactions: tuple[Hash, ...]

    @property
    def ref(self) -> BlockRef:
        return BlockRef(self.number, self.hash)


class Receipt(Struct, frozen=True, kw_only=True, gc=False):
    """That one attempt was executed in one block, and what it cost."""

    hash: Hash
    block: BlockRef
    succeeded: bool
    gas_used: int
    gas_price: Wei
    contract: Address | None = None
    l1_fee: Wei = 0

    @property
    def cost(self) -> Wei:
        return self.gas_used * self.gas_price + self.l1_fee


class Attention(Struct, frozen=True, gc=False):
    """Why a live transaction or a lane needs a look, in one sentence that names the remedy."""

    code: str
    reason: str
    since: Millis


class Transaction(Struct, frozen=True, kw_only=True, gc=False):
    id: TxId
    lane: LaneKey
    place: int  # taken at insert, kept over re-queueing
    version: int  # raised by each write; a write that names an old one changes nothing
    state: State
    payload: Payload
    fees: Speed | Fees
    priority: int
    tenant: str
    created_at: Millis
    updated_at: Millis
    idempotency_key: str | None = None
    metadata: Mapping[str, object] | None = None
    earlier: tuple[Payload, ...] = ()  # what was asked for before it was replaced, oldest first
    valid_until: Millis | None = None  # past it, it expires
    confirmations: int | None = None  # blocks above it after which an event is wanted
    on_superseded: OnSuperseded | None = None  # None: as the chain's finality allows
    simulate: bool = False
    asked_nonce: int | None = None  # this nonce, or it fails
    batch: str | None = None  # with which others it was accepted
    held: bool = False
    nonce: int | None = None
    hash: Hash | None = None  # the newest attempt's; once mined, the executed one's
    receipt: Receipt | None = None
    deep: BlockRef | None = None  # the block that made it as deep as was asked, once that was told
    forked: bool = False  # blocks at or above its own were replaced after it was told of them
    failure: str | None = None  # why it failed, for state `failed`; for `reverted`, if a node could say
    attention: Attention | None = None

    @property
    def live(self) -> bool:
        return self.state in LIVE_STATES

    @property
    def payload_version(self) -> int:
        """1 for what was asked for at first; each replacement is one more."""
        return len(self.earlier) + 1

    def payload_of(self, version: int) -> Payload:
        return (*self.earlier, self.payload)[version - 1]

    @property
    def deeds(self) -> frozenset[str]:
        """What any of its payloads does: an attempt of an earlier one may have run."""
        return frozenset(payload.deed for payload in (*self.earlier, self.payload))

    @property
    def is_in_doubt(self) -> bool:
        """Whether its mark says that it may have run unknown to us."""
        return self.attention is not None and self.attention.code in DOUBTS

    def is_overdue(self, now: Millis) -> bool:
        return self.valid_until is not None and self.valid_until <= now


class Attempt(Struct, frozen=True, kw_only=True, gc=False):
    """One signed payload at one slot. Append-only, but for what nodes said about it."""

    hash: Hash
    nonce: int
    tx_id: TxId | None  # None for a filler, and for what an outside holder signed
    kind: AttemptKind
    fees: Fees
    gas: int
    raw: bytes
    epoch: int
    signed_at: Millis  # by the store's clock, as its owner knew it
    floor: int  # the finalised height when it was signed: no block up to there can hold it
    payload_version: int = 1  # which of the transaction's payloads it carries; 0: it does nothing
    sent_at: Millis | None = None  # when a node first got it, as far as recorded
    answer: str | None = None  # the last thing nodes said about it


class Reservation(Struct, frozen=True, gc=False):
    """A nonce kept for somebody who signs by himself. `holder` is a secret that only the caller knows."""

    holder: str
    deadline: Millis


class Slot(Struct, frozen=True, kw_only=True, gc=False):
    """One nonce of a lane while it is not final, with every attempt that was ever signed for it."""

    nonce: int
    kind: SlotKind
    tx_id: TxId | None
    attempts: tuple[Attempt, ...]
    wanted: Wanted = Wanted.PAYLOAD
    payload_version: int = 1  # which payload should run, as in `Attempt`
    # Whose it is, or was: a nonce that somebody may have signed for unseen is never given back by itself.
    reservation: Reservation | None = None
    receipt: Receipt | None = None  # where the linked chain shows one of its attempts executed
    settled: bool = False

    @property
    def newest(self) -> Attempt | None:
        """The newest attempt of what should run here: the only one that is sent. None: it is not signed yet."""
        for attempt in reversed(self.attempts):
            if attempt.payload_version == self.payload_version:
                return attempt
        return None

    @property
    def price(self) -> Fees | None:
        """The most that any attempt offers, on each field: nodes may hold any of them, and want more for another.

        None: nothing is signed, or nobody told us for how much.
        """
        offers = [attempt.fees for attempt in self.attempts if attempt.raw]
        tips = [fees.priority for fees in offers if fees.priority is not None]
        return Fees(max(fees.max_fee for fees in offers), max(tips, default=None)) if offers else None

    @property
    def floor(self) -> int:
        return min((attempt.floor for attempt in self.attempts), default=0)

    def attempt(self, hash: Hash) -> Attempt | None:
        """None: it was not signed for this slot."""
        for attempt in self.attempts:
            if attempt.hash == hash:
                return attempt
        return None

    def with_attempt(self, attempt: Attempt) -> Slot:
        return replace(self, attempts=(*self.attempts, attempt))


class Stranger(Struct, frozen=True, gc=False):
    """Something the account executed that this store knows nothing of, found when the lane was reconciled.

    It may be ours, from a commit that was lost. So the next request that does the same is held, once.
    """

    hash: Hash
    nonce: int
    deed: str
    tx_id: TxId | None = None  # who was held for it


class LaneRecord(Struct, frozen=True, kw_only=True, gc=False):
    """What the store keeps of a lane beside its slots. `next_nonce` None: never synchronised with the chain."""

    key: LaneKey
    next_nonce: int | None = None
    settled_below: int = 0  # every nonce below is final; no slot may be made there
    seen_block: int = 0  # the finalised height at the last write: what was lost cannot be older
    seen_hash: Hash | None = None  # of the block at that height: another one there means that finality broke
    incarnation: int = 0  # of the store, when the lane was last reconciled with the chain
    quarantined_below: int | None = None  # assign nothing until every nonce below is final
    window: int | None = None  # learnt from nodes that take no more; None: as configured
    resets: int = 0  # how often an operator gave its nonces up since something of it became final
    confirmed_at: Millis | None = None  # when something of it last became final
    unhealthy: Attention | None = None  # why it gives out no nonces of its own accord
    attention: Attention | None = None


class Control(Struct, frozen=True, gc=False):
    """What people said a lane should do. Anybody may say so; the owner obeys."""

    mode: Mode = Mode.OPEN
    reason: str = ""
    since: Millis = 0


class Lease(Struct, frozen=True, gc=False):
    """The right to work a lane. `epoch` is the fencing token; `until` is on the holder's monotonic clock, in seconds."""

    lane: LaneKey
    owner: str
    epoch: int
    until: float


class Reply(Struct, frozen=True, gc=False):
    """What came of a wish. `refused` is the code of the reason, or None: it was granted."""

    refused: str | None = None
    data: Mapping[str, object] = field(default_factory=dict)


class Event(Struct, frozen=True, kw_only=True, gc=False):
    """One fact about a transaction or a lane. The store gives it its position, and says if it was told before."""

    kind: str
    lane: LaneKey
    at: Millis
    tx_id: TxId | None = None
    data: Mapping[str, object] = field(default_factory=dict)
    position: int = 0
    times: int = 1  # how often it was told, this time included
    since: Millis | None = None  # when it was told first, if it was told before


TX_ACCEPTED: Final = "tx.accepted"  # the first event of every transaction


class Admission(NamedTuple):
    """Where what was accepted stands in its lane, and since when, by the store's clock."""

    place: int
    at: Millis


class Change(Struct, frozen=True, kw_only=True, gc=False):
    """One commit: everything in it becomes true at once, or nothing does."""

    accepted: tuple[Request, ...] = ()  # what is taken in with it; what becomes of them stands among the transactions
    transactions: tuple[Transaction, ...] = ()  # the new rows; each names its version, one above the stored one
    rewritten: frozenset[TxId] = frozenset()  # those of them whose payload or price the user changed
    slots: tuple[Slot, ...] = ()
    shown: tuple[Slot, ...] = ()  # of which only what stands elsewhere is new: an attempt, a transaction's receipt
    freed: tuple[int, ...] = ()
    attempts: tuple[Attempt, ...] = ()  # new ones
    answered: tuple[Attempt, ...] = ()  # known ones, of which nodes said something
    lane: LaneRecord | None = None
    strangers: tuple[Stranger, ...] = ()  # new ones, and known ones that found their twin
    granted: Mapping[str, Reply] = field(default_factory=dict)  # wishes, by id, with what came of them
    unsettled_from: int | None = None  # a reset: nonces from here on are not final after all
    events: tuple[Event, ...] = ()

    def entered(self, entries: Mapping[TxId, Admission]) -> Change:
        """The same, with what the store says of those that were accepted with it."""
        stored = [
            replace(tx, place=entries[tx.id].place, created_at=entries[tx.id].at) if tx.id in entries else tx
            for tx in self.transactions
        ]
        told = [
            replace(event, at=entries[event.tx_id].at) if event.kind == TX_ACCEPTED and event.tx_id else event
            for event in self.events
        ]
        return replace(self, transactions=tuple(stored), events=tuple(told))


class Draft(Struct, frozen=True, kw_only=True, gc=False):
    """Everything that is signed."""

    lane: LaneKey
    nonce: int
    payload: Payload
    gas: int
    fees: Fees


class Sealed(Struct, frozen=True, gc=False):
    """Signed bytes and the hash they will have on chain."""

    raw: bytes
    hash: Hash


class Recognised(Struct, frozen=True, kw_only=True, gc=False):
    """What somebody signed, read back from its bytes. `chain_id` None: it names no chain, so any of them would take it."""

    hash: Hash
    chain_id: int | None
    sender: Address
    nonce: int
    gas: int
    fees: Fees


class Market(Struct, frozen=True, kw_only=True, gc=False):
    """Prices as one endpoint sees them. `base_fee` None: the chain has none, `gas_price` is what to pay.

    `gas_limit` is the newest block's: what one transaction may ask for at most. None: not known.
    """

    base_fee: Wei | None
    gas_price: Wei
    priority: Mapping[Speed, Wei]
    gas_limit: int | None = None


class Account(Struct, frozen=True, gc=False):
    """An account at one block, from an endpoint that has that block."""

    count: int  # executed transactions: the next nonce the chain would take
    balance: Wei
    delegated: bool = False  # its code is an EIP-7702 delegation: pools hold one transaction of it


class View(Struct, frozen=True, gc=False):
    """What one endpoint says of the chain now. `finalized` None: it has no such tag."""

    head: BlockRef
    finalized: BlockRef | None


class Executed(Struct, frozen=True, gc=False):
    """Somebody's transaction in a block, with enough to compare it with ours."""

    hash: Hash
    sender: Address
    nonce: int
    to: Address | None
    value: Wei
    data: bytes

    @property
    def deed(self) -> str:
        return deed_of(self.to, self.value, self.data)


class Accepted(Struct, frozen=True, gc=False):
    """The node took the bytes."""


class Refused(Struct, frozen=True, gc=False):
    """The node answered with an error; what it proves is for `rejections` to say."""

    message: str
    code: int | None = None
    data: object = None


class Unknown(Struct, frozen=True, gc=False):
    """No answer that can be understood: the bytes may have arrived."""

    reason: str


Answer = Accepted | Refused | Unknown
