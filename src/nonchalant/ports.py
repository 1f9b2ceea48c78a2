"""What the stages ask of the world. Adapters live at the edges; only `parts`, `app`, `cli` and `sim` know them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Protocol, TypeVar

from nonchalant.access import EVERYTHING, Within
from nonchalant.audit import Deed, Entry, Head
from nonchalant.hooks import Alert, HeadSnapshot, LaneSnapshot
from nonchalant.keys import Key, KeyId, KeyRequest, Live, Written
from nonchalant.model import (
    Account,
    Admission,
    Answer,
    Attempt,
    Block,
    BlockRef,
    Change,
    Control,
    Draft,
    Event,
    Executed,
    LaneRecord,
    Lease,
    Market,
    Payload,
    Receipt,
    Recognised,
    Reply,
    Request,
    Sealed,
    Slot,
    Stranger,
    Transaction,
    View,
)
from nonchalant.webhooks import Delivery, DeliveryState, Parcel, Webhook
from nonchalant.wishes import OfTransaction, Wish
from nonchalant.words import Address, Hash, LaneKey, Millis, Mode, SlotKind, State, TxId, Wanted, Wei


class Clock(Protocol):
    def now(self) -> Millis:
        """Wall-clock time: for records and people, never for deciding who owns what."""

    def monotonic(self) -> float:
        """Seconds that never go back: for intervals."""

    async def sleep(self, seconds: float) -> None: ...


class Entropy(Protocol):
    def token(self) -> str:
        """128 random bits as 32 hex digits."""

    def uniform(self, low: float, high: float) -> float: ...


class Endpoint(Protocol):
    """One node of a chain.

    Every question raises `Unreachable` when no usable answer came, and `NodeRefused` when the node answered with
    an error. Nothing here is believed by itself: `panel` and `follow` compare endpoints.
    """

    name: str  # safe to print: no credentials

    async def view(self) -> View:
        """Its head and its `finalized` block, in one round trip."""

    async def block(self, ref: int | Hash) -> Block | None:
        """The block by number (on its canonical chain) or by hash; None when it does not have it."""

    async def receipts(self, block: BlockRef, hashes: Sequence[Hash]) -> Sequence[Receipt]:
        """Receipts of those of `hashes` that are in exactly this block; `Unreachable` unless it has all of them."""

    async def find(self, hashes: Sequence[Hash]) -> Sequence[Receipt | None]:
        """Where each was executed, as this endpoint sees it now; None proves nothing."""

    async def account(self, address: Address, block: BlockRef) -> Account:
        """The account at this block; `Unreachable` if the endpoint does not have the block on its canonical chain."""

    async def pending(self, address: Address) -> int:
        """The nonce its pool would take next. It proves nothing: pools forget, and each node has its own."""

    async def executed(self, block: BlockRef) -> Sequence[Executed]:
        """Everything the block executed; `Unreachable` if it does not have the block."""

    async def estimate(self, sender: Address, payload: Payload, block: BlockRef) -> int:
        """Gas the payload needs on top of its newest block, which has this one below it; `NodeRefused` if it cannot run, in words if its ABI has them."""

    async def replay(self, sender: Address, payload: Payload, gas: int, block: BlockRef) -> str | None:
        """Why the payload, executed in this block, reverted, by running it on the block before.

        None: it runs there, or the node cannot say. `Unreachable` if it does not have the block on its chain.
        """

    async def market(self) -> Market: ...

    async def data_fees(self, drafts: Sequence[Draft]) -> Sequence[Wei]:
        """What the chain would charge now, beside gas, for publishing each of them: 0 where it charges nothing, and
        for what cannot be encoded."""

    async def send(self, raws: Sequence[bytes]) -> Sequence[Answer]:
        """Hand the bytes over, in this order. Never raises: no answer is an answer too (`Unknown`)."""

    async def rpc(self, method: str, params: Sequence[object]) -> bytes:
        """Ask in the node's own words, for somebody else: the result as it came. Nobody here decides by it."""


class Chain(Protocol):
    """One chain: its endpoints, and how its transactions are written."""

    chain_id: int
    charges_for_data: bool  # beside gas, for publishing; False: nobody need ask for `data_fees`

    @property
    def endpoints(self) -> Sequence[Endpoint]: ...

    def digest(self, draft: Draft) -> bytes:
        """What the signer signs; `Unencodable` if the payload does not fit the chain."""

    def seal(self, draft: Draft, signature: bytes, *, check: bool = True) -> Sealed:
        """The bytes to broadcast and their hash; `SignerFailed` unless the signature is the account's own, as far as that
        is to be checked."""

    def recognise(self, raw: bytes) -> Recognised:
        """What bytes that somebody else signed say, and who did; `Unencodable` if they are nothing the chain takes."""


