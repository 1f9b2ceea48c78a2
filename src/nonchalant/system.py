"""The real clock and real chance. Whoever starts something makes them; everybody else is given them."""

from __future__ import annotations

import asyncio
import random
import secrets
import time

from nonchalant.words import Millis


class SystemClock:
    def now(self) -> Millis:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class SystemEntropy:
    def token(self) -> str:
        return secrets.token_hex(16)

    def uniform(self, low: float, high: float) -> float:
        return random.uniform(low, high)  # noqa: S311 - spreads retries, guards nothing
