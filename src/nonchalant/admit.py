"""Admitting: what comes to the lane's own node while nothing waits there is accepted and signed in one commit.

It spares the queue, and one of two commits. Whatever is not ordinary (a price below the market's, too little money, a
signer that fails, a key that is known) is not decided here: it is sent to the queue, where everything has its answer.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from nonchalant import lifecycle, signing
from nonchalant.arrivals import Caller, send_away
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
    Unstorable,
)
from nonchalant.judging import Ready, draft, is_stopped, judge
from nonchalant.lanes import UNPLACED
from nonchalant.model import Attempt
from nonchalant.poison import handling
from nonchalant.words import AttemptKind, Millis, Mode, SlotKind

# Why one cannot be signed just now.
NOT_NOW = (NodeRefused, Poisoned, SignerFailed, Unencodable, Unreachable)

# After these nothing was written, and the lane is as it was: somebody was there before, or the store cannot keep one of
# them, or cannot be used now. The queue finds out which.
NOT_WRITTEN = (RowMoved, StoreUnavailable, Unstorable)

# How long nobody is admitted after that: somebody who comes with the same key again and again costs his neighbours one
# commit in vain, not all of theirs.
REST: Millis = 1_000


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
    callers = arrivals.next(room)
    if not callers:
        return False
    try:
        ready = await _ready(desk, callers)
        attempts = await _signed(desk, [one for _, one in ready])
    except NOT_NOW:
        arrivals.close()
        return False
    if not arrivals.are_here(callers):
        return True  # the bytes were never sent; who is left is looked at again
    with arrivals.serving(callers):
        return await serve(desk, callers, [caller for caller, _ in ready], attempts)


def _is_clear(desk: Desk) -> bool:
    """Whether nothing waits in this lane, as far as is known, and nothing is unusual about it; the store is asked when it
    is written. Where others have to be asked for each batch (their signer, pools of a shared account, what its data costs),
    callers do not wait for that."""
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
        or desk.ticks() < max(desk.paused_until, desk.admit_after)
        or desk.control.mode is not Mode.OPEN
        or desk.handed_over
        or desk.retired
        or desk.rules.shared
        or desk.chain.charges_for_data
        or not desk.signer.in_process
        or is_stopped(desk)
    )


async def _ready(desk: Desk, callers: Sequence[Caller]) -> list[tuple[Caller, Ready]]:
    """Those that can go now, the most urgent first."""
    now = desk.store_now()
    by_id = {caller.request.id: caller for caller in sorted(callers, key=lambda one: -one.request.priority)}
    coming = [caller.request.accepted(UNPLACED, now) for caller in by_id.values()]
    verdicts = await judge(desk, [tx for tx in coming if not tx.is_overdue(now)])
    return [(by_id[verdict.tx.id], verdict) for verdict in verdicts if isinstance(verdict, Ready)]


async def _signed(desk: Desk, ready: Sequence[Ready]) -> list[Attempt]:
    prepared = []
    with handling(answers=(Unencodable,)) as whom:
        for one, nonce in zip(ready, desk.lane.take(len(ready)), strict=True):
            whom.subject = one.tx.id
            prepared.append(signing.prepare(desk, draft(desk, one, nonce), AttemptKind.ORIGINAL, one.tx.id, 1))
    return await signing.sign(desk, prepared)


async def serve(desk: Desk, callers: Sequence[Caller], ready: Sequence[Caller], attempts: Sequence[Attempt]) -> bool:
    """Accept those that are ready with what was signed for them, and tell everybody. The others go to the queue after
    that: there they would be in the way of the first."""
    accepted = {id(caller) for caller in ready}
    try:
        if ready:
            await _accept(desk, ready, attempts)
    except NOT_WRITTEN:
        send_away(callers)
        desk.arrivals.close()
        desk.assign_due, desk.admit_after = True, desk.ticks() + REST
        return False
    except (LeaseLost, Unreachable):
        send_away(callers)
        raise
    except BaseException as error:  # cancelled, too: they may be accepted, and are asked for by the same ids again
        cut_short = CommitUnknown(f"it was cut short: {str(error) or type(error).__name__}")
        doubt = error if isinstance(error, CommitUnknown) else cut_short
        for caller in callers:
            caller.sent_away(doubt if id(caller) in accepted else None)
        raise
    for caller in ready:
        caller.admitted(desk.lane.transactions[caller.request.id])
    send_away(caller for caller in callers if id(caller) not in accepted)
    return bool(ready)


async def _accept(desk: Desk, callers: Sequence[Caller], attempts: Sequence[Attempt]) -> None:
    work, now = desk.work(), desk.store_now()
    for caller, attempt in zip(callers, attempts, strict=True):
        tx = work.accept(caller.request, now)
        work.move(tx, lifecycle.Assigned(attempt.nonce, attempt.hash))
        work.bind(attempt.nonce, SlotKind.TRANSACTION, attempt)
    work.record(replace(work.lane_record, next_nonce=desk.lane.next_after([one.nonce for one in attempts])))
    desk.clear_mark(work, SIGNER_MARK)
    await desk.commit(work)
