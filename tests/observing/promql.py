"""Enough of PromQL to say which series an expression names, and by which labels. promtool judges the rest."""

from __future__ import annotations

import re
from collections.abc import Iterator

WORDS = frozenset(
    {
        "and",
        "or",
        "unless",
        "by",
        "without",
        "on",
        "ignoring",
        "group_left",
        "group_right",
        "offset",
        "bool",
        "inf",
        "nan",
    }
)
NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_SELECTOR = re.compile(rf"({NAME})?\s*\{{([^}}]*)\}}")
_GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")


def series_in(expression: str) -> Iterator[tuple[str, set[str]]]:
    """Each series that is named, with the labels that its selector matches."""
    text = _STRING.sub('""', expression)
    for name, matchers in _SELECTOR.findall(text):
        yield name, set(re.findall(r"([a-zA-Z_]\w*)\s*(?:=~|!~|!=|=)", matchers))
    text = _GROUPING.sub("", _SELECTOR.sub(" ", text))
    text = re.sub(r"\[[^\]]*\]", "", text)  # ranges
    text = re.sub(r"\boffset\s+\w+", "", text)
    for found in re.finditer(rf"(?<![\w.$]){NAME}(?!\s*\()(?![\w:])", text):
        if found[0] not in WORDS:
            yield found[0], set()


def grouped_by(expression: str) -> set[str]:
    """The labels that aggregations and joins name."""
    return {label.strip() for labels in _GROUPING.findall(expression) for label in labels.split(",") if label.strip()}
