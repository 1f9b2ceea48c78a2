"""The whole life of a transaction: states, moves, and the table that says which move leads where.

`step` is the only way to a new state. A move that the table does not know raises and changes nothing; the diagram in
the docs is drawn from the table, and the schema's CHECKs repeat it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from nonchalant.errors import IllegalMove
from nonchalant.model import Attention, Event, Fees, Hash, Millis, Receipt, State, Transaction


@dataclass(frozen=True, slots=True)
class Assigned:
    """It got a slot and a signed attempt, in the same commit."""

    nonce: int
    hash: Hash


@dataclass(frozen=True, slots=True)
class Broadcast:
    """A node may have its bytes."""


@dataclass(frozen=True, slots=True)
class Repriced:
    """A further attempt with the same payload was signed for its slot."""

    hash: Hash
    fees: Fees


@dataclass(frozen=True, slots=True)
class Included:
    """The linked chain shows one of its attempts executed."""

    receipt: Receipt


@dataclass(frozen=True, slots=True)
class Reorged:
    """The block that executed it left the linked chain."""


@dataclass(frozen=True, slots=True)
class Confirmed:
    """The block that executed it is final, and it succeeded."""


@dataclass(frozen=True, slots=True)
class Reverted:
    """The block that executed it is final, and it reverted. `reason` None: no node could say why."""

    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Superseded:
    """Its slot was consumed, at finality, by none of its attempts. Held if it might have run all the same."""

    by: Hash | None
    hold: Attention | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """It can never be sent: no attempt of it ever left."""

    reason: str


@dataclass(frozen=True, slots=True)
class Outrun:
    """Its slot was consumed, at finality, by the attempt that does nothing: its payload can never run."""

    reason: str


@dataclass(frozen=True, slots=True)
class Held:
    """It waits for an operator."""

    attention: Attention


@dataclass(frozen=True, slots=True)
class Marked:
    """It needs a look; the mark changes nothing else."""

    attention: Attention


Move = (
    Assigned
    | Broadcast
    | Repriced
    | Included
    | Reorged
    | Confirmed
    | Reverted
    | Superseded
    | Failed
    | Outrun
    | Held
    | Marked
)

# A reverted transaction is called reverted, a mined one is not yet confirmed, and nothing leads out of an end.
TABLE: Mapping[tuple[State, type[Move]], State] = {
    (State.QUEUED, Assigned): State.SIGNED,
    (State.QUEUED, Failed): State.FAILED,
    (State.QUEUED, Held): State.QUEUED,
    (State.SIGNED, Broadcast): State.SENT,
    (State.SIGNED, Repriced): State.SIGNED,
    (State.SIGNED, Failed): State.FAILED,
    # A process died between the broadcast and its record: the chain knows more than we wrote.
    (State.SIGNED, Included): State.MINED,
    (State.SIGNED, Superseded): State.QUEUED,
    (State.SENT, Repriced): State.SENT,
    (State.SENT, Included): State.MINED,
    (State.SENT, Superseded): State.QUEUED,
    (State.MINED, Reorged): State.SENT,
    (State.MINED, Confirmed): State.CONFIRMED,
    (State.MINED, Reverted): State.REVERTED,
    (State.MINED, Outrun): State.FAILED,
} | {(state, Marked): state for state in (State.QUEUED, State.SIGNED, State.SENT)}


def step(tx: Transaction, move: Move, at: Millis) -> tuple[Transaction, tuple[Event, ...]]:
    """The transaction after the move, one version on, and the events that tell of it."""
    target = TABLE.get((tx.state, type(move)))
    if target is None:
        raise IllegalMove(f"{tx.id} is {tx.state}: {type(move).__name__} is not a move from there")
    if tx.held and target is not tx.state:
        raise IllegalMove(f"{tx.id} is held: {type(move).__name__} must wait until it is released")
    moved = replace(_told(tx, move), state=target, version=tx.version + 1, updated_at=at)
    events = tuple(Event(kind=kind, lane=tx.lane, at=at, tx_id=tx.id, data=data) for kind, data in _facts(moved, move))
    return moved, events


def _told(tx: Transaction, move: Move) -> Transaction:
    """The transaction with what the move says of it."""
    match move:
        case Assigned(nonce, hash):
            return replace(tx, nonce=nonce, hash=hash, attention=None)
        case Repriced(hash, _):
            return replace(tx, hash=hash)
        case Included(receipt):
            return replace(tx, receipt=receipt, hash=receipt.hash, attention=None)
        case Reorged():
            return replace(tx, receipt=None)
        case Superseded(_, hold):
            return replace(tx, nonce=None, hash=None, held=hold is not None, attention=hold)
        case Failed(reason):
            return replace(tx, failure=reason, nonce=None, hash=None, attention=None)
        case Outrun(reason):
            return replace(tx, failure=reason, attention=None)
        case Reverted(why):
            return replace(tx, failure=why)
        case Held(attention):
            return replace(tx, held=True, attention=attention)
        case Marked(attention):
            return replace(tx, attention=attention)
        case Broadcast() | Confirmed():  # pragma: no branch - mypy proves that it is the last
            return tx


def _facts(tx: Transaction, move: Move) -> list[tuple[str, dict[str, object]]]:
    slot: dict[str, object] = {"nonce": tx.nonce, "hash": tx.hash}
    match move:
        case Assigned():
            return [("tx.signed", slot)]
        case Broadcast():
            return [("tx.sent", slot)]
        case Repriced(hash, fees):
            return [
                (
                    "attempt.bumped",
                    {"nonce": tx.nonce, "hash": hash, "max_fee": str(fees.max_fee), "priority": _text(fees.priority)},
                )
            ]
        case Included(receipt):
            return [("tx.mined", slot | {"block": receipt.block.number, "block_hash": receipt.block.hash})]
        case Reorged():
            return [("tx.reorged", slot)]
        case Confirmed() | Reverted():
            return [(f"tx.{tx.state}", slot | _outcome(tx, move))]
        case Superseded(by, hold):
            then: tuple[str, dict[str, object]] = ("tx.requeued", {})
            if hold is not None:
                then = ("tx.held", {"code": hold.code, "reason": hold.reason})
            return [("tx.superseded", {"by": by}), then]
        case Failed(reason) | Outrun(reason):
            return [("tx.failed", {"reason": reason})]
        case Held(attention):
            return [("tx.held", {"code": attention.code, "reason": attention.reason})]
        case Marked(attention):  # pragma: no branch - mypy proves that it is the last
            return [("tx.attention", {"code": attention.code, "reason": attention.reason})]


def _outcome(tx: Transaction, move: Confirmed | Reverted) -> dict[str, object]:
    assert tx.receipt is not None
    block, cost = tx.receipt.block, str(tx.receipt.cost)
    why = {"reason": move.reason} if isinstance(move, Reverted) else {}
    return {"block": block.number, "block_hash": block.hash, "cost": cost, **why}


def _text(amount: int | None) -> str | None:
    return None if amount is None else str(amount)


def diagram() -> str:
    """The table as a Mermaid state diagram; the docs hold exactly this."""
    lines = ["stateDiagram-v2", "    [*] --> queued: accepted"]
    lines += [
        f"    {state} --> {target}: {move.__name__.lower()}"
        for (state, move), target in TABLE.items()
        if move is not Marked
    ]
    ends = sorted(set(TABLE.values()) - {state for state, _ in TABLE})
    lines += [f"    {state} --> [*]" for state in ends]
    return "\n".join(lines) + "\n"
