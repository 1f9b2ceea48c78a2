"""Faults on the way between a client and its node, and the rules that say which calls they strike."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Self, TypeVar

from nonchalant.chain.evm.decoding import RawTransaction
from nonchalant.testing.rules import Refusal, Swallowed

F = TypeVar("F")
Matching = Callable[[RawTransaction], bool]

SEND = "eth_sendRawTransaction"


# What can befall one call. Its neighbours in a batch do not notice.


@dataclass(frozen=True, slots=True)
class Canned:
    """An answer of our own; the node is not asked."""

    result: object


@dataclass(frozen=True, slots=True)
class Silence:
    """No answer: left out of a batch's; a request of which nothing is answered hangs."""

    delivered: bool


@dataclass(frozen=True, slots=True)
class Late:
    """The bytes are kept back until the test releases them."""

    answered: bool


CallFault = Refusal | Swallowed | Canned | Silence | Late


# How a whole HTTP request ends, with all its calls. Of a fault, `delivered`: the node got them nevertheless.


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    status: int
    body: bytes
    content_type: str = "application/json"
    delivered: bool = False


@dataclass(frozen=True, slots=True)
class Reset:
    delivered: bool = False


@dataclass(frozen=True, slots=True)
class Hang:
    delivered: bool = False


Outcome = HttpAnswer | Reset | Hang


@dataclass(frozen=True, slots=True)
class Slow:
    """The answer comes so many seconds later, whatever it is."""

    seconds: float


class Switch:
    """Something that was switched on: `off()`, or the end of an `async with`, switches it off."""

    def __init__(self, off: Callable[[], None]) -> None:
        self.off = off

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.off()


class Rule(Switch, Generic[F]):
    """A fault and the calls it strikes: those of `method` (None: any) whose transaction matches, `times` times."""

    def __init__(
        self,
        fault: F,
        rules: list[Rule[F]],
        *,
        method: str | None = None,
        times: int | None = None,
        matching: Matching | None = None,
    ) -> None:
        super().__init__(self._leave)
        self.fault = fault
        self.hits = 0
        self._rules = rules
        self._method = method
        self._times = times
        self._matching = matching
        self._struck = asyncio.Event()
        rules.append(self)

    def wants(self, method: str, transaction: RawTransaction | None = None) -> bool:
        if self._method not in (None, method):
            return False
        return self._matching is None or (transaction is not None and self._matching(transaction))

    def strike(self) -> None:
        """Count; the last time, the rule goes out of force."""
        self.hits += 1
        self._struck.set()
        if self.hits == self._times:
            self.off()

    async def struck(self, times: int = 1) -> None:
        """Wait until the fault has struck so often."""
        while self.hits < times:
            self._struck.clear()
            await self._struck.wait()

    def _leave(self) -> None:
        if self in self._rules:
            self._rules.remove(self)
