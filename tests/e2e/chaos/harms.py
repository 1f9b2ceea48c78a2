"""What else is done to the crowd while its nodes die: a seeded schedule, spread over the kills."""

from __future__ import annotations

import asyncio
import random
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

import asyncpg

from tests.anvil import Anvil
from tests.e2e.chaos.crowd import Crowd
from tests.e2e.chaos.links import Condition
from tests.e2e.chaos.takeovers import now_ms
from tests.e2e.rig import until
from tests.postgres import Cluster

NOBODY_DIED_SECONDS = 180.0

BLOCK_SECONDS = 0.5
DEEPEST_REORG = 3

# Longer than a lease, so that somebody else takes the lanes meanwhile.
LEASES_CUT_OFF = (1.5, 2.5)

# How the server goes: it says farewell, or it crashes and recovers.
WAYS = {"fast": signal.SIGINT, "immediate": signal.SIGQUIT}
BROKEN = (Condition.CUT, Condition.STALLED, Condition.DEAF)

# Which backends belong to nodes; the harness has others.
BACKENDS = "SELECT pid FROM pg_stat_activity WHERE application_name = 'nonchalant' AND pid <> pg_backend_pid()"


@dataclass(slots=True)
class Harms:
    """`wanted`: how many of each, by name."""

    crowd: Crowd
    chain: Anvil
    server: Cluster
    lease: float
    wanted: Mapping[str, int]
    chance: random.Random
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)  # who makes blocks
    done: Counter[str] = field(default_factory=Counter)
    ways: Counter[str] = field(default_factory=Counter)  # of which kinds those were

    async def run(self) -> None:
        """Until all of it is done, and the kills are too."""
        acts: dict[str, Callable[[], Awaitable[bool]]] = {
            "restarts": self.restart,
            "backends": self.terminate,
            "database cuts": self.cut_database,
            "chain cuts": self.cut_chain,
            "reorgs": self.reorg,
        }
        kills = max(1, self.crowd.kills)
        agenda = sorted(
            ((self.chance.uniform(0, kills), name) for name, times in self.wanted.items() for _ in range(times)),
        )
        async with asyncio.TaskGroup() as group:
            for due, name in agenda:
                await self._killed(min(due, kills - 1))
                group.create_task(self._do(name, acts[name]))
                # Not all at once when there are few kills to spread them over.
                await asyncio.sleep(self.chance.uniform(0.1, 0.5))
            await self._killed(self.crowd.kills)
            await until(lambda: self.crowd.frozen >= self.crowd.freezes, "all freezes", seconds=NOBODY_DIED_SECONDS)

    async def _killed(self, times: float) -> None:
        """Until so many died; if nobody dies for long, something is wrong."""
        while self.crowd.killed < min(times, self.crowd.kills):
            before = self.crowd.killed
            await until(lambda: self.crowd.killed > before, "somebody died", seconds=NOBODY_DIED_SECONDS)  # noqa: B023

    async def _do(self, name: str, act: Callable[[], Awaitable[bool]]) -> None:
        # Not done: there was nobody to do it to.
        await until(act, f"one of {name}", seconds=NOBODY_DIED_SECONDS, every=0.1)
        self.done[name] += 1

    @property
    def share(self) -> float:
        """How much of it all has been done, from 0 to 1."""
        crowd = self.crowd
        wanted = crowd.kills + crowd.freezes + sum(self.wanted.values())
        done = min(crowd.killed, crowd.kills) + min(crowd.frozen, crowd.freezes) + self.done.total()
        return done / wanted if wanted else 1.0

    async def restart(self) -> bool:
        if self.ways["down"]:
            return False  # one at a time
        self.ways["down"] = 1
        way = self.chance.choice(list(WAYS))
        began = now_ms()
        try:
            await asyncio.to_thread(self.server.restart, WAYS[way])
        finally:
            del self.ways["down"]
        self.crowd.lookout.outages.append((began, now_ms()))
        self.ways[f"PostgreSQL restarted, {way}"] += 1
        return True

    async def terminate(self) -> bool:
        """One connection of some node."""
        try:
            connection = await asyncpg.connect(self.server.dsn, timeout=5)
        except (asyncpg.PostgresError, OSError, TimeoutError):
            return False
        try:
            pids = [row["pid"] for row in await connection.fetch(BACKENDS)]
            return bool(pids) and await connection.fetchval(
                "SELECT pg_terminate_backend($1)", self.chance.choice(pids), timeout=5
            )
        except (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError):
            return False
        finally:
            connection.terminate()

    async def cut_database(self) -> bool:
        """One node from the database, longer than its lease."""
        one = self.crowd.victim()
        if one is None:
            return False
        condition = self.chance.choice(BROKEN)
        one.database.become(condition)
        self.crowd.lookout.left("cut from the database", one.owner)
        try:
            await asyncio.sleep(self.lease * self.chance.uniform(*LEASES_CUT_OFF))
        finally:
            one.database.become(Condition.WHOLE)
        self.ways[f"database link {condition}"] += 1
        return True

    async def cut_chain(self) -> bool:
        """One node from the chain. It keeps its lanes: it can still renew."""
        one = self.crowd.victim()
        if one is None:
            return False
        condition = self.chance.choice(BROKEN)
        one.chain.become(condition)
        try:
            await asyncio.sleep(self.lease * self.chance.uniform(*LEASES_CUT_OFF))
        finally:
            one.chain.become(Condition.WHOLE)
        self.ways[f"chain link {condition}"] += 1
        return True

    async def reorg(self) -> bool:
        """The last blocks are others, and what they had executed is forgotten: it must be sent again."""
        async with self.turn:
            await self.chain.reorg(self.chance.randint(1, DEEPEST_REORG))
        return True

    async def mine(self) -> None:
        """Blocks by the clock. Not by anvil's own: one that falls into a reorg leaves a hole in its chain."""
        while True:
            await asyncio.sleep(BLOCK_SECONDS)
            async with self.turn:
                await self.chain.mine()
