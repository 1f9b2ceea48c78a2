"""Every rule of ours that the simulator claims to guard, broken once: it must be caught."""

from __future__ import annotations

from pathlib import Path

import pytest

from nonchalant.sim.mutants import MUTANTS
from nonchalant.sim.run import Order, carry_out

LINES = (Path(__file__).parent / "mutant_seeds.txt").read_text().splitlines()
RECORDED = {name: int(seed) for name, seed, *_ in (line.split() for line in LINES if line and line[0] != "#")}
FRESH = 20


def test_every_mutant_has_a_recorded_seed() -> None:
    assert list(RECORDED) == list(MUTANTS)


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_caught_by_a_promise(name: str) -> None:
    """By its recorded seed; when the code has moved on since, one of the next ones must do."""
    first = RECORDED[name]
    for seed in range(first, first + 1 + FRESH):
        violations = carry_out(Order(seed, name)).violations
        if violations and violations[0].promise.startswith("P"):
            return
    pytest.fail(f"{name} survives seed {first} and the {FRESH} after it: record a new one")
