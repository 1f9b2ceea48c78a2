"""Load by a schedule, whatever the answers: transactions arrive at random at a steady rate, and each one's patience is
counted from when it was due. A caller that waits for the answer before it asks again would hide every pause."""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from typing import Final

import msgspec

from bench import requests
from bench.callers import Connection, Pool
from bench.order import Order
from bench.work import transfers

CONNECTIONS: Final = 256
SEED: Final = 6


class Waits(msgspec.Struct, frozen=True):
    seconds: list[tuple[float, float]]  # of each transaction: when it was due, and from then to its answer


def schedule(rate: float, count: int) -> list[float]:
    """When each of them is due, in seconds from the start: independent callers, so many a second on average."""
    chance, due = random.Random(SEED), 0.0
    return [due := due + chance.expovariate(rate) for _ in range(count)]


async def run(order: Order) -> Waits:
    written = requests.single(transfers(order.lanes, order.count))
    due = deque(zip(schedule(order.rate, order.count), list(written), strict=True))
    late: deque[tuple[float, bytes]] = deque()  # due, and all connections are busy
    free: deque[Connection] = deque()  # the one that waited longest goes next: a service closes those that nobody uses
    since: dict[Connection, float] = {}
    waits: list[tuple[float, float]] = []
    began = 0.0
    done = asyncio.Event()

    def ask(connection: Connection, at: float, request: bytes) -> None:
        since[connection] = at
        connection.ask(request)

    def answered(connection: Connection) -> None:
        due_at = since.pop(connection)
        waits.append((due_at - began, time.monotonic() - due_at))
        if late:
            ask(connection, *late.popleft())
        else:
            free.append(connection)
        if len(waits) == order.count:
            done.set()

    async def arrive() -> None:
        nonlocal began
        began = time.monotonic()
        while due:
            now = time.monotonic() - began
            while due and due[0][0] <= now:
                after, request = due.popleft()
                if free:
                    ask(free.popleft(), began + after, request)
                else:
                    late.append((began + after, request))
            await asyncio.sleep(0.001)

    pool = Pool(order.services, CONNECTIONS, answered)
    await pool.open()
    free += pool.connections
    arriving = asyncio.create_task(arrive())
    try:
        await pool.until(done)
    finally:
        arriving.cancel()
        pool.close()
    return Waits(waits)
