"""What runs now, and how long it will still take."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console


@dataclass(frozen=True, slots=True)
class Step:
    name: str
    round: int
    expected: float  # seconds, before it was ever run


class Progress:
    """Of a plan whose steps come again each round: how long one took tells of the next."""

    def __init__(self, console: Console, steps: Sequence[Step]) -> None:
        self._console = console
        self._left = list(steps)
        self._total = len(steps)
        self._took: dict[str, float] = {}

    @contextmanager
    def step(self) -> Iterator[list[str]]:
        """The next one. What is put into the list is said when it is over."""
        number, now = self._total - len(self._left) + 1, self._left[0]
        heading = f"[{number:>{len(str(self._total))}}/{self._total}] round {now.round}, {now.name}"
        said: list[str] = []
        began = time.monotonic()
        with self._console.status(f"{heading}, {self._remaining()}"):
            yield said
        self._took[now.name] = time.monotonic() - began
        del self._left[0]
        after = f", {self._remaining()}" if self._left else ""
        self._console.print(f"{heading}: {' '.join(said)} ({self._took[now.name]:.0f} s{after})", markup=False)

    def _remaining(self) -> str:
        seconds = sum(self._took.get(step.name, step.expected) for step in self._left)
        return f"about {seconds / 60:.0f} min left" if seconds >= 90 else f"about {seconds:.0f} s left"
