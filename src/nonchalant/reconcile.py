"""Reconciling: a store that lost commits must not pay twice.

A restored backup, a snapshot, a failover to a lagging standby: bytes may be out there that this store does not know.
Nothing is assigned on the lane until every nonce they could have used is final. Then what they did is compared with
what still waits.
"""

from __future__ import annotations

import structlog

from nonchalant import proof
from nonchalant.desk import RESET_MARK, Desk
from nonchalant.lanes import Work
from nonchalant.model import Attention, Stranger
from nonchalant.values import replace

log = structlog.get_logger()

# How far back a lane is searched of which the store does not know since when it is used.
UNSEEN_BLOCKS = 2_000


async def begin(desk: Desk) -> None:
    """On every take-over, or once enough endpoints tell: put the lane in quarantine if the store may have lost something
    of it."""
    record, lane = desk.lane.record, desk.lane
    if not is_suspect(desk):
        return
    desk.is_outdated = False
    reached, bound = max(lane.next_nonce, lane.count), record.quarantined_below or 0
    if record.incarnation < desk.incarnation:
        # The store may be a copy from an earlier quarantine: what was lost may have come after that one's end.
        reached = max(reached, bound)
    bound = max(bound, reached + desk.rules.largest_window)
    work = desk.work()
    work.record(replace(record, quarantined_below=bound, incarnation=desk.incarnation))
    work.mark_lane(_quarantine_mark(work, bound))
    desk.check_lease()  # past its end what the chain shows may be another owner's work: no reason to alarm anybody
    log.warning("lane.quarantined", lane=str(desk.key), below=bound)
    await desk.commit(work)


def _quarantine_mark(work: Work, bound: int) -> Attention:
    reason = (
        "this store is older than what was sent from this account, or its key was used elsewhere; "
        f"nothing is assigned until every nonce below {bound} is final"
    )
    return Attention("quarantine", reason, work.at)


def is_suspect(desk: Desk) -> bool:
    """Whether the store was found older than it had been, or the chain shows nonces used that it never gave out.

    Of a shared account the latter is what one expects, and says nothing.
    """
    record = desk.lane.record
    unknown_use = record.next_nonce is not None and desk.lane.count > record.next_nonce
    return desk.is_outdated or record.incarnation < desk.incarnation or (unknown_use and not desk.rules.shared)


async def reconcile(desk: Desk) -> bool:
    """End a quarantine that finality has passed, or raise its bound if more was used than we knew. True: it changed."""
    if desk.is_outdated:
        await begin(desk)
    record = desk.lane.record
    bound = record.quarantined_below
    if bound is None:
        return await _mark_behind(desk)
    if desk.quarantine_top is None:
        desk.quarantine_top = desk.head.top.number
    reached = desk.lane.count + desk.rules.largest_window
    if reached > bound and ((desk.lane.count > bound and not desk.rules.shared) or not desk.may_fill):
        work = desk.work()
        work.record(replace(record, quarantined_below=reached))
        return await desk.commit(work)
    if record.settled_below < bound or not desk.may_fill:
        work = desk.work()
        work.note_lane(_quarantine_mark(work, bound))  # another one may have taken its place for a while
        return await desk.commit(work)
    strangers = await _strangers(desk)
    if strangers is None:
        return False
    work = desk.work()
    for stranger in strangers:
        work.stranger(stranger)
    final = desk.head.final
    done = replace(record, quarantined_below=None, incarnation=desk.incarnation, attention=None)
    work.record(replace(done, seen_block=final.number, seen_hash=final.hash))
    work.event("lane.reset", reason="reconciled with the chain", strangers=[stranger.hash for stranger in strangers])
    desk.assign_due = True
    return await desk.commit(work)


async def _mark_behind(desk: Desk) -> bool:
    """Say so if the chain has executed less than was final here: every nonce that it wants would be refused here."""
    lane = desk.lane
    if not lane.is_behind:
        return await desk.unmark(RESET_MARK)
    work = desk.work()
    reason = (
        f"{lane.record.settled_below} transactions of this account were final here, and the chain knows {lane.count}: "
        "it was reset, or is another one; nothing is sent until it has caught up, or the lane is reset by force"
    )
    work.note_lane(Attention(RESET_MARK, reason, work.at))
    return await desk.commit(work)


async def _strangers(desk: Desk) -> list[Stranger] | None:
    """What the account executed since the store last wrote, and the store does not know; None: there is more to read.

    While blocks cannot be read the lane stays as it is: nothing else could tell what was done already.
    """
    final, seen = desk.head.final, desk.lane.record.seen_block
    search = desk.search = desk.search or proof.Search(final, seen or max(0, final.number - UNSEEN_BLOCKS))
    if not await search.go_on(desk):
        return None
    known = await desk.store.known_attempts([one.hash for one in search.executed])
    desk.search = None
    return [Stranger(one.hash, one.nonce, one.deed) for one in search.executed if one.hash not in known]
