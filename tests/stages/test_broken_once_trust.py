"""One endpoint of three is wrong, in ways other than `finalized`."""

from __future__ import annotations

from typing import Any

from nonchalant.values import replace
from nonchalant.words import State
from tests.lessons import lesson
from tests.stages.rig import ALICE, Rig, staged, unreachable


@lesson("consumed-by-ourselves")
@staged()
async def test_one_endpoint_that_counts_too_high_does_not_make_a_payment_run_twice(rig: Rig) -> None:
    """P3: a gateway that answers counts as of `pending` (whatever block it is asked for), one of three."""
    liar = rig.endpoints[0]

    async def pending_count(address: str, block: Any) -> Any:
        true = await liar.endpoint.account(address, block)
        pooled = [nonce for nonce in liar.pooled(ALICE) if nonce >= true.count]
        return replace(true, count=true.count + len(pooled))

    liar.answer("account", pending_count)
    tx = await rig.submit("pay")
    await rig.reaches(tx, State.SENT)
    await rig.mine(8, empty=True)
    await rig.advance(30.0)
    await rig.mine(8)
    await rig.finalise()
    assert rig.executions("pay") == 1


@staged()
async def test_one_absurd_count_does_not_stop_a_lane_for_ever(rig: Rig) -> None:
    """One answer, once, from one endpoint of three: the lane is dead even after the endpoint has healed."""
    tx = await rig.submit("first")
    await rig.reaches(tx, State.SENT)
    liar = rig.endpoints[0]

    async def absurd(address: str, block: Any) -> Any:
        return replace(await liar.endpoint.account(address, block), count=100_000)

    liar.answer("account", absurd)
    await rig.advance(20.0)
    liar.heal()
    await rig.mine(12)
    later = await rig.submit("later")
    await rig.advance(10.0)
    await rig.mine()
    await rig.finalise()
    await rig.mine(3)
    assert await rig.states([tx, later]) == [State.CONFIRMED] * 2


@staged()
async def test_a_block_one_endpoint_has_no_more_does_not_stop_the_lane(rig: Rig) -> None:
    """`vouch` wants every endpoint; one that pruned an old block keeps `watch` from ever finishing."""
    tx = await rig.submit("pay")
    await rig.reaches(tx, State.SENT)
    await rig.mine()
    await rig.reaches(tx, State.MINED)
    rig.kill(rig.node)
    old = rig.chain.head.number
    await rig.mine(20)
    pruned = rig.endpoints[2]

    async def block(ref: Any) -> Any:
        found = await pruned.endpoint.block(ref)
        return None if found is not None and found.number <= old else found

    pruned.answer("block", block)
    await rig.start_node()
    later = await rig.submit("later")
    await rig.reaches(later, State.SENT)
    await rig.mine(20)
    await rig.advance(120.0)
    assert await rig.state(later) is State.CONFIRMED
    assert await rig.state(tx) is State.CONFIRMED


@staged()
async def test_what_the_first_endpoint_has_forgotten_is_asked_of_the_others(rig: Rig) -> None:
    """It shows no receipt of what it once executed; without another one's word it would be called sent until finality."""
    tx = await rig.submit("pay")
    await rig.reaches(tx, State.SENT)
    rig.kill(rig.node)
    forgetful = rig.endpoints[0]

    async def nothing(hashes: Any) -> Any:
        return [None] * len(hashes)

    forgetful.answer("find", nothing)
    await rig.mine()
    await rig.start_node()
    await rig.reaches(tx, State.MINED)


@staged()
async def test_an_endpoint_that_stands_still_far_below_does_not_keep_a_restarted_node_from_seeing_the_chain(
    rig: Rig,
) -> None:
    """After 90 s it should not count; but `_start` and `_leap` take the lowest of all, and never get away from there."""
    rig.endpoints[2].lag()
    rig.kill(rig.node)
    for _ in range(600):
        rig.chain.mine()
    await rig.advance(5.0)
    await rig.start_node()
    await rig.mine(40)
    tx = await rig.submit("pay")
    await rig.mine(60)  # 180 s
    assert await rig.state(tx) is State.CONFIRMED


@staged()
async def test_an_endpoint_that_answers_nothing_but_its_head_does_not_stop_settling(rig: Rig) -> None:
    half_dead = rig.endpoints[2]
    half_dead.fail("block", unreachable())
    tx = await rig.submit("pay")
    await rig.reaches(tx, State.SENT)
    await rig.mine(60)  # 180 s
    assert await rig.state(tx) is State.CONFIRMED


@staged()
async def test_a_valid_payment_is_not_cancelled_because_one_endpoint_refuses_it_and_others_were_slow(rig: Rig) -> None:
    """Two of three hold it, their answers were lost once; the third does not know the type. Nobody asked for a cancel."""
    rig.endpoints[0].refuse("transaction type not supported")
    for voice in rig.endpoints[1:]:
        voice.time_out_after()
    tx = await rig.submit("pay")
    await rig.advance(10.0)
    for voice in rig.endpoints[1:]:
        voice.heal()  # a hiccup of ten seconds
    await rig.advance(20.0)
    rig.dice.producer = rig.endpoints[1]
    await rig.mine()
    await rig.finalise()
    assert (await rig.read(tx)).failure is None
    assert await rig.state(tx) is State.CONFIRMED


@staged(nodes=1)
async def test_a_restart_tells_of_no_reorg_where_there_was_none(rig: Rig) -> None:
    """The desk looks at the head while the follower is still linking from finality upward."""
    tx = await rig.submit("pay")
    await rig.reaches(tx, State.SENT)
    await rig.mine()
    await rig.reaches(tx, State.MINED)
    await rig.stop(rig.node)
    for voice in rig.endpoints:

        async def slow(ref: Any, voice: Any = voice) -> Any:
            await rig.advance(1.5)
            return await voice.endpoint.block(ref)

        voice.answer("block", slow)
    await rig.start_node()
    await rig.advance(60.0)
    assert "tx.reorged" not in await rig.history(tx)
