"""Ours, embedded: the application sends by calls of `send` in its own process, a thousand of them under way."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

from bench import books
from bench.order import Order, Outcome, Stopwatch
from bench.profile import profiled
from bench.work import CHAIN_ID, GAS, Transfer, transfers
from nonchalant import Nonchalant

CALLERS: Final = 1_000


async def run(order: Order) -> Outcome:
    """Done when every transaction is confirmed: final, and so in the store."""
    async with Nonchalant.open(order.settings) as node, books.opened(order.store) as store, profiled(order.profile):
        watch = Stopwatch(order)
        await send_all(node, transfers(order.lanes, order.count, first=order.first))
        await books.settled(store)
        return watch.stop()


async def send_all(node: Nonchalant, work: Iterator[Transfer]) -> None:
    """Returns when all are accepted."""

    async def call() -> None:
        for transfer in work:
            await node.send(chain_id=CHAIN_ID, sender=transfer.sender, to=transfer.to, value=transfer.value, gas=GAS)

    async with asyncio.TaskGroup() as group:
        for _ in range(CALLERS):
            group.create_task(call())
