"""Admitting: what comes to the lane's own node while nothing waits there is accepted and signed in one commit.

It spares the queue, and one of two commits. Whatever is not ordinary (a price below the market's, too little money, a
signer that fails, a key that is known) is not decided here: it is sent to the queue, where everything has its answer.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from nonchalant import lifecycle, signing
from nonchalant.arrivals import Arrival, send_away
from nonchalant.desk import SIGNER_MARK, Desk
from nonchalant.errors import (
    CommitUnknown,
    LeaseLost,
    NodeRefused,
    Poisoned,
    RowMoved,
    SignerFailed,
    StoreUnavailable,
    Unencodable,
    Unreachable,
)
from nonchalant.judging import Ready, draft, is_stopped, judge, note_data_fees
from nonchalant.lanes import UNPLACED
from nonchalant.model import Attempt, Request
from nonchalant.poison import handling
from nonchalant.words import AttemptKind, Mode, SlotKind

# Why one cannot be signed just now.
NOT_NOW = (NodeRefused, Poisoned, SignerFailed, Unencodable, Unreachable)

# After these nothing was written: somebody was there before, the store cannot be used or cannot keep this, or the lane is
# another's. Whatever else ends a commit leaves it unknown.
NOTHING_WRITTEN = (RowMoved, StoreUnavailable, LeaseLost, Unreachable, ValueError)


def may_come(request: Request) -> bool:
    """Whether it can be signed without asking a node about it, at whichever nonce is next."""
    return (
        request.payload.gas is not None
        and not request.simulate
        and request.asked_nonce is None
        and request.batch is None
    )


async def admit(desk: Desk) -> bool:
    """Accept and sign those who came. True: something changed."""
    arrivals = desk.arrivals
    arrivals.is_open = _is_clear(desk)
    if not arrivals:
        return False
    if not arrivals.is_open:
        arrivals.close()
        return False
    room = min(desk.rules.batch, desk.lane.room(window=desk.window, unsettled=desk.rules.unsettled))
    some = arrivals.first(room)
    try:
        ready = await _ready(desk, some)
        attempts = await _signed(desk, ready)
    except NOT_NOW:
        arrivals.close()
        return False
    return bool(ready) and await serve(desk, ready, attempts)


def _is_clear(desk: Desk) -> bool:
    """Whether nothing waits in this lane, as far as is known, and nothing is unusual about it; the store is asked when it
    is written."""
    return not (
        desk.assign_due
        or desk.postponed
        or desk.unsigned
        or desk.waits_for_funds
        or desk.kept_until is not None
        or desk.lane.strangers
        or desk.lane.record.quarantined_below is not None
        or desk.strikes.aside
        or desk.careful
        or desk.is_outdated
        or desk.ticks() < desk.paused_until
        or desk.control.mode is not Mode.OPEN
        or desk.handed_over
        or desk.retired
        or is_stopped(desk)
    )


async def _ready(desk: Desk, some: Sequence[Arrival]) -> list[tuple[Arrival, Ready]]:
    """Those that can go now, the most urgent first; the others are sent away."""
    now = desk.store_now()
    coming = {arrival.request.id: arrival for arrival in sorted(some, key=lambda one: -one.request.priority)}
    timely = [one.request.accepted(UNPLACED, now) for one in coming.values()]
    timely = [tx for tx in timely if not tx.is_overdue(now)]
    verdicts = await judge(desk, timely) if timely else []
    ready = [(coming.pop(verdict.tx.id), verdict) for verdict in verdicts if isinstance(verdict, Ready)]
    send_away(coming.values())
    return ready


async def _signed(desk: Desk, ready: Sequence[tuple[Arrival, Ready]]) -> list[Attempt]:
    prepared = []
    with handling(answers=(Unencodable,)) as whom:
        for (_, one), nonce in zip(ready, desk.lane.take(len(ready)), strict=True):
            whom.subject = one.tx.id
            prepared.append(signing.prepare(desk, draft(desk, one, nonce), AttemptKind.ORIGINAL, one.tx.id, 1))
    return await signing.sign(desk, prepared)


async def serve(desk: Desk, ready: Sequence[tuple[Arrival, Ready]], attempts: Sequence[Attempt]) -> bool:
    some, work = [arrival for arrival, _ in ready], desk.work()
    if not desk.arrivals.serve(some):
        return True  # the bytes were never sent; who is left is looked at again
    for arrival, attempt in zip(some, attempts, strict=True):
        tx = work.accept(arrival.request)
        work.move(tx, lifecycle.Assigned(attempt.nonce, attempt.hash))
        work.bind(attempt.nonce, SlotKind.TRANSACTION, attempt)
    work.record(replace(work.lane_record, next_nonce=desk.lane.next_after([one.nonce for one in attempts])))
    desk.clear_mark(work, SIGNER_MARK)
    try:
        await desk.commit(work)
    except NOTHING_WRITTEN as error:
        send_away(some)
        desk.arrivals.close()
        if isinstance(error, (RowMoved, ValueError)):  # one of them: the queue tells which
            desk.assign_due = True
            return False
        raise
    except BaseException as error:  # cancelled, too: they may be accepted, and are asked for by the same ids again
        send_away(some, error if isinstance(error, CommitUnknown) else CommitUnknown(f"it was cut short: {error}"))
        raise
    note_data_fees(desk, [one for _, one in ready], attempts)
    for arrival in some:
        if not arrival.served.done():  # a caller that went away is no reason to forget what it asked for
            arrival.served.set_result(desk.lane.transactions[arrival.request.id])
    return True
