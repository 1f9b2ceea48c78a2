"""What is to be reached on two cores with the node on the same machine, and whether it was."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bench.acceptance import BATCHES, SINGLY
from bench.growth.idle import Idle
from bench.measurements import Measurements


@dataclass(frozen=True, slots=True)
class Verdict:
    what: str
    wanted: str
    found: str
    reached: bool

    def __str__(self) -> str:
        return f"{self.what}: {self.found}, wanted {self.wanted}: {'reached' if self.reached else 'NOT reached'}"


def at_least(what: str, found: float | None, wanted: float, form: str = "{:,.0f} a second") -> Iterator[Verdict]:
    """Nothing of what was not measured."""
    if found is not None:
        yield Verdict(what, f"≥ {form.format(wanted)}", form.format(found), found >= wanted)


def at_most(what: str, found: float | None, wanted: float, form: str) -> Iterator[Verdict]:
    if found is not None:
        yield Verdict(what, f"≤ {form.format(wanted)}", form.format(found), found <= wanted)


def verdicts(found: Measurements) -> list[Verdict]:
    latency = found.latency()
    p50, p99 = (None, None) if latency is None else (latency.broadcast.p50, latency.broadcast.p99)
    return [
        *at_least("anvil, confirmed against the limit", found.against("anvil-library", "anvil-limit"), 0.8, "{:.0%}"),
        *at_least("anvil, against web3.py", found.against("anvil-library", "web3-local"), 10, "{:.1f} ×"),
        *at_least("stub, against the bare prototype", found.against("library", "prototype"), 0.5, "{:.0%}"),
        *at_least("one lane, window 1,000, blocks of 0.25 s", found.done("one-lane"), 1_500),
        *at_least("accepted by REST, singly", found.accepted_rate(SINGLY.name, paused=True), 2_500),
        *at_least("accepted by REST, batches of 100", found.accepted_rate(BATCHES.name, paused=True), 15_000),
        *at_most("acceptance to broadcast, half load, p50", p50, 15, "{:.0f} ms"),
        *at_most("acceptance to broadcast, half load, p99", p99, 75, "{:.0f} ms"),
        *at_least("10⁶ settled, against an empty store", found.grown("settled", 10**6, 0), 0.9, "{:.0%}"),
        *(verdict for idle in found.idle for verdict in _of_idle(idle)),
    ]


def _of_idle(idle: Idle) -> Iterator[Verdict]:
    if idle.lanes >= 10_000:
        yield from at_most("10,000 idle lanes, queries", idle.queries, 5, "{:.1f} a second")
        yield from at_most("10,000 idle lanes, memory", idle.memory / 2**20, 150, "{:.0f} MiB")
