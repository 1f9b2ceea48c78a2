"""The words everything else speaks in: names of states and kinds, of marks, of units. They need nothing but Python."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

Wei = int
Millis = int  # since the Unix epoch
Address = str  # lower-case 0x-hex, normalised once at the edge
Hash = str  # lower-case 0x-hex
TxId = str
AccessList = tuple[tuple[Address, tuple[str, ...]], ...]


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
    CANCELLED = "cancelled"
    EXPIRED = "expired"


LIVE_STATES = frozenset({State.QUEUED, State.SIGNED, State.SENT, State.MINED})
TERMINAL_STATES = frozenset(State) - LIVE_STATES


class Speed(StrEnum):
    SLOW = "slow"
    STANDARD = "standard"
    FAST = "fast"


class AttemptKind(StrEnum):
    ORIGINAL = "original"
    BUMP = "bump"
    CANCEL = "cancel"
    FILLER = "filler"
    REPLACEMENT = "replacement"
    OUTSIDE = "outside"  # signed by the holder of a reservation


class SlotKind(StrEnum):
    TRANSACTION = "transaction"
    FILLER = "filler"
    RESERVATION = "reservation"


class Wanted(StrEnum):
    """What should run at a slot: the payload, or nothing, and then why."""

    PAYLOAD = "payload"
    NOTHING = "nothing"  # no node accepts the payload's bytes, though one may have them: only the nonce is wanted
    CANCEL = "cancel"  # the user said so
    EXPIRY = "expiry"  # its deadline passed


class OnSuperseded(StrEnum):
    """What becomes of a transaction whose nonce somebody else used."""

    REQUEUE = "requeue"
    HOLD = "hold"


class Mode(StrEnum):
    """Whether a lane gives out nonces. Only `halted` stops more than that: then nothing at all is done."""

    OPEN = "open"
    PAUSED = "paused"
    DRAINING = "draining"  # and takes no new requests
    HALTED = "halted"  # the chain broke its word; a person must look


HELD_MARK = "held"  # somebody said so

# Marks of a lane that keep nothing in it waiting: any other says more.
LESSER_MARKS = frozenset({"hook_failed", "hook_refused"})

# Marks that say that a transaction may have run unknown to us.
DOUBTS = frozenset({"same_payload_executed", "store_lost_commits"})