class Signer(Protocol):
    """Holds the key of one account."""

    address: Address
    # The key is in this process, and our own code signs with it: of many signatures one is checked, and not each.
    in_process: bool

    async def sign(self, digests: Sequence[bytes]) -> Sequence[bytes]:
        """One signature a digest (r, s, and the recovery bit, 65 bytes); `SignerFailed` if it cannot now."""


class Sink(Protocol):
    """Where events go once they are committed."""

    @property
    def is_wanted(self) -> bool:
        """Whether anybody waits for them here. While nobody does anywhere, they are not even read."""

    async def begin(self, position: int) -> None:
        """From here on everything comes; of what was told before, some may not have."""

    async def deliver(self, events: Sequence[Event]) -> None: ...


class Meter(Protocol):
    """Who is told how the engine's own work goes. It decides nothing, must not fail, and nobody waits for it."""

    def worked(self, stage: str, seconds: float) -> None:
        """A stage found something to do in a lane, and took so long."""

    def restarted(self, why: str) -> None:
        """A lane is loaded anew after an error: `expected`, `unexpected` or `poisoned`."""


T = TypeVar("T")


class Offload(Protocol):
    """Runs a blocking call off the event loop: a thread in production, in place in the simulator."""

    def __call__(self, act: Callable[[], T]) -> Awaitable[T]: ...


# What a hook wants done; None: nothing.
Advice = OfTransaction | Alert | None


class Adviser(Protocol):
    """An attention hook, and what it is held to."""

    async def advise(
        self, tx: Transaction, lane: LaneSnapshot, head: HeadSnapshot, fees: Market, now: Millis
    ) -> Advice:
        """`HookFailed` if there is no usable answer, `HookRefused` if the answer is against the rules."""


@dataclass(frozen=True, slots=True)
class LaneWork:
    """A lane that has something to do, and who does it."""

    lane: LaneKey
    owner: str | None  # None: nobody holds a lease that is still valid
    # In how many seconds the lease ends, or a negative number since it did; None: the last one was given back.
    ends_in: float | None = field(default=None, compare=False)

    @property
    def lapsed(self) -> bool:
        """Whether its last owner is dead, or cut off: it neither renewed its lease nor gave it back."""
        return self.owner is None and self.ends_in is not None


@dataclass(frozen=True, slots=True)
class Loaded:
    """All that is live in a lane past `queued`."""

    record: LaneRecord
    slots: Sequence[Slot]
    transactions: Sequence[Transaction]
    strangers: Sequence[Stranger] = ()  # those nobody was held for yet
    at: Millis = 0  # by the store's clock
    final_below: int = 0  # of the nonces below, all are used for good: one just below that is final


@dataclass(frozen=True, slots=True)
class Orders:
    """What people want of a lane: how it should be run, and their open wishes, oldest first."""

    control: Control
    wishes: Sequence[Wish] = ()


class Wished(Enum):
    """What became of the attempt to write a wish down."""

    TAKEN = auto()
    NOT_NOW = auto()  # the transaction has no slot (any more): it is queued, or has ended
    TOO_MANY = auto()  # the lane's owner has as many to grant as it may have


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The idempotency key was seen before, with the same body: this is the transaction."""

    transaction: Transaction


@dataclass(frozen=True, slots=True)
class KeyTaken:
    """The idempotency key was seen before with another body."""


@dataclass(frozen=True, slots=True)
class Removed:
    """The idempotency key was seen before, with the same body; the transaction it made has ended, and is kept no more."""

    tx_id: TxId


@dataclass(frozen=True, slots=True)
class Illegible:
    """The idempotency key was seen before, with the same body; the row of the transaction it made cannot be read."""

    tx_id: TxId


@dataclass(frozen=True, slots=True)
class NonceTaken:
    """Another request had asked for this nonce before; None: one of another tenant."""

    tx_id: TxId | None


@dataclass(frozen=True, slots=True)
class NoRoom:
    """The lane's queue is at its limit."""


@dataclass(frozen=True, slots=True)
class Draining:
    """The lane takes nothing new."""


@dataclass(frozen=True, slots=True)
class Overdue:
    """Its deadline has passed already."""


