"""A node's memory pool: what it takes, what it holds, what it says when it does not. The rules are geth's.

Clients differ in words and in manners; a `Flavour` is one client. The words are those of `data/node_errors.csv`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum, auto

from nonchalant.model import Accepted, Account, Answer, Refused
from nonchalant.sim.blocks import Ledger, gas_price
from nonchalant.sim.wire import SimTx
from nonchalant.words import Address, Hash, Wei

REPLACEMENT_PERCENT = 10


class Gapped(StrEnum):
    """What a client does with a nonce above the next one it could execute."""

    QUEUED = auto()
    REFUSED = auto()
    SWALLOWED = auto()  # some gateways say yes and keep nothing
    DROPPED = auto()  # kept for a second, in case the gap closes


class No(StrEnum):
    """Why a pool does not take a transaction."""

    FAULTY = auto()
    GREEDY = auto()
    NONCE_TOO_LOW = auto()
    NO_FUNDS = auto()
    KNOWN = auto()
    UNDERPRICED = auto()
    BELOW_BASE_FEE = auto()
    REPLACEMENT = auto()
    TOO_MANY = auto()
    GAPPED = auto()
    DELEGATED = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Flavour:
    """One kind of client: its manners, and its words as (code, message with the case's numbers).

    One that has no words for delegated accounts does not treat them apart.
    """

    name: str
    gapped: Gapped
    reinjects: bool  # whether transactions of a block that was dropped go back into the pool
    wants_base_fee: bool  # whether a cap below the base fee is refused, not kept for better times
    words: Mapping[No, tuple[int, str]]


GETH = Flavour(
    name="geth",
    gapped=Gapped.QUEUED,
    reinjects=True,
    wants_base_fee=False,
    words={
        No.FAULTY: (-32000, "intrinsic gas too low: gas {gas}, minimum needed {needed}"),
        No.GREEDY: (-32000, "transaction gas limit too high (cap: {cap}, tx: {gas})"),
        No.NONCE_TOO_LOW: (-32000, "nonce too low: next nonce {count}, tx nonce {nonce}"),
        No.NO_FUNDS: (
            -32000,
            "insufficient funds for gas * price + value: balance {balance}, tx cost {cost}, overshot {short}",
        ),
        No.KNOWN: (-32000, "already known"),
        No.UNDERPRICED: (-32000, "transaction underpriced"),
        No.BELOW_BASE_FEE: (-32000, "fee cap less than base fee"),
        No.REPLACEMENT: (-32000, "replacement transaction underpriced"),
        No.TOO_MANY: (-32000, "account limit exceeded: pooled {pooled} txs"),
        No.GAPPED: (-32000, "nonce too high: tx nonce {nonce}, gapped nonce {gap}"),
        No.DELEGATED: (-32000, "in-flight transaction limit reached for delegated accounts"),
    },
)
RETH = Flavour(
    name="reth",
    gapped=Gapped.QUEUED,
    reinjects=True,
    wants_base_fee=True,
    words={
        No.FAULTY: (-32000, "intrinsic gas too low"),
        No.GREEDY: (-32000, "exceeds max transaction gas limit"),
        No.NONCE_TOO_LOW: (-32000, "nonce too low: next nonce {count}, tx nonce {nonce}"),
        No.NO_FUNDS: (-32003, "insufficient funds for gas * price + value: have {balance} want {cost}"),
        No.KNOWN: (-32000, "already known"),
        No.UNDERPRICED: (-32000, "transaction underpriced"),
        No.BELOW_BASE_FEE: (-32000, "max fee per gas less than block base fee"),
        No.REPLACEMENT: (-32000, "[{hash}]: insufficient gas price to replace existing transaction"),
        No.TOO_MANY: (-32000, "account limit exceeded"),
        No.GAPPED: (-32000, "nonce too high"),
        No.DELEGATED: (-32000, "in-flight transaction limit reached for delegated accounts"),
    },
)
BESU = Flavour(
    name="besu",
    gapped=Gapped.REFUSED,
    reinjects=False,
    wants_base_fee=True,
    words={
        No.FAULTY: (-32003, "Intrinsic gas exceeds gas limit"),
        No.GREEDY: (-32005, "Transaction gas limit exceeds block gas limit"),
        No.NONCE_TOO_LOW: (-32001, "Nonce too low"),
        No.NO_FUNDS: (-32004, "Upfront cost exceeds account balance"),
        No.KNOWN: (-32000, "Known transaction"),
        No.UNDERPRICED: (-32009, "Gas price below configured minimum gas price"),
        No.BELOW_BASE_FEE: (-32009, "Gas price below current base fee"),
        No.REPLACEMENT: (-32000, "Replacement transaction underpriced"),
        No.TOO_MANY: (-32000, "account limit exceeded"),
        No.GAPPED: (-32006, "Nonce too high"),
    },
)
GATEWAY = Flavour(
    name="gateway",
    gapped=Gapped.SWALLOWED,
    reinjects=False,
    wants_base_fee=False,
    words=GETH.words,
)
FLAVOURS = (GETH, RETH, BESU, GATEWAY)


class Pool:
    """What one node holds. `limit` is per account; faults lower it."""

    def __init__(self, flavour: Flavour, *, limit: int, least_tip: Wei = 1, gas_cap: int | None = None) -> None:
        self.flavour = flavour
        self.gapped = flavour.gapped  # faults give it another client's manners
        self.limit = limit
        self.gas_cap = gas_cap  # of one transaction; None: the block's limit is all there is
        self.least_tip = least_tip
        self._held: dict[Address, dict[int, SimTx]] = {}

    def offer(self, tx: SimTx, ledger: Ledger, base_fee: Wei) -> No | None:
        """Take the transaction, or say why not. None also when it is swallowed."""
        account = ledger.account(tx.sender)
        held = self._held.setdefault(tx.sender, {})
        other = held.get(tx.nonce)
        gap = self._next_executable(held, account.count)
        checks: Sequence[tuple[bool, No]] = (
            (tx.gas < tx.intrinsic_gas, No.FAULTY),
            (self.gas_cap is not None and tx.gas > self.gas_cap, No.GREEDY),
            (other is not None and other.hash == tx.hash, No.KNOWN),
            (tx.nonce < account.count, No.NONCE_TOO_LOW),
            (tx.tip < self.least_tip, No.UNDERPRICED),
            (self.flavour.wants_base_fee and tx.max_fee < base_fee, No.BELOW_BASE_FEE),
            (self._cost_with(held, tx) > account.balance, No.NO_FUNDS),
            (other is not None and not replaces(tx, other), No.REPLACEMENT),
            (self._takes_one(account) and other is None and tx.nonce != account.count, No.DELEGATED),
            # The next one to be executed is always welcome, however many wait behind it.
            (other is None and len(held) >= self.limit and tx.nonce > account.count, No.TOO_MANY),
            (tx.nonce > gap and self.gapped is Gapped.REFUSED, No.GAPPED),
        )
        for wrong, reason in checks:
            if wrong:
                return reason
        if tx.nonce <= gap or self.gapped is not Gapped.SWALLOWED:
            held[tx.nonce] = tx
        return None

    def answer(self, tx: SimTx, verdict: No | None, ledger: Ledger) -> Answer:
        """The verdict in the client's own words."""
        if verdict is None:
            return Accepted()
        account = ledger.account(tx.sender)
        code, words = self.flavour.words[verdict]
        message = words.format(
            gas=tx.gas,
            needed=tx.intrinsic_gas,
            cap=self.gas_cap,
            nonce=tx.nonce,
            count=account.count,
            balance=account.balance,
            cost=tx.cost,
            short=max(0, tx.cost - account.balance),
            hash=tx.hash,
            pooled=len(self._held.get(tx.sender, ())),
            gap=self._next_executable(self._held.get(tx.sender, {}), account.count),
        )
        return Refused(message, code)

    def executable(self, ledger: Ledger) -> Iterator[SimTx]:
        """What could run next, each account's in order of nonce."""
        for sender, held in self._held.items():
            nonce = ledger.account(sender).count
            while nonce in held:
                yield held[nonce]
                nonce += 1

    def next_nonce(self, sender: Address, ledger: Ledger) -> int:
        """The first that neither the chain nor this pool has."""
        return self._next_executable(self._held.get(sender, {}), ledger.account(sender).count)

    def pick(self, ledger: Ledger, base_fee: Wei) -> list[SimTx]:
        """Candidates for a block: the best payer first, each account's in order of nonce."""
        waiting: dict[Address, list[SimTx]] = {}
        for tx in self.executable(ledger):
            waiting.setdefault(tx.sender, []).append(tx)
        picked: list[SimTx] = []
        while waiting:
            best = max(waiting, key=lambda sender: (gas_price(waiting[sender][0], base_fee), sender))
            tx = waiting[best].pop(0)
            if not waiting[best] or tx.max_fee < base_fee:
                del waiting[best]
            if tx.max_fee >= base_fee:
                picked.append(tx)
        return picked

    def prune(self, ledger: Ledger) -> None:
        """Forget what the chain has passed."""
        for sender, held in self._held.items():
            count = ledger.account(sender).count
            for nonce in [nonce for nonce in held if nonce < count]:
                del held[nonce]

    def evict(self, sender: Address, nonce: int) -> None:
        self._held.get(sender, {}).pop(nonce, None)

    def clear(self) -> None:
        self._held.clear()

    def held(self) -> list[SimTx]:
        return [tx for held in self._held.values() for tx in held.values()]

    def at(self, sender: Address, nonce: int) -> SimTx | None:
        return self._held.get(sender, {}).get(nonce)

    def holds(self, tx_hash: Hash) -> bool:
        return any(tx.hash == tx_hash for tx in self.held())

    def _takes_one(self, account: Account) -> bool:
        """Whether it is an account with delegated code (EIP-7702), of which only the next nonce is taken."""
        return account.delegated and No.DELEGATED in self.flavour.words

    @staticmethod
    def _next_executable(held: Mapping[int, SimTx], count: int) -> int:
        while count in held:
            count += 1
        return count

    @staticmethod
    def _cost_with(held: Mapping[int, SimTx], tx: SimTx) -> Wei:
        return tx.cost + sum(other.cost for nonce, other in held.items() if nonce != tx.nonce)


def replaces(tx: SimTx, other: SimTx) -> bool:
    """Whether `tx` pays enough more than `other`, in every fee field."""
    return all(
        new * 100 >= old * (100 + REPLACEMENT_PERCENT) and new > old
        for new, old in ((tx.max_fee, other.max_fee), (tx.tip, other.tip))
    )
