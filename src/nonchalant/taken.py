"""What nodes took, and the store was not told yet.

No crash makes it matter: what was signed counts as sent in every later epoch. So where much is sent it waits for two
seconds: a block may have it by then, and one write tells both. Of a few it is told at once, if it was not a moment ago:
where few come, and soon the next few, each such write would keep them waiting.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import takewhile

from msgspec.structs import replace

from nonchalant import lifecycle, policy
from nonchalant.desk import Desk, Taken
from nonchalant.lanes import Work
from nonchalant.model import Slot
from nonchalant.words import Hash, Millis, State

FEW = 4
A_MOMENT: Millis = 250
LEAST_SLEEP: Millis = 20  # whatever keeps it from being told
LONGEST: Millis = 2_000


def note(desk: Desk, hashes: Iterable[Hash]) -> None:
    """A node has the bytes of these."""
    now = Taken(desk.clock.now(), desk.ticks() + LONGEST)
    for hash in hashes:
        desk.taken.setdefault(hash, now)


def due(desk: Desk) -> list[Hash]:
    """What is to be told now: all of a few, else what no block had in time."""
    now = desk.ticks()
    if desk.leaving or (len(desk.taken) <= FEW and now >= desk.told_taken_at + A_MOMENT):
        return list(desk.taken)
    # They are noted in the order of their time.
    return list(takewhile(lambda hash: desk.taken[hash].told_after <= now, desk.taken))


def due_in(desk: Desk) -> float:
    """How long the lane may sleep, in seconds, before something is to be told."""
    if not desk.taken:
        # What is just being sent may be taken, and nobody is woken for that.
        latest = desk.ticks() - A_MOMENT
        is_asking = any(one.task is not None and one.asked_at > latest for one in desk.outlets.values())
        return A_MOMENT / 1000 if is_asking else math.inf
    first = next(iter(desk.taken.values())).told_after
    at = min(first, desk.told_taken_at + A_MOMENT) if len(desk.taken) <= FEW else first
    return max(LEAST_SLEEP, at - desk.ticks()) / 1000


def slots(desk: Desk, hashes: Iterable[Hash]) -> list[Slot]:
    """Whose they are, lowest nonce first."""
    lane = desk.lane
    nonces = {nonce for hash in hashes if (nonce := lane.nonce_of(hash)) is not None}
    return [lane.slots[nonce] for nonce in sorted(nonces)]


def told(desk: Desk) -> None:
    """All that could be told now was: what is left is of slots that are gone, or of one that breaks whoever tells it."""
    again = desk.ticks() + LONGEST
    left = {hash: one for hash, one in desk.taken.items() if desk.lane.nonce_of(hash) is not None}
    overdue = {hash: Taken(one.at, again) for hash, one in left.items() if one.told_after <= desk.ticks()}
    desk.taken = {hash: one for hash, one in left.items() if hash not in overdue} | overdue
    desk.told_taken_at = desk.ticks()


def tell(desk: Desk, work: Work, slot: Slot) -> None:
    """Have this work say of the slot what was not told."""
    took = [attempt for attempt in slot.attempts if attempt.hash in desk.taken]
    for attempt in took:
        work.answered(replace(attempt, sent_at=attempt.sent_at or desk.taken[attempt.hash].at, answer=policy.ACCEPTED))
    tx = desk.lane.transaction_of(slot)
    if took and tx is not None and work.latest(tx).state is State.SIGNED:
        work.move(tx, lifecycle.Broadcast())
