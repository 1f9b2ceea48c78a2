"""What cannot be signed, stored, paid, estimated or taken now loses no nonce, and goes when it can."""

from __future__ import annotations

import pytest

from nonchalant.sim.gate import Ambush, Boundary, StoreAilment
from nonchalant.sim.pool import No
from nonchalant.windows import Pace
from nonchalant.words import AttemptKind, State
from tests.lessons import lesson
from tests.stages.acts import QUICK_BUMP, drained_in_flight, goes_once_all_are_well
from tests.stages.rig import ALICE, BOB, ETHER, Rig, refused, staged

TOO_LITTLE_GAS = 21_000  # for any data: nodes refuse such bytes for what they are


# signing and storing


@lesson("nonce-before-store")
@staged()
async def test_no_nonce_is_lost_while_the_signer_is_down(rig: Rig) -> None:
    rig.signer.down = True
    txs = await rig.submit_all(f"pay-{n}" for n in range(3))
    await rig.advance(30.0)
    assert rig.signer.asked > 1
    assert rig.slots() == {}
    assert await rig.states(txs) == [State.QUEUED] * 3
    assert await rig.lane_mark() == "signer_failed"
    rig.signer.down = False
    await rig.advance(10.0)
    assert await rig.lane_mark() is None
    await rig.mine()
    assert rig.order_of_execution() == ["pay-0", "pay-1", "pay-2"]


@lesson("nonce-before-store")
@pytest.mark.parametrize("ailment", [StoreAilment.REFUSED, StoreAilment.LOST_UNSAID])
@staged()
async def test_no_nonce_is_lost_when_storing_fails_after_signing(rig: Rig, ailment: StoreAilment) -> None:
    await rig.reaches(await rig.submit("first"), State.SENT)
    signed = Ambush("signer.sign", Boundary.AFTER, 0, lambda: rig.spoil_store(rig.node, ailment))
    rig.node.gate.lay(signed)
    txs = await rig.submit_all(f"pay-{n}" for n in range(3))
    await rig.advance(1.0)
    assert list(rig.slots()) == [0]
    assert rig.signer.asked == 2
    rig.node.gate.store_troubles.end()
    await rig.advance(10.0)
    assert await rig.nonces(txs) == [1, 2, 3]
    await rig.mine()
    assert rig.account().count == 4


@staged()
async def test_a_wrong_signature_is_never_stored_nor_sent(rig: Rig) -> None:
    rig.signer.wrong = True
    tx = await rig.submit("pay")
    await rig.advance(30.0)
    assert rig.signer.asked > 1
    assert rig.attempts_ever() == 0
    assert rig.arrivals == []
    assert await rig.state(tx) is State.QUEUED
    assert await rig.lane_mark() == "signer_failed"
    rig.signer.wrong = False
    await rig.reaches(tx, State.SENT)


@lesson("global-window")
@staged()
async def test_a_signer_that_is_down_pauses_its_own_lane_only(rig: Rig) -> None:
    rig.signers[ALICE].down = True
    stuck, going = await rig.submit("stuck", ALICE), await rig.submit("going", BOB)
    await rig.reaches(going, State.SENT, 5.0)
    await rig.mine()
    await rig.finalise()
    assert await rig.states([stuck, going]) == [State.QUEUED, State.CONFIRMED]
    assert await rig.lane_mark(BOB) is None


@staged(patience=QUICK_BUMP)
async def test_a_signer_that_is_down_does_not_stop_what_is_in_flight(rig: Rig) -> None:
    tx = await rig.submit("pay")
    await rig.reaches(tx, State.SENT)
    rig.signer.down = True
    await rig.advance(30.0)  # a bump is due, and cannot be signed
    assert len(await rig.attempts(tx)) == 1
    for voice in rig.endpoints:
        voice.forget_pool()
    await rig.advance(30.0)
    await rig.mine()
    await rig.finalise()
    assert await rig.state(tx) is State.CONFIRMED


# funds


