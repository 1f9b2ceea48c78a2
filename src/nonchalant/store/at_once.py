"""What is ordinary as one function of the server: commits of owners, an acceptance. One round trip where there were nine.

Whoever sends a few at a time spends most of the time on the way to the database and back, and so do many lanes that each
write a little: what they write at the same time is written together. The statements are those of `queries.sql`, in the
order of `owning.commit` and `accepting.accept`; whatever is not ordinary goes that way.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from nonchalant.history import fact_of
from nonchalant.model import TX_ACCEPTED, Change, Lease, Request
from nonchalant.store import rows
from nonchalant.store.talk import Columns

# What stands in a migration for the functions, made of the queries as they are now. Who changes one of those writes a
# migration that has this line again.
MARKER: Final = "-- {the functions of what is done at once}\n"
COMMIT: Final = "commit_at_once"
ACCEPT: Final = "accept_at_once"

ACCEPTED: Final = "insert_signed"  # the part that gives something back
KEY_WAIT: Final = "100ms"  # how long it waits, with leases locked, for somebody who is accepting the same key
# In the order in which they are carried out. After the slots comes the lane: what a change settles is still above the bound
# that it may raise.
PARTS: Final = (
    ACCEPTED,
    "update_transaction",
    "put_slot",
    "settle_slot",
    "insert_attempt",
    "answer_attempt",
    "update_lane",
    "insert_event",
)

# The verdicts.
DONE: Final = "done"
NOT_ORDINARY: Final = "not_ordinary"
LEASE_LOST: Final = "lease_lost"
COMMITS_LOST: Final = "commits_lost"

_FENCE: Final = {"chain_id": "BIGINT[]", "address": "TEXT[]", "owner": "TEXT[]", "epoch": "BIGINT[]"}
_SEEN: Final = {"timeline": "BIGINT", "wal": "BIGINT", "home": "BIGINT"}
_OF_EVENTS: Final = {"count": "BIGINT", "repeats": "BOOLEAN"}
LANE: Final = "lane"  # which of the leases, from 1, a row is written under
_OF_LANES: Final = {"chain_id": "BIGINT[]", "address": "TEXT[]"}

# As for every other transaction: see `connections`.
_BY_KEYS: Final = "SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off SET jit = off"
# Each step must see what was committed before it: else a key that was removed meanwhile would be accepted again.
_PREPARED: Final = f"""    IF current_setting('transaction_isolation') <> 'read committed'
        OR current_setting('transaction_read_only')::BOOLEAN THEN
        verdict := '{NOT_ORDINARY}';
        RETURN;
    END IF;
    PERFORM set_config('lock_timeout', stall_for, TRUE);
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'local', TRUE);
    END IF;"""
_DROPPED: Final = f"""DO $$
DECLARE
    earlier REGPROCEDURE;
BEGIN
    FOR earlier IN
        SELECT p.oid FROM pg_proc AS p JOIN pg_class AS c ON c.relnamespace = p.pronamespace
        WHERE c.oid = 'nonchalant.meta'::REGCLASS AND p.proname IN ('{COMMIT}', '{ACCEPT}')
    LOOP
        EXECUTE 'DROP FUNCTION ' || earlier;
    END LOOP;
