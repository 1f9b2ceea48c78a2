"""What pools of real nodes refuse and anvil does not. A rule is a value that judges one transaction; no rule asks.

The words are those of the clients, by `Words`. What nodes check before any of this (known already, nonce too low,
funds) is left to the node.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from nonchalant.chain.evm.decoding import RawTransaction
from nonchalant.values import replace
from nonchalant.words import Hash, Wei


@dataclass(frozen=True, slots=True)
class Refusal:
    """A JSON-RPC error. Its message may name `{numbers}` of the case."""

    message: str
    code: int = -32000
    data: object = None

    def filled(self, **numbers: object) -> Refusal:
        return replace(self, message=self.message.format(**numbers))


@dataclass(frozen=True, slots=True)
class Swallowed:
    """Success, and nothing kept."""


Verdict = Refusal | Swallowed | None
"""None: nothing against it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What a pool holds at one nonce."""

    hash: Hash
    max_fee: Wei
    priority: Wei


@dataclass(frozen=True, slots=True, kw_only=True)
class Pooled:
    """What a node knows when it judges a transaction: its sender's account and what the pool holds of it."""

    count: int  # the sender's mined count
    next_nonce: int  # the first that neither chain nor pool has
    held: Mapping[int, Held] = field(default_factory=dict)
    size: int = 0  # of the whole pool
    delegated: bool = False  # the sender has code that an EIP-7702 authorisation set


class PoolRule(Protocol):
    def judge(self, transaction: RawTransaction, pooled: Pooled) -> Verdict: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """How one client says it."""

    replacement: Refusal
    account_limit: Refusal
    gapped: Refusal
    underpriced: Refusal
    full: Refusal
    delegated: Refusal
    delegated_gap: Refusal


GETH = Words(
    replacement=Refusal("replacement transaction underpriced"),
    account_limit=Refusal("account limit exceeded: pooled {pooled} txs"),
    gapped=Refusal("nonce too high: tx nonce {nonce}, gapped nonce {next_nonce}"),
    underpriced=Refusal("transaction underpriced: gas tip cap {priority}, minimum needed {floor}"),
    full=Refusal("txpool is full"),
    delegated=Refusal("in-flight transaction limit reached for delegated accounts"),
    delegated_gap=Refusal("gapped-nonce tx from delegated accounts"),
)
RETH = replace(
    GETH,
    account_limit=Refusal("txpool is full", -32003),  # it has no other words for a sender with too many
    gapped=Refusal("nonce too high"),
    underpriced=Refusal("transaction underpriced"),
    full=Refusal("txpool is full", -32003),
)
ARBITRUM = replace(
    GETH,
    gapped=Refusal("nonce too high: address {sender}, tx: {nonce} state: {count}"),
    full=Refusal("sequencer pending tx pool full, please try again"),
)


@dataclass(frozen=True, slots=True)
class ReplacementStep:
    """A second transaction at a nonce must pay `percent` more in every fee field, rounded up."""

    percent: int = 10
    words: Words = GETH

    def judge(self, transaction: RawTransaction, pooled: Pooled) -> Verdict:
        other = pooled.held.get(transaction.nonce)
        if other is None:
            return None
        fields = ((transaction.max_fee, other.max_fee), (transaction.priority, other.priority))
        if all(new > old and new * 100 >= old * (100 + self.percent) for new, old in fields):
            return None
        return self.words.replacement


@dataclass(frozen=True, slots=True)
class AccountLimit:
    """A sender has at most so many in the pool. The next to be executed is welcome, however many wait behind it."""

    limit: int = 16
    words: Words = GETH

    def judge(self, transaction: RawTransaction, pooled: Pooled) -> Verdict:
        replacing = transaction.nonce in pooled.held
        if replacing or len(pooled.held) < self.limit or transaction.nonce == pooled.count:
            return None
        return self.words.account_limit.filled(pooled=len(pooled.held))


@dataclass(frozen=True, slots=True)
class NoGaps:
    """A nonce above the next is refused; or, `silently`, answered with success and dropped, as some gateways do."""

    silently: bool = False
    words: Words = GETH

    def judge(self, transaction: RawTransaction, pooled: Pooled) -> Verdict:
        if transaction.nonce <= pooled.next_nonce:
            return None
        if self.silently:
            return Swallowed()
        return self.words.gapped.filled(
            nonce=transaction.nonce, next_nonce=pooled.next_nonce, count=pooled.count, sender=transaction.sender
        )


@dataclass(frozen=True, slots=True)
class PriceFloor:
    """The priority fee (the gas price of older types) must be at least this."""

    floor: Wei
    words: Words = GETH

    def judge(self, transaction: RawTransaction, pooled: Pooled) -> Verdict:  # noqa: ARG002 - as all rules
        if transaction.priority >= self.floor:
            return None
        return self.words.underpriced.filled(priority=transaction.priority, floor=self.floor)


@dataclass(frozen=True, slots=True)
class PoolLimit:
    """The whole pool holds at most so many; 0 is a pool that is full for all but replacements."""

    limit: int = 0
    words: Words = GETH

    def judge(self, transaction: RawTransaction, pooled: Pooled) -> Verdict:
        if transaction.nonce in pooled.held or pooled.size < self.limit:
            return None
        return self.words.full


@dataclass(frozen=True, slots=True)
class DelegatedLimit:
    """An account with delegated code (EIP-7702) has at most so many in flight, and no gaps."""

    limit: int = 1
    words: Words = GETH

    def judge(self, transaction: RawTransaction, pooled: Pooled) -> Verdict:
        if not pooled.delegated or transaction.nonce in pooled.held:
            return None
        if transaction.nonce > pooled.next_nonce:
            return self.words.delegated_gap
        return self.words.delegated if len(pooled.held) >= self.limit else None