@staged()
async def test_out_of_funds_queues_with_a_mark_and_goes_on_when_funds_are_back(rig: Rig) -> None:
    amount = rig.drain()
    await rig.mine()
    tx = await rig.submit("pay", value=ETHER)
    await rig.advance(5.0)
    assert await rig.state(tx) is State.QUEUED
    assert await rig.mark(tx) == "insufficient_funds"
    assert rig.slots() == {}
    rig.fund(amount)
    await rig.mine()
    await rig.reaches(tx, State.SENT, 60.0)
    await rig.mine()
    assert rig.order_of_execution() == ["pay"]


@staged()
async def test_what_is_in_flight_when_funds_run_out_keeps_its_slot_and_goes_when_they_are_back(rig: Rig) -> None:
    txs, amount = await drained_in_flight(rig)
    late = await rig.submit("late")
    await rig.advance(40.0)
    assert No.NO_FUNDS in {verdict for _, _, verdict in rig.arrivals}
    assert await rig.nonces([*txs, late]) == [0, 1, 2, None]
    rig.fund(amount)
    await rig.mine()
    await rig.advance(70.0)
    await rig.mine()
    assert rig.order_of_execution() == ["pay-0", "pay-1", "pay-2", "late"]


@staged()
async def test_insufficient_funds_from_every_endpoint_never_rebinds_the_slot(rig: Rig) -> None:
    for voice in rig.endpoints:
        voice.refuse("insufficient funds for gas * price + value", only=lambda sent: sent.nonce == 0)
    refused_by_all = await rig.submit("refused by all")
    await rig.advance(5.0)
    other = await rig.submit("other")
    await rig.advance(120.0)
    assert rig.slots() == {0: refused_by_all.id, 1: other.id}
    assert await rig.mark(refused_by_all) == "insufficient_funds"
    for voice in rig.endpoints:
        voice.heal()
    await rig.advance(20.0)
    await rig.mine()
    await rig.finalise()
    assert rig.order_of_execution() == ["refused by all", "other"]


# estimates


@lesson("try-later")
@pytest.mark.parametrize(
    "error",
    [
        refused("Your app has exceeded its compute units per second capacity.", 429),
        refused("Bad Gateway", 502),
        refused("service temporarily unavailable", 503),
        refused("the flux capacitor is out of tune", -32099),
        refused("header not found", -32000),
    ],
    ids=lambda error: str(error)[:20],
)
@staged()
async def test_an_estimate_error_that_is_no_verdict_waits(rig: Rig, error: Exception) -> None:
    for voice in rig.endpoints:
        voice.fail("estimate", error)
    tx = await rig.submit("pay")
    named = await rig.submit("gas named", gas=100_000)
    await rig.reaches(named, State.SENT)
    await rig.advance(60.0)
    assert await rig.state(tx) is State.QUEUED
    for voice in rig.endpoints:
        voice.heal()
    await rig.reaches(tx, State.SENT, 70.0)
    assert await rig.mark(tx) is None


@lesson("try-later")
@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("Your app has exceeded its compute units per second capacity.", 429),
        ("Bad Gateway", 502),
        ("the flux capacitor is out of tune", -32099),
    ],
)
@staged()
async def test_a_send_answered_by_429_or_5xx_keeps_its_slot_and_is_sent_again(
    rig: Rig, message: str, code: int
) -> None:
    for voice in rig.endpoints:
        voice.refuse(message, code)
    tx = await rig.submit("pay")
    await rig.advance(50.0)
    assert await rig.state(tx) is State.SENT  # a gateway may have passed it on
    assert (await rig.read(tx)).nonce == 0
    await goes_once_all_are_well(rig, tx)


# faulty bytes


@staged()
async def test_bytes_that_every_node_refuses_fail_and_their_slot_is_used_again(rig: Rig) -> None:
    faulty = await rig.submit("faulty", gas=TOO_LITTLE_GAS)
    failed = await rig.reaches(faulty, State.FAILED, 5.0)
    assert failed.failure is not None
    assert "intrinsic_gas_too_low" in failed.failure
    assert failed.nonce is None
    sound = await rig.submit("sound")
    await rig.reaches(sound, State.SENT)
    assert (await rig.read(sound)).nonce == 0
    await rig.mine()
    await rig.finalise()
    assert await rig.states([faulty, sound]) == [State.FAILED, State.CONFIRMED]


