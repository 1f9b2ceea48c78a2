"""What `nonchalant bench` does."""

from __future__ import annotations

import asyncio
import json
import shlex
import signal
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from rich.console import Console

from bench import audit, books, callers, database, generator, plan, plot, rpc, service, site, tables
from bench.acts import Act, Bench, Scope
from bench.growth import plan as growth_plan
from bench.measurements import Measurements
from bench.progress import Progress
from bench.targets import verdicts
from tests import anvil, postgres, results

PLOT: Final = Path(__file__).with_name("results.svg")
SHORTER: Final = 10  # times, of a quick one
WIDTH_IN_A_FILE: Final = 150

# What stops a benchmark and tells in its own words why.
TOLD: Final = (
    audit.Failed,
    books.NotSettled,
    callers.Refused,
    generator.Unusable,
    postgres.NotInstalled,
    rpc.RpcError,
    service.NotStarted,
    site.NotDone,
    FileNotFoundError,
)


def main(
    *,
    long: bool,
    quick: bool,
    only: Sequence[str],
    rounds: int | None,
    transactions: int | None,
    record: bool,
    profile: Path | None,
    as_json: bool,
) -> int:
    """The exit code: 0 if every run was audited and found clean, whatever was reached."""
    names = growth_plan.NAMES if long else plan.NAMES
    unknown = [name for name in only if name not in names]
    if unknown:
        sys.stderr.write(f"there is no {unknown[0]}; --only takes: {', '.join(names)}\n")
        return 2
    scope = Scope(
        only=only or names,
        rounds=rounds or (1 if quick else 3),
        transactions=transactions,
        shorter=SHORTER if quick else 1,
        seconds=2.0 if quick else 5.0,
        profile="" if profile is None else str(profile.absolute()),
    )
    width = None if sys.stdout.isatty() else WIDTH_IN_A_FILE
    console = Console(highlight=False, soft_wrap=True, width=width, stderr=as_json)
    planned = growth_plan.acts(scope) if long else plan.acts(scope)
    try:
        found = asyncio.run(_carry_out(planned, console))
    except TOLD as trouble:
        console.print(f"\nThe benchmark failed: {type(trouble).__doc__}", style="bold red", markup=False)
        console.print(str(trouble), markup=False)
        return 1
    except (KeyboardInterrupt, asyncio.CancelledError):
        console.print("\nstopped; all that was started is gone")
        return 130
    command = shlex.join(["nonchalant", *sys.argv[1:]])
    if as_json:
        sys.stdout.write(json.dumps(_document(found, command), indent=2) + "\n")
    else:
        _tell(found, console)
    _keep(found, command, console, record=record, whole=not (long or quick or only or rounds or transactions))
    return 0


async def _carry_out(planned: Sequence[Act], console: Console) -> Measurements:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    anvil.binary()  # missing, it should be said now and not after ten minutes
    progress = Progress(console, [act.step for act in planned])
    with database.server() as cluster:
        async with AsyncExitStack() as stack:
            bench = Bench(cluster, stack)
            for act in planned:
                with progress.step() as said:
                    said.append(await act.run(bench))
    return bench.found


def _tell(found: Measurements, console: Console) -> None:
    for table in tables.tables(found):
        console.print()
        table.show(console)


def _document(found: Measurements, command: str) -> dict[str, object]:
    return {
        "command": command,
        "machine": results.machine(),
        "runs": {name: [asdict(run) for run in runs] for name, runs in found.runs.items()},
        "accepted": [
            {"form": form, "paused": paused, **asdict(run)}
            for (form, paused), runs in found.accepted.items()
            for run in runs
        ],
        "latency": [asdict(one) for one in found.latencies],
        "growth": {
            what: {str(much): [asdict(cost) for cost in costs] for much, costs in grown.items()}
            for what, grown in found.growth.items()
        },
        "room": {store: asdict(taken) for store, taken in found.room.items()},
        "idle": [asdict(one) for one in found.idle],
        "targets": [asdict(one) for one in verdicts(found)],
    }


def _keep(found: Measurements, command: str, console: Console, *, record: bool, whole: bool) -> None:
    """The plot of a whole benchmark, or of what is recorded; the entry in the results if that was asked for."""
    bars = plot.groups(found)
    if bars and (record or whole):
        note = f"{datetime.now(UTC):%Y-%m-%d}; {results.machine()}; {command}"
        PLOT.write_text(plot.draw("Nonchalant, measured", note, bars))
        console.print(f"\nthe plot is in {PLOT}")
    if record:
        markdown = [line for table in tables.tables(found) for line in (*table.markdown(), "")]
        results.record("Growth" if found.growth or found.idle else "Benchmark", command, [], markdown[:-1])
        console.print(f"recorded in {results.RESULTS}")
