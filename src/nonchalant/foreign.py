"""Foreign use: nonces that are final and were nobody's here, and who used them, as far as final blocks tell.

The head moves `next_nonce` past them at once, so that sending goes on. What is told rests on finality, and is told in the
commit that moves the settled bound past them: once, whoever owns the lane by then.
"""

from __future__ import annotations

import structlog

from nonchalant.desk import Desk
from nonchalant.errors import NodeRefused, Unreachable
from nonchalant.lanes import Work
from nonchalant.model import Executed
from nonchalant.proof import Search
from nonchalant.words import Millis

log = structlog.get_logger()

# Blocks that are read for it, from finality down: it became final a moment ago.
MOST_BLOCKS = 2_000
# Before what the lane's record calls the last height it was seen at: the account may have been looked at earlier.
MARGIN = 100

# How often blocks that cannot be read are asked for before it is told without them.
TRIES = 5
PAUSE: Millis = 10_000

# Named one by one; of more, the first and the last.
MOST_NAMED = 100


async def look(desk: Desk, bound: int) -> None:
    """Learn who used the nonces below `bound`, which are final, that were nobody's here."""
    seen, record = desk.foreign, desk.lane.record
    if record.next_nonce is None:
        seen.begins = desk.lane.count  # whoever used the account before this lane did is no stranger
    nonces = _unexplained(desk, bound)
    if not nonces or desk.ticks() < seen.look_after:
        return
    if seen.search is None:
        seen.ours |= await desk.store.bound(desk.key, first=nonces[0], below=nonces[-1] + 1)
        seen.sought = frozenset(_unexplained(desk, bound))
        if not seen.sought:
            return
        final = desk.head.final
        seen.search = Search(final, max(0, record.seen_block - MARGIN, final.number - MOST_BLOCKS))
    try:
        everything = await seen.search.go_on(desk)
    except (Unreachable, NodeRefused) as problem:
        seen.tries, seen.look_after = seen.tries + 1, desk.ticks() + PAUSE
        if seen.tries < TRIES:
            return
        log.warning("foreign.unreadable", lane=str(desk.key), reason=str(problem))
        everything = True
    users = {one.nonce: one for one in seen.search.executed if one.nonce in seen.sought}
    if not everything and len(users) < len(seen.sought):
        return  # there is more to read; the lane's other work has its turn first
    known = await desk.store.known_attempts([one.hash for one in users.values()])
    for nonce in seen.sought:
        user = users.get(nonce)
        if user is not None and user.hash in known:
            seen.ours.add(nonce)  # signed here, and given up by a reset
        else:
            seen.users[nonce] = user
    seen.search, seen.tries = None, 0


def bounded(desk: Desk, bound: int) -> int:
    """How far the lane may be called settled: not past a nonce of which it is not yet known who used it."""
    return min((bound, *_unexplained(desk, bound)[:1]))


def tell(desk: Desk, work: Work, bound: int) -> None:
    """Report what the bound passes. For the commit that moves it there."""
    seen = desk.foreign
    told = {nonce: seen.users.pop(nonce) for nonce in sorted(seen.users) if nonce < bound}
    seen.ours = {nonce for nonce in seen.ours if nonce >= bound}
    if len(told) > MOST_NAMED:
        work.event("lane.foreign", first_nonce=min(told), next_nonce=max(told) + 1)
        log.warning("lane.foreign", lane=str(desk.key), first_nonce=min(told), next_nonce=max(told) + 1)
        return
    for nonce, user in told.items():
        _report(desk, work, nonce, user)


def _report(desk: Desk, work: Work, nonce: int, user: Executed | None) -> None:
    who = (None, None, None) if user is None else (user.hash, user.to, str(user.value))
    hash, to, value = who
    work.event("lane.foreign", nonce=nonce, hash=hash, to=to, value=value)
    # Of a shared account it is what one expects.
    (log.info if desk.rules.shared else log.warning)(
        "lane.foreign", lane=str(desk.key), nonce=nonce, hash=hash, to=to, value=value
    )


def _unexplained(desk: Desk, bound: int) -> list[int]:
    """Final nonces without a slot here of which nobody knows yet who used them; in quarantine that is another's business."""
    lane, seen = desk.lane, desk.foreign
    if lane.record.quarantined_below is not None or lane.record.next_nonce is None:
        return []
    slots, ours, users = lane.slots, seen.ours, seen.users
    nonces = range(max(lane.record.settled_below, seen.begins), bound)
    return [nonce for nonce in nonces if nonce not in slots and nonce not in ours and nonce not in users]
