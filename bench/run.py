"""One run of one case."""

from __future__ import annotations

from bench import books, site
from bench.case import Case, Figures
from bench.order import Outcome
from bench.profile import profiled
from bench.work import transfers
from tests.postgres import Cluster


async def measured(case: Case, cluster: Cluster, *, profile: str = "") -> Figures:
    """What was reached; `audit.Failed` if a promise was broken meanwhile."""
    async with site.opened(
        cluster, chain_kind=case.chain, store=case.store, lanes=case.lanes, nodes=case.nodes if case.is_service else 0
    ) as place:
        order = place.order(case.contestant, count=case.count, profile=profile if case.is_library else "")
        async with profiled(profile if case.is_service else "", *(one.pid for one in place.services[:1])):
            outcome = await site.contest(order, Outcome)
        executed = outcome.seconds
        if case.is_ours:
            await place.audit(transfers(case.lanes, case.count))
            async with books.opened(place.store) as kept:
                executed = (await books.last_mined(kept) - outcome.since) / 1000
    return Figures(
        done=case.count / outcome.seconds,
        executed=case.count / executed,
        seconds=outcome.seconds,
        cpu={who: used / case.count * 1e6 for who, used in outcome.cpu.items()},
    )
