"""What nodes took, and the store was not told yet.

No crash makes it matter: what was signed counts as sent in every later epoch. So where much is sent at once it waits for
half a second: a block may have it by then, and one write tells both. Of a few it is told at once.
"""

from __future__ import annotations

from nonchalant import lifecycle, policy
from nonchalant.desk import Desk
from nonchalant.lanes import Work
from nonchalant.model import Slot
from nonchalant.values import replace
from nonchalant.words import Hash, Millis, State

FEW = 4
LONGEST: Millis = 500


def note(desk: Desk, hash: Hash) -> None:
    """A node has these bytes."""
    if not desk.taken:
        desk.tell_taken_after = desk.ticks() + LONGEST
    desk.taken.setdefault(hash, desk.clock.now())


def is_due(desk: Desk) -> bool:
    waited = desk.leaving or len(desk.taken) <= FEW or desk.ticks() >= desk.tell_taken_after
    return bool(desk.taken) and waited


def slots(desk: Desk) -> list[Slot]:
    """Of which there is something to tell, lowest nonce first."""
    nonces = {desk.lane.nonce_of(hash) for hash in desk.taken}
    return [slot for slot in desk.lane.slots.values() if slot.nonce in nonces]


def told(desk: Desk) -> None:
    """All that could be told now was: what is left is of slots that are gone, or of one that breaks whoever tells it."""
    desk.taken = {hash: at for hash, at in desk.taken.items() if desk.lane.nonce_of(hash) is not None}
    desk.tell_taken_after = desk.ticks() + LONGEST


def tell(desk: Desk, work: Work, slot: Slot) -> None:
    """Have this work say of the slot what was not told."""
    took = [attempt for attempt in slot.attempts if attempt.hash in desk.taken]
    for attempt in took:
        work.answered(replace(attempt, sent_at=attempt.sent_at or desk.taken[attempt.hash], answer=policy.ACCEPTED))
    tx = desk.lane.transaction_of(slot)
    if took and tx is not None and work.latest(tx).state is State.SIGNED:
        work.move(tx, lifecycle.Broadcast())
