"""Commits of many lanes in one: while one is under way the others gather, and an idle system does not wait.

Where many lanes write a little each, what a commit costs by itself is most of what there is to do. One that cannot be
written never fails its neighbours.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import accumulate

from structlog.contextvars import unbind_contextvars

from nonchalant.errors import CommitUnknown, LeaseLost, StoreUnavailable
from nonchalant.model import Admission, Change
from nonchalant.store.at_once import Owned
from nonchalant.store.connections import Declined
from nonchalant.words import TxId

# Commits under way. Where there is little to write, one waits for the disk and all the others gather: two at a time would
# each be half as large, and cost nearly as much. So another is begun only for so many rows.
AT_ONCE = 3
WORTH_ANOTHER = 200

# Rows in one of them, if it is of several lanes: so many take some hundredths of a second.
MOST_ROWS = 1_200

# One that takes longer waits for somebody, and the others do not wait with it; as long as there are not too many of them.
LATE_SECONDS = 0.1
MOST_LATE = 6

# How many are tried by themselves at once: others need connections too.
BY_THEMSELVES = 4

Admissions = Mapping[TxId, Admission]  # of what was accepted
Waiting = tuple[Owned, "asyncio.Future[Admissions]"]


class CommitsLost(LeaseLost):
    """The store lost commits: nothing that was built on them is written, nor tried again."""


class Together:
    """`write` makes all of these true, or none, and says where what they accept stands."""

    def __init__(self, write: Callable[[Sequence[Owned]], Awaitable[Admissions]]) -> None:
        self._write = write
        self._waiting: list[Waiting] = []
        self._under_way: dict[asyncio.Task[None], tuple[float, Sequence[Waiting]]] = {}  # since when, and of whom
        self._by_themselves = asyncio.Semaphore(BY_THEMSELVES)
        self._is_called = False
        self._later: asyncio.TimerHandle | None = None

    async def commit(self, owned: Owned) -> Admissions:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Admissions] = loop.create_future()
        self._waiting.append((owned, future))
        if not self._is_called:
            # After all that is ready to run now: whoever was woken with this one goes with it.
            self._is_called = True
            loop.call_soon(self._go_on)
        return await future

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
        loop = asyncio.get_running_loop()
        while self._waiting:
            rows = list(accumulate(_rows(owned.change) for owned, _ in self._waiting))
            if not self._may_begin(rows[-1], loop.time()):
                if self._later is None:
                    self._later = loop.call_later(LATE_SECONDS, self._look_again)
                return
            count = max(1, bisect_right(rows, MOST_ROWS))
            batch, self._waiting = self._waiting[:count], self._waiting[count:]
            task = asyncio.create_task(self._commit(batch))
            self._under_way[task] = (loop.time(), batch)
            task.add_done_callback(self._ended)

    def _may_begin(self, rows: int, now: float) -> bool:
        prompt = sum(now - began < LATE_SECONDS for began, _ in self._under_way.values())
        if len(self._under_way) - prompt >= MOST_LATE:
            return False
        return prompt == 0 or (prompt < AT_ONCE and rows >= WORTH_ANOTHER)

    def _look_again(self) -> None:
        self._later = None
        self._go_on()

    def _ended(self, task: asyncio.Task[None]) -> None:
        _, batch = self._under_way.pop(task)
        # Cancelled, if anybody waits still: the store is closed.
        _tell(batch, CommitUnknown("the store was closed"))
        self._go_on()

    async def _commit(self, batch: Sequence[Waiting]) -> None:
        unbind_contextvars("lane", "epoch")  # it is begun by one lane, and is of others too
        await self._commit_each(batch)

    async def _commit_each(self, batch: Sequence[Waiting]) -> None:
        try:
            entries = await self._write([owned for owned, _ in batch])
        except Exception as error:  # noqa: BLE001 - whatever it is, those who wait must hear of it
            if len(batch) == 1 or _is_everybodys(error):
                _tell(batch, error)
                return
            # Nothing was written, and it may be one of them: each on its own.
            await asyncio.gather(*(self._commit_by_itself(one) for one in batch))
        else:
            _tell(batch, entries)

    async def _commit_by_itself(self, one: Waiting) -> None:
        async with self._by_themselves:
            await self._commit_each([one])


def _is_everybodys(error: Exception) -> bool:
    """Whether each of them would meet it by itself, or must not be tried again."""
    if isinstance(error, (CommitUnknown, CommitsLost)):
        return True
    return isinstance(error, StoreUnavailable) and not isinstance(error, Declined)


def _rows(change: Change) -> int:
    parts = (change.transactions, change.slots, change.attempts, change.answered, change.events)
    return 1 + sum(map(len, parts))


def _tell(batch: Sequence[Waiting], outcome: Admissions | Exception) -> None:
    """How it went, to all who have not heard yet, and wait still."""
    for _, future in batch:
        if future.done():
            continue
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)
