"""Who had which lane when: read from the leases themselves, many times a second, and how long a lane went without."""

from __future__ import annotations

import asyncio
import statistics
import time
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import asyncpg

EVERY_SECONDS = 0.05

# A lane that was taken just before its owner went is seen so much later at most.
BLUR_MS = 150

LOOK = """
    SELECT address, owner, epoch,
        EXISTS (SELECT 1 FROM slots s WHERE s.address = l.address AND NOT settled)
        OR EXISTS (SELECT 1 FROM transactions t WHERE t.address = l.address AND state = 'queued' AND NOT held) AS busy
    FROM leases l
"""
ALIVE = "SELECT owner FROM nodes"


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class Look:
    at: int
    owner: str | None
    epoch: int
    busy: bool


@dataclass(frozen=True, slots=True)
class Departure:
    """An owner that stopped working, and why."""

    cause: str
    owner: str
    at: int


@dataclass(slots=True)
class Lookout:
    """Watches the leases over a connection of its own."""

    dsn: str
    schema: str
    seen: dict[str, list[Look]] = field(default_factory=lambda: defaultdict(list))  # what changed, by lane
    met: dict[str, int] = field(default_factory=dict)  # when each owner was first seen among the nodes
    departures: list[Departure] = field(default_factory=list)
    outages: list[tuple[int, int]] = field(default_factory=list)  # when the server was away

    def left(self, cause: str, owner: str | None) -> None:
        if owner is not None:
            self.departures.append(Departure(cause, owner, now_ms()))

    async def watch(self) -> None:
        while True:
            try:
                connection = await asyncpg.connect(self.dsn, timeout=5, server_settings={"search_path": self.schema})
                try:
                    while True:
                        self._note(await connection.fetch(LOOK, timeout=5))
                        for row in await connection.fetch(ALIVE, timeout=5):
                            self.met.setdefault(row["owner"], now_ms())
                        await asyncio.sleep(EVERY_SECONDS)
                finally:
                    connection.terminate()
            except (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError):
                await asyncio.sleep(EVERY_SECONDS)  # it is being restarted, or has no tables yet

    def _note(self, rows: Sequence[asyncpg.Record]) -> None:
        at = now_ms()
        for row in rows:
            seen = self.seen[row["address"]]
            look = Look(at, row["owner"], row["epoch"], row["busy"])
            if not seen or (seen[-1].owner, seen[-1].epoch, seen[-1].busy) != (look.owner, look.epoch, look.busy):
                assert not seen or look.epoch >= seen[-1].epoch, f"an epoch fell: {seen[-1]}, {look}"
                seen.append(look)

    def waits(self) -> dict[str, list[float]]:
        """By cause: how long each busy lane of an owner that left waited for the next one, in seconds."""
        found: dict[str, list[float]] = defaultdict(list)
        for departure in self.departures:
            for seen in self.seen.values():
                taken = self._taken(departure, seen)
                if taken is not None:
                    cause = departure.cause
                    if any(begin < taken and departure.at < end for begin, end in self.outages):
                        cause += ", PostgreSQL away meanwhile"
                    elif not self._had_an_heir(departure, taken):
                        cause += ", no other node up all along"
                    found[cause].append((taken - departure.at) / 1000)
        return found

    def _had_an_heir(self, departure: Departure, taken: int) -> bool:
        """Whether some other node was there all along. One that never had a lane did not get as far as to work."""
        fell = {other.owner for other in self.departures if other.at < taken}
        worked = {look.owner for seen in self.seen.values() for look in seen}
        return any(at <= departure.at and owner in worked - fell for owner, at in self.met.items())

    def _taken(self, departure: Departure, seen: Sequence[Look]) -> int | None:
        """When this lane was taken from who left; None if it had none of it, or nothing to do there."""
        at = bisect_right(seen, departure.at + BLUR_MS, key=lambda look: look.at) - 1
        if at < 0 or seen[at].owner != departure.owner or not seen[at].busy:
            return None
        later = (look for look in seen[at:] if (look.owner, look.epoch) != (seen[at].owner, seen[at].epoch))
        following = next(later, None)
        # Given back by its owner: nobody had to wait for a lease to run out.
        given_back = following is not None and following.owner is None and departure.cause != "SIGTERM"
        if following is None or given_back:
            return None
        if following.owner is None:
            following = next(later, None)
        return None if following is None else following.at


def table(waits: dict[str, list[float]]) -> list[str]:
    """As Markdown."""
    lines = [
        "| why a lane lost its owner | lanes | shortest | median | 95 % | longest, s |",
        "|---|---|---|---|---|---|",
    ]
    for cause, times in sorted(waits.items()):
        ordered = sorted(times)
        most = ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))]
        lines.append(
            f"| {cause} | {len(ordered)} | {ordered[0]:.2f} | {statistics.median(ordered):.2f} | {most:.2f} | {ordered[-1]:.2f} |"
        )
    return lines
