"""The mended `see_account` (lowest count of all): what one endpoint that counts too low, or hangs, does to a lane."""

from __future__ import annotations

from typing import Any

from nonchalant.values import replace
from nonchalant.wishes import Reset
from nonchalant.words import State
from tests.lessons import lesson
from tests.stages.acts import settled
from tests.stages.rig import Rig, staged, unreachable


@lesson("lower-count")
@staged()
async def test_one_endpoint_that_counts_too_low_does_not_stop_a_lane(rig: Rig) -> None:
    """A gateway that answers 0 for every count (a stateless or freshly synced node), one of three."""
    first = await rig.submit("first")
    await rig.reaches(first, State.SENT)
    await rig.mine()
    await rig.finalise()
    assert await rig.state(first) is State.CONFIRMED
    liar = rig.endpoints[0]

    async def nothing(address: str, block: Any) -> Any:
        return replace(await liar.endpoint.account(address, block), count=0)

    liar.answer("account", nothing)
    tx = await rig.submit("second")
    await rig.reaches(tx, State.SENT)
    rig.intrude()
    await rig.mine()
    await rig.finalise()
    await rig.mine(60)
    assert await rig.state(tx) is State.CONFIRMED


@staged()
async def test_one_endpoint_that_shows_no_balance_does_not_stop_a_lane(rig: Rig) -> None:
    liar = rig.endpoints[0]

    async def poor(address: str, block: Any) -> Any:
        return replace(await liar.endpoint.account(address, block), balance=0)

    liar.answer("account", poor)
    tx = await rig.submit("pay")
    await rig.advance(120.0)
    assert await rig.state(tx) is State.SENT


@staged()
async def test_one_endpoint_that_hangs_on_accounts_does_not_slow_a_lane(rig: Rig) -> None:
    async def hang(*_: Any) -> Any:
        await rig.advance(10.0)
        raise unreachable()

    rig.endpoints[2].answer("account", hang)  # the last one: nobody needs it
    began = rig.loop.time()
    tx = await rig.submit("pay")
    await rig.reaches(tx, State.SENT, seconds=1000.0)
    assert rig.loop.time() - began < 5.0


@staged(nodes=2)
async def test_one_endpoint_that_counts_too_high_is_not_believed_because_it_is_alone(rig: Rig) -> None:
    """The others are silent when the lane is taken over: that is no reason to fill a thousand nonces."""
    await settled(rig, "first")
    liar, *others = rig.endpoints

    async def far_off(address: str, block: Any) -> Any:
        truth = await liar.endpoint.account(address, block)
        return replace(truth, count=truth.count + 1000)

    liar.answer("account", far_off)
    for voice in others:
        voice.fail("account", unreachable())
    for node in list(rig.nodes):
        await rig.stop(node)
    await rig.start_node()
    tx = await rig.submit("second")
    await rig.advance(60.0)
    assert rig.attempts_ever() <= 2
    assert await rig.lane_mark() is None
    for voice in others:
        voice.heal()
    await rig.advance(60.0)
    await rig.mine(10)
    assert await rig.state(tx) is State.CONFIRMED


@staged()
async def test_a_forced_reset_gives_up_nothing_that_any_endpoint_still_knows_to_be_executed(rig: Rig) -> None:
    """One of three counts too low and another is silent: half of them tell, and the lower half is wrong."""
    first = await settled(rig, "first")
    liar = rig.endpoints[0]

    async def nothing(address: str, block: Any) -> Any:
        return replace(await liar.endpoint.account(address, block), count=0)

    liar.answer("account", nothing)
    rig.endpoints[2].fail("account", unreachable())
    told = (await rig.asking.of_lane(first.lane, Reset(force=True))).data
    assert (told["next_nonce"], told["settled_below"]) == (1, 1)
    rig.endpoints[2].heal()
    second = await rig.submit("second")
    await rig.mine(3)
    await rig.finalise()
    assert (await rig.read(second)).nonce == 1
    assert (rig.executions("first"), rig.executions("second")) == (1, 1)
