"""Room in queues: counted when it may run short, and not for every request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from nonchalant.words import LaneKey, Millis

# What was counted is believed for this long, and until one part in so many of the room was taken here. Nodes do not know
# of each other's part: together they may go beyond a limit by a hundredth for each other node, and, as ever, by what they
# accept at the very same moment.
BELIEVED: Millis = 1_000
SHARES = 100


@dataclass(slots=True)
class _Counted:
    at: Millis
    limit: int
    room: int
    taken: int  # by this node, since

    def has(self, wanted: int, limit: int) -> bool:
        """Whether so many surely fit, if what was counted can be believed."""
        return self.limit == limit and (self.taken + wanted) * SHARES <= self.room


class KnownRoom:
    """What this node knows of the room in each lane, by the store's clock."""

    def __init__(self) -> None:
        self._lanes: dict[LaneKey, _Counted] = {}

    def is_ample(self, lane: LaneKey, limit: int, wanted: int, at: Millis) -> bool:
        """Whether so many surely fit, without counting again. Then they are taken."""
        known = self._lanes.get(lane)
        if known is None or not known.has(wanted, limit) or not 0 <= at - known.at < BELIEVED:
            return False
        known.taken += wanted
        return True

    def ample_since(self, wanted: Mapping[LaneKey, int], limits: Mapping[LaneKey, int]) -> Millis | None:
        """When the room was counted in which all of these fit; then they are taken. None: it must be counted. Whether that
        was too long ago is for whoever knows what time it is in the store."""
        known = {lane: self._lanes[lane] for lane in wanted if lane in self._lanes}
        if not all(lane in known and known[lane].has(wanted[lane], limits[lane]) for lane in wanted):
            return None
        for lane, one in known.items():
            one.taken += wanted[lane]
        return min(one.at for one in known.values())

    def counted(self, lane: LaneKey, limit: int, depth: int, wanted: int, at: Millis) -> None:
        """How many waited before so many were to come."""
        self._lanes[lane] = _Counted(at, limit, limit - depth, wanted)
