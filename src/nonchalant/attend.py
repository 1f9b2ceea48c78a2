"""Attending: an attention hook is asked about every live transaction that carries a mark.

It is asked beside the lane's other work, one question at a time, when a mark is set and then at a slow rhythm. What it
wants is asked for as any caller would ask: a queued row is altered under its guard, all else is a wish that is granted
or refused like others. Without a hook nothing is done here, and nothing is ever cancelled by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from nonchalant.desk import HOOK_FAILED_MARK, HOOK_REFUSED_MARK, Desk, Heard
from nonchalant.errors import HookFailed, HookRefused, LeaseLost, NonchalantError, TooManyReplacements, WishRefused
from nonchalant.hooks import Alert, HeadSnapshot, LaneSnapshot
from nonchalant.lanes import Work
from nonchalant.model import Attention, Market, Transaction
from nonchalant.ports import Adviser
from nonchalant.words import LESSER_MARKS, Millis

log = structlog.get_logger()

# While a mark stays, it is asked again after this long.
AGAIN: Millis = 60_000

# How often the queue is looked at for marks, and how far at once; the next look goes on there.
LOOK: Millis = 2_000
MOST_MARKED = 200

# Questions in one go; then it is seen anew what is marked.
AT_ONCE = 20

# Of what it says, in a mark or an event.
LONGEST = 500

# What an alert is called in the history of the transaction.
HOOK_ALERT = "hook_alert"


async def attend(desk: Desk) -> bool:
    """Tell what came of the hook's answers, and ask it what is due. True: something changed."""
    if desk.adviser is None:
        return False
    desk.check_lease()  # past its end another owner may ask already
    work = desk.work()
    _hear(desk, work)
    due = await _due(desk) if desk.asking is None else []
    _mark(desk, work, all_asked=not due and desk.asking is None)
    changed = await desk.commit(work)
    if due:
        around = _around(desk, await desk.eyes.market())
        desk.asking = asyncio.create_task(_ask(desk, desk.adviser, due, around))
    return changed


async def _due(desk: Desk) -> list[Transaction]:
    now, page = desk.ticks(), desk.marked_queued
    if now >= desk.look_after:
        desk.look_after = now + LOOK
        if not _unasked(desk, page):
            # All of these were asked about: turn the page, or begin anew.
            desk.marked_after = page[-1].place if len(page) >= MOST_MARKED else 0
        page = desk.marked_queued = list(await desk.store.marked(desk.key, after=desk.marked_after, limit=MOST_MARKED))
    marked = [tx for tx in (*desk.lane.transactions.values(), *page) if tx.attention is not None]
    keys = {(tx.id, tx.attention.code) for tx in marked if tx.attention is not None}
    desk.asked_at = {key: at for key, at in desk.asked_at.items() if key in keys or now - at < AGAIN}
    asked = {tx_id for tx_id, _ in desk.asked_at}
    desk.hook_troubles = {one: trouble for one, trouble in desk.hook_troubles.items() if one in asked}
    return _unasked(desk, marked)[:AT_ONCE]


def _unasked(desk: Desk, marked: Sequence[Transaction]) -> list[Transaction]:
    """Those it was not asked about of late."""
    now, asked_at = desk.ticks(), desk.asked_at
    return [tx for tx in marked if tx.attention and now - asked_at.get((tx.id, tx.attention.code), -AGAIN) >= AGAIN]


@dataclass(frozen=True, slots=True)
class Around:
    """What a hook is told beside the transaction."""

    lane: LaneSnapshot
    head: HeadSnapshot
    fees: Market
    now: Millis


def _around(desk: Desk, market: Market) -> Around:
    lane, record = desk.lane, desk.lane.record
    snapshot = LaneSnapshot(
        key=desk.key,
        mode=desk.control.mode,
        next_nonce=lane.next_nonce,
        count=lane.count,
        balance=lane.balance,
        in_flight=len(lane.open_slots()),
        window=desk.window,
        unhealthy=record.unhealthy,
        attention=record.attention,
    )
    return Around(snapshot, HeadSnapshot(desk.head.top, desk.head.final), market, desk.clock.now())


