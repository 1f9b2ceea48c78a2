"""Forgetting what ended long ago, in small steps: each is one short commit, and the next one goes on.

The guards stand in the SQL: only what has ended, and only where every slot of it is final.
"""

from __future__ import annotations

import sqlite3
from typing import Protocol


class Run(Protocol):
    """Runs a named query inside the write that is under way."""

    def __call__(self, query: str, **columns: object) -> sqlite3.Cursor: ...


def forget(run: Run, *, before: int, now: int, incarnation: int, limit: int) -> bool:
    """Remove up to `limit` of each kind. True: one kind had as many, so there may be more."""
    old = {"before": before, "limit": limit}
    ended = run("ended_before", **old, incarnation=incarnation).fetchall()
    for row in ended:
        _remove(run, row["id"], now)
    fillers = run("final_fillers", **old, incarnation=incarnation).fetchall()
    for row in fillers:
        run("remove_slot", **row, tx_id=None)
    loose = run("remove_loose_attempts", **old, incarnation=incarnation).rowcount
    aged = [run(query, **old).rowcount for query in ("remove_lane_events", "remove_strangers", "forget_keys")]
    return any(count >= limit for count in (len(ended), len(fillers), loose, *aged))


def _remove(run: Run, tx_id: str, now: int) -> None:
    run("keep_key", id=tx_id, now=now)
    for row in run("slots_of_a_transaction", id=tx_id).fetchall():
        run("remove_slot", **row, tx_id=tx_id)
    for query in ("remove_attempts", "remove_history", "remove_transaction"):
        run(query, id=tx_id)
