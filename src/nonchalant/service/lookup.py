"""Many calls share one look into the store: while one is under way the next ones collect, and who asks after something
was written is never answered by a look that began before it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Generic, TypeVar

V = TypeVar("V")

# Names that one look asks for.
AT_ONCE: Final = 500


class Lookup(Generic[V]):
    """Finds what `look` finds by its name."""

    def __init__(self, look: Callable[[Sequence[str]], Awaitable[Mapping[str, V]]]) -> None:
        self._look = look
        self._waiting: list[tuple[str, asyncio.Future[V | None]]] = []
        self._looking: asyncio.Task[None] | None = None

    async def find(self, name: str) -> V | None:
        """None: there is no such thing."""
        future: asyncio.Future[V | None] = asyncio.get_running_loop().create_future()
        self._waiting.append((name, future))
        if self._looking is None:
            self._looking = asyncio.create_task(self._look_for_all())
        return await future

    async def _look_for_all(self) -> None:
        try:
            while self._waiting:
                asked, self._waiting = self._waiting, []
                names = list(dict.fromkeys(name for name, _ in asked))
                for start in range(0, len(names), AT_ONCE):
                    some = frozenset(names[start : start + AT_ONCE])
                    await self._answer([one for one in asked if one[0] in some], sorted(some))
        finally:
            self._looking = None

    async def _answer(self, asked: Sequence[tuple[str, asyncio.Future[V | None]]], names: Sequence[str]) -> None:
        found: Mapping[str, V] = {}
        trouble: Exception | None = None
        try:
            found = await self._look(names)
        except Exception as error:  # noqa: BLE001 - whatever it is, callers wait for an answer
            trouble = error
        for name, future in asked:
            if future.done():
                continue  # who went away is no reason to fail the others
            if trouble is not None:
                future.set_exception(trouble)
            else:
                future.set_result(found.get(name))
