"""Housekeeping: what any node does for all of them. Each task is small, repeated, and harmless when two do it at once."""

from __future__ import annotations

from nonchalant import lifecycle
from nonchalant.errors import RowMoved
from nonchalant.model import LaneKey, Millis
from nonchalant.ports import Clock, Store

# How many overdue transactions are ended in one round; the next one goes on.
EXPIRED_AT_ONCE = 500

# An answer that nobody fetched in this time is not waited for any more.
REPLIES_KEPT: Millis = 600_000
REPLIES_SECONDS = 60.0


class Housekeeping:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._forget_at = 0.0

    async def round(self) -> list[LaneKey]:
        """One round; the lanes in which something changed."""
        changed = await self._expire()
        if self._clock.monotonic() >= self._forget_at:
            self._forget_at = self._clock.monotonic() + REPLIES_SECONDS
            await self._store.forget_replies(older_than=REPLIES_KEPT)
        return changed

    async def _expire(self) -> list[LaneKey]:
        """A queued transaction past its deadline ends, and no nonce is spent; also in lanes that nobody works."""
        lanes = []
        for tx in await self._store.overdue(limit=EXPIRED_AT_ONCE):
            moved, events = lifecycle.step(tx, lifecycle.Expired(), self._clock.now())
            try:
                await self._store.alter_queued(moved, events)
            except RowMoved:
                continue  # assigned, cancelled or ended by another node
            lanes.append(tx.lane)
        return lanes