@pytest.mark.parametrize("silence", ["before", "after"])
@staged()
async def test_faulty_bytes_that_a_silent_node_may_hold_are_outrun_by_an_attempt_that_does_nothing(
    rig: Rig, silence: str
) -> None:
    silent = rig.endpoints[0]
    if silence == "before":
        silent.time_out_before()
    else:
        silent.time_out_after()
    faulty, behind = await rig.submit("faulty", gas=TOO_LITTLE_GAS), await rig.submit("behind")
    await rig.advance(10.0)
    assert await rig.state(faulty) is State.SENT
    silent.heal()
    await rig.advance(20.0)
    kinds = [attempt.kind for attempt in await rig.attempts(faulty)]
    assert kinds == [AttemptKind.ORIGINAL, AttemptKind.CANCEL]
    await rig.mine()
    assert await rig.state(faulty) is State.MINED  # its nonce is used; that may still be undone
    await rig.finalise()
    assert await rig.states([faulty, behind]) == [State.FAILED, State.CONFIRMED]
    assert rig.order_of_execution() == ["", "behind"]
    assert rig.executions("faulty") == 0


@staged()
async def test_faulty_bytes_signed_before_a_crash_count_as_left(rig: Rig) -> None:
    """The new owner cannot know whom the old one sent them to."""
    rig.kill_at(rig.node, "node.send")
    faulty = await rig.submit("faulty", gas=TOO_LITTLE_GAS)
    await rig.reaches(faulty, State.SIGNED)
    await rig.start_node()
    await rig.advance(14.0)
    assert (await rig.read(faulty)).nonce == 0
    await rig.advance(30.0)
    await rig.mine()
    await rig.finalise()
    assert await rig.state(faulty) is State.FAILED
    assert rig.order_of_execution() == [""]
    assert rig.slots() == {0: faulty.id}


# bytes that are sound, and that no node will ever take


@pytest.mark.parametrize("pace", list(Pace))
@pytest.mark.parametrize(
    ("message", "minutes"),
    [
        ("transaction gas limit too high (cap: 16777216, tx: 20000000)", 3),
        ("exceeds block gas limit", 3),
        ("out of counters", 3),
        ("invalid argument 0: no such luck", 12),
    ],
)
def test_what_no_node_will_ever_take_is_outrun_by_an_attempt_that_does_nothing(
    message: str, minutes: int, pace: Pace
) -> None:
    """Such an answer proves nothing about having left, so the nonce cannot be given back; but nobody behind it waits."""

    @staged(pace=pace)
    async def run(rig: Rig) -> None:
        for voice in rig.endpoints:
            voice.refuse(message, only=lambda sent: sent.order.label == "greedy")
        greedy, after = await rig.submit("greedy", gas=200_000), await rig.submit("after")
        for _ in range(3 * minutes):
            await rig.advance(14.0)
            await rig.mine(2)
        assert await rig.state(after) is State.CONFIRMED
        ended = await rig.ends(greedy)
        assert (ended.state, ended.nonce) == (State.FAILED, 0)
        assert [attempt.kind for attempt in await rig.attempts(greedy)] == [AttemptKind.ORIGINAL, AttemptKind.CANCEL]
        assert rig.order_of_execution() == ["", "after"]

    run()


@staged()
async def test_what_one_node_would_take_is_not_given_up(rig: Rig) -> None:
    """One node has a cap of its own; another one's pool is full for a while."""
    for voice, message in zip(rig.endpoints, ("exceeds block gas limit", "txpool is full"), strict=False):
        voice.refuse(message)
    for voice in rig.endpoints[2:]:
        voice.down()
    tx = await rig.submit("pay", gas=200_000)
    for _ in range(12):
        await rig.advance(30.0)
    assert {attempt.payload_version for attempt in await rig.attempts(tx)} == {1}
    await goes_once_all_are_well(rig, tx)
