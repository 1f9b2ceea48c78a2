"""The stream of events, read over lost connections and from whichever node answers, without missing one."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

import msgspec

from nonchalant.client.service import FIRST_PAUSE, Answer, Service, Silence, pause_before_repeating
from nonchalant.views import EventView

_decoder = msgspec.json.Decoder(EventView)


@dataclass(slots=True)
class Reading:
    """What server-sent events say, line by line. `position` is where to go on after a lost connection."""

    position: str | None = None
    pause: float = FIRST_PAUSE
    _id: str | None = None
    _data: list[str] = field(default_factory=list)

    def take(self, line: str) -> str | None:
        """The data of an event, when its last line was taken."""
        if not line:
            # Only now: of what is cut off before its end, nothing was seen.
            told, self._data = "\n".join(self._data), []
            self.position, self._id = self._id or self.position, None
            return told or None
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        match name:
            case "data":
                self._data.append(value)
            case "id":
                self._id = value
            case "retry" if value.isascii() and value.isdigit():
                self.pause = min(int(value[:6]) / 1000, 60.0)
        return None

    def cut(self) -> None:
        """The connection was lost: half an event is none."""
        self._id, self._data = None, []


async def follow(
    service: Service, query: Sequence[tuple[str, str]], after: int | None
) -> AsyncGenerator[EventView, None]:
    """Once it was reached, a service that goes away is waited for; before that, only as often as a call is repeated."""
    reading = Reading(None if after is None else str(after))
    was_there, tried = False, 0
    while True:
        outcome: Answer | Silence = Silence(f"the service at {service.url} ended the stream", heard=False)
        headers = {"Accept": "text/event-stream"}
        if reading.position is not None:
            headers["Last-Event-ID"] = reading.position
        async with aclosing(service.lines("/v1/events", query, headers)) as lines:
            async for said in lines:
                if isinstance(said, Answer | Silence):
                    outcome = said
                    break
                was_there, tried = True, 0
                if (told := reading.take(said)) is not None:
                    yield _decoder.decode(told)
        reading.cut()
        spread = service.entropy.uniform(0.75, 1.25)
        pause = pause_before_repeating(outcome, min(tried, 7), is_safe=True, spread=spread)
        if pause is None or (not was_there and tried >= service.retries):
            raise service.failure(outcome)
        await service.clock.sleep(max(pause, reading.pause * spread) if was_there else pause)
        tried += 1
