"""Nothing stands still for ever, and what does stand still blocks nobody else."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from nonchalant.fees import FeeRules
from nonchalant.model import Answer, AttemptKind, Speed, State
from nonchalant.policy import Patience
from nonchalant.ports import Filter
from nonchalant.sim.gate import Ambush, Boundary, StoreAilment
from nonchalant.sim.pool import BESU, GATEWAY, No
from nonchalant.sim.wire import Effect
from tests.lessons import lesson
from tests.stages.rig import ABROAD, ALICE, BOB, CHAIN, ETHER, GWEI, OTHER_CHAIN, Rig, refused, staged

TOO_LITTLE_GAS = 21_000  # for any data: nodes refuse such bytes for what they are
QUICK_BUMP = Patience(bump_after=dict.fromkeys(Speed, 20_000))


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


# gaps


@lesson("gap-without-traffic")
@staged()
async def test_a_gap_heals_with_no_traffic(rig: Rig) -> None:
    faulty, sound = await rig.submit("faulty", gas=TOO_LITTLE_GAS), await rig.submit("sound")
    await rig.reaches(faulty, State.FAILED)
    await rig.advance(5.0)
    assert (await rig.read(sound)).nonce == 1
    assert rig.slots() == {0: "filler", 1: sound.id}
    await rig.mine()
    await rig.finalise()
    assert await rig.state(sound) is State.CONFIRMED
    assert rig.order_of_execution() == ["", "sound"]
    assert len(await rig.events("lane.filled")) == 1


@lesson("gap-without-traffic")
@staged(window=2)
async def test_a_gap_is_closed_by_what_is_queued_before_a_filler_is_made(rig: Rig) -> None:
    faulty = await rig.submit("faulty", gas=TOO_LITTLE_GAS)
    sound, waiting = await rig.submit("sound"), await rig.submit("waiting")
    await rig.reaches(faulty, State.FAILED)
    await rig.advance(5.0)
    assert rig.slots() == {0: waiting.id, 1: sound.id}
    await rig.mine()
    assert rig.order_of_execution() == ["waiting", "sound"]


@lesson("count-comes-down")
@staged()
async def test_a_slot_given_back_at_the_end_is_the_next_one_to_be_given_out(rig: Rig) -> None:
    sound = await rig.submit("sound")
    faulty = [await rig.submit(label, gas=TOO_LITTLE_GAS) for label in ("faulty", "faulty too")]
    await rig.reaches(faulty[1], State.FAILED)
    await rig.advance(5.0)
    assert rig.slots() == {0: sound.id}
    later = await rig.submit("later")
    await rig.reaches(later, State.SENT)
    assert (await rig.read(later)).nonce == 1
    assert (await rig.lane()).record.next_nonce == 2
    await rig.mine()
    assert rig.order_of_execution() == ["sound", "later"]


@lesson("first-nonce")
@staged(nodes=0)
async def test_a_new_lane_starts_at_the_mined_count_and_not_at_the_pending_one(rig: Rig) -> None:
    rig.intrude()
    await rig.mine()
    assert rig.chain.intrude_pools(ALICE.address, 0, 21 * GWEI)
    assert rig.chain.intrude_pools(ALICE.address, 1, 21 * GWEI)
    await rig.start_node()
    tx = await rig.submit("pay")
    await rig.reaches(tx, State.SIGNED)
    assert (await rig.read(tx)).nonce == 1


@lesson("first-nonce")
@staged()
async def test_what_every_pool_dropped_is_sent_again(rig: Rig) -> None:
    txs = await rig.submit_all(f"pay-{n}" for n in range(4))
    await rig.reaches(txs[-1], State.SENT)
    for voice in rig.endpoints:
        voice.forget_pool()
    await rig.advance(20.0)
    assert [voice.pooled(ALICE) for voice in rig.endpoints] == [[0, 1, 2, 3]] * 3
    assert [len(await rig.attempts(tx)) for tx in txs] == [1] * 4


@lesson("swallowed-gap")
@staged(flavours=(GATEWAY,) * 3)
async def test_a_gateway_that_swallows_a_gapped_nonce_gets_it_again(rig: Rig) -> None:
    for voice in rig.endpoints:
        voice.refuse("txpool is full", only=lambda sent: sent.nonce == 0)
    txs = await rig.submit_all(f"pay-{n}" for n in range(3))
    await rig.advance(3.0)
    assert [attempt.answer for tx in txs[1:] for attempt in await rig.attempts(tx)] == ["accepted"] * 2
    assert rig.endpoints[0].pooled(ALICE) == []
    for voice in rig.endpoints:
        voice.heal()
    await rig.advance(45.0)
    await rig.mine()
    assert rig.account().count == 3


@lesson("gap-refused-late")
@staged(flavours=(BESU,) * 3)
async def test_nonce_too_high_keeps_its_slot_and_is_sent_again_after_the_hole_is_closed(rig: Rig) -> None:
    for voice in rig.endpoints:
        voice.refuse("txpool is full", only=lambda sent: sent.nonce == 0)
    txs = await rig.submit_all(f"pay-{n}" for n in range(3))
    await rig.advance(3.0)
    assert No.GAPPED in {verdict for _, _, verdict in rig.arrivals}
    for voice in rig.endpoints:
        voice.heal()
    await rig.advance(45.0)
    assert await rig.nonces(txs) == [0, 1, 2]
    await rig.mine()
    assert rig.account().count == 3


@lesson("account-limit")
@staged(account_limit=2)
async def test_an_account_limit_below_our_window_slows_a_lane_and_stops_nothing(rig: Rig) -> None:
    txs = await rig.submit_all(f"pay-{n}" for n in range(6))
    await rig.advance(3.0)
    assert No.TOO_MANY in {verdict for _, _, verdict in rig.arrivals}
    for _ in range(4):
        await rig.mine()
        await rig.advance(20.0)
    await rig.finalise()
    assert await rig.states(txs) == [State.CONFIRMED] * 6
    assert rig.order_of_execution() == [f"pay-{n}" for n in range(6)]


# prices


@lesson("price-cap")
@staged(patience=QUICK_BUMP, fees=FeeRules(max_fee=43 * GWEI))
async def test_at_the_price_cap_it_is_sent_again_and_again(rig: Rig) -> None:
    tx = await rig.submit("pay")
    await rig.reaches(tx, State.SENT)
    rig.chain.fee_level = 80 * GWEI
    await rig.mine(15, empty=True)
    assert await rig.mark(tx) == "price_at_cap"
    attempts = len(await rig.attempts(tx))
    for _ in range(3):
        for voice in rig.endpoints:
            voice.forget_pool()
        await rig.advance(20.0)
        assert [voice.pooled(ALICE) for voice in rig.endpoints] == [[0]] * 3
    assert len(await rig.attempts(tx)) == attempts
    assert all(attempt.fees.max_fee <= 43 * GWEI for attempt in await rig.attempts(tx))
    rig.chain.fee_level = 20 * GWEI
    await rig.mine(12)
    await rig.finalise()
    assert await rig.state(tx) is State.CONFIRMED


@lesson("bounded-history")
@staged(patience=QUICK_BUMP, fees=FeeRules(max_fee=42 * GWEI))
async def test_hours_at_the_cap_add_neither_attempts_nor_events(rig: Rig) -> None:
    for voice in rig.endpoints:
        voice.refuse("transaction underpriced")
    tx = await rig.submit("pay")
    await rig.advance(120.0)
    events, attempts = len(await rig.history(tx)), rig.attempts_ever()
    await rig.advance(600.0)
    assert (len(await rig.history(tx)), rig.attempts_ever()) == (events, attempts)


@lesson("price-cap")
@staged(patience=QUICK_BUMP)
async def test_an_underpriced_transaction_is_bumped_until_the_market_takes_it(rig: Rig) -> None:
    tx = await rig.submit("pay")
    await rig.reaches(tx, State.SENT)
    rig.chain.fee_level = 200 * GWEI
    await rig.mine(12, empty=True)
    assert rig.chain.head.base_fee > 43 * GWEI
    await rig.mine(40)
    await rig.finalise()
    confirmed = await rig.read(tx)
    assert confirmed.state is State.CONFIRMED
    assert confirmed.hash == (await rig.attempts(tx))[-1].hash
    assert len(await rig.attempts(tx)) > 1


# wake-ups


@lesson("lost-wake-up")
@staged()
async def test_a_lost_wake_up_is_found_by_the_sweep(rig: Rig) -> None:
    rig.lose_wake_ups(rig.node)
    first = await rig.submit("first")  # nobody holds the lane
    await rig.reaches(first, State.SENT, 5.0)
    second = await rig.submit("second")  # somebody does
    await rig.reaches(second, State.SENT, 5.0)


@lesson("lost-wake-up")
@staged(nodes=2)
async def test_a_process_killed_between_insert_and_wake_up_leaves_work_that_another_finds(rig: Rig) -> None:
    one, other = rig.nodes
    rig.kill_at(one, "store.accept", Boundary.AFTER)
    rig.spawn(rig.submit("pay", via=one))
    await rig.advance(1.0)
    assert one.gate.dead
    [found] = await rig.store.transactions(Filter())
    await rig.reaches(found, State.SENT)
    assert (await rig.lane()).owner == other.engine.cluster.owner


# one does not block another


@lesson("global-window")
@staged(window=2, fees=FeeRules(max_fee=30 * GWEI))
async def test_one_stuck_lane_does_not_block_another(rig: Rig) -> None:
    for voice in rig.endpoints:
        voice.refuse("txpool is full", only=lambda sent: sent.sender == ALICE.address)
    await rig.submit_all([f"stuck-{n}" for n in range(20)], ALICE)
    await rig.advance(3.0)
    going = await rig.submit_all([f"going-{n}" for n in range(6)], BOB)
    await rig.reaches(going[0], State.SENT)
    for _ in range(3):
        await rig.mine()
    await rig.finalise()
    assert await rig.states(going) == [State.CONFIRMED] * 6
    assert rig.account(ALICE).count == 0


@lesson("slow-neighbour")
@staged(lanes=(ALICE, ABROAD))
async def test_one_dead_chain_does_not_slow_another(rig: Rig) -> None:
    for voice in rig.endpoints_abroad:
        voice.down()
    await rig.submit("abroad", ABROAD)
    await rig.advance(5.0)
    tx = await rig.submit("here", ALICE)
    await rig.reaches(tx, State.SENT, 2.0)
    rig.chains[CHAIN].mine()
    await rig.reaches(tx, State.MINED, 4.0)
    for voice in rig.endpoints_abroad:
        voice.heal()
    await rig.advance(10.0)
    await rig.mine(chain=rig.chains[OTHER_CHAIN])
    assert rig.executions("abroad") == 1


@lesson("slow-neighbour")
@staged()
async def test_one_dead_endpoint_does_not_slow_the_others(rig: Rig) -> None:
    rig.endpoints[0].down()
    rig.dice.producer = rig.endpoints[1]
    await rig.advance(10.0)
    tx = await rig.submit("pay")
    await rig.reaches(tx, State.SENT, 2.0)
    rig.chain.mine()
    await rig.reaches(tx, State.MINED, 5.0)


@lesson("poisonous-row")
@staged(balance=2**300)
async def test_a_payload_that_cannot_be_encoded_does_not_stop_its_lane(rig: Rig) -> None:
    before = await rig.submit("before")
    poison = await rig.submit("poison", value=2**256, gas=100_000)
    after = await rig.submit("after")
    await rig.advance(5.0)
    assert await rig.states([before, poison, after]) == [State.SENT, State.FAILED, State.SENT]
    assert await rig.nonces([before, after]) == [0, 1]
    await rig.mine()
    assert rig.order_of_execution() == ["before", "after"]


@lesson("poisonous-row")
@pytest.mark.parametrize("column", ["payload", "fees"])
@staged(window=1)
async def test_one_undecodable_row_does_not_stop_its_lane(rig: Rig, column: str) -> None:
    rig.signer.down = True
    poison = await rig.submit("poison")
    rig.database.execute(f"UPDATE transactions SET {column} = '{{' WHERE id = ?", [poison.id])
    rig.signer.down = False
    after = await rig.submit("after")
    await rig.reaches(after, State.SENT, 10.0)
    row = rig.database.execute("SELECT held, nonce, attention FROM transactions WHERE id = ?", [poison.id]).fetchone()
    assert (row["held"], row["nonce"]) == (1, None)
    assert "undecodable" in row["attention"]


@lesson("head-of-line")
@staged(window=1)
async def test_a_transaction_that_always_reverts_leaves_the_line_and_spends_no_nonce(rig: Rig) -> None:
    hopeless = await rig.submit("hopeless", effect=Effect.NEVER)
    after = await rig.submit("after")
    failed = await rig.reaches(hopeless, State.FAILED)
    assert failed.failure is not None
    assert "would revert" in failed.failure
    await rig.reaches(after, State.SENT)
    assert (await rig.read(after)).nonce == 0
    assert rig.sent("hopeless") == []


@lesson("head-of-line")
@staged()
async def test_a_transaction_too_dear_for_the_account_lets_others_pass(rig: Rig) -> None:
    dear = await rig.submit("dear", value=100 * ETHER)
    cheap = await rig.submit("cheap", value=ETHER)
    await rig.reaches(cheap, State.SENT)
    assert (await rig.read(cheap)).nonce == 0
    assert await rig.state(dear) is State.QUEUED
    assert await rig.mark(dear) == "insufficient_funds"


# ownership over time


@lesson("frozen-lease")
@staged(nodes=2)
async def test_a_crash_freezes_a_lane_no_longer_than_its_lease(rig: Rig) -> None:
    tx = await rig.submit("pay")
    await rig.reaches(tx, State.SENT)
    owner = (await rig.lane()).owner
    [dying] = [node for node in rig.nodes if node.engine.cluster.owner == owner]
    [heir] = [node for node in rig.nodes if node is not dying]
    rig.kill(dying)
    more = await rig.submit("more", via=heir)
    await rig.reaches(more, State.SENT, rig.setting.lease_seconds + 3.0)
    assert (await rig.lane()).owner == heir.engine.cluster.owner


@lesson("polite-stop")
@staged(nodes=2)
async def test_a_node_that_is_asked_to_stop_hands_its_lanes_over_at_once(rig: Rig) -> None:
    tx = await rig.submit("pay")
    await rig.reaches(tx, State.SENT)
    owner = (await rig.lane()).owner
    [stopping] = [node for node in rig.nodes if node.engine.cluster.owner == owner]
    [heir] = [node for node in rig.nodes if node is not stopping]
    await rig.stop(stopping)
    more = await rig.submit("more", via=heir)
    await rig.reaches(more, State.SENT, 2.5)
    assert (await rig.lane()).owner == heir.engine.cluster.owner


@lesson("polite-stop")
@staged()
async def test_a_node_that_stops_records_what_its_last_sends_said(rig: Rig) -> None:
    async def slow(raws: Sequence[bytes]) -> Sequence[Answer]:
        await rig.advance(3.0)
        return await rig.endpoints[0].endpoint.send(raws)

    rig.endpoints[0].answer("send", slow)
    for voice in rig.endpoints[1:]:
        voice.refuse("insufficient funds for gas * price + value")
    tx = await rig.submit("pay")
    await rig.reaches(tx, State.SIGNED)
    await rig.advance(0.5)
    await rig.stop(rig.node)
    assert await rig.state(tx) is State.SENT
    assert (await rig.lane()).owner is None


@lesson("requeued-place")
@staged(window=1)
async def test_a_re_queued_transaction_keeps_its_place(rig: Rig) -> None:
    first = await rig.submit("first")
    await rig.reaches(first, State.SENT)
    rig.intrude()
    await rig.mine()
    second, third, fourth = [await rig.submit(label) for label in ("second", "third", "fourth")]
    await rig.reaches(second, State.SENT)
    await rig.finalise(empty=True)
    assert await rig.state(first) is State.QUEUED
    await rig.mine(6)
    assert rig.order_of_execution()[1:] == ["second", "first", "third", "fourth"]
    assert (await rig.read(first)).place < (await rig.read(third)).place
    assert await rig.state(fourth) in {State.MINED, State.CONFIRMED}


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
    txs = await rig.submit_all((f"pay-{n}" for n in range(3)), value=ETHER)
    await rig.reaches(txs[-1], State.SENT)
    amount = rig.drain()
    for voice in rig.endpoints:
        voice.forget_pool()
    await rig.mine()
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
    for voice in rig.endpoints:
        voice.heal()
    await rig.advance(20.0)
    await rig.mine()
    await rig.finalise()
    assert await rig.state(tx) is State.CONFIRMED


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
