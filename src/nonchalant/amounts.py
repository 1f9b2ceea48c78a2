"""Amounts of wei as people write them: `1000000`, `0x3e8`, `5 gwei`, `0.01ether`."""

from __future__ import annotations

import re
from typing import Final

from nonchalant.words import Wei

LIMIT: Final = 2**256

_UNITS: Final = {"wei": 0, "gwei": 9, "ether": 18}
_WRITTEN: Final = re.compile(r"(\d{1,78})(?:\.(\d{1,18}))?\s*([a-z]*)", re.ASCII)
_HEX: Final = re.compile(r"0x[0-9a-f]{1,64}", re.ASCII | re.IGNORECASE)


def parse_wei(text: str) -> Wei:
    """The amount in wei; ValueError says what is wrong with it. Without a unit it is wei."""
    if _HEX.fullmatch(text):
        return int(text, 16)
    written = _WRITTEN.fullmatch(text.strip().lower())
    if written is None:
        raise ValueError("expected an amount such as 1000000, 0x3e8, 5gwei or 0.01ether")
    whole, fraction, unit = written.group(1), written.group(2) or "", written.group(3) or "wei"
    if unit not in _UNITS:
        raise ValueError(f"unknown unit {unit!r}; use wei, gwei or ether")
    digits = _UNITS[unit]
    if fraction.rstrip("0") and digits == 0:
        raise ValueError("a fraction of a wei does not exist; name a unit, such as 1.5gwei or 0.01ether")
    if len(fraction.rstrip("0")) > digits:
        raise ValueError(f"more decimals than one {unit} has wei")
    amount: Wei = int(whole) * 10**digits + int(fraction[:digits].ljust(digits, "0") or "0")
    if amount >= LIMIT:
        raise ValueError("does not fit in 256 bits")
    return amount


def format_wei(amount: Wei) -> str:
    """The amount in the largest unit that keeps it readable and exact: `0.01 ether`, `5 gwei`, `7 wei`."""
    for unit, digits, least in (("ether", 18, 10**12), ("gwei", 9, 10**6)):
        if amount >= least:
            whole, fraction = divmod(amount, 10**digits)
            decimals = f"{fraction:0{digits}d}".rstrip("0")
            return f"{whole}.{decimals} {unit}" if decimals else f"{whole} {unit}"
    return f"{amount} wei"
