"""What goes wrong with a lane's own work, or with its chain, is told to people: as a mark of the lane or of a transaction."""

from __future__ import annotations

import structlog

from nonchalant import lifecycle, same_chain
from nonchalant.desk import ASIDE_MARK, BEHIND_MARK, BROKEN_MARK, TROUBLE_MARK, Desk
from nonchalant.errors import RowMoved, StoreUnavailable
from nonchalant.follow import Follower
from nonchalant.model import Attention
from nonchalant.poison import subject_of
from nonchalant.rescue import FILLING
from nonchalant.words import Millis, State, TxId

log = structlog.get_logger()

# After so many errors in a row people are told.
RESTARTS_BEFORE_A_MARK = 4

# How soon a mark is tried again that could not be written.
TELL_AGAIN: Millis = 30_000

# How long a stage may wait for the chain before people are told.
LONGEST_WAIT: Millis = 60_000


async def tell_trouble(desk: Desk, follower: Follower) -> None:
    """Mark a lane whose chain cannot be followed, for as long as that lasts; a mark that is there says more.

    One that was reset is begun anew, once somebody has resumed the lane.
    """
    if desk.retired:
        return
    work, trouble = desk.work(), follower.lasting_trouble or desk.lasting_wait(LONGEST_WAIT)
    if trouble is not None and follower.is_behind:
        work.mark_lane(Attention(BEHIND_MARK, trouble, work.at))
    elif trouble is not None:
        work.note_lane(Attention(TROUBLE_MARK, trouble, work.at))
    elif follower.trouble is None and not desk.waits:
        desk.clear_mark(work, TROUBLE_MARK)
    await desk.commit(work)
    if trouble is not None and follower.behind_since is not None and desk.orders_due:
        desk.orders_due = False
        if await same_chain.is_resumed(desk, follower.behind_since):
            log.warning("chain.begun_anew", chain=follower.chain.chain_id, lane=str(desk.key))
            follower.start_over()


async def tell_broken(desk: Desk) -> None:
    """Mark a lane that starts anew again and again."""
    work = desk.work()
    if desk.strikes.restarts >= RESTARTS_BEFORE_A_MARK:
        reason = f"its work fails again and again ({desk.strikes.trouble}); it is tried every half minute, see the log"
        work.mark_lane(Attention(BROKEN_MARK, reason, work.at))
    await desk.commit(work)


async def tell_recovery(desk: Desk) -> None:
    """The lane has worked for a while: whatever failed before is over."""
    work = desk.work()
    desk.clear_mark(work, BROKEN_MARK)
    await desk.commit(work)


async def tell_aside(desk: Desk) -> None:
    """Mark what a stage leaves aside from now on; what is queued leaves the line. What cannot be marked now is later."""
    if desk.is_halted or desk.retired:
        return
    strikes, work = desk.strikes, desk.work()
    if strikes.aside:
        slots = {subject_of(slot) for slot in desk.lane.slots.values()}
        strikes.look_again(desk.ticks(), slots | {FILLING})
    if not any(desk.lane.transactions.get(subject) is None for _, subject in strikes.aside):
        desk.clear_mark(work, ASIDE_MARK)
        await desk.commit(work)
    if desk.ticks() < desk.tell_after:
        return
    for subject, reason in list(strikes.untold.items()):
        tx_id = transaction_in(subject)
        log.error("tx.set_aside", lane=str(desk.key), subject=subject, tx=tx_id, reason=reason)
        try:
            await _set_aside(desk, subject, reason)
        except (RowMoved, StoreUnavailable) as error:
            log.warning("mark.failed", lane=str(desk.key), subject=subject, tx=tx_id, reason=str(error))
            desk.tell_after = desk.ticks() + TELL_AGAIN
        else:
            del strikes.untold[subject]


def transaction_in(subject: str) -> TxId | None:
    """None: the subject of an error is no transaction, but a nonce that is nobody's. Ids are one word."""
    return None if " " in subject or subject == FILLING else subject


async def _set_aside(desk: Desk, subject: str, reason: str) -> None:
    work = desk.work()
    tx = desk.lane.transactions.get(subject) or await desk.store.transaction(subject)
    if tx is None:
        work.mark_lane(Attention(ASIDE_MARK, f"{subject}: {reason}; the transactions go on", work.at))
    elif tx.live and tx.state is not State.QUEUED:
        told = f"{reason}; it is sent as it was signed. See the log, then bump it, replace it or cancel it"
        work.move(tx, lifecycle.Marked(Attention(ASIDE_MARK, told, work.at)))
    elif tx.live and not tx.held:
        told = f"{reason}; the others go on. See the log, then release it, replace it or cancel it"
        work.move(tx, lifecycle.Held(Attention(ASIDE_MARK, told, work.at)))
    await desk.commit(work)
    if tx is not None and tx.state is State.QUEUED:
        desk.strikes.forgive(subject)  # it is out of the line until somebody releases it
