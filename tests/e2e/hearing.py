"""How soon a lane's owner begins what another node accepted: from the acknowledgement there to the commit that signs it.

    python -m tests.e2e.hearing --record

Two nodes on one PostgreSQL, in one process, and no sweep: the owner hears of it, or nothing happens. When it was signed is
asked every millisecond; on an idle lane, one at a time, as what waits for others measures those.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from nonchalant.app import Handle, Nonchalant
from nonchalant.values import replace
from nonchalant.words import LaneKey, State
from tests import anvil, postgres, results
from tests.e2e.rig import settings
from tests.e2e.site import ALICE, Site, pay
from tests.store.contention import spread

LANE = LaneKey(anvil.CHAIN_ID, ALICE)
PATIENCE = 60.0


async def signed(handle: Handle) -> float:
    """How long that took from now, in seconds."""
    began = time.monotonic()
    async with asyncio.timeout(PATIENCE):
        while (await handle.refresh()).state is State.QUEUED:  # noqa: ASYNC110 - as often as it says above
            await asyncio.sleep(0.001)
    return time.monotonic() - began


async def run(count: int) -> list[str]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hearing-")))
        server = stack.enter_context(postgres.running())
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setattr("nonchalant.parts.SWEEP_SECONDS", 3600.0)
        async with anvil.running() as chain:
            made = replace(settings(folder, chain.url, accounts=1, lease=120), store=f"{server.dsn}?schema=hearing")
            async with Nonchalant.open(made) as owner, Nonchalant.open(made) as other:
                return [await measure(Site(chain, folder), owner, other, count)]


async def measure(site: Site, owner: Nonchalant, other: Nonchalant, count: int) -> str:
    await site.settle(await pay(owner, "first"))
    waits = {"owner": list[float](), "other": list[float]()}
    for number in range(count):
        for name, node in (("owner", owner), ("other", other)):
            handle = await pay(node, f"{name} {number}")
            waits[name].append(await signed(handle))
            await site.settle(handle)
    lane = await owner.store.lane(LANE)
    assert lane is not None
    assert lane.owner == owner.engine.cluster.owner
    return (
        f"from its acceptance to its signature, {count} payments each: accepted by another node than the owner"
        f" {spread(waits['other'])}; by the owner itself {spread(waits['owner'])}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.hearing", description=__doc__)
    parser.add_argument("--payments", type=int, default=50)
    parser.add_argument("--record", action="store_true", help="add the figures to bench/RESULTS.md")
    options = parser.parse_args()
    told = asyncio.run(run(options.payments))
    print("\n".join(told))
    if options.record:
        results.record(
            "Hearing of what another accepted", " ".join(["python -m tests.e2e.hearing", *sys.argv[1:]]), told
        )


if __name__ == "__main__":
    main()
