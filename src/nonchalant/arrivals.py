"""Callers at a lane's desk, whose requests are to be accepted and signed in one commit.

Nobody waits here for long: whoever is not served within a moment is sent to the queue, like everybody who comes while
something waits there already. Nothing is accepted yet, so nothing is lost on the way. They keep the order in which they
came: while somebody is at the desk, whoever comes next stands behind him, also if the queue is the place for him. Only
behind a commit that hangs they do not stay: what it accepts may then run after them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import takewhile
from typing import Protocol

from nonchalant.errors import CommitUnknown
from nonchalant.model import Request, Transaction

# A pass over a busy lane's stages takes some hundredths of a second. One that takes longer waits for a node, and callers
# want to know first that they are heard.
PATIENCE_SECONDS = 0.25

# How much longer those behind a commit wait for it to end: the store answers others while one connection is dead.
HELD_UP_SECONDS = 1.0


class Caller(Protocol):
    """Somebody with a request. Each is told one of these, once."""

    @property
    def request(self) -> Request: ...

    def admitted(self, tx: Transaction) -> None: ...

    def sent_away(self, doubt: CommitUnknown | None = None) -> None:
        """To the queue, at once. With a doubt: nobody knows whether it was accepted at the desk."""


def may_come(request: Request) -> bool:
    """Whether it can be signed at whichever nonce is next, without asking a node about it."""
    return (
        request.payload.gas is not None
        and not request.simulate
        and request.asked_nonce is None
        and request.batch is None
    )


class Arrivals:
    """Those of one lane. Closed until its owner says that nothing waits before them."""

    def __init__(self) -> None:
        self.is_open = False
        self._waiting: list[Caller] = []
        self._serving = False
        self._is_overdue = False  # somebody waits for too long, behind those that are served
        self._is_stuck = False  # those are served for so long that nobody stands behind them
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def take(self, caller: Caller) -> bool:
        """False: he is to go to the queue by himself."""
        has_somebody = self._waiting or (self._serving and not self._is_stuck)
        if not has_somebody and not (self.is_open and may_come(caller.request)):
            return False
        self._waiting.append(caller)
        if self._timer is None:
            self._start_the_clock()
        return True

    def next(self, most: int) -> list[Caller]:
        """Those whose turn it is. If the first of all cannot be served, everybody is sent away."""
        some = list(takewhile(lambda caller: may_come(caller.request), self._waiting[:most]))
        if not some:
            self._send_away()
        return some

    def are_here(self, some: Sequence[Caller]) -> bool:
        """Whether nobody of these was sent away meanwhile."""
        return self._waiting[: len(some)] == list(some)

    @contextmanager
    def serving(self, some: Sequence[Caller]) -> Iterator[None]:
        """Within this block whoever serves the first ones tells them what becomes of them, and nobody else is sent away: he
        would be in the queue before them."""
        self._waiting = self._waiting[len(some) :]
        self._serving = True
        try:
            yield
        finally:
            self._serving = self._is_stuck = False
            if self._is_overdue:
                self.close()
            self._stop_the_clock()
            if self._waiting:  # they waited for those before them, and now for themselves
                self._start_the_clock()

    def close(self) -> None:
        """Send everybody away, until it is opened again."""
        self.is_open = False
        if self._serving:
            self._is_overdue = True
        else:
            self._send_away()

    def _send_away(self) -> None:
        self._is_overdue = False
        waiting, self._waiting = self._waiting, []
        send_away(waiting)
        self._stop_the_clock()

    def _start_the_clock(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(PATIENCE_SECONDS, self._wait_no_longer)

    def _wait_no_longer(self) -> None:
        self.close()
        if self._serving:
            self._timer = asyncio.get_running_loop().call_later(HELD_UP_SECONDS, self._give_up)

    def _give_up(self) -> None:
        self._is_stuck = True
        self._send_away()

    def _stop_the_clock(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def send_away(some: Iterable[Caller], doubt: CommitUnknown | None = None) -> None:
    for caller in some:
        caller.sent_away(doubt)