END $$;
"""  # noqa: S608 - of our own SQL
# How the queries name a lane; the others have one in every row.
_ONE_LANE: Final = ":chain_id::BIGINT AS chain_id, :address::TEXT AS address"
_LANE_OF_A_ROW: Final = f":chain_id[given.{LANE}] AS chain_id, :address[given.{LANE}] AS address"
_NAMES_ITS_LANES: Final = frozenset({"update_lane", "insert_event"})
_LISTED: Final = re.compile(r"(?<!:):(\w+)::(\w+\[\])")
_VALUE: Final = re.compile(r"(?<!:):(\w+)")


def is_ordinary(change: Change) -> bool:
    return not (
        change.freed or change.rewritten or change.unsettled_from is not None or change.strangers or change.granted
    )


class Owned(NamedTuple):
    """What an owner wants to be true, and by which right."""

    change: Change
    lease: Lease


def parts_of(commits: Sequence[Owned]) -> dict[str, list[Columns]]:
    """The rows of each part; each names its lease."""
    parts: dict[str, list[Columns]] = {part: [] for part in PARTS}
    for number, (change, lease) in enumerate(commits, 1):
        new = {request.id for request in change.accepted}
        found: dict[str, list[dict[str, object]]] = {
            ACCEPTED: signed_rows(change),
            "update_transaction": [rows.transaction_columns(tx) for tx in change.transactions if tx.id not in new],
            "put_slot": [rows.slot_columns(slot) for slot in change.slots if not slot.settled],
            "settle_slot": [rows.slot_columns(slot) for slot in change.slots if slot.settled],
            "insert_attempt": [rows.attempt_columns(attempt) for attempt in change.attempts],
            "answer_attempt": [rows.answer_columns(attempt) for attempt in change.answered],
            "update_lane": [] if change.lane is None else [rows.lane_columns(change.lane) | lease.lane._asdict()],
            "insert_event": [rows.told_columns(event, fact_of(event)) for event in change.events],
        }
        for part, made in found.items():
            for columns in made:
                columns[LANE] = number
            parts[part] += made
    return parts


def signed_rows(change: Change) -> list[dict[str, object]]:
    """What is accepted with it, as it stands in the store from then on."""
    if not change.accepted:
        return []
    became = {tx.id: tx for tx in change.transactions}
    return [rows.signed_columns(request, became[request.id]) for request in change.accepted]


def are_ordinary(requests: Sequence[Request]) -> bool:
    """Whether nothing but a known id or key can be in their way."""
    keys = [(request.tenant, request.idempotency_key) for request in requests if request.idempotency_key is not None]
    return (
        bool(requests)
        and all(request.asked_nonce is None and request.valid_until is None for request in requests)
        and len({request.id for request in requests}) == len(requests)
        and len(set(keys)) == len(keys)
    )


def calls(texts: Mapping[str, str]) -> dict[str, str]:
    """The statements that call them."""
    arguments = {COMMIT: _arguments(texts), ACCEPT: _arguments_of_acceptance(texts)}
    return {name: _call(name, dict(given)) for name, given in arguments.items()}


def _call(name: str, arguments: Mapping[str, str]) -> str:
    given = ", ".join(f":{argument}::{kind}" for argument, kind in arguments.items())
    return f"SELECT * FROM nonchalant.{name}({given})"  # noqa: S608 - of names in our own SQL


def functions(texts: Mapping[str, str]) -> str:
    """What a migration makes, in place of those that an earlier one made."""
    return f"{_DROPPED}\n{_function_of_commits(texts)}\n{_function_of_acceptance(texts)}"


def _function_of_acceptance(texts: Mapping[str, str]) -> str:
    """All of them, or none: one that is known already, or a lane that takes nothing, is no ordinary case."""
    given = ", ".join(f"{name} {kind}" for name, kind in _arguments_of_acceptance(texts))
    query = texts["insert_transaction"].rstrip().removesuffix(";")
    columns = {**_columns("insert_transaction", query), "at": "BIGINT"}
    inserted = _named(query, "insert_transaction_", columns).replace("insert_transaction_at", "found_at")
    return f"""CREATE FUNCTION nonchalant.{ACCEPT}(
    {given}, OUT verdict TEXT, OUT found_at BIGINT, OUT ids TEXT[], OUT places BIGINT[]
) LANGUAGE plpgsql
{_BY_KEYS}
AS $$
#variable_conflict use_column
DECLARE
    new_telling BIGINT;
BEGIN
{_PREPARED}
    SELECT now INTO found_at FROM ({texts["share_keys"].rstrip().removesuffix(";")}) AS shared;
    IF found_at NOT BETWEEN counted_at AND counted_at + believed_for - 1 OR EXISTS (
        SELECT 1 FROM unnest(lane_chain_id, lane_address) AS lane (chain_id, address)
        JOIN nonchalant.controls AS c ON c.chain_id = lane.chain_id AND c.address = lane.address
        WHERE c.mode = 'draining'
    ) THEN
        verdict := '{NOT_ORDINARY}';
        RETURN;
    END IF;
    WITH inserted AS ({inserted})
    SELECT array_agg(id), array_agg(place) INTO ids, places FROM inserted;
    IF ids IS NULL OR cardinality(ids) <> cardinality(insert_transaction_id) THEN
        RAISE EXCEPTION 'one of them is known already' USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    INSERT INTO nonchalant.tellings (events, repeats) VALUES (cardinality(ids), FALSE) RETURNING telling INTO new_telling;
    INSERT INTO nonchalant.told_events (told, kind, chain_id, address, tx_id, at, data)
    SELECT new_telling << 20 | n - 1, '{TX_ACCEPTED}', chain_id, address, id, found_at, '{{}}'
    FROM unnest(insert_transaction_id, insert_transaction_chain_id, insert_transaction_address)
        WITH ORDINALITY AS accepted (id, chain_id, address, n)
    ORDER BY n;
    verdict := '{DONE}';
END $$;
"""  # noqa: S608 - of our own SQL


def _function_of_commits(texts: Mapping[str, str]) -> str:
    given = ", ".join(f"{name} {kind}" for name, kind in _arguments(texts))
    steps = "\n".join(_step(part, texts[part].rstrip().removesuffix(";")) for part in PARTS)
    fence = _named(texts["fence_all"].rstrip().removesuffix(";"), "fence_", _FENCE)
    return f"""CREATE FUNCTION nonchalant.{COMMIT}(
    {given}, OUT verdict TEXT, OUT found_timeline BIGINT, OUT found_wal BIGINT, OUT found_home BIGINT,
    OUT ids TEXT[], OUT places BIGINT[], OUT accepted_at BIGINT
) LANGUAGE plpgsql
{_BY_KEYS}
AS $$
#variable_conflict use_column
DECLARE
    fenced RECORD;
    leases_held BIGINT;
    written BIGINT;
