"""Assigning: what waits gets a nonce, a price and a signature, in one commit. Only the lane's owner does it.

Estimate and price first, so that what cannot be sent spends no nonce.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from functools import cache

import structlog
from msgspec import Struct
from msgspec.structs import replace

from nonchalant import fees as prices
from nonchalant import funds, lifecycle, line, policy, signing
from nonchalant.desk import MOST_MOVED, SIGNER_MARK, Desk, Postponement
from nonchalant.errors import NodeRefused, Poisoned, RowMoved, SignerFailed, Unencodable, Unreachable
from nonchalant.health import OUT_OF_FUNDS
from nonchalant.lanes import Work
from nonchalant.line import Line
from nonchalant.model import Attention, Draft, Fees, Market, Payload, Slot, Transaction
from nonchalant.poison import handling, subject_of
from nonchalant.signing import Prepared
from nonchalant.words import AttemptKind, Millis, SlotKind, Speed, TxId, Wei

log = structlog.get_logger()

# A transaction that could not be sent is looked at again after this long, doubling up to the longest.
FIRST_RETRY: Millis = 1_000
LONGEST_RETRY: Millis = 60_000

# How often no answer is nothing to speak of, and how often an estimate is asked for that nodes refuse.
TRIES_BEFORE_A_MARK = 4
MOST_ESTIMATES = 10

# How often in a row the signer may fail on one alone, and sign the next one, before it is that one.
MOST_UNSIGNED = 3

# How many it may fail on, one after the other, while it signs nobody, before they are all asked for anew.
MOST_SUSPECTS = 100

CANNOT_ESTIMATE = "cannot_estimate"
WAITS_FOR_EARLIER = "waits_for_earlier"


class Ready(Struct, frozen=True, gc=False):
    tx: Transaction
    gas: int
    fees: Fees
    data_fee: Wei = 0

    @property
    def cost(self) -> Wei:
        return self.tx.payload.value + self.gas * self.fees.max_fee + self.data_fee


class Postponed(Struct, frozen=True, gc=False):
    """It cannot go now; others pass it."""

    tx: Transaction
    attention: Attention | None
    needed: Wei | None = None  # what the account cannot pay


class Hopeless(Struct, frozen=True, gc=False):
    """It can never go."""

    tx: Transaction
    reason: str


Verdict = Ready | Postponed | Hopeless


async def assign(desk: Desk) -> bool:
    """Sign as many queued transactions as the window allows. True: something changed."""
    lane, now = desk.lane, desk.ticks()
    if lane.record.quarantined_below is not None or now < desk.paused_until or _is_stopped(desk):
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
    verdicts = await _judge(desk, [tx for tx in in_line.going if tx.id not in gone])
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


def _is_stopped(desk: Desk) -> bool:
    """Whether the lane is unfit, or its chain is another one. One without funds is not stopped: whatever it can pay
    proves that it has some."""
    unhealthy = desk.lane.record.unhealthy
    return desk.lane.is_behind or (unhealthy is not None and unhealthy.code != OUT_OF_FUNDS)


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


async def _judge(desk: Desk, due: Sequence[Transaction]) -> list[Verdict]:
    await desk.see_account_at_head()
    if desk.is_outdated:
        raise Unreachable(f"the chain shows nonces of {desk.key.address} used that this store never gave out")
    market = await desk.eyes.market()
    desk.least_cost = prices.opening(Speed.SLOW, market, desk.rules.fees).max_fee
    at_once = dict[TxId, Verdict | None]()
    offer_for = cache(lambda wish: prices.opening(wish, market, desk.rules.fees))  # most want the same
    with handling() as whom:
        for tx in due:
            whom.subject = tx.id
            at_once[tx.id] = _judge_at_once(desk, tx, offer_for(tx.fees), market)
    asking = [tx for tx in due if at_once[tx.id] is None]
    asked = await asyncio.gather(*(_judge_by_asking(desk, tx, market) for tx in asking))
    told = {tx.id: verdict for tx, verdict in zip(asking, asked, strict=True)}
    verdicts = [at_once[tx.id] or told[tx.id] for tx in due]
    if desk.chain.charges_for_data:
        verdicts = await _with_data_fees(desk, verdicts)
    return _within_funds(desk, verdicts)


def _judge_at_once(desk: Desk, tx: Transaction, offer: Fees, market: Market) -> Verdict | None:
    """None: a node must be asked."""
    if not prices.is_payable(offer, market):
        reason = f"its price of {offer.max_fee} wei is below the base fee of {market.base_fee}"
        reason += "; it waits until that falls"
        return Postponed(tx, Attention("price_below_base_fee", reason, desk.clock.now()))
    if tx.payload.gas is None or tx.simulate:
        return None
    return _fitting(tx, tx.payload.gas, offer, market)


async def _judge_by_asking(desk: Desk, tx: Transaction, market: Market) -> Verdict:
    with handling(tx.id):
        try:
            estimated = await desk.estimate(tx.payload)
        except NodeRefused as refusal:
            return await _judge_refusal(desk, tx, refusal)
        except Unreachable as problem:
            return Postponed(tx, _unanswered(desk, tx, problem))
        gas = estimated if tx.payload.gas is None else tx.payload.gas
        return _fitting(tx, gas, prices.opening(tx.fees, market, desk.rules.fees), market)


def _fitting(tx: Transaction, gas: int, offer: Fees, market: Market) -> Verdict:
    if market.gas_limit is not None and gas > market.gas_limit:
        return Hopeless(tx, f"it takes {gas} gas, and a block of this chain has room for {market.gas_limit}")
    return Ready(tx, gas, offer)


async def _judge_refusal(desk: Desk, tx: Transaction, refusal: NodeRefused) -> Verdict:
    now = desk.clock.now()
    match policy.refusal_verdict(refusal):
        case policy.Estimate.REVERTS:
            if not await _waits_for_earlier(desk, tx):
                return Hopeless(tx, f"it would revert: {refusal.message}")
            reason = f"it would revert now ({refusal.message}); it waits for what is ahead of it"
            return Postponed(tx, Attention(WAITS_FOR_EARLIER, reason, now))
        case policy.Estimate.NO_FUNDS:
            value = tx.payload.value
            return Postponed(tx, _no_funds(desk, desk.purse().lacks(value)), value)
        case _:
            if await _is_unestimable(desk, tx, refusal):
                return Hopeless(tx, f"no node can estimate it, though they can others: {refusal.message}")
            reason = (
                f"no node estimates it ({refusal.message}); if they never will, replace it by one that names its gas"
            )
            return Postponed(tx, Attention(CANNOT_ESTIMATE, reason, now))


async def _is_unestimable(desk: Desk, tx: Transaction, refusal: NodeRefused) -> bool:
    """Whether it is the transaction's own fault, as far as time and a harmless one can tell: then it leaves the line."""
    if _tries(desk, tx) < MOST_ESTIMATES or not policy.may_be_its_own_fault(refusal):
        return False
    try:
        await desk.estimate(Payload.nothing(desk.key.address))
    except (NodeRefused, Unreachable):
        return False
    return True


