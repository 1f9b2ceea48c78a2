"""Deadlines are judged by the store's clock, which all nodes share."""

from __future__ import annotations

import pytest

from nonchalant.model import State
from tests.stages.rig import Rig, staged

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
