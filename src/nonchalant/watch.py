"""Watching: what the follower finds on the chain, as it concerns one lane."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from nonchalant import lifecycle, taken, windows
from nonchalant.desk import Desk
from nonchalant.errors import Unreachable
from nonchalant.lanes import Work
from nonchalant.model import BlockRef, Receipt, Slot
from nonchalant.poison import handling, subject_of


async def watch(desk: Desk) -> bool:
    """Bring the lane's slots in line with the linked chain. True: something changed."""
    lane = desk.lane
    if _is_account_due(desk):
        await desk.see_account()
    found = await look_up(desk) if desk.lookup_due else []
    receipts, desk.inbox[:] = [*desk.inbox, *found], []
    executed: dict[int, list[Receipt]] = {}
    for receipt in receipts:
        nonce = lane.nonce_of(receipt.hash)
        if nonce is not None:
            executed.setdefault(nonce, []).append(receipt)
    mined = [(slot, slot.receipt) for slot in lane.slots.values() if slot.receipt is not None]
    shaken = _shaken(desk, [(slot, receipt) for slot, receipt in mined if slot.nonce not in executed])
    if not executed and not shaken and lane.record.window is None:
        return False
    changed = False
    for part in desk.slot_parts([lane.slots[nonce] for nonce in sorted([*executed, *shaken])]):
        work, blocks = desk.work(), set[BlockRef]()
        with handling() as whom:
            for slot in part:
                whom.subject = subject_of(slot)
                await _bring_in_line(desk, work, slot, executed.get(slot.nonce, ()), blocks)
        window = windows.grown(lane.record.window, desk.rules.window, blocks=len(blocks))
        work.record(replace(work.lane_record, window=window))
        changed |= await desk.commit_part(work, part)
    return changed


def _shaken(desk: Desk, mined: Sequence[tuple[Slot, Receipt]]) -> list[int]:
    """The nonces of which the linked chain may say what is not known yet. Most of these stay where they are."""
    if not mined:
        return []
    head, lane = desk.head, desk.lane
    return [
        slot.nonce
        for slot, receipt in mined
        if not head.has(receipt.block)
        or ((tx := lane.transaction_of(slot)) is not None and tx.confirmations is not None)
    ]


async def _bring_in_line(
    desk: Desk, work: Work, slot: Slot, receipts: Iterable[Receipt], blocks: set[BlockRef]
) -> None:
    """What the linked chain says of one slot; `blocks` gains those that are news for it."""
    if slot.receipt is not None and await _is_canonical(desk, slot.receipt.block) is False:
        slot = _reorged(desk, work, slot)
    for receipt in receipts:
        if slot.receipt is not None or _is_hearsay(desk, slot, receipt):
            continue
        is_linked = desk.head.has(receipt.block)
        if not is_linked and receipt.block.number > desk.head.final.number:
            continue  # it comes again with its block, if that becomes a part of our chain
        match is_linked or await _is_canonical(desk, receipt.block):
            case True:
                taken.tell(desk, work, slot)
                slot = _included(desk, work, slot, receipt)
                blocks.add(receipt.block)
            case None:
                desk.inbox.append(receipt)  # nobody can say yet: ask again in the next round
            case False:
                pass
    await _tell_depth(desk, work, slot)


def _is_account_due(desk: Desk) -> bool:
    """Whether to ask again what the account has executed: nothing else shows who used a nonce without telling us."""
    lane, head = desk.lane, desk.head
    if head.final.number != desk.seen_final:
        # A nonce that somebody used is news again whenever finality moves.
        desk.account_due |= bool(lane.lost_slots()) or desk.awaits_finality
        desk.seen_final = head.final.number
    if desk.account_due or desk.seen_at == head.top:
        return desk.account_due
    # A count that is too low may have been one endpoint's error; nothing else would ask again.
    return lane.is_behind or any(slot.reservation is not None for slot in lane.open_slots())


def _is_hearsay(desk: Desk, slot: Slot, receipt: Receipt) -> bool:
    """Whether only the holder of a reservation says that this hash belongs to his nonce; then the count must tell."""
    attempt = slot.attempt(receipt.hash)
    if attempt is None or attempt.raw:
        return False
    desk.account_due |= not desk.lane.is_consumed(slot)
    return True


async def _tell_depth(desk: Desk, work: Work, slot: Slot) -> None:
    """Say it once a mined transaction has as many blocks above it as was asked, and again when a fork replaces them."""
    tx = desk.lane.transaction_of(slot)
    if tx is None or tx.confirmations is None or slot.receipt is None:
        return
    asked, tx = tx.confirmations, work.latest(tx)
    if tx.deep is not None and await _is_canonical(desk, tx.deep) is False:
        tx = work.move(tx, lifecycle.Forked())
    if tx.deep is None:
        above = desk.head.above(slot.receipt.block, asked)
        if len(above) == asked:
            work.move(tx, lifecycle.Deepened(above))


async def _is_canonical(desk: Desk, block: BlockRef) -> bool | None:
    """Whether the chain holds the block; None: too few endpoints say, which changes nothing."""
    try:
        return await desk.eyes.vouch(block)
    except Unreachable:
        return None


async def look_up(desk: Desk) -> list[Receipt]:
    """Every live attempt by hash, once: those that an endpoint shows executed. What none shows proves nothing."""
    hashes = desk.lane.attempt_hashes()
    answers = [await desk.eyes.ask(lambda endpoint: endpoint.find(hashes))] if hashes else []
    shown = {receipt.hash for answer in answers for receipt in answer if receipt is not None}
    unshown = [slot for slot in desk.lane.lost_slots() if not any(one.hash in shown for one in slot.attempts)]
    if unshown:
        # Its nonce is used: an endpoint may have forgotten by what, and another may know.
        missing = [attempt.hash for slot in unshown for attempt in slot.attempts]
        answers += await desk.eyes.ask_everyone(lambda endpoint: endpoint.find(missing))
    desk.lookup_due = False
    return [receipt for answer in answers for receipt in answer if receipt is not None]


def _reorged(desk: Desk, work: Work, slot: Slot) -> Slot:
    lane = desk.lane
    open_again = replace(slot, receipt=None)
    work.slot(open_again)
    tx = lane.transaction_of(slot)
    if tx is not None:
        work.move(tx, lifecycle.Reorged())
    lane.count = min(lane.count, slot.nonce)
    desk.account_due = True
    # Due at once: a pool may have forgotten what the old chain had executed.
    for attempt in slot.attempts:
        if attempt.hash in desk.sendings:
            desk.sendings[attempt.hash] = replace(desk.sendings[attempt.hash], at=None)
    return open_again


def _included(desk: Desk, work: Work, slot: Slot, receipt: Receipt) -> Slot:
    lane = desk.lane
    tx = lane.transaction_of(slot)
    if tx is not None:
        work.move(tx, lifecycle.Included(receipt))
    lane.count = max(lane.count, slot.nonce + 1)
    return work.include(slot, receipt)
