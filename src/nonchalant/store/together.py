"""Commits of many lanes in one: while some are under way the others gather, and an idle system does not wait.

Where many lanes write a little each, what a commit costs by itself is most of what there is to do. One that cannot be
written never fails its neighbours.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Sequence
from itertools import accumulate

from nonchalant.errors import CommitUnknown, StoreUnavailable
from nonchalant.store.at_once import Owned
from nonchalant.store.connections import Locked

# Commits under way. Where there is little to write, one waits for the disk and all the others gather: two at a time would
# each be half as large, and cost nearly as much. So another is begun only for so many transactions.
AT_ONCE = 3
WORTH_ANOTHER = 50

# Transactions in one of them, if it is of several lanes: so many take some hundredths of a second.
MOST_ROWS = 300

Waiting = tuple[Owned, "asyncio.Future[None]"]


class Together:
    """`write` makes all of these true, or none."""

    def __init__(self, write: Callable[[Sequence[Owned]], Awaitable[None]]) -> None:
        self._write = write
        self._waiting: list[Waiting] = []
        self._under_way: set[asyncio.Task[None]] = set()
        self._is_called = False

    async def commit(self, owned: Owned) -> None:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        self._waiting.append((owned, future))
        if not self._is_called:
            # After all that is ready to run now: whoever was woken with this one goes with it.
            self._is_called = True
            loop.call_soon(self._go_on)
        await future

    async def close(self) -> None:
        """What is under way has an unknown outcome; what waits never happens."""
        waiting, self._waiting = self._waiting, []
        _tell(waiting, StoreUnavailable("the store was closed"))
        under_way = list(self._under_way)
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)

    def _go_on(self) -> None:
        """Have as many under way as there should be."""
        self._is_called = False
        # Whoever was cancelled meanwhile does not want it any more.
        self._waiting = [(owned, future) for owned, future in self._waiting if not future.done()]
        while self._waiting and len(self._under_way) < AT_ONCE:
            rows = list(accumulate(len(owned.change.transactions) for owned, _ in self._waiting))
            if self._under_way and rows[-1] < WORTH_ANOTHER:
                return
            count = max(1, bisect_right(rows, MOST_ROWS))
            batch, self._waiting = self._waiting[:count], self._waiting[count:]
            task = asyncio.create_task(self._commit(batch))
            self._under_way.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        self._go_on()

    async def _commit(self, batch: Sequence[Waiting]) -> None:
        try:
            await self._commit_each(batch)
        finally:
            # Cancelled, if anybody waits still: the store is closed.
            _tell(batch, CommitUnknown("the store was closed"))

    async def _commit_each(self, batch: Sequence[Waiting]) -> None:
        try:
            await self._write([owned for owned, _ in batch])
        except Exception as error:  # noqa: BLE001 - whatever it is, those who wait must hear of it
            is_everybodys = isinstance(error, (CommitUnknown, StoreUnavailable)) and not isinstance(error, Locked)
            if len(batch) == 1 or is_everybodys:
                _tell(batch, error)
                return
            # Nothing was written, and it may be one of them: each on its own, and none waits for another.
            await asyncio.gather(*(self._commit_each([one]) for one in batch))
        else:
            _tell(batch, None)


def _tell(batch: Sequence[Waiting], error: Exception | None) -> None:
    """How it went, to all who have not heard yet, and wait still."""
    for _, future in batch:
        if future.done():
            continue
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)
