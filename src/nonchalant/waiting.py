"""Waiting for a wake-up that may never come."""

from __future__ import annotations

import asyncio

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
