"""The one hash function of the family."""

from __future__ import annotations

from sha3 import keccak_256


def keccak(data: bytes) -> bytes:
    """The 32 bytes that Ethereum calls the hash of `data`."""
    digest: bytes = keccak_256(data).digest()
    return digest
