"""How a restart goes with a long history: the time until the service is ready, and its memory with and without.

    python -m tests.e2e.restart --settled 10000 --live 500

The settled ones are real: sent through a node and executed by anvil. The live ones are on their way when the service
stops: signed, sent, and in no block.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import statistics
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from nonchalant.app import Handle, Nonchalant
from tests import anvil, results
from tests.anvil import Anvil
from tests.e2e import ledger
from tests.e2e.rig import payment, settings, settings_text, until
from tests.ports import free_port

ACCOUNTS = 5
WINDOW = 500
BLOCK_SECONDS = 0.25
RUNS = 3
# What a service that just loaded everything may still do before its memory is read.
AT_REST_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Restart:
    ready: float  # from the start of the process to the first 200 of /readyz, in seconds
    cpu: float  # what it used of a core until then, in seconds: a busy machine does not change that
    working: float  # until every lane was loaded and its attempts looked up, in seconds
    memory: int  # resident, in KiB


@dataclass(frozen=True, slots=True)
class Figures:
    settled: int
    live: int
    took: float  # to make the history, in seconds
    restarts: list[Restart]

    def __str__(self) -> str:
        ready = [f"{one.ready:.2f}" for one in self.restarts]
        cpu = statistics.median(one.cpu for one in self.restarts)
        working = [f"{one.working:.2f}" for one in self.restarts]
        memory = statistics.median(one.memory for one in self.restarts) / 1024
        return (
            f"{self.settled} settled, {self.live} live: ready after {', '.join(ready)} s ({cpu:.2f} s of a core), all lanes at work after "
            f"{', '.join(working)} s, {memory:.1f} MiB resident at rest (median of {len(self.restarts)})"
        )


async def measure(folder: Path, settled: int, live: int) -> Figures:
    folder.mkdir(parents=True)
    began = time.monotonic()
    load = ("--gas-limit", "300000000000", "--order", "fifo")
    async with anvil.running(*load, block_time=BLOCK_SECONDS) as chain:
        options = {"window": WINDOW, "queue_limit": 100_000, "timeout": 30, "accounts": ACCOUNTS}
        async with Nonchalant.open(settings(folder, chain.url, **options, poll=0.1)) as node:
            await send_payments(node, "settled", settled)
            await until(lambda: _count(folder, "confirmed") == settled, "all settled", seconds=600)
            await chain.set_block_time(0)
            await send_payments(node, "live", live)
            await until(lambda: _count(folder, "sent") == live, "all on their way", seconds=60)
        took = time.monotonic() - began
        port = free_port()
        text = settings_text(chain.url, **options, poll=1.0, lease=10, listen=port)
        (folder / "nonchalant.toml").write_text(text)
        restarts = [await restart(folder, port) for _ in range(RUNS)]
        await _finish(chain, folder, settled + live)
    return Figures(settled, live, took, restarts)


async def send_payments(node: Nonchalant, name: str, count: int) -> list[Handle]:
    """So many, from all accounts in turn, each with an idempotency key that begins with the name."""
    sent: list[Handle] = []
    for first in range(0, count, 1000):
        numbers = range(first, min(first + 1000, count))
        sent += await asyncio.gather(*(node.send(**payment(f"{name}{i}", i % ACCOUNTS)) for i in numbers))
    return sent


def _count(folder: Path, state: str) -> int:
    return ledger.count_states(folder / "nonchalant.db")[state]


async def serve(folder: Path, environment: Mapping[str, str] | None = None) -> asyncio.subprocess.Process:
    """`nonchalant serve`, as a user would start it; what it says is added to serve.log."""
    command = [str(Path(sys.executable).with_name("nonchalant")), "serve", "--config", str(folder / "nonchalant.toml")]
    with (folder / "serve.log").open("ab") as log:
        return await asyncio.create_subprocess_exec(
            *command,
            env={**os.environ, **(environment or {})},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )


async def restart(folder: Path, port: int) -> Restart:
    """Start the service as a user would, wait until it works, read its memory, and stop it."""
    leases = _leases(folder)
    began = time.monotonic()
    process = await serve(folder)
    try:
        await until(lambda: is_ready(port), f"ready ({folder / 'serve.log'})", every=0.01)
        ready, used = time.monotonic() - began, cpu(process.pid)
        await until(lambda: _leases(folder) >= leases + ACCOUNTS, "all lanes taken", every=0.01)
        working = time.monotonic() - began
        await asyncio.sleep(AT_REST_SECONDS)
        memory = resident(process.pid)
    finally:
        os.kill(process.pid, signal.SIGTERM)
        await process.wait()
    return Restart(ready, used, working, memory)


def is_ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=1) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False


def _leases(folder: Path) -> int:
    """How often a lane was taken so far."""
    [[found]] = ledger.ask(folder / "nonchalant.db", "SELECT sum(epoch) FROM leases")
    return int(found)


def cpu(pid: int) -> float:
    """What a process used of a core so far, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident(pid: int) -> int:
    """The memory of a process, in KiB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))


async def _finish(chain: Anvil, folder: Path, count: int) -> None:
    """After all the restarts everything still settles once."""
    async with Nonchalant.open(settings(folder, chain.url, window=WINDOW, timeout=30, poll=0.1)):
        await until(lambda: _count(folder, "confirmed") == count, "all settled", tick=chain.mine, every=0.2)
    audit = await ledger.audit(chain, folder / "nonchalant.db", [])
    assert audit.executed == count


async def run(settled: int, live: int) -> list[str]:
    with tempfile.TemporaryDirectory(prefix="restart-") as folder:
        empty = await measure(Path(folder) / "empty", 0, live)
        full = await measure(Path(folder) / "full", settled, live)
    grown = statistics.median(one.memory for one in full.restarts) - statistics.median(
        one.memory for one in empty.restarts
    )
    made = f"The settled ones were really sent and executed by anvil, in {full.took:.0f} s"
    return [str(empty), str(full), f"{settled} settled transactions cost {grown / 1024:+.1f} MiB of memory", made]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.restart", description=__doc__)
    parser.add_argument("--settled", type=int, default=10_000)
    parser.add_argument("--live", type=int, default=500)
    parser.add_argument("--record", action="store_true", help="add the figures to bench/RESULTS.md")
    options = parser.parse_args()
    lines = asyncio.run(run(options.settled, options.live))
    print("\n".join(lines))
    if options.record:
        results.record("Restart", " ".join(["python -m tests.e2e.restart", *sys.argv[1:]]), lines)


if __name__ == "__main__":
    main()
