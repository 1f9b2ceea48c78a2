"""Reading: listings, histories, and how lanes and transactions stand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nonchalant.access import LanePattern, Within
from nonchalant.errors import Unreadable
from nonchalant.model import Attempt, Event, Transaction
from nonchalant.ports import (
    EventRange,
    Filter,
    FirstOpen,
    LaneSummary,
    Numbering,
    OpenWish,
    Overview,
    Reserved,
    Standing,
)
from nonchalant.store import rows, stand_ins
from nonchalant.store.legible import Legible, full_page
from nonchalant.store.rows import Row
from nonchalant.store.talk import Ask, Number, Procedure, ask, ask_for_each
from nonchalant.words import LIVE_STATES, TERMINAL_STATES, Hash, LaneKey, Millis, State, TxId

# Wishes that whoever looks at a lane is shown.
WISHES_SHOWN = 100

# What a lane can be that is not simply at work; and the states of what waits for a block, of its own accord.
CONDITIONS = ("paused", "draining", "halted", "quarantined", "unhealthy", "marked")
UNMINED = ("queued", "signed", "sent")


def transaction(tx_id: TxId) -> Procedure[Transaction | None]:
    found = yield from ask("transaction", id=tx_id)
    try:
        return rows.transaction(found[0]) if found else None
    except rows.UNDECODABLE as error:
        raise Unreadable(f"the row of transaction {tx_id} cannot be read; restore it: {error}") from error


def transactions(filter: Filter, legible: Legible) -> Procedure[Sequence[Transaction]]:
    columns = {
        "state": filter.state and filter.state.value,
        "chain_id": filter.chain_id,
        "address": filter.sender,
        "nonce": filter.nonce,
        "hash": filter.hash,
        "idempotency_key": filter.idempotency_key,
        "batch": filter.batch,
        "live": filter.live or filter.state in LIVE_STATES or None,
        "lives": (filter.live and filter.state is None) or None,
        "waits": filter.state is State.QUEUED or None,
        "flies": (filter.state in LIVE_STATES and filter.state is not State.QUEUED) or None,
        "ended": filter.state in TERMINAL_STATES or None,
        "unusual": (filter.state in TERMINAL_STATES and filter.state is not State.CONFIRMED) or None,
        **_within(filter.within),
    }
    # What is live is few, unless something else names fewer; SQLite would rather walk everything than sort them.
    names_few = (filter.nonce, filter.hash, filter.idempotency_key, filter.batch)
    columns["few"] = columns["live"] if all(name is None for name in names_few) else None
    asked = {column: value for column, value in columns.items() if value is not None}

    def page(before: int | None, limit: int) -> Procedure[Sequence[Row]]:
        columns = asked | {"limit": limit} | ({} if before is None else {"before": before})
        answer = yield Ask("transactions", columns, narrow=True)
        return answer.rows

    return (yield from full_page(page, "place", filter.before, filter.limit, legible.transactions))


def marked(lane: LaneKey, limit: int, after: int, legible: Legible) -> Procedure[Sequence[Transaction]]:
    def page(start: int | None, limit: int) -> Procedure[Sequence[Row]]:
        return ask("marked", **lane._asdict(), after=start, limit=limit)

    return (yield from full_page(page, "place", after, limit, legible.transactions))


def has_queued_before(tx: Transaction) -> Procedure[bool]:
    found = yield from ask("queued_before", **tx.lane._asdict(), place=tx.place)
    return bool(found)


def bound(lane: LaneKey, first: int, below: int) -> Procedure[frozenset[int]]:
    found = yield from ask("bound_nonces", **lane._asdict(), first=first, below=below)
    return frozenset(row["nonce"] for row in found)


def known_attempts(hashes: Sequence[Hash]) -> Procedure[frozenset[Hash]]:
    found = yield from ask_for_each("known_attempts", [{"hash": hash} for hash in hashes])
    return frozenset(row["hash"] for row in found)


def attempts(tx_ids: Sequence[TxId], legible: Legible) -> Procedure[Mapping[TxId, Sequence[Attempt]]]:
    signed: dict[TxId, list[Attempt]] = {tx_id: [] for tx_id in tx_ids}
    for row in (yield from ask_for_each("attempts", [{"tx_id": tx_id} for tx_id in signed])):
        signed[row["tx_id"]].append(legible.attempt(row))
    return signed


# events


def history(tx_id: TxId, legible: Legible) -> Procedure[Sequence[Event]]:
    yield Number()
    return legible.events((yield from ask("history", tx_id=tx_id)))


def lane_history(lane: LaneKey, before: int | None, limit: int, legible: Legible) -> Procedure[Sequence[Event]]:
    yield Number()
    newest = 2**63 - 1 if before is None else before
    return legible.events((yield from ask("lane_history", **lane._asdict(), before=newest, limit=limit)))


def events_after(position: int, limit: int, legible: Legible) -> Procedure[Sequence[Event]]:
    yield Number()

    def page(after: int | None, limit: int) -> Procedure[Sequence[Row]]:
        return ask("events_after", position=after, limit=limit)

    return (yield from full_page(page, "position", position, limit, legible.events))


def event_range() -> Procedure[EventRange]:
    yield Number()
    [found] = yield from ask("event_range")
    return EventRange(forgotten=found["forgotten"], last=found["last"])


def tenants(tx_ids: Sequence[TxId]) -> Procedure[Mapping[TxId, str]]:
    found = yield from ask_for_each("tenants", [{"id": tx_id} for tx_id in tx_ids])
    return {row["id"]: row["tenant"] for row in found}


# standing


def standings(transactions: Sequence[Transaction], limit: int) -> Procedure[Mapping[TxId, Standing]]:
    live = [tx for tx in transactions if tx.live]
    first = yield from _first_open({tx.lane for tx in live})
    in_line = [
        {"id": tx.id, **tx.lane._asdict(), "priority": tx.priority, "place": tx.place}
        for tx in live
        if tx.state is State.QUEUED and not tx.held
    ]
    ahead = yield from ask_for_each("queued_ahead", in_line, limit=limit + 1)
    counted = {row["id"]: row["n"] for row in ahead}
    past = [{"tx_id": tx.id} for tx in live if tx.state is not State.QUEUED]
    slots = {row["tx_id"]: row for row in (yield from ask_for_each("slot_of_transaction", past))}
    return {tx.id: _standing(counted.get(tx.id), slots.get(tx.id), first.get(tx.lane)) for tx in live}


def _first_open(lanes: set[LaneKey]) -> Procedure[Mapping[LaneKey, FirstOpen]]:
    found = yield from ask_for_each("first_open_slot", [lane._asdict() for lane in sorted(lanes)])
    return {rows.lane_key(row): FirstOpen(row["nonce"], stand_ins.slot_kind(row), row["tx_id"]) for row in found}


def _standing(ahead: int | None, slot: Row | None, first: FirstOpen | None) -> Standing:
    if slot is None:
        return Standing(ahead=ahead, first=first)
    return Standing(wanted=stand_ins.slot_wanted(slot), payload_version=slot["payload_version"], first=first)


# lanes


def numbering(key: LaneKey) -> Procedure[Numbering]:
    found = yield from ask("numbering", **key._asdict())
    asked_for = yield from ask("asked_for", **key._asdict())
    next_nonce, waiting = (found[0]["next_nonce"], found[0]["waiting"]) if found else (None, 0)
    return Numbering(next_nonce, waiting, frozenset(one["asked_nonce"] for one in asked_for))


def lane(key: LaneKey) -> Procedure[LaneSummary | None]:
    found = yield from _summaries({"chain_id": key.chain_id, "address": key.address})
    return found[0] if found else None


def lanes(within: Within) -> Procedure[Sequence[LaneSummary]]:
    may_use = _within(within)["may_use"]
    return (yield from _summaries({} if may_use is None else {"may_use": may_use}))


def _within(within: Within) -> dict[str, str | None]:
    """As columns; None: nothing is asked for."""
    everywhere = within.lanes is None or LanePattern() in within.lanes
    return {"tenant": within.tenant, "may_use": None if everywhere else rows.to_json(within.lanes)}


def overview(limit: int) -> Procedure[Overview]:
    backlog = yield from ask("backlog", limit=limit)
    conditions = yield from ask("lane_conditions")
    oldest: dict[int, Millis] = {}
    for row in backlog:
        if row["state"] in UNMINED:
            oldest[row["chain_id"]] = max(oldest.get(row["chain_id"], 0), row["now"] - row["oldest"])
    return Overview(
        live={(row["chain_id"], row["state"]): row["n"] for row in backlog},
        oldest_unmined=oldest,
        lanes={(row["chain_id"], condition): row[condition] for row in conditions for condition in CONDITIONS},
    )


def _summaries(which: Mapping[str, object]) -> Procedure[list[LaneSummary]]:
    answer = yield Ask("lanes", which, narrow=True)
    each = [rows.lane_key(row)._asdict() for row in answer.rows]
    states = _by_lane((yield from ask_for_each("live_states", each)))
    slots = _by_lane((yield from ask_for_each("live_slots", each)))
    reservations = _by_lane((yield from ask_for_each("reservations", each)))
    wishes = _by_lane((yield from ask_for_each("open_wishes", each, limit=WISHES_SHOWN)))
    return [
        LaneSummary(
            record=rows.lane_record(row),
            control=rows.control(row),
            states={State(found["state"]): found["n"] for found in states.get(rows.lane_key(row), ())},
            slots={found["kind"]: found["n"] for found in slots.get(rows.lane_key(row), ())},
            reservations=[
                Reserved(found["nonce"], found["deadline"], found["hash"])
                for found in reservations.get(rows.lane_key(row), ())
            ],
            wishes=[
                OpenWish(found["kind"], found["tx_id"], found["made_at"])
                for found in wishes.get(rows.lane_key(row), ())
            ],
            owner=row["owner"] if row["expires_at"] > row["now"] else None,
            epoch=row["epoch"],
            expires_at=row["expires_at"],
        )
        for row in answer.rows
    ]


def _by_lane(found: Sequence[Row]) -> Mapping[LaneKey, list[Row]]:
    grouped: dict[LaneKey, list[Row]] = {}
    for row in found:
        grouped.setdefault(rows.lane_key(row), []).append(row)
    return grouped
