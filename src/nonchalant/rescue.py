"""Rescuing: what does not move is re-sent, repriced or given up, and holes are closed without new traffic."""

from __future__ import annotations

from collections.abc import Sequence

import structlog
from msgspec.structs import replace

from nonchalant import filling, lifecycle, policy, signing
from nonchalant.desk import CANNOT_FILL_MARK, FILLER_MARK, FILLER_PAUSE, RESERVATION_MARK, Desk
from nonchalant.errors import NodeRefused, SignerFailed, Unreachable
from nonchalant.lanes import Work
from nonchalant.model import Attempt, Attention, Draft, Fees, Market, Payload, Slot, Transaction
from nonchalant.poison import handling, subject_of
from nonchalant.policy import BUMPED_AT_ONCE, NEVER_SENT, Bump, Close, GiveUp, Outbid, Resend
from nonchalant.words import AttemptKind, SlotKind, Wanted

log = structlog.get_logger()

FILLING = "closing gaps"  # as one that can break this stage


async def rescue(desk: Desk) -> bool:
    """Look at every slot that waits, lowest first, and at every hole. True: something changed."""
    # A signer that is down stops what needs a signature; what is signed already is sent again all the same.
    can_sign = desk.ticks() >= desk.paused_until
    try:
        changed = await _move_slots(desk, can_sign=can_sign)
        if desk.account_due or (desk.lane.borrowed() and desk.seen_at != desk.head.top):
            await desk.see_account()
        holes = holes_to_fill(desk)
        if not holes and not any(slot.kind is SlotKind.FILLER for slot in desk.lane.open_slots()):
            changed |= await desk.unmark(FILLER_MARK, CANNOT_FILL_MARK)
        elif holes and can_sign and desk.ticks() >= desk.fill_after and not desk.is_aside(FILLING):
            if desk.rules.shared:
                await desk.see_account()  # somebody else may have taken them by now
                holes = holes_to_fill(desk)
            with handling(FILLING):
                changed |= await _fill(desk, holes[: filling.room(desk)])
    except SignerFailed as failure:
        return await desk.pause_for_signer(failure)
    return changed


async def _move_slots(desk: Desk, *, can_sign: bool) -> bool:
    waiting = desk.lane.open_slots()
    market = await _market(desk) if waiting and can_sign else None
    stirring = _stirring(desk, waiting)
    if not stirring:
        return await _look_after(desk, waiting)
    # Behind a nonce that somebody else is to use, no price helps.
    kept_back = next((index for index, slot in enumerate(waiting) if slot.kind is SlotKind.RESERVATION), len(waiting))
    lowest = {slot.nonce for slot in waiting[: min(BUMPED_AT_ONCE, kept_back)]}
    in_window = {slot.nonce for slot in waiting[: desk.window]}
    changed, before, unsigned = False, desk.signatures, list[tuple[Slot, SignerFailed]]()

    async def move(work: Work, slot: Slot) -> None:
        with handling(subject_of(slot)):
            await _move(desk, work, slot, market, lowest=slot.nonce in lowest, sent=slot.nonce in in_window)

    for part in desk.slot_parts(stirring):
        work = desk.work()
        for slot in part:
            try:
                await move(work, slot)
            except SignerFailed as failure:
                # It may be this payload that it does not sign: the others have their turn, and tell.
                unsigned.append((slot, failure))
                if desk.signatures == before and len(unsigned) == signing.MOST_REFUSED:
                    break
        changed |= await desk.commit_part(work, part)
    if unsigned:
        slot, trouble = unsigned[0]
        if desk.signatures == before:
            raise trouble
        work = desk.work()
        try:
            await move(work, slot)
        except SignerFailed as failure:
            await signing.convict(desk, subject_of(slot), failure)
        return await desk.commit_part(work, [slot]) or changed
    return await _look_after(desk, waiting) or changed


async def _look_after(desk: Desk, waiting: Sequence[Slot]) -> bool:
    """What is to be done about slots that are not moved."""
    work = desk.work()
    _resend_aside(desk, work, waiting)
    _mark_overlong(desk, work, waiting[:1])
    return await desk.commit(work)