Acceptance = Transaction | Duplicate | KeyTaken | Removed | Illegible | NonceTaken | NoRoom | Draining | Overdue


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which transactions a listing shows; None leaves a field open."""

    state: State | None = None
    chain_id: int | None = None
    sender: Address | None = None
    nonce: int | None = None
    hash: Hash | None = None
    idempotency_key: str | None = None
    batch: str | None = None
    live: bool | None = None  # True: only those that have not ended
    within: Within = EVERYTHING  # what whoever asks may see
    before: int | None = None  # the place to go on below: listings run from the newest down
    limit: int = 50


@dataclass(frozen=True, slots=True)
class EventRange:
    """Which positions can be read on from: none below `forgotten`, or something that is kept no more would be missing,
    and none above `last`, which nobody was given yet."""

    forgotten: int
    last: int


@dataclass(frozen=True, slots=True)
class FirstOpen:
    """The lowest nonce of a lane that no block is known to have executed."""

    nonce: int
    kind: SlotKind
    tx_id: TxId | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How a live transaction stands among the others of its lane."""

    ahead: int | None = None  # queued ones that go before it, counted up to a limit; None: it is not in the line
    wanted: Wanted = Wanted.PAYLOAD  # at its slot
    payload_version: int | None = None  # which should run there, 0 for none; None: it has no slot
    first: FirstOpen | None = None


@dataclass(frozen=True, slots=True)
class Numbering:
    """Which nonces of a lane are spoken for. `next_nonce` None: it was never synchronised with the chain."""

    next_nonce: int | None
    waiting: int  # queued ones, not held, that take whichever is next
    asked_for: frozenset[int] = frozenset()  # what others of them wait for by name

    def next_free(self, executed: int) -> int:
        """The lowest that nothing accepted so far will take. `executed`: as many as the chain shows to be used."""
        nonce, waiting = max(self.next_nonce or 0, executed), self.waiting
        while waiting or nonce in self.asked_for:
            waiting -= nonce not in self.asked_for
            nonce += 1
        return nonce


@dataclass(frozen=True, slots=True)
class Reserved:
    """A nonce that is kept for somebody outside; who that is stays secret."""

    nonce: int
    deadline: Millis
    hash: Hash | None  # what its holder says he signed, last


@dataclass(frozen=True, slots=True)
class OpenWish:
    """Something that waits for the lane's owner."""

    kind: str
    tx_id: TxId | None
    made_at: Millis


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneSummary:
    record: LaneRecord
    control: Control
    states: Mapping[State, int]  # live ones only
    slots: Mapping[str, int]  # unsettled ones, by kind
    reservations: Sequence[Reserved] = ()  # those whose nonce is not final
    wishes: Sequence[OpenWish] = ()  # the oldest open ones
    owner: str | None
    epoch: int
    expires_at: Millis


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """How the whole store stands. By chain, and by the state of what is live (`held`: queued, and waits for a person), or
    by the condition of a lane."""

    live: Mapping[tuple[int, str], int]
    oldest_unmined: Mapping[int, Millis]  # its age; a chain that waits for no block is left out
    lanes: Mapping[tuple[int, str], int]


@dataclass(frozen=True, slots=True)
class WebhookOwner:
    """Who delivers for a webhook; None: nobody whose time is not over."""

    id: str
    version: int
    owner: str | None
    disabled: bool


@dataclass(frozen=True, slots=True)
class Roll:
    """All webhooks, and how many nodes live to share them."""

    webhooks: Sequence[WebhookOwner]
    live_nodes: int


@dataclass(frozen=True, slots=True)
class WebhookWork:
    """A webhook and what waits for it, in the order of positions."""

    webhook: Webhook
    pending: Sequence[Delivery]
    at: Millis  # by the store's clock


