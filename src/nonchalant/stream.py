"""The stream of events as one node has it: read from the store once, for everybody who listens here.

What was told last is in memory. Whoever is further behind reads pages from the store until he has caught up.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

import msgspec

from nonchalant.interest import Interest
from nonchalant.model import Event
from nonchalant.ports import Store
from nonchalant.views import show_event
from nonchalant.words import TxId

REMEMBERED: Final = 5_000
PAGE: Final = 500
TENANTS_REMEMBERED: Final = 20_000

_encoder = msgspec.json.Encoder()


class Told:
    """An event, and how it is written: once, however many read it."""

    __slots__ = ("_text", "event")

    def __init__(self, event: Event) -> None:
        self.event = event
        self._text: bytes | None = None

    @property
    def text(self) -> bytes:
        """As JSON, in one line."""
        if self._text is None:
            self._text = _encoder.encode(show_event(self.event))
        return self._text


class Page(NamedTuple):
    """What comes after a position, in order. `upto`: nothing else up to there is missing."""

    told: Sequence[Told]
    upto: int


class Stream:
    """A sink of the notifier."""

    def __init__(self, store: Store, *, remembered: int = REMEMBERED) -> None:
        self.news = asyncio.Event()  # set when there is more; then it is another one
        self._store = store
        self._most = remembered
        self._listeners = 0
        self._recent: list[Told] = []
        self._floor: int | None = None  # whatever comes after this position is in memory; None: nothing is
        self._tenants: OrderedDict[TxId, str] = OrderedDict()

    @contextmanager
    def heard(self) -> Iterator[None]:
        """Somebody listens while this lasts. Before he waits for `news` he reads what there is: it comes from the store."""
        if not self._listeners:
            self._forget()
        self._listeners += 1
        try:
            yield
        finally:
            self._listeners -= 1

    @property
    def is_wanted(self) -> bool:
        return self._listeners > 0

    async def begin(self, position: int) -> None:
        self._forget()
        self._floor = position
        self._tell()

    async def deliver(self, events: Sequence[Event]) -> None:
        if self._floor is None:
            self._floor = events[0].position - 1
        self._recent += map(Told, events)
        if len(self._recent) >= 2 * self._most:  # now and then, not one by one
            gone = len(self._recent) - self._most
            self._floor = self._recent[gone - 1].event.position
            del self._recent[:gone]
        self._tell()

    def _forget(self) -> None:
        self._recent, self._floor = [], None

    def _tell(self) -> None:
        self.news.set()
        self.news = asyncio.Event()

    async def page(self, after: int, limit: int = PAGE) -> Page:
        """What comes next, at most so many. Empty: nothing yet."""
        if self._floor is not None and after >= self._floor:
            first = bisect_right(self._recent, after, key=lambda told: told.event.position)
            told = self._recent[first : first + limit]
        else:
            told = [Told(event) for event in await self._store.events_after(after, limit=limit)]
        return Page(told, told[-1].event.position if told else after)

    async def seen_by(self, interest: Interest, told: Sequence[Told]) -> list[Told]:
        """Those of them that are wanted and may be seen."""
        wanted = [one for one in told if interest.wants(one.event)]
        if interest.tenant is None:
            return wanted
        tenants = await self._tenants_of({one.event.tx_id for one in wanted if one.event.tx_id is not None})
        return [one for one in wanted if interest.may_see(one.event, tenants)]

    async def _tenants_of(self, tx_ids: set[TxId]) -> Mapping[TxId, str]:
        """Events do not say whose they are. A transaction never changes hands, so what is known stays true."""
        found = {tx_id: self._tenants[tx_id] for tx_id in tx_ids if tx_id in self._tenants}
        if missing := sorted(tx_ids - found.keys()):
            found |= await self._store.tenants(missing)
        for tx_id, tenant in found.items():
            self._tenants[tx_id] = tenant
            self._tenants.move_to_end(tx_id)
        while len(self._tenants) > TENANTS_REMEMBERED:
            self._tenants.popitem(last=False)
        return found
