"""What people want: of a queued transaction at once, of all else by a wish that the lane's owner grants, of a lane."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from nonchalant.errors import MayHaveRun
from nonchalant.model import Attention, Control, Event, Reply, Stranger, Transaction
from nonchalant.ports import Orders, Wished
from nonchalant.store import rows, wish_rows
from nonchalant.store.legible import Legible
from nonchalant.store.rows import Row
from nonchalant.store.talk import Procedure, ask, ask_for_each, change, change_each, expect_each, now, tell
from nonchalant.values import replace
from nonchalant.wishes import Wish
from nonchalant.words import LaneKey, Millis, Mode, TxId

# Wishes an owner reads in one go.
WISHES_AT_ONCE = 500

# Those that ask for a nonce of their own, of which one owner looks at.
ASKING_AT_ONCE = 100


def alter_queued(tx: Transaction, events: Sequence[Event], twin: Stranger | None) -> Procedure[None]:
    if not tx.live:
        yield from _refuse_what_may_have_run(tx)
    yield from expect_each("alter_queued", [rows.transaction_columns(tx) | rows.wish_columns(tx)])
    if twin is not None:
        yield from change_each("put_stranger", [rows.stranger_columns(replace(twin, tx_id=tx.id), tx.lane)])
    yield from tell(events)


def twin_of(tx: Transaction) -> Procedure[Stranger | None]:
    found = yield from ask("twin", **tx.lane._asdict(), deeds=sorted(tx.deeds))
    return rows.stranger(found[0]) if found else None


def _refuse_what_may_have_run(tx: Transaction) -> Procedure[None]:
    # The lane's owner may be about to say so.
    yield from ask("lock_lane", **tx.lane._asdict())
    if (yield from ask("may_have_run", **tx.lane._asdict(), deeds=sorted(tx.deeds))):
        raise MayHaveRun(
            f"nobody can say yet whether {tx.id} ran: the store lost commits, and its lane is being compared with the "
            "chain; ask again"
        )


# the queue


class Line(NamedTuple):
    """Whose turn it is in a lane: at most so many, without these."""

    lane: LaneKey
    limit: int
    skip: Collection[TxId]


class Found(NamedTuple):
    """What may be assigned, in its order, and the ids of what cannot be read."""

    good: list[Transaction]
    broken: list[TxId]


def queued(lines: Sequence[Line]) -> Procedure[Mapping[LaneKey, Found]]:
    """For each of these lanes, which are different ones."""
    found = {line.lane: Found([], []) for line in lines}
    each = [{**line.lane._asdict(), "limit": line.limit} for line in lines]
    skip = [tx_id for line in lines for tx_id in line.skip]
    for row in (yield from ask_for_each("queued", each, asking=ASKING_AT_ONCE, skip=skip)):
        of_lane = found[rows.lane_key(row)]
        try:
            of_lane.good.append(rows.transaction(row))
        except rows.UNDECODABLE:
            of_lane.broken.append(row["id"])
    return found


def hold_undecodable(lane: LaneKey, broken: Sequence[TxId]) -> Procedure[None]:
    """A row that cannot be read leaves the line, with a mark: it must not stop what is behind it."""
    at = yield from now()
    mark = Attention("undecodable", "its row in the store cannot be read; restore it, or send it anew", at)
    each = [{"id": tx_id} for tx_id in broken]
    yield from change_each("hold_queued", each, attention=rows.attention_text(mark), at=at)
    data = {"code": mark.code}
    yield from tell([Event(kind="tx.held", lane=lane, at=at, tx_id=tx_id, data=data) for tx_id in broken])


def overdue(limit: int) -> Procedure[Sequence[Row]]:
    return (yield from ask("overdue", limit=limit))


def expire_undecodable(overdue: Sequence[Row]) -> Procedure[None]:
    """Nobody needs to read what they ask for to know that it is not wanted any more."""
    at = yield from now()
    for row in overdue:
        if (yield from change("expire_queued", id=row["id"], at=at)):
            lane = rows.lane_key(row)
            yield from tell([Event(kind="tx.expired", lane=lane, at=at, tx_id=row["id"])])


# wishes


def wish(wish: Wish, limit: int) -> Procedure[Wished]:
    if (yield from ask("wish", id=wish.id)):
        return Wished.TAKEN  # our own commit, whose outcome we had not learnt
    [counted] = yield from ask("count_wishes", **wish.lane._asdict(), limit=limit)
    if counted["n"] >= limit:
        return Wished.TOO_MANY
    taken = yield from change("insert_wish", **wish_rows.columns(wish))
    return Wished.TAKEN if taken else Wished.NOT_NOW


def reply(wish_id: str) -> Procedure[Reply | None]:
    found = yield from ask("wish", id=wish_id)
    if not found or found[0]["reply"] is None:
        return None
    try:
        return rows.reply(found[0]["reply"])
    except rows.UNDECODABLE:
        return Reply("undecodable", {"reason": "the answer cannot be read in the store; look what became of it"})


def withdraw(wish_id: str) -> Procedure[bool]:
    yield from change("withdraw_wish", id=wish_id)
    found = yield from ask("wish", id=wish_id)
    return not found


def forget_replies(older_than: Millis) -> Procedure[int]:
    at = yield from now()
    return (yield from change("forget_replies", before=at - older_than))


def orders(lane: LaneKey, legible: Legible) -> Procedure[tuple[Orders, list[str]]]:
    """What the owner is to do, and the ids of wishes that cannot be read."""
    control = yield from _control(lane)
    wishes: list[Wish] = []
    broken: list[str] = []
    for row in (yield from ask_for_each("open_wishes", [lane._asdict()], limit=WISHES_AT_ONCE)):
        try:
            wishes.append(wish_rows.wish(row))
        except rows.UNDECODABLE:
            legible.warn("wish", row["id"])
            broken.append(row["id"])
    return Orders(control, wishes), broken


def refuse_undecodable(lane: LaneKey, broken: Sequence[str]) -> Procedure[None]:
    """A wish that cannot be read is answered, or it would be work for ever. Whoever made it can make it again."""
    no = rows.reply_text(Reply("undecodable", {"reason": "its row in the store cannot be read; ask again"}))
    yield from change_each("reply_to_wish", [{"id": id, "reply": no} for id in broken], **lane._asdict())


# lanes


def control(lane: LaneKey, mode: Mode, reason: str) -> Procedure[Control]:
    at = yield from now()
    before = yield from _control(lane)
    if mode is Mode.OPEN:
        yield from change("believe_chain", **lane._asdict())
    # No row: it is halted, and stays so.
    if (yield from change("put_control", **lane._asdict(), mode=mode.value, reason=reason, at=at)):
        yield from tell([_said(lane, mode, reason, at)])
    return before


def halt(chain_id: int, reason: str) -> Procedure[None]:
    at = yield from now()
    found = yield from ask("halt_lanes", chain_id=chain_id, reason=reason, at=at)
    lanes = sorted(LaneKey(chain_id, row["address"]) for row in found)
    yield from tell([_said(lane, Mode.HALTED, reason, at) for lane in lanes])


def _control(lane: LaneKey) -> Procedure[Control]:
    found = yield from ask("control", **lane._asdict())
    return rows.control(found[0] if found else None)


def _said(lane: LaneKey, mode: Mode, reason: str, at: Millis) -> Event:
    kind = "lane.resumed" if mode is Mode.OPEN else "lane.paused"
    return Event(kind=kind, lane=lane, at=at, data={"mode": mode.value, "reason": reason})
