"""What happened in a history, line by line; equal histories have equal digests."""

from __future__ import annotations

import hashlib
from collections import deque

from nonchalant.sim.loop import SimLoop


class Trace:
    """Keeps the last `keep` lines for reading (None: all), and a digest over all of them."""

    def __init__(self, loop: SimLoop, *, keep: int | None = 400) -> None:
        self.whole = keep is None
        self._loop = loop
        self._digest = hashlib.sha256()
        self.lines: deque[str] = deque(maxlen=keep)

    def __call__(self, who: str, what: str) -> None:
        line = f"{self._loop.time():10.3f} {who:<10} {what}"
        self.lines.append(line)
        self._digest.update(line.encode())

    def aside(self, who: str, what: str) -> None:
        """For reading only: what is said here does not make two histories different."""
        self.lines.append(f"{self._loop.time():10.3f} {who:<10}   {what}")

    def digest(self) -> str:
        """Over every line and every step of the loop up to now."""
        full = self._digest.copy()
        full.update(b"%d %d" % (self._loop.steps, self._loop.fingerprint))
        return full.hexdigest()
