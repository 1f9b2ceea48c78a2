"""What nodes answer, turned into our values. Strict: anything malformed is a ValueError, never a guess."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import median_low
from typing import Final

import msgspec

from nonchalant.model import Block, BlockRef, Executed, Receipt
from nonchalant.words import Address, Hash, Speed, Wei

PERCENTILES: Final = {Speed.SLOW: 10, Speed.STANDARD: 50, Speed.FAST: 90}
DELEGATION: Final = bytes.fromhex("ef0100")  # and the address whose code runs


# words


def quantity(text: str, bits: int = 256) -> int:
    """A hex number. Not by `int` alone, which also takes underscores and the digits of other scripts."""
    if not (text.startswith("0x") and text.isascii() and text.isalnum()):
        raise ValueError("not a hex quantity")
    number = int(text, 16)
    if number.bit_length() > bits:
        raise ValueError(f"a quantity of more than {bits} bits")
    return number


def height(text: str) -> int:
    return quantity(text, 63)  # so that every store can keep it


def data(text: str) -> bytes:
    decoded = bytes.fromhex(text[2:])
    if not text.startswith("0x") or len(decoded) * 2 != len(text) - 2:
        raise ValueError("not 0x-hex")
    return decoded


def hash32(text: str) -> Hash:
    if len(data(text)) != 32:
        raise ValueError("not a hash of 32 bytes")
    return text.lower()


def address(text: str) -> Address:
    if len(data(text)) != 20:
        raise ValueError("not an address of 20 bytes")
    return text.lower()


# All receipts of a block name the same one.
@lru_cache(maxsize=64)
def block_ref(number: str, hash: str) -> BlockRef:
    return BlockRef(height(number), hash32(hash))


# structures


class _Header(msgspec.Struct, rename="camel"):
    hash: str
    number: str
    base_fee_per_gas: str | None = None
    gas_limit: str | None = None


class _Block(msgspec.Struct, rename="camel"):
    hash: str
    number: str
    parent_hash: str
    transactions: list[str]


class _Transaction(msgspec.Struct, rename={"sender": "from"}):
    # The transactions that a layer 2 makes by itself lack some of what ours have.
    hash: str
    sender: str
    nonce: str = "0x0"
    to: str | None = None
    value: str = "0x0"
    input: str = "0x"


class _FullBlock(msgspec.Struct):
    hash: str
    number: str
    transactions: list[_Transaction]


class _Receipt(msgspec.Struct, rename="camel"):
    transaction_hash: str
    block_hash: str | None
    block_number: str | None
    gas_used: str
    status: str | None = None
    effective_gas_price: str | None = None
    gas_price: str | None = None
    contract_address: str | None = None
    l1_fee: str | None = msgspec.field(default=None, name="l1Fee")


class _FeeHistory(msgspec.Struct, rename="camel"):
    base_fee_per_gas: list[str] | None = None
    gas_used_ratio: list[float | None] | None = None
    reward: list[list[str] | None] | None = None


_text = msgspec.json.Decoder(str).decode
_header = msgspec.json.Decoder(_Header | None).decode
_block = msgspec.json.Decoder(_Block | None).decode
_full_block = msgspec.json.Decoder(_FullBlock | None).decode
_receipt = msgspec.json.Decoder(_Receipt | None).decode
_receipts = msgspec.json.Decoder(list[_Receipt] | None).decode
_fee_history = msgspec.json.Decoder(_FeeHistory | None).decode


@dataclass(frozen=True, slots=True)
class Header:
    ref: BlockRef
    base_fee: Wei | None  # None: the chain has none
    gas_limit: int | None  # None: the node does not say


@dataclass(frozen=True, slots=True)
class FeeHistory:
    """`next_base_fee` None and `priority` empty: the node did not say."""

    next_base_fee: Wei | None
    priority: dict[Speed, Wei]


# answers


def number(raw: bytes) -> int:
    return quantity(_text(raw))


def sent_hash(raw: bytes) -> Hash:
    return hash32(_text(raw))


def header(raw: bytes) -> Header | None:
    found = _header(raw)
    if found is None:
        return None
    base_fee = None if found.base_fee_per_gas is None else quantity(found.base_fee_per_gas)
    # Some layer 2s have no limit and write 0.
    gas_limit = None if found.gas_limit is None else quantity(found.gas_limit) or None
    return Header(BlockRef(height(found.number), hash32(found.hash)), base_fee, gas_limit)


def block(raw: bytes) -> Block | None:
    found = _block(raw)
    if found is None:
        return None
    return Block(
        height(found.number),
        hash32(found.hash),
        hash32(found.parent_hash),
        tuple(hash32(transaction) for transaction in found.transactions),
    )


def executed(raw: bytes) -> tuple[BlockRef, Sequence[Executed]] | None:
    found = _full_block(raw)
    if found is None:
        return None
    transactions = [
        Executed(
            hash32(each.hash),
            address(each.sender),
            quantity(each.nonce, 64),
            None if each.to is None else address(each.to),
            quantity(each.value),
            data(each.input),
        )
        for each in found.transactions
    ]
    return BlockRef(height(found.number), hash32(found.hash)), transactions


def receipt(raw: bytes) -> Receipt | None:
    """None: the node knows of no execution, be it only pending or unknown."""
    found = _receipt(raw)
    return None if found is None else _executed_receipt(found)


def receipts(raw: bytes, wanted: Container[Hash]) -> list[Receipt] | None:
    """The wanted ones of a block, whatever a chain puts into the others; None: the node does not have the block."""
    found = _receipts(raw)
    if found is None:
        return None
    ours = [_executed_receipt(each) for each in found if each.transaction_hash.lower() in wanted]
    return [each for each in ours if each is not None]


def _executed_receipt(found: _Receipt) -> Receipt | None:
    if found.block_hash is None or found.block_number is None:
        return None  # some nodes answer for pending transactions too
    price = found.effective_gas_price or found.gas_price or "0x0"
    return Receipt(
        hash=hash32(found.transaction_hash),
        block=block_ref(found.block_number, found.block_hash),
        succeeded=_succeeded(found.status),
        gas_used=quantity(found.gas_used, 63),
        gas_price=quantity(price),
        contract=None if found.contract_address is None else address(found.contract_address),
        l1_fee=0 if found.l1_fee is None else quantity(found.l1_fee),
    )


def _succeeded(status: str | None) -> bool:
    """Before Byzantium there was no status; none of our transactions is that old."""
    if status is None:
        raise ValueError("a receipt without a status")
    if (flag := quantity(status)) > 1:
        raise ValueError("a receipt's status is neither 0 nor 1")
    return flag == 1


def count(raw: bytes) -> int:
    return quantity(_text(raw), 63)


def gas(raw: bytes) -> int:
    return quantity(_text(raw), 63)


def is_delegated(raw: bytes) -> bool:
    """Whether an account's code is an EIP-7702 delegation, of which it then has nothing else."""
    code = data(_text(raw))
    return len(code) == 23 and code.startswith(DELEGATION)


def word(raw: bytes) -> int:
    """What a call returned, where that is one number."""
    returned = data(_text(raw))
    if len(returned) != 32:
        raise ValueError("not one word")
    return int.from_bytes(returned, "big")


def fee_history(raw: bytes) -> FeeHistory:
    """The next block's base fee, and the tips that recent blocks with any traffic took."""
    found = _fee_history(raw) or _FeeHistory()
    base_fees = [quantity(fee) for fee in found.base_fee_per_gas or ()]
    ratios = found.gas_used_ratio or []
    rows = [
        sorted(map(quantity, row))
        for index, row in enumerate(found.reward or ())
        if row is not None and len(row) == len(PERCENTILES) and not _empty(ratios, index)
    ]
    priority = (
        {speed: median_low(row[place] for row in rows) for place, speed in enumerate(PERCENTILES)} if rows else {}
    )
    return FeeHistory(base_fees[-1] if base_fees else None, priority)


def _empty(ratios: Sequence[float | None], index: int) -> bool:
    """An empty block reports tips of zero, which say nothing about the price of getting in."""
    return index < len(ratios) and ratios[index] == 0
