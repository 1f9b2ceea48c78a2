"""Storms from seeds: what scenarios do one at a time, all at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.scenarios import storm


@pytest.mark.parametrize("seed", [pytest.param(1), *(pytest.param(seed, marks=pytest.mark.long) for seed in (2, 3, 4))])
async def test_after_a_storm_chain_and_store_agree_to_the_last_transaction(tmp_path: Path, seed: int) -> None:
    figures = await storm.rage(tmp_path, seed, transactions=40)
    print(figures)
    assert figures.acts["reorg"] > 0
    assert sum(figures.ends.values()) == 40
