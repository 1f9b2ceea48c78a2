"""The stub's chain: accounts, what is pooled, and blocks."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from nonchalant.chain.evm.decoding import FIELDS, RawTransaction, decode, hash_of, unrlp
from nonchalant.chain.evm.keccak import keccak
from nonchalant.words import Address, Hash, Millis, Wei

BASE_FEE: Final[Wei] = 10**9
TIP: Final[Wei] = 10**9
GAS_LIMIT: Final = 300_000_000_000
STEP_PERCENT: Final = 110  # what a replacement must pay of what it replaces

INVALID: Final = -32602
REFUSED: Final = -32000


class Refusal(Exception):
    """What a node answers instead of a result."""

    def __init__(self, message: str, code: int = REFUSED) -> None:
        super().__init__(message)
        self.message = message
        self.code = code


@dataclass(frozen=True, slots=True)
class Block:
    number: int
    hash: Hash
    parent: Hash
    at: int
    transactions: tuple[RawTransaction, ...]


@dataclass(slots=True)
class _Account:
    executed: int = 0  # how many of its transactions are in blocks
    pending: dict[int, RawTransaction] = field(default_factory=dict)
    blocks: list[int] = field(default_factory=list)  # where its count changed, and what it was from there on
    counts: list[int] = field(default_factory=list)
    ready: int = 0  # from `executed` to here there is no hole in what is pooled

    def count_at(self, number: int, first: int) -> int:
        at = bisect_right(self.blocks, number)
        return self.counts[at - 1] if at else first


class Ledger:
    """`payers` tells who pays whom, so that no signature needs to be looked at: that costs more than all else a stub
    does. Of what pays somebody else, or is not of type 2, the sender is recovered. `first_nonce`: every account has
    sent so many before."""

    def __init__(self, chain_id: int, *, payers: Mapping[Address, Address] | None = None, first_nonce: int = 0) -> None:
        self.chain_id = chain_id
        self.held: set[Address] = set()  # what they sent stays pooled
        self._first_nonce = first_nonce
        self._payers = {bytes.fromhex(payee[2:]): payer for payee, payer in (payers or {}).items()}
        genesis = Block(0, hash_of(b"genesis"), "0x" + "00" * 32, 0, ())
        self.blocks: list[Block] = [genesis]
        self.number_of: dict[Hash, int] = {genesis.hash: 0}
        self.place_of: dict[Hash, tuple[int, int]] = {}  # block and index of what was executed
        self.pooled: dict[Hash, RawTransaction] = {}
        self.taken: dict[Hash, tuple[bytes, Millis]] = {}  # its bytes, and when they came
        self._accounts: dict[Address, _Account] = {}
        self._movable: dict[Address, None] = {}  # accounts that have something for the next block

    @property
    def head(self) -> Block:
        return self.blocks[-1]

    def count(self, address: Address, number: int) -> int:
        account = self._accounts.get(address)
        return self._first_nonce if account is None else account.count_at(number, self._first_nonce)

    def pending_count(self, address: Address) -> int:
        account = self._accounts.get(address)
        return self._first_nonce if account is None else account.ready

    def send(self, raw: bytes, at: Millis) -> Hash:
        """Pooled, as a node does it; `Refusal` in the words of geth."""
        try:
            tx = _believed(raw, self._payers) or decode(raw)
        except ValueError as problem:
            raise Refusal(f"invalid transaction: {problem}", INVALID) from None
        if tx.chain_id not in (None, self.chain_id):
            raise Refusal("invalid chain id for signer")
        account = self._accounts.get(tx.sender)
        if account is None:
            account = self._accounts[tx.sender] = _Account(executed=self._first_nonce, ready=self._first_nonce)
        if tx.nonce < account.executed:
            raise Refusal(f"nonce too low: next nonce {account.executed}, tx nonce {tx.nonce}")
        if tx.max_fee < BASE_FEE:
            raise Refusal(f"max fee per gas less than block base fee: maxFeePerGas: {tx.max_fee}, baseFee: {BASE_FEE}")
        known = account.pending.get(tx.nonce)
        if known is not None:
            self._replace(known, tx)
        account.pending[tx.nonce] = tx
        self.pooled[tx.hash] = tx
        self.taken[tx.hash] = (raw, at)
        if tx.nonce == account.ready:
            self._movable[tx.sender] = None
            while account.ready in account.pending:
                account.ready += 1
        return tx.hash

    def _replace(self, known: RawTransaction, tx: RawTransaction) -> None:
        if known.hash == tx.hash:
            raise Refusal("already known")
        if any(
            new * 100 < old * STEP_PERCENT for new, old in ((tx.max_fee, known.max_fee), (tx.priority, known.priority))
        ):
            raise Refusal("replacement transaction underpriced")
        del self.pooled[known.hash]

    def mine(self, at: int) -> Block:
        """One block of all that can be executed now."""
        parent = self.head
        number = parent.number + 1
        executed: list[RawTransaction] = []
        for address in [address for address in self._movable if address not in self.held]:
            del self._movable[address]
            account = self._accounts[address]
            executed += [account.pending.pop(nonce) for nonce in range(account.executed, account.ready)]
            account.executed = account.ready
            account.blocks.append(number)
            account.counts.append(account.executed)
        named = "".join([tx.hash for tx in executed])
        hash = "0x" + keccak(f"{parent.hash}{number}{at}{named}".encode()).hex()
        block = Block(number, hash, parent.hash, at, tuple(executed))
        for index, tx in enumerate(executed):
            del self.pooled[tx.hash]
            self.place_of[tx.hash] = (number, index)
        self.number_of[hash] = number
        self.blocks.append(block)
        return block


def _believed(raw: bytes, payers: Mapping[bytes, Address]) -> RawTransaction | None:
    """A transaction of type 2 that pays one of these, its signature not looked at; None: the bytes are something else."""
    if raw[:1] != b"\x02":
        return None
    fields = unrlp(raw[1:])
    values = [field for field in fields[:8] if isinstance(field, bytes)]  # a match takes seven times as long
    if len(values) != 8 or len(fields) != FIELDS[2] or values[5] not in payers:
        return None
    chain_id, nonce, priority, max_fee, gas = map(int.from_bytes, values[:5])
    to, value, data = values[5:]
    return RawTransaction(
        kind=2,
        hash=hash_of(raw),
        sender=payers[to],
        chain_id=chain_id,
        nonce=nonce,
        max_fee=max_fee,
        priority=priority,
        gas=gas,
        to="0x" + to.hex(),
        value=int.from_bytes(value),
        data=data,
    )
