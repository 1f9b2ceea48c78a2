"""`make test-long`: for so many hours, going on where the last run stopped, and adding what it reached to bench/RESULTS.md.

    python -m tests.long --hours 2

It goes round: every scenario on anvil and storms of them, simulated histories (new seeds each time), `kill -9` at crash
points, every order of a commit and two take-overs, a mutant from scratch, 1,000 transactions under twenty kills, a crowd
of nodes on PostgreSQL in chaos, and 10,000 lanes of which few have work; and, once for as long as the model stays as it
is, the model's larger bounds. It stops at the first failure, says how to see it again, and leaves the state as it is, so
that the next run begins with what failed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path

from nonchalant.testing.crashpoints import Point
from tests import results
from tests.anvil import ROOT
from tests.e2e import kills
from tests.e2e.chaos import run as chaos
from tests.e2e.crashes import Story, survive
from tests.e2e.scenarios import storm as storms
from tests.model.plan import MODEL, runs
from tests.model.tlc import check

STATE = ROOT / ".make" / "long.json"

HISTORIES_AT_ONCE = 100
CRASHES_AT_ONCE = 20
CRASHES_IN_PARALLEL = 4
# Steps of a process in a crash history: it makes about 170 before everything is settled.
LAST_STEP = 150
MUTANT_SEEDS = 2_000
SCENARIOS = "tests/e2e/scenarios"
SCENARIOS_IN_PARALLEL = 4
INTERLEAVINGS = "tests/store/test_interleavings.py"
STORMS_AT_ONCE = 4
STORM_TRANSACTIONS = 200
# What a chaos does, in some two minutes.
CHAOS = {"transactions": 800, "kills": 50, "restarts": 4, "backends": 10, "freezes": 4, "cuts": 3, "reorgs": 2}

# Lanes at rest, in some five minutes: few and many, on PostgreSQL and on SQLite.
REST = ["tests.e2e.rest", "--lanes", "10000", "--busy", "50", "--nodes", "3", "--seconds", "20"]


class Failed(Exception):
    """Something did not hold; the message is the command that shows it."""


@dataclass(slots=True)
class Reached:
    """What all runs together have done."""

    histories: int = 0  # seeds 0 up to this one were lived through
    mutants: dict[str, int] = field(default_factory=dict)  # the seed that caught each, from scratch
    mutant_rounds: int = 0
    crash_histories: int = 0
    crashes: int = 0
    killed_transactions: int = 0
    kills: int = 0
    scenarios: int = 0
    storms: int = 0
    storm_transactions: int = 0
    storm_reorgs: int = 0
    interleaved: int = 0
    chaoses: int = 0
    chaos_transactions: int = 0
    chaos_kills: int = 0
    chaos_restarts: int = 0
    chaos_backends: int = 0
    rests: int = 0
    idle: list[str] = field(default_factory=list)  # what lanes at rest cost when they were last measured
    models: dict[str, str] = field(default_factory=dict)  # of each larger configuration, what it was when all held
    seconds: float = 0.0

    def lines(self) -> list[str]:
        confused = (
            f"{self.chaos_transactions} transactions through nodes on PostgreSQL in {self.chaoses} chaoses, with "
            f"{self.chaos_kills} kills at crash points, {self.chaos_restarts} restarts of the server and "
            f"{self.chaos_backends} terminated backends, every audit clean"
        )
        return [
            f"{self.histories} simulated histories, every promise held",
            f"{len(self.mutants)} mutants caught from scratch, each within {MUTANT_SEEDS} seeds",
            f"{self.crashes} times kill -9 at a crash point, all {self.crash_histories} histories exact on the chain",
            f"{self.scenarios} scenarios on anvil behind the fault proxy, chain and store equal after each",
            f"{self.storm_transactions} transactions in {self.storms} storms with {self.storm_reorgs} reorgs, the same",
            f"every state of {len(self.models)} larger configurations of the model",
            f"{self.killed_transactions} transactions under {self.kills} kills, each executed once",
            f"every order of a fenced commit and two take-overs {self.interleaved} times, no stale write",
            confused,
            f"10,000 lanes at rest measured {self.rests} times, and what 50 of them sent is confirmed: {'; '.join(self.idle)}",
            f"{self.seconds / 3600:.2f} hours in all",
        ]


def load() -> Reached:
    return Reached(**json.loads(STATE.read_text())) if STATE.exists() else Reached()


def save(reached: Reached) -> None:
    STATE.parent.mkdir(exist_ok=True)
    new = STATE.with_suffix(".new")
    new.write_text(json.dumps(asdict(reached), indent=2) + "\n")
    new.replace(STATE)


def nonchalant(*arguments: str, seconds: float) -> subprocess.CompletedProcess[str] | None:
    """Run the command line; None if the time ran out first."""
    return ended([str(Path(sys.executable).with_name("nonchalant")), *arguments], seconds)


def ended(command: list[str], seconds: float) -> subprocess.CompletedProcess[str] | None:
    """Run it; None if the time ran out first: then it is ended, with the processes that it started."""
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, start_new_session=True
    ) as process:
        try:
            said, told = process.communicate(timeout=max(seconds, 1))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return None
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(command, process.returncode, said, told)


def simulate(reached: Reached, left: Callable[[], float]) -> None:
    """The next seeds."""
    arguments = ["sim", "--first", str(reached.histories), "--seeds", str(HISTORIES_AT_ONCE), "--json"]
    done = nonchalant(*arguments, seconds=left())
    if done is None:
        return
    found = json.loads(done.stdout) if done.stdout.startswith("{") else {}
    # What never happened in so few of them is no failure here: `make test` looks at that.
    if not found or found["violations"] or found["too_small"]:
        raise Failed(f"nonchalant {' '.join(arguments)}\n{done.stdout[-4000:]}\n{done.stderr[-2000:]}")
    reached.histories += HISTORIES_AT_ONCE


def mutate(reached: Reached, left: Callable[[], float]) -> None:
    """The next mutant, on seeds that it has not been tried on."""
    listed = nonchalant("sim", "--mutant", "list", seconds=60)
    assert listed is not None
    first = 1_000_000 + reached.mutant_rounds * MUTANT_SEEDS
    for name in listed.stdout.split():
        if reached.mutants.get(name, -1) >= first:
            continue  # caught in this round, before the last run stopped
        arguments = ["sim", "--mutant", name, "--first", str(first), "--seeds", str(MUTANT_SEEDS), "--json"]
        done = nonchalant(*arguments, seconds=left())
        if done is None:
            return
        if done.returncode != 1:
            raise Failed(f"nonchalant {' '.join(arguments)}\nthis mutant survived\n{done.stderr[-2000:]}")
        reached.mutants[name] = int(json.loads(done.stdout)["seed"])
        return
    reached.mutant_rounds += 1


async def crash_once(number: int) -> int:
    """A history that dies once or twice, at steps chosen by its number; how often it died."""
    chance = random.Random(number)
    story = chance.choice([Story.SENDING, Story.SENDING, Story.TAKING_OVER, Story.SUPERSEDED, Story.RECONCILING])
    points: list[Point | int] = [chance.randrange(1, LAST_STEP) for _ in range(chance.choice([1, 1, 2]))]
    with tempfile.TemporaryDirectory(prefix="crash-", ignore_cleanup_errors=True) as folder:
        try:
            return await survive(Path(folder) / "node", story, *points, must_die=False)
        except AssertionError as error:
            raise Failed(f"python -m tests.long --crash {number}  # {story.name} {points}\n{error}") from error


def crash(reached: Reached, left: Callable[[], float]) -> None:
    gate = asyncio.Semaphore(CRASHES_IN_PARALLEL)

    async def one(number: int) -> None:
        async with gate:
            died = await crash_once(number)
            reached.crashes += died

    async def every() -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(reached.crash_histories, reached.crash_histories + CRASHES_AT_ONCE):
                group.create_task(one(number))

    if left() < 120:
        return
    try:
        asyncio.run(every())
    except* Failed as failures:
        raise failures.exceptions[0] from None
    reached.crash_histories += CRASHES_AT_ONCE


def kill(reached: Reached, left: Callable[[], float]) -> None:
    if left() < 300:
        return
    seed = reached.kills
    with tempfile.TemporaryDirectory(prefix="kills-", ignore_cleanup_errors=True) as folder:
        try:
            figures = asyncio.run(kills.run(Path(folder), transactions=1000, kills=20, seed=seed, service=True))
        except AssertionError as error:
            raise Failed(
                f"python -m tests.e2e.kills --transactions 1000 --kills 20 --service --seed {seed}\n{error}"
            ) from error
    reached.killed_transactions += figures.transactions
    reached.kills += figures.toll.kills


def play(reached: Reached, left: Callable[[], float]) -> None:
    """Every scenario on anvil behind the fault proxy, undisturbed, restarted and killed."""
    if left() < 300:
        return
    # They mostly wait: more of them at once than there are cores.
    command = [sys.executable, "-m", "pytest", "-q", "-m", "", "-n", str(SCENARIOS_IN_PARALLEL), SCENARIOS]
    done = ended(command, left())
    if done is None:
        return
    passed = re.search(r"(\d+) passed", done.stdout)
    if done.returncode != 0 or passed is None:
        raise Failed(f"pytest -m '' {SCENARIOS}\n{done.stdout[-6000:]}\n{done.stderr[-2000:]}")
    reached.scenarios += int(passed[1])


def storm(reached: Reached, left: Callable[[], float]) -> None:
    """The next storms on anvil: everything at random, and the same exact audit."""
    for _ in range(STORMS_AT_ONCE):
        if left() < 300:
            return
        seed = reached.storms
        with tempfile.TemporaryDirectory(prefix="storm-", ignore_cleanup_errors=True) as folder:
            try:
                figures = asyncio.run(storms.rage(Path(folder), seed, STORM_TRANSACTIONS))
            except AssertionError as error:
                command = f"python -m tests.e2e.scenarios.storm --seed {seed} --transactions {STORM_TRANSACTIONS}"
                raise Failed(f"{command}\n{error}") from error
        reached.storms += 1
        reached.storm_transactions += figures.transactions
        reached.storm_reorgs += figures.acts["reorg"]


def model(reached: Reached, left: Callable[[], float]) -> None:
    """The next configuration of the model that is too large for `make test`, and has not been looked at as it is now."""
    spec = MODEL / "Lane.tla"
    for run in runs(MODEL):
        config = run.config(MODEL)
        digest = sha256(spec.read_bytes() + config.encode()).hexdigest()
        if not run.is_long or reached.models.get(str(run)) == digest:
            continue
        with tempfile.TemporaryDirectory(prefix="model-") as folder:
            verdict = check(spec, config, Path(folder) / "run", seconds=left())
        if verdict.late:
            return
        complaint = run.complaint(verdict)
        if complaint is not None:
            raise Failed(f"the model, {run}: {complaint}\n{verdict.trouble}")
        reached.models[str(run)] = digest
        return


def confuse(reached: Reached, left: Callable[[], float]) -> None:
    """The next chaos: nodes on one PostgreSQL, killed, frozen and cut off under load."""
    if left() < 600:
        return
    seed = reached.chaoses
    with tempfile.TemporaryDirectory(prefix="chaos-", ignore_cleanup_errors=True) as folder:
        try:
            figures = asyncio.run(chaos.run(Path(folder), chaos.Plan(**CHAOS, seed=seed)))
        except (AssertionError, ExceptionGroup) as error:
            words = " ".join(f"--{name} {value}" for name, value in CHAOS.items())
            told: BaseException = error
            while isinstance(told, BaseExceptionGroup):
                told = told.exceptions[0]
            raise Failed(f"python -m tests.e2e.chaos {words} --seed {seed}\n{told}") from error
    reached.chaoses += 1
    reached.chaos_transactions += figures.load.asked
    reached.chaos_kills += figures.crowd.killed
    reached.chaos_restarts += figures.harms.done["restarts"]
    reached.chaos_backends += figures.harms.done["backends"]


def interleave(reached: Reached, left: Callable[[], float]) -> None:
    """Every order of the statements of a fenced commit and two take-overs."""
    if left() < 600:
        return
    done = ended([sys.executable, "-m", "pytest", "-q", "-m", "long", "-n", "0", INTERLEAVINGS], left())
    if done is None:
        return
    if done.returncode != 0:
        raise Failed(f"pytest -m long {INTERLEAVINGS}\n{done.stdout[-6000:]}\n{done.stderr[-2000:]}")
    reached.interleaved += 1


def rest(reached: Reached, left: Callable[[], float]) -> None:
    """Thousands of lanes, on nodes that are processes of their own: what those without work cost."""
    if left() < 900:
        return
    done = ended([sys.executable, "-m", *REST], left())
    if done is None:
        return
    if done.returncode != 0:
        raise Failed(f"python -m {' '.join(REST)}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}")
    reached.rests += 1
    reached.idle = [line for line in done.stdout.splitlines() if "idle lanes more cost" in line]


ROUND = (
    *(model, play, storm, simulate, crash, interleave, mutate),
    *(simulate, crash, confuse, mutate, simulate, kill, rest),
)


def run(hours: float) -> None:
    reached, began = load(), time.monotonic()
    before = reached.seconds

    def left() -> float:
        return hours * 3600 - (time.monotonic() - began)

    try:
        while left() > 0:
            for part in ROUND:
                if left() <= 0:
                    break
                part(reached, left)
                reached.seconds = before + time.monotonic() - began
                save(reached)
                print(f"{part.__name__}: {'; '.join(reached.lines())}", flush=True)
    finally:
        reached.seconds = before + time.monotonic() - began
        save(reached)
        results.record("Long run, added up over runs", f"make test-long HOURS={hours:g}", reached.lines())


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.long", description=__doc__)
    parser.add_argument("--hours", type=float, default=2)
    parser.add_argument("--crash", type=int, metavar="NUMBER", help="only this history of crashes, again")
    options = parser.parse_args()
    try:
        if options.crash is None:
            run(options.hours)
        else:
            asyncio.run(crash_once(options.crash))
    except Failed as failed:
        sys.exit(f"FAILED: {failed}")


if __name__ == "__main__":
    main()
