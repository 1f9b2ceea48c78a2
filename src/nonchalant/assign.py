"""Assigning: what waits gets a nonce, a price and a signature, in one commit. Only the lane's owner does it.

Estimate and price first, so that what cannot be sent spends no nonce.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import structlog
from msgspec.structs import replace

from nonchalant import lifecycle, line, signing
from nonchalant.desk import MOST_MOVED, SIGNER_MARK, Desk, Postponement
from nonchalant.errors import Poisoned, RowMoved, SignerFailed, Unencodable
from nonchalant.health import OUT_OF_FUNDS
from nonchalant.judging import (
    WAITS_FOR_EARLIER,
    Hopeless,
    Postponed,
    Ready,
    Verdict,
    draft,
    is_stopped,
    judge,
    note_data_fees,
    tries,
)
from nonchalant.lanes import Work
from nonchalant.line import Line
from nonchalant.model import Transaction
from nonchalant.poison import handling
from nonchalant.signing import Prepared
from nonchalant.words import AttemptKind, Millis, SlotKind, TxId

log = structlog.get_logger()

# A transaction that could not be sent is looked at again after this long, doubling up to the longest.
FIRST_RETRY: Millis = 1_000
LONGEST_RETRY: Millis = 60_000

# How often in a row the signer may fail on one alone, and sign the next one, before it is that one.
MOST_UNSIGNED = 3

# How many it may fail on, one after the other, while it signs nobody, before they are all asked for anew.
MOST_SUSPECTS = 100


async def assign(desk: Desk) -> bool:
    """Sign as many queued transactions as the window allows. True: something changed."""
    lane, now = desk.lane, desk.ticks()
    if lane.record.quarantined_below is not None or now < desk.paused_until or is_stopped(desk):
        return False
    top, broke, resting = desk.head.top, False, list[TxId]()
    if desk.waits_for_funds or desk.postponed:
        purse = desk.purse()
        # With less than anything costs, nobody new is looked at: the queue may be long.
        broke = desk.waits_for_funds and purse.lacks(desk.least_cost) > 0
        resting = [tx_id for tx_id, one in desk.postponed.items() if not one.is_due(now, top, purse)]
    kept_too_long = desk.kept_until is not None and desk.kept_until <= now
    if not ((desk.assign_due and not broke) or kept_too_long or len(resting) < len(desk.postponed)):
        return False
    room = min(desk.rules.batch, lane.room(window=desk.window, unsettled=desk.rules.unsettled))
    if room == 0:
        return False
    desk.assign_due = False  # from here on, whoever brings work says so again
    room = 1 if desk.careful else room
    due = await desk.store.queued(desk.key, limit=room, skip=[*resting, *_broken(desk), *_suspect(desk)])
    if not due and desk.unsigned:
        desk.unsigned, desk.assign_due = {}, True  # there is nobody else: their own turn again
        return False
    everything = sum(tx.asked_nonce is None for tx in due) < room
    if everything:
        _forget_gone(desk, {tx.id for tx in due}, resting)
    else:
        desk.assign_due = True  # there may be more
    in_line = line.form(due, lane.free_nonces, lane.can_give, room=room, complete=everything, now=desk.store_now())
    in_line = in_line.first() if desk.careful else in_line
    until = in_line.kept_until()
    desk.kept_until = None if until is None else max(until - desk.store_now(), 0) + desk.ticks()
    if not in_line.going and not in_line.refused:
        desk.waits_for_funds = desk.lacks_funds and not in_line.waiting
        return False
    try:
        changed = await _assign(desk, in_line, everything=everything)
    except RowMoved:
        # Somebody changed a queued row meanwhile: the bytes were never sent, so build the batch anew.
        desk.assign_due = True
        desk.rows_moved[desk.stage] += 1
        if desk.rows_moved[desk.stage] >= MOST_MOVED:
            raise  # nobody changes rows that often: one of them cannot be written
        return True
    except SignerFailed as failure:
        desk.assign_due = True
        return await desk.pause_for_signer(failure)
    desk.rows_moved[desk.stage] = 0
    return changed


async def _assign(desk: Desk, in_line: Line, *, everything: bool) -> bool:
    due = [*in_line.going, *in_line.refused]
    alone = due[0].id if desk.careful else None
    # Anybody may change what is queued: only one that can never be written is to blame for that.
    unwritable = desk.rows_moved[desk.stage] + 1 >= MOST_MOVED
    with handling(alone, commits=unwritable):
        gone = await _hold_twins(desk, due)
        gone |= await _expire(desk, [tx for tx in due if tx.id not in gone])
    # What fails here may be about all of them, or about what is in flight: each is blamed for no more than its own part.
    verdicts = await judge(desk, [tx for tx in in_line.going if tx.id not in gone])
    verdicts += [_refusal(desk, in_line, tx) for tx in in_line.refused if tx.id not in gone]
    with handling(alone, commits=unwritable):
        return await _sign_and_commit(desk, verdicts, everything=everything)


def _refusal(desk: Desk, in_line: Line, tx: Transaction) -> Hopeless:
    if tx in in_line.too_low:
        return Hopeless(tx, f"nonce too low: next nonce {desk.lane.take(1)[0]}, tx nonce {tx.asked_nonce}")
    return Hopeless(tx, f"nonce too high: nothing came for nonce {in_line.missing}, tx nonce {tx.asked_nonce}")


def _broken(desk: Desk) -> list[TxId]:
    """Those that broke this stage: they are held, or could not even be."""
    return [subject for stage, subject in desk.strikes.aside if stage == desk.stage]


def _suspect(desk: Desk) -> list[TxId]:
    """Whom the signer failed on when it was asked for that one alone: others have their turn, and tell who it is."""
    return list(desk.unsigned)


async def _hold_twins(desk: Desk, due: Sequence[Transaction]) -> frozenset[TxId]:
    """Hold what the account may have done already, unknown to this store; one stranger holds one transaction."""
    held: set[TxId] = set()
    for tx in due if desk.lane.strangers else ():
        with handling(tx.id):
            twin = desk.lane.twin_of(tx)
        if twin is not None:
            work = desk.work()
            work.hold_for(tx, twin)
            await desk.commit(work)
            held.add(tx.id)
    return frozenset(held)


async def _expire(desk: Desk, due: Sequence[Transaction]) -> frozenset[TxId]:
    """End what is overdue, where only the owner may: it is nobody's twin."""
    now = desk.store_now()
    overdue = [tx for tx in due if tx.is_overdue(now)]
    for tx in overdue:
        work = desk.work()
        work.move(tx, lifecycle.Expired())
        try:
            await desk.commit(work)
        except RowMoved:
            desk.assign_due = True  # somebody changed it meanwhile
    return frozenset(tx.id for tx in overdue)


