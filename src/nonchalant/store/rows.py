"""Rows and values: how what the model says is written in columns. Wei is text, because it does not fit an integer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NotRequired, Protocol, TypedDict

import msgspec

from nonchalant.model import (
    Attempt,
    Attention,
    BlockRef,
    Control,
    Event,
    Fees,
    LaneRecord,
    Payload,
    Receipt,
    Reply,
    Request,
    Reservation,
    Slot,
    Stranger,
    Transaction,
)
from nonchalant.values import replace
from nonchalant.words import AttemptKind, LaneKey, Mode, OnSuperseded, SlotKind, Speed, State, Wanted


class Row(Protocol):
    """What a driver's row can do."""

    def __getitem__(self, column: str, /) -> Any: ...

    def keys(self) -> Iterable[str]: ...


# What reading a row can raise when somebody or something changed its text.
UNDECODABLE = (msgspec.DecodeError, ValueError, KeyError, TypeError, IndexError, AttributeError)

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class PayloadFields(TypedDict):
    to: str | None
    value: str
    data: str
    gas: int | None
    access_list: list[tuple[str, list[str]]]
    abi: NotRequired[str]


class _ReceiptFields(TypedDict):
    hash: str
    block: tuple[int, str]
    succeeded: bool
    gas_used: int
    gas_price: str
    contract: str | None
    l1_fee: str


# With their types: text that is JSON, and not what was written there, would break whoever computes with it.
_read_payload = msgspec.json.Decoder(PayloadFields).decode
_read_payloads = msgspec.json.Decoder(list[PayloadFields]).decode
_read_receipt = msgspec.json.Decoder(_ReceiptFields).decode
_read_mark = msgspec.json.Decoder(tuple[str, str, int]).decode
_read_block = msgspec.json.Decoder(tuple[int, str]).decode


def to_json(value: object) -> str:
    return _encode(value).decode()


def payload_text(payload: Payload) -> str:
    return to_json(payload_fields(payload))


def payload_fields(payload: Payload) -> dict[str, object]:
    return {
        "to": payload.to,
        "value": str(payload.value),
        "data": payload.data.hex(),
        "gas": payload.gas,
        "access_list": payload.access_list,
        **({} if payload.abi is None else {"abi": payload.abi}),
    }


def payload(text: str) -> Payload:
    return payload_of(_read_payload(text))


def payload_of(fields: PayloadFields) -> Payload:
    return Payload(
        to=fields["to"],
        value=int(fields["value"]),
        data=bytes.fromhex(fields["data"]),
        gas=fields["gas"],
        access_list=tuple((address, tuple(keys)) for address, keys in fields["access_list"]),
        abi=fields.get("abi"),
    )


# Before prices that are only to begin with.
_NOT_FIRM = "~"


def fees_text(fees: Speed | Fees) -> str:
    if isinstance(fees, Speed):
        return fees.value
    prices = str(fees.max_fee) if fees.priority is None else f"{fees.max_fee} {fees.priority}"
    return prices if fees.firm else _NOT_FIRM + prices


def fees(text: str) -> Fees:
    max_fee, _, priority = text.partition(" ")
    return Fees(int(max_fee), int(priority) if priority else None)


def wish(text: str) -> Speed | Fees:
    if text.startswith(_NOT_FIRM):
        return replace(fees(text.removeprefix(_NOT_FIRM)), firm=False)
    return fees(text) if text[0].isdigit() else Speed(text)


def receipt_text(receipt: Receipt | None) -> str | None:
    if receipt is None:
        return None
    return to_json(
        {
            "hash": receipt.hash,
            "block": receipt.block,
            "succeeded": receipt.succeeded,
            "gas_used": receipt.gas_used,
            "gas_price": str(receipt.gas_price),
            "contract": receipt.contract,
            "l1_fee": str(receipt.l1_fee),
        }
    )


def receipt(text: str | None) -> Receipt | None:
    if text is None:
        return None
    fields = _read_receipt(text)
    return Receipt(
        hash=fields["hash"],
        block=BlockRef(*fields["block"]),
        succeeded=fields["succeeded"],
        gas_used=fields["gas_used"],
        gas_price=int(fields["gas_price"]),
        contract=fields["contract"],
        l1_fee=int(fields["l1_fee"]),
    )


def attention_text(attention: Attention | None) -> str | None:
    return None if attention is None else to_json([attention.code, attention.reason, attention.since])


def attention(text: str | None) -> Attention | None:
    return None if text is None else Attention(*_read_mark(text))


