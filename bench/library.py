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
    work = transfers(order.lanes, order.count)
    async with Nonchalant.open(order.settings) as node, books.opened(order.store) as store, profiled(order.profile):
        watch = Stopwatch(order)
        async with asyncio.TaskGroup() as group:
            for _ in range(min(CALLERS, order.count)):
                group.create_task(_call(node, work))
        await books.settled(store)
        return watch.stop()


async def _call(node: Nonchalant, work: Iterator[Transfer]) -> None:
    for transfer in work:
        await node.send(chain_id=CHAIN_ID, sender=transfer.sender, to=transfer.to, value=transfer.value, gas=GAS)
