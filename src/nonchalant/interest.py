"""Whose business an event is: which ones somebody wants, and which he may see."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from nonchalant.access import EVERY_LANE, Caller, LanePattern
from nonchalant.model import Event
from nonchalant.words import LaneKey, TxId

KINDS: Final = (
    *("tx.accepted", "tx.signed", "tx.sent", "tx.mined", "tx.depth", "tx.reorged", "tx.confirmed", "tx.reverted"),
    *("tx.failed", "tx.expired", "tx.cancelled", "tx.replaced", "tx.superseded", "tx.requeued", "tx.held"),
    *("tx.released", "tx.attention"),
    *("attempt.sent", "attempt.refused", "attempt.bumped"),
    *("lane.paused", "lane.resumed", "lane.foreign", "lane.filled", "lane.reset", "lane.attention", "lane.lease"),
)
FAMILIES: Final = tuple(dict.fromkeys(kind.partition(".")[0] for kind in KINDS))


@dataclass(frozen=True, slots=True, kw_only=True)
class Interest:
    """What is wanted, and what may be seen. Without `kinds` all are, without `tx_ids` everybody's."""

    kinds: tuple[str, ...] = ()  # as they are called, or a family such as `tx.*`
    lanes: tuple[LanePattern, ...] = EVERY_LANE
    within: tuple[LanePattern, ...] = EVERY_LANE  # what the one who asks may use
    tx_ids: frozenset[TxId] = frozenset()
    tenant: str | None = None  # None: every tenant's transactions

    @classmethod
    def of(
        cls,
        caller: Caller,
        *,
        kinds: tuple[str, ...] = (),
        lanes: tuple[LanePattern, ...] = (),
        tx_ids: frozenset[TxId] = frozenset(),
    ) -> Interest:
        """What this caller wants, as far as it is his to see."""
        return cls(
            kinds=kinds,
            lanes=lanes or EVERY_LANE,
            within=EVERY_LANE if caller.is_admin else caller.lanes,
            tx_ids=tx_ids,
            tenant=None if caller.is_admin else caller.tenant,
        )

    def wants(self, event: Event) -> bool:
        """As far as the event itself can tell."""
        return (
            (not self.tx_ids or event.tx_id in self.tx_ids)
            and _fits(event.lane, self.lanes)
            and _fits(event.lane, self.within)
            and (not self.kinds or event.kind in self.kinds or f"{event.kind.partition('.')[0]}.*" in self.kinds)
        )

    def may_see(self, event: Event, tenants: Mapping[TxId, str]) -> bool:
        """Whether it is of the tenant. What a lane did by itself is of everybody who may use the lane; a transaction that
        is kept no more is of nobody."""
        return self.tenant is None or event.tx_id is None or tenants.get(event.tx_id) == self.tenant


def _fits(lane: LaneKey, patterns: Iterable[LanePattern]) -> bool:
    return any(pattern.fits(lane) for pattern in patterns)
