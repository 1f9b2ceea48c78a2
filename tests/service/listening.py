"""A client of the stream of events, as the specification of server-sent events has it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp

PATIENCE = 60.0


@dataclass
class Listener:
    """One connection. `last_id` is what it would name when it comes back."""

    answer: aiohttp.ClientResponse
    last_id: str | None = None
    retry: int | None = None
    comments: list[str] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)

    async def next(self, seconds: float = PATIENCE) -> dict[str, Any] | None:
        """The next event; None: the stream has ended."""
        async with asyncio.timeout(seconds):
            return await self._next()

    async def until(self, condition: Callable[[list[dict[str, Any]]], bool]) -> list[dict[str, Any]]:
        """All events so far, once they are enough."""
        while not condition(self.events):
            assert await self.next() is not None, "the stream has ended"
        return self.events

    async def _next(self) -> dict[str, Any] | None:
        kind, data = "", list[str]()
        while line := (await self.answer.content.readline()).decode():
            name, _, value = line.rstrip("\n").partition(":")
            value = value.removeprefix(" ")
            if line == "\n":
                if data:
                    event = json.loads("\n".join(data))
                    assert event["kind"] == kind
                    assert str(event["position"]) == self.last_id
                    self.events.append(event)
                    return event  # type: ignore[no-any-return]
                kind = ""
            elif not name:
                self.comments.append(value)
            elif name == "id":
                self.last_id = value
            elif name == "event":
                kind = value
            elif name == "data":
                data.append(value)
            elif name == "retry":
                self.retry = int(value)
        return None


@asynccontextmanager
async def listening(
    session: aiohttp.ClientSession,
    url: str,
    last_id: str | None = None,
    headers: Mapping[str, str] | None = None,
    **query: Any,
) -> AsyncIterator[Listener]:
    """Connected: the stream stands at a position when the block begins."""
    given = {"Accept": "text/event-stream", **(headers or {})}
    if last_id is not None:
        given["Last-Event-ID"] = last_id
    timeout = aiohttp.ClientTimeout(total=None)
    async with session.get(f"{url}/v1/events", params=query, headers=given, timeout=timeout) as answer:
        assert answer.status == 200, await answer.text()
        assert answer.content_type == "text/event-stream"
        yield Listener(answer, last_id)
