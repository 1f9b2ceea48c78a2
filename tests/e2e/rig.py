"""Node processes on one store and one anvil: started, killed, stopped by their pid, and waited for by a condition."""

from __future__ import annotations

import asyncio
import hashlib
import json
import multiprocessing
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TypeVar

from nonchalant.config import Settings, parse_settings
from tests import anvil, postgres
from tests.anvil import Anvil
from tests.e2e import ledger, node
from tests.e2e.node import read_acks
from tests.postgres import Cluster

T = TypeVar("T")

# Where node processes come from: a process that has imported everything and does nothing but fork. Importing takes a
# second of a core, and hundreds of nodes die here.
NURSERY = multiprocessing.get_context("forkserver")
NURSERY.set_forkserver_preload(["tests.e2e.node", "tests.e2e.chaos.member"])

# Plain keys: deriving them from a phrase costs each process a second.
os.environ |= {f"E2E_KEY_{number}": key for number, key in enumerate(anvil.KEYS)}

LEASE_SECONDS = 2.0  # the least that the settings take: a killed node's lanes wait this long


async def until(
    condition: Callable[[], T | Awaitable[T]],
    what: str | Callable[[], str],
    *,
    seconds: float = 120,
    tick: Callable[[], Awaitable[object]] | None = None,
    every: float = 0.05,
) -> T:
    """Wait for the condition to answer something true; `tick` runs each time it does not (such as mining a block)."""
    deadline = time.monotonic() + seconds
    while True:
        found = condition()
        if isinstance(found, Awaitable):
            found = await found
        if found:
            return found
        assert time.monotonic() < deadline, (
            f"after {seconds:g} s still not: {what if isinstance(what, str) else what()}"
        )
        if tick is not None:
            await tick()
        await asyncio.sleep(every)


def settings_text(
    *urls: str,
    finality: int | str = "tag",
    accounts: int = 5,
    window: int = 16,
    queue_limit: int = 10_000,
    poll: float = 0.05,
    timeout: float = 5,
    lease: float = LEASE_SECONDS,
    fees: str = "",
    data_fee: str = "none",
    account: str = "",
    top: str = "",
    listen: int = 8645,
    store: str = "sqlite:nonchalant.db",
) -> str:
    """The settings of a test node: the first dev accounts, and a quick eye on the chain.

    `account` and `top` are further lines, for every account and at the top.
    """
    endpoints = ", ".join(f'"{url}"' for url in urls)
    return f"""
        store = "{store}"
        auth = "off"
        lease_seconds = {lease}
        listen = "127.0.0.1:{listen}"
        {top}

        [[chains]]
        id = {anvil.CHAIN_ID}
        endpoints = [{endpoints}]
        finality = {json.dumps(finality)}
        poll_interval = {poll}
        request_timeout = {timeout}
        {f"fees = {{ {fees} }}" if fees else ""}
        data_fee = "{data_fee}"

    """ + "".join(
        f"""
        [[accounts]]
        chains = [{anvil.CHAIN_ID}]
        key = {{ env = "E2E_KEY_{number}" }}
        window = {window}
        queue_limit = {queue_limit}
        {account}
        """
        for number in range(accounts)
    )


def settings(folder: Path, *urls: str, **options: object) -> Settings:
    return parse_settings(settings_text(*urls, **options), folder=folder, environ={})


def payment(key: str, account: int = 0, **more: object) -> dict[str, object]:
    """One wei to an address of its own."""
    return {
        "chain_id": anvil.CHAIN_ID,
        "sender": anvil.ADDRESSES[account],
        "to": ledger.recipient(key),
        "value": 1,
        "idempotency_key": key,
        **more,
    }


