"""What the outside sees: amounts as decimal strings, times in UTC, addresses with their checksum."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

import msgspec

from nonchalant.chain.evm.addresses import checksum
from nonchalant.model import Attempt, Attention, Event, Fees, Payload, Transaction
from nonchalant.notation import (
    AddressText,
    BatchText,
    BytesText,
    CursorText,
    Depth,
    HashText,
    Priority,
    TimeText,
    TxIdText,
    WeiText,
    Whole,
)
from nonchalant.waiting_for import NOTHING_KNOWN, Situation, why
from nonchalant.words import Address, AttemptKind, LaneKey, Millis, OnSuperseded, Speed, State, Wanted

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class FeesView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A speed, both EIP-1559 prices, or a gas price; prices in wei. `wish`: they were only to begin with, and are no cap."""

    speed: Speed | None = None
    max_fee_per_gas: WeiText | None = None
    max_priority_fee_per_gas: WeiText | None = None
    gas_price: WeiText | None = None
    wish: bool = False


class AccessView(msgspec.Struct, frozen=True, kw_only=True):
    address: AddressText
    storage_keys: list[HashText]


class AttentionView(msgspec.Struct, frozen=True, kw_only=True):
    """Why somebody should look."""

    code: str
    reason: str
    since: TimeText


class BlockView(msgspec.Struct, frozen=True, kw_only=True):
    number: Whole
    hash: HashText


class ReceiptView(msgspec.Struct, frozen=True, kw_only=True):
    """`cost` is all that was paid for gas, in wei."""

    hash: HashText
    block_number: Whole
    block_hash: HashText
    succeeded: bool
    gas_used: Whole
    gas_price: WeiText
    l1_fee: WeiText
    cost: WeiText
    contract: AddressText | None
    confirmations: list[BlockView] | None
    fork: bool


class AttemptView(msgspec.Struct, frozen=True, kw_only=True):
    """One signed payload; `answer` is the last thing nodes said about it."""

    hash: HashText
    nonce: Whole
    kind: AttemptKind
    payload_version: Whole
    gas: Whole
    fees: FeesView
    signed_at: TimeText
    sent_at: TimeText | None
    answer: str | None


class PayloadView(msgspec.Struct, frozen=True, kw_only=True):
    """What a transaction was to do before it was replaced."""

    version: Whole
    to: AddressText | None
    value: WeiText
    data: BytesText
    gas: Whole | None
    access_list: list[AccessView]


class OutcomeView(msgspec.Struct, frozen=True, kw_only=True):
    """What took its nonce for good; all null: nothing of it ever did."""

    ran: Wanted | None
    payload_version: Whole | None
    hash: HashText | None


class TransactionView(msgspec.Struct, frozen=True, kw_only=True, rename={"sender": "from"}):
    """A transaction; `hash` is the newest attempt's, once mined the executed one's."""

    id: TxIdText
    state: State
    chain_id: Whole
    sender: AddressText
    to: AddressText | None
    value: WeiText
    data: BytesText
    gas: Whole | None
    access_list: list[AccessView]
    payload_version: Whole
    earlier: list[PayloadView]
    fees: FeesView
    priority: Priority
    valid_until: TimeText | None
    confirmations: Depth | None
    on_superseded: OnSuperseded | None
    simulate: bool
    nonce: Whole | None
    hash: HashText | None
    attempts: list[AttemptView]
    receipt: ReceiptView | None
    outcome: OutcomeView | None
    failure: str | None
    wanted: Wanted | None
    waiting: str | None
    held: bool
    attention: AttentionView | None
    idempotency_key: str | None
    batch: BatchText | None
    metadata: dict[str, Any] | None
    version: Whole
    created_at: TimeText
    updated_at: TimeText


class TransactionsView(msgspec.Struct, frozen=True, kw_only=True):
    """A page, newest first; give `next_cursor` as `cursor` to go on, null: this was the last page."""

    transactions: list[TransactionView]
    next_cursor: CursorText | None


class BatchView(msgspec.Struct, frozen=True, kw_only=True):
    """Transactions that were accepted together, in the order in which they were asked for."""

    batch: BatchText
    transactions: list[TransactionView]


class LaneRef(msgspec.Struct, frozen=True, kw_only=True):
    chain_id: Whole
    address: AddressText


class EventView(msgspec.Struct, frozen=True, kw_only=True):
    position: Whole
    kind: str
    at: TimeText
    tx: TxIdText | None
    lane: LaneRef
    data: dict[str, Any]


class EventsView(msgspec.Struct, frozen=True, kw_only=True):
    events: list[EventView]


