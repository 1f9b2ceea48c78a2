"""Broken promises. They are kept, not raised: the code under test would catch them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from nonchalant.sim.loop import SimLoop
from nonchalant.sim.trace import Trace

BUG = "BUG"  # not a promise: an error that nobody expected


@dataclass(frozen=True, slots=True)
class Violation:
    seed: int
    promise: str
    at: float
    what: str

    def __str__(self) -> str:
        return f"seed {self.seed}: {self.promise} broken at {self.at:.3f} s: {self.what}"


class Violations:
    """Collects them; the first one ends the history."""

    def __init__(self, seed: int, loop: SimLoop, trace: Trace) -> None:
        self.found: list[Violation] = []
        self.at_the_first: Callable[[], None] = lambda: None
        self._seed = seed
        self._loop = loop
        self._trace = trace

    def __call__(self, promise: str, what: str) -> None:
        self.found.append(Violation(self._seed, promise, self._loop.time(), what))
        self._trace("CHECKER", f"{promise} broken: {what}")
        if len(self.found) == 1:
            self.at_the_first()
