"""The manual tools: sync, fill and reset a lane. A part of granting."""

from __future__ import annotations

from collections.abc import Sequence

from nonchalant import filling, lifecycle, policy
from nonchalant.desk import RESERVATION_MARK, RESET_MARK, Desk
from nonchalant.errors import Unreachable
from nonchalant.lanes import Work
from nonchalant.model import Attention, BlockRef, Receipt, Slot
from nonchalant.policy import NEVER_SENT
from nonchalant.values import replace
from nonchalant.wishes import Fill, Refusal, Reset
from nonchalant.words import SlotKind, State, Wanted

# Slots named in one answer; the counts beside them are complete.
NAMED = 100

RESET_CODE = "reset"


async def sync(desk: Desk, work: Work, wish_id: str) -> None:
    """Ask the chain for all that is known of the lane, and take trailing free nonces back."""
    lane = desk.lane
    await desk.see_account()
    hashes = lane.attempt_hashes()
    found: Sequence[Receipt | None] = await desk.eyes.ask(lambda endpoint: endpoint.find(hashes)) if hashes else []
    executed = [receipt for receipt in found if receipt is not None]
    desk.inbox += executed  # what they mean is for watching to say, in this same round
    desk.assign_due = True
    # While commits may be missing, a nonce that looks free may be one that a lost commit used.
    next_nonce = lane.next_nonce if lane.record.quarantined_below is not None else lane.next_after()
    work.record(replace(work.lane_record, next_nonce=next_nonce))
    work.reply(
        wish_id,
        head=desk.head.top.number,
        final=desk.head.final.number,
        count=lane.count,
        final_count=lane.final_count,
        next_nonce=next_nonce,
        settled_below=lane.record.settled_below,
        live=len(lane.slots),
        executed=len(executed),
        holes=[nonce for nonce in lane.holes() if nonce < next_nonce][:NAMED],
    )


async def fill(desk: Desk, work: Work, wish_id: str, act: Fill) -> None:
    """Close one hole, or all that something waits behind, without waiting for traffic."""
    lane = desk.lane
    # What a holder says he used stays his until somebody gives it up, and a quarantine ends only after that.
    used = act.nonce is not None and act.nonce in lane.slots and desk.may_fill
    if lane.record.quarantined_below is not None and not used:
        raise Refusal("quarantined", "the lane is in quarantine: it closes by itself what it must, once it may")
    await desk.see_account_at_head()
    slot = None if act.nonce is None else lane.slots.get(act.nonce)
    if slot is not None:
        _close_used(desk, work, slot)
        work.reply(wish_id, filled=[slot.nonce], left=0)
        return
    holes = lane.gaps() if act.nonce is None else [act.nonce]
    if act.nonce is not None and act.nonce not in lane.holes():
        raise Refusal(
            "not_a_hole", f"nonce {act.nonce} is used already, or was never given out; there is nothing to close"
        )
    now = holes[: filling.room(desk)]
    if now:
        await filling.fill(desk, work, now)
    work.reply(wish_id, filled=list(now), left=len(holes) - len(now))


def _close_used(desk: Desk, work: Work, slot: Slot) -> None:
    """Have a filler compete with what a holder says he signed; rescuing signs it."""
    if slot.kind is not SlotKind.RESERVATION or desk.lane.is_consumed(slot):
        raise Refusal("not_a_hole", f"nonce {slot.nonce} belongs to a {slot.kind} already")
    if not slot.attempts:
        raise Refusal(
            "reserved", f"nonce {slot.nonce} is reserved; it is closed by itself when the time for it is over"
        )
    work.slot(replace(slot, kind=SlotKind.FILLER, payload_version=0))
    desk.clear_mark(work, RESERVATION_MARK)


