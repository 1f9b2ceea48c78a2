"""The named queries of one installation on PostgreSQL, as the driver takes them: numbered values, arrays for many rows."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from nonchalant.store import queries
from nonchalant.store.talk import Columns

# What stands for the installation's schema in our SQL.
PLACEHOLDER = "nonchalant."

_VALUE = re.compile(r"(?<!:):(\w+)")


@dataclass(frozen=True, slots=True)
class Statement:
    sql: str
    names: Sequence[str]
    gives_rows: bool

    @classmethod
    def of(cls, text: str) -> Statement:
        names: dict[str, int] = {}
        sql = _VALUE.sub(lambda found: f"${names.setdefault(found[1], len(names) + 1)}", text)
        return cls(sql, tuple(names), queries.gives_rows(text))

    def values(self, columns: Columns) -> list[Any]:
        return [_storable(columns[name]) for name in self.names]

    def values_of_each(self, each: Sequence[Columns], common: Columns) -> list[Any]:
        """Arrays, one value a row, of what differs; what is common stays as it is."""
        own = each[0].keys()
        return [
            _storables([columns[name] for columns in each]) if name in own else _storable(common[name])
            for name in self.names
        ]


class Statements:
    """All of them, for one schema."""

    def __init__(self, schema: str) -> None:
        self._texts: Mapping[str, str] = {name: in_schema(text, schema) for name, text in _texts().items()}
        self._known = {name: Statement.of(text) for name, text in self._texts.items()}
        self._narrowed: dict[tuple[str, frozenset[str]], Statement] = {}

    def __getitem__(self, name: str) -> Statement:
        return self._known[name]

    def narrowed(self, name: str, given: frozenset[str]) -> Statement:
        if (name, given) not in self._narrowed:
            self._narrowed[name, given] = Statement.of(queries.narrowed(self._texts[name], given))
        return self._narrowed[name, given]


def in_schema(sql: str, schema: str) -> str:
    return sql.replace(PLACEHOLDER, f'"{schema}".')


@cache
def _texts() -> Mapping[str, str]:
    return queries.load("postgres")


def _storables(values: list[Any]) -> list[Any]:
    strange = any(value.__class__ is str and "\0" in value for value in values)
    return [_storable(value) for value in values] if strange else values


def _storable(value: Any) -> Any:
    # PostgreSQL keeps no NUL in a text; what a node or a contract says may have one.
    return value.replace("\0", "\ufffd") if isinstance(value, str) and "\0" in value else value
