"""What a client says of prices: named, half named, or left to us; a wish or a cap, as its key has it."""

from __future__ import annotations

from dataclasses import dataclass

from nonchalant.access import FeeRule
from nonchalant.errors import BadRequest, FeeAboveCap
from nonchalant.fees import BASE_FEE_HEADROOM, FeeRules, is_within_caps
from nonchalant.model import Fees, Market
from nonchalant.words import Speed, Wei


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """As the client gave them; None: not at all."""

    type: int | None = None
    gas_price: Wei | None = None
    max_fee: Wei | None = None
    priority: Wei | None = None

    def __post_init__(self) -> None:
        modern = self.max_fee is not None or self.priority is not None
        if self.gas_price is not None and modern:
            raise BadRequest("both gasPrice and (maxFeePerGas or maxPriorityFeePerGas) specified")
        if self.type not in (None, 0, 1, 2):
            raise BadRequest("transaction type not supported: only 0, 1 and 2 are", field="type")
        if modern and self.type in (0, 1):
            raise BadRequest("maxFeePerGas and maxPriorityFeePerGas are for type 2", field="type")
        if self.gas_price is not None and self.type == 2:
            raise BadRequest("gasPrice is for types 0 and 1", field="type")
        if self.max_fee is not None and self.priority is not None and self.priority > self.max_fee:
            raise BadRequest(f"maxFeePerGas ({self.max_fee}) < maxPriorityFeePerGas ({self.priority})")

    @property
    def is_legacy(self) -> bool:
        return self.gas_price is not None or self.type in (0, 1)

    @property
    def needs_market(self) -> bool:
        """Whether a part is missing that the market has to say."""
        if self.is_legacy:
            return self.gas_price is None
        return (self.max_fee is None) != (self.priority is None)

    def fees(self, market: Market | None) -> Fees | None:
        """Whole prices, the missing part as geth fills it in; None: the client leaves them to us."""
        if self.is_legacy:
            price = self.gas_price if market is None else market.gas_price
            assert price is not None
            return Fees(price)
        if self.max_fee is None and self.priority is None:
            return None
        if market is not None and self.max_fee is None:
            assert self.priority is not None
            return Fees(self.priority + (market.base_fee or market.gas_price) * BASE_FEE_HEADROOM, self.priority)
        if market is not None and self.priority is None:
            assert self.max_fee is not None
            return Fees(self.max_fee, min(self.max_fee, market.priority.get(Speed.STANDARD, 0)))
        assert self.max_fee is not None
        return Fees(self.max_fee, self.priority)


def as_the_key_has_it(fees: Fees, rule: FeeRule, rules: FeeRules) -> Fees:
    """A wish is what to begin with, and the caps hold it by themselves; a cap above the account's own is refused."""
    if rule is FeeRule.WISH:
        return Fees(fees.max_fee, fees.priority, firm=False)
    if not is_within_caps(fees, rules):
        raise FeeAboveCap(
            f"above what the account or the chain may pay ({rules.max_fee} wei, and a tip of {rules.max_priority}); "
            "name less, or raise the cap"
        )
    return fees