async def reset(desk: Desk, work: Work, wish_id: str, act: Reset) -> None:
    """Take the chain's word for the next nonce. What may be with a node keeps its nonce all the same."""
    if not await desk.see_account():
        raise Unreachable("too few endpoints tell what the account has executed at finality")
    lane, record = desk.lane, desk.lane.record
    live = [_told(slot) for slot in lane.slots.values()]
    if live and not act.force:
        reason = f"{len(live)} nonces are bound to what may still be executed; wait for it, cancel it, or use force"
        raise Refusal("attempts_live", reason, live=live[:NAMED], count=len(live))
    # What was final is given up only as far as nobody knows of it: an endpoint that says too little is not believed.
    settled_below = min(record.settled_below, lane.final_at_most)
    if settled_below < record.settled_below and not act.force:
        reason = (
            f"nonces {settled_below} to {record.settled_below - 1} were final here; use force if their chain is gone"
        )
        raise Refusal("was_final", reason, count=record.settled_below - settled_below)
    recalled = [slot for slot in lane.slots.values() if _never_left(desk, slot)]
    for slot in recalled:
        _recall(desk, work, slot)
    freed = {slot.nonce for slot in recalled}
    kept = [slot for slot in lane.slots.values() if slot.nonce not in freed]
    for slot in kept:
        if settled_below < record.settled_below:
            _take_back(desk, work, slot)
        _mark(desk, work, slot)
    next_nonce = max(lane.count, settled_below, max((slot.nonce for slot in kept), default=-1) + 1)
    if settled_below < record.settled_below:
        work.unsettle_from(settled_below)
    quarantined, seen = record.quarantined_below, desk.head.final
    if quarantined is not None and settled_below < record.settled_below:
        # It was counted on a chain that is gone.
        quarantined = next_nonce + desk.rules.largest_window
    elif quarantined is not None:
        # While commits may be missing, the height from which to search for them must not move.
        seen = BlockRef(record.seen_block, record.seen_hash or "")
    work.record(
        replace(
            record,
            next_nonce=next_nonce,
            settled_below=settled_below,
            quarantined_below=quarantined,
            seen_block=seen.number,
            seen_hash=seen.hash or None,
            resets=record.resets + 1,
        )
    )
    desk.clear_mark(work, RESET_MARK)
    back = [slot.tx_id for slot in recalled if slot.tx_id is not None][:NAMED]
    staying = [_told(slot) for slot in kept][:NAMED]
    work.event(
        "lane.reset",
        reason="an operator reset it",
        next_nonce=next_nonce,
        settled_below=settled_below,
        settled_below_before=record.settled_below,
        recalled=back,
        kept=staying,
    )
    work.reply(
        wish_id,
        next_nonce=next_nonce,
        settled_below=settled_below,
        settled_below_before=record.settled_below,
        recalled=back,
        kept=staying,
    )
    desk.assign_due = desk.lookup_due = True


def _told(slot: Slot) -> dict[str, object]:
    last = slot.attempts[-1].hash if slot.attempts else None
    return {"nonce": slot.nonce, "kind": slot.kind.value, "tx": slot.tx_id, "hash": last}


def _never_left(desk: Desk, slot: Slot) -> bool:
    """Whether no node can hold anything signed for this slot; what is reserved somebody else may have signed for."""
    if slot.reservation is not None or slot.receipt is not None:
        return False
    epoch, sendings = desk.lease.epoch, desk.sendings
    return not any(policy.has_left(one, epoch, sendings.get(one.hash, NEVER_SENT)) for one in slot.attempts)


def _recall(desk: Desk, work: Work, slot: Slot) -> None:
    tx = desk.lane.transaction_of(slot)
    if tx is not None:
        work.move(tx, lifecycle.Recalled())
        if slot.wanted is Wanted.CANCEL:
            work.move(tx, lifecycle.Cancelled())
        elif slot.wanted is Wanted.EXPIRY:
            work.move(tx, lifecycle.Expired())
    work.free(slot)
    desk.drop(slot.attempts)


def _take_back(desk: Desk, work: Work, slot: Slot) -> None:
    """A person says that the chain on which it was executed is gone; no block of the new one need be as high as its."""
    if slot.receipt is None or desk.head.has(slot.receipt.block):
        return
    work.slot(replace(slot, receipt=None))
    tx = desk.lane.transaction_of(slot)
    if tx is not None:
        work.move(tx, lifecycle.Reorged())


def _mark(desk: Desk, work: Work, slot: Slot) -> None:
    tx = desk.lane.transaction_of(slot)
    if tx is None or work.latest(tx).state is State.MINED:
        return
    reason = f"the lane was reset while its bytes were out; it keeps nonce {slot.nonce} until that is final"
    work.move(tx, lifecycle.Marked(Attention(RESET_CODE, reason, work.at)))
