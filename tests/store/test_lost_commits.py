"""A PostgreSQL that lost commits is noticed, by a real restore and a promoted standby; one that lost nothing is left in peace."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from structlog.testing import capture_logs

from nonchalant.errors import CommitUnknown, LeaseLost, RowMoved
from nonchalant.ports import Filter
from nonchalant.store.connections import Connections
from nonchalant.store.pool import Pool
from nonchalant.store.postgres import PostgresStore
from nonchalant.values import replace
from tests.conftest import ROOT
from tests.examples import LANE
from tests.postgres import Cluster, give, program, running, unprivileged
from tests.store.acts import accept, filler, open_patiently, take


def losses(logs: Sequence[Mapping[str, Any]]) -> int:
    """How often a loss was told; that the server was away may be told beside it."""
    return sum(entry["event"] == "store.lost_commits" for entry in logs)


@pytest.fixture(scope="module")
def server() -> Iterator[Cluster]:
    with running() as cluster:
        yield cluster


async def opened(cluster: Cluster, schema: str) -> PostgresStore:
    store = await open_patiently(f"{cluster.dsn}?schema={schema}")
    await store.declare([LANE])
    return store


def copied(cluster: Cluster, to: str) -> Path:
    """The server's files, while it is stopped."""
    copy = cluster.folder / to
    shutil.copytree(cluster.data, copy, symlinks=True)
    return copy


def run(*command: str, given: str | None = None) -> str:
    return subprocess.run(command, input=given, check=True, capture_output=True, text=True).stdout


def put_back(cluster: Cluster, copy: Path) -> None:
    shutil.rmtree(cluster.data)
    copy.rename(cluster.data)
    for path in (cluster.data, *cluster.data.rglob("*")):
        give(path)


async def heard_of_it() -> None:
    """Until the driver has seen that its connections are gone, as it has where nobody holds its loop up."""
    await asyncio.sleep(0.1)


async def test_a_restart_and_a_crash_lose_nothing_and_are_not_taken_for_a_loss(server: Cluster) -> None:
    store = await opened(server, "calm")
    lease = await take(store)
    for number, how in enumerate((signal.SIGINT, signal.SIGQUIT)):
        await store.commit(filler(lease, number), lease)
        server.restart(how)
        await heard_of_it()
        assert await store.heartbeat("old", 10) == 1
        await store.commit(filler(lease, number + 10), lease)
    assert await store.incarnation() == 0
    await store.close()


async def test_a_crash_that_takes_the_unwritten_end_of_the_log_is_not_taken_for_a_loss(server: Cluster) -> None:
    store = await opened(server, "unwritten")
    lease = await take(store)
    await store.commit(filler(lease, 0), lease)
    other = await asyncpg.connect(server.dsn)
    try:
        await other.execute("CREATE TABLE ballast (words TEXT)")
        await other.execute("BEGIN; INSERT INTO ballast SELECT repeat('x', 1000) FROM generate_series(1, 50)")
        # It passes the fence, sees how long the log is, and commits nothing, so nothing has to reach the disk.
        with pytest.raises(RowMoved):
            await store.commit(replace(filler(lease, 1), freed=(7,)), lease)
    finally:
        server.restart(signal.SIGQUIT)
        await heard_of_it()
        other.terminate()
    assert await store.heartbeat("old", 10) == 1
    await store.commit(filler(lease, 1), lease)
    assert await store.incarnation() == 0
    await store.close()


async def test_a_server_that_acknowledges_early_does_not_do_so_here(server: Cluster) -> None:
    early = {"synchronous_commit": "off"}
    pool = Pool(lambda: asyncpg.connect(server.dsn, server_settings=early), 1, patience=30.0)
    async with Connections(pool, 1.0).transaction() as connection:
        assert await connection.fetchval("SHOW synchronous_commit") == "local"
    pool.terminate()


async def test_a_beat_is_flushed_also_where_commits_are_acknowledged_early(server: Cluster) -> None:
    connection = await asyncpg.connect(server.dsn)
    await connection.execute("ALTER DATABASE postgres SET synchronous_commit = off")
    try:
        store = await opened(server, "early")
        for _ in range(20):
            await store.heartbeat("old", 10)
            flushed = await connection.fetchval("SELECT (pg_current_wal_flush_lsn() - '0/0'::PG_LSN)::BIGINT")
            assert store._seen is not None
            assert store._seen.wal <= flushed
        await store.close()
    finally:
        await connection.execute("ALTER DATABASE postgres RESET synchronous_commit")
        await connection.close()


