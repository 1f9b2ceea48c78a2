"""What an account can pay: beside all that is in flight, and beside what bumping the lowest slots may take.

The reserve is what so many replacements of the lowest slots would cost beyond what is set aside for them already. It is
asked only of what comes behind them, so a single transaction may take the last wei.
"""

from __future__ import annotations

from collections.abc import Iterable

from nonchalant import fees as prices
from nonchalant.fees import FeeRules
from nonchalant.model import Fees, Slot, Transaction
from nonchalant.policy import BUMPED_AT_ONCE, wish_of
from nonchalant.words import SlotKind, Speed, Wei

# Three steps of a tenth make a price dearer by a third.
RESERVED_STEPS = 3


class Purse:
    """The balance while a batch is put together: each purchase leaves less for the next."""

    def __init__(self, balance: Wei, committed: Wei, kept: Iterable[Wei] = ()) -> None:
        self.left = balance - committed
        self._kept = list(kept)[:BUMPED_AT_ONCE]  # for the lowest slots, each its own
        self.reserve: Wei = sum(self._kept)

    @property
    def keeps_more(self) -> bool:
        """Whether what is paid for next is one of the lowest."""
        return len(self._kept) < BUMPED_AT_ONCE

    def lacks(self, cost: Wei) -> Wei:
        """How much more it takes to pay that much; 0: there is enough."""
        return max(0, cost + self.reserve - self.left)

    def pay(self, cost: Wei, kept: Wei) -> None:
        """`kept` is for bumping what was just paid for, if it is one of the lowest."""
        self.left -= cost
        if self.keeps_more:
            self._kept.append(kept)
            self.reserve += kept


def kept_for(gas: int, price: Wei, wish: Speed | Fees, rules: FeeRules) -> Wei:
    """What is kept for bumping one slot."""
    return gas * prices.headroom(price, wish, rules, RESERVED_STEPS)


def kept_for_slot(slot: Slot, tx: Transaction | None, rules: FeeRules) -> Wei:
    """As `kept_for`; nothing for a nonce at which nothing of ours is signed."""
    price = slot.price
    if price is None or slot.kind is SlotKind.RESERVATION:
        return 0
    return kept_for(max(attempt.gas for attempt in slot.attempts), price.max_fee, wish_of(slot, tx), rules)