def _stirring(desk: Desk, waiting: Sequence[Slot]) -> list[Slot]:
    """Those of which there may be something to do: most were signed or handed over a moment ago."""
    patience, now, ticks = desk.rules.patience, desk.store_now(), desk.ticks()
    last_block, bump_after = desk.head.top.number - patience.fewest_blocks, patience.shortest
    return [
        slot
        for slot in waiting
        if (newest := slot.newest) is None
        or not policy.is_at_ease(
            desk.lane.transaction_of(slot),
            desk.sending(newest.hash),
            now=now,
            ticks=ticks,
            last_block=last_block,
            bump_after=bump_after,
            resend_after=patience.resend_after,
        )
    ]


def _resend_aside(desk: Desk, work: Work, waiting: Sequence[Slot]) -> None:
    """What this stage leaves alone is sent again all the same, as it was signed; past its deadline it is given up."""
    for slot in waiting if desk.strikes.aside else ():
        newest = slot.newest
        if not desk.is_aside(subject_of(slot)):
            continue
        if policy.has_expired(slot, desk.lane.transaction_of(slot), desk.store_now()):
            # Nobody sends it any more: left alone, it would be a hole.
            work.slot(replace(slot, wanted=Wanted.EXPIRY, payload_version=0))
            desk.strikes.forgive(subject_of(slot))  # something else is to be done with it
        elif newest is not None and desk.sending(newest.hash).at is not None:
            _resend(desk, work, slot, newest, None)


async def _move(desk: Desk, work: Work, slot: Slot, market: Market | None, *, lowest: bool, sent: bool) -> None:
    """Do what is to be done about one slot that waits; `sent`: it is in the window."""
    tx, newest = desk.lane.transaction_of(slot), slot.newest
    match policy.next_move(
        slot,
        tx,
        desk.sending(newest.hash) if newest else NEVER_SENT,
        lowest=lowest,
        in_window=sent,
        market=market,
        rules=desk.rules.fees,
        patience=desk.rules.patience,
        now=desk.store_now(),
        ticks=desk.ticks(),
        head=desk.head.top.number,
        endpoints=len(desk.chain.endpoints),
    ):
        case Bump(offer, mark) if newest is not None and _can_pay(desk, slot, tx, newest.gas, offer):
            await _bump(desk, work, slot, tx, newest, offer)
            if mark is not None:
                _mark(desk, work, slot, mark)
        case Bump() if newest is not None:
            short = ("insufficient_funds", "the account cannot pay a better price for it; fund the account")
            _resend(desk, work, slot, newest, short)
        case Resend(mark) if newest is not None:
            _resend(desk, work, slot, newest, mark)
        case GiveUp(why):
            work.slot(replace(slot, wanted=why, payload_version=0))
        case Close():
            log.info("reservation.expired", lane=str(desk.key), nonce=slot.nonce)
            work.slot(replace(slot, kind=SlotKind.FILLER, payload_version=0))
        case Outbid(offer):
            await _outbid(desk, work, slot, tx, offer)
        case _:
            pass


def _mark_overlong(desk: Desk, work: Work, lowest: Sequence[Slot]) -> None:
    """Say so if everything waits for a nonce that its holder used, as he says, and the chain does not know of."""
    for slot in lowest:
        if policy.is_overlong(slot, desk.store_now()):
            reason = "its holder used it, and nothing was mined there since; have it sent again, or fill that nonce"
            _mark(desk, work, slot, (RESERVATION_MARK, reason))
            return
    if desk.is_marked(RESERVATION_MARK) and not any(
        slot.kind is SlotKind.RESERVATION for slot in desk.lane.open_slots()
    ):
        work.mark_lane(None)


def _resend(desk: Desk, work: Work, slot: Slot, newest: Attempt, mark: tuple[str, str] | None) -> None:
    sending = desk.sendings[newest.hash]
    if desk.ticks() - (sending.at or 0) < desk.rules.patience.resend_after:
        return
    desk.sendings[newest.hash] = replace(sending, at=None)
    work.event("attempt.sent", tx_id=newest.tx_id, nonce=newest.nonce, hash=newest.hash)
    # What waits this long may have been consumed unseen.
    desk.account_due = True
    if mark is not None:
        _mark(desk, work, slot, mark)


