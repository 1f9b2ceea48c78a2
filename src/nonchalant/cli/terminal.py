"""How commands speak: data on stdout, everything else on stderr; tables for people, JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from rich.console import Console

STATE_STYLES: Final = {
    "queued": "dim",
    "signed": "blue",
    "sent": "blue",
    "mined": "cyan",
    "confirmed": "green",
    "reverted": "red",
    "failed": "red",
    "cancelled": "magenta",
    "expired": "magenta",
}


def say(message: str, style: str | None = None) -> None:
    """A message to the person, on stderr."""
    _console(stderr=True).print(message, style=style, soft_wrap=True)


def show(message: str = "", style: str | None = None) -> None:
    """A line of what was asked for, on stdout."""
    _console().print(message, style=style, soft_wrap=True)


def show_json(value: object) -> None:
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def show_table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, styles: Sequence[str | None] = ()) -> None:
    """A table as wide as its content: on a narrow terminal its lines wrap rather than lose digits."""
    cells = [[plain(cell).replace("\n", " ") for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    console = _console()
    for index, row in enumerate([list(columns), *cells]):
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        style = "bold" if index == 0 else styles[index - 1] if index <= len(styles) else None
        console.print(line, style=style, soft_wrap=True)


def show_fields(fields: Iterable[tuple[str, str | None]]) -> None:
    """Names and values, one a line; a value of None is left out."""
    shown = [(name, value) for name, value in fields if value is not None]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        show(f"{name:<{width}}  {plain(value)}")


def plain(text: str) -> str:
    """The text without anything that could steer the terminal; labels and node answers come from strangers."""
    return "".join(char if char.isprintable() or char == "\n" else "\N{REPLACEMENT CHARACTER}" for char in text)


def moment(at: str | None) -> str:
    """A time of the interface, short, in UTC."""
    return "" if at is None else at[5:19].replace("T", " ")


def short(text: str | None, *, keep: int = 10) -> str:
    """The beginning and the end of a hash or an address."""
    if text is None:
        return ""
    return text if len(text) <= keep + 7 else f"{text[:keep]}…{text[-6:]}"


def json_object(text: str) -> dict[str, Any]:
    """ValueError unless the text is a JSON object."""
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError("expected a JSON object")
    return value


def _console(*, stderr: bool = False) -> Console:
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, markup=False, emoji=False)
