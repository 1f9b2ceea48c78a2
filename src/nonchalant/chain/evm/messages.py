"""What accounts sign that is no transaction: texts (EIP-191) and typed data (EIP-712)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from nonchalant.chain.evm.keccak import keccak

# The types are written out and hashed anew for each struct of a message: so many bytes take a tenth of a second.
MOST_HASHED: Final = 3_000_000


def text_digest(message: bytes) -> bytes:
    """What is signed for a text: with EIP-191's words before it, so that no transaction can be passed off as one."""
    return keccak(b"\x19Ethereum Signed Message:\n%d" % len(message) + message)


def typed_digest(document: Mapping[str, object]) -> bytes:
    """What is signed for a document of types, domain and message; ValueError if it is not what EIP-712 describes."""
    _refuse_toil(document)
    from eth_account.messages import encode_typed_data  # it takes half a second to import, and few ask for this

    try:
        signable = encode_typed_data(full_message=dict(document))
    except Exception as problem:  # noqa: BLE001 - a document can be wrong in any way, each with its own exception
        raise ValueError(f"{type(problem).__name__}: {problem}"[:300]) from None
    return keccak(b"\x19" + signable.version + signable.header + signable.body)


def _refuse_toil(document: Mapping[str, object]) -> None:
    """ValueError if hashing it would keep everybody else waiting."""
    try:
        types = len(msgspec.json.encode(document.get("types")))
        structs = msgspec.json.encode(document.get("message")).count(b"{")
    except (TypeError, UnicodeEncodeError, RecursionError):
        raise ValueError("it holds what JSON cannot write") from None
    if types * structs > MOST_HASHED:
        raise ValueError(f"too large: {structs} structs, with {types} bytes of types to hash for each")
