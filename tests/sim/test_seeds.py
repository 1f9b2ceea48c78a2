"""Seeds that once broke a promise: one a line in `seeds.txt`, with what they showed."""

from __future__ import annotations

from pathlib import Path

import pytest

from nonchalant.sim.world import live

LINES = (Path(__file__).parent / "seeds.txt").read_text().splitlines()
SEEDS = [int(line.split()[0]) for line in LINES if line and not line.startswith("#")]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_seed_that_once_broke_a_promise_keeps_it(seed: int) -> None:
    history = live(seed)
    assert not history.violations, "\n".join((*history.lines[-60:], str(history.violations[0])))
