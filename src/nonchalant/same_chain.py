"""Whether a lane's chain is the one it was: what was final is on it, or a person has said that it counts as it is."""

from __future__ import annotations

from nonchalant import heads
from nonchalant.desk import BEHIND_MARK, Desk
from nonchalant.errors import Unreachable
from nonchalant.model import Attention, BlockRef
from nonchalant.values import replace
from nonchalant.words import Mode


async def check(desk: Desk) -> None:
    """See that what was final here is still on the chain: another one under the same name must not be sent to.

    Afterwards the lane is halted if it is not; `Unreachable` while the chain, or too few of its endpoints, can say.
    """
    desk.control = (await desk.store.orders(desk.key)).control
    if desk.is_halted:
        return
    record, head = desk.lane.record, desk.head
    if record.seen_hash is None:
        return
    seen = BlockRef(record.seen_block, record.seen_hash)
    if seen.number > head.final.number:
        if head.has(seen) or await _is_believed(desk):
            return
        reason = f"the chain is behind block {seen.number}, which was final here; if it was reset, resume the lane"
        work = desk.work()
        work.mark_lane(Attention(BEHIND_MARK, reason, work.at))
        await desk.commit(work)
        raise Unreachable(reason)
    if await _is_denied(desk, seen):
        reason = f"block {seen.number} was final and is not on the chain any more"
        await desk.store.halt(desk.key.chain_id, reason)
        desk.control = replace(desk.control, mode=Mode.HALTED, reason=reason)


async def _is_denied(desk: Desk, seen: BlockRef) -> bool:
    """Whether the chain has another block in this one's place. A block that nobody has any more denies nothing."""
    if desk.head.has(seen):
        return False
    answers = await desk.eyes.ask_everyone(lambda endpoint: endpoint.block(seen.number))
    named = [block.hash for block in answers if block is not None]
    if not named or seen.hash in named:
        return False
    if len(named) < heads.quorum(len(desk.chain.endpoints)):
        raise Unreachable(f"too few endpoints say what block {seen.number} is")
    return True


async def _is_believed(desk: Desk) -> bool:
    """Whether somebody opened the lane since it was loaded, which forgets what was final before: the chain counts.

    Asked only of one of which that was on record when it was loaded.
    """
    summary = await desk.store.lane(desk.key)
    if summary is None or summary.record.seen_hash is not None:
        return False
    desk.lane.record = replace(desk.lane.record, seen_hash=None)
    return True


async def is_resumed(desk: Desk, behind_since: float) -> bool:
    """Whether somebody opened the lane while its chain was behind: who does so takes the chain as it is.

    What is on record of the lane does not tell: of one that was never worked, nothing is.
    """
    control = (await desk.store.orders(desk.key)).control
    return control.mode is Mode.OPEN and control.since >= int(behind_since * 1000) + desk.store_ahead
