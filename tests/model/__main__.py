"""The model in docs/model, checked: every configuration in full, every rule broken.

    python -m tests.model [--record | --show WORD]

It fails if a promise does not hold, if a configuration was not looked at in full or has another number of states than
docs/model/README.md says, if a broken rule breaks nothing, or if something the model is about never happens in it.
The tables of that page are what is run.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from tests import results
from tests.anvil import ROOT
from tests.model.tlc import TEMPORAL, Verdict, check

MODEL = ROOT / "docs" / "model"

# Actions that only a broken rule allows.
BUGS = frozenset({"Check", "SendUnrecorded"})


@dataclass(frozen=True, slots=True)
class Whole:
    """A configuration in which everything must hold."""

    name: str
    distinct: int  # states, as the page says

    @property
    def cost(self) -> int:
        return self.distinct

    def __str__(self) -> str:
        return self.name

    def config(self, model: Path) -> str:
        return (model / f"{self.name}.cfg").read_text()

    def complaint(self, verdict: Verdict) -> str | None:
        if verdict.violated is not None:
            return f"{verdict.violated} does not hold"
        if not verdict.exhaustive:
            return "not every state was looked at"
        if verdict.distinct != self.distinct:
            return f"README.md says {self.distinct:,} distinct states, and there are {verdict.distinct:,}"
        return None


@dataclass(frozen=True, slots=True)
class Broken:
    """A configuration with broken rules, and what must not hold then. Without any: what is not so in the first place."""

    rules: tuple[str, ...]
    name: str
    breaks: str

    @property
    def cost(self) -> int:
        return 0

    def __str__(self) -> str:
        return f"{' and '.join(self.rules) or 'nothing'} broken: {self.breaks}"

    def config(self, model: Path) -> str:
        """Of the configuration's own promises only the one that must break, so that nothing else can be found first."""
        whole = (model / f"{self.name}.cfg").read_text()
        kept = [line for line in whole.splitlines() if not line.startswith(("INVARIANTS", "PROPERTIES"))]
        rules = ", ".join(f'"{rule}"' for rule in self.rules)
        kind = "PROPERTY" if self.breaks in named(whole, "PROPERTIES") else "INVARIANT"
        return "\n".join(kept).replace("Broken = {}", f"Broken = {{{rules}}}") + f"\n{kind} {self.breaks}\n"

    def complaint(self, verdict: Verdict) -> str | None:
        if verdict.violated is None:
            return f"{self.breaks} holds all the same" if verdict.exhaustive else "TLC failed"
        if verdict.violated not in (self.breaks, TEMPORAL):
            return f"{verdict.violated} was violated instead"
        return None


Run = Whole | Broken


def named(config: str, kind: str) -> list[str]:
    """The invariants or the properties of a configuration."""
    return [name for line in re.findall(rf"^{kind} (.*)$", config, re.MULTILINE) for name in line.split()]


def runs(model: Path) -> list[Run]:
    """What the tables of the model's page say."""
    found: list[Run] = []
    for line in (model / "README.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("|") or len(cells) != 4:
            continue
        if re.fullmatch(r"[\d,]+", cells[3]):
            found.append(Whole(cells[0], int(cells[3].replace(",", ""))))
        elif (model / f"{cells[1]}.cfg").exists():
            found.append(Broken(tuple(re.findall(r"`([^`]+)`", cells[0])), cells[1], cells[2]))
    return found


def omissions(model: Path, planned: Iterable[Run]) -> list[str]:
    """What the model has and the page does not try."""
    planned = list(planned)
    spec = (model / "Lane.tla").read_text()
    configs = {path.stem: path.read_text() for path in model.glob("*.cfg")}
    broken = {rule for run in planned if isinstance(run, Broken) for rule in run.rules}
    fallen = {run.breaks for run in planned if isinstance(run, Broken)}
    promises = {
        name for text in configs.values() for kind in ("INVARIANTS", "PROPERTIES") for name in named(text, kind)
    }
    listed = re.search(r"^Rules == \{(.*?)^\}", spec, re.MULTILINE | re.DOTALL)
    rules = set(re.findall(r'^    "([^"]+)"', listed[1], re.MULTILINE)) if listed else set()
    sights = set(re.findall(r"^(Never\w+) ==", spec, re.MULTILINE))
    return [
        *(f"no row breaks the rule {rule!r}" for rule in sorted(rules - broken)),
        *(f"there is no rule {rule!r}" for rule in sorted(broken - rules)),
        *(f"no row breaks {name}" for name in sorted((promises | sights) - fallen)),
        *(
            f"no row for {name}.cfg"
            for name in sorted(configs.keys() - {run.name for run in planned if isinstance(run, Whole)})
        ),
    ]


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
    """Run them, two at a time on two cores, the longest first; what is wrong with them."""
    done: dict[Run, Verdict] = {}
    wrong = omissions(model, planned)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        ordered = sorted(planned, key=lambda run: -run.cost)
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
    planned = runs(MODEL)
    if options.show is not None:
        return show([run for run in planned if isinstance(run, Broken) and options.show in str(run)])
    began = time.monotonic()
    done, wrong = check_all(MODEL, planned)
    took = f"{time.monotonic() - began:.0f} s, {cpu_seconds():.0f} s of a core"
    for complaint in wrong:
        print(complaint)
    caught = sum(isinstance(run, Broken) and verdict.violated is not None for run, verdict in done.items())
    print(f"{len(planned)} runs of TLC in {took}: {len(planned) - caught} in full, {caught} violations as expected")
    if options.record and not wrong:
        whole = [f"{run}: every state, {told(run, done[run])}" for run in planned if isinstance(run, Whole)]
        broken = [f"{run} caught after {told(run, done[run])}" for run in planned if isinstance(run, Broken)]
        total = f"all {len(planned)} runs, as many at once as there are cores: {took}"
        results.record("The model", "python -m tests.model --record", [*whole, *broken, total])
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
