"""Addresses as people write them, and as we keep them: lower-case 0x-hex."""

from __future__ import annotations

from nonchalant.chain.evm.keccak import keccak
from nonchalant.words import Address


def checksum(address: Address) -> str:
    """The address with the capitals of EIP-55."""
    digits = address[2:].lower()
    nibbles = keccak(digits.encode()).hex()
    return "0x" + "".join(
        digit.upper() if int(nibble, 16) > 7 else digit for digit, nibble in zip(digits, nibbles, strict=False)
    )


def normalise_address(text: str) -> Address:
    """The address in lower case; a ValueError that says what is wrong with it otherwise.

    One case throughout is taken as it is; mixed case claims a checksum, and must then have the right one.
    """
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
