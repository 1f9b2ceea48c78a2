"""How long a transaction takes from one point of its way to the next, at half of what the service can carry."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from bench import books, site
from bench.arrivals import Waits
from bench.figures import Spread
from bench.work import transfers
from tests.postgres import Cluster


@dataclass(frozen=True, slots=True)
class Latency:
    """In milliseconds. Broadcast is when the node got it, by the node's own account."""

    rate: float  # arrivals a second
    accept: Spread  # from when it was due to the answer, at the caller
    broadcast: Spread  # from the acceptance in the store
    mined: Spread  # from the broadcast until it was seen in a block


async def measured(cluster: Cluster, *, rate: float, seconds: float) -> Latency:
    """REST singly, on PostgreSQL and the stub, with 20 lanes: audited like every other run."""
    count = max(1, int(rate * seconds))
    async with site.opened(cluster, nodes=1) as place:
        order = msgspec.structs.replace(place.order("arrivals", count=count), rate=rate)
        waits = await site.contest(order, Waits)
        async with books.opened(place.store) as kept:
            await books.settled(kept)
            accepted = {row.hash: row.accepted_at for row in await books.rows(kept)}
            mined = await books.mined(kept)
        deeds = await place.audit(transfers(place.lanes, count))
    return Latency(
        rate=rate,
        accept=Spread.of([wait * 1000 for wait in waits.seconds]),
        broadcast=Spread.of([deed.received_at - accepted[deed.hash] for deed in deeds]),
        mined=Spread.of([mined[deed.hash] - deed.received_at for deed in deeds]),
    )
