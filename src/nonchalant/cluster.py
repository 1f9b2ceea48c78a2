"""Ownership: which lanes this node works, and until when it may believe so."""

from __future__ import annotations

from collections.abc import Collection
from math import inf
from zlib import crc32

from nonchalant.model import Lease
from nonchalant.ports import Clock, LaneWork, Store
from nonchalant.words import LaneKey

# The part of a lease at its end in which its holder does not act any more: clocks and networks are not exact.
MARGIN = 0.25

# How long a lane is left to those whose share it is: a few sweeps of theirs. Not a few of ours: each request may bring one.
PATIENT_SECONDS = 3.0

# The same for a lane whose lease lapsed. Whose share it is may be dead as well, and counts for as long as a lease; those
# who live looked when it lapsed. Shorter than a sweep, so that a dead node's lanes are taken one sweep after that at most.
LAPSED_SECONDS = 0.5

# How long after another's lease should have ended it is looked at.
LAPSE_SECONDS = 0.02

# How long a node holds more than its share before it hands lanes over: work comes and goes, and each hand-over has the
# lane read anew. Then a part of what it holds at a time.
CROWDED_SECONDS = 5.0
HANDED_OVER_AT_ONCE = 8


class Cluster:
    """This node among its peers. The owner id is made at process start and never reused."""

    def __init__(self, store: Store, clock: Clock, *, owner: str, ttl: float, lanes: Collection[LaneKey]) -> None:
        self.owner = owner
        self.ttl = ttl
        self.leases: dict[LaneKey, Lease] = {}
        self._store = store
        self._clock = clock
        self._lanes = frozenset(lanes)  # those this node has a signer for
        self._live_nodes = 1
        self._unworked: dict[LaneKey, float] = {}  # since when nobody has it
        self._lapsed: set[LaneKey] = set()  # those of which the last owner died
        self._crowded_since: float | None = None  # since when we have more than our share
        self._unwanted: set[LaneKey] = set()  # handed over, and nobody took them: who else lives has no key for them

    async def beat(self) -> list[LaneKey]:
        """Say that we live and prolong what we hold; the lanes that are lost."""
        started = self._clock.monotonic()
        await self._greet()
        asked = list(self.leases.values())
        renewed = set(await self._store.renew(asked, self.ttl)) if asked else set()
        lost = []
        for lease in asked:
            current = self.leases.get(lease.lane)
            if current is None or current.epoch != lease.epoch:
                continue  # let go or taken anew while we asked
            if lease.lane in renewed:
                self.leases[lease.lane] = Lease(lease.lane, lease.owner, lease.epoch, self._until(started))
            else:
                del self.leases[lease.lane]
                lost.append(lease.lane)
        return lost

    async def _greet(self) -> None:
        """Say that we live, and hear how many do."""
        live_nodes = await self._store.heartbeat(self.owner, self.ttl)
        if live_nodes != self._live_nodes:
            self._live_nodes = live_nodes
            self._unwanted.clear()

    async def look(self, *, marked: bool) -> list[LaneWork]:
        """What there is to do. When a lease lapsed we also hear how many live: not the one that had it."""
        work = list(await self._store.lanes_with_work(marked=marked))
        if any(found.lapsed and found.lane in self._lanes for found in work):
            await self._greet()
        return work

    async def take(self, lane: LaneKey) -> Lease | None:
        """Lease the lane, or lease it anew with the next epoch; None if another node has it."""
        started = self._clock.monotonic()
        epoch = await self._store.acquire(lane, self.owner, self.ttl)
        if epoch is None:
            self.leases.pop(lane, None)
            return None
        lease = Lease(lane, self.owner, epoch, self._until(started))
        self.leases[lane] = lease
        return lease

    def to_take(self, work: list[LaneWork]) -> list[LaneKey]:
        """Which of the lanes nobody works are ours to take, so that live nodes share evenly."""
        ours, share = self._ours(work)
        free = [found.lane for found in ours if found.owner is None or found.owner == self.owner]
        free = [lane for lane in free if lane not in self.leases]
        # Each node begins elsewhere: those who look at the same moment should not all want the same.
        free.sort(key=lambda lane: crc32(f"{self.owner} {lane}".encode()))
        # Lanes we only linger on, with nothing left to do, are no part of our share.
        held = sum(found.lane in self.leases for found in ours)
        fair = free[: max(0, share - held)]
        # A lane that nobody takes for a while is anybody's: not every live node has its key.
        now = self._clock.monotonic()
        self._unworked = {lane: self._unworked.get(lane, now) for lane in free}
        self._lapsed = {found.lane for found in ours if found.lapsed}
        left = [lane for lane in free if lane not in fair and now >= self._patient_until(lane)]
        # One whose owner died may only be early: it is handed over like any other, should somebody lack it.
        self._unwanted.update(lane for lane in left if lane not in self._lapsed)
        return fair + left

    def _patient_until(self, lane: LaneKey) -> float:
        return self._unworked[lane] + (LAPSED_SECONDS if lane in self._lapsed else PATIENT_SECONDS)

    def next_look(self, work: list[LaneWork]) -> float:
        """In how many seconds more may be ours to take: another's lease ends if it is not renewed, or our patience does."""
        ours, _ = self._ours(work)
        theirs = [found.ends_in for found in ours if found.owner not in (None, self.owner)]
        now = self._clock.monotonic()
        moments = [seconds for seconds in theirs if seconds is not None]
        moments += [until - now for until in map(self._patient_until, self._unworked) if until > now]
        return min(moments, default=inf) + LAPSE_SECONDS

    def to_hand_over(self, work: list[LaneWork]) -> list[LaneKey]:
        """Which of the lanes we work others should: we have had more than our share for a while."""
        ours, share = self._ours(work)
        held = [found.lane for found in ours if found.lane in self.leases]
        if len(held) <= share:
            self._crowded_since = None
            return []
        now = self._clock.monotonic()
        self._crowded_since = now if self._crowded_since is None else self._crowded_since
        if now - self._crowded_since < CROWDED_SECONDS:
            return []
        wanted = [lane for lane in held if lane not in self._unwanted]
        most = max(1, len(held) // HANDED_OVER_AT_ONCE)
        return wanted[-min(len(held) - share, most) :]

    def _ours(self, work: list[LaneWork]) -> tuple[list[LaneWork], int]:
        """The lanes with work that we could work, and how many of them are our share."""
        ours = [found for found in work if found.lane in self._lanes]
        return ours, -(-len(ours) // max(1, self._live_nodes))

    async def let_go(self, lane: LaneKey) -> None:
        lease = self.leases.pop(lane, None)
        if lease is not None:
            await self._store.release([lease])

    async def leave(self) -> None:
        """Let go of everything, so that take-over is immediate."""
        leases, self.leases = list(self.leases.values()), {}
        await self._store.release(leases, self.owner)

    def _until(self, started: float) -> float:
        return started + self.ttl * (1 - MARGIN)
