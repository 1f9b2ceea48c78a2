"""What a contestant is told, and what it tells: JSON, as each runs in a process of its own."""

from __future__ import annotations

import time

import msgspec


class Order(msgspec.Struct, kw_only=True, frozen=True):
    contestant: str
    url: str  # of the chain's node
    lanes: int
    count: int
    store: str = ""  # an address of PostgreSQL, or sqlite: and a path
    settings: str = ""  # the file for ours
    profile: str = ""  # where to write a flame graph of the timed part


class Outcome(msgspec.Struct, kw_only=True, frozen=True):
    """Moments are of the clock that all processes of a machine share, in seconds; so is `cpu`."""

    began: float
    ended: float
    cpu: float  # of the contestant's process, while it was timed
    since: int  # when it began, by the calendar, in milliseconds

    @property
    def seconds(self) -> float:
        return self.ended - self.began


class Stopwatch:
    """Started when it is made."""

    def __init__(self) -> None:
        self._since = time.time_ns() // 1_000_000
        self._cpu = time.process_time()
        self._began = time.monotonic()

    def stop(self) -> Outcome:
        ended = time.monotonic()
        return Outcome(began=self._began, ended=ended, cpu=time.process_time() - self._cpu, since=self._since)
