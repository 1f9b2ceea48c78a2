"""Money: what is in flight counts, the lowest slots can be bumped, and a lane without funds says so and goes on."""

from __future__ import annotations

from nonchalant.model import Fees
from nonchalant.sim.pool import No
from nonchalant.words import LaneKey, State
from tests.lessons import lesson
from tests.stages.acts import QUICK_BUMP, drained_in_flight
from tests.stages.rig import ALICE, BOB, ETHER, GWEI, Rig, staged

GAS = 100_000
NAMED = Fees(50 * GWEI, GWEI)  # a price that is its own cap: nothing is kept for bumping it
COST = GAS * 50 * GWEI


async def paused_for(rig: Rig, lane: LaneKey = ALICE) -> str | None:
    unhealthy = (await rig.lane(lane)).record.unhealthy
    return unhealthy and unhealthy.code


async def told(rig: Rig, lane: LaneKey = ALICE) -> list[str]:
    """The lane's pauses, in order."""
    every = await rig.store.events_after(0, limit=100_000)
    return [event.kind for event in every if event.lane == lane and event.kind in ("lane.paused", "lane.resumed")]


# out of funds


@staged(balance=COST - 1)
async def test_a_lane_that_can_pay_for_nothing_pauses_and_goes_on_with_the_block_that_brings_funds(rig: Rig) -> None:
    tx = await rig.submit("pay", gas=GAS, fees=NAMED)
    await rig.advance(5.0)
    assert await paused_for(rig) == "insufficient_funds"
    unhealthy = (await rig.lane()).record.unhealthy
    assert unhealthy is not None
    assert "lacks 1 wei" in unhealthy.reason
    assert await rig.mark(tx) == "insufficient_funds"
    [event] = await rig.events("lane.paused")
    assert event.data["code"] == "insufficient_funds"
    await rig.advance(300.0)  # the longest wait between two tries is over many times
    assert rig.slots() == {}
    rig.fund(1)
    await rig.mine()
    assert await rig.state(tx) is State.SENT
    assert await paused_for(rig) is None
    assert await told(rig) == ["lane.paused", "lane.resumed"]


@staged(balance=COST - 1)
async def test_while_a_lane_is_out_of_funds_another_goes_on(rig: Rig) -> None:
    rig.fund(ETHER, BOB)
    await rig.mine()
    await rig.submit("poor", ALICE, gas=GAS, fees=NAMED)
    await rig.advance(3.0)
    going = await rig.submit("rich", BOB, gas=GAS, fees=NAMED)
    await rig.reaches(going, State.SENT, 3.0)
    assert (await paused_for(rig, ALICE), await paused_for(rig, BOB)) == ("insufficient_funds", None)


@lesson("head-of-line")
@staged(window=1)
async def test_what_the_account_can_pay_passes_what_it_cannot_and_the_lane_pauses_when_only_that_is_left(
    rig: Rig,
) -> None:
    dear = await rig.submit("dear", value=100 * ETHER)
    await rig.advance(3.0)
    assert await paused_for(rig) == "insufficient_funds"
    cheap = await rig.submit("cheap")
    await rig.reaches(cheap, State.SENT, 3.0)
    assert await paused_for(rig) is None  # something is in flight, and what it does not use comes back
    await rig.mine()
    assert await paused_for(rig) == "insufficient_funds"
    assert await told(rig) == ["lane.paused", "lane.resumed", "lane.paused"]
    rig.fund(101 * ETHER)
    await rig.mine()
    assert await rig.state(dear) is State.SENT
    assert rig.order_of_execution() == ["cheap"]


@staged()
async def test_while_something_is_in_flight_it_is_too_early_to_say_that_nothing_can_be_paid(rig: Rig) -> None:
    cheap = await rig.submit("cheap")
    await rig.reaches(cheap, State.SENT)
    dear = await rig.submit("dear", value=100 * ETHER)
    await rig.advance(130.0)  # the longest wait between two tries has come
    assert await rig.mark(dear) == "insufficient_funds"
    assert await told(rig) == []
    rig.fund(100 * ETHER)
    await rig.mine(empty=True)
    assert await rig.state(dear) is State.SENT