async def test_an_older_state_put_back_is_noticed_once_by_nodes_that_saw_the_newer_one(server: Cluster) -> None:
    one, two = await opened(server, "older"), await opened(server, "older")
    lease = await take(one)
    await accept(one, "kept")
    server.stop()
    copy = copied(server, "snapshot")
    server.start()
    await heard_of_it()
    await accept(one, "lost")
    for number in range(50):
        await one.commit(filler(lease, number), lease)
    await two.heartbeat("two", 10)
    read_upto = await one.last_position()
    server.stop()
    put_back(server, copy)
    server.start()
    await heard_of_it()
    # The owner finds out by its next commit: whatever it has in memory counts for nothing.
    with capture_logs() as logs, pytest.raises(LeaseLost, match="lost commits"):
        await one.commit(filler(lease, 50), lease)
    assert losses(logs) == 1
    with pytest.raises(LeaseLost):
        await one.load(lease)
    await two.heartbeat("two", 10)
    assert await one.incarnation() == 1
    assert await two.incarnation() == 1
    assert [tx.id for tx in await one.transactions(Filter())] == ["kept"]
    # A lane that is taken now knows that it must be reconciled.
    again = await take(one, "one")
    assert again.epoch > lease.epoch
    assert (await one.load(again)).record.incarnation == 0
    # Whoever read what is lost goes on from there, and must not miss what comes.
    await accept(one, "next")
    assert "next" in [event.tx_id for event in await one.events_after(read_upto, limit=10)]
    # And nobody finds the same loss a second time.
    three = await opened(server, "older")
    for node in (one, two, three):
        await node.heartbeat("n", 10)
        assert await node.incarnation() == 1
        await node.close()


async def test_of_a_commit_whose_connection_ends_under_way_nobody_knows_what_became(server: Cluster) -> None:
    """One statement is the whole of it: it may have been carried out before the connection went."""
    one = await opened(server, "cut_off")
    lease = await take(one)
    await one.commit(filler(lease, 0), lease)
    server.stop()
    server.start()
    with pytest.raises(CommitUnknown):  # the driver finds out by this very statement
        await one.commit(filler(lease, 1), lease)
    await heard_of_it()
    again = await take(one)
    loaded = await one.load(again)
    await one.commit(filler(again, len(loaded.slots)), again)
    await one.close()


async def test_a_promoted_standby_that_lagged_is_noticed_also_by_a_node_that_starts_then(server: Cluster) -> None:
    before = await opened(server, "promoted")
    await accept(before, "kept")
    standby = Cluster(server.folder)
    standby.folder = server.folder / "standby"
    standby.folder.mkdir()
    give(standby.folder)
    backup = [program("pg_basebackup"), "-h", "127.0.0.1", "-p", str(server.port), "-U", "postgres"]
    run(*unprivileged(), *backup, "-D", str(standby.data), "-R", "-X", "stream", "-c", "fast")
    standby.configure({"unix_socket_directories": str(standby.folder)})
    await accept(before, "lost")  # the standby is not even up
    await before.close()
    server.stop(signal.SIGQUIT)
    standby.start()
    try:
        assert run(program("psql"), "-qAt", "-c", "SELECT pg_promote()", standby.dsn) == "t\n"
        with capture_logs() as logs:
            after = await opened(standby, "promoted")
        assert losses(logs) == 1
        assert await after.incarnation() == 1
        assert [tx.id for tx in await after.transactions(Filter())] == ["kept"]
        await after.close()
        again = await opened(standby, "promoted")
        assert await again.incarnation() == 1
        await again.close()
    finally:
        standby.stop()
        server.start()
        await heard_of_it()


async def test_a_dump_that_was_restored_on_another_server_is_noticed(server: Cluster, postgres: Cluster) -> None:
    store = await opened(server, "dumped")
    await accept(store, "kept")
    await store.close()
    dump = run(program("pg_dump"), "--no-owner", "-n", "dumped", server.dsn)
    run(program("psql"), "-q", "-v", "ON_ERROR_STOP=1", postgres.dsn, given=dump)
    moved = await opened(postgres, "dumped")
    assert await moved.incarnation() == 1
    assert [tx.id for tx in await moved.transactions(Filter())] == ["kept"]
    await accept(moved, "new")
    assert [event.tx_id for event in await moved.events_after(0, limit=9)] == ["kept", "new"]
    await moved.close()


