"""Housekeeping: what any node does for all of them. Each task is small, repeated, and harmless when two do it at once."""

from __future__ import annotations

from collections.abc import Collection

from nonchalant import lifecycle
from nonchalant.errors import MayHaveRun, RowMoved
from nonchalant.ports import Clock, Store
from nonchalant.twins import hold_for_twin
from nonchalant.words import LaneKey, Millis

# How many overdue transactions are ended in one round; the next one goes on.
EXPIRED_AT_ONCE = 500

# An answer that nobody fetched in this time is not waited for any more.
REPLIES_KEPT: Millis = 600_000
REPLIES_SECONDS = 60.0

# What ended long ago is removed so many at once; when there is no more, it is looked for again after a while.
REMOVED_AT_ONCE = 200
REMOVE_SECONDS = 600.0

RETENTION: Millis = 90 * 24 * 3_600_000


class Housekeeping:
    def __init__(self, store: Store, clock: Clock, *, retention: Millis = RETENTION) -> None:
        self._store = store
        self._clock = clock
        self._retention = retention
        self._forget_at = 0.0
        self._remove_at = 0.0

    async def round(self, unsure: Collection[LaneKey] = ()) -> list[LaneKey]:
        """One round; the lanes in which something changed. `unsure`: those that are yet to be compared with their chain."""
        changed = await self._expire(unsure)
        if self._clock.monotonic() >= self._forget_at:
            self._forget_at = self._clock.monotonic() + REPLIES_SECONDS
            await self._store.forget_replies(older_than=REPLIES_KEPT)
        await self._remove()
        return changed

    async def _remove(self) -> None:
        """What ended long ago goes, a little in each round for as long as there is more."""
        if self._clock.monotonic() < self._remove_at:
            return
        self._remove_at = self._clock.monotonic() + REMOVE_SECONDS  # also if it fails
        if await self._store.forget_settled(older_than=self._retention, limit=REMOVED_AT_ONCE):
            self._remove_at = 0.0

    async def _expire(self, unsure: Collection[LaneKey]) -> list[LaneKey]:
        """A queued transaction past its deadline ends, and no nonce is spent; also in lanes that nobody works.

        Not where somebody is about to look whether this store is older than what was sent: it may have run.
        """
        lanes = []
        for tx in await self._store.overdue(limit=EXPIRED_AT_ONCE):
            if tx.lane in unsure:
                continue
            moved, events = lifecycle.step(tx, lifecycle.Expired(), self._clock.now())
            try:
                await self._store.alter_queued(moved, events)
            except RowMoved:
                continue  # assigned, cancelled or ended by another node
            except MayHaveRun:
                await hold_for_twin(self._store, tx, self._clock.now())
                continue
            lanes.append(tx.lane)
        return lanes
