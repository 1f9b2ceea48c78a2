"""How fast transactions go through Nonchalant, side by side with what else one could do.

All contestants get the same work in the same run, round by round: the limit (pre-signed bytes blasted at the node), a
bare prototype without promises, web3.py as a user would write it, and ours in all its forms. Each run of ours is audited:
every transaction once on the chain, nonces without gaps, the store agreeing.
"""

from __future__ import annotations

import argparse
import asyncio
import shlex
import signal
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from rich.console import Console

from bench import audit, books, callers, database, generator, plot, rpc, service, site, tables
from bench.measurements import Measurements
from bench.plan import NAMES, Scope, acts
from bench.progress import Progress
from bench.targets import verdicts
from tests import anvil, postgres, results

PLOT: Final = Path(__file__).with_name("results.svg")
QUICK: Final = 10  # times less of everything

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
WIDTH_IN_A_FILE: Final = 150


def main(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    unknown = [name for name in options.only or () if name not in NAMES]
    if unknown:
        sys.stderr.write(f"there is no {unknown[0]}; --only takes: {', '.join(NAMES)}\n")
        return 2
    console = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else WIDTH_IN_A_FILE)
    scope = Scope(
        only=options.only or NAMES,
        rounds=options.rounds or (1 if options.quick else 3),
        transactions=options.transactions,
        shorter=QUICK if options.quick else 1,
        seconds=2.0 if options.quick else 5.0,
        profile=options.profile,
    )
    try:
        found = asyncio.run(_measure(scope, console))
    except TOLD as trouble:
        console.print(f"\nThe benchmark failed: {type(trouble).__doc__}", style="bold red", markup=False)
        console.print(str(trouble), markup=False)
        return 1
    except (KeyboardInterrupt, asyncio.CancelledError):
        console.print("\nstopped; everything that was started is gone")
        return 130
    _tell(found, console)
    command = shlex.join(["nonchalant", "bench", *arguments])
    is_whole = scope == Scope()
    if options.record or is_whole:
        groups = plot.groups(found)
        if groups:
            PLOT.write_text(plot.draw("Nonchalant, measured", _note(command), groups))
            console.print(f"the plot is in {PLOT}")
    if options.record:
        _record(found, command)
        console.print(f"recorded in {results.RESULTS}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="nonchalant bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one round, a tenth of the work: about three minutes")
    parser.add_argument(
        "--only", type=lambda text: text.split(","), metavar="NAMES", help=f"some of: {', '.join(NAMES)}"
    )
    parser.add_argument("--rounds", type=int, metavar="N", help="3 unless said")
    parser.add_argument("--transactions", type=int, metavar="N", help="of each case, instead of its own number")
    parser.add_argument("--record", action="store_true", help="add an entry to bench/RESULTS.md, and draw the plot")
    parser.add_argument(
        "--profile", default="", metavar="FILE", help="by py-spy, of ours: FILE.svg, .json (speedscope) or .txt"
    )
    return parser


async def _measure(scope: Scope, console: Console) -> Measurements:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    anvil.binary()  # missing, it should be said now and not after ten minutes
    planned, found = acts(scope), Measurements()
    progress = Progress(console, [act.step for act in planned])
    with database.server() as cluster:
        for act in planned:
            with progress.step() as said:
                said.append(await act.run(found, cluster))
    return found


def _tell(found: Measurements, console: Console) -> None:
    for table in tables.tables(found):
        console.print()
        table.show(console)
    reached = verdicts(found)
    if reached:
        console.print()
        tables.of_verdicts(reached).show(console)


def _note(command: str) -> str:
    return f"{datetime.now(UTC):%Y-%m-%d}; {results.machine()}; {command}"


def _record(found: Measurements, command: str) -> None:
    made = tables.tables(found)
    reached = verdicts(found)
    markdown = [line for table in made for line in ("", *table.markdown())]
    results.record("Benchmark", command, [str(one) for one in reached], markdown)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
