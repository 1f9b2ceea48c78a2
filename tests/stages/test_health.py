"""Checks that stop a lane from giving out nonces, and nothing else; and that let it go on by themselves."""

from __future__ import annotations

from nonchalant.health import HealthRules
from nonchalant.words import State
from tests.lessons import lesson
from tests.stages.rig import ABROAD, ALICE, BOB, ETHER, OTHER_CHAIN, Rig, staged
from tests.stages.test_funds import paused_for, told


@staged(balance=2 * ETHER, health=HealthRules(min_balance=ETHER))
async def test_a_balance_below_the_minimum_stops_assignment_until_it_is_filled_up(rig: Rig) -> None:
    first = await rig.submit("first", value=3 * ETHER // 2)
    await rig.reaches(first, State.SENT)
    await rig.mine()
    second = await rig.submit("second")
    await rig.advance(5.0)
    assert await paused_for(rig) == "balance_below_minimum"
    assert await rig.states([first, second]) == [State.MINED, State.QUEUED]
    await rig.finalise()  # what was sent before goes on
    assert await rig.state(first) is State.CONFIRMED
    rig.fund(ETHER)
    await rig.mine()
    assert await rig.state(second) is State.SENT
    assert await told(rig) == ["lane.paused", "lane.resumed"]


@staged(balance=ETHER - 1, health=HealthRules(min_balance=ETHER))
async def test_a_lane_with_nothing_to_do_is_looked_after_until_it_is_well(rig: Rig) -> None:
    tx = await rig.submit("pay")
    await rig.advance(3.0)
    assert await paused_for(rig) == "balance_below_minimum"
    rig.database.execute("UPDATE transactions SET state = 'cancelled' WHERE id = ?", [tx.id])
    rig.kill(rig.node)
    await rig.start_node()
    await rig.advance(15.0)
    epoch = (await rig.lane()).epoch
    await rig.advance(15.0)
    assert (await rig.lane()).epoch == epoch  # one node looks after it all the while
    rig.fund(1)
    await rig.mine()
    assert await paused_for(rig) is None
    await rig.advance(10.0)
    assert (await rig.lane()).owner is None


@lesson("global-window")
@staged(health=HealthRules(movement_within=60))
async def test_an_account_that_does_not_move_takes_no_more_and_goes_on_when_it_does(rig: Rig) -> None:
    for voice in rig.endpoints:
        voice.refuse("txpool is full", only=lambda sent: sent.sender == ALICE.address)
    stuck = await rig.submit("stuck", ALICE)
    await rig.advance(70.0)
    assert await paused_for(rig) == "no_movement"
    waiting = await rig.submit("waiting", ALICE)
    going = await rig.submit("going", BOB)
    await rig.reaches(going, State.SENT, 3.0)
    assert await rig.states([stuck, waiting]) == [State.SIGNED, State.QUEUED]
    for voice in rig.endpoints:
        voice.heal()
    await rig.advance(20.0)  # it is sent again all the while
    await rig.mine()
    assert await rig.state(stuck) is State.MINED
    await rig.reaches(waiting, State.SENT, 5.0)
    assert await told(rig) == ["lane.paused", "lane.resumed"]


@staged(health=HealthRules(confirmation_within=60))
async def test_a_lane_of_which_nothing_becomes_final_takes_no_more(rig: Rig) -> None:
    first = await rig.submit("first")
    await rig.reaches(first, State.SENT)
    rig.chain.finality_stalled = True
    await rig.mine(2)
    await rig.advance(60.0)
    assert await paused_for(rig) == "no_confirmation"
    second = await rig.submit("second")
    await rig.advance(5.0)
    assert await rig.states([first, second]) == [State.MINED, State.QUEUED]
    rig.chain.finality_stalled = False
    await rig.finalise(empty=True)
    assert await rig.states([first, second]) == [State.CONFIRMED, State.SENT]


@staged(health=HealthRules(max_resets=1))
async def test_a_lane_that_was_reset_too_often_sends_one_batch_until_something_is_final(rig: Rig) -> None:
    rig.database.execute("UPDATE lanes SET resets = 2")
    first = await rig.submit("first")
    await rig.reaches(first, State.SENT)  # with nothing on its way there is no other way to get well
    second = await rig.submit("second")
    await rig.advance(5.0)
    assert await paused_for(rig) == "too_many_resets"
    assert await rig.state(second) is State.QUEUED
    await rig.mine()
    await rig.finalise(empty=True)
    assert await rig.states([first, second]) == [State.CONFIRMED, State.SENT]
    assert (await rig.lane()).record.resets == 0


@staged(nodes=2, balance=ETHER - 1, health=HealthRules(min_balance=ETHER))
async def test_who_takes_a_paused_lane_over_goes_on_as_soon_as_it_is_well(rig: Rig) -> None:
    tx = await rig.submit("pay")
    await rig.advance(3.0)
    assert await paused_for(rig) == "balance_below_minimum"
    owner = (await rig.lane()).owner
    [dying] = [node for node in rig.nodes if node.engine.cluster.owner == owner]
    rig.kill(dying)
    await rig.advance(15.0)
    assert await rig.state(tx) is State.QUEUED
    rig.fund(1)
    await rig.mine()
    assert await rig.state(tx) is State.SENT


# the chain


@lesson("slow-neighbour")
@staged(lanes=(ALICE, ABROAD))
async def test_a_chain_that_is_silent_for_long_is_told_on_its_lanes_and_no_others(rig: Rig) -> None:
    here, abroad = await rig.submit("here", ALICE), await rig.submit("abroad", ABROAD)
    await rig.reaches(abroad, State.SENT)
    for voice in rig.endpoints_abroad:
        voice.down()
    await rig.advance(30.0)
    assert await rig.lane_mark(ABROAD) is None
    await rig.advance(60.0)
    assert await rig.lane_mark(ABROAD) == "chain_trouble"
    attention = (await rig.lane(ABROAD)).record.attention
    assert attention is not None
    assert "no endpoint of chain 8 answers" in attention.reason
    assert await rig.lane_mark(ALICE) is None
    for voice in rig.endpoints_abroad:
        voice.heal()
    await rig.advance(15.0)
    assert await rig.lane_mark(ABROAD) is None
    await rig.mine(chain=rig.chains[OTHER_CHAIN])
    assert await rig.state(abroad) is State.MINED
    assert await rig.state(here) is State.SENT


@staged(nodes=0, lanes=(ABROAD,))
async def test_a_chain_that_was_never_seen_is_told_too(rig: Rig) -> None:
    for voice in rig.endpoints_abroad:
        voice.down()
    await rig.start_node()
    tx = await rig.submit("abroad", ABROAD)
    await rig.advance(90.0)
    assert await rig.lane_mark(ABROAD) == "chain_trouble"
    for voice in rig.endpoints_abroad:
        voice.heal()
    await rig.reaches(tx, State.SENT, 30.0)
    await rig.advance(5.0)
    assert await rig.lane_mark(ABROAD) is None
