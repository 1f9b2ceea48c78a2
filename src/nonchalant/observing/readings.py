"""What is read when somebody looks: how the lanes of this node stand, its chains, their endpoints, and the store.

All of it is in memory but the store's overview, which is asked for at most every ten seconds, and only while somebody
looks. Nothing here grows with what has ended.
"""

from __future__ import annotations

import platform
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Final

from nonchalant.desk import Desk
from nonchalant.engine import Engine
from nonchalant.errors import NonchalantError
from nonchalant.observing import catalogue as c
from nonchalant.observing.tallies import Readings
from nonchalant.observing.watched import EndpointHealth
from nonchalant.ports import Clock, Overview, Store
from nonchalant.words import LaneKey, Millis, State

OVERVIEW_SECONDS: Final = 10.0
MOST_COUNTED: Final = 100_000

# Lanes that are looked at before others may run: one with thousands of nonces takes a millisecond.
LANES_AT_ONCE: Final = 10

CONDITIONS: Final = ("paused", "draining", "halted", "quarantined", "unhealthy", "marked")
STATES: Final = ("queued", "held", "signed", "sent", "mined")


class Backlog:
    """The store's overview, as it was last told."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._asked_at: float | None = None
        self._last: Overview | None = None

    async def look(self) -> Overview | None:
        """None: the store did not answer. An old answer would look like standstill."""
        now = self._clock.monotonic()
        if self._asked_at is None or now - self._asked_at >= OVERVIEW_SECONDS:
            self._asked_at = now
            try:
                self._last = await self._store.overview(limit=MOST_COUNTED)
            except NonchalantError:
                self._last = None
        return self._last


@dataclass(frozen=True, slots=True)
class LaneReading:
    key: LaneKey
    in_flight: int
    gaps: int
    oldest: Millis | None  # since when the oldest that is not mined was accepted; None: there is none
    balance: int
    marked: bool

    @classmethod
    def of(cls, desk: Desk) -> LaneReading:
        lane = desk.lane
        waiting = (tx.created_at for tx in lane.transactions.values() if tx.state is not State.MINED)
        return cls(
            lane.key,
            in_flight=len(lane.open_slots()),
            gaps=len(lane.gaps()),
            oldest=min(waiting, default=None),
            balance=lane.balance,
            marked=lane.record.attention is not None,
        )

    @property
    def weight(self) -> tuple[bool, int, int]:
        """Of which lanes to tell singly, if not of all."""
        return self.marked, self.gaps, self.in_flight


async def of_lanes(desks: Iterable[Desk], now: Millis, clock: Clock) -> Readings:
    """How this node's lanes stand: all of them in sums, and singly those that have most to tell."""
    read: list[LaneReading] = []
    for number, desk in enumerate(list(desks)):
        if number % LANES_AT_ONCE == LANES_AT_ONCE - 1:
            await clock.sleep(0)
        read.append(LaneReading.of(desk))
    found: Readings = {metric: {} for metric in (c.IN_FLIGHT, c.GAPS, c.LANES_WORKED)}
    for one in read:
        chain = (str(one.key.chain_id),)
        for metric, value in ((c.IN_FLIGHT, one.in_flight), (c.GAPS, one.gaps), (c.LANES_WORKED, 1)):
            found[metric][chain] = found[metric].get(chain, 0) + value
    read.sort(key=lambda one: one.weight, reverse=True)
    told = [(one, (str(one.key.chain_id), one.key.address)) for one in read[: c.MOST_LANES]]
    found[c.LANE_IN_FLIGHT] = {labels: one.in_flight for one, labels in told}
    found[c.LANE_GAPS] = {labels: one.gaps for one, labels in told}
    found[c.LANE_OLDEST] = {
        labels: 0 if one.oldest is None else max(now - one.oldest, 0) / 1000 for one, labels in told
    }
    found[c.LANE_BALANCE] = {labels: float(one.balance) for one, labels in told}
    return found


def of_chains(engine: Engine) -> Readings:
    found: Readings = {metric: {} for metric in (c.HEAD, c.FINAL, c.TROUBLED, c.CHAIN_REORGS)}
    for chain_id, follower in engine.followers.items():
        chain = (str(chain_id),)
        found[c.TROUBLED][chain] = float(follower.trouble is not None)
        found[c.CHAIN_REORGS][chain] = follower.reorgs
        if follower.started and not follower.is_behind:
            found[c.HEAD][chain] = follower.head.top.number
            found[c.FINAL][chain] = follower.head.final.number
    return found


def of_endpoints(endpoints: Sequence[EndpointHealth]) -> Readings:
    best: dict[str, int] = defaultdict(int)
    for one in endpoints:
        best[one.chain] = max(best[one.chain], one.head or 0)
    known = [(one, one.head) for one in endpoints if one.head is not None]
    return {
        c.ENDPOINT_UP: {(one.chain, one.name): float(one.up) for one in endpoints if one.up is not None},
        c.ENDPOINT_HEAD: {(one.chain, one.name): head for one, head in known},
        c.ENDPOINT_LAG: {(one.chain, one.name): best[one.chain] - head for one, head in known},
    }


def of_store(overview: Overview | None, chains: Iterable[int]) -> Readings:
    """Zeros are told too: an alert on what is missing would never end."""
    if overview is None:
        return {}
    chains = list(chains)
    return {
        c.LIVE: {(str(one), state): overview.live.get((one, state), 0) for one in chains for state in STATES},
        c.OLDEST: {(str(one),): overview.oldest_unmined.get(one, 0) / 1000 for one in chains},
        c.LANES: {
            (str(one), condition): overview.lanes.get((one, condition), 0) for one in chains for condition in CONDITIONS
        },
    }


def of_webhooks(backlogs: Mapping[str, tuple[int, Millis]]) -> Readings:
    return {
        c.WEBHOOK_WAITING: {(webhook,): waiting for webhook, (waiting, _) in backlogs.items()},
        c.WEBHOOK_LAG: {(webhook,): age / 1000 for webhook, (_, age) in backlogs.items()},
    }


def of_build(store: str) -> Readings:
    return {c.BUILD: {(version("nonchalant"), platform.python_version(), store): 1.0}}
