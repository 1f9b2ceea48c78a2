"""What a contestant is told, and what it tells: JSON, as each runs in a process of its own."""

from __future__ import annotations

import time
from collections.abc import Mapping

import msgspec

from bench import usage


class Order(msgspec.Struct, kw_only=True, frozen=True):
    contestant: str
    url: str  # of the chain's node
    lanes: int
    count: int
    first: int = 1  # the value of the first transfer
    pending: int = 0  # how many are on their way all the time, from lanes beside these
    rate: float = 0.0  # a second, for those who go by a schedule
    store: str = ""  # an address of PostgreSQL, or sqlite: and a path
    settings: str = ""  # the file, for ours in the contestant's own process
    services: tuple[str, ...] = ()  # or where ours listens
    watched: Mapping[str, tuple[int, ...]] = {}  # processes whose use of the machine is counted, by what they are
    profile: str = ""  # where to write a flame graph of the timed part


class Outcome(msgspec.Struct, kw_only=True, frozen=True):
    seconds: float
    since: int  # when it began, by the calendar, in milliseconds
    cpu: Mapping[str, float]  # seconds of a core meanwhile, by what the processes are; the contestant's own is "own"
    memory: int  # resident in the contestant's process, in bytes


class Stopwatch:
    """Started when it is made."""

    def __init__(self, order: Order) -> None:
        self._watched = order.watched
        self._since = time.time_ns() // 1_000_000
        self._cpu = self._used()
        self._began = time.monotonic()

    def stop(self) -> Outcome:
        seconds = time.monotonic() - self._began
        used = self._used()
        return Outcome(
            seconds=seconds,
            since=self._since,
            cpu={what: used[what] - before for what, before in self._cpu.items()},
            memory=usage.memory(),
        )

    def _used(self) -> dict[str, float]:
        others = {what: sum(map(usage.cpu, pids)) for what, pids in self._watched.items()}
        return {"own": time.process_time(), **others}
