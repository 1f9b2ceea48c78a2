"""Named SQL: one file a dialect, the same names in each."""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import cache
from importlib.resources import files

# A single colon: two of them are a cast.
_PARAMETER = re.compile(r"(?<!:):(\w+)")
_GIVES_ROWS = re.compile(r"\A\s*(SELECT|WITH\b.*\bSELECT\b(?!.*\b(?:UPDATE|DELETE|INSERT)\b))|\bRETURNING\b", re.DOTALL)
_HEADING = re.compile(r"^-- (\w+) --$", re.MULTILINE)


def load(dialect: str) -> dict[str, str]:
    """The dialect's queries by name, without their comments."""
    _, *parts = _HEADING.split((files("nonchalant.store") / "sql" / dialect / "queries.sql").read_text())
    return {name: _bare(text) for name, text in zip(parts[::2], parts[1::2], strict=True)}


@cache
def gives_rows(query: str) -> bool:
    """Whether it answers with rows, and not only with how many it changed."""
    return _GIVES_ROWS.search(query) is not None


def narrowed(query: str, given: Collection[str]) -> str:
    """The query without the lines that need a value which is not given."""
    return "\n".join(line for line in query.splitlines() if set(_PARAMETER.findall(line)) <= set(given))


def _bare(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if line.strip() and not line.startswith("--"))
