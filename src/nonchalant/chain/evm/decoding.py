"""Signed transactions read back from their bytes: types 0 (with and without EIP-155), 1 and 2."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from coincurve import PublicKey

from nonchalant.chain.evm.addresses import address_of
from nonchalant.chain.evm.encoding import HIGHEST_S, rlp
from nonchalant.chain.evm.keccak import keccak
from nonchalant.words import Address, Hash, Wei

Item = bytes | list["Item"]

FIELDS = {0: 9, 1: 11, 2: 12}  # how many each type has, its signature included
DEEPEST = 4  # the transaction, its access list, an entry, the entry's keys


@dataclass(frozen=True, slots=True, kw_only=True)
class RawTransaction:
    """What a node is handed. For types 0 and 1 both fees are the gas price, as pools see it."""

    kind: int
    hash: Hash
    sender: Address
    chain_id: int | None  # None: signed for any chain, as before EIP-155
    nonce: int
    max_fee: Wei
    priority: Wei
    gas: int
    to: Address | None
    value: Wei
    data: bytes


def decode(raw: bytes) -> RawTransaction:
    """The transaction of these bytes, and who signed it; ValueError if they are none, or of another type."""
    kind = raw[0] if raw and raw[0] < 0x80 else 0
    fields = unrlp(raw[1:] if kind else raw)
    if not isinstance(fields, list) or len(fields) != FIELDS.get(kind):
        raise ValueError(f"these {len(raw)} bytes are no transaction of type 0, 1 or 2")
    if kind == 0:
        return _legacy(raw, fields)
    chain_id, nonce = map(_number, fields[:2])
    priority, max_fee = map(_number, fields[2:4] if kind == 2 else fields[2:3] * 2)
    gas, to, value, data, _access_list, parity, r, s = fields[-8:]
    return RawTransaction(
        kind=kind,
        hash=hash_of(raw),
        sender=_signer(bytes((kind,)) + rlp(fields[:-3]), _number(parity), r, s),
        chain_id=chain_id,
        nonce=nonce,
        max_fee=max_fee,
        priority=priority,
        gas=_number(gas),
        to=_address(to),
        value=_number(value),
        data=_bytes(data),
    )


def hash_of(raw: bytes) -> Hash:
    return "0x" + keccak(raw).hex()


def unrlp(data: bytes) -> Item:
    """The one item that these bytes encode; ValueError if they encode none, or more."""
    item, end = _item(data, 0)
    if end != len(data):
        raise ValueError(f"{len(data) - end} bytes follow the item")
    return item


def _legacy(raw: bytes, fields: Sequence[Item]) -> RawTransaction:
    nonce, price, gas, to, value, data, v, r, s = fields
    recovery = _number(v)
    protected = recovery >= 35  # EIP-155
    chain_id = (recovery - 35) // 2 if protected else None
    signed = [*fields[:6], *([chain_id, 0, 0] if chain_id is not None else [])]
    return RawTransaction(
        kind=0,
        hash=hash_of(raw),
        sender=_signer(rlp(signed), (recovery - 35) % 2 if protected else recovery - 27, r, s),
        chain_id=chain_id,
        nonce=_number(nonce),
        max_fee=_number(price),
        priority=_number(price),
        gas=_number(gas),
        to=_address(to),
        value=_number(value),
        data=_bytes(data),
    )


def _signer(signed: bytes, parity: int, r: Item, s: Item) -> Address:
    if parity not in (0, 1):
        raise ValueError(f"{parity} is no recovery bit")
    if _number(s) > HIGHEST_S:
        raise ValueError("the signature has a high s, which chains refuse (EIP-2)")
    signature = _bytes(r).rjust(32, b"\0") + _bytes(s).rjust(32, b"\0") + bytes((parity,))
    key = PublicKey.from_signature_and_message(signature, keccak(signed), hasher=None)
    return address_of(key.format(compressed=False))


def _item(data: bytes, at: int, depth: int = 0) -> tuple[Item, int]:
    """The item that starts at `at`, and where it ends."""
    if depth > DEEPEST:
        raise ValueError("lists within lists, deeper than a transaction has them")
    if at >= len(data):
        raise ValueError("the bytes end within an item")
    prefix = data[at]
    if prefix < 0x80:
        return data[at : at + 1], at + 1
    is_list, size = prefix >= 0xC0, prefix & 0x3F
    start = at + 1
    if size > 55:
        start += size - 55
        size = int.from_bytes(data[at + 1 : start], "big")
    end = start + size
    if end > len(data):
        raise ValueError("the bytes end within an item")
    if not is_list:
        return data[start:end], end
    items: list[Item] = []
    while start < end:
        item, start = _item(data, start, depth + 1)
        items.append(item)
    if start != end:
        raise ValueError("an item reaches beyond its list")
    return items, end


def _bytes(item: Item) -> bytes:
    if not isinstance(item, bytes):
        raise ValueError("a list where a value should be")
    return item


def _number(item: Item) -> int:
    return int.from_bytes(_bytes(item), "big")


def _address(item: Item) -> Address | None:
    return "0x" + _bytes(item).hex() if item else None
