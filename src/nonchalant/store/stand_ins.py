"""What stands in for rows that cannot be read in full, so that their nonces are looked after all the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nonchalant.model import Attempt, Attention, Fees, Payload, Receipt, Slot, Transaction
from nonchalant.store import rows
from nonchalant.store.rows import Row
from nonchalant.words import AttemptKind, OnSuperseded, SlotKind, State, Wanted


def transaction(row: Mapping[str, Any], attempts: Sequence[Attempt], now: int) -> Transaction:
    """For a row with a slot that cannot be read in full: it is watched, re-sent as it was signed, and settled.

    Its price is the newest attempt's, and named prices are a cap: it is never signed again. A receipt that cannot be
    read is not believed to be there: the chain will show it again.
    """
    versions = max((attempt.payload_version for attempt in attempts), default=1)
    nothing = rows.payload_text(Payload(to=None))
    mark = Attention(
        "undecodable", "its row in the store cannot be read; it is re-sent as signed, restore the row", now
    )
    legible = {
        **row,
        # Somebody else may have done the same: it must be possible to tell.
        "payload": _if_legible(row["payload"], rows.payload, nothing),
        "earlier": _if_legible(
            row["earlier"],
            lambda text: len(rows.earlier(text)) >= versions - 1 or _missing(),
            f"[{','.join([nothing] * (versions - 1))}]",
        ),
        "fees": rows.fees_text(attempts[-1].fees if attempts else Fees(0)),
        "metadata": None,
        "receipt": _if_legible(row["receipt"], rows.receipt, None),
        "deep": _if_legible(row["deep"], rows.block, None),
        "on_superseded": _if_legible(row["on_superseded"], rows.on_superseded, OnSuperseded.HOLD.value),
        "attention": rows.attention_text(mark),
    }
    if legible["receipt"] is not None:
        legible["state"] = State.MINED.value
    else:
        state = row["state"] if row["state"] in (State.SIGNED, State.SENT) else State.SENT.value
        legible |= {"state": state, "deep": None}
    return rows.transaction(legible)


def attempt(row: Mapping[str, Any]) -> Attempt:
    """For an attempt that cannot be read in full: its hash is watched, its bytes are sent. What it offered is unknown."""
    tx_id, version = row["tx_id"], row["payload_version"]
    kind = AttemptKind.ORIGINAL if tx_id is not None else AttemptKind.OUTSIDE
    if version == 0:
        kind = AttemptKind.CANCEL if tx_id is not None else AttemptKind.FILLER
    legible = {
        **row,
        "kind": _if_legible(row["kind"], AttemptKind, kind.value),
        "fees": _if_legible(row["fees"], rows.fees, rows.fees_text(Fees(0, 0))),
    }
    return rows.attempt(legible)


def slot(row: Row, attempts: Sequence[Attempt], receipt: Receipt | None) -> Slot:
    """For a slot that cannot be read: its nonce stays bound, to whom it was bound, for what was last signed."""
    tx_id, version = row["tx_id"], attempts[-1].payload_version if attempts else 0
    return Slot(
        nonce=row["nonce"],
        kind=SlotKind.FILLER if tx_id is None else SlotKind.TRANSACTION,
        tx_id=tx_id,
        attempts=tuple(attempts),
        wanted=Wanted.PAYLOAD if tx_id is None or version else Wanted.NOTHING,
        payload_version=version if tx_id is not None else 0,
        receipt=receipt,
    )


def slot_kind(row: Row) -> SlotKind:
    """As well as it can be told: who only looks must not fail on a slot that cannot be read."""
    bound = SlotKind.FILLER if row["tx_id"] is None else SlotKind.TRANSACTION
    return SlotKind(_if_legible(row["kind"], SlotKind, bound.value))


def slot_wanted(row: Row) -> Wanted:
    """As well as it can be told."""
    return Wanted(_if_legible(row["wanted"], Wanted, Wanted.PAYLOAD.value))


def _if_legible(text: Any, read: Callable[[Any], object], otherwise: str | None) -> Any:
    try:
        read(text)
    except rows.UNDECODABLE:
        return otherwise
    return text


def _missing() -> bool:
    raise ValueError("payloads are missing")
