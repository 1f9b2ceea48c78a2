"""Funds on a chain that charges for data beside gas."""

from __future__ import annotations

import pytest

from nonchalant.errors import WishRefused
from nonchalant.model import Draft, Fees, Transaction
from nonchalant.words import AttemptKind, State, Wei
from tests.stages.rig import ALICE, GWEI, Rig, staged, unreachable

DATA_PRICE: Wei = 10**13  # a byte: dearer than all the gas of a transfer
FEES = Fees(30 * GWEI, GWEI)
GAS = 50_000
GAS_COST = GAS * FEES.max_fee


def asked(rig: Rig) -> int:
    return sum(voice.asked["data_fees"] for voice in rig.endpoints)


async def only(rig: Rig, balance: Wei) -> None:
    """The account owns just this."""
    rig.drain(leave=balance)
    await rig.mine()


async def pay(rig: Rig, label: str) -> Transaction:
    return await rig.submit(label, gas=GAS, fees=FEES)


async def fee_of(rig: Rig, tx: Transaction) -> Wei:
    """What publishing it costs, from the bytes that were signed."""
    [attempt] = await rig.attempts(tx)
    return rig.chain._decode(attempt.raw).data_fee


@staged(data_price=DATA_PRICE)
async def test_a_transaction_whose_data_the_account_cannot_pay_for_spends_no_nonce(rig: Rig) -> None:
    await only(rig, GAS_COST)  # enough, were there no fee for data
    tx = await pay(rig, "pay")
    await rig.advance(3.0)
    waiting = await rig.read(tx)
    assert (waiting.state, waiting.nonce) == (State.QUEUED, None)
    assert waiting.attention is not None
    assert waiting.attention.code == "insufficient_funds"
    short = int(waiting.attention.reason.split(" lacks ")[1].split(" wei")[0])
    rig.fund(short)
    await rig.mine()
    await rig.reaches(tx, State.SENT, 60.0)
    assert await fee_of(rig, tx) == short
    await rig.mine(4)  # one that had not seen the funds yet refused it, and is asked again
    await rig.finalise()
    ended = await rig.reaches(tx, State.CONFIRMED)
    assert ended.receipt is not None
    assert ended.receipt.l1_fee == short


@staged(data_price=DATA_PRICE)
async def test_the_fee_for_data_is_counted_for_what_is_in_flight(rig: Rig) -> None:
    first = await pay(rig, "one")
    await rig.reaches(first, State.SENT)
    fee = await fee_of(rig, first)
    await rig.mine()
    await only(rig, 2 * (GAS_COST + fee) - 1)
    second, third = await pay(rig, "two"), await pay(rig, "six")
    await rig.reaches(second, State.SENT)
    await rig.advance(5.0)
    assert (await rig.state(third), await rig.mark(third)) == (State.QUEUED, "insufficient_funds")
    rig.fund(1)
    await rig.mine(empty=True)
    await rig.reaches(third, State.SENT, 60.0)
    assert [await fee_of(rig, tx) for tx in (second, third)] == [fee, fee]


@staged(data_price=DATA_PRICE)
async def test_the_next_owner_counts_the_fee_of_what_it_finds_in_flight(rig: Rig) -> None:
    first = await pay(rig, "one")
    await rig.reaches(first, State.SENT)
    fee = await fee_of(rig, first)
    rig.kill(rig.node)
    rig.drain(leave=2 * (GAS_COST + fee) - 1)
    await rig.mine(empty=True)
    await rig.start_node()
    second = await pay(rig, "two")
    await rig.advance(20.0)
    assert (await rig.state(second), await rig.mark(second)) == (State.QUEUED, "insufficient_funds")
    rig.fund(1)
    await rig.mine(empty=True)
    await rig.reaches(second, State.SENT, 60.0)


@staged(data_price=DATA_PRICE)
async def test_each_transaction_is_asked_for_once(rig: Rig) -> None:
    txs = [await pay(rig, "one")]
    await rig.reaches(txs[0], State.SENT)
    assert asked(rig) == 1
    drafts: list[int] = []

    for voice in rig.endpoints:

        async def count(asking: list[object], answer: object = voice.endpoint.data_fees) -> object:
            drafts.append(len(asking))
            return await answer(asking)  # type: ignore[operator]

        voice.answer("data_fees", count)
    txs.append(await pay(rig, "two"))
    await rig.reaches(txs[1], State.SENT)
    assert drafts == [1]


@staged(data_price=DATA_PRICE)
async def test_while_nobody_tells_the_fee_for_data_nothing_is_signed_and_a_mark_says_so(rig: Rig) -> None:
    for voice in rig.endpoints:
        voice.fail("data_fees", unreachable())
    tx = await pay(rig, "pay")
    await rig.advance(10.0)
    assert (await rig.state(tx), await rig.mark(tx)) == (State.QUEUED, "data_fee_unknown")
    assert rig.attempts_ever(ALICE) == 0
    for voice in rig.endpoints:
        voice.heal()
    sent = await rig.reaches(tx, State.SENT, 60.0)
    assert sent.attention is None


@staged(data_price=DATA_PRICE)
async def test_a_replacement_whose_data_the_account_cannot_pay_for_is_refused(rig: Rig) -> None:
    tx = await pay(rig, "one")
    await rig.reaches(tx, State.SENT)
    longer, price = rig.payload("one" + 40 * "!", gas=GAS), Fees(40 * GWEI, 2 * GWEI)
    draft = Draft(lane=ALICE, nonce=0, payload=longer, gas=GAS, fees=price)
    [fee] = await rig.endpoints[0].endpoint.data_fees([draft])
    assert fee > await fee_of(rig, tx)
    rig.drain(leave=GAS * price.max_fee + fee - 1)
    await rig.mine(empty=True)
    await rig.advance(20.0)  # it was sent again, and the account looked at
    with pytest.raises(WishRefused, match="fund the account"):
        await rig.asking.replace(tx.id, longer, price, patience=30.0)
    assert [attempt.kind for attempt in await rig.attempts(tx)] == [AttemptKind.ORIGINAL]  # it goes on as it was
    rig.fund(1)
    await rig.mine(empty=True)
    await rig.advance(20.0)
    await rig.asking.replace(tx.id, longer, price, patience=30.0)
    replaced = (await rig.attempts(tx))[-1]
    assert rig.chain._decode(replaced.raw).data_fee == fee
    # What it may take is set aside at once, for its data too.
    [desk] = [desk for key, desk in rig.node.engine.desks.items() if key == ALICE]
    assert desk.lane.committed() == GAS * price.max_fee + fee


@staged(data_price=DATA_PRICE)
async def test_a_replacement_waits_until_the_fee_for_its_data_is_told(rig: Rig) -> None:
    tx = await pay(rig, "one")
    await rig.reaches(tx, State.SENT)
    for voice in rig.endpoints:
        voice.fail("data_fees", unreachable())
    await rig.asking.replace(tx.id, rig.payload("two", gas=GAS), Fees(40 * GWEI, 2 * GWEI), patience=5.0)
    assert len(await rig.attempts(tx)) == 1
    for voice in rig.endpoints:
        voice.heal()
    await rig.advance(20.0)
    assert [attempt.kind for attempt in await rig.attempts(tx)] == [AttemptKind.ORIGINAL, AttemptKind.REPLACEMENT]


@staged()
async def test_where_data_is_free_nobody_is_asked(rig: Rig) -> None:
    tx = await pay(rig, "pay")
    await rig.reaches(tx, State.SENT)
    assert asked(rig) == 0
