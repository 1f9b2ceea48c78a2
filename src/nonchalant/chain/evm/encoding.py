"""Transactions as bytes: types 0 (with EIP-155), 1 (EIP-2930) and 2 (EIP-1559)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from coincurve import PublicKey

from nonchalant.chain.evm.addresses import address_of
from nonchalant.chain.evm.keccak import keccak
from nonchalant.errors import SignerFailed, Unencodable
from nonchalant.model import Draft, Sealed
from nonchalant.words import AccessList

Rlp = int | bytes | Sequence["Rlp"]

CURVE_ORDER: Final = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
HIGHEST_S: Final = CURVE_ORDER // 2  # EIP-2: the other half is the same signature again
HIGHEST_S_BYTES: Final = HIGHEST_S.to_bytes(32, "big")
HIGHEST_NONCE: Final = 2**64 - 2  # EIP-2681
HIGHEST_GAS: Final = 2**64 - 1
HIGHEST_AMOUNT: Final = 2**256 - 1
HIGHEST_CHAIN_ID: Final = (HIGHEST_AMOUNT - 36) // 2  # so that the `v` of EIP-155 fits


_SHORT: Final = tuple(bytes((0x80 + size,)) for size in range(56))


def rlp(item: Rlp) -> bytes:
    """The recursive length prefix encoding; integers without leading zeros."""
    if isinstance(item, int):
        return _text(item.to_bytes((item.bit_length() + 7) // 8, "big"))
    return _text(item) if isinstance(item, bytes) else _list(b"".join(map(rlp, item)))


def _text(data: bytes) -> bytes:
    size = len(data)
    if size == 1 and data[0] < 0x80:
        return data
    return (_SHORT[size] if size < 56 else _prefix(0x80, size)) + data


def _list(items: bytes) -> bytes:
    """Of what is encoded already."""
    return _prefix(0xC0, len(items)) + items


def _prefix(offset: int, size: int) -> bytes:
    if size < 56:
        return bytes((offset + size,))
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes((offset + 55 + len(length),)) + length


def unsigned(draft: Draft) -> bytes:
    """The transaction without its signature, whose hash is signed; `Unencodable` if it does not fit the format."""
    kind, fields = _fields(draft)
    return _to_sign(draft, kind, fields)


def digest(draft: Draft) -> bytes:
    """What the account signs; `Unencodable` if the draft does not fit the chain's format."""
    return keccak(unsigned(draft))


def seal(draft: Draft, signature: bytes, *, check: bool = True) -> Sealed:
    """The signed bytes and their hash; `SignerFailed` unless the signature is canonical and, where that is checked, the
    account's own."""
    kind, fields = _fields(draft)
    r, s, parity = _canonical(draft.lane.address, signature)
    if check:
        _verify(draft.lane.address, keccak(_to_sign(draft, kind, fields)), signature)
    v = draft.lane.chain_id * 2 + 35 + parity if kind == b"" else parity
    raw = kind + _list(fields + rlp(v) + _text(r.lstrip(b"\0")) + _text(s.lstrip(b"\0")))
    return Sealed(raw, "0x" + keccak(raw).hex())


def _to_sign(draft: Draft, kind: bytes, fields: bytes) -> bytes:
    return kind + _list(fields + rlp(draft.lane.chain_id) + b"\x80\x80" if kind == b"" else fields)


def _fields(draft: Draft) -> tuple[bytes, bytes]:
    """The type byte (none for type 0) and, encoded, the fields that every form of the transaction starts with.

    Field by field, not as a list of anything: each transaction is encoded twice.
    """
    payload, fees = draft.payload, draft.fees
    chain_id = _number("chain id", draft.lane.chain_id, HIGHEST_CHAIN_ID)
    nonce = _number("nonce", draft.nonce, HIGHEST_NONCE)
    gas = _number("gas", draft.gas, HIGHEST_GAS)
    value = _number("value", payload.value, HIGHEST_AMOUNT)
    max_fee = _number("fee", fees.max_fee, HIGHEST_AMOUNT)
    to = b"\x80" if payload.to is None else b"\x94" + _exactly("to", payload.to, 20)
    data = _text(payload.data)
    access_list = rlp(_access_list(payload.access_list)) if payload.access_list else b"\xc0"
    if fees.priority is not None:
        priority = _number("priority fee", fees.priority, HIGHEST_AMOUNT)
        if fees.priority > fees.max_fee:
            raise Unencodable(f"the priority fee ({fees.priority}) is above the maximum fee ({fees.max_fee})")
        return b"\x02", b"".join((chain_id, nonce, priority, max_fee, gas, to, value, data, access_list))
    if payload.access_list:
        return b"\x01", b"".join((chain_id, nonce, max_fee, gas, to, value, data, access_list))
    return b"", b"".join((nonce, max_fee, gas, to, value, data))


def _access_list(entries: AccessList) -> Rlp:
    return [
        (_exactly("access list address", address, 20), [_exactly("storage key", key, 32) for key in keys])
        for address, keys in entries
    ]


def _canonical(account: str, signature: bytes) -> tuple[bytes, bytes, int]:
    if len(signature) != 65 or signature[64] > 1:
        raise SignerFailed(f"the signer of {account} gave no 65 bytes of r, s and a recovery bit of 0 or 1")
    r, s = signature[:32], signature[32:64]
    if s > HIGHEST_S_BYTES:
        raise SignerFailed(f"the signer of {account} gave a signature with a high s, which chains refuse (EIP-2)")
    return r, s, signature[64]


def _verify(account: str, message: bytes, signature: bytes) -> None:
    try:
        key = PublicKey.from_signature_and_message(signature, message, hasher=None)
    except ValueError:
        raise SignerFailed(f"the signer of {account} gave 65 bytes that are no signature") from None
    signed_by = address_of(key.format(compressed=False))
    if signed_by != account:
        raise SignerFailed(f"the signer of {account} signed as {signed_by}; correct its key in [[accounts]]")


def _number(what: str, amount: int, highest: int) -> bytes:
    """Encoded, if it fits."""
    if not 0 <= amount <= highest:
        raise Unencodable(f"{what} {amount} does not fit: it must be between 0 and {highest}")
    size = (amount.bit_length() + 7) // 8
    data = amount.to_bytes(size, "big")
    return data if 0 < amount < 0x80 else _SHORT[size] + data


def _exactly(what: str, text: str, size: int) -> bytes:
    try:
        data = bytes.fromhex(text.removeprefix("0x"))
    except ValueError:
        data = b""
    if len(data) != size:
        raise Unencodable(f"{what} {text[:80]!r} is not {size} bytes of 0x-hex")
    return data
