"""Reserving: a nonce for somebody who signs by himself. A part of granting.

The holder has a bounded time to say what became of it. Once that is over, nobody knows what he signed and sent: so the
nonce is closed by a filler (`rescue`), and never given to a transaction. Whichever is mined settles it.
"""

from __future__ import annotations

from nonchalant import policy
from nonchalant.desk import Desk
from nonchalant.health import OUT_OF_FUNDS
from nonchalant.lanes import Work
from nonchalant.model import Attempt, Fees, Recognised, Reservation, Slot
from nonchalant.values import replace
from nonchalant.wishes import NotYet, Refusal, Release, Reserve, Use
from nonchalant.words import AttemptKind, Millis, Mode, SlotKind

# Nonces of a lane that may be kept for others at once, and for how long at most: what is behind them waits.
MOST_RESERVATIONS = 16
LONGEST: Millis = 600_000

# How long somebody waits for a lane whose window is full; he goes before what is queued.
PATIENCE: Millis = 5_000


async def reserve(desk: Desk, work: Work, wish_id: str, act: Reserve) -> None:
    _refuse_unless_giving(desk)
    lane = desk.lane
    if sum(_is_open(slot) for slot in lane.slots.values()) >= MOST_RESERVATIONS:
        raise Refusal("too_many_reservations", f"{MOST_RESERVATIONS} nonces of this lane are reserved already")
    await desk.see_account_at_head()
    if lane.is_behind:
        raise Refusal("reset_needed", "the chain is behind what was final here; reset the lane if that is right")
    if lane.room(window=desk.window, unsettled=desk.rules.unsettled) == 0:
        if desk.ticks() - desk.waiting.setdefault(wish_id, desk.ticks()) < PATIENCE:
            raise NotYet
        raise Refusal("window_full", "as much is in flight as may be; try again when some of it is executed")
    if desk.kept_until is not None and desk.ticks() < desk.kept_until:
        raise NotYet  # somebody who named his nonce waits for lower ones: they are kept for whoever names those
    [nonce] = lane.take(1)
    held = Reservation(act.holder, desk.store_now() + min(act.millis, LONGEST))
    work.slot(Slot(nonce=nonce, kind=SlotKind.RESERVATION, tx_id=None, attempts=(), reservation=held))
    work.record(replace(work.lane_record, next_nonce=lane.next_after([nonce])))
    work.reply(wish_id, nonce=nonce, deadline=held.deadline)


def _refuse_unless_giving(desk: Desk) -> None:
    """Whatever keeps a lane from giving nonces to transactions keeps it from giving them to others."""
    if desk.lane.record.quarantined_below is not None:
        raise Refusal(
            "quarantined", "this store may have lost commits of the lane; it gives out no nonces until that is settled"
        )
    if desk.control.mode is not Mode.OPEN:
        raise Refusal("lane_paused", f"the lane is {desk.control.mode}; resume it first")
    unhealthy = desk.lane.record.unhealthy
    if unhealthy is not None and unhealthy.code != OUT_OF_FUNDS:  # who signs by himself may know when funds come
        raise Refusal("lane_unhealthy", unhealthy.reason)


def _is_open(slot: Slot) -> bool:
    """Whether its holder has not said yet what became of it."""
    return slot.kind is SlotKind.RESERVATION and not slot.attempts


async def use(desk: Desk, work: Work, wish_id: str, act: Use) -> None:
    """The holder signed this. Saying so again changes nothing; another hash is the next attempt at the same nonce."""
    # Who brings no name brings what only the key can have signed; that is checked before it counts.
    slot = _held(desk, act.nonce, act.holder, signed=act.raw is not None)
    known = slot.attempt(act.hash)
    if known is None:
        read = None if act.raw is None else _checked(desk, act, act.raw)
        if read is None and await desk.store.known_attempts([act.hash]):
            raise Refusal("known_hash", f"{act.hash} was signed for something else; give its bytes if it is for this")
        work.add_attempt(slot, _attempt(desk, act, read))
        # Its block may have passed before anybody looked for it.
        desk.lookup_due = desk.account_due = True
    elif act.raw is not None and act.raw != known.raw:
        raise Refusal("already_used", "it was told without its bytes, or with others; send them yourself")
    work.reply(wish_id, nonce=act.nonce, hash=act.hash)


def _checked(desk: Desk, act: Use, raw: bytes) -> Recognised:
    """Bytes that do not belong at this nonce would sit there for ever. `Unencodable` if they are no transaction."""
    read = desk.chain.recognise(raw)
    claims = {
        "hash": (read.hash, act.hash),
        "sender": (read.sender, desk.key.address),
        "nonce": (read.nonce, act.nonce),
        "chain id": (read.chain_id, desk.key.chain_id),
    }
    wrong = [f"{what} is {found}, not {due}" for what, (found, due) in claims.items() if found != due]
    if wrong:
        raise Refusal("wrong_bytes", f"these bytes are for something else: {'; '.join(wrong)}")
    return read


def _attempt(desk: Desk, act: Use, read: Recognised | None) -> Attempt:
    return Attempt(
        hash=act.hash,
        nonce=act.nonce,
        tx_id=None,
        kind=AttemptKind.OUTSIDE,
        fees=Fees(0) if read is None else read.fees,
        gas=0 if read is None else read.gas,
        raw=act.raw or b"",
        epoch=desk.lease.epoch,
        signed_at=desk.store_now(),
        floor=desk.head.final.number,
    )


def release(desk: Desk, work: Work, wish_id: str, act: Release) -> None:
    """Nothing was signed, says the holder: the nonce is free for the next transaction, or for nobody if it was the last."""
    slot = _held(desk, act.nonce, act.holder)
    if slot.attempts:
        raise Refusal("already_used", f"its holder said that {slot.attempts[-1].hash} uses it")
    if desk.lane.is_consumed(slot):
        raise Refusal("already_consumed", "the chain shows that this nonce is used")
    work.free(slot)
    next_nonce = desk.lane.next_after(freed=[act.nonce])
    work.record(replace(work.lane_record, next_nonce=next_nonce))
    work.reply(wish_id, nonce=act.nonce, next_nonce=next_nonce)
    desk.assign_due = True


def _held(desk: Desk, nonce: int, holder: str | None, *, signed: bool = False) -> Slot:
    """The slot, if it is still this holder's to speak for; `signed`: the account's key speaks, whoever has it."""
    slot = desk.lane.slots.get(nonce)
    if slot is None or slot.reservation is None:
        raise Refusal("not_reserved", f"nonce {nonce} is not reserved, or not any more")
    if slot.reservation.holder != holder and not (holder is None and signed):
        raise Refusal("not_the_holder", f"nonce {nonce} is reserved for somebody else")
    if slot.kind is not SlotKind.RESERVATION or policy.is_forfeited(slot, desk.store_now()):
        raise Refusal(
            "reservation_expired", f"the time for nonce {nonce} is over: a filler closes it, unless yours is mined"
        )
    return slot
