"""The values everything else speaks in. Frozen, with their unit in the name or the type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from hashlib import sha256
from typing import NamedTuple

Wei = int
Millis = int  # since the Unix epoch
Address = str  # lower-case 0x-hex, normalised once at the edge
Hash = str  # lower-case 0x-hex
TxId = str


class LaneKey(NamedTuple):
    """One account on one chain: the unit of ordering, of leasing, of health."""

    chain_id: int
    address: Address

    def __str__(self) -> str:
        return f"{self.chain_id}:{self.address}"


class State(StrEnum):
    QUEUED = "queued"
    SIGNED = "signed"
    SENT = "sent"
    MINED = "mined"
    CONFIRMED = "confirmed"
    REVERTED = "reverted"
    FAILED = "failed"


class Speed(StrEnum):
    SLOW = "slow"
    STANDARD = "standard"
    FAST = "fast"


class AttemptKind(StrEnum):
    ORIGINAL = "original"
    BUMP = "bump"
    CANCEL = "cancel"
    FILLER = "filler"


PAYLOAD_KINDS = frozenset({AttemptKind.ORIGINAL, AttemptKind.BUMP})


class SlotKind(StrEnum):
    TRANSACTION = "transaction"
    FILLER = "filler"


class Wanted(StrEnum):
    """What should run at a slot: the payload, or nothing."""

    PAYLOAD = "payload"
    NOTHING = "nothing"  # no node accepts the payload's bytes, though one may have them: only the nonce is wanted


@dataclass(frozen=True, slots=True)
class Fees:
    """What one unit of gas may cost. `priority` is None on chains without a base fee: then `max_fee` is the gas price."""

    max_fee: Wei
    priority: Wei | None = None


AccessList = tuple[tuple[Address, tuple[str, ...]], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload:
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
    def deed(self) -> str:
        """What it does, whatever it costs: equal for payloads that do the same."""
        return deed_of(self.to, self.value, self.data)


def deed_of(to: Address | None, value: Wei, data: bytes) -> str:
    return sha256(b"%s %d %s" % ((to or "").encode(), value, data)).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
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


class BlockRef(NamedTuple):
    number: int
    hash: Hash


@dataclass(frozen=True, slots=True)
class Block:
    """One block as the follower needs it: its link and what it executed."""

    number: int
    hash: Hash
    parent: Hash
    transactions: tuple[Hash, ...]

    @property
    def ref(self) -> BlockRef:
        return BlockRef(self.number, self.hash)


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
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


@dataclass(frozen=True, slots=True)
class Attention:
    """Why a live transaction or a lane needs a look, in one sentence that names the remedy."""

    code: str
    reason: str
    since: Millis


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
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
    simulate: bool = False
    held: bool = False
    nonce: int | None = None
    hash: Hash | None = None  # the newest attempt's; once mined, the executed one's
    receipt: Receipt | None = None
    failure: str | None = None  # why it failed, for state `failed`; for `reverted`, if a node could say
    attention: Attention | None = None

    @property
    def live(self) -> bool:
        return self.state in LIVE_STATES


LIVE_STATES = frozenset({State.QUEUED, State.SIGNED, State.SENT, State.MINED})
TERMINAL_STATES = frozenset(State) - LIVE_STATES


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One signed payload at one slot. Append-only, but for what nodes said about it."""

    hash: Hash
    nonce: int
    tx_id: TxId | None  # None for a filler
    kind: AttemptKind
    fees: Fees
    gas: int
    raw: bytes
    epoch: int
    signed_at: Millis
    floor: int  # the finalised height when it was signed: no block up to there can hold it
    sent_at: Millis | None = None  # when a node first got it, as far as recorded
    answer: str | None = None  # the last thing nodes said about it


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One nonce of a lane while it is not final, with every attempt that was ever signed for it."""

    nonce: int
    kind: SlotKind
    tx_id: TxId | None
    attempts: tuple[Attempt, ...]
    wanted: Wanted = Wanted.PAYLOAD
    receipt: Receipt | None = None  # where the linked chain shows one of its attempts executed
    settled: bool = False

    @property
    def newest(self) -> Attempt:
        return self.attempts[-1]

    @property
    def floor(self) -> int:
        return min(attempt.floor for attempt in self.attempts)

    def ran_the_payload(self, hash: Hash) -> bool:
        """Whether the attempt with this hash carries what the user asked for."""
        return any(attempt.hash == hash and attempt.kind in PAYLOAD_KINDS for attempt in self.attempts)

    def with_attempt(self, attempt: Attempt) -> Slot:
        return replace(self, attempts=(*self.attempts, attempt))


@dataclass(frozen=True, slots=True)
class Stranger:
    """Something the account executed that this store knows nothing of, found when the lane was reconciled.

    It may be ours, from a commit that was lost. So the next request that does the same is held, once.
    """

    hash: Hash
    nonce: int
    deed: str
    tx_id: TxId | None = None  # who was held for it


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneRecord:
    """What the store keeps of a lane beside its slots. `next_nonce` None: never synchronised with the chain."""

    key: LaneKey
    next_nonce: int | None = None
    settled_below: int = 0  # every nonce below is final; no slot may be made there
    seen_block: int = 0  # the finalised height at the last write: what was lost cannot be older
    incarnation: int = 0  # of the store, when the lane was last reconciled with the chain
    quarantined_below: int | None = None  # assign nothing until every nonce below is final
    attention: Attention | None = None


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to work a lane. `epoch` is the fencing token; `until` is on the holder's monotonic clock, in seconds."""

    lane: LaneKey
    owner: str
    epoch: int
    until: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One fact about a transaction or a lane. The store gives it its position."""

    kind: str
    lane: LaneKey
    at: Millis
    tx_id: TxId | None = None
    data: Mapping[str, object] = field(default_factory=dict)
    position: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One commit: everything in it becomes true at once, or nothing does."""

    transactions: tuple[Transaction, ...] = ()  # the new rows; each names its version, one above the stored one
    slots: tuple[Slot, ...] = ()
    freed: tuple[int, ...] = ()
    attempts: tuple[Attempt, ...] = ()  # new ones
    answered: tuple[Attempt, ...] = ()  # known ones, of which nodes said something
    lane: LaneRecord | None = None
    strangers: tuple[Stranger, ...] = ()  # new ones, and known ones that found their twin
    events: tuple[Event, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """Everything that is signed."""

    lane: LaneKey
    nonce: int
    payload: Payload
    gas: int
    fees: Fees


@dataclass(frozen=True, slots=True)
class Sealed:
    """Signed bytes and the hash they will have on chain."""

    raw: bytes
    hash: Hash


@dataclass(frozen=True, slots=True, kw_only=True)
class Market:
    """Prices as one endpoint sees them. `base_fee` None: the chain has none, `gas_price` is what to pay.

    `gas_limit` is the newest block's: what one transaction may ask for at most. None: not known.
    """

    base_fee: Wei | None
    gas_price: Wei
    priority: Mapping[Speed, Wei]
    gas_limit: int | None = None


@dataclass(frozen=True, slots=True)
class Account:
    """An account at one block, from an endpoint that has that block."""

    count: int  # executed transactions: the next nonce the chain would take
    balance: Wei
    delegated: bool = False  # its code is an EIP-7702 delegation: pools hold one transaction of it


@dataclass(frozen=True, slots=True)
class View:
    """What one endpoint says of the chain now. `finalized` None: it has no such tag."""

    head: BlockRef
    finalized: BlockRef | None


@dataclass(frozen=True, slots=True)
class Executed:
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


@dataclass(frozen=True, slots=True)
class Accepted:
    """The node took the bytes."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The node answered with an error; what it proves is for `rejections` to say."""

    message: str
    code: int | None = None
    data: object = None


@dataclass(frozen=True, slots=True)
class Unknown:
    """No answer that can be understood: the bytes may have arrived."""

    reason: str


Answer = Accepted | Refused | Unknown