async def _ask(desk: Desk, adviser: Adviser, due: list[Transaction], around: Around) -> None:
    try:
        for tx in due:
            assert tx.attention is not None
            desk.check_lease()  # once more, before each: much may have been waited for since
            about = tx.id, tx.attention.code
            desk.asked_at[about] = desk.ticks()
            desk.heard.append(await _consult(desk, adviser, tx, around))
            # Its rest begins when it is heard: the question may have been on its way.
            desk.asked_at[about] = desk.ticks()
    except LeaseLost:
        pass  # the lane's next commit says so too
    finally:
        desk.asking = None
        desk.wake.set()


async def _consult(desk: Desk, adviser: Adviser, tx: Transaction, around: Around) -> Heard:
    """Ask about one, and ask for what it says."""
    try:
        advice = await adviser.advise(tx, around.lane, around.head, around.fees, around.now)
        if isinstance(advice, Alert):
            return Heard(tx.id, alert=_plain(advice.reason))
        if advice is not None and desk.carry_out is not None:
            log.info("hook.advised", lane=str(desk.key), tx=tx.id, advice=type(advice).__name__.lower())
            await desk.carry_out(advice)
    except HookFailed as failure:
        cause = repr(failure.__cause__) if failure.__cause__ else None
        log.warning("hook.failed", lane=str(desk.key), tx=tx.id, reason=str(failure), cause=cause)
        return Heard(tx.id, failed=_plain(str(failure)))
    except (HookRefused, WishRefused, TooManyReplacements) as refusal:
        log.warning("hook.refused", lane=str(desk.key), tx=tx.id, reason=str(refusal))
        return Heard(tx.id, refused=_plain(str(refusal)))
    except NonchalantError as problem:
        # Not the hook's doing: it ended meanwhile, or the store is away. If the mark stays, it is asked again.
        log.info("hook.unheard", lane=str(desk.key), tx=tx.id, reason=str(problem))
    except Exception as error:  # an adviser that can be done without must not stop the lane
        # Our own fault, while we acted on its answer.
        log.exception("hook.broke", lane=str(desk.key), tx=tx.id)
        return Heard(tx.id, failed=f"{type(error).__name__}; the node's log says more")
    return Heard(tx.id)


def _plain(text: str) -> str:
    """What any store can keep: somebody else's code may say very much, or what is no Unicode at all."""
    return text[:LONGEST].encode(errors="replace").decode()


def _hear(desk: Desk, work: Work) -> None:
    """What came of the questions: an alert is the transaction's own, trouble with the hook is the lane's."""
    heard, desk.heard[:] = list(desk.heard), []
    for one in heard:
        desk.hook_troubles.pop(one.tx_id, None)
        if one.failed is not None:
            reason = (
                f"the attention hook fails, which counts as waiting ({one.tx_id}: {one.failed}); mend it and restart"
            )
            desk.hook_troubles[one.tx_id] = Attention(HOOK_FAILED_MARK, reason, work.at)
        elif one.refused is not None:
            reason = f"what the attention hook wants is not done ({one.tx_id}: {one.refused}); mend it and restart"
            desk.hook_troubles[one.tx_id] = Attention(HOOK_REFUSED_MARK, reason, work.at)
        elif one.alert is not None:
            log.warning("hook.alert", lane=str(desk.key), tx=one.tx_id, reason=one.alert)
            work.event("tx.attention", tx_id=one.tx_id, code=HOOK_ALERT, reason=one.alert)


def _mark(desk: Desk, work: Work, *, all_asked: bool) -> None:
    """Mark the lane for as long as its hook fails, or wants what may not be, for any transaction that it is asked about."""
    mark = desk.lane.record.attention
    is_ours = mark is not None and mark.code in LESSER_MARKS
    if mark is not None and not is_ours:
        return  # it says more
    if desk.hook_troubles:
        # That it fails comes first: what it wants otherwise says less.
        work.mark_lane(min(desk.hook_troubles.values(), key=lambda trouble: trouble.code))
    elif is_ours and all_asked:
        work.mark_lane(None)
