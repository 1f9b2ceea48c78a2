"""Figures as tables: for a terminal, and as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

import rich.table
from rich.console import Console

from bench.chain import Kind
from bench.figures import Spread
from bench.generator import name as generator_name
from bench.latency import BEGINNING_SECONDS
from bench.measurements import Measurements
from bench.targets import verdicts


@dataclass(frozen=True, slots=True)
class Table:
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]

    def show(self, console: Console) -> None:
        table = rich.table.Table(title=self.title, title_justify="left", title_style="bold")
        for number, column in enumerate(self.columns):
            table.add_column(column, justify="right" if number else "left")
        for row in self.rows:
            table.add_row(*row)
        console.print(table)

    def markdown(self) -> list[str]:
        lines = [self.columns, ["---", *["---:"] * (len(self.columns) - 1)], *self.rows]
        return [f"**{self.title}**", "", *(f"| {' | '.join(line)} |" for line in lines)]


def tables(found: Measurements) -> list[Table]:
    """Of all that was measured."""
    made = [
        _throughput(found, "stub"),
        _throughput(found, "anvil"),
        _accepted(found),
        _latency(found),
        *(_growth(found, what) for what in found.growth),
        _room(found),
        _idle(found),
        _verdicts(found),
    ]
    return [table for table in made if table.rows]


def _verdicts(found: Measurements) -> Table:
    rows = [(one.what, one.wanted, one.found, "reached" if one.reached else "NOT reached") for one in verdicts(found)]
    return Table("What is to be reached", ("", "wanted", "found", ""), rows)


def _throughput(found: Measurements, chain: Kind) -> Table:
    """Ratios are medians of the rounds' own; done means confirmed for ours, which is final."""
    prefix = "anvil-" if chain == "anvil" else ""
    others = {"of the limit": f"{prefix}limit", "of the prototype": f"{prefix}prototype"}
    others |= {"of the base case": "library"} if chain == "stub" else {"of web3.py": "web3-local"}
    columns = ("", "done/s", "executed/s", *others, "µs of a core: itself", "node", "database", "callers")
    rows = []
    for name, case in found.cases.items():
        if case.chain != chain or not found.runs[name]:
            continue
        cpu = dict(found.cpu(name))
        callers = cpu.pop("own") if case.is_service else None
        itself = cpu["ours"] if case.is_service else cpu["own"]
        used = (itself, cpu.get("chain"), cpu.get("database"), callers)
        ratios = [found.against(name, other) for other in others.values()]
        rows.append(
            (
                case.title,
                f"{found.done(name):,.0f}",
                f"{found.executed(name):,.0f}",
                *("" if one is None else f"{one:.2f}" for one in ratios),
                *("" if one is None else f"{one:.0f}" for one in used),
            )
        )
    return Table(f"Transactions on {'the stub node' if chain == 'stub' else 'anvil'}", columns, rows)


def _accepted(found: Measurements) -> Table:
    rows = [
        (
            f"{form}, {'lanes paused' if paused else 'everything on'}",
            f"{median(one.rate for one in runs):,.0f}",
            f"{median(one.cpu for one in runs):.0f}",
            f"{median(one.share for one in runs):.0%}",
        )
        for (form, paused), runs in found.accepted.items()
    ]
    columns = ("", "accepted/s", "µs of a core of ours, each", "of a core for the generator")
    return Table(f"Accepted by REST, durably; load by {generator_name()}", columns, rows)


def _latency(found: Measurements) -> Table:
    latency = found.latency()
    if latency is None:
        return Table("", (), ())

    def rows() -> Iterator[tuple[str, ...]]:
        parts: dict[str, Spread] = {
            "due → accepted": latency.accept,
            "accepted → broadcast": latency.broadcast,
            "broadcast → seen mined": latency.mined,
            f"accepted → broadcast in the first {BEGINNING_SECONDS:g} s": latency.broadcast_at_first,
        }
        for what, spread in parts.items():
            yield what, *(f"{value:.1f}" for value in (spread.p50, spread.p95, spread.p99))

    title = f"Latency in ms, {latency.rate:,.0f} arrivals a second by REST: half of what it carries; blocks of 250 ms"
    return Table(title, ("", "p50", "p95", "p99"), list(rows()))


def _growth(found: Measurements, what: str) -> Table:
    costs = found.growth[what]
    rows = [
        (
            f"{much:,}",
            f"{median(cost.done for cost in runs):,.0f}",
            f"{found.grown(what, much, min(costs)):.2f}",
            f"{median(cost.cpu for cost in runs):.0f}",
            f"{median(cost.database_cpu for cost in runs):.0f}",
            f"{median(cost.memory for cost in runs) / 2**20:.0f}",
        )
        for much, runs in sorted(costs.items())
    ]
    columns = (what, "done/s", "of the first", "µs of a core of ours, each", "database", "MiB, callers included")
    return Table(f"Growth: more {what}", columns, rows)


def _room(found: Measurements) -> Table:
    rows = [(store, f"{taken.left:,.0f}", f"{taken.tight:,.0f}") for store, taken in found.room.items()]
    return Table("Bytes of a database for a settled transaction", ("", "as the run left it", "after VACUUM"), rows)


def _idle(found: Measurements) -> Table:
    rows = [
        (f"{one.lanes:,} lanes", f"{one.queries:.1f}", f"{one.memory / 2**20:.0f}", f"{one.cpu:.1%}")
        for one in found.idle
    ]
    return Table("A node at rest", ("", "queries/s", "MiB", "of a core"), rows)
