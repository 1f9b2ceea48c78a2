"""Waiting for what may never come."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from nonchalant.ports import Clock


async def nap(clock: Clock, wake: asyncio.Event, seconds: float) -> None:
    """Until woken, or for so long. A wake-up that came before the nap began ends it at once; none is lost."""
    if not wake.is_set():
        over = asyncio.create_task(clock.sleep(seconds))
        over.add_done_callback(ring := lambda _over: wake.set())
        try:
            await wake.wait()
        finally:
            over.remove_done_callback(ring)
            over.cancel()
    wake.clear()


async def within(clock: Clock, seconds: float, tasks: Sequence[asyncio.Future[Any]]) -> list[asyncio.Future[Any]]:
    """Wait for all of them, but no longer than that; those that are not done."""
    if tasks:
        over = asyncio.ensure_future(clock.sleep(seconds))
        everyone = asyncio.ensure_future(asyncio.wait(tasks))
        try:
            await asyncio.wait([over, everyone], return_when=asyncio.FIRST_COMPLETED)
        finally:
            over.cancel()
            everyone.cancel()
    return [task for task in tasks if not task.done()]
