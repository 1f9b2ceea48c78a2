"""Reading a table of the settings strictly: every key is known, every value has its type, every error its full path."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from nonchalant.amounts import LIMIT, parse_wei
from nonchalant.errors import BadSettings
from nonchalant.words import Wei

T = TypeVar("T")
D = TypeVar("D")
E = TypeVar("E", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class Found:
    """A value, and where it stands."""

    value: object
    path: str  # how the user would name it
    folder: Path  # where its relative paths start
    from_environment: bool = False


class Table:
    """A table of the settings; a key that is not one of `known` is refused at once. `overrides` win over its values."""

    def __init__(self, found: Found, known: Sequence[str], overrides: Mapping[str, Found] | None = None) -> None:
        if not isinstance(found.value, dict):
            raise bad(found.path, "expected a table")
        self.found = found
        self.values: dict[str, object] = found.value
        self.overrides = overrides or {}
        for key in self.values:
            if key not in known:
                raise bad(self._at(key), f"unknown key{did_you_mean(key, known)}")

    def take(self, key: str, parse: Callable[[Found], T], default: D) -> T | D:
        found = self._find(key)
        return default if found is None else parse(found)

    def need(self, key: str, parse: Callable[[Found], T], remedy: str) -> T:
        found = self._find(key)
        if found is None:
            raise bad(self._at(key), f"missing; {remedy}")
        return parse(found)

    def _find(self, key: str) -> Found | None:
        if key in self.overrides:
            return self.overrides[key]
        if key not in self.values:
            return None
        return Found(self.values[key], self._at(key), self.found.folder)

    def _at(self, key: str) -> str:
        name = key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else repr(key)
        return f"{self.found.path}.{name}" if self.found.path else name


def string(found: Found) -> str:
    if not isinstance(found.value, str) or not found.value:
        raise bad(found.path, "expected text")
    return found.value


def whole(least: int, most: int, *, what: str = "a whole number") -> Callable[[Found], int]:
    def parse(found: Found) -> int:
        value = found.value
        if found.from_environment and isinstance(value, str) and re.fullmatch(r"\d{1,9}", value, re.ASCII):
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise bad(found.path, f"expected {what} from {least} to {most}")
        return value

    return parse


def seconds(least: float, most: float) -> Callable[[Found], float]:
    def parse(found: Found) -> float:
        value = found.value
        if found.from_environment and isinstance(value, str) and re.fullmatch(r"\d{1,9}(\.\d{1,9})?", value, re.ASCII):
            value = float(value)
        if not isinstance(value, int | float) or isinstance(value, bool) or not least <= value <= most:
            raise bad(found.path, f"expected seconds from {least:g} to {most:g}")
        return float(value)

    return parse


def days(least: int, most: int) -> Callable[[Found], int]:
    return whole(least, most, what="days, a whole number")


def flag(found: Found) -> bool:
    if not isinstance(found.value, bool):
        raise bad(found.path, "expected true or false")
    return found.value


def one_of(choices: type[E]) -> Callable[[Found], E]:
    def parse(found: Found) -> E:
        if isinstance(found.value, str) and found.value in list(choices):
            return choices(found.value)
        raise bad(found.path, f"expected one of {', '.join(choices)}")

    return parse


def each(parse: Callable[[Found], T]) -> Callable[[Found], tuple[T, ...]]:
    def parse_each(found: Found) -> tuple[T, ...]:
        if not isinstance(found.value, list) or not found.value:
            raise bad(found.path, "expected a list with at least one entry")
        return tuple(
            parse(Found(value, f"{found.path}[{index}]", found.folder)) for index, value in enumerate(found.value)
        )

    return parse_each


def http_url(found: Found) -> str:
    url = string(found)
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    # Never the URL itself in an error: it may carry a key.
    if not usable or re.search(r"[\s\x00-\x1f]", url):
        raise bad(found.path, "expected a URL that starts with http:// or https:// and names a host")
    return url


def file_path(found: Found) -> Path:
    try:
        path = Path(string(found)).expanduser()
    except RuntimeError as error:
        raise bad(found.path, str(error)) from None
    if "\0" in str(path):
        raise bad(found.path, "expected the path of a file")
    return found.folder / path


def label(found: Found) -> str:
    text = string(found)
    if not re.fullmatch(r"[\w.:@/ -]{1,100}", text):
        raise bad(found.path, "expected a name of at most 100 letters, digits and . : @ / - _")
    return text


def wei(found: Found) -> Wei:
    if isinstance(found.value, int) and not isinstance(found.value, bool):
        if 0 <= found.value < LIMIT:
            return found.value
        raise bad(found.path, "expected an amount of wei from 0 up to 256 bits")
    if not isinstance(found.value, str):
        raise bad(found.path, 'expected an amount of wei, such as 5000000000 or "5 gwei"')
    try:
        return parse_wei(found.value)
    except ValueError as error:
        raise bad(found.path, str(error)) from None


def refuse_duplicates(path: str, what: str, values: Sequence[str], *, secret: bool = False) -> None:
    """`secret`: the values themselves may not stand in an error."""
    for index, value in enumerate(values):
        if value in values[:index]:
            raise bad(f"{path}[{index}]", f"{what} is there twice" if secret else f"{value} is there twice as {what}")


def did_you_mean(word: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean {near[0]}?" if near else f"; known here: {', '.join(known)}"


def bad(path: str, problem: str) -> BadSettings:
    return BadSettings(f"{path}: {problem}" if path else problem)
