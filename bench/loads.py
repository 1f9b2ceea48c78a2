"""Load on ours as a service, from a process of its own: singly, in batches, as JSON-RPC."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from bench import books, callers, requests
from bench.order import Order, Outcome, Stopwatch
from bench.work import Transfer, transfers

# How the work is written, and how many callers there are.
FORMS: Final[dict[str, tuple[Callable[[Iterable[Transfer]], Iterator[bytes]], int]]] = {
    "rest": (requests.single, 128),
    "rest-batches": (requests.batches, 8),
    "json-rpc": (requests.rpc, 512),  # each waits until its transaction is signed
}


async def run(order: Order) -> Outcome:
    """Done when every transaction is confirmed: final, and so in the store."""
    write, connections = FORMS[order.contestant]
    written = list(write(transfers(order.lanes, order.count)))
    async with books.opened(order.store) as store:
        watch: list[Stopwatch] = []
        await callers.ask_all(order.services, connections, written, began=lambda: watch.append(Stopwatch(order)))
        await books.settled(store)
        return watch[0].stop()
