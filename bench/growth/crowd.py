"""The base case beside many transactions that are sent and get into no block."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

from bench import books
from bench.books import Books
from bench.library import send_all
from bench.order import Order, Outcome, Stopwatch
from bench.rpc import connected
from bench.work import Transfer, payees, payers, transfers
from nonchalant import Nonchalant

LANES: Final = 10  # from which they are sent, beside the others; each has room for a thousand


def crowd(order: Order) -> Iterator[Transfer]:
    """Those that wait; their values follow those of the timed ones."""
    lanes = order.lanes + LANES
    senders, receivers = payers(lanes), payees(lanes)
    for number in range(order.pending):
        lane = order.lanes + number % LANES
        yield Transfer(lane, senders[lane], receivers[lane], order.first + order.count + number)


async def run(order: Order) -> Outcome:
    held = payers(order.lanes + LANES)[order.lanes :]
    timed = payers(order.lanes)
    async with (
        connected(order.url) as rpc,
        Nonchalant.open(order.settings) as node,
        books.opened(order.store) as store,
    ):
        await rpc.call("stub_hold", held, result=bool)
        await send_all(node, crowd(order))
        await _sent(store, order.pending)
        watch = Stopwatch(order)
        await send_all(node, transfers(order.lanes, order.count, first=order.first))
        await books.settled(store, timed)
        outcome = watch.stop()
        await rpc.call("stub_release", held, result=bool)
        await books.settled(store)
    return outcome


async def _sent(store: Books, count: int) -> None:
    while (await books.states(store)).get("sent") != count:  # noqa: ASYNC110 - looked at from outside, nobody tells
        await asyncio.sleep(books.LOOK_SECONDS)
