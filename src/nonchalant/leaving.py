"""Leaving: the steps of a shut-down, each with its time. What does not end in time is left behind, and told."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import structlog

from nonchalant.errors import NonchalantError
from nonchalant.ports import Clock
from nonchalant.waiting import within

log = structlog.get_logger()


class Leaving:
    """One shut-down. Whatever a step does or does not do, the next one comes: each survives a `kill -9` of all of them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began = clock.monotonic()
        self._took: dict[str, float] = {}

    async def step(self, name: str, action: Awaitable[object], *, seconds: float) -> None:
        began = self._clock.monotonic()
        task = asyncio.ensure_future(action)
        if await within(self._clock, seconds, [task]):
            task.cancel()
            log.warning("shutdown.slow", step=name, seconds=seconds)
        elif not task.cancelled() and (error := task.exception()) is not None:
            if isinstance(error, NonchalantError):
                log.warning("shutdown.incomplete", step=name, reason=str(error))
            else:
                log.error("shutdown.failed", step=name, exc_info=error)
        self._took[name] = round(self._clock.monotonic() - began, 3)

    def over(self) -> None:
        log.info("shutdown.done", seconds=round(self._clock.monotonic() - self._began, 3), **self._took)
