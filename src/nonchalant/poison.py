"""Poison: one transaction that makes a stage fail must stop nothing but itself.

A stage says whom it handles. If that raises what nobody expected, the lane starts anew, and if the same one does it
again, that stage leaves it aside, and tries it again now and then: what broke it may be over. A failure that names
nobody makes the lane careful for a while: it works one at a time, so that the next failure names somebody.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Self, TypeVar

from nonchalant.errors import (
    CommitUnknown,
    LeaseLost,
    NodeRefused,
    NonchalantError,
    Poisoned,
    RowMoved,
    SignerFailed,
    StoreUnavailable,
    Unreachable,
)
from nonchalant.model import Slot
from nonchalant.words import Millis

T = TypeVar("T")

# How often one may break a stage before that leaves it aside.
STRIKES = 2

# How long it does so before it tries once more.
ASIDE_FOR: Millis = 900_000

# How long a lane works one at a time after a failure that named nobody.
CAREFUL: Millis = 60_000

# The world's troubles, which no transaction is to blame for.
WORLDLY = (CommitUnknown, LeaseLost, NodeRefused, SignerFailed, StoreUnavailable, Unreachable)


def subject_of(slot: Slot) -> str:
    """Who is handled with a slot: its transaction, or what stands for something that is nobody's."""
    return slot.tx_id or f"nonce {slot.nonce}"


class handling:  # noqa: N801 - it reads as a statement
    """Whatever nobody expects in this block is the subject's doing. None: nobody's in particular.

    A row that is not as it was read is nobody's fault, unless the block `commits` for this one alone. What the caller
    `answers` itself passes. Who handles many in turn says so by setting `subject`.
    """

    __slots__ = ("_answers", "_commits", "subject")

    def __init__(
        self, subject: str | None = None, *, commits: bool = False, answers: tuple[type[Exception], ...] = ()
    ) -> None:
        self.subject = subject
        self._commits = commits
        self._answers = answers

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None or self.subject is None or not isinstance(error, Exception):
            return
        if isinstance(error, (*WORLDLY, Poisoned, *self._answers)):
            return
        if isinstance(error, RowMoved) and not self._commits:
            return
        raise Poisoned(self.subject, error) from error


@dataclass(slots=True)
class Strikes:
    """What broke a lane here, for as long as this node works it: longer than any of its desks."""

    aside: dict[tuple[str, str], str] = field(default_factory=dict)  # by stage and subject: why
    untold: dict[str, str] = field(default_factory=dict)  # subjects newly left aside: why
    careful: bool = False  # the lane's next desk is to be
    restarts: int = 0  # in a row, after failures that named nobody
    trouble: str = ""  # the last of them
    tried_since: dict[str, Millis] = field(default_factory=dict)  # wishes tried in vain: since when, in ticks
    _counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    _since: dict[tuple[str, str], Millis] = field(default_factory=dict)  # in ticks, of what is left aside

    def strike(self, stage: str, poison: Poisoned, ticks: Millis = 0) -> bool:
        """Count it. True: from now on the stage leaves it aside."""
        self._counts[stage, poison.subject] += 1
        if self._counts[stage, poison.subject] < STRIKES:
            return False
        self.leave(stage, poison, self._counts[stage, poison.subject], ticks)
        return True

    def leave(self, stage: str, poison: Poisoned, times: int, ticks: Millis) -> None:
        """From now on the stage leaves it aside, having failed on it so often."""
        key = (stage, poison.subject)
        self._counts[key] = max(STRIKES, self._counts[key])
        # What an unexpected error says may name anything: that is for the node's own log.
        reason = f"{stage} failed on it {times} times ({type(poison.cause).__name__}); the node's log says more"
        self.aside[key] = self.untold[poison.subject] = reason
        self._since[key] = ticks

    def broke(self, error: Exception) -> None:
        """A failure that names nobody."""
        self.careful, self.restarts = True, self.restarts + 1
        self.trouble = str(error)[:200] if isinstance(error, NonchalantError) else type(error).__name__

    def forgive(self, subject: str) -> None:
        """Something about it was changed: every stage may try it again."""
        for key in [key for key in self._counts if key[1] == subject]:
            self._drop(key)

    def look_again(self, ticks: Millis, live: Collection[str]) -> None:
        """Forget what is not `live` any more; have a stage try once more what it left aside for long."""
        for key in list(self.aside):
            if key[1] not in live and key[1] not in self.untold:
                self._drop(key)
            elif ticks - self._since[key] >= ASIDE_FOR:
                self._drop(key)
                self._counts[key] = STRIKES - 1

    def _drop(self, key: tuple[str, str]) -> None:
        del self._counts[key]
        self.aside.pop(key, None)
        self._since.pop(key, None)


def parts(items: Sequence[T], *, careful: bool) -> Sequence[Sequence[T]]:
    """All in one go; or, for a lane that is careful, one by one."""
    return ([[item] for item in items] or [[]]) if careful else [items]
