"""One run of one case: everything it needs is new, and what it did is audited."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec

from bench import audit, books, chain, database, service, settings
from bench.case import LIBRARY, Case, Figures
from bench.chain import Chain
from bench.order import Order, Outcome
from bench.profile import profiled
from tests.postgres import Cluster

MOST_SECONDS: Final = 300.0


async def measured(case: Case, cluster: Cluster, *, profile: str = "") -> Figures:
    async with AsyncExitStack() as stack:
        node = await stack.enter_async_context(chain.running(case.chain, case.lanes))
        store, folder = await stack.enter_async_context(_store(case, cluster))
        watched: dict[str, tuple[int, ...]] = {"chain": (node.pid,)}
        if case.store == "postgresql" and cluster.pid is not None:
            watched["database"] = (cluster.pid,)
        order = Order(contestant=case.contestant, url=node.url, lanes=case.lanes, count=case.count, store=store)
        if case.contestant == LIBRARY:
            file = settings.write(folder, url=node.url, store=store, lanes=case.lanes)
            order = msgspec.structs.replace(order, settings=str(file), profile=profile)
        if case.is_service:
            ours = await stack.enter_async_context(
                service.several(case.nodes, folder, url=node.url, store=store, lanes=case.lanes)
            )
            watched["ours"] = tuple(one.pid for one in ours)
            order = msgspec.structs.replace(order, services=tuple(one.url for one in ours))
            await stack.enter_async_context(profiled(profile, ours[0].pid))
        outcome = await contest(msgspec.structs.replace(order, watched=watched))
        executed = await _audited(case, node, store, outcome) if case.is_ours else outcome.seconds
    return Figures(
        done=case.count / outcome.seconds,
        executed=case.count / executed,
        seconds=outcome.seconds,
        cpu={who: used / case.count * 1e6 for who, used in outcome.cpu.items()},
    )


async def contest(order: Order) -> Outcome:
    """In a process of its own, and a session of its own: who stops us stops it through us."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.contestant"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(MOST_SECONDS):
            told, _ = await process.communicate(msgspec.json.encode(order))
    except TimeoutError:
        raise audit.Failed(
            f"{order.contestant} was not done after {MOST_SECONDS:g} s; try fewer --transactions"
        ) from None
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    if process.returncode:
        raise audit.Failed(f"{order.contestant} ended with {process.returncode}; its own words are above")
    return msgspec.json.decode(told, type=Outcome)


async def _audited(case: Case, node: Chain, store: str, outcome: Outcome) -> float:
    """The audit; then, how long it took until all was executed, in seconds."""
    async with books.opened(store) as kept:
        rows = await books.rows(kept)
        mined = await books.last_mined(kept)
    audit.check(await audit.deeds(node.rpc), rows, lanes=case.lanes, values=range(1, case.count + 1))
    return (mined - outcome.since) / 1000


@asynccontextmanager
async def _store(case: Case, cluster: Cluster) -> AsyncIterator[tuple[str, Path]]:
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        match case.store:
            case "postgresql":
                async with database.database(cluster) as dsn:
                    yield dsn, folder
            case "sqlite":
                yield f"sqlite:{folder / 'bench.db'}", folder
            case "none":
                yield "", folder
