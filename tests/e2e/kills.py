"""Transactions over several accounts while the node is killed with `kill -9` again and again: counted on the chain.

    python -m tests.e2e.kills --transactions 1000 --kills 20 [--service]

With `--service` it is `nonchalant serve` that is killed, and a client posts to it over HTTP, trying again with the same
idempotency key until it is answered. Without, a node process takes its requests from a file.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from tests import results
from tests.e2e.ledger import Audit
from tests.e2e.restart import is_ready, serve
from tests.e2e.rig import Rig, payment, rig, until
from tests.ports import free_port

ACCOUNTS = 5
Lives = tuple[float, float]


@dataclass(slots=True)
class Toll:
    """What the kills met: the states of all transactions at each kill, added up."""

    kills: int = 0
    states: dict[str, int] = field(default_factory=dict)

    def take(self, here: Rig) -> None:
        self.kills += 1
        for state, count in here.states().items():
            self.states[state] = self.states.get(state, 0) + count


@dataclass(frozen=True, slots=True)
class Figures:
    transactions: int
    toll: Toll
    seconds: float
    audit: Audit

    def __str__(self) -> str:
        states = ", ".join(f"{state} {count}" for state, count in sorted(self.toll.states.items()))
        return (
            f"{self.transactions} transactions over {ACCOUNTS} accounts, {self.toll.kills} times kill -9: "
            f"{self.audit.executed} executed, each once; nonces gapless on {len(self.audit.by_account)} accounts; "
            f"{self.audit.fillers} fillers, {self.audit.bumped} bumps; {self.seconds:.0f} s. "
            f"States at the kills, added up: {states}."
        )


async def run(
    folder: Path,
    *,
    transactions: int,
    kills: int,
    block_time: float = 1,
    lives: Lives = (2.0, 5.0),
    seed: int = 0,
    service: bool = False,
) -> Figures:
    """`lives`: how long a process lives at least and at most, in seconds; a dead one's lease runs 2 s."""
    chance = random.Random(seed)
    began, toll = time.monotonic(), Toll()
    # Submitted over most of the time that the kills take, so that every kill meets something on its way.
    rate = transactions / (kills * (sum(lives) / 2) * 0.7)
    async with rig(folder, block_time=block_time, accounts=ACCOUNTS) as here:
        here.ask([payment(f"k{i}", i % ACCOUNTS) for i in range(transactions)])
        spans = [chance.uniform(*lives) for _ in range(kills)]
        acknowledged = await (_kill_the_service if service else _kill_nodes)(here, toll, spans, rate)
        audit = await here.audit(acknowledged)
        for log in folder.glob("*.log"):
            assert "Traceback" not in log.read_text(), log.read_text()[-4000:]
    return Figures(transactions, toll, time.monotonic() - began, audit)


async def _kill_nodes(here: Rig, toll: Toll, spans: list[float], rate: float) -> list[str]:
    for span in spans:
        process = await here.start(rate=rate)
        await process.ready()
        await asyncio.sleep(span)
        toll.take(here)
        await process.kill()
    last = await here.start()
    await last.ready()
    await here.settle(seconds=240, mine=None)
    await last.stop()
    return list(here.acks)


async def _kill_the_service(here: Rig, toll: Toll, spans: list[float], rate: float) -> list[str]:
    port = free_port()
    here.configure(accounts=ACCOUNTS, listen=port)
    acknowledged: list[str] = []
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
        client = asyncio.create_task(_submit(session, here.requests, acknowledged, rate))
        for span in [*spans, None]:
            process = await serve(here.folder)
            try:
                await until(lambda: is_ready(port), "the service ready", every=0.02)
                if span is not None:
                    await asyncio.sleep(span)
                    toll.take(here)
                    continue
                await client
                await until(lambda: len(acknowledged) == here.states().get("confirmed"), here.unsettled, seconds=240)
            finally:
                process.kill()
                await process.wait()
    return acknowledged


async def _submit(
    session: aiohttp.ClientSession, requests: list[dict[str, object]], acknowledged: list[str], rate: float
) -> None:
    async def one(request: dict[str, object]) -> None:
        body = {name: value for name, value in request.items() if name not in ("idempotency_key", "sender")}
        key = str(request["idempotency_key"])
        while True:
            try:
                async with session.post(
                    "/v1/transactions", json=body | {"from": request["sender"]}, headers={"Idempotency-Key": key}
                ) as answer:
                    assert answer.status in (202, 503), await answer.text()
                    if answer.status == 202:
                        acknowledged.append(key)
                        return
            except aiohttp.ClientError:
                pass  # it was killed, or is not up yet: nobody knows whether the request arrived
            await asyncio.sleep(0.2)

    async with asyncio.TaskGroup() as group:
        for request in requests:
            group.create_task(one(request))
            await asyncio.sleep(1 / rate)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.kills", description=__doc__)
    parser.add_argument("--transactions", type=int, default=1000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--block-time", type=float, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--service", action="store_true", help="kill `nonchalant serve`, and send over HTTP")
    parser.add_argument("--record", action="store_true", help="add the figures to bench/RESULTS.md")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kills-", ignore_cleanup_errors=True) as folder:
        figures = asyncio.run(
            run(
                Path(folder),
                transactions=options.transactions,
                kills=options.kills,
                block_time=options.block_time,
                seed=options.seed,
                service=options.service,
            )
        )
    print(figures)
    if options.record:
        results.record("Killed with kill -9", " ".join(["python -m tests.e2e.kills", *sys.argv[1:]]), [str(figures)])


if __name__ == "__main__":
    main()
