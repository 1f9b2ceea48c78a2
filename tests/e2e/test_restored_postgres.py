"""A PostgreSQL put back to an older state under a node that runs, on a real chain: nothing is paid twice."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

from nonchalant.app import Nonchalant
from nonchalant.errors import StoreUnavailable
from nonchalant.model import LaneKey, Mode, State
from tests import anvil
from tests.e2e.rig import settings, until
from tests.e2e.site import ALICE, Site, pay
from tests.postgres import Cluster, give, running

LANE = LaneKey(anvil.CHAIN_ID, ALICE)
LATE = [f"late{number}" for number in range(4)]


def copied(server: Cluster) -> Path:
    """As a snapshot of its disk: of a server that is stopped meanwhile."""
    server.stop()
    copy = server.folder / "copy"
    shutil.copytree(server.data, copy, symlinks=True)
    server.start()
    return copy


def put_back(server: Cluster, copy: Path) -> None:
    server.stop()
    shutil.rmtree(server.data)
    copy.rename(server.data)
    for path in (server.data, *server.data.rglob("*")):
        give(path)
    server.start()


async def done(act: Callable[[], Awaitable[object]]) -> None:
    """Once the server is there again."""

    async def tried() -> bool:
        try:
            await act()
        except StoreUnavailable:
            return False
        return True

    await until(tried, "the server answers")


async def test_a_server_put_back_under_a_node_that_runs_pays_nothing_twice(site: Site) -> None:
    made = settings(site.folder, site.chain.url, accounts=1, window=4)
    with running() as server:
        async with Nonchalant.open(replace(made, store=f"{server.dsn}?schema=restored")) as node:
            await site.settle(await pay(node, "first"))
            # In the copy they are queued; on the chain they run.
            await node.asking.control(LANE, Mode.PAUSED)
            late = [await pay(node, key) for key in LATE]
            copy = await asyncio.to_thread(copied, server)
            await done(lambda: node.asking.control(LANE, Mode.OPEN))
            await site.settle(*late)
            assert [handle.transaction.state for handle in late] == [State.CONFIRMED] * 4

            await asyncio.to_thread(put_back, server, copy)
            await done(lambda: node.asking.control(LANE, Mode.OPEN))
            assert {(await handle.refresh()).state for handle in late} == {State.QUEUED}
            for handle in late:
                await site.marked(handle, "same_payload_executed", tick=site.chain.mine)
            assert {handle.transaction.held for handle in late} == {True}
            # And the account goes on.
            after = await pay(node, "after")
            await site.settle(after)
            assert after.transaction.state is State.CONFIRMED
            assert await node.store.incarnation() == 1
    assert [await site.paid(key) for key in ("first", *LATE, "after")] == [1] * 6
