"""Which events tell the same fact again.

A day of retries tells one thing thousands of times. A history keeps the first of them and the newest, and the newest
says how often it was told and since when.
"""

from __future__ import annotations

from collections.abc import Mapping

from nonchalant.model import Event
from nonchalant.values import replace
from nonchalant.words import Millis

# What may be told without end while nothing moves, and what makes two of them the same. All else costs a nonce, a block
# or a person's word each time.
REPEATABLE: Mapping[str, tuple[str, ...]] = {
    "attempt.sent": ("hash",),
    "attempt.refused": ("endpoint", "reason"),
    "tx.attention": ("code", "wish", "refused"),
    "tx.held": ("code",),
    "tx.released": (),
    "lane.attention": ("code",),
    "lane.lease": ("owner",),
    "lane.paused": ("mode", "code"),
    "lane.resumed": ("mode", "code"),
}


def fact_of(event: Event) -> str | None:
    """The same for two events that tell the same of the same transaction or lane; None: each counts by itself."""
    names = REPEATABLE.get(event.kind)
    if names is None:
        return None
    return "\n".join([event.tx_id or str(event.lane), event.kind, *(str(event.data.get(name)) for name in names)])


def repeated(event: Event, times: int, since: Millis) -> Event:
    """The event as the newest of so many, of which the first was told then."""
    return replace(event, times=times, since=since)
