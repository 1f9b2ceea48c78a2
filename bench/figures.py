"""Arithmetic over measurements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest of the values that at least so many percent of them do not exceed."""
    if not values:
        raise ValueError("nothing was measured, so there is no percentile of it")
    return sorted(values)[max(0, math.ceil(len(values) * percent / 100) - 1)]


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The median of the rounds' own ratios: whatever slowed a whole round slowed both."""
    return median(one / other for one, other in zip(ours, theirs, strict=True))


@dataclass(frozen=True, slots=True)
class Spread:
    p50: float
    p95: float
    p99: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(*(percentile(values, percent) for percent in (50, 95, 99)))

    @classmethod
    def median_of(cls, runs: Sequence[Spread]) -> Spread:
        return cls(median(run.p50 for run in runs), median(run.p95 for run in runs), median(run.p99 for run in runs))
