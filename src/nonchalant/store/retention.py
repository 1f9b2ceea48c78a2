"""Forgetting what ended long ago, in small steps: each is one short commit, and the next one goes on.

The guards stand in the SQL: only what has ended, and only where every slot of it is final.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from nonchalant.store.rows import Row
from nonchalant.store.talk import Procedure, ask, ask_for_each, change, change_each, with_keys
from nonchalant.words import Millis

# Transactions that are looked at in one go: some hundredths of a second.
LOOKS = 2_000


class Forgotten(NamedTuple):
    more: bool  # one kind had as many as were to be removed, or there is more to look at
    behind: int  # the place at which to go on; 0: from the oldest


def forget(older_than: Millis, limit: int, behind: int) -> Procedure[Forgotten]:
    """Remove up to `limit` of each kind, of transactions those behind a place."""
    at = yield from with_keys(alone=True)
    [position] = yield from ask("position")
    old = {"before": at - older_than, "limit": limit}
    settled = old | {"incarnation": position["incarnation"]}
    found = yield from ask("ended_before", **settled, behind=behind, looks=LOOKS)
    ended = [{"id": row["id"]} for row in found if row["id"] is not None]
    walked = next((int(row["walked"]) for row in found if row["id"] is None), 0)
    yield from change_each("keep_key", ended, at=at)
    yield from _remove_slots((yield from ask_for_each("slots_of_a_transaction", ended)))
    yield from change_each("remove_attempts", ended)
    gone = list((yield from ask_for_each("remove_history", ended)))
    for query in ("leave_nonce", "remove_transaction"):
        yield from change_each(query, ended)
    fillers = yield from ask("final_fillers", **settled)
    yield from _remove_slots(fillers)
    loose = yield from change("remove_loose_attempts", **settled)
    events = yield from ask("remove_lane_events", **old)
    positions = [row["position"] for row in (*gone, *events) if row["position"] is not None]
    if positions:
        yield from change("raise_forgotten", position=max(positions))
    strangers = yield from change("remove_strangers", **old)
    keys = yield from change("forget_keys", **old)
    is_full = max(len(ended), len(fillers), loose, len(events), strangers, keys) >= limit
    return Forgotten(is_full or walked > 0, walked)


def _remove_slots(found: Sequence[Row]) -> Procedure[None]:
    yield from change_each("remove_slot", [dict(row) for row in found])
