"""An owner's ordinary commit as one function of the server: one round trip where there were nine.

A lane that sends a few at a time spends most of its time on the way to the database and back. The statements are those of
`queries.sql`, in the order of `owning.commit`; whatever is not ordinary goes that way.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from nonchalant.model import Change, Lease
from nonchalant.store import rows
from nonchalant.store.talk import Columns

# What stands in a migration for the function, made of the queries as they are now. Who changes one of those writes a
# migration that has this line again.
MARKER: Final = "-- {the function commit_at_once}\n"
NAME: Final = "commit_at_once"

# In the order in which they are carried out. After the slots comes the lane: what a change settles is still above the bound
# that it may raise.
PARTS: Final = (
    "update_transaction",
    "put_slot",
    "settle_slot",
    "insert_attempt",
    "answer_attempt",
    "update_lane",
    "insert_event",
)

# The verdicts of the function.
DONE: Final = "done"
LEASE_LOST: Final = "lease_lost"
COMMITS_LOST: Final = "commits_lost"

_FENCE: Final = {"chain_id": "BIGINT", "address": "TEXT", "owner": "TEXT", "epoch": "BIGINT"}
_SEEN: Final = {"timeline": "BIGINT", "wal": "BIGINT", "home": "BIGINT"}
_OF_EVENTS: Final = {"count": "BIGINT", "repeats": "BOOLEAN"}
_LISTED: Final = re.compile(r"(?<!:):(\w+)::(\w+\[\])")
_VALUE: Final = re.compile(r"(?<!:):(\w+)")


def is_ordinary(change: Change) -> bool:
    return not (
        change.freed or change.rewritten or change.unsettled_from is not None or change.strangers or change.granted
    )


def parts_of(change: Change, lease: Lease) -> dict[str, list[Columns]]:
    """The rows of each part but the events, which are told."""
    return {
        "update_transaction": [rows.transaction_columns(tx) for tx in change.transactions],
        "put_slot": [rows.slot_columns(slot) for slot in change.slots if not slot.settled],
        "settle_slot": [rows.slot_columns(slot) for slot in change.slots if slot.settled],
        "insert_attempt": [rows.attempt_columns(attempt) for attempt in change.attempts],
        "answer_attempt": [rows.answer_columns(attempt) for attempt in change.answered],
        "update_lane": [] if change.lane is None else [rows.lane_columns(change.lane) | lease.lane._asdict()],
    }


def call(texts: Mapping[str, str]) -> str:
    """The statement that calls it."""
    given = ", ".join(f":{name}::{kind}" for name, kind in _arguments(texts))
    return f"SELECT * FROM nonchalant.{NAME}({given})"  # noqa: S608 - of names in our own SQL


def function(texts: Mapping[str, str]) -> str:
    """The one that a migration makes."""
    given = ", ".join(f"{name} {kind}" for name, kind in _arguments(texts))
    steps = "\n".join(_step(part, texts[part].rstrip().removesuffix(";")) for part in PARTS)
    fence = _named(texts["fence"].rstrip().removesuffix(";"), "fence_", _FENCE)
    return f"""CREATE FUNCTION nonchalant.{NAME}(
    {given}, OUT verdict TEXT, OUT found_timeline BIGINT, OUT found_wal BIGINT, OUT found_home BIGINT
) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    fenced RECORD;
    written BIGINT;
BEGIN
    PERFORM set_config('lock_timeout', stall_for, TRUE);
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'local', TRUE);
    END IF;
    FOR fenced IN {fence} LOOP
        found_timeline := fenced.timeline;
        found_wal := fenced.wal;
        found_home := fenced.home;
    END LOOP;
    IF found_wal IS NULL THEN
        verdict := '{LEASE_LOST}';
        RETURN;
    END IF;
    IF found_timeline <> seen_timeline OR found_wal < seen_wal OR found_home <> seen_home THEN
        verdict := '{COMMITS_LOST}';
        RETURN;
    END IF;
{steps}
    verdict := '{DONE}';
END $$;
"""


def _step(part: str, query: str) -> str:
    """One part, if there is something of it; each of its rows is written, or nothing is."""
    written = _named(query, f"{part}_", _columns(part, query)) if part != "insert_event" else _told(query)
    first = next(iter(_columns(part, query)))
    check = f"""
        GET DIAGNOSTICS written = ROW_COUNT;
        IF written <> cardinality({part}_{first}) THEN
            RAISE EXCEPTION '{part}: one of them is not as it was read'
                USING ERRCODE = 'integrity_constraint_violation';
        END IF;"""
    return f"""    IF cardinality({part}_{first}) > 0 THEN
        {written};{check}
    END IF;"""


def _told(query: str) -> str:
    return _named(query, "insert_event_", {**_columns("insert_event", query), **_OF_EVENTS})


def _named(query: str, prefix: str, columns: Mapping[str, str]) -> str:
    """The query with the function's own names in place of values; what it does not name is the lease's."""

    def own(found: re.Match[str]) -> str:
        return f"{prefix if found[1] in columns else 'fence_'}{found[1]}"

    return _VALUE.sub(own, query)


def _columns(part: str, query: str) -> dict[str, str]:
    found = dict(_LISTED.findall(query))
    assert found, part
    return found


def _arguments(texts: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    yield from ((f"fence_{name}", kind) for name, kind in _FENCE.items())
    yield from ((f"seen_{name}", kind) for name, kind in _SEEN.items())
    yield "stall_for", "TEXT"
    for part in PARTS:
        yield from ((f"{part}_{name}", kind) for name, kind in _columns(part, texts[part]).items())
    yield from ((f"insert_event_{name}", kind) for name, kind in _OF_EVENTS.items())
