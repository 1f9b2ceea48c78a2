"""A list of many lanes: each with its balance, and a chain that has gone silent is waited for once."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from nonchalant.service import lanes
from tests.anvil import Anvil
from tests.e2e.rig import until
from tests.service.conftest import SETTINGS, Running, running

LANES = 7


@pytest.fixture
async def many(tmp_path: Path, chain: Anvil, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Running]:
    """So many lanes that they are not asked about at once."""
    monkeypatch.setattr(lanes, "ASKED_AT_ONCE", 3)
    settings = SETTINGS.replace("http://127.0.0.1:1", chain.url).replace(
        "request_timeout = 0.5", "poll_interval = 0.05"
    )
    async with running(tmp_path, settings.replace('"words" }', f'"words" }}, count = {LANES}')) as service:
        await until(lambda: service.node.engine.followers[31337].started, "the chain is seen")
        yield service


async def test_every_lane_of_a_long_list_has_its_balance_and_its_place(
    many: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "LANE_PATIENCE", 60)
    _, answer, _ = await many.get("/v1/lanes")
    assert [lane["address"].lower() for lane in answer["lanes"]] == [lane.address for lane in many.node.known_lanes]
    assert {lane["balance"] for lane in answer["lanes"]} == {str(10_000 * 10**18)}


async def test_a_chain_that_has_gone_silent_is_waited_for_once_in_a_list(
    many: Running, chain: Anvil, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "LANE_PATIENCE", 0.2)
    asked = []
    look = many.node.live_lane

    async def counted(lane: object) -> object:
        asked.append(lane)
        return await look(lane)

    monkeypatch.setattr(many.node, "live_lane", counted)
    os.kill(chain.process.pid, signal.SIGSTOP)
    while Path(f"/proc/{chain.process.pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":  # noqa: ASYNC110
        await asyncio.sleep(0.01)  # on a busy machine it takes a moment
    try:
        _, answer, _ = await many.get("/v1/lanes")
    finally:
        os.kill(chain.process.pid, signal.SIGCONT)
    assert [lane["balance"] for lane in answer["lanes"]] == [None] * LANES
    assert [lane["window"] for lane in answer["lanes"]] == [16] * LANES
    assert len(asked) == 3
