"""Waiting for a wake-up that may never come."""

from __future__ import annotations

import asyncio

from nonchalant.ports import Clock


async def nap(clock: Clock, wake: asyncio.Event, seconds: float) -> None:
    """Until woken, or for so long. A wake-up that came before the nap began ends it at once; none is lost."""
    if not wake.is_set():
        over = asyncio.ensure_future(clock.sleep(seconds))
        woken = asyncio.ensure_future(wake.wait())
        try:
            await asyncio.wait([over, woken], return_when=asyncio.FIRST_COMPLETED)
        finally:
            over.cancel()
            woken.cancel()
    wake.clear()
