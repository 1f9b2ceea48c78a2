"""What an attention hook is given, and what it may answer.

A hook is a function of your own that is asked about every live transaction that carries a mark:

    def decide(transaction, lane, head, fees, now):
        if transaction.attention.code == "price_at_cap":
            return Bump(Fees(max_fee=90 * 10**9, priority=2 * 10**9))
        return Wait()

It must be pure: no waiting, nothing remembered, the same answer to the same question. Whatever it answers is held to the
same rules as what a caller asks for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from nonchalant.model import Attention, BlockRef, Fees, Market, Transaction
from nonchalant.words import LaneKey, Millis, Mode, Speed, Wei


@dataclass(frozen=True, slots=True)
class Wait:
    """Leave it as it is."""


@dataclass(frozen=True, slots=True)
class Bump:
    """Offer more for it: so much, or, with None, what the market asks."""

    fees: Speed | Fees | None = None


@dataclass(frozen=True, slots=True)
class Cancel:
    """Call it off, if that can still be helped."""


@dataclass(frozen=True, slots=True)
class Replace:
    """Have something else run in its place; the fields are those of a replacement over REST."""

    request: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Alert:
    """Tell people, in these words, and leave it as it is."""

    reason: str


Answer = Wait | Bump | Cancel | Replace | Alert


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneSnapshot:
    """A lane as its owner saw it when it asked."""

    key: LaneKey
    mode: Mode
    next_nonce: int
    count: int  # executed at the head: the nonce the chain would take next
    balance: Wei
    in_flight: int
    window: int
    unhealthy: Attention | None
    attention: Attention | None


@dataclass(frozen=True, slots=True)
class HeadSnapshot:
    """The chain as it was seen then."""

    top: BlockRef
    final: BlockRef


Hook = Callable[[Transaction, LaneSnapshot, HeadSnapshot, Market, Millis], Answer]