@dataclass(slots=True)
class NodeProcess:
    """One running `tests.e2e.node`: a process of its own, whose memory nobody shares. All it says is in its log."""

    process: BaseProcess
    log: Path
    started: float

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid

    @property
    def ended(self) -> bool:
        return self.process.exitcode is not None

    @property
    def was_killed(self) -> bool:
        return self.process.exitcode == -signal.SIGKILL

    def tail(self) -> str:
        return self.log.read_text()[-3000:] if self.log.exists() else ""

    def said(self, word: str) -> list[str]:
        """What followed the word on each line that begins with it."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [line.removeprefix(word).strip() for line in lines if line.startswith(word)]

    @property
    def points(self) -> list[str]:
        return [line.split()[1] for line in self.said("point")]

    async def ready(self) -> float:
        """How long it took to open, in seconds."""
        await until(lambda: self.said("ready") or self.ended, "ready", every=0.01)
        return time.monotonic() - self.started

    async def wait(self, seconds: float = 90) -> int:
        await until(lambda: self.ended, f"process {self.pid} ended", seconds=seconds, every=0.01)
        assert self.process.exitcode is not None
        return self.process.exitcode

    def signal(self, number: int) -> None:
        if not self.ended:
            os.kill(self.pid, number)

    async def kill(self) -> None:
        self.signal(signal.SIGKILL)
        assert await self.wait() == -signal.SIGKILL

    async def stop(self) -> float:
        """SIGTERM, as a deployment would; how long it took to go, in seconds."""
        began = time.monotonic()
        self.signal(signal.SIGTERM)
        assert await self.wait() == 0, self.tail()
        return time.monotonic() - began


@dataclass(slots=True)
class Rig:
    """A folder with settings, store, requests and acknowledgements, and the processes that were started on it."""

    folder: Path
    anvil: Anvil
    tables: postgres.Reader | None = None  # None: the store is a file in the folder
    processes: list[NodeProcess] = field(default_factory=list)
    requests: list[dict[str, object]] = field(default_factory=list)
    options: dict[str, object] = field(default_factory=dict)

    @property
    def store(self) -> Path | ledger.Tables:
        return self.tables or self.folder / "nonchalant.db"

    @property
    def acks(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for path in sorted(self.folder.glob("acks*.jsonl")):
            found |= read_acks(path)
        return found

    def configure(self, **options: object) -> None:
        self.options |= options
        (self.folder / "nonchalant.toml").write_text(settings_text(self.anvil.url, **self.options))

    def ask(self, requests: Sequence[dict[str, object]]) -> None:
        self.requests += requests

    async def start(
        self,
        *,
        crash_at: str | int | None = None,
        list_points: bool = False,
        rate: float | None = None,
        requests: Sequence[dict[str, object]] | None = None,
        name: str = "",
    ) -> NodeProcess:
        wanted = self.folder / f"requests{name}.jsonl"
        asked = self.requests if requests is None else requests
        wanted.write_text("".join(json.dumps(request) + "\n" for request in asked))
        log = self.folder / f"node-{len(self.processes)}.log"
        arguments = [
            *("--config", str(self.folder / "nonchalant.toml"), "--requests", str(wanted)),
            *("--acks", str(self.folder / f"acks{name}.jsonl")),
            *(() if crash_at is None else ("--crash-at", str(crash_at))),
            *(("--list-points",) if list_points else ()),
            *(() if rate is None else ("--rate", str(rate))),
        ]
        process = NURSERY.Process(target=node.main, args=(arguments, log))
        started = NodeProcess(process, log, time.monotonic())
        process.start()
        self.processes.append(started)
        return started

    def states(self) -> dict[str, int]:
        return dict(ledger.count_states(self.store))

    def all_settled(self) -> bool:
        """Everything asked for is acknowledged, and nothing is live any more."""
        states = self.states()
        live = sum(states.get(state, 0) for state in ("queued", "signed", "sent", "mined"))
        accepted = sum(states.values()) == len(self.acks) == len(self.requests)
        return live == 0 and accepted and not ledger.has_open_slots(self.store)

    def unsettled(self) -> str:
        """What a failed test should say."""
        log = self.processes[-1].tail() if self.processes else ""
        return (
            f"all settled: {self.states()}, {len(self.acks)} of {len(self.requests)} acknowledged, {self.folder}\n{log}"
        )

    async def settle(self, *, seconds: float = 60, mine: float | None = 0.1) -> None:
        """Until everything settled; `mine` is the time between blocks where the test mines by hand."""
        await until(
            self.all_settled,
            self.unsettled,
            seconds=seconds,
            tick=None if mine is None else self.anvil.mine,
            every=mine or 0.1,
        )

    async def audit(self, acknowledged: Sequence[str] | None = None, **options: object) -> ledger.Audit:
        """Compare the chain with the store; what was acknowledged is what the node processes wrote, unless given."""
        known = list(self.acks) if acknowledged is None else acknowledged
        return await ledger.audit(self.anvil, self.store, known, **options)

    async def close(self) -> None:
        for process in self.processes:
            process.signal(signal.SIGKILL)
            await process.wait()
            process.process.close()


@asynccontextmanager
async def rig(
    folder: Path, *, block_time: float | None = None, server: Cluster | None = None, **options: object
) -> AsyncIterator[Rig]:
    """A new anvil and a folder to work in; whatever was started is gone afterwards. `server`: the store is in a schema of
    its own there."""
    folder.mkdir(parents=True, exist_ok=True)
    async with anvil.running(block_time=block_time) as chain:
        made = Rig(folder, chain)
        if server is not None:
            schema = f"rig_{hashlib.sha256(str(folder).encode()).hexdigest()[:16]}"
            made.tables = postgres.Reader(server.dsn, schema)
            options["store"] = f"{server.dsn}?schema={schema}"
        made.configure(**options)
        try:
            yield made
        finally:
            await made.close()
            if made.tables is not None:
                made.tables.close()
