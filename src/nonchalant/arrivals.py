"""Requests whose callers wait at a lane's desk, to be accepted and signed in one commit.

Nobody waits here for long: whoever is not served within a moment is sent to the queue, like everybody who comes while
something waits there already. Nothing is accepted yet, so nothing is lost on the way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from nonchalant.errors import CommitUnknown
from nonchalant.model import Request, Transaction

# A pass over a busy lane's stages takes some hundredths of a second. One that takes longer waits for a node or a signer,
# and callers want to know first that they are heard.
PATIENCE_SECONDS = 0.25


class Arrival(NamedTuple):
    request: Request
    served: asyncio.Future[Transaction | None]  # None: nothing was accepted, the queue is for it


class Arrivals:
    """Those of one lane. Closed until its owner says that nothing waits before them."""

    def __init__(self) -> None:
        self.is_open = False
        self._waiting: list[Arrival] = []
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def come(self, request: Request) -> asyncio.Future[Transaction | None]:
        loop = asyncio.get_running_loop()
        arrival = Arrival(request, loop.create_future())
        self._waiting.append(arrival)
        if self._timer is None:
            self._timer = loop.call_later(PATIENCE_SECONDS, self.close)
        return arrival.served

    def first(self, most: int) -> list[Arrival]:
        """The next that wait still. Those that there is no room for are sent away: the queue is made for waiting."""
        here = [arrival for arrival in self._waiting if not arrival.served.done()]
        self._waiting = here[:most]
        send_away(here[most:])
        self._stop_waiting_for_nobody()
        return list(self._waiting)

    def serve(self, some: Sequence[Arrival]) -> bool:
        """From here on nobody sends them away any more. False: somebody has left, and they are not served."""
        if any(arrival.served.done() for arrival in some):
            return False
        ids = {arrival.request.id for arrival in some}
        self._waiting = [arrival for arrival in self._waiting if arrival.request.id not in ids]
        self._stop_waiting_for_nobody()
        return True

    def close(self) -> None:
        """Send everybody away, until it is opened again."""
        self.is_open = False
        waiting, self._waiting = self._waiting, []
        send_away(waiting)
        self._stop_waiting_for_nobody()

    def _stop_waiting_for_nobody(self) -> None:
        if not self._waiting and self._timer is not None:
            self._timer.cancel()
            self._timer = None


def send_away(some: Iterable[Arrival], doubt: CommitUnknown | None = None) -> None:
    """To the queue. With a doubt: nobody knows whether they were accepted here."""
    for arrival in some:
        if arrival.served.done():
            continue
        if doubt is None:
            arrival.served.set_result(None)
        else:
            arrival.served.set_exception(doubt)
