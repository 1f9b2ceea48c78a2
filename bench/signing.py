"""Transfers signed with nothing around it: what those do who keep no promises."""

from __future__ import annotations

from typing import Final

from coincurve import PrivateKey

from bench.work import CHAIN_ID, GAS
from nonchalant.chain.evm.encoding import rlp
from nonchalant.chain.evm.keccak import keccak

MAX_FEE: Final = 20 * 10**9
TIP: Final = 10**9


def sign(key: PrivateKey, nonce: int, to: bytes, value: int) -> bytes:
    """The bytes of a type 2 transfer."""
    fields = (CHAIN_ID, nonce, TIP, MAX_FEE, GAS, to, value, b"", ())
    signature = key.sign_recoverable(keccak(b"\x02" + rlp(fields)), hasher=None)
    r, s = int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:64], "big")
    return b"\x02" + rlp((*fields, signature[64], r, s))
