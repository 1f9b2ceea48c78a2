"""A run: the crowd, the load, the harms; then quiet, until everything settled; then the audit."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import asyncpg

from tests import anvil, postgres
from tests.anvil import Anvil
from tests.e2e.chaos import takeovers
from tests.e2e.chaos.audit import NOTHING_LEFT, Verdict, Witness, audit
from tests.e2e.chaos.crowd import SCHEMA, Crowd, address_of, gathered
from tests.e2e.chaos.harms import Harms
from tests.e2e.chaos.links import Ear
from tests.e2e.chaos.load import Load
from tests.e2e.rig import until
from tests.postgres import Cluster

# Finality is twice as many blocks behind the head: deeper than the deepest reorg.
SLOTS_IN_AN_EPOCH = 3
SETTLE_SECONDS = 300.0
SAY_EVERY_SECONDS = 10.0
# False alarms: nothing was lost, and nobody else used these keys.
UNDUE = ("store.lost_commits", "lane.quarantined", "lane.foreign")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    transactions: int
    kills: int
    restarts: int
    backends: int
    freezes: int
    cuts: int  # from the database, and as many from the chain
    reorgs: int
    nodes: int = 3
    accounts: int = 20
    lease: float = 2.0  # in seconds; the least that the settings take
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Figures:
    plan: Plan
    seconds: float
    verdict: Verdict
    load: Load
    crowd: Crowd
    harms: Harms
    warnings: Counter[str]
    waits: dict[str, list[float]] = field(default_factory=dict)

    def lines(self) -> list[str]:
        plan, load, crowd = self.plan, self.load, self.crowd
        ways = ", ".join(f"{way} {times}" for way, times in sorted(self.harms.ways.items()))
        done = ", ".join(f"{name} {times}" for name, times in sorted(self.harms.done.items()))
        points = ", ".join(f"{point} {times}" for point, times in crowd.died.most_common())
        said = ", ".join(f"{event} {times}" for event, times in self.warnings.most_common())
        what = (
            f"{load.asked} transactions over {plan.accounts} accounts through {plan.nodes} nodes, leases of {plan.lease:g} s, "
            f"seed {plan.seed}: {crowd.killed} times kill -9 at a crash point, frozen {crowd.frozen} times, {done} ({ways}); "
            f"{crowd.left} stopped by SIGTERM, {crowd.not_now} starts found no database; {self.seconds:.0f} s"
        )
        clients = (
            f"clients: {load.unanswered} requests unanswered and {load.refused} told to come back, all tried again under "
            f"the same key; {load.repeated} asked twice on purpose, the same answer each time; "
            f"{load.admitted} were answered signed already"
        )
        return [what, str(self.verdict), clients, f"died at: {points}", f"warnings of the nodes: {said}"]

    def table(self) -> list[str]:
        return takeovers.table(self.waits)


async def run(folder: Path, plan: Plan, say: Callable[[str], None] = print) -> Figures:
    began = time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    with postgres.running() as server:
        async with anvil.running(slots_in_an_epoch=SLOTS_IN_AN_EPOCH) as chain:
            return await _run(folder, plan, server, chain, began, say)


async def _run(
    folder: Path, plan: Plan, server: Cluster, chain: Anvil, began: float, say: Callable[[str], None]
) -> Figures:
    witness = Witness(server.dsn, SCHEMA)
    ear, chances = Ear(witness), [random.Random(f"{plan.seed} {part}") for part in ("crowd", "harms", "load")]
    options = {
        "nodes": plan.nodes,
        "accounts": plan.accounts,
        "lease": plan.lease,
        "kills": plan.kills,
        "freezes": plan.freezes,
    }
    async with gathered(folder, chain, server, **options, ear=ear, chance=chances[0]) as crowd:
        wanted = {
            "restarts": plan.restarts,
            "backends": plan.backends,
            "database cuts": plan.cuts,
            "chain cuts": plan.cuts,
            "reorgs": plan.reorgs,
        }
        harms = Harms(crowd, chain, server, plan.lease, wanted, chances[1])

        senders = [address_of(number) for number in range(plan.accounts)]
        load = Load([one.url for one in crowd.members], senders, plan.transactions, lambda: harms.share, chances[2])
        async with asyncio.TaskGroup() as group:
            without_end = [
                group.create_task(task)
                for task in (crowd.lookout.watch(), harms.mine(), _tell(crowd, harms, load, server, say))
            ]
            living = group.create_task(crowd.run())
            asking = group.create_task(load.run())
            await harms.run()
            load.enough = True
            say("no more harm")
            await asking
            say("everything is accepted")
            await until(lambda: _settled(server), lambda: "everything settled", seconds=SETTLE_SECONDS, every=0.5)
            await crowd.dissolve()
            await living
            for task in without_end:
                task.cancel()
        connection = await asyncpg.connect(server.dsn, server_settings={"search_path": SCHEMA})
        try:
            verdict = await audit(
                chain,
                connection,
                acknowledged=load.acknowledged,
                asked=load.asked,
                unwanted=load.unwanted,
                sent=ear.sent,
                witness=witness,
                stopped=crowd.stopped,
            )
        finally:
            await connection.close()
            await witness.close()
    say(str(verdict))
    seconds = time.monotonic() - began
    return Figures(plan, seconds, verdict, load, crowd, harms, _warnings(folder), crowd.lookout.waits())


async def _settled(server: Cluster) -> bool:
    with suppress(asyncpg.PostgresError, OSError, TimeoutError):
        connection = await asyncpg.connect(server.dsn, timeout=5, server_settings={"search_path": SCHEMA})
        try:
            return not any([await connection.fetchval(query) for query in NOTHING_LEFT.values()])
        finally:
            connection.terminate()
    return False


async def _tell(crowd: Crowd, harms: Harms, load: Load, server: Cluster, say: Callable[[str], None]) -> None:
    began = time.monotonic()
    while True:
        await asyncio.sleep(SAY_EVERY_SECONDS)
        states = ""
        with suppress(asyncpg.PostgresError, OSError, TimeoutError):
            connection = await asyncpg.connect(server.dsn, timeout=5, server_settings={"search_path": SCHEMA})
            try:
                found = await connection.fetch(
                    "SELECT state, count(*) AS n FROM transactions GROUP BY state ORDER BY 1"
                )
                states = ", ".join(f"{row['state']} {row['n']}" for row in found)
            finally:
                connection.terminate()
        done = ", ".join(f"{name} {harms.done[name]}/{times}" for name, times in harms.wanted.items() if times)
        alive = sum(one.is_alive for one in crowd.members)
        say(
            f"{time.monotonic() - began:4.0f} s: {alive} alive, kills {crowd.killed}/{crowd.kills}, freezes {crowd.frozen}/{crowd.freezes}, {done}; "
            f"{len(load.acknowledged)} of {load.transactions} accepted: {states}"
        )


def _warnings(folder: Path) -> Counter[str]:
    """What the nodes warned of, by event; nothing that nobody expected."""
    found: Counter[str] = Counter()
    for path in sorted(folder.glob("node*.log")):
        for line in path.read_text().splitlines():
            # A line cut off by a kill is nobody's.
            with suppress(json.JSONDecodeError):
                said = json.loads(line) if line.startswith("{") else {}
                if said.get("level") in ("warning", "error", "critical"):
                    found[said["event"]] += 1
                assert "exception" not in said, f"{path}: {line[:3000]}"
                assert said.get("event") not in UNDUE, f"{path}: {line}"
    return found
