"""Whole histories: that they are what they claim to be, and the same each time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from nonchalant.sim.command import main
from nonchalant.sim.loop import forgetting
from nonchalant.sim.moves import Move
from nonchalant.sim.mutants import MUTANTS
from nonchalant.sim.properties import EDGES
from nonchalant.sim.run import ENOUGH, Order, Tally, carry_out, shortfall
from nonchalant.sim.schedule import Kind
from nonchalant.sim.violations import BUG
from nonchalant.sim.world import World, live

SEEDS = 4


def report(hash_seed: int) -> str:
    """What the command prints about a few histories, in a process of its own."""
    call = f"from nonchalant.sim.command import main; raise SystemExit(main({SEEDS}, 7, None, True, 1, None))"
    done = subprocess.run(
        [sys.executable, "-c", call],
        env=os.environ | {"PYTHONHASHSEED": str(hash_seed)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def test_the_same_seeds_give_the_same_report_in_every_process() -> None:
    one, other = report(1), report(2)
    assert json.loads(one)["histories"] == SEEDS
    assert one == other


def test_histories_differ_from_seed_to_seed() -> None:
    assert len({live(seed).digest for seed in (1, 2, 3)}) == 3


def test_keeping_the_whole_trace_changes_nothing() -> None:
    assert carry_out(Order(5)).digest == carry_out(Order(5, whole_trace=True)).digest


@pytest.mark.parametrize("seed", range(3))
def test_a_history_has_what_it_needs_to_count(seed: int) -> None:
    history = live(seed)
    assert not history.violations
    assert shortfall(history) is None
    assert history.faults.keys() <= set(Kind)
    assert history.edges.keys() <= set(EDGES)
    assert history.moves.keys() <= set(Move)


def test_what_never_happened_is_named_once_there_are_histories_enough() -> None:
    tally = Tally()
    tally.add(live(1))
    assert tally.never() == []
    tally.histories = ENOUGH
    happened = len(tally.faults) + len(tally.edges) + len(tally.moves)
    assert len(tally.never()) == len(Kind) + len(EDGES) + len(Move) - happened
    assert not tally.clean


def test_the_command_names_the_mutants(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(1, 0, "list", False, 1, None) == 0
    assert capsys.readouterr().out.split() == list(MUTANTS)


def test_an_unknown_mutant_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(1, 0, "none-such", False, 1, None) == 2
    assert "none-such" in capsys.readouterr().err


def test_a_broken_promise_fails_the_command_and_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    trace = tmp_path / "trace.txt"
    assert main(20, 0, "one-confirmation-is-final", False, 1, trace) == 1
    out = capsys.readouterr().out
    assert "P7 broken" in out
    assert "seed " in out
    assert "P7 broken" in trace.read_text()


def test_a_history_that_cannot_go_on_is_told_with_its_seed() -> None:
    with forgetting():
        world = World(7, keep=None)
        world.loop._step_limit = 1_000
        history = world.run()
    [violation] = history.violations
    assert (violation.seed, violation.promise) == (7, BUG)
    assert "StepLimit" in violation.what
