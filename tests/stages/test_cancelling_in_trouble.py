"""Cancelling while something is missing (a signature, a price, an answer, a lane's past) or a process dies."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from nonchalant.errors import MayHaveRun
from nonchalant.fees import FeeRules
from nonchalant.model import Answer, Fees, Refused
from nonchalant.sim.gate import Boundary
from nonchalant.sim.pool import BESU
from nonchalant.words import AttemptKind, State
from tests.lessons import lesson
from tests.stages.acts import QUICK_BUMP, cancelled_at_its_slot, lose_one, sent
from tests.stages.rig import GWEI, Rig, staged, unreachable

CANCEL, ORIGINAL = AttemptKind.CANCEL, AttemptKind.ORIGINAL

# when something is missing


@staged()
async def test_without_funds_the_cancel_is_marked_and_signed_when_they_come(rig: Rig) -> None:
    [tx] = await sent(rig, "pay")
    money = rig.drain()
    await rig.mine(empty=True)
    waiting = await rig.submit("waiting")  # for it the balance is asked
    await rig.tells(waiting, "tx.attention")
    await rig.asking.cancel(tx.id)
    await rig.tells(tx, "tx.attention")
    assert await rig.mark(tx) == "insufficient_funds"
    assert await rig.kinds(tx) == [ORIGINAL]
    rig.fund(money)
    await rig.mine(empty=True)
    await rig.tells(tx, "attempt.bumped")
    await rig.advance(1.0)
    await cancelled_at_its_slot(rig, tx)


@staged()
async def test_a_cancel_that_nodes_refuse_for_lack_of_funds_is_sent_until_they_come(rig: Rig) -> None:
    [tx] = await sent(rig, "pay")
    money = rig.drain()
    await rig.mine(empty=True)
    await rig.asking.cancel(tx.id)
    await rig.advance(60.0)
    assert await rig.mark(tx) == "insufficient_funds"
    assert await rig.kinds(tx) == [ORIGINAL, CANCEL]
    rig.fund(money)
    await rig.mine(empty=True)
    await rig.advance(20.0)
    await cancelled_at_its_slot(rig, tx)
    assert await rig.mark(tx) is None


@staged()
async def test_with_the_signer_down_the_payload_is_not_sent_again_and_the_cancel_comes_when_it_is_back(
    rig: Rig,
) -> None:
    [tx] = await sent(rig, "pay")
    rig.signer.down = True
    await rig.asking.cancel(tx.id)
    sends = len(rig.sent("pay"))
    await rig.advance(60.0)
    assert await rig.lane_mark() == "signer_failed"
    assert len(rig.sent("pay")) == sends
    rig.signer.down = False
    await rig.tells(tx, "attempt.bumped")
    await rig.advance(1.0)
    await cancelled_at_its_slot(rig, tx)


@staged()
async def test_with_no_prices_to_be_had_the_cancel_waits_for_them(rig: Rig) -> None:
    [tx] = await sent(rig, "pay")
    for voice in rig.endpoints:
        voice.fail("market", unreachable())
    await rig.mine(empty=True)
    await rig.asking.cancel(tx.id)
    await rig.advance(10.0)
    assert await rig.kinds(tx) == [ORIGINAL]
    for voice in rig.endpoints:
        voice.heal()
    await rig.tells(tx, "attempt.bumped")
    await rig.advance(1.0)
    await cancelled_at_its_slot(rig, tx)


@lesson("price-cap")
@staged(fees=FeeRules(max_fee=50 * GWEI), flavours=(BESU,) * 3)
async def test_at_the_cap_the_cancel_offers_all_it_may_and_is_sent_until_nodes_take_it(rig: Rig) -> None:
    [tx] = await sent(rig, "pay", fees=Fees(50 * GWEI, 2 * GWEI))
    await rig.asking.cancel(tx.id)
    await rig.tells(tx, "attempt.bumped")
    await rig.advance(1.0)
    cancel = (await rig.attempts(tx))[-1]
    assert (cancel.kind, cancel.fees.max_fee) == (CANCEL, 50 * GWEI)
    assert not any(voice.endpoint.pool.holds(cancel.hash) for voice in rig.endpoints)
    for voice in rig.endpoints:
        voice.forget_pool()
    await rig.advance(30.0)
    assert all(voice.endpoint.pool.holds(cancel.hash) for voice in rig.endpoints)
    await cancelled_at_its_slot(rig, tx)


@staged()
async def test_what_was_offered_beyond_reason_can_be_cancelled(rig: Rig) -> None:
    first, dear = await rig.submit("first"), await rig.submit("dear", fees=Fees(4_000 * GWEI, 3_000 * GWEI))
    await rig.reaches(dear, State.SENT)
    await rig.asking.cancel(dear.id)
    await rig.tells(dear, "attempt.bumped")
    await rig.advance(1.0)
    await rig.ends(first)
    assert await rig.states([first, dear]) == [State.CONFIRMED, State.CANCELLED]


@staged(patience=QUICK_BUMP)
async def test_a_cancel_that_waits_gets_a_better_price(rig: Rig) -> None:
    [tx] = await sent(rig, "pay")
    await rig.asking.cancel(tx.id)
    await rig.tells(tx, "attempt.bumped")
    for _ in range(12):
        await rig.mine(empty=True)
    kinds = await rig.kinds(tx)
    assert kinds[:3] == [ORIGINAL, CANCEL, CANCEL]
    assert set(kinds[1:]) == {CANCEL}
    prices = [attempt.fees.max_fee for attempt in await rig.attempts(tx)]
    assert prices == sorted(set(prices))
    await cancelled_at_its_slot(rig, tx)


@staged(window=3, largest_window=3)
async def test_in_quarantine_what_has_a_slot_is_cancelled_there_and_what_waits_only_after_it(rig: Rig) -> None:
    """A client may have asked again for what the store lost: whether what waits ran already shows at the end."""
    [tx] = await sent(rig, "pay")
    await lose_one(rig)
    waiting = await rig.submit("waiting")
    await rig.advance(15.0)
    assert await rig.lane_mark() == "quarantine"
    await rig.asking.cancel(tx.id)
    with pytest.raises(MayHaveRun):
        await rig.asking.cancel(waiting.id)
    await rig.asking.hold(waiting.id)  # that it can be told at any time
    await rig.tells(tx, "attempt.bumped")
    await rig.advance(1.0)
    await rig.mine(2)
    await rig.finalise()
    await rig.finalise()
    assert await rig.state(tx) is State.CANCELLED
    assert (await rig.asking.cancel(waiting.id)).state is State.CANCELLED
    assert (rig.executions("pay"), rig.executions("waiting"), rig.executions("lost")) == (0, 0, 1)


@staged()
async def test_when_every_node_refuses_the_bytes_of_payload_and_cancel_alike_the_slot_is_given_back(rig: Rig) -> None:
    async def slowly(raws: Sequence[bytes]) -> Sequence[Answer]:
        await rig.advance(5.0)
        return [Refused("invalid sender", -32000) for _ in raws]

    for voice in rig.endpoints:
        voice.answer("send", slowly)
    tx = await rig.submit("pay")
    await rig.reaches(tx, State.SIGNED)
    await rig.asking.cancel(tx.id)
    ended = await rig.reaches(tx, State.CANCELLED)
    assert (ended.nonce, ended.failure) == (None, None)
    assert rig.slots() == {}
    for voice in rig.endpoints:
        voice.heal()
    later = await rig.submit("later")
    assert (await rig.reaches(later, State.SENT)).nonce == 0


# when a process dies


@lesson("cancel-recorded-first")
@pytest.mark.parametrize("step", ["signer.sign", "store.commit", "node.send"])
@pytest.mark.parametrize("side", Boundary)
@staged()
async def test_a_crash_while_a_cancel_in_the_middle_is_granted_loses_neither_wish_nor_order(
    rig: Rig, step: str, side: Boundary
) -> None:
    before, tx, after = await sent(rig, "before", "pay", "after")
    rig.kill_at(rig.node, step, side)
    sends = len(rig.sent("pay"))
    await rig.asking.cancel(tx.id)
    await rig.advance(1.0)
    await rig.start_node()
    await rig.advance(15.0)  # the dead one's lease runs out
    await rig.tells(tx, "attempt.bumped")
    await rig.advance(2.0)
    assert len(rig.sent("pay")) == sends
    await cancelled_at_its_slot(rig, tx)
    assert await rig.states([before, after]) == [State.CONFIRMED] * 2


@staged(nodes=2)
async def test_a_wish_written_while_the_owner_stands_still_is_granted_by_who_takes_over(rig: Rig) -> None:
    [tx] = await sent(rig, "pay")
    owner = (await rig.lane()).owner
    old = next(node for node in rig.nodes if node.engine.cluster.owner == owner)
    old.gate.pause(40.0)
    await rig.asking.cancel(tx.id)
    await rig.tells(tx, "attempt.bumped", seconds=30.0)
    assert (await rig.lane()).owner != owner
    await rig.advance(30.0)  # the old one wakes up, and finds that it lost the lane
    await cancelled_at_its_slot(rig, tx)
    assert await rig.kinds(tx) == [ORIGINAL, CANCEL]
