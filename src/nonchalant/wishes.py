"""What people want of a lane, or of a transaction that has a slot.

Only the lane's owner may write those, and anybody may ask any node. So a wish is a row: the owner finds it, grants or
refuses it, and answers in the same commit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from nonchalant.model import Fees, Payload
from nonchalant.words import Hash, LaneKey, Millis, Speed, TxId

# Of one transaction. Each keeps a payload, of up to 128 KiB, for as long as the transaction is kept.
MOST_REPLACEMENTS = 50


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
    """Keep a nonce for the holder for so long, and for ten minutes at most.

    Answers `nonce` and `deadline` (milliseconds, by the store's clock). Refused: `too_many_reservations`,
    `window_full`, `quarantined`, `lane_paused`, `lane_unhealthy`, `reset_needed`.
    """

    holder: str
    millis: Millis  # not until when: the clock of whoever asks may be another one


@dataclass(frozen=True, slots=True)
class Use:
    """The holder signed this hash for its nonce; `raw` given is sent by us too. `holder` None: the bytes prove that
    whoever brings them has the account's key, and so may speak for its nonces.

    Answers `nonce` and `hash`. May be said again, and for another hash at the same nonce (a better price). Refused:
    `not_reserved`, `not_the_holder`, `reservation_expired`, `wrong_bytes`, `cannot_be_sent` (no transaction at all),
    `known_hash`, `already_used`.
    """

    nonce: int
    holder: str | None
    hash: Hash
    raw: bytes | None = None


@dataclass(frozen=True, slots=True)
class Release:
    """The holder will not use its nonce.

    Answers `nonce` and the lane's `next_nonce`. Refused: `not_reserved`, `not_the_holder`, `reservation_expired`,
    `already_used`, `already_consumed`.
    """

    nonce: int
    holder: str


@dataclass(frozen=True, slots=True)
class Sync:
    """Look at the chain anew: counts, every live attempt, the next nonce.

    Answers `head`, `final` (heights), `count`, `final_count`, `next_nonce`, `settled_below`, `live` (slots that are not
    final), `executed` (attempts that a block holds) and `holes` (nonces, the first hundred).
    """


@dataclass(frozen=True, slots=True)
class Fill:
    """Close this hole, or every hole that something waits behind, with a transfer of nothing.

    The nonce of a reservation that was used, and that the chain does not take, may be named too. Answers `filled`
    (nonces) and `left` (how many more there are). Refused: `not_a_hole`, `reserved`, `quarantined`, `cannot_be_sent`.
    """

    nonce: int | None = None


@dataclass(frozen=True, slots=True)
class Reset:
    """Take the chain's count for the next nonce; by force even while attempts live, or if what was final is gone.

    Answers `next_nonce`, `settled_below`, `settled_below_before` (higher: what was final below it is given up),
    `recalled` (ids that are queued again, because nothing of them left) and `kept` (`{nonce, kind, tx, hash}` of what
    may still be executed). Refused without force: `attempts_live`, with `count` and `live` (as `kept`); `was_final`, with
    `count`.
    """

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


class Refusal(Exception):
    """The wish is not granted; the code, the sentence and what else is to be told are the answer."""

    def __init__(self, code: str, reason: str, **data: object) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason
        self.data: Mapping[str, object] = data


class NotYet(Exception):
    """The wish waits for its turn."""
