"""On behalf of which trace a call is made: the W3C `traceparent` of whoever called, as far as it is one."""

from __future__ import annotations

import re
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

_WRITTEN: Final = re.compile(r"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Caller:
    """The span that a call was made in."""

    trace_id: int
    span_id: int
    flags: int


# Of the call that is being answered; whatever it begins inherits it.
CALLER: Final[ContextVar[Caller | None]] = ContextVar("nonchalant_caller", default=None)


def parse(traceparent: str | None) -> Caller | None:
    """None: there is none, or it is not written as it should be; then the specification has it ignored."""
    found = _WRITTEN.fullmatch(traceparent or "")
    if found is None or (found[0].startswith("00") and len(found[0]) != 55):
        return None
    trace_id, span_id, flags = (int(part, 16) for part in found.groups())
    return Caller(trace_id, span_id, flags) if trace_id and span_id else None
