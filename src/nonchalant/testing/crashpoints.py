"""Numbered crash points: every call through a port is a step, and the process can die by `kill -9` at any of them.

    points = CrashPoints(at=Point("store.commit", Side.AFTER, 3))
    Wrap(store=points.store, endpoint=points.endpoint, signer=points.signer)

Between two steps nothing leaves the process and nothing is stored, so dying at the steps is dying anywhere that matters.
"""

from __future__ import annotations

import inspect
import os
import re
import signal
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar, cast

from nonchalant.errors import BadSettings
from nonchalant.ports import Endpoint, Signer, Store

P = TypeVar("P")


class Side(StrEnum):
    """Before a call nothing of it has happened; after it all of it has, and nobody knows yet."""

    BEFORE = "before"
    AFTER = "after"


@dataclass(frozen=True, slots=True)
class Point:
    """One step: the `occurrence`-th time (from 1) that this side of this call is reached."""

    call: str
    side: Side
    occurrence: int = 1

    def __str__(self) -> str:
        return f"{self.call}:{self.side}:{self.occurrence}"

    @staticmethod
    def parse(text: str) -> Point | int:
        """A point as it is written, or the number of a step."""
        if text.isdecimal():
            return int(text)
        found = re.fullmatch(r"([a-z]+\.[a-z_]+):(before|after):(\d+)", text, re.ASCII)
        if found is None:
            raise BadSettings(f"{text!r} is no crash point; write a number, or such as store.commit:after:1")
        return Point(found[1], Side(found[2]), int(found[3]))


def die() -> None:
    """What a power cut does: nothing is flushed, closed or released."""
    os.kill(os.getpid(), signal.SIGKILL)


class CrashPoints:
    """Counts the steps of one process and ends it at the one that was chosen. `at` None: it only counts."""

    def __init__(
        self,
        at: Point | int | None = None,
        *,
        end: Callable[[], None] = die,
        reached: Callable[[int, Point], None] | None = None,
    ) -> None:
        self._at = at
        self._end = end
        self._reached = reached
        self._number = 0
        self._seen: Counter[tuple[str, Side]] = Counter()

    def store(self, store: Store) -> Store:
        return self._around(store, Store, "store")

    def endpoint(self, endpoint: Endpoint) -> Endpoint:
        return self._around(endpoint, Endpoint, "endpoint")

    def signer(self, signer: Signer) -> Signer:
        return self._around(signer, Signer, "signer")

    def step(self, call: str, side: Side) -> None:
        self._number += 1
        self._seen[call, side] += 1
        point = Point(call, side, self._seen[call, side])
        if self._reached is not None:
            self._reached(self._number, point)
        if self._at in (self._number, point):
            self._end()

    def _around(self, inner: P, port: type, name: str) -> P:
        """The same port, with a step before and after each of its calls; what it merely has is passed on."""
        methods = {call: self._numbered(f"{name}.{call}", getattr(inner, call)) for call in calls_of(port)}
        double = type(f"Numbered{port.__name__}", (), {call: staticmethod(act) for call, act in methods.items()})()
        for field in port.__annotations__:
            setattr(double, field, getattr(inner, field))
        return cast("P", double)

    def _numbered(self, name: str, act: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def call(*args: object, **kwargs: object) -> object:
            self.step(name, Side.BEFORE)
            answer: object = await act(*args, **kwargs)
            self.step(name, Side.AFTER)
            return answer

        return call


def calls_of(port: type) -> list[str]:
    """The calls of a port, in the order in which it declares them."""
    return [name for name, member in vars(port).items() if inspect.iscoroutinefunction(member)]
