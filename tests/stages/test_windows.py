"""How much of a lane is on its way at once: as configured, as nodes allow, one by one."""

from __future__ import annotations

from nonchalant.policy import Patience
from nonchalant.sim.pool import BESU, GETH, No
from nonchalant.windows import Pace
from nonchalant.words import LaneKey, Speed, State
from tests.lessons import lesson
from tests.stages.rig import ALICE, Rig, staged


async def learnt(rig: Rig, lane: LaneKey = ALICE) -> int | None:
    return (await rig.lane(lane)).record.window


def arrivals_of(rig: Rig, label: str) -> int:
    return len(rig.sent(label))


# what nodes allow


@lesson("account-limit")
@staged(account_limit=2)
async def test_a_limit_that_nodes_name_is_learnt_and_what_is_beyond_goes_as_room_comes(rig: Rig) -> None:
    txs = await rig.submit_all(f"pay-{n}" for n in range(6))
    await rig.advance(3.0)
    assert await learnt(rig) == 2
    assert await rig.nonces(txs) == [0, 1, 2, 3, 4, 5]  # signed, so bound: the window bounds broadcasting
    refusals = [verdict for _, _, verdict in rig.arrivals].count(No.TOO_MANY)
    await rig.advance(20.0)  # a round of re-sending: only what is in the window
    assert [verdict for _, _, verdict in rig.arrivals].count(No.TOO_MANY) == refusals
    await rig.mine()
    assert arrivals_of(rig, "pay-3") >= 6  # at every endpoint once more, without waiting for a round
    # One that had not seen the block yet still had too many, and gets it with the next round.
    assert [2, 3] in [voice.pooled(ALICE) for voice in rig.endpoints]
    await rig.advance(20.0)
    assert [voice.pooled(ALICE) for voice in rig.endpoints] == [[2, 3]] * 3


@staged(account_limit=2)
async def test_the_window_grows_by_one_with_every_block_that_executes_something(rig: Rig) -> None:
    await rig.submit_all(f"pay-{n}" for n in range(6))
    await rig.advance(3.0)
    assert await learnt(rig) == 2
    for voice in rig.endpoints:
        voice.endpoint.pool.limit = 64
    await rig.mine(empty=True)
    assert await learnt(rig) == 2
    await rig.mine()
    assert await learnt(rig) == 3
    await rig.mine()
    assert await learnt(rig) == 4
    assert rig.account().count == 5


@staged(account_limit=1, window=3)
async def test_a_window_that_has_grown_back_is_as_configured_again(rig: Rig) -> None:
    await rig.submit_all(f"pay-{n}" for n in range(3))
    await rig.advance(3.0)
    assert await learnt(rig) == 1
    for voice in rig.endpoints:
        voice.endpoint.pool.limit = 64
    await rig.mine(2)
    assert await learnt(rig) is None
    await rig.mine()
    assert rig.account().count == 3


@staged(account_limit=2)
async def test_who_takes_the_lane_over_knows_what_nodes_allow(rig: Rig) -> None:
    txs = await rig.submit_all(f"pay-{n}" for n in range(5))
    await rig.advance(3.0)
    rig.kill(rig.node)
    rig.arrivals.clear()
    await rig.start_node()
    await rig.advance(15.0)
    assert {tx.nonce for _, tx, _ in rig.arrivals} == {0, 1}
    await rig.mine(4)
    await rig.finalise()
    assert await rig.states(txs) == [State.CONFIRMED] * 5


@staged()
async def test_one_endpoint_that_takes_no_more_does_not_shrink_the_window(rig: Rig) -> None:
    rig.endpoints[0].endpoint.pool.limit = 1
    txs = await rig.submit_all(f"pay-{n}" for n in range(4))
    await rig.reaches(txs[-1], State.SENT)
    assert No.TOO_MANY in {verdict for _, _, verdict in rig.arrivals}
    assert await learnt(rig) is None


# too high


@lesson("gap-refused-late")
@staged(flavours=(BESU, GETH, GETH))
async def test_a_hole_at_one_endpoint_is_closed_there_at_once(rig: Rig) -> None:
    lossy = rig.endpoints[0]
    lossy.time_out_before()
    first = await rig.submit("first")
    await rig.advance(5.0)
    assert lossy.pooled(ALICE) == []
    lossy.heal()
    sent_elsewhere = len([name for name, tx, _ in rig.arrivals if tx.order.label == "first"])
    second = await rig.submit("second")
    await rig.reaches(second, State.SENT)
    await rig.advance(1.0)
    assert No.GAPPED in {verdict for name, _, verdict in rig.arrivals if name == lossy.name}
    assert lossy.pooled(ALICE) == [0, 1]
    assert len([name for name, tx, _ in rig.arrivals if tx.order.label == "first"]) == sent_elsewhere + 1
    assert await learnt(rig) is None
    assert await rig.nonces([first, second]) == [0, 1]


