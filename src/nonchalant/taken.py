"""What nodes took, and the store was not told yet.

No crash makes it matter: what was signed counts as sent in every later epoch. So where much is sent at once it waits for
two seconds: a block may have it by then, and one write tells both. Of a few it is told at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import takewhile

from nonchalant import lifecycle, policy
from nonchalant.desk import Desk, Taken
from nonchalant.lanes import Work
from nonchalant.model import Slot
from nonchalant.values import replace
from nonchalant.words import Hash, Millis, State

FEW = 4
LONGEST: Millis = 2_000


def note(desk: Desk, hash: Hash) -> None:
    """A node has these bytes."""
    if hash not in desk.taken:
        desk.taken[hash] = Taken(desk.clock.now(), desk.ticks() + LONGEST)


def due(desk: Desk) -> list[Hash]:
    """What is to be told now: all of a few, else what no block had in time."""
    if desk.leaving or len(desk.taken) <= FEW:
        return list(desk.taken)
    now = desk.ticks()
    # They are noted in the order of their time.
    return list(takewhile(lambda hash: desk.taken[hash].told_after <= now, desk.taken))


def due_in(desk: Desk) -> float:
    """How long the lane may sleep, in seconds, before something is to be told."""
    first = next(iter(desk.taken.values()), None)
    return math.inf if first is None else max(0, first.told_after - desk.ticks()) / 1000


def slots(desk: Desk, hashes: Iterable[Hash]) -> list[Slot]:
    """Whose they are, lowest nonce first."""
    nonces = {desk.lane.nonce_of(hash) for hash in hashes}
    return [slot for slot in desk.lane.slots.values() if slot.nonce in nonces]


def told(desk: Desk) -> None:
    """All that could be told now was: what is left is of slots that are gone, or of one that breaks whoever tells it."""
    again = desk.ticks() + LONGEST
    left = {hash: one for hash, one in desk.taken.items() if desk.lane.nonce_of(hash) is not None}
    overdue = {hash: Taken(one.at, again) for hash, one in left.items() if one.told_after <= desk.ticks()}
    desk.taken = {hash: one for hash, one in left.items() if hash not in overdue} | overdue


def tell(desk: Desk, work: Work, slot: Slot) -> None:
    """Have this work say of the slot what was not told."""
    took = [attempt for attempt in slot.attempts if attempt.hash in desk.taken]
    for attempt in took:
        work.answered(replace(attempt, sent_at=attempt.sent_at or desk.taken[attempt.hash].at, answer=policy.ACCEPTED))
    tx = desk.lane.transaction_of(slot)
    if took and tx is not None and work.latest(tx).state is State.SIGNED:
        work.move(tx, lifecycle.Broadcast())
