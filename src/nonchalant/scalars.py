"""One field of a request: a number, an amount, a time, an address, bytes. `BadRequest` names the field that is none."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from nonchalant.access import LanePattern
from nonchalant.amounts import LIMIT
from nonchalant.chain.evm.addresses import normalise_address
from nonchalant.errors import BadRequest
from nonchalant.notation import MAX_DATA, MAX_IDEMPOTENCY_KEY, Moment, Number
from nonchalant.words import Address, Hash, Millis, Wei

LARGEST_NUMBER: Final = 2**63 - 1  # what a database column holds
LAST_SECOND: Final = 253_402_300_799  # of the year 9999: later times cannot be written

_DECIMAL: Final = re.compile(r"[0-9]{1,100}")
_HEX: Final = re.compile(r"0x[0-9a-fA-F]{1,100}")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_RFC_3339: Final = r"[0-9]{4}-[0-9][0-9]-[0-9][0-9][Tt ][0-9][0-9]:[0-9][0-9]:[0-9][0-9](\.[0-9]{1,9})?([Zz]|[+-][0-9][0-9]:[0-9][0-9])"


def parse_number(value: Number, field: str, most: int) -> int:
    """A whole number from 0 to `most`, written as an integer, in decimal or in 0x-hex."""
    number = value if isinstance(value, int) else _written(value)
    if number is None:
        raise BadRequest("expected a whole number, decimal or 0x-hex", field=field)
    if number < 0:
        raise BadRequest("must not be negative", field=field)
    if number > most:
        raise BadRequest(f"does not fit, the largest is {most}", field=field)
    return number


def parse_amount(value: Number, field: str) -> Wei:
    return parse_number(value, field, LIMIT - 1)


def _written(text: str) -> int | None:
    if _DECIMAL.fullmatch(text):
        return int(text)
    return int(text, 16) if _HEX.fullmatch(text) else None


def parse_moment(value: Moment, field: str) -> Millis:
    """A time as RFC 3339 writes it, or seconds since 1970. Whether it has passed is not for the wire to say."""
    if isinstance(value, int) or _written(value) is not None:
        return parse_number(value, field, LAST_SECOND) * 1000
    try:
        if not re.fullmatch(_RFC_3339, value):
            raise ValueError
        at = datetime.fromisoformat(value.upper()) - _EPOCH
    except (ValueError, OverflowError):
        raise BadRequest("expected a time, such as 2030-01-31T12:00:00Z, or seconds since 1970", field=field) from None
    return parse_number(at // timedelta(milliseconds=1), field, LAST_SECOND * 1000)


def parse_address(text: str, field: str) -> Address:
    try:
        return normalise_address(text)
    except ValueError as error:
        raise BadRequest(str(error), field=field) from None


def parse_pattern(text: str, field: str) -> LanePattern:
    """The lanes that are meant by `*`, `1:*`, `*:0x…` or `1:0x…`."""
    if text == "*":
        return LanePattern()
    chain_id, colon, address = text.partition(":")
    if not colon:
        raise BadRequest("expected chain:address, such as 1:0x…; * stands for any chain, or any address", field=field)
    return LanePattern(
        None if chain_id == "*" else parse_number(chain_id, field, LARGEST_NUMBER),
        None if address == "*" else parse_address(address, field),
    )


def parse_hash(text: str, field: str) -> Hash:
    if not re.fullmatch(r"0x[0-9a-fA-F]{64}", text):
        raise BadRequest("expected 0x and 64 hex digits", field=field)
    return text.lower()


def parse_data(text: str, field: str = "data") -> bytes:
    # Its length first: fromhex would accept blanks, and a megabyte of them.
    if not text.startswith("0x") or len(text) % 2:
        raise BadRequest("expected 0x and an even number of hex digits", field=field)
    if len(text) > 2 + 2 * MAX_DATA:
        raise BadRequest(f"longer than {MAX_DATA} bytes", field=field)
    try:
        data = bytes.fromhex(text[2:])
    except ValueError:
        raise BadRequest("expected hex digits after 0x", field=field) from None
    if len(data) * 2 != len(text) - 2:
        raise BadRequest("expected hex digits after 0x", field=field)
    return data


def parse_idempotency_key(text: str, field: str = "Idempotency-Key") -> str:
    if not (1 <= len(text) <= MAX_IDEMPOTENCY_KEY and text.isascii() and text.isprintable() and text == text.strip()):
        raise BadRequest(f"expected 1 to {MAX_IDEMPOTENCY_KEY} printable ASCII characters", field=field)
    return text
