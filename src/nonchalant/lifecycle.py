"""The whole life of a transaction: states, moves, and the table that says which move leads where.

`step` is the only way to a new state. A move that the table does not know raises and changes nothing; the diagram in
the docs is drawn from the table, and the schema's CHECKs repeat it.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from nonchalant.errors import IllegalMove
from nonchalant.model import Attention, BlockRef, Event, Fees, Payload, Receipt, Transaction
from nonchalant.words import AttemptKind, Hash, Millis, Speed, State


class Assigned(Struct, frozen=True, gc=False):
    """It got a slot and a signed attempt, in the same commit."""

    nonce: int
    hash: Hash


class Broadcast(Struct, frozen=True, gc=False):
    """A node may have its bytes."""


class Repriced(Struct, frozen=True, gc=False):
    """A further attempt was signed for its slot: a better price, a replacement, or what cancels it."""

    hash: Hash
    fees: Fees
    kind: AttemptKind = AttemptKind.BUMP


class Valued(Struct, frozen=True, gc=False):
    """The user names another price for it."""

    fees: Speed | Fees


class Replaced(Struct, frozen=True, gc=False):
    """The user wants another payload in its place."""

    payload: Payload


class Included(Struct, frozen=True, gc=False):
    """The linked chain shows one of its attempts executed."""

    receipt: Receipt


class Reorged(Struct, frozen=True, gc=False):
    """The block that executed it left the linked chain."""


class Deepened(Struct, frozen=True, gc=False):
    """As many blocks as were asked for are linked above it, or it is final with fewer."""

    blocks: tuple[BlockRef, ...]


class Forked(Struct, frozen=True, gc=False):
    """Blocks above it that were told of left the linked chain; its own is still there."""


class Confirmed(Struct, frozen=True, gc=False):
    """The block that executed it is final, and it succeeded."""


class Reverted(Struct, frozen=True, gc=False):
    """The block that executed it is final, and it reverted. `reason` None: no node could say why."""

    reason: str | None = None


class Superseded(Struct, frozen=True, gc=False):
    """Its slot was consumed, at finality, by none of its attempts. Held if it might have run all the same."""

    by: Hash | None
    hold: Attention | None = None
    ends: bool = False  # it was not wanted any more: it does not wait for another slot


class Recalled(Struct, frozen=True, gc=False):
    """Its slot was given back: no attempt of it ever left."""


class Failed(Struct, frozen=True, gc=False):
    """It can never be sent: no attempt of it ever left."""

    reason: str


class Outrun(Struct, frozen=True, gc=False):
    """Its slot was consumed, at finality, by the attempt that does nothing: its payload can never run."""

    reason: str


class Cancelled(Struct, frozen=True, gc=False):
    """It will never run: it was still queued, or what cancels it took its slot for good."""


class Expired(Struct, frozen=True, gc=False):
    """Its deadline passed, and it will never run."""


class Held(Struct, frozen=True, gc=False):
    """It waits for an operator."""

    attention: Attention


class Released(Struct, frozen=True, gc=False):
    """It may go on."""


class Marked(Struct, frozen=True, gc=False):
    """It needs a look; the mark changes nothing else. `renewed`: the same mark in newer words, which is no news."""

    attention: Attention
    renewed: bool = False


Move = (
    Assigned
    | Broadcast
    | Repriced
    | Valued
    | Replaced
    | Included
    | Reorged
    | Deepened
    | Forked
    | Confirmed
    | Reverted
    | Superseded
    | Recalled
    | Failed
    | Outrun
    | Cancelled
    | Expired
    | Held
    | Released
    | Marked
)

# Wishes and marks are heard at any time; what the chain has executed already, it decides.
_AT_ANY_TIME: tuple[type[Move], ...] = (Valued, Replaced, Marked)

# A reverted transaction is called reverted, a mined one is not yet confirmed, and nothing leads out of an end.
_MOVES: tuple[tuple[State, type[Move], State], ...] = (
    (State.QUEUED, Assigned, State.SIGNED),
    (State.QUEUED, Failed, State.FAILED),
    (State.QUEUED, Cancelled, State.CANCELLED),
    (State.QUEUED, Expired, State.EXPIRED),
    (State.QUEUED, Held, State.QUEUED),
    (State.QUEUED, Released, State.QUEUED),
    (State.SIGNED, Broadcast, State.SENT),
    (State.SIGNED, Repriced, State.SIGNED),
    (State.SIGNED, Failed, State.FAILED),
    (State.SIGNED, Recalled, State.QUEUED),
    # A process died between the broadcast and its record: the chain knows more than we wrote.
    (State.SIGNED, Included, State.MINED),
    (State.SIGNED, Superseded, State.QUEUED),
    (State.SENT, Repriced, State.SENT),
    (State.SENT, Included, State.MINED),
    (State.SENT, Superseded, State.QUEUED),
    (State.MINED, Reorged, State.SENT),
    (State.MINED, Deepened, State.MINED),
    (State.MINED, Forked, State.MINED),
    (State.MINED, Confirmed, State.CONFIRMED),
    (State.MINED, Reverted, State.REVERTED),
    # What does nothing took its slot for good; the wish that asked for it names the end.
    (State.MINED, Outrun, State.FAILED),
    (State.MINED, Cancelled, State.CANCELLED),
    (State.MINED, Expired, State.EXPIRED),
)

TABLE: Mapping[tuple[State, type[Move]], State] = {(state, move): target for state, move, target in _MOVES} | {
    (state, move): state for state in (State.QUEUED, State.SIGNED, State.SENT, State.MINED) for move in _AT_ANY_TIME
}


def step(tx: Transaction, move: Move, at: Millis) -> tuple[Transaction, tuple[Event, ...]]:
    """The transaction after the move, one version on, and the events that tell of it."""
    target = TABLE.get((tx.state, type(move)))
    if target is None:
        raise IllegalMove(f"{tx.id} is {tx.state}: {type(move).__name__} is not a move from there")
    if tx.held and target is not tx.state and not isinstance(move, Cancelled | Expired):
        raise IllegalMove(f"{tx.id} is held: {type(move).__name__} must wait until it is released")
    moved = replace(tx, state=target, version=tx.version + 1, updated_at=at, **_told(tx, move))
    facts = _facts(moved, move, fork=tx.forked)
    return moved, tuple([Event(kind=kind, lane=tx.lane, at=at, tx_id=tx.id, data=data) for kind, data in facts])


def one_version_on(moved: Transaction, read: Transaction) -> Transaction:
    """However many steps one commit takes, the row is written once: one version on from what was read."""
    return moved if moved.version == read.version + 1 else replace(moved, version=read.version + 1)


def _told(tx: Transaction, move: Move) -> dict[str, object]:
    """What the move says of the transaction. Here and below, the way of most transactions comes first: each case that
    does not match takes time."""
    match move:
        case Assigned(nonce, hash):
            return {"nonce": nonce, "hash": hash, "attention": None}
        case Broadcast() | Confirmed():
            return {}
        case Included(receipt):
            return {"receipt": receipt, "hash": receipt.hash, "attention": None}
        case Repriced(hash, _):
            return {"hash": hash}
        case Valued(fees):
            return {"fees": fees}
        case Replaced(payload):
            return {"payload": payload, "earlier": (*tx.earlier, tx.payload), "attention": _unless_held(tx)}
        case Reorged():
            return {"receipt": None, "deep": None, "forked": True}
        case Deepened(blocks):
            assert tx.receipt is not None
            return {"deep": blocks[-1] if blocks else tx.receipt.block, "forked": False}
        case Forked():
            return {"deep": None, "forked": True}
        case Superseded(_, hold):
            return {"nonce": None, "hash": None, "held": hold is not None, "attention": hold}
        case Recalled():
            return {"nonce": None, "hash": None, "attention": None}
        case Failed(reason):
            return {"failure": reason, "nonce": None, "hash": None, "attention": None}
        case Outrun(reason):
            return {"failure": reason, "attention": None}
        case Cancelled() | Expired() | Released():
            # Who calls off what may have run in doubt has decided; the record still says that it may have.
            doubt = tx.attention if tx.held and not isinstance(move, Released) and tx.is_in_doubt else None
            return {"held": False, "attention": doubt}
        case Reverted(why):
            return {"failure": why}
        case Held(attention):
            return {"held": True, "attention": attention}
        case Marked(attention):  # pragma: no branch - mypy proves that it is the last
            return {"attention": attention}


def _facts(tx: Transaction, move: Move, *, fork: bool) -> list[tuple[str, dict[str, object]]]:
    """What to tell of the moved transaction; `fork`: blocks it was told of before are replaced."""
    slot: dict[str, object] = {"nonce": tx.nonce, "hash": tx.hash}
    match move:
        case Assigned():
            return [("tx.signed", slot)]
        case Broadcast():
            return [("tx.sent", slot)]
        case Included(receipt):
            number, block_hash = receipt.block
            return [("tx.mined", {**slot, "block": number, "block_hash": block_hash, "fork": fork})]
        case Confirmed() | Reverted():
            return [("tx." + tx.state, {**slot, **_outcome(tx, move)})]
        case Repriced(hash, fees, kind):
            return [
                (
                    "attempt.bumped",
                    {"nonce": tx.nonce, "hash": hash, "kind": kind.value} | _offer(fees),
                )
            ]
        case Valued(fees) if tx.state is State.QUEUED:
            # No attempt follows that would tell of it before it has a nonce.
            return [("attempt.bumped", slot | {"kind": AttemptKind.BUMP.value} | _offer(fees))]
        case Valued() | Forked():
            return []
        case Replaced():
            return [("tx.replaced", {"payload_version": tx.payload_version})]
        case Deepened(blocks):
            above = [{"number": block.number, "hash": block.hash} for block in blocks]
            return [("tx.depth", slot | {"depth": len(blocks), "confirmations": above, "fork": fork})]
        case Reorged():
            return [("tx.reorged", slot)]
        case Superseded(by, hold, ends):
            then: list[tuple[str, dict[str, object]]] = [] if ends else [("tx.requeued", {})]
            if hold is not None:
                then = [("tx.held", {"code": hold.code, "reason": hold.reason})]
            return [("tx.superseded", {"by": by}), *then]
        case Recalled():
            return [("tx.requeued", {})]
        case Failed(reason) | Outrun(reason):
            return [("tx.failed", {"reason": reason})]
        case Cancelled() | Expired():
            return [(f"tx.{tx.state}", slot)]
        case Released():
            return [("tx.released", {})]
        case Held(attention):
            return [("tx.held", {"code": attention.code, "reason": attention.reason})]
        case Marked(attention, renewed):  # pragma: no branch - mypy proves that it is the last
            return [] if renewed else [("tx.attention", {"code": attention.code, "reason": attention.reason})]


def _unless_held(tx: Transaction) -> Attention | None:
    """A mark is about the payload it was set for; one that holds the transaction stays."""
    return tx.attention if tx.held else None


def _outcome(tx: Transaction, move: Confirmed | Reverted) -> dict[str, object]:
    assert tx.receipt is not None
    number, block_hash = tx.receipt.block
    outcome: dict[str, object] = {"block": number, "block_hash": block_hash, "cost": str(tx.receipt.cost)}
    return outcome | {"reason": move.reason} if isinstance(move, Reverted) else outcome


def _offer(fees: Speed | Fees) -> dict[str, object]:
    if isinstance(fees, Speed):
        return {"speed": fees.value}
    return {"max_fee": str(fees.max_fee), "priority": _text(fees.priority)}


def _text(amount: int | None) -> str | None:
    return None if amount is None else str(amount)


def diagram() -> str:
    """The table as a Mermaid state diagram; the docs hold exactly this."""
    lines = ["stateDiagram-v2", "    [*] --> queued: accepted"]
    lines += [
        f"    {state} --> {target}: {move.__name__.lower()}"
        for (state, move), target in TABLE.items()
        if move not in (Marked, Valued)
    ]
    ends = sorted(set(TABLE.values()) - {state for state, _ in TABLE})
    lines += [f"    {state} --> [*]" for state in ends]
    return "\n".join(lines) + "\n"
