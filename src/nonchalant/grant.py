"""Granting: what people want of transactions that have a slot, done by the one node that may.

A cancel or a deadline only says what should run at the slot; rescuing signs it. A bump or a replacement is judged,
priced and signed here, so that what cannot be done is refused while the transaction goes on as it was.
"""

from __future__ import annotations

import structlog

from nonchalant import fees as prices
from nonchalant import lifecycle, policy, reserve, signing, tools
from nonchalant.desk import SIGNER_PAUSE, Desk
from nonchalant.errors import (
    CommitUnknown,
    LeaseLost,
    NodeRefused,
    RowMoved,
    SignerFailed,
    StoreUnavailable,
    Unencodable,
    Unreachable,
    Unreadable,
)
from nonchalant.lanes import Work
from nonchalant.model import Draft, Fees, Payload, Slot, Transaction
from nonchalant.values import replace
from nonchalant.wishes import (
    MOST_REPLACEMENTS,
    Bump,
    Cancel,
    Fill,
    NotYet,
    Refusal,
    Release,
    Replace,
    Reserve,
    Reset,
    Sync,
    Use,
    Wish,
)
from nonchalant.words import AttemptKind, Millis, Mode, Speed, Wanted, Wei

log = structlog.get_logger()

# How long a wish is tried that the chain's silence, or the store, keeps from being granted.
TRIED_FOR: Millis = 120_000

# What a transaction's history says of a wish that is refused, for whoever does not wait for the answer any more.
WISH_REFUSED = "wish_refused"


async def grant(desk: Desk) -> bool:
    """Read what people want of this lane, and do it. True: something changed."""
    if not desk.orders_due:
        return False
    desk.orders_due = False
    orders = await desk.store.orders(desk.key)
    desk.control = orders.control
    if desk.control.mode is Mode.HALTED:
        return False
    desk.waiting = {wish.id: desk.waiting[wish.id] for wish in orders.wishes if wish.id in desk.waiting}
    unsigned = desk.unsigned_wishes
    desk.unsigned_wishes = {wish.id: unsigned[wish.id] for wish in orders.wishes if wish.id in unsigned}
    tried = desk.strikes.tried_since
    desk.strikes.tried_since = {wish.id: tried[wish.id] for wish in orders.wishes if wish.id in tried}
    changed = False
    for wish in orders.wishes:
        if desk.ticks() >= desk.unsigned_wishes.get(wish.id, (0, 0))[0]:
            changed |= await _grant_one(desk, wish)
    return changed


async def _grant_one(desk: Desk, wish: Wish) -> bool:
    work = desk.work()
    try:
        await _act(desk, work, wish)
        changed = await desk.commit(work)
    except NotYet:
        desk.orders_due = True
        return False
    except SignerFailed as failure:
        if not _signs_others(desk, wish):
            return await desk.pause_for_signer(failure)
        return await _refuse(desk, wish, Refusal("cannot_be_sent", f"the signer signs others, and not this: {failure}"))
    except Unreadable as error:
        return await _refuse(desk, wish, Refusal("undecodable", str(error)))
    except (LeaseLost, StoreUnavailable, CommitUnknown):
        raise  # about the lane, not about the wish
    except Exception as problem:  # noqa: BLE001 - whatever it is, it must not stop what else there is to do
        answer = _answer(desk, wish, problem)
        return answer is not None and await _refuse(desk, wish, answer)
    if wish.tx_id is not None:
        desk.strikes.forgive(wish.tx_id)  # something else is to be done with it
    return changed


def _answer(desk: Desk, wish: Wish, problem: Exception) -> Refusal | None:
    """What is told to whoever asked; None: nothing yet, for it is tried again."""
    match problem:
        case Refusal():
            return problem
        case NodeRefused() if policy.is_verdict(problem):
            return Refusal("cannot_be_sent", str(problem))
        case Unreachable() | NodeRefused() | RowMoved() if not _is_tried_enough(desk, wish):
            # About a node, the moment, or a row that somebody else changed meanwhile; not about the wish.
            return None
        case Unreachable() | NodeRefused() | Unencodable():
            return Refusal("cannot_be_sent", str(problem))
        case RowMoved():
            log.warning("wish.unwritable", lane=str(desk.key), wish=wish.id, tx=wish.tx_id, reason=str(problem))
            return Refusal("internal", "the store refuses it each time; this node's log says why")
        case _:
            log.error("wish.broke", lane=str(desk.key), wish=wish.id, tx=wish.tx_id, exc_info=problem)
            return Refusal("internal", "this node failed at it; its log says why")


async def _refuse(desk: Desk, wish: Wish, answer: Refusal) -> bool:
    """Answer, and say so in the transaction's history: whoever asked may have stopped waiting long ago."""
    work = desk.work()
    work.reply(wish.id, answer.code, reason=answer.reason, **answer.data)
    if wish.tx_id is not None and answer.code != "already_ended":
        work.event(
            "tx.attention",
            tx_id=wish.tx_id,
            code=WISH_REFUSED,
            reason=answer.reason,
            wish=type(wish.act).__name__.lower(),
            refused=answer.code,
        )
    try:
        return await desk.commit(work)
    except RowMoved:
        desk.orders_due = True
        return False  # it was taken back


