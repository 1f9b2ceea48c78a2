"""Accepting: requests become queued transactions, all of a batch in one commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nonchalant.model import Event, LaneKey, Millis, Mode, Request, TxId
from nonchalant.ports import Acceptance, Draining, Duplicate, Illegible, KeyTaken, NoRoom, Overdue, Removed
from nonchalant.store import rows
from nonchalant.store.legible import Legible
from nonchalant.store.talk import Procedure, ask_for_each, change_each, tell, with_keys

# The depth of a lane that takes nothing new.
CLOSED = -1


def declare(lanes: Sequence[LaneKey]) -> Procedure[None]:
    each = [lane._asdict() for lane in lanes]
    yield from change_each("declare_lane", each)
    yield from change_each("declare_lease", each)


def accept(
    requests: Sequence[Request], limits: Mapping[LaneKey, int], legible: Legible
) -> Procedure[Sequence[Acceptance]]:
    at = yield from with_keys(alone=False)
    depths = yield from _depths(requests, limits)
    # By their number in the batch: nobody else has to be unique.
    answers: dict[int, Acceptance] = {}
    events: list[Event] = []
    pending = dict(enumerate(requests))
    while pending:
        # One that repeats another of the batch has its answer only after that one.
        first = _without_repeats(pending)
        fitting, refused = _fitting(first, depths, limits, at)
        columns = [{"n": n, **rows.request_columns(request)} for n, request in fitting.items()]
        inserted = yield from ask_for_each("insert_transaction", columns, at=at)
        for row in inserted:
            request = first.pop(row["n"])
            answers[row["n"]] = rows.accepted(request, row["place"], at)
            depths[request.lane] += 1
            events.append(Event(kind="tx.accepted", lane=request.lane, at=at, tx_id=request.id))
        # What is known already is not refused, whatever the lane says; and it leaves its room to another.
        known = yield from _known(first, legible)
        answers |= refused | known if len(inserted) == len(fitting) else known
        pending = {n: request for n, request in pending.items() if n not in answers}
    yield from tell(events)
    return [answers[n] for n in range(len(requests))]


def _without_repeats(requests: Mapping[int, Request]) -> dict[int, Request]:
    """Those that share neither id nor key with one before them."""
    ids, keys, first = set[TxId](), set[tuple[str, str]](), dict[int, Request]()
    for n, request in requests.items():
        key = (request.tenant, request.idempotency_key or "")
        if request.id not in ids and (request.idempotency_key is None or key not in keys):
            first[n] = request
        ids.add(request.id)
        keys.add(key)
    return first


def _fitting(
    requests: Mapping[int, Request], depths: Mapping[LaneKey, int], limits: Mapping[LaneKey, int], at: Millis
) -> tuple[dict[int, Request], dict[int, Acceptance]]:
    """Those that there is room for, and why not, of the others."""
    depths, fitting, refused = dict(depths), dict[int, Request](), dict[int, Acceptance]()
    for n, request in requests.items():
        if depths[request.lane] == CLOSED:
            refused[n] = Draining()
        elif request.valid_until is not None and request.valid_until <= at:
            refused[n] = Overdue()
        elif depths[request.lane] >= limits[request.lane]:
            refused[n] = NoRoom()
        else:
            depths[request.lane] += 1
            fitting[n] = request
    return fitting, refused


def _depths(requests: Sequence[Request], limits: Mapping[LaneKey, int]) -> Procedure[dict[LaneKey, int]]:
    """How many wait in each lane, or `CLOSED`."""
    lanes = sorted({request.lane for request in requests})
    found = yield from ask_for_each("room", [{**lane._asdict(), "limit": limits[lane]} for lane in lanes])
    return {rows.lane_key(row): CLOSED if row["mode"] == Mode.DRAINING.value else row["depth"] for row in found}


def _known(requests: Mapping[int, Request], legible: Legible) -> Procedure[dict[int, Acceptance]]:
    """What became of those that came before."""
    each = [
        {"n": n, "id": request.id, "tenant": request.tenant, "idempotency_key": request.idempotency_key}
        for n, request in requests.items()
    ]
    found = yield from ask_for_each("known_request", each)
    answers = {row["n"]: _known_as(requests[row["n"]], row, legible) for row in found}
    others = [columns for columns in each if columns["n"] not in answers and columns["idempotency_key"] is not None]
    for row in (yield from ask_for_each("removed_request", others)):
        same = row["body_hash"] == requests[row["n"]].body_hash
        answers[row["n"]] = Removed(row["id"]) if same else KeyTaken()
    return answers


def _known_as(request: Request, row: rows.Row, legible: Legible) -> Acceptance:
    if row["id"] != request.id and row["body_hash"] != request.body_hash:
        return KeyTaken()
    known = legible.transaction(row)
    if known is None:
        return Illegible(row["id"])
    # With our own id it is our own commit, whose outcome we had not learnt.
    return known if known.id == request.id else Duplicate(known)
