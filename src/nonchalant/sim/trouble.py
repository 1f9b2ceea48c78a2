"""A fault that lasts: from when it is laid until it ends, it strikes some of the calls that pass it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

from nonchalant.sim.chance import Chance


class Poison(Exception):
    """What a poisonous transaction makes a step raise that expects nothing."""


@dataclass(slots=True)
class Trouble:
    """Strikes with chance `odds` until `until`; tells `struck` the first time."""

    kind: StrEnum
    until: float
    odds: float
    struck: Callable[[], None]
    lasting: bool = False  # it stays when all other trouble ends
    hits: int = 0

    def strike(self) -> None:
        self.hits += 1
        if self.hits == 1:
            self.struck()


class Troubles:
    """What is wrong at one place at the moment."""

    def __init__(self, chance: Chance) -> None:
        self._chance = chance
        self._active: list[Trouble] = []

    def lay(self, trouble: Trouble) -> None:
        self._active.append(trouble)

    def end(self) -> None:
        self._active = [trouble for trouble in self._active if trouble.lasting]

    def strike(self, now: float, kinds: Iterable[StrEnum]) -> Trouble | None:
        """The trouble of one of these kinds that strikes this call; None when it passes unharmed."""
        if not self._active:
            return None
        self._active = [trouble for trouble in self._active if trouble.until > now]
        for trouble in self._active:
            if trouble.kind in kinds and self._chance.random() < trouble.odds:
                trouble.strike()
                return trouble
        return None
