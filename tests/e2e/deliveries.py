"""Webhooks and events while nodes are killed: each event delivered, in order within a transaction, counted outside.

    python -m tests.e2e.deliveries --transactions 2000 --nodes 3 --kills 20 [--record]

The nodes are `nonchalant serve` on a real PostgreSQL and a real anvil. A client posts to any of them; one webhook has
every event of every transaction, to a receiver that refuses some of them; another one's receiver is dead; and a reader
of the stream goes from node to node. What they got is compared with what the store says happened.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from tests import postgres, results
from tests.e2e.restart import is_ready, serve
from tests.e2e.rig import Rig, payment, rig, until
from tests.ports import free_port
from tests.postgres import Cluster
from tests.service.listening import listening
from tests.service.receiver import Message, Receiver, receiving

ACCOUNTS = 5
KINDS = "tx.*"

# How many of its tries a receiver refuses; each of those waits for five seconds.
REFUSED = 0.01
SETTLE_SECONDS = 540.0


@dataclass(slots=True)
class Crowd:
    """The nodes, each at a port of its own; whoever dies is started again."""

    folder: Path
    ports: list[int]
    processes: dict[int, asyncio.subprocess.Process] = field(default_factory=dict)
    kills: int = 0

    async def start(self, port: int) -> None:
        self.processes[port] = await serve(self.folder, {"NONCHALANT_LISTEN": f"127.0.0.1:{port}"})
        await until(lambda: is_ready(port), lambda: f"ready\n{self.tail()}", every=0.05)

    async def kill(self, port: int) -> None:
        self.processes[port].kill()
        await self.processes[port].wait()
        self.kills += 1

    async def stop(self) -> None:
        for process in self.processes.values():
            if process.returncode is None:
                process.kill()
            await process.wait()

    def tail(self) -> str:
        return (self.folder / "serve.log").read_text()[-3000:]


@dataclass(slots=True)
class Reading:
    """A reader of the stream that goes from node to node."""

    positions: list[int] = field(default_factory=list)
    connections: int = 0

    async def follow(self, session: aiohttp.ClientSession, ports: list[int], chance: random.Random) -> None:
        last_id = "0"
        while True:
            url = f"http://127.0.0.1:{chance.choice(ports)}"
            try:
                async with listening(session, url, last_id, kind=KINDS) as listener:
                    self.connections += 1
                    for _ in range(chance.randint(1, 500)):
                        event = await listener.next(3600)
                        if event is None:
                            break
                        self.positions.append(event["position"])
                        last_id = str(event["position"])
            except (aiohttp.ClientError, AssertionError):
                await asyncio.sleep(0.2)  # it is dead, or not up yet


@dataclass(frozen=True, slots=True)
class Figures:
    transactions: int
    nodes: int
    kills: int
    events: int
    messages: int
    repeated: int
    refused: int
    connections: int
    seconds: float

    def __str__(self) -> str:
        return (
            f"{self.transactions} transactions over {self.nodes} nodes, {self.kills} times kill -9, {self.seconds:.0f} s: "
            f"{self.events} events, each delivered and in order within its transaction, {self.messages} messages taken "
            f"({self.repeated} of them again, known by their id), {self.refused} refused and tried again, every signature "
            f"verified by the stock library; a stream read over {self.connections} connections to all nodes had each "
            f"event once and in order; a second webhook's receiver was dead all the time."
        )


async def run(
    folder: Path,
    server: Cluster,
    *,
    transactions: int,
    nodes: int = 3,
    kills: int = 20,
    lives: tuple[float, float] = (2.0, 5.0),
    seed: int = 0,
) -> Figures:
    chance, began = random.Random(seed), time.monotonic()
    options: dict[str, Any] = {"accounts": ACCOUNTS, "window": 64, "top": 'webhook_targets = "any"', "poll": 0.25}
    async with (
        rig(folder, block_time=1, server=server, **options) as here,
        receiving() as receiver,
        aiohttp.ClientSession() as session,
        _crowd(folder, nodes) as crowd,
    ):
        secret = await _subscribe(session, crowd.ports[0], receiver.url)
        refused = _refuse_some(receiver, secret, random.Random(seed + 1))
        await _subscribe(session, crowd.ports[0], "http://127.0.0.1:1/dead")
        reading = Reading()
        following = asyncio.create_task(reading.follow(session, crowd.ports, random.Random(seed + 2)))
        rate = transactions / max(1.0, kills * sum(lives) / 2 * 0.7)
        client = asyncio.create_task(_submit(session, crowd.ports, transactions, rate, random.Random(seed + 3)))
        for _ in range(kills):
            await asyncio.sleep(chance.uniform(*lives))
            port = chance.choice(crowd.ports)
            await crowd.kill(port)
            await crowd.start(port)
        await client
        await until(
            lambda: here.states().get("confirmed") == transactions,
            lambda: f"all confirmed: {here.states()}\n{crowd.tail()}",
            seconds=SETTLE_SECONDS,
            every=0.5,
        )
        expected = _told(here)
        await until(
            lambda: _all_there(expected, receiver, reading),
            lambda: (
                f"{len(expected)} events, {len(_taken(receiver))} delivered, {len(reading.positions)} read\n{crowd.tail()}"
            ),
            seconds=SETTLE_SECONDS,
            every=0.5,
        )
        following.cancel()
        check(expected, receiver.taken, reading.positions)
        assert not refused["unsigned"]
        assert "Traceback" not in (folder / "serve.log").read_text(), crowd.tail()
        return Figures(
            transactions=transactions,
            nodes=nodes,
            kills=crowd.kills,
            events=len(expected),
            messages=len(receiver.taken),
            repeated=len(receiver.taken) - len(_taken(receiver)),
            refused=refused["refused"],
            connections=reading.connections,
            seconds=time.monotonic() - began,
        )


def check(expected: dict[int, str], taken: list[Message], read: list[int]) -> None:
    """By what the store says happened: position to transaction."""
    first = dict.fromkeys(message.event["position"] for message in taken)
    missing = expected.keys() - first.keys()
    assert not missing, f"never delivered: {sorted(missing)[:10]}"
    order: dict[str, int] = {}
    for position, tx in ((message.event["position"], message.event["tx"]) for message in _firsts(taken)):
        assert order.get(tx, 0) < position, f"{tx}: {position} came after {order[tx]}"
        order[tx] = position
    assert read == sorted(set(read)), "the stream was out of order, or told something twice"
    assert not expected.keys() - set(read), f"never told: {sorted(expected.keys() - set(read))[:10]}"


def _firsts(taken: list[Message]) -> list[Message]:
    """Each once, in the order in which they came first: as a receiver that remembers their ids has them."""
    seen: dict[str, Message] = {}
    for message in taken:
        seen.setdefault(message.id, message)
    return list(seen.values())


def _taken(receiver: Receiver) -> set[int]:
    return {message.event["position"] for message in receiver.taken}


def _told(here: Rig) -> dict[int, str]:
    assert here.tables is not None
    rows = here.tables.ask("SELECT position, tx_id FROM events WHERE kind LIKE 'tx.%' AND position IS NOT NULL")
    unnumbered = here.tables.ask("SELECT count(*) AS n FROM events WHERE kind LIKE 'tx.%' AND position IS NULL")
    assert unnumbered[0]["n"] == 0
    return {row["position"]: row["tx_id"] for row in rows}


def _all_there(expected: dict[int, str], receiver: Receiver, reading: Reading) -> bool:
    return expected.keys() <= _taken(receiver) and expected.keys() <= set(reading.positions)


def _refuse_some(receiver: Receiver, secret: str, chance: random.Random) -> Counter[str]:
    counted: Counter[str] = Counter()

    async def answer(message: Message) -> web.StreamResponse:
        counted["unsigned"] += not message.is_signed_by(secret)
        if chance.random() < REFUSED:
            counted["refused"] += 1
            return web.Response(status=500)
        return web.Response(status=204)

    receiver.answer = answer
    return counted


async def _subscribe(session: aiohttp.ClientSession, port: int, url: str) -> str:
    body = {"url": url, "kinds": [KINDS], "after": 0}
    async with session.post(f"http://127.0.0.1:{port}/v1/webhooks", json=body) as answer:
        assert answer.status == 201, await answer.text()
        return str((await answer.json())["secret"])


async def _submit(
    session: aiohttp.ClientSession, ports: list[int], transactions: int, rate: float, chance: random.Random
) -> None:
    async def one(number: int) -> None:
        # Most name their gas, and may be signed with their acceptance; the others are queued first.
        request = payment(f"d{number}", number % ACCOUNTS, **({"gas": 21_000} if chance.random() < 0.7 else {}))
        key, body = str(request.pop("idempotency_key")), request | {"from": request["sender"]}
        del body["sender"]
        while True:
            url = f"http://127.0.0.1:{chance.choice(ports)}/v1/transactions"
            try:
                async with session.post(url, json=body, headers={"Idempotency-Key": key}) as answer:
                    assert answer.status in (202, 429, 503), await answer.text()
                    if answer.status == 202:
                        return
            except aiohttp.ClientError:
                pass  # it was killed, or is not up yet: nobody knows whether the request arrived
            await asyncio.sleep(0.2)

    async with asyncio.TaskGroup() as group:
        for number in range(transactions):
            group.create_task(one(number))
            await asyncio.sleep(1 / rate)


@asynccontextmanager
async def _crowd(folder: Path, nodes: int) -> AsyncIterator[Crowd]:
    crowd = Crowd(folder, [free_port() for _ in range(nodes)])
    try:
        for port in crowd.ports:
            await crowd.start(port)
        yield crowd
    finally:
        await crowd.stop()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.deliveries", description=__doc__)
    parser.add_argument("--transactions", type=int, default=2000)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--record", action="store_true", help="add the figures to bench/RESULTS.md")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="deliveries-", ignore_cleanup_errors=True) as folder,
        postgres.running() as server,
    ):
        figures = asyncio.run(
            run(
                Path(folder),
                server,
                transactions=options.transactions,
                nodes=options.nodes,
                kills=options.kills,
                seed=options.seed,
            )
        )
    print(figures)
    if options.record:
        command = " ".join(["python -m tests.e2e.deliveries", *sys.argv[1:]])
        results.record("Webhooks and events over kills", command, [str(figures)])


if __name__ == "__main__":
    main()
