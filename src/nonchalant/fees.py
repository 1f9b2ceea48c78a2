"""What a transaction offers for its gas: the opening price, and the price that replaces it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from nonchalant.model import Fees, Market
from nonchalant.values import replace
from nonchalant.words import Speed, Wei

# A price this many times what a fresh offer would be is not what keeps a transaction from being mined.
RUNAWAY = 10
GWEI: Wei = 10**9

# A chain without a base fee has one price; speeds differ by what they add to it, if the market does not say how much.
LEGACY_PERCENT: Mapping[Speed, int] = {Speed.SLOW: 100, Speed.STANDARD: 110, Speed.FAST: 125}

# The base fee can rise by an eighth a block: doubling it keeps an offer valid for six full blocks.
BASE_FEE_HEADROOM = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class FeeRules:
    """Floors and caps, as the chain and the account have them. None: no cap."""

    speed: Speed = Speed.STANDARD
    min_priority: Wei = 0
    max_priority: Wei | None = None
    max_fee: Wei | None = None
    # Nodes want this much more, on every fee field, before they replace what they hold; this is what geth, reth, erigon
    # and nethermind want unless they are told otherwise.
    replacement_percent: int = 10
    calldata_floor: bool = True  # data has a least price in gas, however little is done with it (EIP-7623)

    def capped(self, *, max_fee: Wei | None, max_priority: Wei | None) -> FeeRules:
        """With an account's own caps beside the chain's: the lower one counts."""
        if max_fee is None and max_priority is None:
            return self
        return replace(
            self, max_fee=_lower(self.max_fee, max_fee), max_priority=_lower(self.max_priority, max_priority)
        )


def opening(wish: Speed | Fees, market: Market, rules: FeeRules) -> Fees:
    """The first offer. Fees named by the user are taken as they are: they were checked against the caps at intake.

    Those that are only to begin with are held to the caps here, and what no block would take begins at the market's price.
    """
    if isinstance(wish, Fees):
        return wish if wish.firm else _begun(wish, market, rules)
    if market.base_fee is None:
        more = market.priority.get(wish)
        price = _share(market.gas_price, LEGACY_PERCENT[wish]) if more is None else market.gas_price + more
        return Fees(_at_most(max(price, rules.min_priority), rules.max_fee))
    tip = _at_most(max(market.priority[wish], rules.min_priority), rules.max_priority)
    cap = _at_most(market.base_fee * BASE_FEE_HEADROOM + tip, rules.max_fee)
    return Fees(cap, min(tip, cap))


def _begun(wish: Fees, market: Market, rules: FeeRules) -> Fees:
    named = held_to_caps(wish, rules)
    if is_payable(named, market):
        return named
    fresh = opening(rules.speed, market, rules)
    return Fees(fresh.max_fee) if named.priority is None else fresh


def held_to_caps(wish: Fees, rules: FeeRules) -> Fees:
    """What may be offered of it."""
    most = _at_most(wish.max_fee, rules.max_fee)
    return Fees(most, None if wish.priority is None else min(most, _at_most(wish.priority, rules.max_priority)))


def is_payable(fees: Fees, market: Market) -> bool:
    """Whether the next block could take this offer. False: no node keeps it, so it is not worth a nonce yet."""
    return market.base_fee is None or fees.max_fee >= market.base_fee


def raised(previous: Fees, wish: Speed | Fees, market: Market, rules: FeeRules) -> Fees | None:
    """An offer that nodes take in place of `previous`; None when the cap leaves no room for one.

    Fees named by the user are the user's cap, unless they were only to begin with.
    """
    fresh = opening(rules.speed if isinstance(wish, Fees) else wish, market, rules)
    own = _own_cap(wish)
    cap = _at_most(RUNAWAY * max(fresh.max_fee, GWEI), rules.max_fee) if own is None else own
    least = replacement_floor(previous, rules)
    if previous.priority is None:
        offer = Fees(max(fresh.max_fee, least.max_fee))
    else:
        assert least.priority is not None
        tip = max(fresh.priority or 0, least.priority)
        offer = Fees(max(fresh.max_fee, least.max_fee, tip), tip)
    offer = replace(offer, max_fee=max(_at_most(offer.max_fee, cap), least.max_fee))
    if offer.priority is not None:
        tip_cap = _at_most(_at_most(offer.priority, rules.max_priority), offer.max_fee)
        offer = replace(offer, priority=max(tip_cap, least.priority or 0))
    return offer if _within(offer, cap, rules.max_priority) else None


def outbid(previous: Fees | None, market: Market, rules: FeeRules) -> Fees:
    """What does nothing in place of `previous` offers: enough to replace it, or else the most that the caps allow.

    At the cap it replaces nothing that nodes still hold, but they take it where they have dropped that. None: there is
    nothing to replace, as far as we know.
    """
    fresh = opening(Speed.FAST, market, rules)
    if previous is None:
        return fresh
    offer = raised(previous, Speed.FAST, market, rules)
    if offer is not None:
        return offer
    # Dear beyond reason already; only the user's own price can have been that, and only more takes its place.
    least = replacement_floor(previous, rules)
    if is_within_caps(least, rules):
        return least
    dearest = max(fresh.max_fee, _at_most(previous.max_fee, rules.max_fee))
    if previous.priority is None:
        return Fees(dearest)
    return Fees(dearest, min(dearest, max(fresh.priority or 0, _at_most(previous.priority, rules.max_priority))))


def is_within_caps(fees: Fees, rules: FeeRules) -> bool:
    return _within(fees, rules.max_fee, rules.max_priority)


def replacement_floor(previous: Fees, rules: FeeRules) -> Fees:
    """The least that replaces `previous`: every field raised by the step, rounded up, and never by nothing."""
    tip = previous.priority
    return Fees(_stepped(previous.max_fee, rules), None if tip is None else _stepped(tip, rules))


def headroom(price: Wei, wish: Speed | Fees, rules: FeeRules, steps: int) -> Wei:
    """How much dearer so many replacements make one gas, at the least, as far as the caps let them."""
    own = _own_cap(wish)
    cap = rules.max_fee if own is None else own
    dearest = price
    for _ in range(steps):
        dearest = _stepped(dearest, rules)
    return max(0, _at_most(dearest, cap) - price)


def _own_cap(wish: Speed | Fees) -> Wei | None:
    return wish.max_fee if isinstance(wish, Fees) and wish.firm else None


def _stepped(amount: Wei, rules: FeeRules) -> Wei:
    return max(amount + 1, _share(amount, 100 + rules.replacement_percent))


def _within(offer: Fees, cap: Wei | None, priority_cap: Wei | None) -> bool:
    if cap is not None and offer.max_fee > cap:
        return False
    return offer.priority is None or priority_cap is None or offer.priority <= priority_cap


def _share(amount: Wei, percent: int) -> Wei:
    return -(-amount * percent // 100)


def _at_most(amount: Wei, cap: Wei | None) -> Wei:
    return amount if cap is None else min(amount, cap)


def _lower(one: Wei | None, other: Wei | None) -> Wei | None:
    return other if one is None else _at_most(one, other)
