"""Who goes next: the queue in its order, and clients that name their nonce among it.

Who names a nonce gets that one or none. Numbers below it that are still missing are kept for whoever names those, from
all who came later, for a while; nothing is ever signed above a number that nobody has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from nonchalant.model import Transaction
from nonchalant.values import replace
from nonchalant.words import Millis

# How long missing numbers are kept, and how many at most: clients that send several at once do so within moments.
KEPT_FOR: Millis = 10_000
MOST_KEPT = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """`going`: those whose turn it is. `waiting`: those whose nonce is not reached yet; they may have to be refused."""

    going: tuple[Transaction, ...] = ()
    waiting: tuple[Transaction, ...] = ()
    too_low: tuple[Transaction, ...] = ()
    too_high: tuple[Transaction, ...] = ()
    missing: int | None = None  # the number that is waited for

    @property
    def refused(self) -> tuple[Transaction, ...]:
        return self.too_low + self.too_high

    def first(self) -> Line:
        """Only the first of those about whom something is to be done."""
        if self.going:
            return replace(self, going=self.going[:1], too_low=(), too_high=())
        return replace(self, too_low=self.too_low[:1], too_high=() if self.too_low else self.too_high[:1])

    def kept_until(self) -> Millis | None:
        """When somebody will have waited too long; None: nobody waits."""
        return min((tx.created_at + KEPT_FOR for tx in self.waiting), default=None)


def form(
    queued: Sequence[Transaction],
    free: Callable[[], Iterable[int]],
    can_give: Callable[[int], bool],
    *,
    room: int,
    complete: bool,
    now: Millis,
) -> Line:
    """What becomes of each. `complete`: nobody else is queued, so a number that nobody here takes is missing; else who has
    waited too long is not refused yet, and keeps nobody waiting any more."""
    asking = [tx for tx in queued if tx.asked_nonce is not None]
    if not asking:
        return Line(going=tuple(queued[:room]))
    too_low = tuple(tx for tx in asking if not can_give(_asked(tx)))
    line = _without(queued, too_low)
    numbers = list(islice(free(), room))
    turns = in_turn(numbers, line)
    going = tuple(tx for _, tx in turns)
    waiting = tuple(tx for tx in _without(line, going) if tx.asked_nonce is not None)
    if not waiting or len(turns) == room:
        return Line(going=going, waiting=waiting, too_low=too_low)
    missing = numbers[len(turns)]
    given_up = [tx for tx in waiting if now - tx.created_at >= KEPT_FOR or _asked(tx) - missing > MOST_KEPT]
    if not given_up:
        return Line(going=going, waiting=waiting, too_low=too_low, missing=missing if complete else None)
    # Without them, others may go that they kept waiting.
    rest = form(_without(line, given_up), free, can_give, room=room, complete=complete, now=now)
    if not complete:  # whoever has the missing number may be among those that are not seen
        return replace(rest, too_low=too_low)
    return replace(rest, too_low=too_low, too_high=(*given_up, *rest.too_high), missing=missing)


def in_turn(free: Iterable[int], queued: Sequence[Transaction]) -> list[tuple[int, Transaction]]:
    """Who gets which of the free nonces, lowest first; it ends where a number is missing, or nobody is left."""
    asking = {_asked(tx): tx for tx in queued if tx.asked_nonce is not None}
    if not asking:
        return list(zip(free, queued, strict=False))
    others = [tx for tx in queued if tx.asked_nonce is None]
    turns: list[tuple[int, Transaction]] = []
    for nonce in free:
        tx = asking.pop(nonce, None) or _next_other(others, asking, nonce)
        if tx is None:
            break
        turns.append((nonce, tx))
    return turns


def _next_other(others: list[Transaction], asking: dict[int, Transaction], nonce: int) -> Transaction | None:
    """The first that came before everybody who waits for a higher number: later ones leave this to whom it is kept for."""
    if not others:
        return None
    bar = min((tx.place for asked, tx in asking.items() if asked > nonce), default=None)
    at = 0 if bar is None else next((n for n, tx in enumerate(others) if tx.place < bar), None)
    return None if at is None else others.pop(at)


def _without(queued: Sequence[Transaction], left_out: Sequence[Transaction]) -> list[Transaction]:
    ids = {tx.id for tx in left_out}
    return [tx for tx in queued if tx.id not in ids]


def _asked(tx: Transaction) -> int:
    assert tx.asked_nonce is not None
    return tx.asked_nonce