def _is_tried_enough(desk: Desk, wish: Wish) -> bool:
    """Whether it has been tried in vain for so long that whoever wants it should be told."""
    return desk.ticks() - desk.strikes.tried_since.setdefault(wish.id, desk.ticks()) >= TRIED_FOR


def _signs_others(desk: Desk, wish: Wish) -> bool:
    """Whether the signer, which fails on this wish, has signed others since it first did: then it is not the signer.

    Until that shows, the wish waits for longer than the lane, so that others have their turn.
    """
    _, before = desk.unsigned_wishes.get(wish.id, (0, desk.signatures))
    desk.unsigned_wishes[wish.id] = (desk.ticks() + 2 * SIGNER_PAUSE, before)
    return desk.signatures > before


async def _act(desk: Desk, work: Work, wish: Wish) -> None:
    match wish.act:
        case Cancel() | Replace() | Bump() as act:
            tx = desk.lane.transactions.get(act.tx_id)
            if tx is None or not isinstance(act, Cancel):
                # Also what we hold: what stands in for a row that cannot be read has no payload to sign.
                stored = await desk.store.transaction(act.tx_id)
                desk.check_lease()  # past its end the row may be another owner's work, and have a slot unknown here
                tx = tx or stored
            if tx is None or not tx.live:
                raise Refusal("already_ended", f"it is {tx.state} already" if tx else "there is no such transaction")
            if isinstance(act, Replace) and len(tx.earlier) >= MOST_REPLACEMENTS:
                raise Refusal("too_many_replacements", f"it was replaced {len(tx.earlier)} times already")
            if tx.nonce is None:
                await _grant_queued(desk, work, tx, act)
            else:
                await _grant_sent(desk, work, tx, desk.lane.slots[tx.nonce], act)
            work.reply(wish.id)
        case Reserve() as act:
            await reserve.reserve(desk, work, wish.id, act)
        case Use() as act:
            await reserve.use(desk, work, wish.id, act)
        case Release() as act:
            reserve.release(desk, work, wish.id, act)
        case Sync():
            await tools.sync(desk, work, wish.id)
        case Fill() as act:
            await tools.fill(desk, work, wish.id, act)
        case Reset() as act:
            await tools.reset(desk, work, wish.id, act)


async def _grant_queued(desk: Desk, work: Work, tx: Transaction, act: Cancel | Replace | Bump) -> None:
    """It lost its slot after the wish was made: nobody else has it now, but the row is every node's."""
    if not isinstance(act, Cancel) and isinstance(act.fees, Fees) and act.fees.firm:
        _refuse_above_cap(desk, act.fees)
    match act:
        case Cancel():
            if desk.lane.record.quarantined_below is not None or desk.lane.twin_of(tx) is not None:
                raise Refusal(
                    "may_have_run", "nobody can say yet whether it ran; ask again when the lane is reconciled"
                )
            work.move(tx, lifecycle.Cancelled())
        case Replace(_, payload, fees):
            work.move(tx, lifecycle.Replaced(payload))
            if fees is not None:
                work.move(tx, lifecycle.Valued(fees))
        case Bump(_, fees):
            if fees is not None:
                work.move(tx, lifecycle.Valued(fees))
    desk.assign_due = True


async def _grant_sent(desk: Desk, work: Work, tx: Transaction, slot: Slot, act: Cancel | Replace | Bump) -> None:
    match act:
        case Cancel():
            # Executed already, it is only cancelled if the chain takes that back.
            if slot.wanted in (Wanted.PAYLOAD, Wanted.NOTHING):
                work.slot(replace(slot, wanted=Wanted.CANCEL, payload_version=0))
        case Replace(_, payload, fees):
            _refuse_if_executed(desk, slot)
            if slot.wanted is not Wanted.PAYLOAD:
                raise Refusal("already_cancelled", "it is being cancelled; send a new transaction instead")
            await _replace(desk, work, tx, slot, payload, tx.fees if fees is None else fees)
        case Bump(_, fees):
            _refuse_if_executed(desk, slot)
            await _bump(desk, work, tx, slot, fees)


def _refuse_if_executed(desk: Desk, slot: Slot) -> None:
    if slot.receipt is not None:
        raise Refusal("already_executed", "a block has executed it already")
    if desk.lane.is_consumed(slot):
        raise Refusal("nonce_used", "something else has used its nonce, it seems; its outcome tells")


