"""Nothing stands still for ever: no gap, no price, no lost wake-up and no lost owner."""

from __future__ import annotations

from collections.abc import Sequence

from nonchalant.fees import FeeRules
from nonchalant.model import Answer
from nonchalant.ports import Filter
from nonchalant.sim.gate import Boundary
from nonchalant.sim.pool import BESU, GATEWAY, No
from nonchalant.values import replace
from nonchalant.words import State
from tests.lessons import lesson
from tests.stages.acts import CHEAP, QUICK_BUMP, owner_of, sent
from tests.stages.rig import ALICE, GWEI, Rig, staged

TOO_LITTLE_GAS = 21_000  # for any data: nodes refuse such bytes for what they are


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


# ownership over time


@lesson("frozen-lease")
@staged(nodes=2)
async def test_a_crash_freezes_a_lane_no_longer_than_its_lease(rig: Rig) -> None:
    tx = await rig.submit("pay")
    await rig.reaches(tx, State.SENT)
    dying = await owner_of(rig)
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
    stopping = await owner_of(rig)
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


@staged(patience=QUICK_BUMP)
async def test_prices_that_were_only_to_begin_with_do_not_keep_a_transaction_from_being_bumped(rig: Rig) -> None:
    wish = replace(CHEAP, firm=False)
    [firm, begun] = await sent(rig, "firm", fees=CHEAP), await sent(rig, "begun", fees=wish)
    for _ in range(10):
        await rig.mine(empty=True)
    assert len(await rig.attempts(firm[0])) == 1
    prices = [attempt.fees for attempt in await rig.attempts(begun[0])]
    assert prices[0] == CHEAP
    assert prices[-1].max_fee > CHEAP.max_fee
    assert (await rig.read(begun[0])).fees == wish