def _forget_gone(desk: Desk, due: Collection[TxId], resting: Collection[TxId]) -> None:
    """Postponed ones whose turn has come and that are not queued any more need no place here."""
    known = {*due, *resting}
    for tx_id in [tx_id for tx_id in desk.postponed if tx_id not in known]:
        del desk.postponed[tx_id]


async def _sign_and_commit(desk: Desk, verdicts: list[Verdict], *, everything: bool) -> bool:
    work = desk.work()
    for verdict in verdicts:
        match verdict:
            case Ready():
                pass
            case Postponed() as postponed:
                _postpone(desk, work, postponed)
            case Hopeless(tx, reason):
                work.move(tx, lifecycle.Failed(reason))
    ready = [verdict for verdict in verdicts if isinstance(verdict, Ready)]
    prepared = _prepare(desk, work, ready)
    # Whose nonce is not reached because one before it could not go is looked at anew.
    desk.assign_due |= len(prepared) < len(ready)
    try:
        attempts = await signing.sign(desk, [one for _, one in prepared])
    except SignerFailed as failure:
        if len(prepared) == 1:
            # The next one is another; if it fails on so many, it is the signer.
            [(tx, _)] = prepared
            desk.unsigned = (
                {**desk.unsigned, tx.id: Poisoned(tx.id, failure)} if len(desk.unsigned) < MOST_SUSPECTS else {}
            )
        raise
    for (tx, _), attempt in zip(prepared, attempts, strict=True):
        desk.blamed.pop(tx.id, None)
        work.move(tx, lifecycle.Assigned(attempt.nonce, attempt.hash))
        work.bind(attempt.nonce, SlotKind.TRANSACTION, attempt)
        desk.postponed.pop(tx.id, None)
    if attempts:
        work.record(replace(work.lane_record, next_nonce=desk.lane.next_after([one.nonce for one in attempts])))
        desk.clear_mark(work, SIGNER_MARK)
    changed = await desk.commit(work)
    lacks_funds = not attempts and desk.lacks_funds
    desk.waits_for_funds = lacks_funds and (everything or desk.purse().lacks(desk.least_cost) > 0)
    note_data_fees(desk, ready, attempts)
    if attempts and desk.unsigned:
        _blame(desk)
    return changed


def _blame(desk: Desk) -> None:
    """The signer signs others and failed on these. It may have been away just then; not each time, though."""
    for tx_id, suspect in desk.unsigned.items():
        desk.blamed[tx_id] += 1
        if desk.blamed[tx_id] >= MOST_UNSIGNED:
            log.warning("signer.refuses", lane=str(desk.key), tx=tx_id, reason=str(suspect.cause))
            desk.strikes.leave(desk.stage, suspect, desk.blamed.pop(tx_id), desk.ticks())
    desk.unsigned, desk.assign_due = {}, True


def _postpone(desk: Desk, work: Work, postponed: Postponed) -> None:
    tx, attention = postponed.tx, postponed.attention
    tried = tries(desk, tx) + 1
    wait = min(LONGEST_RETRY, FIRST_RETRY * 2 ** min(tried - 1, 10))
    waits_for_blocks = attention is not None and attention.code in (WAITS_FOR_EARLIER, OUT_OF_FUNDS)
    at = desk.head.top if waits_for_blocks else None
    desk.postponed[tx.id] = Postponement(desk.ticks() + wait, tried, at, postponed.needed)
    if attention is not None:
        work.mark(tx, attention)


def _prepare(desk: Desk, work: Work, ready: list[Ready]) -> list[tuple[Transaction, Prepared]]:
    """One draft each, on the lowest free nonces. A payload that cannot be encoded fails, and leaves no hole; whose nonce
    is not reached without it stays in the line."""
    while True:
        prepared: list[tuple[Transaction, Prepared]] = []
        verdict_of = {one.tx.id: one for one in ready}
        turns = line.in_turn(desk.lane.free_nonces(), [one.tx for one in ready])
        try:
            with handling(answers=(Unencodable,)) as whom:
                for nonce, tx in turns:
                    whom.subject = tx.id
                    a_draft = draft(desk, verdict_of[tx.id], nonce)
                    one = signing.prepare(desk, a_draft, AttemptKind.ORIGINAL, tx.id, tx.payload_version)
                    prepared.append((tx, one))
                return prepared
        except Unencodable as error:
            # Of the turns, it is the first that was not prepared.
            _, tx = turns[len(prepared)]
            work.move(tx, lifecycle.Failed(str(error)))
            ready.remove(verdict_of[tx.id])
