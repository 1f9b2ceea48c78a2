"""What a benchmark is made of: acts, one after another, that share what they found."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from bench.measurements import Measurements
from bench.progress import Step
from tests.postgres import Cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """How much is run. `transactions` None: as many as each act has by itself, divided by `shorter`."""

    only: Sequence[str]
    rounds: int = 3
    transactions: int | None = None
    shorter: int = 1
    seconds: float = 5.0  # of load, where a rate is measured for a while
    profile: str = ""


@dataclass(frozen=True, slots=True)
class Bench:
    """Where an act works. What is put on `stack` stays until the last one is over."""

    cluster: Cluster
    stack: AsyncExitStack
    found: Measurements = field(default_factory=Measurements)


@dataclass(frozen=True, slots=True)
class Act:
    """`run` answers with what is to be said of it."""

    step: Step
    run: Callable[[Bench], Awaitable[str]]
