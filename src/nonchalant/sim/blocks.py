"""The tree of blocks and what executing a transaction does. Everything here is the truth; who sees it is elsewhere."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import StrEnum

from nonchalant.model import Account, Block, BlockRef, Executed, Receipt
from nonchalant.sim.wire import Effect, Order, SimTx
from nonchalant.values import replace
from nonchalant.words import Address, Hash, Wei

NOBODY = Account(0, 0)
EXECUTION_GAS = 20_000


@dataclass(frozen=True, slots=True)
class Ledger:
    """The state after a block: every account, and the labels that have run with success."""

    accounts: Mapping[Address, Account]
    done: frozenset[str] = frozenset()

    def account(self, address: Address) -> Account:
        return self.accounts.get(address, NOBODY)

    def refuses(self, order: Order) -> bool:
        """Whether estimating the order here shows that it reverts."""
        return order.effect is not Effect.REVERTS and not succeeds(order, self.done)


def succeeds(order: Order, done: AbstractSet[str]) -> bool:
    """Whether executing the order does what it should, after those labels have run."""
    match order.effect:
        case Effect.RUNS:
            return True
        case Effect.REVERTS | Effect.NEVER:
            return False
        case Effect.AFTER:
            return order.after in done


class Deed(StrEnum):
    AUTHORISED = "authorised"  # the key signed an authorisation that somebody else's transaction carried, for no code
    DELEGATED = "delegated"  # the same, for some code
    FUNDED = "funded"
    DRAINED = "drained"


@dataclass(frozen=True, slots=True)
class Happening:
    """Something that changes an account with no transaction of its own."""

    deed: Deed
    address: Address
    amount: Wei = 0


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SimBlock:
    number: int
    hash: Hash
    parent: SimBlock | None
    rank: int  # the order in which blocks were made; nodes go with the latest
    base_fee: Wei
    transactions: tuple[SimTx, ...]
    happenings: tuple[Happening, ...]
    receipts: Mapping[Hash, Receipt]
    ledger: Ledger
    hashes: tuple[Hash, ...] = ()

    @property
    def ref(self) -> BlockRef:
        return BlockRef(self.number, self.hash)

    def plain(self) -> Block:
        return Block(self.number, self.hash, self.parent.hash if self.parent else "0x" + "00" * 32, self.hashes)

    def executed(self) -> Sequence[Executed]:
        return [Executed(tx.hash, tx.sender, tx.nonce, tx.to, tx.value, tx.data) for tx in self.transactions]

    def down(self) -> Iterator[SimBlock]:
        """This block and its ancestors, down to the first one."""
        block: SimBlock | None = self
        while block is not None:
            yield block
            block = block.parent

    def at(self, number: int) -> SimBlock | None:
        """Its ancestor (or itself) at this height; None above it or below zero."""
        if not 0 <= number <= self.number:
            return None
        block = self
        while block.number > number:
            assert block.parent is not None
            block = block.parent
        return block

    def has(self, other: SimBlock) -> bool:
        """Whether `other` is in the chain that ends here."""
        return self.at(other.number) is other


def common(one: SimBlock, other: SimBlock) -> SimBlock:
    """The highest block that both chains hold."""
    height = min(one.number, other.number)
    left, right = one.at(height), other.at(height)
    while left is not right:
        assert left is not None
        assert right is not None
        left, right = left.parent, right.parent
    assert left is not None
    return left


def genesis(chain_id: int, balances: Mapping[Address, Wei], base_fee: Wei) -> SimBlock:
    return SimBlock(
        number=0,
        hash=_block_hash(f"{chain_id}", 0, ()),
        parent=None,
        rank=0,
        base_fee=base_fee,
        transactions=(),
        happenings=(),
        receipts={},
        ledger=Ledger({address: Account(0, balance) for address, balance in balances.items()}),
    )


def build(
    parent: SimBlock,
    *,
    rank: int,
    base_fee: Wei,
    happenings: Sequence[Happening],
    candidates: Iterable[SimTx],
    room: int,
) -> SimBlock:
    """The next block: the happenings, then those of the candidates that can run, in their order, while there is room."""
    accounts = dict(parent.ledger.accounts)
    done = set(parent.ledger.done)
    for happening in happenings:
        _apply(accounts, happening)
    ran: list[tuple[SimTx, bool]] = []
    for tx in candidates:
        if len(ran) >= room:
            break
        account = accounts.get(tx.sender, NOBODY)
        if tx.nonce != account.count or tx.max_fee < base_fee or account.balance < tx.cost:
            continue
        succeeded = succeeds(tx.order, done)
        spent = _gas_used(tx) * gas_price(tx, base_fee) + tx.data_fee + (tx.value if succeeded else 0)
        accounts[tx.sender] = replace(account, count=account.count + 1, balance=account.balance - spent)
        if succeeded and tx.order.label:
            done.add(tx.order.label)
        ran.append((tx, succeeded))
    hashes = tuple(tx.hash for tx, _ in ran)
    ref = BlockRef(parent.number + 1, _block_hash(parent.hash, rank, hashes))
    return SimBlock(
        number=ref.number,
        hash=ref.hash,
        parent=parent,
        rank=rank,
        base_fee=base_fee,
        transactions=tuple(tx for tx, _ in ran),
        happenings=tuple(happenings),
        receipts={tx.hash: _receipt(tx, ref, base_fee, succeeded) for tx, succeeded in ran},
        ledger=Ledger(accounts, frozenset(done)),
        hashes=hashes,
    )


def gas_price(tx: SimTx, base_fee: Wei) -> Wei:
    return min(tx.max_fee, base_fee + tx.tip)


def _gas_used(tx: SimTx) -> int:
    return min(tx.gas, tx.intrinsic_gas + (EXECUTION_GAS if tx.data else 0))


def _receipt(tx: SimTx, block: BlockRef, base_fee: Wei, succeeded: bool) -> Receipt:
    return Receipt(
        hash=tx.hash,
        block=block,
        succeeded=succeeded,
        gas_used=_gas_used(tx),
        gas_price=gas_price(tx, base_fee),
        contract=None if tx.to else "0x" + tx.hash[2:42],
        l1_fee=tx.data_fee,
    )


def _apply(accounts: dict[Address, Account], happening: Happening) -> None:
    account = accounts.get(happening.address, NOBODY)
    match happening.deed:
        case Deed.AUTHORISED | Deed.DELEGATED:
            account = replace(account, count=account.count + 1, delegated=happening.deed is Deed.DELEGATED)
        case Deed.FUNDED:
            account = replace(account, balance=account.balance + happening.amount)
        case Deed.DRAINED:
            account = replace(account, balance=max(0, account.balance - happening.amount))
    accounts[happening.address] = account


def _block_hash(parent: str, rank: int, hashes: Sequence[Hash]) -> Hash:
    return "0x" + hashlib.sha256(f"{parent} {rank} {' '.join(hashes)}".encode()).hexdigest()
