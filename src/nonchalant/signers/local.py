"""Private keys in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, NoReturn

from coincurve import PrivateKey

from nonchalant.chain.evm.addresses import address_of
from nonchalant.errors import BadSettings, SignerFailed
from nonchalant.words import Address

# A signature takes 26 µs, almost all of it outside the interpreter's lock. But it takes that lock back twice, and on a busy
# loop each time waits for it: a node's own time for a transaction was some 5 % more in a thread. So in place, up to what
# holds the loop up for as long as an ordinary commit does.
WORTH_A_THREAD: Final = 200


class LocalSigner:
    """Signs for one account with a key in memory. Shows its address and never its key."""

    __slots__ = ("_key", "address")
    in_process = True

    def __init__(self, key: PrivateKey) -> None:
        self._key = key
        self.address: Address = address_of(key.public_key.format(compressed=False))

    async def sign(self, digests: Sequence[bytes]) -> Sequence[bytes]:
        if len(digests) < WORTH_A_THREAD:
            return self._sign(digests)
        return await asyncio.to_thread(self._sign, digests)

    def _sign(self, digests: Sequence[bytes]) -> list[bytes]:
        try:
            return [self._key.sign_recoverable(digest, hasher=None) for digest in digests]
        except ValueError as problem:  # not 32 bytes
            raise SignerFailed(f"the signer of {self.address} cannot sign: {problem}") from None

    def __repr__(self) -> str:
        return f"LocalSigner({self.address})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a signer holds a key: it is neither pickled nor copied")


def from_private_key(secret: str) -> LocalSigner:
    """A signer from 64 hex digits, with or without 0x."""
    try:
        key = bytes.fromhex(secret.strip().removeprefix("0x"))
    except ValueError:
        key = b""
    return from_bytes(key, "the private key")


def from_bytes(key: bytes, what: str) -> LocalSigner:
    """A signer from the key itself; `what` names it in errors."""
    try:
        usable = PrivateKey(key) if len(key) == 32 else None
    except ValueError:
        usable = None
    if usable is None:
        raise BadSettings(f"{what} is not 64 hex digits of a usable key (its digits are not shown here)")
    return LocalSigner(usable)
