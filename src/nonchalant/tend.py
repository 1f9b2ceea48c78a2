"""Tending: whether the lane may give out nonces is looked at with every block, and told when it changes.

This stops and starts assigning, and nothing else.
"""

from __future__ import annotations

from msgspec.structs import replace

from nonchalant import health
from nonchalant.desk import Desk
from nonchalant.health import OUT_OF_FUNDS, Signs
from nonchalant.model import Slot
from nonchalant.rejections import Rejection
from nonchalant.words import Wei

_NO_FUNDS = Rejection.INSUFFICIENT_FUNDS.value


async def tend(desk: Desk) -> bool:
    """Pause the lane, or have it go on. True: something changed."""
    if desk.seen_at != desk.head.top and _is_about_money(desk):
        await desk.see_account()
    work, before = desk.work(), desk.lane.record.unhealthy
    work.judge(health.ailment(desk.key, _signs(desk), desk.rules.health, work.at))
    if before is not None and work.lane_record.unhealthy is None:
        desk.assign_due = True
        if before.code == OUT_OF_FUNDS:
            _send_what_lacked_funds(desk)
    return await desk.commit(work)


def _is_about_money(desk: Desk) -> bool:
    """Whether the balance matters now, though nothing may be assigned that would have it looked at."""
    return desk.rules.health.min_balance is not None or desk.lane.record.unhealthy is not None or desk.lacks_funds


def _signs(desk: Desk) -> Signs:
    lane, ticks = desk.lane, desk.ticks()
    in_flight, unsettled = len(lane.open_slots()), len(lane.slots)
    desk.pulse = pulse = health.feel(
        desk.pulse,
        count=lane.count,
        confirmed=lane.record.confirmed_at,
        in_flight=in_flight,
        unsettled=unsettled,
        ticks=ticks,
    )
    return Signs(
        balance=lane.balance,
        lacks=_lacks(desk),
        in_flight=in_flight,
        unsettled=unsettled,
        since_movement=ticks - pulse.moved_at,
        since_confirmation=ticks - pulse.confirmed_at,
        resets=lane.record.resets,
    )


def _lacks(desk: Desk) -> Wei:
    """What it takes to pay all that is in flight; or, once nothing is, the cheapest of what waits.

    While something is in flight, what it does not use of its fees comes back, so nobody knows yet what can be paid.
    """
    left = desk.lane.balance - desk.lane.committed()
    if left < 0 and desk.seen_at == desk.head.top:
        return -left
    waiting = [one.needed for one in desk.postponed.values() if one.needed is not None]
    if not desk.waits_for_funds or not waiting or desk.lane.open_slots():
        return 0
    return desk.purse().lacks(min(waiting))


def _send_what_lacked_funds(desk: Desk) -> None:
    """Nodes refused these for funds that are there now: they are due, and go lowest first."""
    for slot in desk.lane.open_slots():
        if slot.newest is not None and _lacks_funds(desk, slot):
            desk.sendings[slot.newest.hash] = replace(desk.sending(slot.newest.hash), at=None)


def _lacks_funds(desk: Desk, slot: Slot) -> bool:
    return slot.newest is not None and _NO_FUNDS in desk.sending(slot.newest.hash).said.values()
