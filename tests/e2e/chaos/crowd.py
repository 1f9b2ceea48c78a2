"""Nodes that die and are started again, as a supervisor would, each behind wires of its own."""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path

from eth_account import Account

from tests import anvil
from tests.anvil import Anvil
from tests.e2e.chaos import member
from tests.e2e.chaos.links import Condition, Ear, Link
from tests.e2e.chaos.takeovers import Lookout
from tests.e2e.rig import NURSERY, until
from tests.ports import free_port
from tests.postgres import Cluster

SCHEMA = "nonchalant"
WINDOW = 8
ETHER = 10**18

# A node that has not come to its point by then never may: it is told to stop, as in a deployment.
LONGEST_LIFE_SECONDS = 20.0
# How many lives at least have a moment of standing still, until there were enough.
FREEZING_LIVES = 0.15
# How long a dead one stays away.
AWAY_SECONDS = (0.0, 1.5)

# Named points: the calls of a node at work, and how many times to let pass at most.
CALLS = {
    "store.commit": 40,
    "endpoint.send": 20,
    "signer.sign": 20,
    "store.acquire": 8,
    "store.load": 8,
    "store.accept": 20,
    "store.queued": 20,
    "store.renew": 4,
    "store.heartbeat": 5,
    "store.release": 2,
    "endpoint.account": 20,
    "endpoint.receipts": 10,
    "endpoint.block": 20,
}
# Where a frozen node does the most harm: with a commit, or bytes, that it sends when another has its lanes.
COLD_CALLS = {"store.commit:before": 12, "endpoint.send:before": 5, "signer.sign:after": 5, "store.renew:before": 2}
LEASES_FROZEN = (1.5, 2.5)

# Numbered points: a node at work makes some hundred steps a second.
LAST_STEP = 500


def key_of(number: int) -> str:
    return "0x" + hashlib.sha256(f"chaos account {number}".encode()).hexdigest()


def address_of(number: int) -> str:
    found: str = Account.from_key(key_of(number)).address.lower()
    return found


def a_point(chance: random.Random) -> str:
    """Somewhere to die: a step's number, or a side of a named call."""
    if chance.random() < 0.4:
        return str(chance.randint(1, LAST_STEP))
    call = chance.choice(list(CALLS))
    return f"{call}:{chance.choice(['before', 'after'])}:{chance.randint(1, CALLS[call])}"


def a_cold_point(chance: random.Random) -> tuple[str, str]:
    """Somewhere to freeze, and somewhere to die after that."""
    call = chance.choice(list(COLD_CALLS))
    return f"{call}:{chance.randint(1, COLD_CALLS[call])}", f"store.commit:after:{chance.randint(20, 60)}"


