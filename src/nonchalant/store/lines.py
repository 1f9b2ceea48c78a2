"""Who goes next, for many lanes in one question: those that ask at the same moment ask together.

Lanes whose commits went together go on together, and the way to the database and back was most of what it took each of
them to read its own part of the queue. What goes wrong with one of them is not its neighbours' affair.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

from structlog.contextvars import unbind_contextvars

from nonchalant.store.wishing import Found, Line
from nonchalant.words import LaneKey

Waiting = tuple[Line, "asyncio.Future[Found]"]

# In one question: reading more takes the loop too long at once.
MOST_LANES = 50
MOST_ROWS = 1_000


class Lines:
    """`read` answers for each of these lanes, which are different ones."""

    def __init__(self, read: Callable[[Sequence[Line]], Awaitable[Mapping[LaneKey, Found]]]) -> None:
        self._read = read
        self._waiting: dict[LaneKey, Waiting] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def find(self, line: Line) -> Found:
        if line.lane in self._waiting:  # a lane has one owner, who asks once at a time; whoever else does, asks alone
            return (await self._read([line]))[line.lane]
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Found] = loop.create_future()
        if not self._waiting:
            loop.call_soon(
                self._ask
            )  # after all that is ready to run now: whoever was woken with this one asks with it
        self._waiting[line.lane] = (line, future)
        return await future

    def _ask(self) -> None:
        asked, self._waiting = self._waiting, {}
        for some in _parts(list(asked.values())):
            task = asyncio.create_task(self._answer(some))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _answer(self, asked: Sequence[Waiting]) -> None:
        unbind_contextvars("lane", "epoch")  # it is begun by one lane, and is of others too
        try:
            found = await self._read([line for line, _ in asked])
        except Exception as error:  # noqa: BLE001 - whatever it is, those who wait must hear of it
            if len(asked) > 1:  # it may be one of them: each on its own
                await asyncio.gather(*(self._answer([one]) for one in asked))
                return
            [(_, future)] = asked
            if not future.done():
                future.set_exception(error)
        else:
            for line, future in asked:
                if not future.done():
                    future.set_result(found[line.lane])


def _parts(asked: Sequence[Waiting]) -> Iterator[Sequence[Waiting]]:
    some: list[Waiting] = []
    rows = 0
    for one in asked:
        if some and (len(some) == MOST_LANES or rows + one[0].limit > MOST_ROWS):
            yield some
            some, rows = [], 0
        some.append(one)
        rows += one[0].limit
    yield some
