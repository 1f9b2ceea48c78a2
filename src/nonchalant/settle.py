"""Settling: what is final becomes an outcome, each slot on its own evidence.

A transaction goes back to the queue only here, and only on proof: its nonce was consumed at finality, and every block
that could hold one of its attempts was read and holds none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

import structlog
from msgspec.structs import replace

from nonchalant import foreign, lifecycle, policy, proof, taken
from nonchalant.desk import Desk, Reason
from nonchalant.errors import NodeRefused, Unreachable
from nonchalant.lanes import Work
from nonchalant.model import Attempt, Attention, BlockRef, Executed, Receipt, Slot, Transaction
from nonchalant.poison import handling, subject_of
from nonchalant.ports import Endpoint
from nonchalant.words import AttemptKind, Millis, Wanted

log = structlog.get_logger()

# Blocks that tell who used a nonce, or how that went, are asked for again after this long, up to the longest.
FIRST_PAUSE: Millis = 2_000
LONGEST_PAUSE: Millis = 60_000

# Why something reverted is worth this long, for so many at once, and no more: it must not hold up the lane.
REPLAY_SECONDS = 2.0
REPLAYS = 16
REPLAY_TRIES = 3  # each at another head: an endpoint may not have the block yet


async def settle(desk: Desk) -> bool:
    """Settle what finality has reached. True: something changed."""
    if desk.is_outdated:
        return False  # what it would record would pass for what this store gave out, if nobody lived to say otherwise
    # While their blocks are young: most nodes forget the state of a block before the block is final.
    mined = [(slot, slot.receipt) for slot in desk.lane.slots.values() if slot.receipt is not None]
    await _ask_why(desk, mined)
    blocks = {receipt.block: receipt for _, receipt in mined}  # many share one
    final_blocks = {block for block, receipt in blocks.items() if is_final(desk, receipt)}
    final = [slot for slot, receipt in mined if receipt.block in final_blocks]
    # What is reserved needs no proof: its holder used it, and need not say so.
    used = [
        slot for slot in desk.lane.lost_slots() if slot.reservation is not None and is_consumed_for_good(desk, slot)
    ]
    await foreign.look(desk, desk.lane.settled_prefix(slot.nonce for slot in (*final, *used)))
    changed = False
    for part in desk.slot_parts([*final, *used]):
        work = desk.work()
        with handling() as whom:
            for slot in part:
                whom.subject = subject_of(slot)
                if slot.receipt is None:
                    work.settle(slot)
                else:
                    _settle_one(desk, work, slot, slot.receipt)
        _raise_bounds(desk, work, part)
        changed |= await desk.commit_part(work, part)
    lost = [slot for slot in desk.lane.lost_slots() if is_consumed_for_good(desk, slot)]
    if not lost or desk.ticks() < desk.prove_after:
        return changed
    return await _settle_lost(desk, lost) or changed


def is_consumed_for_good(desk: Desk, slot: Slot) -> bool:
    """Whether the slot's nonce is used at finality: nothing less says that it will never be ours.

    What was final when it was signed did not have it: whoever says so now tells of a later block.
    """
    return slot.nonce < desk.lane.final_count and (not slot.attempts or desk.head.final.number > slot.floor)


def is_final(desk: Desk, receipt: Receipt) -> bool:
    return desk.head.is_final(receipt.block)


def _settle_one(desk: Desk, work: Work, slot: Slot, receipt: Receipt) -> None:
    work.settle(slot, receipt)
    tx = desk.lane.transaction_of(slot)
    ran = slot.attempt(receipt.hash)
    assert ran is not None
    if tx is None:
        if ran.kind is AttemptKind.FILLER:
            work.event("lane.filled", nonce=slot.nonce, hash=receipt.hash, cost=str(receipt.cost))
        return
    if tx.confirmations is not None and tx.deep is None:
        # It is final with fewer blocks above it than were asked for; none of them can change it.
        work.move(tx, lifecycle.Deepened(desk.head.above(receipt.block, tx.confirmations)))
    if ran.payload_version == 0:
        # Its own receipt status is irrelevant: what it was for is that the payload never runs.
        work.move(tx, _unwanted(slot, f"no node accepts its bytes; {receipt.hash} took its nonce and does nothing"))
    elif receipt.succeeded:
        work.move(tx, lifecycle.Confirmed())
    else:
        work.move(tx, lifecycle.Reverted(_reason(desk, receipt)))


async def _ask_why(desk: Desk, mined: Iterable[tuple[Slot, Receipt]]) -> None:
    """Learn why what reverted did so, as far as any endpoint can say."""
    reverted = [
        (tx, ran, receipt)
        for slot, receipt in mined
        if not receipt.succeeded
        and _is_unexplained(desk, receipt)
        and not desk.is_aside(subject_of(slot))
        and (tx := desk.lane.transaction_of(slot)) is not None
        and (ran := slot.attempt(receipt.hash)) is not None
        and ran.payload_version != 0
    ][:REPLAYS]
    if not reverted:
        return
    try:
        async with asyncio.timeout(REPLAY_SECONDS):
            await asyncio.gather(*(_replay(desk, tx, ran, receipt) for tx, ran, receipt in reverted))
    except TimeoutError:
        log.info("replay.slow", lane=str(desk.key))


def _is_unexplained(desk: Desk, receipt: Receipt) -> bool:
    known = desk.reasons.get((receipt.hash, receipt.block))
    return known is None or known.is_due(desk.head.top, REPLAY_TRIES)


async def _replay(desk: Desk, tx: Transaction, ran: Attempt, receipt: Receipt) -> None:
    reason = desk.reasons.setdefault((receipt.hash, receipt.block), Reason(desk.head.top))
    reason.tries, reason.asked_at = reason.tries + 1, desk.head.top
    with handling(tx.id):
        payload = tx.payload_of(ran.payload_version)

    async def why(endpoint: Endpoint) -> str:
        told = await endpoint.replay(desk.key.address, payload, ran.gas, receipt.block)
        if told is None:
            raise Unreachable(f"{endpoint.name} cannot say why {receipt.hash} reverted")  # another one may
        return told

    try:
        reason.told = await desk.eyes.ask(why)
    except (Unreachable, NodeRefused) as problem:
        log.debug("replay.failed", lane=str(desk.key), tx=tx.id, reason=str(problem))


def _reason(desk: Desk, receipt: Receipt) -> str | None:
    reason = desk.reasons.get((receipt.hash, receipt.block))
    return None if reason is None else reason.told


def _unwanted(slot: Slot, refused: str) -> lifecycle.Cancelled | lifecycle.Expired | lifecycle.Outrun:
    """The end of what was not wanted any more: it names who did not want it."""
    match slot.wanted:
        case Wanted.CANCEL:
            return lifecycle.Cancelled()
        case Wanted.EXPIRY:
            return lifecycle.Expired()
        case _:
            return lifecycle.Outrun(refused)


def _raise_bounds(desk: Desk, work: Work, settled: Sequence[Slot]) -> None:
    """Record how far the lane is settled, so that less is watched and nothing is ever signed below."""
    lane, record = desk.lane, desk.lane.record
    settled_below = foreign.bounded(desk, lane.settled_prefix(slot.nonce for slot in settled))
    next_nonce = max(lane.next_nonce, settled_below)
    quarantined = record.quarantined_below is not None
    if (settled_below, next_nonce) == (record.settled_below, record.next_nonce):
        return
    if not quarantined:
        foreign.tell(desk, work, settled_below)
    # While commits may be missing, the height from which to search for them must not move.
    seen = BlockRef(record.seen_block, record.seen_hash or "") if quarantined else desk.head.final
    work.record(
        replace(
            work.lane_record,
            settled_below=settled_below,
            next_nonce=next_nonce,
            seen_block=seen.number,
            seen_hash=seen.hash or None,
            confirmed_at=work.at if settled else record.confirmed_at,
            resets=0 if settled else record.resets,
        )
    )


async def _settle_lost(desk: Desk, lost: list[Slot]) -> bool:
    """Slots whose nonce is gone at finality though none of their attempts is known to have run."""
    attempts = {attempt.hash: slot for slot in lost for attempt in slot.attempts}
    try:
        evidence = await proof.read_final_blocks(desk, min(slot.floor for slot in lost), frozenset(attempts))
    except (Unreachable, NodeRefused) as error:
        log.warning("proof.unreadable", lane=str(desk.key), reason=str(error))
        _put_off(desk)
        return await _mark_unproved(desk, lost)
    if evidence is None:
        return False  # there is more to read; the lane's other work has its turn first
    await _ask_why(desk, ((attempts[receipt.hash], receipt) for receipt in evidence.ours))
    executed = {attempts[receipt.hash].nonce: receipt for receipt in evidence.ours}
    consumers = {one.nonce: one for one in evidence.executed}
    unread = [slot for slot in lost if any(attempt.hash in evidence.unread for attempt in slot.attempts)]
    changed = False
    if unread:
        _put_off(desk)
        changed = await _mark_unread(desk, unread)
    else:
        desk.proofs_failed = 0
    for part in desk.slot_parts([slot for slot in lost if slot not in unread]):
        work = desk.work()
        with handling() as whom:
            for slot in part:
                whom.subject = subject_of(slot)
                _conclude(desk, work, slot, executed.get(slot.nonce), consumers.get(slot.nonce))
        changed |= await desk.commit_part(work, part)
    desk.assign_due = True
    return changed


def _put_off(desk: Desk) -> None:
    """What cannot be read now is asked for again, less and less often."""
    pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(desk.proofs_failed, 10))
    desk.proofs_failed, desk.prove_after = desk.proofs_failed + 1, desk.ticks() + pause


def _conclude(desk: Desk, work: Work, slot: Slot, receipt: Receipt | None, consumer: Executed | None) -> None:
    """What the final blocks say of a slot whose nonce is gone: one of its attempts ran after all, or none did."""
    if receipt is None:
        _supersede(desk, work, slot, consumer)
        return
    taken.tell(desk, work, slot)
    tx = desk.lane.transaction_of(slot)
    if tx is not None:
        work.move(tx, lifecycle.Included(receipt))
    _settle_one(desk, work, slot, receipt)


def _supersede(desk: Desk, work: Work, slot: Slot, consumer: Executed | None) -> None:
    """None of the slot's attempts ran, for good: the transaction may have another slot."""
    work.settle(slot)
    by = None if consumer is None else consumer.hash
    work.event("lane.foreign", tx_id=slot.tx_id, nonce=slot.nonce, hash=by)
    tx = desk.lane.transaction_of(slot)
    if tx is None:
        return
    quarantined = desk.lane.record.quarantined_below is not None
    if slot.wanted is not Wanted.PAYLOAD and (
        policy.supersede_doubt(tx, consumer, quarantined=quarantined, now=work.at) is None
    ):
        # Nobody wanted it any more, and now it can never run.
        work.move(tx, lifecycle.Superseded(by, ends=True))
        end = _unwanted(slot, f"no node accepts its bytes, and {by} took its nonce")
        work.move(tx, lifecycle.Failed(end.reason) if isinstance(end, lifecycle.Outrun) else end)
        return
    hold = policy.supersede_hold(tx, consumer, quarantined=quarantined, by_depth=desk.final_by_depth, now=work.at)
    work.move(tx, lifecycle.Superseded(by, hold))


async def _mark_unproved(desk: Desk, lost: list[Slot]) -> bool:
    """The nonce is gone, and who used it cannot be read now. It keeps its slot until it can."""
    reason = "its nonce was used, and the blocks that tell by whom cannot be read now; add an endpoint that has them"
    return await _mark(desk, lost, Attention("unproved_supersede", reason, desk.clock.now()))


async def _mark_unread(desk: Desk, unread: list[Slot]) -> bool:
    """It ran, and how that went cannot be read now. It keeps its slot until it can."""
    reason = "a final block executed it, and no endpoint tells how that went; add an endpoint that has its receipt"
    return await _mark(desk, unread, Attention("receipt_unreadable", reason, desk.clock.now()))


async def _mark(desk: Desk, slots: list[Slot], mark: Attention) -> bool:
    work = desk.work()
    for slot in slots:
        tx = desk.lane.transaction_of(slot)
        if tx is not None:
            work.mark(tx, mark)
    return await desk.commit(work)
