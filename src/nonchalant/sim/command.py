"""`nonchalant sim`: runs histories and says what came of them."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from itertools import chain, zip_longest
from pathlib import Path

from rich.console import Console
from rich.table import Table

from nonchalant.sim.moves import Move
from nonchalant.sim.mutants import MUTANTS
from nonchalant.sim.properties import EDGES
from nonchalant.sim.run import Order, Tally, carry_out, histories
from nonchalant.sim.schedule import Kind
from nonchalant.sim.violations import BUG
from nonchalant.sim.world import History, stopwatch
from nonchalant.values import replace

WIDTH_IN_A_FILE = 150

# How often progress is said, in histories.
TELL_EVERY = 50

# The last lines of a failing history's trace that are shown.
SHOWN = 100


def main(seeds: int, first: int, mutant: str | None, as_json: bool, jobs: int | None, trace: Path | None) -> int:
    """Run `seeds` histories from `first` on; 0 only if every promise held and everything that should occur did.

    `trace`: where to write the whole trace of the first history that fails, or of the only one.
    """
    if mutant == "list":
        sys.stdout.write("".join(f"{name}\n" for name in MUTANTS))
        return 0
    if mutant is not None and mutant not in MUTANTS:
        sys.stderr.write(f"there is no mutant {mutant}; `--mutant list` names them\n")
        return 2
    orders = [Order(seed, mutant) for seed in range(first, first + seeds)]
    found = histories(orders, min(seeds, jobs or os.cpu_count() or 1))
    if mutant:
        return _hunt(found, mutant, as_json, trace)
    return _survey(found, seeds, first, as_json, trace)


def _survey(found: Iterator[History], seeds: int, first: int, as_json: bool, trace: Path | None) -> int:
    # A log file has no width of its own; at the usual 80 the figures of the table would be cut off.
    width = None if sys.stdout.isatty() else WIDTH_IN_A_FILE
    console = Console(stderr=as_json, highlight=False, soft_wrap=True, width=width)
    seconds, tally = stopwatch(), Tally()
    for number, history in enumerate(found, 1):
        if trace and (seeds == 1 or (history.violations and not tally.violations)):
            _write_trace(trace, Order(history.seed))
        tally.add(history)
        for violation in history.violations:
            console.print("\n".join(history.lines[-SHOWN:]), markup=False)
            console.print(str(violation), style="bold red", markup=False)
        if number % TELL_EVERY == 0 and not as_json:
            console.print(f"{number} of {seeds} histories, {len(tally.violations)} broken, {_speed(number, seconds())}")
    if as_json:
        sys.stdout.write(json.dumps(_document(tally, seeds, first), indent=2) + "\n")
    else:
        _report(console, tally, _speed(seeds, seconds()))
    return 0 if tally.clean else 1


def _hunt(found: Iterator[History], mutant: str, as_json: bool, trace: Path | None) -> int:
    """Stop at the first history that shows the mutant: by a promise, not by its own stumbling."""
    console = Console(stderr=as_json, highlight=False, soft_wrap=True)
    tried = 0
    for history in found:
        tried += 1
        for violation in history.violations:
            if violation.promise != BUG:
                if as_json:
                    caught = {"mutant": mutant, "seed": violation.seed, "promise": violation.promise}
                    sys.stdout.write(json.dumps(caught | {"what": violation.what}) + "\n")
                if trace:
                    _write_trace(trace, Order(history.seed, mutant))
                console.print("\n".join(history.lines[-SHOWN:]), markup=False)
                console.print(f"{mutant} is caught after {tried} histories: {violation}", markup=False)
                return 1
    if as_json:
        sys.stdout.write(json.dumps({"mutant": mutant, "seed": None, "promise": None}) + "\n")
    console.print(f"{mutant} survived {tried} histories", markup=False)
    return 0


def _write_trace(path: Path, order: Order) -> None:
    """Live through it once more, keeping every line."""
    path.write_text("\n".join(carry_out(replace(order, whole_trace=True)).lines) + "\n")


def _speed(histories: int, seconds: float) -> str:
    return f"{60 * histories / max(seconds, 0.001):.0f} histories a minute"


def _document(tally: Tally, seeds: int, first: int) -> dict[str, object]:
    return {
        "first": first,
        "seeds": seeds,
        "histories": tally.histories,
        "averages": tally.averages(),
        "faults": {str(kind): tally.faults[kind] for kind in Kind},
        "edges": {str(edge): tally.edges[edge] for edge in EDGES},
        "moves": {str(move): tally.moves[move] for move in Move},
        "never": tally.never(),
        "too_small": [{"seed": seed, "lacking": lacking} for seed, lacking in tally.too_small],
        "violations": [
            {"seed": one.seed, "promise": one.promise, "at": round(one.at, 3), "what": one.what}
            for one in tally.violations
        ],
        "digest": tally.digest,
    }


def _report(console: Console, tally: Tally, speed: str) -> None:
    averages = ", ".join(f"{size:g} {what}" for what, size in tally.averages().items())
    table = Table(box=None, pad_edge=False)
    table.add_column("fault", no_wrap=True)
    table.add_column("times", justify="right")
    table.add_column("edge of the lifecycle", no_wrap=True)
    table.add_column("times", justify="right")
    table.add_column("move", no_wrap=True)
    table.add_column("times", justify="right")
    faults = [(str(kind), str(tally.faults[kind])) for kind in Kind]
    edges = [(str(edge), str(tally.edges[edge])) for edge in EDGES]
    moves = [(str(move), str(tally.moves[move])) for move in Move]
    for row in zip_longest(faults, edges, moves, fillvalue=("", "")):
        table.add_row(*chain.from_iterable(row))
    console.print(table)
    console.print(f"{tally.histories} histories, {speed}; on average {averages}", markup=False)
    for seed, lacking in tally.too_small:
        console.print(f"seed {seed} does not count: {lacking}", style="bold red", markup=False)
    for what in tally.never():
        console.print(f"never happened: {what}", style="bold red", markup=False)
    for violation in tally.violations:
        console.print(str(violation), style="bold red", markup=False)
    if tally.clean:
        console.print("every promise held")
