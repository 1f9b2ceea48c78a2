"""Pausing and draining stop the giving out of nonces, on every node at once, and nothing else."""

from __future__ import annotations

import pytest

from nonchalant.errors import LaneDraining
from nonchalant.policy import Patience
from nonchalant.sim.pool import BESU
from nonchalant.words import Mode, Speed, State
from tests.stages.rig import ALICE, BOB, Rig, staged


@pytest.mark.parametrize("mode", [Mode.PAUSED, Mode.DRAINING])
@staged(window=2, flavours=(BESU,) * 3, patience=Patience(bump_after=dict.fromkeys(Speed, 20_000)))
async def test_a_closed_lane_watches_rescues_and_settles_and_assigns_nothing(rig: Rig, mode: Mode) -> None:
    flying, second, waiting = await rig.submit_all(["flying", "second", "waiting"])
    await rig.reaches(second, State.SENT)
    await rig.asking.control(ALICE, mode, "look at it")
    for voice in rig.endpoints:
        voice.forget_pool()
    await rig.advance(20.0)  # sent again
    for _ in range(9):
        await rig.mine(empty=True)  # bumped
    assert len(await rig.attempts(flying)) > 1
    await rig.mine()
    await rig.finalise()
    assert await rig.states([flying, second]) == [State.CONFIRMED] * 2
    assert await rig.state(waiting) is State.QUEUED
    await rig.asking.control(ALICE, Mode.OPEN)
    await rig.reaches(waiting, State.SENT)
    assert (await rig.ends(waiting)).state is State.CONFIRMED


@staged()
async def test_pausing_one_lane_leaves_the_others_alone(rig: Rig) -> None:
    await rig.asking.control(ALICE, Mode.PAUSED)
    mine, other = await rig.submit("mine"), await rig.submit("other", BOB)
    await rig.reaches(other, State.SENT)
    assert await rig.state(mine) is State.QUEUED


@staged()
async def test_a_paused_lane_takes_requests_and_a_draining_one_does_not(rig: Rig) -> None:
    await rig.asking.control(ALICE, Mode.PAUSED)
    tx = await rig.submit("waits", key="k")
    await rig.asking.control(ALICE, Mode.DRAINING)
    with pytest.raises(LaneDraining):
        await rig.submit("refused")
    assert (await rig.submit("waits", key="k")).id == tx.id  # a retry of what was taken is answered
    await rig.asking.control(ALICE, Mode.OPEN)
    await rig.submit("taken")
    await rig.reaches(tx, State.SENT)


@staged(nodes=2)
async def test_whichever_node_is_told_every_node_obeys_and_so_does_the_next(rig: Rig) -> None:
    for node in rig.nodes:
        rig.lose_wake_ups(node)
    tx = await rig.submit("first")
    await rig.reaches(tx, State.SENT)
    await rig.asking.control(ALICE, Mode.PAUSED)
    waiting = [await rig.submit(f"waiting-{n}", via=node) for n, node in enumerate(rig.nodes)]
    await rig.advance(10.0)
    for node in list(rig.nodes):
        rig.kill(node)
    await rig.start_node()
    await rig.advance(20.0)
    assert set(await rig.states(waiting)) == {State.QUEUED}
    await rig.asking.control(ALICE, Mode.OPEN)
    for one in waiting:
        await rig.reaches(one, State.SENT)


@staged(window=2)
async def test_pausing_in_the_middle_of_a_long_queue_stops_after_what_is_in_flight(rig: Rig) -> None:
    txs = await rig.submit_all(f"pay-{n}" for n in range(9))
    await rig.reaches(txs[1], State.SENT)
    await rig.asking.control(ALICE, Mode.PAUSED)
    await rig.mine(3)
    assert len(rig.slots()) == 2
    await rig.asking.control(ALICE, Mode.OPEN)
    for _ in range(6):
        await rig.mine()
    await rig.finalise()
    assert set(await rig.states(txs)) == {State.CONFIRMED}
    assert rig.order_of_execution() == [f"pay-{n}" for n in range(9)]


@staged()
async def test_in_a_paused_lane_wishes_are_granted(rig: Rig) -> None:
    bumped, cancelled = await rig.submit_all(["bumped", "cancelled"])
    await rig.reaches(cancelled, State.SENT)
    await rig.asking.control(ALICE, Mode.PAUSED)
    await rig.asking.bump(bumped.id, patience=5.0)
    await rig.asking.cancel(cancelled.id, patience=5.0)
    await rig.advance(2.0)
    await rig.ends(bumped)
    assert await rig.states([bumped, cancelled]) == [State.CONFIRMED, State.CANCELLED]


@staged()
async def test_a_paused_lane_that_holds_nothing_up_is_worked_by_nobody(rig: Rig) -> None:
    await rig.asking.control(ALICE, Mode.PAUSED)
    await rig.submit("waits")
    await rig.advance(30.0)
    assert (await rig.lane()).owner is None