class WebhookStore(Protocol):
    """The part of the store that webhooks are kept in. Whoever delivers names itself: `DeliveryLost` if another does."""

    async def add_webhook(self, webhook: Webhook, *, most: int) -> bool:
        """False: there are as many as there may be."""

    async def webhooks(self) -> Sequence[Webhook]: ...

    async def webhook(self, webhook_id: str) -> Webhook | None: ...

    async def alter_webhook(self, webhook: Webhook) -> None:
        """Write it anew, all but its position; what waits is tried now. `RowMoved` unless its version is as it was read."""

    async def rewind_webhook(self, webhook_id: str, position: int) -> bool:
        """Deliver again what comes after the position. False: there is no such webhook."""

    async def remove_webhook(self, webhook_id: str) -> bool: ...

    async def webhook_owners(self) -> Roll: ...

    async def own_webhooks(self, webhook_ids: Sequence[str], owner: str, ttl: float) -> frozenset[str]:
        """Deliver for these from now on, or go on to; those that are ours."""

    async def release_webhooks(self, owner: str) -> None: ...

    async def load_webhook(self, webhook_id: str, owner: str, *, limit: int) -> WebhookWork: ...

    async def fan_out(self, webhook: Webhook, owner: str, upto: int, parcels: Sequence[Parcel]) -> Sequence[Delivery]:
        """Make deliveries of the events up to this position; those that did not wait already. `RowMoved` if somebody
        changed the webhook."""

    async def record_deliveries(
        self, webhook_id: str, owner: str, tried: Sequence[Delivery], *, disable: str | None = None, hurry: bool = False
    ) -> None:
        """Write down what became of them. `disable`: why nothing more is delivered; `hurry`: what waits is tried now."""

    async def deliveries(
        self,
        webhook_id: str,
        *,
        state: DeliveryState | None = None,
        position: int | None = None,
        before: int | None = None,
        limit: int,
    ) -> Sequence[Delivery]:
        """The log, from the newest event down."""

    async def replay_delivery(self, webhook_id: str, position: int) -> bool:
        """Let it wait once more. False: there is none."""

    async def forget_deliveries(self, *, older_than: Millis, limit: int) -> int:
        """Remove what ended so long ago from the log; how many."""

    async def position_since(self, since: Millis) -> int | None:
        """Of the first event of this time or later; None: there is none yet."""

    async def event_range(self) -> EventRange: ...


