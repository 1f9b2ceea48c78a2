"""A PostgreSQL put back to an older state under a node that runs, or failed over, on a real chain: nothing is paid twice."""

from __future__ import annotations

import asyncio
import shutil
import signal
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path

from nonchalant.app import Nonchalant
from nonchalant.errors import CommitUnknown, StoreUnavailable
from nonchalant.values import replace
from nonchalant.words import LaneKey, Mode, State
from tests import anvil
from tests.e2e.rig import settings, until
from tests.e2e.site import ALICE, Site, pay
from tests.postgres import Cluster, give, program, running, unprivileged

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
        except (StoreUnavailable, CommitUnknown):
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


def back_up(server: Cluster, standby: Cluster) -> None:
    """The standby's files: a copy of what there is now, and where to go on from there."""
    standby.folder = server.folder / "standby"
    standby.folder.mkdir()
    give(standby.folder)
    where = ["-h", "127.0.0.1", "-p", str(server.port), "-U", "postgres", "-D", str(standby.data)]
    backup = [*unprivileged(), program("pg_basebackup"), *where, "-R", "-X", "stream", "-c", "fast"]
    subprocess.run(backup, check=True, capture_output=True, cwd=server.folder)
    standby.configure({"unix_socket_directories": str(standby.folder)})


def fail_over(server: Cluster, standby: Cluster) -> None:
    """The primary dies, and a standby that has not heard from it for a while takes its place."""
    server.stop(signal.SIGQUIT)
    standby.start()
    promote = [program("psql"), "-qAt", "-c", "SELECT pg_promote()", standby.dsn]
    assert subprocess.run(promote, check=True, capture_output=True, text=True).stdout == "t\n"


async def test_a_node_that_runs_finds_the_standby_that_was_promoted_and_pays_nothing_twice(site: Site) -> None:
    with running() as server:
        standby = Cluster(server.folder)  # for its port, which the node's address names from the start
        hosts = f"127.0.0.1:{server.port},127.0.0.1:{standby.port}"
        address = f"postgresql://postgres@{hosts}/postgres?schema=promoted&target_session_attrs=read-write"
        made = settings(site.folder, site.chain.url, accounts=1, window=4, lease=10)
        async with Nonchalant.open(replace(made, store=address)) as node:
            await site.settle(await pay(node, "first"), seconds=120)
            await node.asking.control(LANE, Mode.PAUSED)
            late = [await pay(node, key) for key in LATE]
            await asyncio.to_thread(back_up, server, standby)
            await node.asking.control(LANE, Mode.OPEN)
            await site.settle(*late, seconds=120)
            assert [handle.transaction.state for handle in late] == [State.CONFIRMED] * 4

            await asyncio.to_thread(fail_over, server, standby)
            try:
                await done(lambda: node.asking.control(LANE, Mode.OPEN))
                assert {(await handle.refresh()).state for handle in late} == {State.QUEUED}
                for handle in late:
                    await site.marked(handle, "same_payload_executed", tick=site.chain.mine)
                assert {handle.transaction.held for handle in late} == {True}
                after = await pay(node, "after")
                await site.settle(after, seconds=120)
                assert after.transaction.state is State.CONFIRMED
                assert await node.store.incarnation() == 1
            finally:
                await asyncio.to_thread(standby.stop, signal.SIGQUIT)
    assert [await site.paid(key) for key in ("first", *LATE, "after")] == [1] * 6
