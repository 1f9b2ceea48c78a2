"""What a transaction costs on a site, through the library."""

from __future__ import annotations

from dataclasses import dataclass

from bench import site
from bench.order import Order, Outcome


@dataclass(frozen=True, slots=True)
class Cost:
    """Processor time is in microseconds a transaction, memory in bytes."""

    done: float  # a second
    cpu: float
    database_cpu: float
    memory: float  # of the node's process, in which its callers are too


async def measured(order: Order) -> Cost:
    outcome = await site.contest(order, Outcome)
    each = 1e6 / order.count
    return Cost(
        order.count / outcome.seconds, outcome.cpu["own"] * each, outcome.cpu["database"] * each, outcome.memory
    )