class Store(Protocol):
    """The only memory there is. Raises `StoreUnavailable` when nothing happened, `CommitUnknown` when it cannot tell."""

    async def accept(self, requests: Sequence[Request], *, limits: Mapping[LaneKey, int]) -> Sequence[Acceptance]:
        """Keep the requests in one commit; one answer each, in order. Repeating a call with the same ids is safe."""

    async def accept_together(
        self, requests: Sequence[Request], *, limits: Mapping[LaneKey, int]
    ) -> Sequence[Acceptance]:
        """Keep all of them, in one commit, or none: then at least one answer is neither a transaction nor a duplicate.

        The first carries the idempotency key of all; where that is known, all answers are duplicates.
        """

    async def declare(self, lanes: Sequence[LaneKey]) -> None:
        """Make the lanes exist."""

    async def incarnation(self) -> int:
        """Raised each time the store was found to be older than it had been."""

    # ownership

    async def lanes_with_work(self, *, marked: bool = False) -> Sequence[LaneWork]:
        """`marked`: also those where something queued carries a mark."""

    async def heartbeat(self, owner: str, ttl: float) -> int:
        """Say that this node lives; answers how many do."""

    async def acquire(self, lane: LaneKey, owner: str, ttl: float) -> int | None:
        """Take a lane nobody holds, or one's own anew: the new epoch, or None if another holds it."""

    async def renew(self, leases: Sequence[Lease], ttl: float) -> Sequence[LaneKey]:
        """Prolong what is still held; the lanes that are."""

    async def release(self, leases: Sequence[Lease], owner: str | None = None) -> None:
        """Let go, so that another node need not wait; what was lost already is left alone. `owner`: the node goes too."""

    # what people want

    async def alter_queued(self, tx: Transaction, events: Sequence[Event], twin: Stranger | None = None) -> None:
        """Write a queued row anew, from any node. `RowMoved` unless it is still queued, in the version before this one.

        `MayHaveRun` if that would end what a commit that this store lost may have sent. `twin`: what may have been it; it
        is held against nobody else.
        """

    async def twin_of(self, tx: Transaction) -> Stranger | None:
        """Something its account did unknown to this store that does just what it would, and is held against nobody."""

    async def overdue(self, *, limit: int) -> Sequence[Transaction]:
        """Queued ones whose deadline has passed."""

    async def wish(self, wish: Wish, *, limit: int) -> Wished:
        """Write a wish down for the lane's owner. Repeating a call with the same id is safe."""

    async def reply(self, wish_id: str) -> Reply | None:
        """What the owner answered; None: nothing yet."""

    async def withdraw(self, wish_id: str) -> bool:
        """Take a wish back, or find that it was. False: it was answered already."""

    async def forget_replies(self, *, older_than: Millis) -> int:
        """Answers that nobody asked for in this time are dropped; how many."""

    async def forget_settled(self, *, older_than: Millis, limit: int) -> bool:
        """Remove what ended so long ago, a few at a time, with its slots, attempts and history. True: there may be more.

        Never anything of a slot that is not final, nor of a lane that is halted or not yet reconciled with its chain.
        Of a request with an idempotency key, the key is kept for as long again. Old events of lanes go too.
        """

    async def control(self, lane: LaneKey, mode: Mode, reason: str) -> Control:
        """Say how a lane should be run; what was said before is answered.

        To open a lane is to believe its chain. One that is halted can only be opened: nothing else changes it.
        """

    async def halt(self, chain_id: int, reason: str) -> None:
        """Stop every lane of the chain, until somebody opens it again."""

    # the owner's work

    async def orders(self, lane: LaneKey) -> Orders: ...

    async def load(self, lease: Lease) -> Loaded:
        """`LeaseLost` unless the lease is still held."""

    async def queued(self, lane: LaneKey, *, limit: int, skip: Collection[TxId] = ()) -> Sequence[Transaction]:
        """What waits and is not held, in the order in which it is to go, without those to `skip`.

        Nothing while people keep the lane from giving out nonces.
        """

    async def marked(self, lane: LaneKey, *, limit: int, after: int = 0) -> Sequence[Transaction]:
        """What is queued, held or not, and carries a mark, by its place; `after`: the place to go on from."""

    async def has_queued_before(self, tx: Transaction) -> bool:
        """Whether something in its lane that was accepted earlier is still queued and not held."""

    async def bound(self, lane: LaneKey, *, first: int, below: int) -> frozenset[int]:
        """Those nonces of the range that have a slot, live or final, as far as they are kept."""

    async def known_attempts(self, hashes: Sequence[Hash]) -> frozenset[Hash]:
        """Those of the hashes that were signed here."""

    async def commit(self, change: Change, lease: Lease) -> Mapping[TxId, Admission]:
        """The one door for state; where what is accepted with it stands. `LeaseLost` or `RowMoved`: nothing was written."""

    # reading

    async def transaction(self, tx_id: TxId) -> Transaction | None: ...

    async def transactions(self, filter: Filter) -> Sequence[Transaction]: ...

    async def standings(self, transactions: Sequence[Transaction], *, limit: int) -> Mapping[TxId, Standing]:
        """How the live ones of these stand; a line is counted to one more than `limit`."""

    async def attempts(self, tx_ids: Sequence[TxId]) -> Mapping[TxId, Sequence[Attempt]]: ...

    async def history(self, tx_id: TxId) -> Sequence[Event]: ...

    async def lane_history(self, lane: LaneKey, *, limit: int, before: int | None = None) -> Sequence[Event]:
        """What the lane told of itself, newest first; `before`: the position to go on from."""

    async def events_after(self, position: int, *, limit: int) -> Sequence[Event]: ...

    async def last_position(self) -> int:
        """The last one that was given; it never falls."""

    async def event_range(self) -> EventRange: ...

    async def tenants(self, tx_ids: Sequence[TxId]) -> Mapping[TxId, str]:
        """Whose they are; those that are not there, or not any more, are left out."""

    async def numbering(self, key: LaneKey) -> Numbering:
        """Which nonces of a lane are spoken for, also by what is only queued."""

    async def lane(self, key: LaneKey) -> LaneSummary | None: ...

    async def lanes(self, within: Within = EVERYTHING) -> Sequence[LaneSummary]: ...

    # keys, and what people did with their power

    async def add_key(
        self, written: Written, wanted: KeyRequest, deed: Deed, *, only_first: bool = False
    ) -> Key | None:
        """Keep a key's digest; None: `only_first`, and there is one already. Repeating a call with the same key is safe."""

    async def revoke_key(self, key_id: KeyId, deed: Deed) -> Key | None:
        """From its commit on nobody is let in by it, on any node. None: there is none."""

    async def live_keys(self, ids: Sequence[KeyId]) -> Mapping[KeyId, Live]:
        """Those of them that are neither revoked nor expired now, by the store's clock."""

    async def key(self, key_id: KeyId) -> Key | None: ...

    async def keys(self, *, before: int | None = None, limit: int) -> Sequence[Key]:
        """From the newest down; `before`: the place to go on below."""

    async def note(self, deed: Deed) -> int:
        """Write it into the audit log; its position there."""

    async def audit_after(self, position: int, *, limit: int) -> Sequence[Entry]: ...

    async def audit_head(self) -> Head:
        """Where the audit log ends."""

    async def overview(self, *, limit: int) -> Overview:
        """How much there is to do, for people; of live transactions, so many are counted at most."""

    async def close(self) -> None: ...
