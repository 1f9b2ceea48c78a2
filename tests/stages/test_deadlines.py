"""Deadlines are judged by the store's clock, which all nodes share."""

from __future__ import annotations

import pytest

from nonchalant.model import Transaction
from nonchalant.sim.gate import Boundary
from nonchalant.sim.pool import BESU
from nonchalant.sim.wire import Effect
from nonchalant.words import AttemptKind, Mode, State
from tests.stages.rig import ALICE, Rig, staged

HOUR = 3_600_000


@staged()
@pytest.mark.parametrize("skew", [-HOUR, HOUR])
async def test_a_wrong_clock_neither_calls_off_what_is_in_time_nor_forgets_what_is_not(rig: Rig, skew: int) -> None:
    rig.node.clock.skew_millis = skew
    tx = await rig.submit("pay", valid_for=60.0)
    await rig.reaches(tx, State.SENT)
    await rig.advance(50.0)
    assert len({one.payload_version for one in await rig.attempts(tx)}) == 1
    await rig.advance(20.0)
    await rig.mine()
    await rig.finalise()
    assert await rig.state(tx) is State.EXPIRED
    assert rig.executions("pay") == 0


@staged()
@pytest.mark.parametrize("skew", [-HOUR, HOUR])
async def test_what_is_overdue_in_the_queue_does_not_stop_what_is_behind_it(rig: Rig, skew: int) -> None:
    """A node whose clock is slow would sign it, and the store would refuse the whole batch, again and again."""
    rig.node.clock.skew_millis = skew
    rig.signer.down = True
    overdue = await rig.submit("overdue", valid_for=20.0)
    in_time = await rig.submit("in time", valid_for=1000.0)
    await rig.advance(15.0)
    assert await rig.state(overdue) is State.QUEUED
    await rig.advance(15.0)
    rig.signer.down = False
    await rig.reaches(in_time, State.SENT)
    assert await rig.state(overdue) is State.EXPIRED
    assert (await rig.read(overdue)).nonce is None


# before it is sent


@staged()
async def test_a_queued_transaction_past_its_deadline_ends_and_spends_no_nonce(rig: Rig) -> None:
    await rig.asking.control(ALICE, Mode.PAUSED)
    tx = await rig.submit("pay", valid_for=20.0)
    await rig.advance(15.0)
    assert await rig.state(tx) is State.QUEUED
    await rig.advance(10.0)
    ended = await rig.read(tx)
    assert (ended.state, ended.nonce, ended.attention) == (State.EXPIRED, None, None)
    assert await rig.history(tx) == ["tx.accepted", "tx.expired"]
    await rig.asking.control(ALICE, Mode.OPEN)
    await rig.advance(5.0)
    assert rig.slots() == {}


@staged()
async def test_a_held_transaction_expires_too(rig: Rig) -> None:
    await rig.asking.control(ALICE, Mode.PAUSED)
    tx = await rig.submit("pay", valid_for=20.0)
    await rig.asking.hold(tx.id)
    await rig.advance(25.0)
    ended = await rig.read(tx)
    assert (ended.state, ended.held) == (State.EXPIRED, False)


@staged()
async def test_what_waits_for_others_expires_in_its_place_and_what_is_behind_it_goes(rig: Rig) -> None:
    """Postponed again and again, it must not be forgotten there."""
    before = await rig.submit("before", after="nobody", effect=Effect.AFTER, gas=90_000)
    await rig.reaches(before, State.SENT)
    tx = await rig.submit("pay", valid_for=20.0, after="nobody", effect=Effect.AFTER)
    behind = await rig.submit("behind")
    await rig.reaches(behind, State.SENT)
    await rig.advance(25.0)
    assert await rig.state(tx) is State.EXPIRED
    assert await rig.nonces([before, behind]) == [0, 1]


# after it was sent


async def sent_and_overdue(rig: Rig) -> Transaction:
    tx = await rig.reaches(await rig.submit("pay", valid_for=20.0), State.SENT)
    await rig.advance(25.0)
    return tx


@staged()
async def test_a_cancel_takes_the_slot_of_what_is_overdue_and_then_it_expired(rig: Rig) -> None:
    tx = await sent_and_overdue(rig)
    ended = await rig.ends(tx)
    assert ended.state is State.EXPIRED
    assert ended.receipt is not None
    assert await rig.kinds(tx) == [AttemptKind.ORIGINAL, AttemptKind.CANCEL]
    assert ended.hash == (await rig.attempts(tx))[-1].hash
    assert rig.order_of_execution() == [""]
    assert (await rig.history(tx))[-1] == "tx.expired"


@staged()
async def test_a_payload_that_wins_against_its_deadline_ran(rig: Rig) -> None:
    tx = await rig.reaches(await rig.submit("pay", valid_for=20.0), State.SENT)
    for voice in rig.endpoints:
        voice.refuse("txpool is full")
    await rig.advance(25.0)
    ended = await rig.ends(tx)
    assert ended.state is State.CONFIRMED
    assert await rig.kinds(tx) == [AttemptKind.ORIGINAL, AttemptKind.CANCEL]
    assert rig.executions("pay") == 1


@staged()
async def test_what_was_mined_in_time_is_not_called_off_by_its_deadline(rig: Rig) -> None:
    tx = await rig.reaches(await rig.submit("pay", valid_for=20.0), State.SENT)
    await rig.mine()
    await rig.advance(25.0)
    await rig.finalise()
    assert await rig.state(tx) is State.CONFIRMED
    assert await rig.kinds(tx) == [AttemptKind.ORIGINAL]


@staged(flavours=(BESU,) * 3)
async def test_a_reorg_past_the_deadline_sends_the_cancel_and_not_the_payload(rig: Rig) -> None:
    tx = await rig.reaches(await rig.submit("pay", valid_for=20.0), State.SENT)
    await rig.mine()
    await rig.advance(25.0)
    sends = len(rig.sent("pay"))
    await rig.reorg(1)
    await rig.advance(5.0)
    assert (await rig.ends(tx)).state is State.EXPIRED
    assert len(rig.sent("pay")) == sends
    assert rig.executions("pay") == 0


@staged()
async def test_what_was_cancelled_before_its_deadline_is_called_cancelled(rig: Rig) -> None:
    tx = await rig.reaches(await rig.submit("pay", valid_for=20.0), State.SENT)
    await rig.asking.cancel(tx.id)
    await rig.advance(25.0)
    assert (await rig.ends(tx)).state is State.CANCELLED


@staged()
async def test_what_is_overdue_and_lost_its_nonce_expires_and_is_not_queued_again(rig: Rig) -> None:
    tx = await rig.reaches(await rig.submit("pay", valid_for=20.0), State.SENT)
    rig.intrude()
    await rig.mine()
    await rig.advance(25.0)
    await rig.finalise()
    ended = await rig.reaches(tx, State.EXPIRED)
    assert ended.nonce is None
    await rig.mine(2)
    assert rig.executions("pay") == 0


@pytest.mark.parametrize("step", ["signer.sign", "store.commit", "node.send"])
@pytest.mark.parametrize("side", Boundary)
@staged()
async def test_a_crash_while_it_expires_changes_nothing(rig: Rig, step: str, side: Boundary) -> None:
    tx = await rig.reaches(await rig.submit("pay", valid_for=20.0), State.SENT)
    await rig.advance(18.0)
    rig.kill_at(rig.node, step, side)
    await rig.advance(5.0)
    await rig.start_node()
    await rig.advance(20.0)
    assert (await rig.ends(tx)).state is State.EXPIRED
    assert rig.executions("pay") == 0
