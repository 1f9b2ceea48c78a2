"""What people want of a lane, or of a transaction that has a slot.

Only the lane's owner may write those, and anybody may ask any node. So a wish is a row: the owner finds it, grants or
refuses it, and answers in the same commit.
"""

from __future__ import annotations

from dataclasses import dataclass

from nonchalant.model import Fees, Hash, LaneKey, Millis, Payload, Speed, TxId


@dataclass(frozen=True, slots=True)
class Cancel:
    """Let something that does nothing take its nonce."""

    tx_id: TxId


@dataclass(frozen=True, slots=True)
class Replace:
    """Let another payload run in its place; `fees` None: at the price that was asked for before."""

    tx_id: TxId
    payload: Payload
    fees: Speed | Fees | None = None


@dataclass(frozen=True, slots=True)
class Bump:
    """Offer more for it now: so much, or what the market asks."""

    tx_id: TxId
    fees: Speed | Fees | None = None


@dataclass(frozen=True, slots=True)
class Reserve:
    """Keep a nonce for the holder until then."""

    holder: str
    deadline: Millis


@dataclass(frozen=True, slots=True)
class Use:
    """The holder signed this hash for its nonce; `raw` given is sent by us too."""

    nonce: int
    holder: str
    hash: Hash
    raw: bytes | None = None


@dataclass(frozen=True, slots=True)
class Release:
    """The holder will not use its nonce."""

    nonce: int
    holder: str


@dataclass(frozen=True, slots=True)
class Sync:
    """Look at the chain anew: counts, every live attempt, the next nonce."""


@dataclass(frozen=True, slots=True)
class Fill:
    """Close this hole, or every hole, with a transfer of nothing."""

    nonce: int | None = None


@dataclass(frozen=True, slots=True)
class Reset:
    """Take the chain's count for the next nonce; by force even while attempts live."""

    force: bool = False


OfTransaction = Cancel | Replace | Bump
OfLane = Reserve | Use | Release | Sync | Fill | Reset
Act = OfTransaction | OfLane


@dataclass(frozen=True, slots=True)
class Wish:
    id: str
    lane: LaneKey
    act: Act

    @property
    def tx_id(self) -> TxId | None:
        return self.act.tx_id if isinstance(self.act, Cancel | Replace | Bump) else None
