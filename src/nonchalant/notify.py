"""Notifying: committed events go to whoever listens, in the order of their positions."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from nonchalant.model import Event
from nonchalant.ports import Sink, Store

BATCH = 500


class Notifier:
    """Reads events after a position and hands them to the sinks."""

    def __init__(self, store: Store, sinks: Sequence[Sink]) -> None:
        self._store = store
        self.sinks = sinks
        self._position: int | None = None
        self._is_numbered = False  # all that was told of here has a position
        self.wake = asyncio.Event()

    def tell(self) -> None:
        """There may be new ones."""
        self._is_numbered = False
        self.wake.set()

    async def number(self) -> None:
        """See to it that events have positions, also while nobody reads them: else whoever comes later waits for it."""
        if self._is_numbered:
            return
        self._is_numbered = True
        try:
            await self._store.last_position()
        except BaseException:  # cancelled, too: it is still to be done
            self._is_numbered = False
            raise

    async def drain(self) -> None:
        """Deliver everything committed so far, if somebody waits for it."""
        if not any(sink.is_wanted for sink in self.sinks):
            self._position = None
            return
        if self._position is None:
            self._position = await self._store.last_position()
            for sink in self.sinks:
                await sink.begin(self._position)
        while events := await self._store.events_after(self._position, limit=BATCH):
            for sink in self.sinks:
                await sink.deliver(events)
            self._position = events[-1].position


class Doorbells:
    """A sink that wakes those who wait for news of one transaction."""

    def __init__(self) -> None:
        self._waiting: dict[str, set[asyncio.Event]] = {}

    @property
    def is_wanted(self) -> bool:
        return bool(self._waiting)

    async def begin(self, position: int) -> None:  # noqa: ARG002 - the port's
        """Nobody knows what happened before: everybody looks once."""
        for bells in self._waiting.values():
            for bell in bells:
                bell.set()

    async def deliver(self, events: Sequence[Event]) -> None:
        for event in events:
            if event.tx_id is not None:
                for bell in self._waiting.get(event.tx_id, ()):
                    bell.set()

    def hang(self, tx_id: str) -> asyncio.Event:
        bell = asyncio.Event()
        self._waiting.setdefault(tx_id, set()).add(bell)
        return bell

    def take_down(self, tx_id: str, bell: asyncio.Event) -> None:
        bells = self._waiting[tx_id]
        bells.discard(bell)
        if not bells:
            del self._waiting[tx_id]