def request_columns(request: Request) -> dict[str, object]:
    return {
        "id": request.id,
        "chain_id": request.lane.chain_id,
        "address": request.lane.address,
        "priority": request.priority,
        "simulate": request.simulate,
        "tenant": request.tenant,
        "idempotency_key": request.idempotency_key,
        "body_hash": request.body_hash,
        "payload": payload_text(request.payload),
        "fees": fees_text(request.fees),
        "metadata": None if request.metadata is None else to_json(request.metadata),
        "valid_until": request.valid_until,
        "confirmations": request.confirmations,
        "on_superseded": None if request.on_superseded is None else request.on_superseded.value,
        "asked_nonce": request.asked_nonce,
        "batch": request.batch,
    }


def signed_columns(request: Request, tx: Transaction) -> dict[str, object]:
    """What is accepted and signed at once: what was asked for, and what became of it."""
    return {
        **request_columns(request),
        "version": tx.version,
        "state": tx.state.value,
        "nonce": tx.nonce,
        "hash": tx.hash,
        "updated_at": tx.updated_at,
    }


def lane_key(row: Row) -> LaneKey:
    return LaneKey(row["chain_id"], row["address"])


def transaction(row: Row) -> Transaction:
    return Transaction(
        id=row["id"],
        lane=lane_key(row),
        place=row["place"],
        version=row["version"],
        state=State(row["state"]),
        payload=payload(row["payload"]),
        fees=wish(row["fees"]),
        priority=row["priority"],
        tenant=row["tenant"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        idempotency_key=row["idempotency_key"],
        metadata=None if row["metadata"] is None else _decode(row["metadata"]),
        earlier=earlier(row["earlier"]),
        valid_until=row["valid_until"],
        confirmations=row["confirmations"],
        on_superseded=on_superseded(row["on_superseded"]),
        simulate=bool(row["simulate"]),
        asked_nonce=row["asked_nonce"],
        batch=row["batch"],
        held=bool(row["held"]),
        nonce=row["nonce"],
        hash=row["hash"],
        receipt=receipt(row["receipt"]),
        deep=block(row["deep"]),
        forked=bool(row["forked"]),
        failure=row["failure"],
        attention=attention(row["attention"]),
    )


def with_payloads_of(tx: Transaction, attempts: Sequence[Attempt]) -> Transaction:
    """The same; `ValueError` if attempts were signed for payloads that its row does not have."""
    if any(attempt.payload_version > tx.payload_version for attempt in attempts):
        raise ValueError(f"{tx.id} lacks payloads that were signed")
    return tx


def earlier(text: str | None) -> tuple[Payload, ...]:
    return () if text is None else tuple(payload_of(fields) for fields in _read_payloads(text))


def on_superseded(text: str | None) -> OnSuperseded | None:
    return None if text is None else OnSuperseded(text)


def block(text: str | None) -> BlockRef | None:
    return None if text is None else BlockRef(*_read_block(text))


def transaction_columns(tx: Transaction) -> dict[str, object]:
    """What a move can change, and the guard."""
    return {
        "id": tx.id,
        "place": tx.place,
        "version": tx.version,
        "state": tx.state.value,
        "held": tx.held,
        "nonce": tx.nonce,
        "hash": tx.hash,
        "receipt": receipt_text(tx.receipt),
        "deep": None if tx.deep is None else to_json(tx.deep),
        "forked": tx.forked,
        "failure": tx.failure,
        "attention": attention_text(tx.attention),
        "updated_at": tx.updated_at,
    }


def wish_columns(tx: Transaction) -> dict[str, object]:
    """What the user asks for now, and the guard."""
    return {
        "id": tx.id,
        "version": tx.version,
        "payload": payload_text(tx.payload),
        "earlier": to_json([payload_fields(payload) for payload in tx.earlier]) if tx.earlier else None,
        "fees": fees_text(tx.fees),
    }


def attempt(row: Row) -> Attempt:
    return Attempt(
        hash=row["hash"],
        nonce=row["nonce"],
        tx_id=row["tx_id"],
        kind=AttemptKind(row["kind"]),
        payload_version=row["payload_version"],
        fees=fees(row["fees"]),
        gas=row["gas"],
        raw=bytes(row["raw"]),
        epoch=row["epoch"],
        signed_at=row["signed_at"],
        floor=row["floor"],
        sent_at=row["sent_at"],
        answer=row["answer"],
    )


def answer_columns(attempt: Attempt) -> dict[str, object]:
    return {"hash": attempt.hash, "tx_id": attempt.tx_id, "sent_at": attempt.sent_at, "answer": attempt.answer}


def attempt_columns(attempt: Attempt) -> dict[str, object]:
    return {
        "hash": attempt.hash,
        "nonce": attempt.nonce,
        "tx_id": attempt.tx_id,
        "kind": attempt.kind.value,
        "payload_version": attempt.payload_version,
        "fees": fees_text(attempt.fees),
        "gas": attempt.gas,
        "raw": attempt.raw,
        "epoch": attempt.epoch,
        "signed_at": attempt.signed_at,
        "floor": attempt.floor,
        "sent_at": attempt.sent_at,
        "answer": attempt.answer,
    }


def slot(row: Row, attempts: Sequence[Attempt], receipt: Receipt | None) -> Slot:
    return Slot(
        nonce=row["nonce"],
        kind=SlotKind(row["kind"]),
        tx_id=row["tx_id"],
        attempts=tuple(attempts),
        wanted=Wanted(row["wanted"]),
        payload_version=row["payload_version"],
        reservation=reservation(row),
        receipt=receipt,
    )


def slot_columns(slot: Slot) -> dict[str, object]:
    """A transaction's receipt stands in its own row; a filler has no other place for it."""
    return {
        "nonce": slot.nonce,
        "kind": slot.kind.value,
        "tx_id": slot.tx_id,
        "wanted": slot.wanted.value,
        "payload_version": slot.payload_version,
        "holder": None if slot.reservation is None else slot.reservation.holder,
        "deadline": None if slot.reservation is None else slot.reservation.deadline,
        "receipt": receipt_text(slot.receipt) if slot.tx_id is None else None,
    }


def reservation(row: Row) -> Reservation | None:
    return None if row["holder"] is None else Reservation(row["holder"], row["deadline"])


def stranger(row: Row) -> Stranger:
    return Stranger(hash=row["hash"], nonce=row["nonce"], deed=row["deed"], tx_id=row["tx_id"])


def stranger_columns(stranger: Stranger, lane: LaneKey) -> dict[str, object]:
    return {
        "hash": stranger.hash,
        **lane._asdict(),
        "nonce": stranger.nonce,
        "deed": stranger.deed,
        "tx_id": stranger.tx_id,
    }


def lane_record(row: Row) -> LaneRecord:
    return LaneRecord(
        key=lane_key(row),
        next_nonce=row["next_nonce"],
        settled_below=row["settled_below"],
        seen_block=row["seen_block"],
        seen_hash=row["seen_hash"],
        incarnation=row["incarnation"],
        quarantined_below=row["quarantined_below"],
        window=row["window"],
        resets=row["resets"],
        confirmed_at=row["confirmed_at"],
        unhealthy=_mark_of_a_lane(row["unhealthy"]),
        attention=_mark_of_a_lane(row["attention"]),
    )


def _mark_of_a_lane(text: str | None) -> Attention | None:
    """A mark that cannot be read stops no lane."""
    try:
        return attention(text)
    except UNDECODABLE:
        return Attention("undecodable", "what was written here cannot be read; see the lane's events", 0)


def lane_columns(record: LaneRecord) -> dict[str, object]:
    return {
        "chain_id": record.key.chain_id,
        "address": record.key.address,
        "next_nonce": record.next_nonce,
        "settled_below": record.settled_below,
        "seen_block": record.seen_block,
        "seen_hash": record.seen_hash,
        "incarnation": record.incarnation,
        "quarantined_below": record.quarantined_below,
        "window": record.window,
        "resets": record.resets,
        "confirmed_at": record.confirmed_at,
        "unhealthy": attention_text(record.unhealthy),
        "attention": attention_text(record.attention),
    }


def control(row: Row | None) -> Control:
    """A lane that nobody said anything about is open; one of which cannot be read what was said gives out nothing."""
    if row is None or row["mode"] is None:
        return Control()
    try:
        return Control(Mode(row["mode"]), row["reason"], row["since"])
    except ValueError:
        return Control(Mode.PAUSED, "what was said about this lane cannot be read; say it again", row["since"])


def reply(text: str) -> Reply:
    refused, data = _decode(text)
    return Reply(refused, data)


def reply_text(reply: Reply) -> str:
    return to_json([reply.refused, reply.data])


def event(row: Row) -> Event:
    return Event(
        position=row["position"],
        kind=row["kind"],
        lane=lane_key(row),
        tx_id=row["tx_id"],
        at=row["at"],
        data=_decode(row["data"]),
        times=row["times"],
        since=row["since"],
    )


def event_columns(event: Event, fact: str | None) -> dict[str, object]:
    """`fact`: what makes two of them the same."""
    return {**told_columns(event, fact), "times": event.times, "since": event.since}


def told_columns(event: Event, fact: str | None) -> dict[str, object]:
    """Of one that nobody has compared with what was told before."""
    return {
        "kind": event.kind,
        "chain_id": event.lane.chain_id,
        "address": event.lane.address,
        "tx_id": event.tx_id,
        "at": event.at,
        "data": to_json(event.data) if event.data else "{}",
        "fact": fact,
    }
