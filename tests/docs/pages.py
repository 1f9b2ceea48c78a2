"""The written pages, and the pieces of them that tests look at."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]

_BLOCK = re.compile(r"^( *)```(\w+)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced piece of code, without the indentation of the list it stands in."""

    page: str
    language: str
    text: str


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(*languages: str) -> Iterator[Block]:
    for page in PAGES:
        for indent, language, text in _BLOCK.findall(page.read_text()):
            if language in languages:
                yield Block(name(page), language, re.sub(f"^{indent}", "", text, flags=re.MULTILINE))


def prose(page: Path) -> str:
    """The page without its blocks of code."""
    return _BLOCK.sub("", page.read_text())


def quoted(page: Path) -> list[str]:
    """What stands in backticks, outside of blocks."""
    return re.findall(r"`([^`\n]+)`", prose(page))


def everything() -> str:
    return "\n".join(page.read_text() for page in PAGES)