@pytest.mark.parametrize("running", [False, True], ids=["stopped", "running"])
async def test_a_dump_that_was_restored_in_place_is_noticed(server: Cluster, running: bool) -> None:
    schema = f"in_place_{running}".lower()
    store = await opened(server, schema)
    await accept(store, "kept")
    dump = run(program("pg_dump"), "--clean", "-n", schema, server.dsn)
    await accept(store, "lost")
    await store.heartbeat("old", 10)
    if not running:
        await store.close()
    run(program("psql"), "-q", "-v", "ON_ERROR_STOP=1", server.dsn, given=dump)
    with capture_logs() as logs:
        if running:
            await store.heartbeat("old", 10)
            await store.close()
        again = await opened(server, schema)
        await again.heartbeat("new", 10)
    assert losses(logs) == 1
    assert await again.incarnation() == 1
    assert [tx.id for tx in await again.transactions(Filter())] == ["kept"]
    await again.close()


async def test_a_dump_restored_under_a_node_that_runs_is_noticed_before_a_lane_is_read(server: Cluster) -> None:
    """Not only at the next beat: until then a lane could be taken, and what the lost part had sent be sent again."""
    store = await opened(server, "under_way")
    await accept(store, "kept")
    dump = run(program("pg_dump"), "--clean", "-n", "under_way", server.dsn)
    await store.heartbeat("old", 10)
    run(program("psql"), "-q", "-v", "ON_ERROR_STOP=1", server.dsn, given=dump)
    lease = await take(store, "old")
    with pytest.raises(LeaseLost):
        await store.load(lease)
    assert await store.incarnation() == 1
    await store.load(await take(store, "old"))
    await store.close()


async def test_a_copy_of_the_database_on_the_same_server_is_noticed(server: Cluster) -> None:
    """Its tables have the numbers of those they were copied from, and the log only went on."""
    connection = await asyncpg.connect(server.dsn)
    # One that somebody is connected to is neither copied, nor dropped, nor renamed.
    leave = "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE datname = 'relayer'"
    await connection.execute("CREATE DATABASE relayer")
    original = f"postgresql://postgres@127.0.0.1:{server.port}/relayer?schema=relayer"
    store = await open_patiently(original)
    await store.declare([LANE])
    await accept(store, "kept")
    await store.close()
    await connection.fetch(leave)
    await connection.execute("CREATE DATABASE backup TEMPLATE relayer")
    store = await open_patiently(original)
    await accept(store, "lost")
    assert await store.incarnation() == 0
    await store.close()
    await connection.execute("DROP DATABASE relayer WITH (FORCE)")
    await connection.execute("ALTER DATABASE backup RENAME TO relayer")
    again = await open_patiently(original)
    assert await again.incarnation() == 1
    assert [tx.id for tx in await again.transactions(Filter())] == ["kept"]
    await again.close()
    # A new name alone loses nothing.
    await connection.fetch(leave)
    await connection.execute("ALTER DATABASE relayer RENAME TO renamed")
    renamed = await open_patiently(original.replace("/relayer?", "/renamed?"))
    assert await renamed.incarnation() == 1
    await renamed.close()
    await connection.close()


async def test_tables_that_are_written_anew_are_the_same_tables(server: Cluster) -> None:
    store = await opened(server, "rewritten")
    connection = await asyncpg.connect(server.dsn)
    await connection.execute("VACUUM FULL rewritten.meta")
    await connection.close()
    await store.heartbeat("old", 10)
    await store.close()
    again = await opened(server, "rewritten")
    assert await again.incarnation() == 0
    await again.close()


# the guide: what it says is done, to the letter


