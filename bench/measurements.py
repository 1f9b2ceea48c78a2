"""All that one benchmark measured, round by round."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median

from bench.acceptance import Accepted
from bench.case import Case, Figures
from bench.figures import Spread, ratio
from bench.growth.cost import Cost
from bench.growth.idle import Idle
from bench.growth.room import Room
from bench.latency import Latency


@dataclass(slots=True)
class Measurements:
    """`accepted` is by the form of the requests, and whether the lanes were paused; `growth` by what there is more of, and
    how much of it."""

    runs: dict[str, list[Figures]] = field(default_factory=lambda: defaultdict(list))
    cases: dict[str, Case] = field(default_factory=dict)
    accepted: dict[tuple[str, bool], list[Accepted]] = field(default_factory=lambda: defaultdict(list))
    latencies: list[Latency] = field(default_factory=list)
    growth: dict[str, dict[int, list[Cost]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(list)))
    room: dict[str, Room] = field(default_factory=dict)
    idle: list[Idle] = field(default_factory=list)

    def done(self, case: str) -> float | None:
        """The median; None if the case was not run."""
        return median(run.done for run in self.runs[case]) if self.runs.get(case) else None

    def executed(self, case: str) -> float:
        return median(run.executed for run in self.runs[case])

    def cpu(self, case: str) -> Mapping[str, float]:
        """Microseconds of a core for a transaction, by who used it."""
        runs = self.runs[case]
        return {who: median(run.cpu[who] for run in runs) for who in runs[0].cpu}

    def against(self, case: str, other: str) -> float | None:
        """How many times as fast as the other; None if one of them was not run."""
        if not self.runs.get(case) or not self.runs.get(other):
            return None
        return ratio([run.done for run in self.runs[case]], [run.done for run in self.runs[other]])

    def accepted_rate(self, form: str, *, paused: bool) -> float | None:
        found = self.accepted.get((form, paused))
        return median(one.rate for one in found) if found else None

    def latency(self) -> Latency | None:
        if not self.latencies:
            return None
        return Latency(
            rate=median(one.rate for one in self.latencies),
            accept=Spread.median_of([one.accept for one in self.latencies]),
            broadcast=Spread.median_of([one.broadcast for one in self.latencies]),
            broadcast_at_first=Spread.median_of([one.broadcast_at_first for one in self.latencies]),
            mined=Spread.median_of([one.mined for one in self.latencies]),
        )

    def grown(self, what: str, much: int, little: int) -> float | None:
        """The throughput with much of it against that with little; None if one was not measured."""
        costs = self.growth.get(what, {})
        if not costs.get(much) or not costs.get(little):
            return None
        return ratio([cost.done for cost in costs[much]], [cost.done for cost in costs[little]])
