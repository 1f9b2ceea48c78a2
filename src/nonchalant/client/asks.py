"""What may be asked of the service, and how it is written into a body."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final, Required, TypedDict

from nonchalant.bodies import fee_fields
from nonchalant.model import Fees
from nonchalant.words import OnSuperseded, Speed


class NewPayload(TypedDict, total=False):
    """What should run; nothing is kept of what should have run before. Amounts are in wei."""

    to: str | None
    value: int | str
    data: bytes | str
    gas: int | None
    access_list: Iterable[Mapping[str, object]]
    abi: Iterable[Mapping[str, object]] | None
    fees: Speed | Fees | str | None


class Ask(NewPayload, total=False):
    """A transaction to send, as the library's `send` takes it."""

    chain_id: Required[int]
    sender: Required[str]
    priority: int
    valid_until: datetime | int | str | None
    confirmations: int | None
    on_superseded: OnSuperseded | str | None
    simulate: bool
    metadata: Mapping[str, object] | None


def body_of(ask: Ask | NewPayload) -> dict[str, object]:
    """As the service takes it. What is None is left out, which means the same."""
    given: dict[str, object] = {**ask}
    return {
        _NAMES.get(name, name): _written(name, value)
        for name, value in given.items()
        if value is not None and (name not in _LISTS or value != ())
    }


_NAMES: Final = {"sender": "from"}
_LISTS: Final = frozenset({"access_list", "abi"})


def _written(name: str, value: object) -> object:
    match value:
        case Speed() | Fees() | str() if name == "fees":
            return fees_written(value)
        case bytes() | bytearray() | memoryview():
            return "0x" + bytes(value).hex()
        case datetime():
            return value.isoformat()
        case int() if name == "value":
            return str(value)  # most amounts are more than a JSON number holds
        case _ if name in _LISTS and isinstance(value, Iterable):
            return list(value)
        case _:
            return value


def fees_written(fees: Speed | Fees | str | None) -> dict[str, object] | None:
    fields = fee_fields(fees)
    return None if fields is None else {name: str(value) for name, value in fields.items()}