@staged()
async def test_nodes_that_have_all_below_and_still_say_too_high_get_fewer_at_once(rig: Rig) -> None:
    for voice in rig.endpoints:
        voice.refuse("nonce too high", only=lambda sent: sent.nonce >= rig.account().count + 2)
    txs = await rig.submit_all(f"pay-{n}" for n in range(5))
    await rig.advance(5.0)
    assert await learnt(rig) == 2
    assert rig.endpoints[0].pooled(ALICE) == [0, 1]
    await rig.mine(4)
    assert rig.account().count == 5
    await rig.finalise()
    assert await rig.states(txs) == [State.CONFIRMED] * 5


@staged(flavours=(BESU,) * 3)
async def test_a_hole_that_cannot_be_closed_is_not_hammered(rig: Rig) -> None:
    for voice in rig.endpoints:
        voice.refuse("txpool is full", only=lambda sent: sent.nonce == 0)
    await rig.submit_all(f"pay-{n}" for n in range(3))
    await rig.advance(14.0)
    # Once when it was signed, and once more from the lowest on; then only with the rounds of re-sending.
    assert arrivals_of(rig, "pay-1") <= 6
    assert await learnt(rig) is None


# one by one


@staged(pace=Pace.STRICT)
async def test_in_strict_mode_the_next_is_signed_only_after_the_one_before_was_consumed(rig: Rig) -> None:
    txs = await rig.submit_all(f"pay-{n}" for n in range(3))
    for n in range(3):
        await rig.reaches(txs[n], State.SENT)
        await rig.advance(5.0)
        assert list(rig.slots()) == list(range(n + 1))
        await rig.mine()
    assert rig.order_of_execution() == ["pay-0", "pay-1", "pay-2"]


@staged(pace=Pace.STRICT)
async def test_in_strict_mode_a_reorg_puts_one_back_in_flight_and_the_other_waits(rig: Rig) -> None:
    first, second = await rig.submit("first"), await rig.submit("second")
    await rig.reaches(first, State.SENT)
    await rig.mine()
    await rig.reaches(second, State.SENT)
    for voice in rig.endpoints:
        voice.forget_pool()
    await rig.reorg(1)
    rig.arrivals.clear()
    await rig.advance(40.0)
    assert {tx.nonce for _, tx, _ in rig.arrivals} == {0}
    await rig.mine(2)
    assert rig.order_of_execution() == ["first", "second"]


@lesson("delegated-account")
@staged()
async def test_an_account_with_delegated_code_has_one_in_flight_and_is_refused_nothing(rig: Rig) -> None:
    rig.delegate()
    await rig.mine()
    txs = await rig.submit_all(f"pay-{n}" for n in range(3))
    await rig.reaches(txs[0], State.SENT)
    await rig.advance(20.0)
    assert await rig.states(txs) == [State.SENT, State.QUEUED, State.QUEUED]
    await rig.mine(3)
    assert rig.order_of_execution() == ["pay-0", "pay-1", "pay-2"]
    assert No.DELEGATED not in {verdict for _, _, verdict in rig.arrivals}


@lesson("delegated-account")
@staged()
async def test_an_account_that_delegates_while_several_are_in_flight_sends_them_one_by_one(rig: Rig) -> None:
    txs = await rig.submit_all(f"pay-{n}" for n in range(4))
    await rig.reaches(txs[-1], State.SENT)
    rig.delegate()  # its authorisation takes a nonce, and one of ours loses it
    await rig.mine(empty=True)
    for voice in rig.endpoints:
        voice.forget_pool()
    await rig.advance(20.0)
    assert [len(voice.pooled(ALICE)) for voice in rig.endpoints] == [1, 1, 1]
    await rig.mine(4)
    await rig.finalise()
    await rig.mine(3)
    await rig.finalise()
    assert await rig.states(txs) == [State.CONFIRMED] * 4


@staged(patience=Patience(bump_after=dict.fromkeys(Speed, 10_000)))
async def test_what_is_beyond_the_window_is_not_made_dearer(rig: Rig) -> None:
    txs = await rig.submit_all(f"pay-{n}" for n in range(4))
    await rig.reaches(txs[-1], State.SENT)
    rig.delegate()  # its authorisation takes the first one's nonce
    await rig.mine(empty=True)
    await rig.submit("more")  # which has the account looked at
    await rig.mine(10, empty=True)
    assert [len(await rig.attempts(tx)) > 1 for tx in txs[1:]] == [True, False, False]