def _unanswered(desk: Desk, tx: Transaction, problem: Unreachable) -> Attention | None:
    """Once is nothing; what lasts is worth a look."""
    if _tries(desk, tx) < TRIES_BEFORE_A_MARK:
        return None
    reason = f"no endpoint says how much gas it takes ({problem}); look at the endpoints, or replace it by one that names its gas"
    return Attention(CANNOT_ESTIMATE, reason, desk.clock.now())


def _tries(desk: Desk, tx: Transaction) -> int:
    """How often it was tried in vain already."""
    return desk.postponed[tx.id].tries if tx.id in desk.postponed else 0


async def _waits_for_earlier(desk: Desk, tx: Transaction) -> bool:
    """Whether something that came before it has still to run and could make it succeed."""
    # One whose nonce somebody else used will have another.
    flying = (desk.lane.transaction_of(slot) for slot in desk.lane.slots.values() if slot.receipt is None)
    if any(other is not None and other.place < tx.place for other in flying):
        return True
    return await desk.store.has_queued_before(tx)


async def _with_data_fees(desk: Desk, verdicts: Sequence[Verdict]) -> list[Verdict]:
    """What is ready, with what the chain takes for publishing it; learnt too for what is in flight, if not yet known.

    Each is asked for once: the price of data moves, but not by much while something is in flight.
    """
    ready = [verdict for verdict in verdicts if isinstance(verdict, Ready)]
    if not ready:
        return list(verdicts)
    unasked = (slot for slot in desk.lane.open_slots() if slot.nonce not in desk.lane.data_fees)
    flying = [slot for slot in unasked if slot.attempts and not desk.is_aside(subject_of(slot))]
    drafts = [_draft_in_flight(desk, slot) for slot in flying]
    drafts += [_draft(desk, one, nonce) for one, nonce in zip(ready, desk.lane.take(len(ready)), strict=True)]
    try:
        fees = await desk.eyes.ask(lambda endpoint: endpoint.data_fees(drafts))
    except (Unreachable, NodeRefused) as problem:
        attention = Attention(
            "data_fee_unknown",
            f"what the chain takes for its data is not known ({problem}); look at the endpoints, or at `data_fee`",
            desk.clock.now(),
        )
        return [Postponed(verdict.tx, attention) if isinstance(verdict, Ready) else verdict for verdict in verdicts]
    desk.lane.data_fees |= {slot.nonce: fee for slot, fee in zip(flying, fees[: len(flying)], strict=True)}
    charged = iter(fees[len(flying) :])
    return [replace(verdict, data_fee=next(charged)) if isinstance(verdict, Ready) else verdict for verdict in verdicts]


