"""Transactions as bytes: types 0 (with EIP-155), 1 (EIP-2930) and 2 (EIP-1559)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from coincurve import PublicKey

from nonchalant.chain.evm.addresses import address_of
from nonchalant.chain.evm.keccak import keccak
from nonchalant.errors import SignerFailed, Unencodable
from nonchalant.model import Draft, Sealed

Rlp = int | bytes | Sequence["Rlp"]

CURVE_ORDER: Final = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
HIGHEST_S: Final = CURVE_ORDER // 2  # EIP-2: the other half is the same signature again
HIGHEST_NONCE: Final = 2**64 - 2  # EIP-2681
HIGHEST_GAS: Final = 2**64 - 1
HIGHEST_AMOUNT: Final = 2**256 - 1
HIGHEST_CHAIN_ID: Final = (HIGHEST_AMOUNT - 36) // 2  # so that the `v` of EIP-155 fits


_SHORT: Final = tuple(bytes((0x80 + size,)) for size in range(56))


def rlp(item: Rlp) -> bytes:
    """The recursive length prefix encoding; integers without leading zeros."""
    return _rlp_of_each((item,))


def _rlp_of_each(items: Sequence[Rlp]) -> bytes:
    """One after the other. Not by a call for each: a transaction has a dozen, and is encoded twice."""
    encoded = []
    for item in items:
        data = item.to_bytes((item.bit_length() + 7) // 8, "big") if isinstance(item, int) else item
        if isinstance(data, bytes):
            size = len(data)
            if size != 1 or data[0] >= 0x80:
                data = (_SHORT[size] if size < 56 else _prefix(0x80, size)) + data
            encoded.append(data)
        else:
            body = _rlp_of_each(data)
            encoded.append(_prefix(0xC0, len(body)) + body)
    return b"".join(encoded)


def _prefix(offset: int, size: int) -> bytes:
    if size < 56:
        return bytes((offset + size,))
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes((offset + 55 + len(length),)) + length


def unsigned(draft: Draft) -> bytes:
    """The transaction without its signature, whose hash is signed; `Unencodable` if it does not fit the format."""
    kind, fields = _unsigned(draft)
    return _to_sign(draft, kind, fields)


def digest(draft: Draft) -> bytes:
    """What the account signs; `Unencodable` if the draft does not fit the chain's format."""
    return keccak(unsigned(draft))


def seal(draft: Draft, signature: bytes, *, check: bool = True) -> Sealed:
    """The signed bytes and their hash; `SignerFailed` unless the signature is canonical and, where that is checked, the
    account's own."""
    kind, fields = _unsigned(draft)
    r, s, parity = _canonical(draft.lane.address, signature)
    if check:
        _verify(draft.lane.address, keccak(_to_sign(draft, kind, fields)), signature)
    v = draft.lane.chain_id * 2 + 35 + parity if kind == b"" else parity
    raw = kind + rlp((*fields, v, r, s))
    return Sealed(raw, "0x" + keccak(raw).hex())


def _to_sign(draft: Draft, kind: bytes, fields: tuple[Rlp, ...]) -> bytes:
    return kind + rlp((*fields, draft.lane.chain_id, 0, 0) if kind == b"" else fields)


def _unsigned(draft: Draft) -> tuple[bytes, tuple[Rlp, ...]]:
    """The type byte (none for type 0) and the fields that every form of the transaction starts with."""
    payload, fees, chain_id = draft.payload, draft.fees, draft.lane.chain_id
    _fits("chain id", chain_id, HIGHEST_CHAIN_ID)
    _fits("nonce", draft.nonce, HIGHEST_NONCE)
    _fits("gas", draft.gas, HIGHEST_GAS)
    _fits("value", payload.value, HIGHEST_AMOUNT)
    _fits("fee", fees.max_fee, HIGHEST_AMOUNT)
    to = b"" if payload.to is None else _exactly("to", payload.to, 20)
    access_list = [
        (_exactly("access list address", address, 20), [_exactly("storage key", key, 32) for key in keys])
        for address, keys in payload.access_list
    ]
    if fees.priority is not None:
        _fits("priority fee", fees.priority, HIGHEST_AMOUNT)
        if fees.priority > fees.max_fee:
            raise Unencodable(f"the priority fee ({fees.priority}) is above the maximum fee ({fees.max_fee})")
        prices = (fees.priority, fees.max_fee)
        return b"\x02", (chain_id, draft.nonce, *prices, draft.gas, to, payload.value, payload.data, access_list)
    if access_list:
        return b"\x01", (
            *(chain_id, draft.nonce, fees.max_fee, draft.gas, to, payload.value, payload.data),
            access_list,
        )
    return b"", (draft.nonce, fees.max_fee, draft.gas, to, payload.value, payload.data)


def _canonical(account: str, signature: bytes) -> tuple[int, int, int]:
    if len(signature) != 65 or signature[64] > 1:
        raise SignerFailed(f"the signer of {account} gave no 65 bytes of r, s and a recovery bit of 0 or 1")
    r, s = int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:64], "big")
    if s > HIGHEST_S:
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


def _fits(what: str, amount: int, highest: int) -> None:
    if not 0 <= amount <= highest:
        raise Unencodable(f"{what} {amount} does not fit: it must be between 0 and {highest}")


def _exactly(what: str, text: str, size: int) -> bytes:
    try:
        data = bytes.fromhex(text.removeprefix("0x"))
    except ValueError:
        data = b""
    if len(data) != size:
        raise Unencodable(f"{what} {text[:80]!r} is not {size} bytes of 0x-hex")
    return data
