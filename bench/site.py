"""What a run needs, all of it new: a chain, a store, a folder, and as many nodes of ours as are wanted."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeVar

import msgspec

from bench import audit, books, chain, database, service, settings
from bench.chain import Chain
from bench.order import Order
from bench.service import Service
from bench.work import Transfer
from tests.anvil import ROOT
from tests.postgres import Cluster

StoreKind = Literal["postgresql", "sqlite", "none"]
T = TypeVar("T")

MOST_SECONDS: Final = 300.0


class NotDone(Exception):
    """A contestant did not come to its end; what there is to say about it follows."""


@dataclass(frozen=True, slots=True)
class Site:
    chain: Chain
    store: str
    folder: Path
    lanes: int
    database: int | None  # the server's process, if there is one
    services: tuple[Service, ...]
    first_nonce: int

    def order(self, contestant: str, *, count: int, profile: str = "") -> Order:
        """For a contestant on this site."""
        watched: dict[str, tuple[int, ...]] = {"chain": (self.chain.pid,)}
        if self.database is not None:
            watched["database"] = (self.database,)
        if self.services:
            watched["ours"] = tuple(one.pid for one in self.services)
        return Order(
            contestant=contestant,
            url=self.chain.url,
            lanes=self.lanes,
            count=count,
            store=self.store,
            settings=str(settings.write(self.folder, url=self.chain.url, store=self.store, lanes=self.lanes)),
            services=tuple(one.url for one in self.services),
            watched=watched,
            profile=profile,
        )

    async def audit(self, asked: Iterable[Transfer]) -> list[audit.Deed]:
        """What the chain executed; `audit.Failed` unless that is each of these once, and the store agrees."""
        async with books.opened(self.store) as kept:
            rows = await books.rows(kept)
        deeds = await audit.deeds(self.chain.rpc)
        audit.check(deeds, rows, asked, first_nonce=self.first_nonce)
        return deeds


@asynccontextmanager
async def opened(
    cluster: Cluster,
    *,
    chain_kind: chain.Kind = "stub",
    store: StoreKind = "postgresql",
    lanes: int = 20,
    nodes: int = 0,
    first_nonce: int = 0,
) -> AsyncIterator[Site]:
    """`nodes`: how many services of ours run on it."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        running = await stack.enter_async_context(chain.running(chain_kind, lanes, first_nonce=first_nonce))
        address = "" if store == "none" else f"sqlite:{folder / 'bench.db'}"
        if store == "postgresql":
            address = await stack.enter_async_context(database.database(cluster))
        services = [
            await stack.enter_async_context(service.running(folder, url=running.url, store=address, lanes=lanes))
            for _ in range(nodes)
        ]
        yield Site(
            chain=running,
            store=address,
            folder=folder,
            lanes=lanes,
            database=cluster.pid if store == "postgresql" else None,
            services=tuple(services),
            first_nonce=first_nonce,
        )


async def contest(order: Order, answer: type[T]) -> T:
    """What a contestant tells, from a process and a session of its own: who stops us stops it through us."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.contestant"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        cwd=ROOT,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(MOST_SECONDS):
            told, _ = await process.communicate(msgspec.json.encode(order))
    except TimeoutError:
        raise NotDone(f"{order.contestant} needs more than {MOST_SECONDS:g} s: try fewer --transactions") from None
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    if process.returncode:
        raise NotDone(f"{order.contestant} ended with {process.returncode}; its own words are above")
    return msgspec.json.decode(told, type=answer)
