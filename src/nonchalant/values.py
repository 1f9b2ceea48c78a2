"""How a frozen value is changed: by a copy that differs, whichever way its class was made.

What the hot path speaks in are `Struct`s: a transaction on its way is copied some twenty times, and a dataclass takes
ten times as long for each. There, `msgspec.structs.replace` is called itself: to pass the fields on takes twice as long
as the copy.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct, structs

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

V = TypeVar("V", bound="Struct | DataclassInstance")


def replace(value: V, /, **changes: Any) -> V:
    """The same, but for these fields; `TypeError` if it has no such field."""
    return structs.replace(value, **changes) if isinstance(value, Struct) else dataclasses.replace(value, **changes)