BEGIN
{_PREPARED}
    FOR fenced IN {fence} LOOP
        leases_held := fenced.leases;
        found_timeline := fenced.timeline;
        found_wal := fenced.wal;
        found_home := fenced.home;
    END LOOP;
    IF leases_held IS DISTINCT FROM cardinality(fence_epoch) THEN
        verdict := '{LEASE_LOST}';
        RETURN;
    END IF;
    IF found_timeline <> seen_timeline OR found_wal < seen_wal OR found_home <> seen_home THEN
        verdict := '{COMMITS_LOST}';
        RETURN;
    END IF;
    -- Whoever removes keys is not waited for: others wait for these leases.
    IF cardinality({ACCEPTED}_id) > 0 AND NOT ({texts["try_keys"].rstrip().removesuffix(";")}) THEN
        verdict := '{NOT_ORDINARY}';
        RETURN;
    END IF;
{steps}
    verdict := '{DONE}';
END $$;
"""


def _step(part: str, query: str) -> str:
    """One part, if there is something of it; each of its rows is written, or nothing is."""
    columns = _columns(part, query)
    written = _named(_under_leases(part, query), f"{part}_", {**columns, **_OF_EVENTS, LANE: ""})
    first = next(iter(columns))
    counted = "GET DIAGNOSTICS written = ROW_COUNT"
    if part == ACCEPTED:
        given_back = "array_agg(id), array_agg(place), max(created_at) INTO ids, places, accepted_at"
        written = f"""-- Nor whoever is about to use the same key.
        PERFORM set_config('lock_timeout', '{KEY_WAIT}', TRUE);
        WITH inserted AS ({written}) SELECT {given_back} FROM inserted;
        PERFORM set_config('lock_timeout', stall_for, TRUE);
        insert_event_at := ARRAY(
            SELECT CASE WHEN kind = '{TX_ACCEPTED}' THEN accepted_at ELSE at END
            FROM unnest(insert_event_kind, insert_event_at) WITH ORDINALITY AS told (kind, at, n) ORDER BY n
        )"""  # noqa: S608 - of our own SQL
        counted = "written := coalesce(cardinality(ids), 0)"
    check = f"""
        {counted};
        IF written <> cardinality({part}_{first}) THEN
            RAISE EXCEPTION '{part}: % is not as it was read',
                CASE WHEN cardinality({part}_{first}) > 1 THEN 'one of ' ELSE '' END || array_to_string({part}_{first}, ', ')
                USING ERRCODE = 'integrity_constraint_violation';
        END IF;"""
    return f"""    IF cardinality({part}_{first}) > 0 THEN
        {written};{check}
    END IF;"""


def _under_leases(part: str, query: str) -> str:
    """The query, with the lane of each row in place of the one lane that all of them have."""
    if part in _NAMES_ITS_LANES:
        assert _ONE_LANE not in query, part
        return query
    assert all(query.count(piece) == 1 for piece in (_ONE_LANE, "FROM unnest(", " AS given (")), part
    return (
        query.replace(_ONE_LANE, _LANE_OF_A_ROW)
        .replace("FROM unnest(", f"FROM unnest(:{LANE}, ")
        .replace(" AS given (", f" AS given ({LANE}, ")
    )


def _named(query: str, prefix: str, columns: Mapping[str, str]) -> str:
    """The query with the function's own names in place of values; what it does not name is the lease's."""

    def own(found: re.Match[str]) -> str:
        return f"{prefix if found[1] in columns else 'fence_'}{found[1]}"

    return _VALUE.sub(own, query)


def _columns(part: str, query: str) -> dict[str, str]:
    found = dict(_LISTED.findall(query))
    assert found, part
    return found


def _arguments_of_acceptance(texts: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    yield from ((f"lane_{name}", kind) for name, kind in _OF_LANES.items())
    yield from {"counted_at": "BIGINT", "believed_for": "BIGINT", "stall_for": "TEXT"}.items()
    columns = _columns("insert_transaction", texts["insert_transaction"])
    yield from ((f"insert_transaction_{name}", kind) for name, kind in columns.items())


def _arguments(texts: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    yield from ((f"fence_{name}", kind) for name, kind in _FENCE.items())
    yield from ((f"seen_{name}", kind) for name, kind in _SEEN.items())
    yield "stall_for", "TEXT"
    for part in PARTS:
        of_leases = {} if part in _NAMES_ITS_LANES else {LANE: "INT[]"}
        yield from ((f"{part}_{name}", kind) for name, kind in {**_columns(part, texts[part]), **of_leases}.items())
    yield from ((f"insert_event_{name}", kind) for name, kind in _OF_EVENTS.items())
