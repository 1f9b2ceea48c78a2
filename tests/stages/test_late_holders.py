"""Whoever reserved a nonce and did not come in time: it is closed by a filler, and his bytes may still win."""

from __future__ import annotations

from nonchalant.model import Fees
from nonchalant.wishes import Release, Use
from nonchalant.words import State
from tests.lessons import lesson
from tests.stages.acts import HOLDER, refusal, reserve, send_outside, signed
from tests.stages.rig import GWEI, Rig, staged


@lesson("reservation-reused")
@staged()
async def test_an_expired_reservation_is_closed_by_a_filler_and_never_by_a_transaction(rig: Rig) -> None:
    nonce = await reserve(rig, 10.0)
    await rig.advance(9.0)
    assert rig.slots() == {nonce: "reservation"}
    tx = await rig.submit("tx")
    await rig.advance(10.0)
    assert rig.slots() == {nonce: "filler", nonce + 1: tx.id}
    late = signed(nonce)
    assert (await refusal(rig, Use(nonce, HOLDER, late.hash, late.raw))).why == "reservation_expired"
    assert (await refusal(rig, Release(nonce, HOLDER))).why == "reservation_expired"
    await rig.mine()
    await rig.finalise()
    assert rig.order_of_execution() == ["", "tx"]
    assert await rig.events("lane.foreign") == []


@lesson("reservation-reused")
@staged()
async def test_the_last_nonce_of_a_lane_is_closed_too_when_its_holder_is_late(rig: Rig) -> None:
    await reserve(rig, 10.0)
    await rig.advance(15.0)
    assert rig.slots() == {0: "filler"}
    await rig.mine()
    await rig.finalise()
    assert rig.order_of_execution() == [""]
    tx = await rig.submit("tx")
    assert (await rig.reaches(tx, State.SENT)).nonce == 1


@lesson("reservation-reused")
@staged()
async def test_a_late_holder_may_still_win_and_is_no_stranger(rig: Rig) -> None:
    nonce = await reserve(rig, 10.0)
    tx = await rig.submit("behind")
    await rig.advance(15.0)
    assert rig.slots() == {0: "filler", 1: tx.id}
    send_outside(rig, signed(nonce, fees=Fees(900 * GWEI, 900 * GWEI)))
    await rig.mine()
    await rig.finalise()
    await rig.mine()
    assert rig.order_of_execution() == ["outside", "behind"]
    assert await rig.state(tx) is State.CONFIRMED
    assert await rig.events("lane.foreign") == []
    assert (await rig.lane()).slots == {}


@staged()
async def test_a_filler_for_a_late_holder_that_nodes_refuse_frees_nothing(rig: Rig) -> None:
    nonce = await reserve(rig, 10.0)
    for voice in rig.endpoints:
        voice.refuse("intrinsic gas too low", only=lambda sent: sent.nonce == nonce)
    tx = await rig.submit("tx")
    await rig.advance(100.0)
    assert rig.slots() == {nonce: "filler", nonce + 1: tx.id}
    assert await rig.lane_mark() == "filler_refused"
    for voice in rig.endpoints:
        voice.heal()
    await rig.advance(40.0)
    await rig.mine()
    await rig.finalise()
    assert await rig.state(tx) is State.CONFIRMED
    assert await rig.lane_mark() is None


@staged()
async def test_without_funds_a_late_holder_s_nonce_waits_with_a_mark(rig: Rig) -> None:
    rig.drain()
    await rig.mine()
    await reserve(rig, 10.0)
    await rig.advance(15.0)
    assert rig.slots() == {0: "filler"}
    assert rig.attempts_ever() == 0
    assert await rig.lane_mark() == "filler_refused"
    rig.fund(10**18)
    await rig.mine(2)
    await rig.advance(20.0)
    await rig.mine()
    await rig.finalise()
    assert rig.order_of_execution() == [""]
    assert await rig.lane_mark() is None
