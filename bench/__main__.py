"""`make bench`: contestants on the same work, interleaved."""

from __future__ import annotations

import argparse
import asyncio
import statistics
from dataclasses import replace

from bench import database
from bench.case import CASES, Case, Figures
from bench.run import measured


async def main(cases: list[Case], rounds: int, profile: str) -> None:
    figures: dict[Case, list[Figures]] = {case: [] for case in cases}
    with database.server() as cluster:
        for number in range(1, rounds + 1):
            for case in cases:
                found = await measured(case, cluster, profile=profile)
                figures[case].append(found)
                print(
                    f"  round {number}: {case.name:16} {found.done:8.0f}/s done {found.executed:8.0f}/s executed  "
                    f"CPU µs/tx: {', '.join(f'{who} {used:.0f}' for who, used in found.cpu.items())}"
                    f"  {found.seconds:6.1f} s",
                    flush=True,
                )
    for case, runs in figures.items():
        print(f"{case.name:16} {statistics.median(run.done for run in runs):8.0f}/s (median of {len(runs)})")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--only", default="", help="names of cases, with commas")
    parser.add_argument("--transactions", type=int)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--profile", default="", help="flame graph of ours (.svg), or .txt (raw), .json (speedscope)")
    options = parser.parse_args()
    names = [name for name in options.only.split(",") if name]
    chosen = [case for case in CASES if not names or case.name in names]
    if options.transactions:
        chosen = [replace(case, count=options.transactions) for case in chosen]
    asyncio.run(main(chosen, options.rounds, options.profile))
