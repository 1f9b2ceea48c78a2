"""Plain values to start a test from; a test names only what it is about."""

from __future__ import annotations

from typing import Any

from nonchalant.lanes import Lane
from nonchalant.model import (
    Attempt,
    Attention,
    BlockRef,
    Fees,
    LaneRecord,
    Payload,
    Receipt,
    Request,
    Slot,
    Transaction,
)
from nonchalant.words import AttemptKind, LaneKey, OnSuperseded, SlotKind, Speed, State, Wanted

ALICE = "0x" + "a1" * 20
BOB = "0x" + "b0" * 20
LANE = LaneKey(7, ALICE)
MARK = Attention("look", "please look", 5)


def a_hash(text: str | int) -> str:
    """A hash one can read: the text in hex, padded."""
    return "0x" + str(text).encode().hex().ljust(64, "0")


def a_request(id: str, **fields: Any) -> Request:
    defaults: dict[str, Any] = {"lane": LANE, "payload": Payload(to=BOB, value=1), "fees": Speed.STANDARD}
    return Request(id=id, **defaults | fields)


# All that a request may say of itself beside what it does, wherever it goes.
ELABORATE: dict[str, Any] = {
    "fees": Fees(9, 3),
    "priority": 8,
    "tenant": "somebody",
    "idempotency_key": "k",
    "body_hash": "digest",
    "metadata": {"order": 42},
    "confirmations": 3,
    "on_superseded": OnSuperseded.HOLD,
}


def a_transaction(id: str = "tx", **fields: Any) -> Transaction:
    defaults: dict[str, Any] = {
        "lane": LANE,
        "place": 1,
        "version": 1,
        "state": State.QUEUED,
        "payload": Payload(to=BOB, value=1),
        "fees": Speed.STANDARD,
        "priority": 5,
        "tenant": "default",
        "created_at": 0,
        "updated_at": 0,
    }
    return Transaction(id=id, **defaults | fields)


def an_attempt(hash: str, nonce: int = 0, tx_id: str | None = "tx", **fields: Any) -> Attempt:
    kind = fields.get("kind", AttemptKind.FILLER if tx_id is None else AttemptKind.ORIGINAL)
    defaults: dict[str, Any] = {
        "kind": kind,
        "payload_version": 0 if kind in (AttemptKind.CANCEL, AttemptKind.FILLER) else 1,
        "fees": Fees(100, 10),
        "gas": 21_000,
        "raw": bytes.fromhex(hash[2:]),
        "epoch": 1,
        "signed_at": 0,
        "floor": 0,
    }
    return Attempt(hash=hash, nonce=nonce, tx_id=tx_id, **defaults | fields)


def a_slot(nonce: int, *attempts: Attempt, tx_id: str | None = "tx", **fields: Any) -> Slot:
    """A slot with its attempts, or with one that is named after the nonce."""
    signed = attempts or (an_attempt(a_hash(nonce), nonce, tx_id),)
    wanted = fields.get("wanted", Wanted.PAYLOAD)
    defaults: dict[str, Any] = {
        "kind": SlotKind.FILLER if tx_id is None else SlotKind.TRANSACTION,
        "payload_version": 1 if tx_id is not None and wanted is Wanted.PAYLOAD else 0,
    }
    return Slot(nonce=nonce, tx_id=tx_id, attempts=signed, **defaults | fields)


def a_receipt(hash: str = "0xaa", number: int = 10, **fields: Any) -> Receipt:
    defaults: dict[str, Any] = {"succeeded": True, "gas_used": 21_000, "gas_price": 3}
    return Receipt(hash=hash, block=BlockRef(number, a_hash(f"block {number}")), **defaults | fields)


def a_record(**fields: Any) -> LaneRecord:
    return LaneRecord(**{"key": LANE} | fields)


def a_lane(*nonces: int, count: int = 0, final_count: int = 0, **record: Any) -> Lane:
    """Fillers at these nonces, on a chain that has executed so many."""
    lane = Lane(a_record(**record), [a_slot(nonce, tx_id=None) for nonce in nonces])
    lane.count, lane.final_count = count, final_count
    return lane
