"""Whether this node is well: the store answers it, and it can still say that it lives.

Nothing is asked that the engine does not ask anyway. It looks for work once a second, so the store's last answer is
rarely older; only when it is, a probe asks by itself, one for all who want to know at the same time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from nonchalant.errors import NonchalantError
from nonchalant.ports import Clock

# How old the store's last answer may be, for a probe to believe it.
FRESH_SECONDS: Final = 1.5

# How long a probe waits for an answer of its own; orchestrators commonly give one or a few seconds.
PROBE_SECONDS: Final = 0.8


class Vitals:
    """`lease_seconds`: a node that has not said for so long that it lives, others take for dead."""

    def __init__(self, clock: Clock, *, lease_seconds: float) -> None:
        self._clock = clock
        self._lease_seconds = lease_seconds
        self._answered_at: float | None = None
        self._beat_at: float | None = None
        self._probe: asyncio.Task[None] | None = None
        self.live_nodes = 1

    def answered(self, at: float) -> None:
        self._answered_at = at

    def beat(self, at: float, live_nodes: int) -> None:
        self._beat_at, self.live_nodes = at, live_nodes

    async def trouble(self, ask: Callable[[], Awaitable[object]]) -> str | None:
        """Why this node should get no requests now; None: it is well. `ask`: any question that the store answers."""
        if not self._is_fresh(FRESH_SECONDS):
            await self._ask(ask)
            if not self._is_fresh(FRESH_SECONDS + PROBE_SECONDS):
                return "the store does not answer"
        if self._beat_at is None or self._clock.monotonic() - self._beat_at > self._lease_seconds:
            return "the store takes no writes: this node could not say that it lives"
        return None

    def _is_fresh(self, seconds: float) -> bool:
        return self._answered_at is not None and self._clock.monotonic() - self._answered_at <= seconds

    async def _ask(self, ask: Callable[[], Awaitable[object]]) -> None:
        """One question at a time, however many probes there are; one that hangs is not asked again beside itself."""
        if self._probe is None:
            self._probe = asyncio.create_task(self._probing(ask))
        await asyncio.wait([self._probe], timeout=PROBE_SECONDS)

    async def _probing(self, ask: Callable[[], Awaitable[object]]) -> None:
        try:
            await ask()
        except NonchalantError:
            pass  # it is not fresh, which says enough
        finally:
            self._probe = None