@staged(balance=0, window=4)
async def test_with_no_money_at_all_a_long_queue_is_not_estimated_through(rig: Rig) -> None:
    txs = await rig.submit_all(f"pay-{n}" for n in range(40))
    await rig.advance(60.0)
    assert sum(voice.asked["estimate"] for voice in rig.endpoints) < 40
    assert await paused_for(rig) == "insufficient_funds"
    rig.fund(10 * ETHER)
    await rig.mine(14)
    await rig.finalise()
    assert await rig.states(txs) == [State.CONFIRMED] * 40
    assert rig.order_of_execution() == [f"pay-{n}" for n in range(40)]


@staged()
async def test_a_cancelled_transaction_is_nothing_to_be_paused_for(rig: Rig) -> None:
    await rig.submit("dear", value=100 * ETHER)
    await rig.advance(3.0)
    assert await paused_for(rig) == "insufficient_funds"
    rig.database.execute("UPDATE transactions SET state = 'cancelled'")
    await rig.advance(70.0)
    assert await paused_for(rig) is None
    await rig.advance(10.0)
    assert (await rig.lane()).owner is None  # nothing is left to do, so nobody works it


# in flight


@staged()
async def test_slots_refused_for_funds_stay_bound_and_go_lowest_first_with_the_block_that_brings_funds(
    rig: Rig,
) -> None:
    txs, amount = await drained_in_flight(rig)
    await rig.advance(16.0)
    assert No.NO_FUNDS in {verdict for _, _, verdict in rig.arrivals}
    await rig.mine()
    assert await paused_for(rig) == "insufficient_funds"
    rig.arrivals.clear()
    rig.fund(amount)
    await rig.mine(empty=True)
    nonces = [tx.nonce for name, tx, _ in rig.arrivals if name == rig.endpoints[0].name]
    assert nonces == [0, 1, 2]
    assert await paused_for(rig) is None
    await rig.mine()
    assert rig.order_of_execution() == ["pay-0", "pay-1", "pay-2"]
    assert rig.slots() == {n: txs[n].id for n in range(3)}


@staged(balance=2 * COST)
async def test_what_is_in_flight_is_counted_before_more_is_signed(rig: Rig) -> None:
    txs = await rig.submit_all([f"pay-{n}" for n in range(3)], gas=GAS, fees=NAMED)
    await rig.reaches(txs[1], State.SENT)
    await rig.advance(5.0)
    assert await rig.states(txs) == [State.SENT, State.SENT, State.QUEUED]
    assert No.NO_FUNDS not in {verdict for _, _, verdict in rig.arrivals}


# the reserve


@staged(balance=COST)
async def test_the_last_wei_may_go_into_a_single_transaction(rig: Rig) -> None:
    tx = await rig.submit("sweep", gas=GAS, value=COST - GAS * 415 * GWEI // 10)
    await rig.reaches(tx, State.SENT)


@staged(balance=97 * GAS * GWEI, base_fee=20 * GWEI)
async def test_what_leaves_enough_for_bumping_the_lowest_goes(rig: Rig) -> None:
    """An offer is 41.5 gwei, and a third of that is kept for bumping the first: 97 are enough for both."""
    txs = await rig.submit_all(["first", "second"], gas=GAS)
    await rig.reaches(txs[1], State.SENT)


@staged(balance=96 * GAS * GWEI, base_fee=20 * GWEI, patience=QUICK_BUMP)
async def test_what_would_take_the_money_for_bumping_the_lowest_waits(rig: Rig) -> None:
    """An offer is 41.5 gwei: two of them fit the balance, but then the first could not be bumped three times."""
    first, second = await rig.submit_all(["first", "second"], gas=GAS)
    await rig.reaches(first, State.SENT)
    await rig.advance(2.0)
    assert await rig.states([first, second]) == [State.SENT, State.QUEUED]
    assert await rig.mark(second) == "insufficient_funds"
    rig.chain.fee_level = 60 * GWEI
    await rig.mine(9, empty=True)
    await rig.advance(20.0)
    assert len(await rig.attempts(first)) > 1
    assert No.NO_FUNDS not in {verdict for _, _, verdict in rig.arrivals}
    rig.fund(ETHER)
    await rig.mine()
    assert await rig.states([first, second]) == [State.MINED, State.SENT]
