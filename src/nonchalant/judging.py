"""Judging: whether what is to be sent can go now, at which price, and what stands in its way.

Estimate and price come first, so that what cannot be sent spends no nonce.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import cache

from msgspec import Struct
from msgspec.structs import replace

from nonchalant import fees as prices
from nonchalant import funds, policy
from nonchalant.desk import Desk
from nonchalant.errors import NodeRefused, Unreachable
from nonchalant.health import OUT_OF_FUNDS
from nonchalant.model import Attempt, Attention, Draft, Fees, Market, Payload, Slot, Transaction
from nonchalant.poison import handling, subject_of
from nonchalant.words import Speed, TxId, Wei

# How often no answer is nothing to speak of, and how often an estimate is asked for that nodes refuse.
TRIES_BEFORE_A_MARK = 4
MOST_ESTIMATES = 10

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


async def judge(desk: Desk, due: Sequence[Transaction]) -> list[Verdict]:
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
    if tries(desk, tx) < MOST_ESTIMATES or not policy.may_be_its_own_fault(refusal):
        return False
    try:
        await desk.estimate(Payload.nothing(desk.key.address))
    except (NodeRefused, Unreachable):
        return False
    return True


def _unanswered(desk: Desk, tx: Transaction, problem: Unreachable) -> Attention | None:
    """Once is nothing; what lasts is worth a look."""
    if tries(desk, tx) < TRIES_BEFORE_A_MARK:
        return None
    reason = f"no endpoint says how much gas it takes ({problem}); look at the endpoints, or replace it by one that names its gas"
    return Attention(CANNOT_ESTIMATE, reason, desk.clock.now())


def tries(desk: Desk, tx: Transaction) -> int:
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
    drafts += [draft(desk, one, nonce) for one, nonce in zip(ready, desk.lane.take(len(ready)), strict=True)]
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


def draft(desk: Desk, one: Ready, nonce: int) -> Draft:
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


def note_data_fees(desk: Desk, ready: Sequence[Ready], attempts: Sequence[Attempt]) -> None:
    """What the chain takes for publishing what is in flight now, if it does."""
    if desk.chain.charges_for_data:
        charged = {one.tx.id: one.data_fee for one in ready}
        desk.lane.data_fees |= {one.nonce: charged[one.tx_id] for one in attempts if one.tx_id and charged[one.tx_id]}


def is_stopped(desk: Desk) -> bool:
    """Whether the lane is unfit, or its chain is another one. One without funds is not stopped: whatever it can pay
    proves that it has some."""
    unhealthy = desk.lane.record.unhealthy
    return desk.lane.is_behind or (unhealthy is not None and unhealthy.code != OUT_OF_FUNDS)