def _draft_in_flight(desk: Desk, slot: Slot) -> Draft:
    tx, last = desk.lane.transaction_of(slot), slot.attempts[-1]
    version = last.payload_version
    with handling(subject_of(slot)):
        payload = Payload.nothing(desk.key.address) if tx is None or version == 0 else tx.payload_of(version)
    return Draft(lane=desk.key, nonce=slot.nonce, payload=payload, gas=last.gas, fees=last.fees)


def _draft(desk: Desk, one: Ready, nonce: int) -> Draft:
    return Draft(lane=desk.key, nonce=nonce, payload=one.tx.payload, gas=one.gas, fees=one.fees)


def _within_funds(desk: Desk, verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Keep what the balance covers, counting all that is in flight; what is too dear waits and others pass it."""
    purse = desk.purse()
    kept: list[Verdict] = []
    for verdict in verdicts:
        if not isinstance(verdict, Ready):
            kept.append(verdict)
        elif short := purse.lacks(cost := verdict.cost):
            kept.append(Postponed(verdict.tx, _no_funds(desk, short), cost))
        else:
            purse.pay(cost, _kept_for(desk, verdict) if purse.keeps_more else 0)
            kept.append(verdict)
    return kept


def _kept_for(desk: Desk, one: Ready) -> Wei:
    return funds.kept_for(one.gas, one.fees.max_fee, one.tx.fees, desk.rules.fees)


def _no_funds(desk: Desk, short: Wei) -> Attention:
    reason = (
        f"{desk.key.address} lacks {short} wei on chain {desk.key.chain_id}; it goes as soon as the account is funded"
    )
    return Attention(OUT_OF_FUNDS, reason, desk.clock.now())


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
    if desk.chain.charges_for_data:
        charged = {one.tx.id: one.data_fee for one in ready}
        desk.lane.data_fees |= {one.nonce: charged[one.tx_id] for one in attempts if one.tx_id and charged[one.tx_id]}
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
    tries = _tries(desk, tx) + 1
    wait = min(LONGEST_RETRY, FIRST_RETRY * 2 ** min(tries - 1, 10))
    waits_for_blocks = attention is not None and attention.code in (WAITS_FOR_EARLIER, OUT_OF_FUNDS)
    at = desk.head.top if waits_for_blocks else None
    desk.postponed[tx.id] = Postponement(desk.ticks() + wait, tries, at, postponed.needed)
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
                    draft = _draft(desk, verdict_of[tx.id], nonce)
                    one = signing.prepare(desk, draft, AttemptKind.ORIGINAL, tx.id, tx.payload_version)
                    prepared.append((tx, one))
                return prepared
        except Unencodable as error:
            # Of the turns, it is the first that was not prepared.
            _, tx = turns[len(prepared)]
            work.move(tx, lifecycle.Failed(str(error)))
            ready.remove(verdict_of[tx.id])
