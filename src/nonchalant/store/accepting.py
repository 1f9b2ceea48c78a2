"""Accepting: requests become queued transactions, all of a batch in one commit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from nonchalant.model import TX_ACCEPTED, Event, Request, Transaction
from nonchalant.ports import (
    Acceptance,
    Draining,
    Duplicate,
    Illegible,
    KeyTaken,
    NonceTaken,
    NoRoom,
    Overdue,
    Removed,
)
from nonchalant.store import rows
from nonchalant.store.legible import Legible
from nonchalant.store.room import KnownRoom
from nonchalant.store.talk import Procedure, ask, ask_for_each, change_each, tell, with_keys
from nonchalant.words import TERMINAL_STATES, LaneKey, Millis, Mode

# The depth of a lane that takes nothing new.
CLOSED = -1


class NotTogether(Exception):
    """One of them cannot be accepted, so none is; with what each would have been answered."""

    def __init__(self, answers: Sequence[Acceptance]) -> None:
        super().__init__()
        self.answers = answers


def declare(lanes: Sequence[LaneKey]) -> Procedure[None]:
    each = [lane._asdict() for lane in lanes]
    yield from change_each("declare_lane", each)
    yield from change_each("declare_lease", each)


def accept(
    requests: Sequence[Request], limits: Mapping[LaneKey, int], known_room: KnownRoom, legible: Legible
) -> Procedure[Sequence[Acceptance]]:
    at = yield from with_keys(alone=False)
    depths = yield from _depths(requests, limits, known_room, at)
    # By their number in the batch: nobody else has to be unique.
    answers: dict[int, Acceptance] = {}
    events: list[Event] = []
    pending = dict(enumerate(requests))
    while pending:
        # One that repeats another of the batch has its answer only after that one.
        first = _without_repeats(pending)
        taken = yield from _claim_nonces(first, legible)
        fitting, refused = _fitting({n: first[n] for n in first if n not in taken}, depths, limits, at)
        columns = [{"n": n, **rows.request_columns(request)} for n, request in fitting.items()]
        inserted = yield from ask_for_each("insert_transaction", columns, at=at)
        places = {row["id"]: row["place"] for row in inserted}
        for n, request in fitting.items():
            if request.id not in places:
                continue
            del first[n]
            answers[n] = request.accepted(places[request.id], at)
            depths[request.lane] += 1
            events.append(Event(kind=TX_ACCEPTED, lane=request.lane, at=at, tx_id=request.id))
        # What is known already is not refused, whatever the lane says; and it leaves its room to another.
        known = yield from _known(first, legible)
        known = taken | known
        answers |= refused | known if len(inserted) == len(fitting) else known
        pending = {n: request for n, request in pending.items() if n not in answers}
    yield from _leave_nonces([request for n, request in enumerate(requests) if not _is_its_own(request, answers[n])])
    yield from tell(events)
    return [answers[n] for n in range(len(requests))]


def accept_together(
    requests: Sequence[Request], limits: Mapping[LaneKey, int], known_room: KnownRoom, legible: Legible
) -> Procedure[Sequence[Acceptance]]:
    """`NotTogether` unless all are accepted, now or by this very call made before."""
    answers = yield from accept(requests, limits, known_room, legible)
    if not all(_is_its_own(request, answer) for request, answer in zip(requests, answers, strict=True)):
        raise NotTogether(answers)
    return answers


def batch_of(tx: Transaction, legible: Legible) -> Procedure[Sequence[Transaction]]:
    """It, and all that was accepted with it, in order."""
    if tx.batch is None:
        return [tx]
    return legible.transactions((yield from ask("batch", batch=tx.batch)))


def _is_its_own(request: Request, answer: Acceptance) -> bool:
    return isinstance(answer, Transaction) and answer.id == request.id


def _without_repeats(requests: Mapping[int, Request]) -> dict[int, Request]:
    """Those that share neither id nor key nor nonce with one before them."""
    seen, first = set[object](), dict[int, Request]()
    for n, request in requests.items():
        names: set[object] = {request.id}
        if request.idempotency_key is not None:
            names.add((request.tenant, request.idempotency_key))
        if request.asked_nonce is not None:
            names.add((request.lane, request.asked_nonce))
        if not names & seen:
            first[n] = request
        seen |= names
    return first


def _claim_nonces(requests: Mapping[int, Request], legible: Legible) -> Procedure[dict[int, Acceptance]]:
    """The nonces that clients ask for are theirs from here on; the answers of those whose nonce is another's."""
    asking = {n: request for n, request in requests.items() if request.asked_nonce is not None}
    if not asking:
        return {}
    answers = yield from _known(asking, legible)
    # In one order: two nodes that ask for the same ones never wait for each other in a circle.
    claims = sorted(
        ({"n": n, **rows.request_columns(request)} for n, request in asking.items() if n not in answers),
        key=lambda claim: (claim["chain_id"], claim["address"], claim["asked_nonce"]),
    )
    yield from change_each("claim_nonce", claims)
    free = []
    for row in (yield from ask_for_each("nonce_holder", claims)):
        request = asking[row["n"]]
        if row["holder"] == request.id:
            continue
        if row["id"] is None or (row["state"] in TERMINAL_STATES and row["nonce"] is None):
            free.append(next(claim for claim in claims if claim["n"] == row["n"]))
        else:
            answers[row["n"]] = _held_by(request, row, legible)
    yield from change_each("take_nonce", free)
    return answers


def _held_by(request: Request, row: rows.Row, legible: Legible) -> Acceptance:
    """The same again is the same transaction; anything else would be a second one at one nonce."""
    holder = legible.transaction(row)
    known = row["id"] if row["tenant"] == request.tenant else None
    same = holder is not None and holder.tenant == request.tenant and request.payload.deed in holder.deeds
    return Duplicate(holder) if holder is not None and same else NonceTaken(known)


def _leave_nonces(requests: Sequence[Request]) -> Procedure[None]:
    yield from change_each(
        "leave_nonce", [{"id": request.id} for request in requests if request.asked_nonce is not None]
    )


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


def _depths(
    requests: Sequence[Request], limits: Mapping[LaneKey, int], known_room: KnownRoom, at: Millis
) -> Procedure[dict[LaneKey, int]]:
    """How many wait in each lane, or `CLOSED`; 0 where there is surely room for all of these, and nobody counted."""
    wanted = Counter(request.lane for request in requests)
    most = {
        lane: 0 if known_room.is_ample(lane, limits[lane], wanted[lane], at) else limits[lane]
        for lane in sorted(wanted)
    }
    found = yield from ask_for_each("room", [{**lane._asdict(), "limit": limit} for lane, limit in most.items()])
    depths: dict[LaneKey, int] = {}
    for row in found:
        lane = rows.lane_key(row)
        depths[lane] = CLOSED if row["mode"] == Mode.DRAINING.value else row["depth"]
        if most[lane]:
            known_room.counted(lane, limits[lane], row["depth"], wanted[lane], at)
    return depths


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