def _mark(desk: Desk, work: Work, slot: Slot, mark: tuple[str, str]) -> None:
    """Refused at first, it may be at the cap by now. What is nobody's has the lane's mark."""
    tx = desk.lane.transaction_of(slot)
    if tx is not None:
        work.mark(tx, Attention(*mark, work.at))
        return
    reason = f"nonce {slot.nonce}: {mark[1]}"
    if slot.kind is SlotKind.RESERVATION:
        work.note_lane(Attention(RESERVATION_MARK, reason, work.at))
    else:
        work.note_lane(Attention(FILLER_MARK, reason, work.at))


def _can_pay(desk: Desk, slot: Slot, tx: Transaction | None, gas: int, offer: Fees) -> bool:
    """A price nobody can pay replaces none."""
    value = 0 if tx is None or slot.payload_version == 0 else tx.payload.value
    return desk.lane.can_pay(slot, value + gas * offer.max_fee)


async def _market(desk: Desk) -> Market | None:
    try:
        return await desk.eyes.market()
    except (Unreachable, NodeRefused):
        return None


async def _bump(desk: Desk, work: Work, slot: Slot, tx: Transaction | None, newest: Attempt, offer: Fees) -> None:
    nothing = tx is None or slot.payload_version == 0
    payload = Payload.nothing(desk.key.address) if nothing or tx is None else tx.payload
    kind = newest.kind if nothing else AttemptKind.BUMP
    draft = Draft(lane=desk.key, nonce=slot.nonce, payload=payload, gas=newest.gas, fees=offer)
    [attempt] = await signing.sign(desk, [signing.prepare(desk, draft, kind, slot.tx_id, slot.payload_version)])
    work.add_attempt(slot, attempt)
    if tx is not None:
        work.move(tx, lifecycle.Repriced(attempt.hash, offer, kind))


async def _outbid(desk: Desk, work: Work, slot: Slot, tx: Transaction | None, offer: Fees) -> None:
    """Consume the nonce with an attempt that does nothing, so that the payload never runs and others can go on."""
    payload = Payload.nothing(desk.key.address)
    try:
        gas = await filling.gas_for_nothing(desk)
    except (Unreachable, NodeRefused) as problem:
        # Its own trouble: the other slots go on, and a later round tries again.
        mark = ("cannot_cancel", f"no endpoint says what that takes ({problem}); look at the endpoints")
        _mark(desk, work, slot, mark)
        return
    if not _can_pay(desk, slot, tx, gas, offer):
        _mark(desk, work, slot, ("insufficient_funds", "the account cannot pay for closing it; fund the account"))
        return
    kind = AttemptKind.FILLER if tx is None else AttemptKind.CANCEL
    while any((one.gas, one.fees) == (gas, offer) for one in slot.attempts):
        gas += 1  # it may do nothing itself, at this very price: the same bytes cannot say which of the two ran
    draft = Draft(lane=desk.key, nonce=slot.nonce, payload=payload, gas=gas, fees=offer)
    [attempt] = await signing.sign(desk, [signing.prepare(desk, draft, kind, slot.tx_id, 0)])
    work.add_attempt(slot, attempt)
    if tx is not None:
        work.move(tx, lifecycle.Repriced(attempt.hash, offer, attempt.kind))


def holes_to_fill(desk: Desk) -> Sequence[int]:
    """Holes that something waits behind; in quarantine, every nonce that lost commits may have used."""
    lane = desk.lane
    bound = lane.record.quarantined_below
    if bound is None or not desk.may_fill:
        return lane.gaps()
    return lane.vacant(bound)


async def _fill(desk: Desk, holes: Sequence[int]) -> bool:
    if not holes:
        return False
    work = desk.work()
    try:
        await filling.fill(desk, work, holes)
    except NodeRefused as refusal:
        desk.fill_after = desk.ticks() + FILLER_PAUSE
        work = desk.work()
        reason = f"a gap cannot be closed ({refusal.message}); tried again every half minute, look at the endpoints"
        work.mark_lane(Attention(CANNOT_FILL_MARK, reason, work.at))
    return await desk.commit(work)
