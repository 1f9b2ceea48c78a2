"""Rows and values: how what the model says is written in columns. Wei is text, because it does not fit an integer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from nonchalant.model import (
    Attempt,
    AttemptKind,
    Attention,
    BlockRef,
    Event,
    Fees,
    LaneKey,
    LaneRecord,
    Payload,
    Receipt,
    Request,
    Slot,
    Speed,
    State,
    Stranger,
    Transaction,
)


class Row(Protocol):
    """What a driver's row can do."""

    def __getitem__(self, column: str, /) -> Any: ...


# What reading a row can raise when somebody or something changed its text.
UNDECODABLE = (msgspec.DecodeError, ValueError, KeyError, TypeError, IndexError, AttributeError)

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def to_json(value: object) -> str:
    return _encode(value).decode()


def payload_text(payload: Payload) -> str:
    abi = {} if payload.abi is None else {"abi": payload.abi}
    return to_json(
        {
            "to": payload.to,
            "value": str(payload.value),
            "data": payload.data.hex(),
            "gas": payload.gas,
            "access_list": payload.access_list,
            **abi,
        }
    )


def payload(text: str) -> Payload:
    fields = _decode(text)
    return Payload(
        to=fields["to"],
        value=int(fields["value"]),
        data=bytes.fromhex(fields["data"]),
        gas=fields["gas"],
        access_list=tuple((address, tuple(keys)) for address, keys in fields["access_list"]),
        abi=fields.get("abi"),
    )


def fees_text(fees: Speed | Fees) -> str:
    if isinstance(fees, Speed):
        return fees.value
    return str(fees.max_fee) if fees.priority is None else f"{fees.max_fee} {fees.priority}"


def fees(text: str) -> Fees:
    max_fee, _, priority = text.partition(" ")
    return Fees(int(max_fee), int(priority) if priority else None)


def wish(text: str) -> Speed | Fees:
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
    fields = _decode(text)
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
    return None if text is None else Attention(*_decode(text))


def request_columns(request: Request) -> dict[str, object]:
    return {
        "id": request.id,
        "chain_id": request.lane.chain_id,
        "address": request.lane.address,
        "priority": request.priority,
        "simulate": int(request.simulate),
        "tenant": request.tenant,
        "idempotency_key": request.idempotency_key,
        "body_hash": request.body_hash,
        "payload": payload_text(request.payload),
        "fees": fees_text(request.fees),
        "metadata": None if request.metadata is None else to_json(request.metadata),
    }


def accepted(request: Request, place: int, now: int) -> Transaction:
    """The transaction a request becomes, as it stands in the store."""
    return Transaction(
        id=request.id,
        lane=request.lane,
        place=place,
        version=1,
        state=State.QUEUED,
        payload=request.payload,
        fees=request.fees,
        priority=request.priority,
        tenant=request.tenant,
        created_at=now,
        updated_at=now,
        idempotency_key=request.idempotency_key,
        metadata=request.metadata,
        simulate=request.simulate,
    )


def transaction(row: Row) -> Transaction:
    return Transaction(
        id=row["id"],
        lane=LaneKey(row["chain_id"], row["address"]),
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
        simulate=bool(row["simulate"]),
        held=bool(row["held"]),
        nonce=row["nonce"],
        hash=row["hash"],
        receipt=receipt(row["receipt"]),
        failure=row["failure"],
        attention=attention(row["attention"]),
    )


def stand_in(row: Mapping[str, Any], signed: Fees, now: int) -> Transaction:
    """For a row with a slot that cannot be read in full: it is watched, re-sent as it was signed, and settled.

    Its price is the newest attempt's, and named prices are a cap: it is never signed again. Still raises when the
    receipt cannot be read, because what is mined has one.
    """
    try:
        payload(row["payload"])
        known = row["payload"]  # somebody else may have done the same: it must be possible to tell
    except UNDECODABLE:
        known = payload_text(Payload(to=None))
    mark = Attention(
        "undecodable", "its row in the store cannot be read; it is re-sent as signed, restore the row", now
    )
    legible = {"payload": known, "fees": fees_text(signed), "metadata": None, "attention": attention_text(mark)}
    return transaction({**row, **legible})


def transaction_columns(tx: Transaction) -> dict[str, object]:
    """What a move can change, and the guard."""
    return {
        "id": tx.id,
        "version": tx.version,
        "state": tx.state.value,
        "held": int(tx.held),
        "nonce": tx.nonce,
        "hash": tx.hash,
        "receipt": receipt_text(tx.receipt),
        "failure": tx.failure,
        "attention": attention_text(tx.attention),
        "updated_at": tx.updated_at,
    }


def attempt(row: Row) -> Attempt:
    return Attempt(
        hash=row["hash"],
        nonce=row["nonce"],
        tx_id=row["tx_id"],
        kind=AttemptKind(row["kind"]),
        fees=fees(row["fees"]),
        gas=row["gas"],
        raw=bytes(row["raw"]),
        epoch=row["epoch"],
        signed_at=row["signed_at"],
        floor=row["floor"],
        sent_at=row["sent_at"],
        answer=row["answer"],
    )


def attempt_columns(attempt: Attempt, lane: LaneKey) -> dict[str, object]:
    return {
        "hash": attempt.hash,
        "chain_id": lane.chain_id,
        "address": lane.address,
        "nonce": attempt.nonce,
        "tx_id": attempt.tx_id,
        "kind": attempt.kind.value,
        "fees": fees_text(attempt.fees),
        "gas": attempt.gas,
        "raw": attempt.raw,
        "epoch": attempt.epoch,
        "signed_at": attempt.signed_at,
        "floor": attempt.floor,
        "sent_at": attempt.sent_at,
        "answer": attempt.answer,
    }


def slot_columns(slot: Slot, lane: LaneKey) -> dict[str, object]:
    """A transaction's receipt stands in its own row; a filler has no other place for it."""
    return {
        "chain_id": lane.chain_id,
        "address": lane.address,
        "nonce": slot.nonce,
        "kind": slot.kind.value,
        "tx_id": slot.tx_id,
        "wanted": slot.wanted.value,
        "receipt": receipt_text(slot.receipt) if slot.tx_id is None else None,
        "settled": int(slot.settled),
    }


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
        key=LaneKey(row["chain_id"], row["address"]),
        next_nonce=row["next_nonce"],
        settled_below=row["settled_below"],
        seen_block=row["seen_block"],
        incarnation=row["incarnation"],
        quarantined_below=row["quarantined_below"],
        attention=attention(row["attention"]),
    )


def lane_columns(record: LaneRecord) -> dict[str, object]:
    return {
        "chain_id": record.key.chain_id,
        "address": record.key.address,
        "next_nonce": record.next_nonce,
        "settled_below": record.settled_below,
        "seen_block": record.seen_block,
        "incarnation": record.incarnation,
        "quarantined_below": record.quarantined_below,
        "attention": attention_text(record.attention),
    }


def event(row: Row) -> Event:
    return Event(
        position=row["position"],
        kind=row["kind"],
        lane=LaneKey(row["chain_id"], row["address"]),
        tx_id=row["tx_id"],
        at=row["at"],
        data=_decode(row["data"]),
    )


def event_columns(event: Event) -> dict[str, object]:
    return {
        "kind": event.kind,
        "chain_id": event.lane.chain_id,
        "address": event.lane.address,
        "tx_id": event.tx_id,
        "at": event.at,
        "data": to_json(event.data),
    }