async def _replace(desk: Desk, work: Work, tx: Transaction, slot: Slot, payload: Payload, wish: Speed | Fees) -> None:
    gas = payload.gas
    if gas is None or tx.simulate:
        try:
            estimated = await desk.estimate(payload)
        except NodeRefused as refusal:
            if policy.refusal_verdict(refusal) is policy.Estimate.REVERTS:
                raise Refusal("would_revert", f"it would revert: {refusal.message}") from None
            raise
        gas = estimated if gas is None else gas
    limit = (await desk.eyes.market()).gas_limit
    if limit is not None and gas > limit:
        raise Refusal("gas_above_block", f"it takes {gas} gas, and a block of this chain has room for {limit}")
    offer = await _offer(desk, slot, wish)
    draft = Draft(lane=desk.key, nonce=slot.nonce, payload=payload, gas=gas, fees=offer)
    data_fee = await _dearer_data(desk, draft)
    known = desk.lane.data_fees.get(slot.nonce, 0)
    _refuse_unless_payable(desk, slot, payload.value + gas * offer.max_fee + data_fee - known)
    replaced = work.move(tx, lifecycle.Replaced(payload))
    if wish != tx.fees:
        work.move(tx, lifecycle.Valued(wish))
    version = replaced.payload_version
    [attempt] = await signing.sign(desk, [signing.prepare(desk, draft, AttemptKind.REPLACEMENT, tx.id, version)])
    work.add_attempt(replace(slot, payload_version=version), attempt)
    work.move(tx, lifecycle.Repriced(attempt.hash, offer, attempt.kind))
    if data_fee:
        desk.lane.data_fees[slot.nonce] = data_fee


async def _dearer_data(desk: Desk, draft: Draft) -> Wei:
    """What the chain takes at most for publishing whichever runs at this nonce: this one, or what it replaces."""
    known = desk.lane.data_fees.get(draft.nonce, 0)
    if not desk.chain.charges_for_data:
        return known
    [fee] = await desk.eyes.ask(lambda endpoint: endpoint.data_fees([draft]))
    return max(fee, known)


async def _bump(desk: Desk, work: Work, tx: Transaction, slot: Slot, fees: Speed | Fees | None) -> None:
    newest = slot.newest
    if newest is None:
        raise Refusal("not_signed", "what cancels it is not signed yet; it will be at the market's price")
    nothing = slot.payload_version == 0
    offer = await _offer(desk, slot, _bumped(desk, slot, tx) if fees is None else fees)
    payload = Payload.nothing(desk.key.address) if nothing else tx.payload
    _refuse_unless_payable(desk, slot, payload.value + newest.gas * offer.max_fee)
    is_cap = isinstance(tx.fees, Fees) and tx.fees.firm
    named = offer if fees is None and is_cap else fees
    if named is not None and not nothing:
        work.move(tx, lifecycle.Valued(named))
    kind = AttemptKind.CANCEL if nothing else AttemptKind.BUMP
    draft = Draft(lane=desk.key, nonce=slot.nonce, payload=payload, gas=newest.gas, fees=offer)
    [attempt] = await signing.sign(desk, [signing.prepare(desk, draft, kind, tx.id, slot.payload_version)])
    work.add_attempt(slot, attempt)
    work.move(tx, lifecycle.Repriced(attempt.hash, offer, kind))


def _bumped(desk: Desk, slot: Slot, tx: Transaction) -> Speed:
    """Named fees are a cap. Who asks for more without saying how much lifts it: the market says."""
    wish = policy.wish_of(slot, tx)
    return wish if isinstance(wish, Speed) else desk.rules.fees.speed


async def _offer(desk: Desk, slot: Slot, wish: Speed | Fees) -> Fees:
    """What takes the place of all that nodes may hold for the slot, at the price that is asked for."""
    price = slot.price
    assert price is not None  # of a transaction's slot: something is signed
    rules, least = desk.rules.fees, prices.replacement_floor(price, desk.rules.fees)
    if isinstance(wish, Fees) and not wish.firm:
        named = prices.held_to_caps(wish, rules)
        if _replaces(named, least):
            return named
    elif isinstance(wish, Fees):
        if (wish.priority is None) != (least.priority is None):
            raise Refusal("wrong_fee_type", "name the same kind of fees as it was signed with: the type is kept")
        if not _replaces(wish, least):
            needed = f"max_fee {least.max_fee}" + (f", priority {least.priority}" if least.priority is not None else "")
            raise Refusal("underpriced", f"nodes want at least {needed} wei to replace what they hold")
        _refuse_above_cap(desk, wish)
        return wish
    offer = prices.raised(price, wish, await desk.eyes.market(), rules)
    if offer is None:
        raise Refusal("price_at_cap", f"its price of {price.max_fee} wei is at the cap already")
    return offer


def _replaces(offer: Fees, least: Fees) -> bool:
    same_type = (offer.priority is None) == (least.priority is None)
    return same_type and offer.max_fee >= least.max_fee and (offer.priority or 0) >= (least.priority or 0)


def _refuse_above_cap(desk: Desk, fees: Fees) -> None:
    if not prices.is_within_caps(fees, desk.rules.fees):
        raise Refusal("fee_above_cap", "the price is above the cap of this account or chain")


def _refuse_unless_payable(desk: Desk, slot: Slot, cost: Wei) -> None:
    if not desk.lane.can_pay(slot, cost):
        raise Refusal("insufficient_funds", "the account cannot pay that beside what is in flight; fund the account")
