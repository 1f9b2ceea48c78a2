"""The model in docs/model, checked: every configuration in full, every rule broken.

    python -m tests.model [--record | --show WORD]

It fails if a promise does not hold, if a configuration was not looked at in full or has another number of states than
docs/model/README.md says, if a broken rule breaks nothing, or if something the model is about never happens in it.
The tables of that page are what is run.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from tests import results
from tests.model.plan import MODEL, Broken, Run, Whole, omissions, runs
from tests.model.tlc import Verdict, check

# Actions that only a broken rule allows.
BUGS = frozenset({"Check", "SendUnrecorded"})


def idle_actions(verdicts: Iterable[Verdict]) -> list[str]:
    """Actions that no configuration takes, and bugs that one does."""
    times: dict[str, int] = {}
    for verdict in verdicts:
        for name, count in verdict.taken.items():
            times[name] = times.get(name, 0) + count
    return [f"nothing ever takes {name}" for name, count in times.items() if count == 0 and name not in BUGS] + [
        f"{name} happens although no rule is broken" for name in BUGS if times.get(name)
    ]


def check_all(model: Path, planned: Sequence[Run]) -> tuple[dict[Run, Verdict], list[str]]:
    """Run them, as many at once as there are cores, the longest first; what is wrong with them."""
    done: dict[Run, Verdict] = {}
    wrong: list[str] = []
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        ordered = sorted(planned, key=lambda run: -run.distinct)
        waiting = {
            pool.submit(
                check, model / "Lane.tla", run.config(model), Path(folder) / str(index), brief=isinstance(run, Broken)
            ): run
            for index, run in enumerate(ordered)
        }
        for future in as_completed(waiting):
            run, verdict = waiting[future], future.result()
            done[run] = verdict
            complaint = run.complaint(verdict)
            print(f"{complaint or 'as it should be'} | {run}: {told(run, verdict)}", flush=True)
            if complaint is not None:
                wrong.append(f"{run}: {complaint}\n{verdict.trouble}")
    return done, wrong + idle_actions(verdict for run, verdict in done.items() if isinstance(run, Whole))


def told(run: Run, verdict: Verdict) -> str:
    counted = f"{verdict.generated:,} states, {verdict.distinct:,} distinct"
    depth = f"depth {verdict.depth}" if isinstance(run, Whole) else f"{verdict.steps} steps"
    return f"{counted}, {depth}, {verdict.seconds:.0f} s"


def figures(planned: Sequence[Run], done: Mapping[Run, Verdict], took: str) -> list[str]:
    def caught(rules: bool) -> str:
        runs = (run for run in planned if isinstance(run, Broken) and bool(run.rules) == rules)
        return "; ".join(f"{run}, {told(run, done[run])}" for run in runs)

    return [
        *(f"{run}, every state: {told(run, done[run])}" for run in planned if isinstance(run, Whole)),
        f"each broken rule was caught, after: {caught(rules=True)}",
        f"what must be reached was, after: {caught(rules=False)}",
        f"all {len(planned)} runs, as many at once as there are cores: {took}",
    ]


def show(planned: Sequence[Broken]) -> int:
    for run in planned:
        with tempfile.TemporaryDirectory() as folder:
            verdict = check(MODEL / "Lane.tla", run.config(MODEL), Path(folder) / "run", brief=True)
        print(f"{run}\n{verdict.trouble}\n{run}: {told(run, verdict)}")
    return 0 if planned else 1


def cpu_seconds() -> float:
    """Of all runs that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> int:
    parser = argparse.ArgumentParser(description="Check the model in docs/model")
    parser.add_argument("--record", action="store_true", help="add the figures to bench/RESULTS.md")
    parser.add_argument("--show", metavar="WORD", help="how what has this word in its name goes wrong, step by step")
    options = parser.parse_args()
    if options.show is not None:
        return show([run for run in runs(MODEL) if isinstance(run, Broken) and options.show in str(run)])
    planned = [run for run in runs(MODEL) if not run.is_long]
    began = time.monotonic()
    done, wrong = check_all(MODEL, planned)
    wrong += omissions(MODEL, runs(MODEL))
    took = f"{time.monotonic() - began:.0f} s, {cpu_seconds():.0f} s of a core"
    for complaint in wrong:
        print(complaint)
    caught = sum(isinstance(run, Broken) and verdict.violated is not None for run, verdict in done.items())
    print(f"{len(planned)} runs of TLC in {took}: {len(planned) - caught} in full, {caught} violations as expected")
    if options.record and not wrong:
        results.record("The model", "python -m tests.model --record", figures(planned, done, took))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
