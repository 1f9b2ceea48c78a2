"""One run of one case: everything it needs is new, and what it did is audited."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec

from bench import audit, books, chain, database, settings, usage
from bench.case import Case, Figures
from bench.chain import Chain
from bench.order import Order, Outcome
from tests.postgres import Cluster

MOST_SECONDS: Final = 240.0


async def measured(case: Case, cluster: Cluster, *, profile: str = "") -> Figures:
    async with chain.running(case.chain, case.lanes) as node, _store(case, cluster) as (store, folder):
        order = Order(
            contestant=case.contestant,
            url=node.url,
            lanes=case.lanes,
            count=case.count,
            store=store,
            settings=str(settings.write(folder, url=node.url, store=store, lanes=case.lanes)) if case.is_ours else "",
            profile=profile if case.is_ours else "",
        )
        before = usage.cpu(node.pid), _database_cpu(cluster)
        outcome = await contest(order)
        used = usage.cpu(node.pid) - before[0], _database_cpu(cluster) - before[1]
        executed = await _audited(case, node, store, outcome) if case.is_ours else outcome.seconds
    each = 1e6 / case.count
    return Figures(
        done=case.count / outcome.seconds,
        executed=case.count / executed,
        seconds=outcome.seconds,
        cpu=outcome.cpu * each,
        chain_cpu=used[0] * each,
        database_cpu=used[1] * each,
    )


async def contest(order: Order) -> Outcome:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.contestant"), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
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
            process.kill()
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


def _database_cpu(cluster: Cluster) -> float:
    return 0.0 if cluster.pid is None else usage.cpu_of_family(cluster.pid)


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
