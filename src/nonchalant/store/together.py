"""Commits of many lanes in one: while some are under way the others gather, and an idle system does not wait.

Where many lanes write a little each, what a commit costs by itself is most of what there is to do. One that cannot be
written never fails its neighbours.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from itertools import accumulate, takewhile

from nonchalant.errors import CommitUnknown, StoreUnavailable
from nonchalant.store.at_once import Owned
from nonchalant.store.connections import Locked

# Commits under way: while one waits for the disk, the next is made ready. With more of them nobody would have to wait, and
# so none would gather.
AT_ONCE = 2

# Rows of transactions in one of them, if it is of several lanes: so many take some hundredths of a second.
MOST_ROWS = 300

Waiting = tuple[Owned, "asyncio.Future[None]"]


class Together:
    """`write` makes all of these true, or none."""

    def __init__(self, write: Callable[[Sequence[Owned]], Awaitable[None]]) -> None:
        self._write = write
        self._waiting: list[Waiting] = []
        self._under_way = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def commit(self, owned: Owned) -> None:
        if self._under_way < AT_ONCE:  # so nobody waits
            self._under_way += 1
            try:
                await self._write([owned])
            finally:
                self._go_on()
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((owned, future))
        await future

    async def close(self) -> None:
        """What is under way has an unknown outcome; what waits never happens."""
        waiting, self._waiting = self._waiting, []
        _tell(waiting, StoreUnavailable("the store was closed"))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _go_on(self) -> None:
        """One has ended: the next ones have its place."""
        # Whoever was cancelled meanwhile does not want it any more.
        waiting = [(owned, future) for owned, future in self._waiting if not future.done()]
        rows = accumulate(len(owned.change.transactions) for owned, _ in waiting)
        count = max(1, sum(1 for _ in takewhile(lambda rows: rows <= MOST_ROWS, rows)))
        batch, self._waiting = waiting[:count], waiting[count:]
        if not batch:
            self._under_way -= 1
            return
        task = asyncio.create_task(self._commit(batch))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _commit(self, batch: Sequence[Waiting]) -> None:
        try:
            await self._commit_each(batch)
        finally:
            # Cancelled, if anybody waits still: the store is closed.
            _tell(batch, CommitUnknown("the store was closed"))
            self._go_on()

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