@dataclass(slots=True)
class Member:
    """One place in the crowd; processes come and go in it."""

    name: str
    folder: Path
    port: int
    database: Link
    chain: Link
    process: BaseProcess | None = None
    log: Path = Path()
    lives: int = 0
    frozen: bool = False
    told_to_stop: bool = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def is_alive(self) -> bool:
        return self.process is not None and self.process.exitcode is None

    @property
    def owner(self) -> str | None:
        """Who it is in the leases; None before it says."""
        lines = self.said().splitlines()[:5]
        return next((line.removeprefix("owner ") for line in lines if line.startswith("owner ")), None)

    def said(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    @property
    def stands_still(self) -> bool:
        """Whether its process is stopped by a signal."""
        if self.process is None:
            return False
        try:
            said = Path(f"/proc/{self.process.pid}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return False
        return said.rpartition(")")[2].split()[0] == "T"

    def start(self, crash_at: str | None, freeze_at: str | None = None) -> None:
        self.log = self.folder / f"{self.name}-{self.lives}.log"
        self.lives += 1
        self.told_to_stop = False
        arguments = ["--config", str(self.folder / f"{self.name}.toml")]
        arguments += [] if crash_at is None else ["--crash-at", crash_at]
        arguments += [] if freeze_at is None else ["--freeze-at", freeze_at]
        self.process = NURSERY.Process(target=member.main, args=(arguments, self.log))
        self.process.start()

    def signal(self, number: signal.Signals) -> None:
        if self.process is not None and self.process.pid is not None and self.is_alive:
            os.kill(self.process.pid, number)

    def tell_to_stop(self) -> None:
        """Once a life: to a node, a second signal means at once, whatever is under way."""
        if not self.told_to_stop:
            self.told_to_stop = True
            self.signal(signal.SIGTERM)

    async def ended(self) -> int:
        assert self.process is not None
        loop, over, sentinel = asyncio.get_running_loop(), asyncio.Event(), self.process.sentinel
        loop.add_reader(sentinel, over.set)
        try:
            await over.wait()
        finally:
            loop.remove_reader(sentinel)
        self.process.join()
        assert self.process.exitcode is not None
        return self.process.exitcode


@dataclass(slots=True)
class Crowd:
    members: list[Member]
    lookout: Lookout
    chance: random.Random
    lease: float
    kills: int  # how many are wanted
    freezes: int  # the same
    frozen: int = 0
    died: Counter[str] = field(default_factory=Counter)  # at which call, and which side of it
    killed: int = 0
    left: int = 0  # told to stop, and did
    stopped: list[str] = field(default_factory=list)  # who was there at the end, and left in good order
    not_now: int = 0  # starts that found no database
    _over: bool = False

    async def run(self) -> None:
        """Until it is dissolved; who dies is started again."""
        async with asyncio.TaskGroup() as group:
            for one in self.members:
                group.create_task(self._keep(one))

    async def _keep(self, one: Member) -> None:
        while not self._over:
            point = a_point(self.chance) if self.killed < self.kills or self.frozen < self.freezes else None
            cold = None
            if self.chance.random() < self._odds_of_freezing():
                cold, point = a_cold_point(self.chance)
            one.start(point, cold)
            began = time.monotonic()
            watching = [asyncio.create_task(self._thaw(one))] if cold is not None else []
            watching += [asyncio.create_task(self._retire(one))] if point is not None else []
            code = await one.ended()
            one.frozen = False
            for task in watching:
                task.cancel()
            await asyncio.gather(*watching, return_exceptions=True)
            match code:
                case -9 if point is not None:
                    self.killed += 1
                    self.died[point.rpartition(":")[0] or "by number"] += 1
                    self.lookout.left("kill -9", one.owner)
                case 0:
                    self.left += 1
                    if self._over and one.owner is not None:
                        self.stopped.append(one.owner)
                case -15 if one.owner is None:
                    self.left += 1  # told to stop before it had begun, and before it knew what that means
                case member.NOT_NOW:
                    self.not_now += 1
                case _:
                    raise AssertionError(f"{one.name} ended with {code}: {one.said()[-3000:]}")
            if not self._over:
                away = self.chance.uniform(*AWAY_SECONDS)
                await asyncio.sleep(max(away, 0.3 - (time.monotonic() - began)))

    def _odds_of_freezing(self) -> float:
        """For one life: so that the freezes last as long as the kills, and come to an end."""
        left = self.freezes - self.frozen
        return max(FREEZING_LIVES, left / max(1, self.kills - self.killed)) if left > 0 else 0.0

    async def _thaw(self, one: Member) -> None:
        """Let it go on when others have had time to take what it had."""
        await until(lambda: one.stands_still, "it stands still", seconds=LONGEST_LIFE_SECONDS * 2, every=0.02)
        one.frozen = True
        self.lookout.left("frozen", one.owner)
        await asyncio.sleep(self.lease * self.chance.uniform(*LEASES_FROZEN))
        self.frozen += 1
        one.frozen = False
        one.signal(signal.SIGCONT)

    async def _retire(self, one: Member) -> None:
        await asyncio.sleep(LONGEST_LIFE_SECONDS)
        await until(lambda: not one.frozen, "awake again", seconds=60)
        self.lookout.left("SIGTERM", one.owner)
        one.tell_to_stop()

    async def dissolve(self) -> None:
        """All of them stop in good order."""
        self._over = True
        for one in self.members:
            one.tell_to_stop()

    def kill_all(self) -> None:
        self._over = True
        for one in self.members:
            one.signal(signal.SIGKILL)

    def victim(self) -> Member | None:
        """Some live node that nothing else is being done to; never the last one."""
        whole = Condition.WHOLE
        fit = [
            one
            for one in self.members
            if one.is_alive
            and not one.frozen
            and one.owner is not None
            and (one.database.condition, one.chain.condition) == (whole, whole)
        ]
        return self.chance.choice(fit) if len(fit) > 1 else None


def settings_text(member_port: int, database: int, chain: int, accounts: int, lease: float, folder: Path) -> str:
    return f"""
        store = "postgresql://postgres@127.0.0.1:{database}/postgres?schema={SCHEMA}"
        auth = "off"
        lease_seconds = {lease}
        listen = "127.0.0.1:{member_port}"

        [[chains]]
        id = {anvil.CHAIN_ID}
        endpoints = ["http://127.0.0.1:{chain}"]
        finality = "tag"
        poll_interval = 0.2
        request_timeout = 3
    """ + "".join(
        f"""
        [[accounts]]
        chains = [{anvil.CHAIN_ID}]
        key = {{ file = "{folder / f"key-{number}"}" }}
        window = {WINDOW}
        """
        for number in range(accounts)
    )


@asynccontextmanager
async def gathered(
    folder: Path,
    chain: Anvil,
    server: Cluster,
    *,
    nodes: int,
    accounts: int,
    lease: float,
    kills: int,
    freezes: int,
    ear: Ear,
    chance: random.Random,
) -> AsyncIterator[Crowd]:
    """The nodes' places, with their wires and settings. None has been started; none is left afterwards."""
    senders: Sequence[str] = [address_of(number) for number in range(accounts)]
    for number, sender in enumerate(senders):
        await chain.set_balance(sender, 1_000 * ETHER)
        path = folder / f"key-{number}"
        path.touch(mode=0o600)
        path.write_text(key_of(number))
    async with AsyncExitStack() as stack:
        members = []
        for number in range(nodes):
            database = await stack.enter_async_context(Link(server.port).standing())
            to_chain = await stack.enter_async_context(Link(chain.port, ear.connection).standing())
            one = Member(f"node{number}", folder, free_port(), database, to_chain)
            text = settings_text(one.port, database.port, to_chain.port, accounts, lease, folder)
            (folder / f"{one.name}.toml").write_text(text)
            members.append(one)
        crowd = Crowd(members, Lookout(server.dsn, SCHEMA), chance, lease, kills, freezes)
        try:
            yield crowd
        finally:
            crowd.kill_all()
            for one in members:
                if one.process is not None:
                    one.process.join(10)
