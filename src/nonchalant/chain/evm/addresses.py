"""Addresses as people write them, and as we keep them: lower-case 0x-hex."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from nonchalant.chain.evm.keccak import keccak
from nonchalant.words import Address

_KEPT: Final = re.compile(r"0x[0-9a-f]{40}")

# What makes a letter of ASCII a capital, where there is one to make: in the place of each letter among hex digits, and of
# each hex digit above 7.
_CAPITAL: Final = 0x20
_LETTERS: Final = bytes(_CAPITAL if chr(code) in "abcdef" else 0 for code in range(256))
_HIGH: Final = bytes(_CAPITAL if chr(code) in "89abcdef" else 0 for code in range(256))


# Every answer shows the same accounts again and again.
@lru_cache(maxsize=4096)
def checksum(address: Address) -> str:
    """The address with the capitals of EIP-55."""
    # All digits at once, as one number: one by one they take three and a half times as long.
    digits = address[2:].lower().encode()
    nibbles = keccak(digits).hex().encode()[: len(digits)]
    capitals = _number(digits.translate(_LETTERS)) & _number(nibbles.translate(_HIGH))
    return "0x" + (_number(digits) ^ capitals).to_bytes(len(digits), "big").decode()


def _number(digits: bytes) -> int:
    return int.from_bytes(digits, "big")


def normalise_address(text: str) -> Address:
    """The address in lower case; a ValueError that says what is wrong with it otherwise.

    One case throughout is taken as it is; mixed case claims a checksum, and must then have the right one.
    """
    if _KEPT.fullmatch(text):
        return text
    if not text.startswith("0x"):
        raise ValueError("an address starts with 0x")
    if len(text) != 42:
        raise ValueError(f"an address has 40 hex digits after 0x, not {len(text) - 2}")
    digits = text[2:]
    try:
        whole = len(bytes.fromhex(digits)) == 20
    except ValueError:
        whole = False
    if not whole:
        raise ValueError("an address has hex digits only after 0x")
    address = text.lower()
    if digits not in (digits.lower(), digits.upper()) and text != checksum(address):
        raise ValueError(
            "the address has a wrong checksum (EIP-55): a digit is mistyped, or write it in lower case if it is right"
        )
    return address


def address_of(public_key: bytes) -> Address:
    """The account of an uncompressed public key (65 bytes)."""
    return "0x" + keccak(public_key[1:])[12:].hex()