class LaneEventsView(msgspec.Struct, frozen=True, kw_only=True):
    """A page, newest first; give `next_cursor` as `cursor` to go on, null: this was the last page."""

    events: list[EventView]
    next_cursor: CursorText | None


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An RFC 9457 problem document; `code` is stable, `field` names what to correct, `tx` the transaction it is about.

    `data` is what else there is to know.
    """

    type: str
    title: str
    status: int
    detail: str
    code: str
    field: str | None = None
    tx: TxIdText | None = None
    data: dict[str, Any] | None = None


def show_transaction(
    tx: Transaction, attempts: Sequence[Attempt], around: Situation = NOTHING_KNOWN
) -> TransactionView:
    wanted = None if around.standing is None or tx.nonce is None else around.standing.wanted
    return TransactionView(
        id=tx.id,
        state=tx.state,
        chain_id=tx.lane.chain_id,
        sender=checksum(tx.lane.address),
        to=_address(tx.payload.to),
        value=str(tx.payload.value),
        data="0x" + tx.payload.data.hex(),
        gas=tx.payload.gas,
        access_list=_access_list(tx.payload),
        payload_version=tx.payload_version,
        earlier=[_payload(payload, version) for version, payload in enumerate(tx.earlier, start=1)],
        fees=_fees(tx.fees),
        priority=tx.priority,
        valid_until=None if tx.valid_until is None else show_time(tx.valid_until),
        confirmations=tx.confirmations,
        on_superseded=tx.on_superseded,
        simulate=tx.simulate,
        nonce=tx.nonce,
        hash=tx.hash,
        attempts=[_attempt(attempt) for attempt in attempts],
        receipt=_receipt(tx, around),
        outcome=None if tx.live else _outcome(tx, attempts),
        failure=tx.failure,
        wanted=wanted if tx.live else None,
        waiting=why(tx, attempts, around),
        held=tx.held,
        attention=show_attention(tx.attention),
        idempotency_key=tx.idempotency_key,
        batch=tx.batch,
        metadata=None if tx.metadata is None else dict(tx.metadata),
        version=tx.version,
        created_at=show_time(tx.created_at),
        updated_at=show_time(tx.updated_at),
    )


def show_event(event: Event) -> EventView:
    return EventView(
        position=event.position,
        kind=event.kind,
        at=show_time(event.at),
        tx=event.tx_id,
        lane=_lane(event.lane),
        data={key: _exact(value) for key, value in event.data.items()} | _repeats(event),
    )


def _repeats(event: Event) -> dict[str, object]:
    """How often it was told, if more than once."""
    return {} if event.since is None else {"times": event.times, "since": show_time(event.since)}


# All that is committed together has one time.
@lru_cache(maxsize=1024)
def show_time(at: Millis) -> str:
    return (_EPOCH + timedelta(milliseconds=at)).isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def _exact(value: object) -> object:
    """Amounts beyond what every JSON reader keeps exact become strings."""
    match value:
        case bool():
            return value
        case int():
            return value if -(2**53) < value < 2**53 else str(value)
        case Mapping():
            return {str(key): _exact(item) for key, item in value.items()}
        case list() | tuple():
            return [_exact(item) for item in value]
        case _:
            return value


# What an attempt that carries no payload was for.
_INSTEAD = {State.CANCELLED: Wanted.CANCEL, State.EXPIRED: Wanted.EXPIRY}


def _outcome(tx: Transaction, attempts: Sequence[Attempt]) -> OutcomeView:
    receipt = tx.receipt
    if receipt is None:
        return OutcomeView(ran=None, payload_version=None, hash=None)
    version = next((attempt.payload_version for attempt in attempts if attempt.hash == receipt.hash), 0)
    if version == 0:
        return OutcomeView(ran=_INSTEAD.get(tx.state, Wanted.NOTHING), payload_version=None, hash=receipt.hash)
    return OutcomeView(ran=Wanted.PAYLOAD, payload_version=version, hash=receipt.hash)


def _payload(payload: Payload, version: int) -> PayloadView:
    return PayloadView(
        version=version,
        to=_address(payload.to),
        value=str(payload.value),
        data="0x" + payload.data.hex(),
        gas=payload.gas,
        access_list=_access_list(payload),
    )


def _access_list(payload: Payload) -> list[AccessView]:
    return [AccessView(address=checksum(address), storage_keys=list(keys)) for address, keys in payload.access_list]


def _attempt(attempt: Attempt) -> AttemptView:
    return AttemptView(
        hash=attempt.hash,
        nonce=attempt.nonce,
        kind=attempt.kind,
        payload_version=attempt.payload_version,
        gas=attempt.gas,
        fees=_fees(attempt.fees),
        signed_at=show_time(attempt.signed_at),
        sent_at=None if attempt.sent_at is None else show_time(attempt.sent_at),
        answer=attempt.answer,
    )


def _receipt(tx: Transaction, around: Situation) -> ReceiptView | None:
    receipt = tx.receipt
    if receipt is None:
        return None
    above = around.above
    return ReceiptView(
        hash=receipt.hash,
        block_number=receipt.block.number,
        block_hash=receipt.block.hash,
        succeeded=receipt.succeeded,
        gas_used=receipt.gas_used,
        gas_price=str(receipt.gas_price),
        l1_fee=str(receipt.l1_fee),
        cost=str(receipt.cost),
        contract=_address(receipt.contract),
        confirmations=None if above is None else [BlockView(number=one.number, hash=one.hash) for one in above],
        fork=tx.forked,
    )


def _fees(fees: Speed | Fees) -> FeesView:
    if isinstance(fees, Speed):
        return FeesView(speed=fees)
    if fees.priority is None:
        return FeesView(gas_price=str(fees.max_fee), wish=not fees.firm)
    return FeesView(max_fee_per_gas=str(fees.max_fee), max_priority_fee_per_gas=str(fees.priority), wish=not fees.firm)


def show_attention(attention: Attention | None) -> AttentionView | None:
    if attention is None:
        return None
    return AttentionView(code=attention.code, reason=attention.reason, since=show_time(attention.since))


def _lane(key: LaneKey) -> LaneRef:
    return LaneRef(chain_id=key.chain_id, address=checksum(key.address))


def _address(address: Address | None) -> str | None:
    return None if address is None else checksum(address)
