"""How long a transaction takes from one point of its way to the next, at half of what the service can carry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec

from bench import books, site
from bench.arrivals import Waits
from bench.figures import Spread
from bench.work import transfers
from tests.postgres import Cluster

# At first lanes are taken, accounts compared with the chain, connections made and statements prepared. That is told by
# itself.
BEGINNING_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class Latency:
    """In milliseconds, once the beginning is over. Broadcast is when the node got it, by the node's own account."""

    rate: float  # arrivals a second
    accept: Spread  # from when it was due to the answer, at the caller
    broadcast: Spread  # from the acceptance in the store
    broadcast_at_first: Spread  # the same, in the beginning
    mined: Spread  # from the broadcast until it was seen in a block


async def measured(cluster: Cluster, *, rate: float, seconds: float) -> Latency:
    """REST singly, on PostgreSQL and the stub, with 20 lanes: audited like every other run."""
    count = max(1, int(rate * (BEGINNING_SECONDS + seconds)))
    async with site.opened(cluster, nodes=1) as place:
        order = msgspec.structs.replace(place.order("arrivals", count=count), rate=rate)
        waits = await site.contest(order, Waits)
        async with books.opened(place.store) as kept:
            await books.settled(kept)
            accepted = {row.hash: row.accepted_at for row in await books.rows(kept)}
            mined = await books.mined(kept)
        deeds = await place.audit(transfers(place.lanes, count))
    begun = min(accepted.values()) + BEGINNING_SECONDS * 1000
    early = [deed for deed in deeds if accepted[deed.hash] < begun]
    later = [deed for deed in deeds if accepted[deed.hash] >= begun]
    return Latency(
        rate=rate,
        accept=Spread.of([wait * 1000 for due, wait in waits.seconds if due >= BEGINNING_SECONDS]),
        broadcast=Spread.of([deed.received_at - accepted[deed.hash] for deed in later]),
        broadcast_at_first=Spread.of([deed.received_at - accepted[deed.hash] for deed in early]),
        mined=Spread.of([mined[deed.hash] - deed.received_at for deed in later]),
    )