@dataclass(frozen=True, slots=True)
class Relayer:
    """The database and the user that the guide speaks of."""

    server: Cluster
    folder: Path

    async def opened(self, server: Cluster | None = None) -> PostgresStore:
        port = (server or self.server).port
        store = await open_patiently(f"postgresql://relayer@127.0.0.1:{port}/relayer")
        await store.declare([LANE])
        return store

    def follow(self, word: str) -> None:
        """Every command of the guide with this word in it, in a folder of our own."""
        guide = (ROOT / "docs/how-to/back-up-and-restore.md").read_text()
        lines = [line for block in re.findall(r"```sh\n(.*?)```", guide, re.DOTALL) for line in block.splitlines()]
        commands = [line for line in lines if word in line]
        assert commands, f"the guide does not say {word} any more"
        surroundings = {
            **os.environ,
            "PATH": f"{Path(program('pg_dump')).parent}:{os.environ['PATH']}",
            "PGHOST": "127.0.0.1",
            "PGPORT": str(self.server.port),
            "PGUSER": "relayer",
            "PGDATABASE": "relayer",
        }
        for command in commands:
            run_in(self.folder, surroundings, [*unprivileged(), "sh", "-ec", command])


def run_in(folder: Path, surroundings: Mapping[str, str], command: Sequence[str]) -> None:
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=folder, env=surroundings)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"


@pytest.fixture
async def relayer(server: Cluster) -> AsyncIterator[Relayer]:
    connection = await asyncpg.connect(server.dsn)
    for statement in (
        "CREATE USER relayer",
        "CREATE USER replicator REPLICATION",
        "CREATE DATABASE relayer OWNER relayer",
    ):
        await connection.execute(statement)
    await connection.close()
    folder = server.folder / "guide"
    folder.mkdir()
    give(folder)
    yield Relayer(server, folder)
    shutil.rmtree(folder)
    connection = await asyncpg.connect(server.dsn)
    for statement in ("DROP DATABASE relayer WITH (FORCE)", "DROP USER relayer", "DROP USER replicator"):
        await connection.execute(statement)
    await connection.close()


async def test_a_dump_that_is_restored_as_the_guide_says_is_noticed(relayer: Relayer) -> None:
    store = await relayer.opened()
    await accept(store, "kept")
    relayer.follow("pg_dump")
    await accept(store, "lost")
    await store.close()
    relayer.follow("ALTER SCHEMA")
    relayer.follow("pg_restore")
    with capture_logs() as logs:
        again = await relayer.opened()
    assert losses(logs) == 1
    assert await again.incarnation() == 1
    assert [tx.id for tx in await again.transactions(Filter())] == ["kept"]
    await accept(again, "new")
    await again.close()
    # What was moved out of the way is still there.
    before = await open_patiently(
        f"postgresql://relayer@127.0.0.1:{relayer.server.port}/relayer?schema=nonchalant_before"
    )
    assert {tx.id for tx in await before.transactions(Filter())} == {"kept", "lost"}
    await before.close()


async def test_a_copy_of_the_server_that_recovers_as_the_guide_says_is_noticed(relayer: Relayer) -> None:
    store = await relayer.opened()
    await accept(store, "kept")
    relayer.follow("pg_basebackup")
    await accept(store, "lost")
    await store.close()
    relayer.follow("recovery.signal")
    relayer.follow("restore_command")
    restored = Cluster(relayer.folder)
    (relayer.folder / "backup").rename(restored.data)
    restored.start()
    try:
        connection = await asyncpg.connect(restored.dsn)
        async with asyncio.timeout(120):
            while await connection.fetchval("SELECT pg_is_in_recovery()"):  # noqa: ASYNC110 - the server tells nobody
                await asyncio.sleep(0.02)
        await connection.close()
        with capture_logs() as logs:
            again = await relayer.opened(restored)
        assert losses(logs) == 1
        assert await again.incarnation() == 1
        assert [tx.id for tx in await again.transactions(Filter())] == ["kept"]
        await again.close()
    finally:
        restored.stop(signal.SIGQUIT)


async def test_a_snapshot_that_nobody_saw_replaced_is_told_by_hand_as_the_guide_says(relayer: Relayer) -> None:
    server = relayer.server
    store = await relayer.opened()
    await accept(store, "kept")
    server.stop()
    copy = copied(server, "unseen")
    server.start()
    await heard_of_it()
    await accept(store, "lost")
    await store.close()
    server.stop()
    put_back(server, copy)
    server.start()
    await heard_of_it()
    store = await relayer.opened()
    assert await store.incarnation() == 0, "then nobody needs to tell it"
    await store.close()
    relayer.follow("system_identifier = 0")
    for _ in range(2):  # once, however often nodes start
        again = await relayer.opened()
        assert await again.incarnation() == 1
        await again.close()
