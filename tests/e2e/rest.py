"""What lanes at rest cost: memory, queries and a core's time of each node, with few lanes and with many, idle and busy.

    python -m tests.e2e.rest --lanes 10000 --busy 50 --nodes 3

The nodes are `nonchalant serve`, each a process of its own, on a real PostgreSQL and a real anvil; then one on SQLite.
Queries are counted by the server itself (pg_stat_statements), all of them: BEGIN, SET and COMMIT too.
"""

from __future__ import annotations

import argparse
import asyncio
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import aiohttp
import asyncpg

from nonchalant.signers import from_mnemonic
from tests import anvil, postgres, results
from tests.e2e import ledger, restart
from tests.e2e.rig import until
from tests.ports import free_port

# What a node that just started may still do before it is at rest: a lane that is idle is kept for five seconds.
CALM_SECONDS = 10.0
SETTLE_SECONDS = 120.0
MIB = 1024


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one node, on average, over a time."""

    memory: float  # resident, in MiB
    cpu: float  # share of one core, in percent
    queries: float  # a second; on SQLite commits
    connections: float = 0.0
    often: Mapping[str, float] = field(default_factory=dict)  # the queries asked most, a second and node

    def __str__(self) -> str:
        return f"{self.memory:.0f} MiB, {self.cpu:.1f} % of a core, {self.queries:.1f} a second"


class Books(Protocol):
    """The database, as somebody who only counts sees it."""

    what: str

    async def queries(self) -> Counter[str]: ...

    async def connections(self) -> int: ...

    async def states(self) -> Counter[str]: ...


@dataclass(slots=True)
class PostgresBooks:
    connection: asyncpg.Connection
    what: str = "queries"

    async def queries(self) -> Counter[str]:
        rows = await self.connection.fetch(
            "SELECT query, sum(calls)::BIGINT AS calls FROM pg_stat_statements"
            " WHERE query NOT LIKE '%pg_stat_%' GROUP BY query"
        )
        return Counter({row["query"]: row["calls"] for row in rows})

    async def connections(self) -> int:
        # Wake-ups are on a connection that does not say whose it is.
        found: int = await self.connection.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
        )
        return found

    async def states(self) -> Counter[str]:
        rows = await self.connection.fetch("SELECT state, count(*) AS n FROM nonchalant.transactions GROUP BY state")
        return Counter({row["state"]: row["n"] for row in rows})


@dataclass(slots=True)
class SqliteBooks:
    file: Path
    what: str = "commits"

    async def queries(self) -> Counter[str]:
        with closing(sqlite3.connect(f"file:{self.file}?mode=ro", uri=True, timeout=10)) as connection:
            return Counter({"COMMIT": connection.execute("SELECT commits FROM meta").fetchone()[0]})

    async def connections(self) -> int:
        return 0

    async def states(self) -> Counter[str]:
        return ledger.count_states(self.file)


@dataclass(slots=True)
class Installation:
    """Nodes on one store, all of them with the same accounts."""

    folder: Path
    chain: anvil.Anvil
    store: str
    lanes: int
    nodes: int
    addresses: Sequence[str]
    session: aiohttp.ClientSession
    ports: list[int] = field(default_factory=list)
    processes: list[asyncio.subprocess.Process] = field(default_factory=list)
    sent: int = 0

    async def start(self) -> float:
        """All of them at once; the seconds until the last one is ready."""
        (self.folder / "nonchalant.toml").write_text(
            f"""
            store = "{self.store}"
            auth = "off"
            [[chains]]
            id = {anvil.CHAIN_ID}
            endpoints = ["{self.chain.url}"]
            [[accounts]]
            chains = [{anvil.CHAIN_ID}]
            key = {{ mnemonic = {{ env = "REST_PHRASE" }}, count = {self.lanes} }}
            """
        )
        began = time.monotonic()
        for _ in range(self.nodes):
            port = free_port()
            environment = {"REST_PHRASE": anvil.MNEMONIC, "NONCHALANT_LISTEN": f"127.0.0.1:{port}"}
            self.processes.append(await restart.serve(self.folder, environment))
            self.ports.append(port)
        for port in self.ports:
            await until(lambda: restart.is_ready(port), self._said, seconds=120)  # noqa: B023
        return time.monotonic() - began

    def _said(self) -> str:
        ended = [process.returncode for process in self.processes]
        return f"all ready; ended: {ended}; they said:\n{(self.folder / 'serve.log').read_text()[-3000:]}"

    async def stop(self) -> None:
        for process in self.processes:
            if process.returncode is None:
                process.terminate()
        for process in self.processes:
            await process.wait()

    async def measure(self, books: Books, seconds: float) -> Cost:
        began, cpu, queries = time.monotonic(), self._cpu(), await books.queries()
        await asyncio.sleep(seconds)
        took, asked = time.monotonic() - began, await books.queries()
        asked.subtract(queries)
        share = 1 / took / self.nodes
        return Cost(
            memory=sum(restart.resident(process.pid) for process in self.processes) / MIB / self.nodes,
            cpu=100 * (self._cpu() - cpu) * share,
            queries=asked.total() * share,
            connections=await books.connections() / self.nodes,
            often={query: calls * share for query, calls in asked.most_common(25) if calls},
        )

    def _cpu(self) -> float:
        return sum(restart.cpu(process.pid) for process in self.processes)

    async def keep_busy(self, every: float) -> None:
        """Each of the busy accounts sends one every so many seconds, through one node after the other. What takes longer
        is caught up with."""
        began, gap = time.monotonic(), every / len(self.addresses)
        while True:
            for address in self.addresses:
                body = {"chain_id": anvil.CHAIN_ID, "from": address, "to": ledger.recipient("rest"), "value": 1}
                url = f"http://127.0.0.1:{self.ports[self.sent % self.nodes]}/v1/transactions"
                async with self.session.post(url, json=body) as answer:
                    assert answer.status == 202, await answer.text()
                self.sent += 1
                await asyncio.sleep(began + self.sent * gap - time.monotonic())


@dataclass(frozen=True, slots=True)
class Figures:
    lanes: int
    started: float
    rest: Cost
    busy: Cost | None
    sent: int
    rate: float


async def run_one(books: Books, place: Installation, options: argparse.Namespace) -> Figures:
    try:
        started = await place.start()
        await asyncio.sleep(CALM_SECONDS)
        rest = await place.measure(books, options.seconds)
        busy, rate = None, 0.0
        if options.busy:
            traffic = asyncio.create_task(place.keep_busy(options.every))
            await asyncio.sleep(CALM_SECONDS)
            began, before = time.monotonic(), place.sent
            busy = await place.measure(books, options.seconds)
            rate = (place.sent - before) / (time.monotonic() - began)
            traffic.cancel()
            await asyncio.wait([traffic])
            if not traffic.cancelled():
                traffic.result()
            await until(lambda: _all_settled(books, place), "all settled", seconds=SETTLE_SECONDS, every=0.5)
        return Figures(place.lanes, started, rest, busy, place.sent, rate)
    finally:
        await place.stop()


async def _all_settled(books: Books, place: Installation) -> bool:
    # A call that was cut off may have been taken all the same.
    states = await books.states()
    return set(states) <= {"confirmed"} and states["confirmed"] >= place.sent


@asynccontextmanager
async def ground(lanes: int, options: argparse.Namespace) -> AsyncIterator[Installation]:
    async with AsyncExitStack() as stack:
        funded = ("--accounts", str(max(1, options.busy)))
        chain = await stack.enter_async_context(anvil.running(*funded, block_time=1))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rest-")))
        session = await stack.enter_async_context(aiohttp.ClientSession())
        busy = from_mnemonic(anvil.MNEMONIC, anvil.PATH, options.busy) if options.busy else []
        yield Installation(folder, chain, "", lanes, 1, [signer.address for signer in busy], session)


async def on_postgres(lanes: int, options: argparse.Namespace) -> Figures:
    with postgres.running({"shared_preload_libraries": "pg_stat_statements"}) as cluster:
        connection = await asyncpg.connect(cluster.dsn)
        try:
            await connection.execute("CREATE EXTENSION pg_stat_statements")
            async with ground(lanes, options) as place:
                place.store, place.nodes = cluster.dsn, options.nodes
                return await run_one(PostgresBooks(connection), place, options)
        finally:
            await connection.close()


async def on_sqlite(lanes: int, options: argparse.Namespace) -> Figures:
    async with ground(lanes, options) as place:
        place.store = "sqlite:nonchalant.db"
        return await run_one(SqliteBooks(place.folder / "nonchalant.db"), place, options)


def lines(store: str, nodes: int, books: str, few: Figures, many: Figures) -> list[str]:
    told = []
    for one in (few, many):
        told.append(
            f"{store}, {nodes} node(s), {one.lanes} lanes: all ready after {one.started:.1f} s; a node at rest has {one.rest}"
            f" ({books})" + (f", {one.rest.connections:.0f} connections" if one.rest.connections else "")
        )
        if one.busy is not None:
            told.append(
                f"{store}, {nodes} node(s), {one.lanes} lanes, {one.rate:.1f} transactions a second: a node has {one.busy}"
                f" ({books})"
                + (f", {one.busy.connections:.0f} connections" if one.busy.connections else "")
                + f"; all {one.sent} confirmed"
            )
    idle = many.lanes - few.lanes
    told.append(
        f"{store}: {idle} idle lanes more cost a node at rest {many.rest.memory - few.rest.memory:+.1f} MiB,"
        f" {many.rest.cpu - few.rest.cpu:+.1f} % of a core, {many.rest.queries - few.rest.queries:+.1f} {books} a second"
    )
    return told


def show_often(cost: Cost) -> None:
    for query, rate in cost.often.items():
        print(f"  {rate:7.2f}  {' '.join(query.split())[:110]}")


async def run(options: argparse.Namespace) -> list[str]:
    told = []
    for store, measure, nodes, books in (
        ("PostgreSQL", on_postgres, options.nodes, "queries"),
        ("SQLite", on_sqlite, 1, "commits"),
    ):
        if store.lower() not in options.store:
            continue
        few, many = [await measure(lanes, options) for lanes in (max(1, options.busy), options.lanes)]
        told += lines(store, nodes, books, few, many)
        if options.queries:
            for title, cost in (("at rest", many.rest), ("busy", many.busy)):
                if cost is not None:
                    print(f"{store}, {many.lanes} lanes, {title}: {books} a second and node")
                    show_often(cost)
    return told


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.rest", description=__doc__)
    parser.add_argument("--lanes", type=int, default=10_000)
    parser.add_argument(
        "--busy", type=int, default=50, help="accounts that send; there are as many lanes in the first run"
    )
    parser.add_argument("--every", type=float, default=5.0, help="seconds between two transactions of a busy account")
    parser.add_argument("--nodes", type=int, default=3, help="on PostgreSQL; on SQLite there is one")
    parser.add_argument("--seconds", type=float, default=30.0, help="how long each measurement takes")
    parser.add_argument("--store", nargs="+", default=["postgresql", "sqlite"], choices=["postgresql", "sqlite"])
    parser.add_argument("--queries", action="store_true", help="also print which queries were asked most")
    parser.add_argument("--record", action="store_true", help="add the figures to bench/RESULTS.md")
    options = parser.parse_args()
    told = asyncio.run(run(options))
    print("\n".join(told))
    if options.record:
        results.record("Lanes at rest", " ".join(["python -m tests.e2e.rest", *sys.argv[1:]]), told)


if __name__ == "__main__":
    main()
