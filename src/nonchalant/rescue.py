"""Rescuing: what does not move is re-sent, repriced or given up, and holes are closed without new traffic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nonchalant import fees as prices
from nonchalant import lifecycle, policy, signing
from nonchalant.desk import CANNOT_FILL_MARK, FILLER_MARK, SIGNER_MARK, Desk
from nonchalant.errors import NodeRefused, SignerFailed, Unreachable
from nonchalant.lanes import Work, exposure
from nonchalant.model import (
    Attempt,
    AttemptKind,
    Attention,
    Draft,
    Fees,
    Market,
    Payload,
    Slot,
    SlotKind,
    Speed,
    Transaction,
)
from nonchalant.policy import BUMPED_AT_ONCE, NEVER_SENT, Bump, GiveUp, Outbid, Resend

# Fillers made in one go: a wide gap is closed in steps, each of which the next blocks confirm.
FILLED_AT_ONCE = 64


async def rescue(desk: Desk) -> bool:
    """Look at every slot that waits, lowest first, and at every hole. True: something changed."""
    # A signer that is down stops what needs a signature; what is signed already is sent again all the same.
    can_sign = desk.ticks() >= desk.paused_until
    try:
        changed = await _move_slots(desk, can_sign=can_sign)
        if desk.account_due or (desk.lane.borrowed() and desk.seen_at != desk.head.top):
            await desk.see_account()
        holes = holes_to_fill(desk)
        if not holes:
            work = desk.work()
            desk.clear_mark(work, FILLER_MARK, CANNOT_FILL_MARK)
            changed |= await desk.commit(work)
        elif can_sign and desk.ticks() >= desk.fill_after:
            if desk.rules.shared:
                await desk.see_account()  # somebody else may have taken them by now
                holes = holes_to_fill(desk)
            changed |= await _fill(desk, holes[:FILLED_AT_ONCE])
    except SignerFailed as failure:
        return await desk.pause_for_signer(failure)
    return changed


async def _move_slots(desk: Desk, *, can_sign: bool) -> bool:
    lane, work, window = desk.lane, desk.work(), desk.window
    waiting = lane.open_slots()
    market = await _market(desk) if waiting and can_sign else None
    for index, slot in enumerate(waiting):
        tx, newest = lane.transaction_of(slot), slot.newest
        sending = desk.sending(newest.hash) if newest else NEVER_SENT
        match policy.next_move(
            slot,
            tx,
            sending,
            lowest=index < BUMPED_AT_ONCE,
            in_window=index < window,
            market=market,
            rules=desk.rules.fees,
            patience=desk.rules.patience,
            now=desk.store_now(),
            ticks=desk.ticks(),
            head=desk.head.top.number,
            endpoints=len(desk.chain.endpoints),
        ):
            case Bump(offer) if newest is not None and _can_pay(desk, slot, tx, newest.gas, offer):
                await _bump(desk, work, slot, tx, newest, offer)
            case Bump() if newest is not None:
                short = ("insufficient_funds", "the account cannot pay a better price for it; fund the account")
                _resend(desk, work, newest, tx, short)
            case Resend(mark) if newest is not None:
                _resend(desk, work, newest, tx, mark)
            case GiveUp(why):
                work.slot(replace(slot, wanted=why, payload_version=0))
            case Outbid(offer) if tx is not None:
                await _outbid(desk, work, slot, tx, offer)
            case _:
                pass
    return await desk.commit(work)


def _resend(desk: Desk, work: Work, newest: Attempt, tx: Transaction | None, mark: tuple[str, str] | None) -> None:
    sending = desk.sendings[newest.hash]
    if desk.ticks() - (sending.at or 0) < desk.rules.patience.resend_after:
        return
    desk.sendings[newest.hash] = replace(sending, at=None)
    work.event("attempt.sent", tx_id=newest.tx_id, nonce=newest.nonce, hash=newest.hash)
    # What waits this long may have been consumed unseen.
    desk.account_due = True
    _mark(work, tx, mark)


def _mark(work: Work, tx: Transaction | None, mark: tuple[str, str] | None) -> None:
    """Another reason is news: refused at first, it may be at the cap by now."""
    if mark is not None and tx is not None and (tx.attention is None or tx.attention.code != mark[0]):
        work.move(tx, lifecycle.Marked(Attention(*mark, work.at)))


def _can_pay(desk: Desk, slot: Slot, tx: Transaction | None, gas: int, offer: Fees) -> bool:
    """Whether the balance covers the offer beside everything else in flight: a price nobody can pay replaces none."""
    lane = desk.lane
    others = lane.committed() - exposure(slot, tx)
    value = 0 if tx is None or slot.payload_version == 0 else tx.payload.value
    return value + gas * offer.max_fee <= lane.balance - others


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


async def _outbid(desk: Desk, work: Work, slot: Slot, tx: Transaction, offer: Fees) -> None:
    """Consume the nonce with an attempt that does nothing, so that the payload never runs and others can go on."""
    payload = Payload.nothing(desk.key.address)
    try:
        gas = await desk.estimate(payload)
    except (Unreachable, NodeRefused):
        return  # its own trouble: the other slots go on, and the next round tries again
    if not _can_pay(desk, slot, tx, gas, offer):
        _mark(work, tx, ("insufficient_funds", "the account cannot pay for cancelling it; fund the account"))
        return
    draft = Draft(lane=desk.key, nonce=slot.nonce, payload=payload, gas=gas, fees=offer)
    [attempt] = await signing.sign(desk, [signing.prepare(desk, draft, AttemptKind.CANCEL, tx.id, 0)])
    work.add_attempt(slot, attempt)
    work.move(tx, lifecycle.Repriced(attempt.hash, offer, attempt.kind))


def holes_to_fill(desk: Desk) -> Sequence[int]:
    """Holes that something waits behind; in quarantine, every nonce that lost commits may have used."""
    lane = desk.lane
    bound = lane.record.quarantined_below
    if bound is None or not desk.may_fill:
        return lane.gaps()
    return lane.vacant(bound)


async def _fill(desk: Desk, holes: Sequence[int]) -> bool:
    """Zero-value transfers to ourselves; whichever attempt is mined at a nonce settles it."""
    if not holes:
        return False
    payload = Payload.nothing(desk.key.address)
    try:
        market = await desk.eyes.market()
        gas = await desk.estimate(payload)
    except NodeRefused as refusal:
        work = desk.work()
        work.mark_lane(Attention(CANNOT_FILL_MARK, f"a gap cannot be closed: {refusal.message}", work.at))
        return await desk.commit(work)
    offer = prices.opening(Speed.FAST, market, desk.rules.fees)
    prepared = [
        signing.prepare(
            desk, Draft(lane=desk.key, nonce=nonce, payload=payload, gas=gas, fees=offer), AttemptKind.FILLER, None, 0
        )
        for nonce in holes
    ]
    attempts = await signing.sign(desk, prepared)
    work = desk.work()
    for attempt in attempts:
        work.bind(attempt.nonce, SlotKind.FILLER, attempt)
    record = desk.lane.record
    work.record(replace(record, next_nonce=max(desk.lane.next_nonce, desk.lane.next_after(list(holes)))))
    desk.clear_mark(work, SIGNER_MARK)
    return await desk.commit(work)
