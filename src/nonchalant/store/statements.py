"""The named queries of one installation on PostgreSQL, as the driver takes them: numbered values, arrays for many rows."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from nonchalant.store import at_once, queries
from nonchalant.store.talk import Columns

# What stands for the installation's schema in our SQL.
PLACEHOLDER = "nonchalant."

_VALUE = re.compile(r"(?<!:):(\w+)")
_LISTED = re.compile(r"(?<!:):(\w+)::(\w+)\[\]")

# The driver looks at each value of a list several times; most columns of a batch have one value in all of its rows, which
# the server can repeat as well. Below so many rows it does not matter, and a statement has at most so many such forms: each
# is prepared and planned by itself, on every connection.
WORTH_SHORTENING = 8
MOST_FORMS = 8
ROWS = "rows_of_this_batch"


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


class Statements:
    """All of them, for one schema."""

    def __init__(self, schema: str) -> None:
        texts = {**_texts(), **at_once.calls(_texts())}
        self._texts: Mapping[str, str] = {name: in_schema(text, schema) for name, text in texts.items()}
        self._known = {name: Statement.of(text) for name, text in self._texts.items()}
        self._narrowed: dict[tuple[str, frozenset[str]], Statement] = {}
        self._forms: dict[str, dict[frozenset[str], Statement]] = {name: {} for name in self._texts}
        self._columns: dict[tuple[str, str], Sequence[tuple[str, str]]] = {}

    def __getitem__(self, name: str) -> Statement:
        return self._known[name]

    def narrowed(self, name: str, given: frozenset[str]) -> Statement:
        if (name, given) not in self._narrowed:
            self._narrowed[name, given] = Statement.of(queries.narrowed(self._texts[name], given))
        return self._narrowed[name, given]

    def for_each(self, name: str, each: Sequence[Columns], common: Columns) -> tuple[Statement, list[Any]]:
        """The statement, with lists of what differs from row to row; what is common stays as it is."""
        return self.for_groups(name, {"": each}, common)

    def for_groups(
        self, name: str, groups: Mapping[str, Sequence[Columns]], common: Columns
    ) -> tuple[Statement, list[Any]]:
        """The same for several groups of rows at once; the names of a group's columns begin with its own."""
        lists: dict[str, list[Any]] = {}
        numbers: dict[str, str] = {}  # by column: what says how many rows there are
        given: dict[str, Any] = {**common}
        same = frozenset[str]()
        for group, each in groups.items():
            found = {
                column: [columns[bare] for columns in each]
                for column, bare in self._columns_of(name, group)
                if column not in common
            }
            lists |= found
            if len(each) >= WORTH_SHORTENING:
                given[group + ROWS] = len(each)
                numbers |= dict.fromkeys(found, group + ROWS)
                same |= _same(found)
        statement, shortened = self._form(name, same, numbers)
        given |= {column: lists[column][0] for column in shortened}
        return statement, [
            _storable(given[column]) if column in given else _storables(lists[column]) for column in statement.names
        ]

    def _columns_of(self, name: str, group: str) -> Sequence[tuple[str, str]]:
        """The columns of a group, as the statement calls them and as the group itself does."""
        if (name, group) not in self._columns:
            self._columns[name, group] = [
                (column, column.removeprefix(group)) for column in self._known[name].names if column.startswith(group)
            ]
        return self._columns[name, group]

    def _form(self, name: str, same: frozenset[str], numbers: Mapping[str, str]) -> tuple[Statement, frozenset[str]]:
        """The one for which all that is the same is one value, or as much of it as some known form has."""
        forms = self._forms[name]
        if same not in forms and len(forms) < MOST_FORMS:
            forms[same] = Statement.of(_shortened(self._texts[name], {column: numbers[column] for column in same}))
        if same not in forms:
            same = max((known for known in forms if known <= same), key=len, default=frozenset())
        return forms.get(same, self._known[name]), same


def _same(lists: Mapping[str, list[Any]]) -> frozenset[str]:
    """The columns that have one value in all rows."""
    return frozenset(column for column, values in lists.items() if values.count(values[0]) == len(values))


def _shortened(text: str, same: Mapping[str, str]) -> str:
    """The query, with one value for each of these columns in place of a list, and what says how often it is repeated."""

    def repeated(found: re.Match[str]) -> str:
        column, kind = found[1], found[2]
        return f"array_fill(:{column}::{kind}, ARRAY[:{same[column]}::INT])" if column in same else found[0]

    return _LISTED.sub(repeated, text)


def in_schema(sql: str, schema: str) -> str:
    return sql.replace(PLACEHOLDER, f'"{schema}".')


@cache
def _texts() -> Mapping[str, str]:
    return queries.load("postgres")


def _storables(values: list[Any]) -> list[Any]:
    if not values or isinstance(values[0], (int, bytes)):  # and so are all of them
        return values
    try:
        strange = "\0" in "".join(values)
    except TypeError:  # not each of them is given
        strange = True
    return [_storable(value) for value in values] if strange else values


def _storable(value: Any) -> Any:
    # PostgreSQL keeps no NUL in a text; what a node or a contract says may have one.
    return value.replace("\0", "\ufffd") if isinstance(value, str) and "\0" in value else value
