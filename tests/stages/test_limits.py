"""Nothing waits for ever unmarked, and nothing is tried without a limit on its rhythm."""

from typing import Any

import pytest

from nonchalant import settle, watch
from nonchalant.errors import WishRefused
from nonchalant.words import State
from tests.lessons import lesson
from tests.stages.rig import Rig, refused, staged, unreachable

STRANGE = "opcode 0xef not defined"


def will_not_estimate(rig: Rig, label: str, error: Exception) -> None:
    """No endpoint estimates what carries this label; all else they do."""
    for voice in rig.endpoints:

        async def estimate(sender: str, payload: Any, block: Any, voice: Any = voice) -> int:
            if label.encode() in payload.data:
                raise error
            return int(await voice.endpoint.estimate(sender, payload, block))

        voice.answer("estimate", estimate)


@lesson("head-of-line")
@staged()
async def test_what_nobody_can_estimate_through_its_own_fault_leaves_the_line_after_so_many_tries(rig: Rig) -> None:
    will_not_estimate(rig, "bad", refused(STRANGE))
    bad, good = await rig.submit_all(["bad", "good"])
    await rig.reaches(good, State.SENT)
    assert await rig.mark(bad) == "cannot_estimate"
    await rig.advance(60.0)
    assert await rig.state(bad) is State.QUEUED
    ended = await rig.reaches(bad, State.FAILED, 600.0)
    assert ended.failure is not None
    assert STRANGE in ended.failure
    assert rig.slots() == {0: good.id}


@staged()
async def test_what_nobody_estimates_because_nobody_estimates_anything_waits_marked_and_goes_later(rig: Rig) -> None:
    for voice in rig.endpoints:
        voice.fail("estimate", refused(STRANGE))
    tx = await rig.submit("pay")
    await rig.advance(3600.0)
    assert await rig.state(tx) is State.QUEUED
    assert await rig.mark(tx) == "cannot_estimate"
    for voice in rig.endpoints:
        voice.heal()
    await rig.reaches(tx, State.SENT, 70.0)


@pytest.mark.parametrize("message", ["too many requests", "the method eth_estimateGas does not exist"])
@staged()
async def test_a_node_s_own_trouble_with_one_estimate_never_fails_a_transaction(rig: Rig, message: str) -> None:
    will_not_estimate(rig, "slow", refused(message))
    tx = await rig.submit("slow")
    await rig.advance(3600.0)
    assert await rig.state(tx) is State.QUEUED
    assert await rig.mark(tx) == "cannot_estimate"


@staged()
async def test_an_estimate_that_never_comes_is_marked_and_asked_for_once_a_minute(rig: Rig) -> None:
    will_not_estimate(rig, "slow", unreachable())
    tx = await rig.submit("slow")
    await rig.advance(3.0)
    assert await rig.mark(tx) is None
    await rig.advance(60.0)
    assert await rig.mark(tx) == "cannot_estimate"
    asked = rig.endpoints[0].asked["estimate"]
    await rig.advance(3600.0)
    assert rig.endpoints[0].asked["estimate"] - asked <= 65


@staged()
async def test_prices_that_never_come_mark_the_lane_and_the_mark_goes_when_they_do(rig: Rig) -> None:
    """The head is seen all the time: only what one stage asks for is missing."""
    for voice in rig.endpoints:
        voice.fail("market", unreachable())
    tx = await rig.submit("pay")
    await rig.advance(30.0)
    assert await rig.lane_mark() is None
    await rig.advance(60.0)
    attention = (await rig.lane()).record.attention
    assert attention is not None
    assert attention.code == "chain_trouble"
    assert "assign" in attention.reason
    for voice in rig.endpoints:
        voice.heal()
    await rig.reaches(tx, State.SENT)
    await rig.advance(3.0)
    assert await rig.lane_mark() is None


@pytest.mark.parametrize("nodes", [1, 2])
def test_what_is_repriced_again_and_again_is_marked_after_ten_minutes_too(nodes: int) -> None:
    """Neither a bump nor a take-over makes it younger; blocks come, and leave it aside."""

    @staged()
    async def run(rig: Rig) -> None:
        tx = await rig.submit("pay")
        await rig.reaches(tx, State.SENT)
        for minute in range(10):
            assert await rig.mark(tx) is None
            if nodes > 1 and minute in (3, 6):
                rig.kill(rig.node)
                await rig.start_node()
            for _ in range(2):
                await rig.mine(empty=True)
                await rig.advance(26.0)
        await rig.advance(30.0)
        await rig.mine(2, empty=True)
        assert await rig.mark(tx) == "not_mined"
        assert len(await rig.attempts(tx)) > 3

    run()


@staged()
async def test_what_nodes_took_and_no_block_is_marked_after_ten_minutes(rig: Rig) -> None:
    txs = await rig.submit_all([f"pay-{n}" for n in range(6)])
    for tx in txs:
        await rig.reaches(tx, State.SENT)
    await rig.advance(590.0)
    assert [await rig.mark(tx) for tx in txs] == [None] * 6
    await rig.advance(30.0)
    assert [await rig.mark(tx) for tx in txs] == ["not_mined"] * 6
    await rig.mine()
    await rig.finalise()
    assert await rig.states(txs) == [State.CONFIRMED] * 6


@staged()
async def test_a_cancel_that_cannot_be_priced_says_so(rig: Rig) -> None:
    tx = await rig.submit("pay")
    await rig.reaches(tx, State.SENT)
    for voice in rig.endpoints:
        voice.fail("estimate", refused(STRANGE))
    await rig.asking.cancel(tx.id)
    await rig.advance(5.0)
    assert await rig.mark(tx) == "cannot_cancel"
    for voice in rig.endpoints:
        voice.heal()
    await rig.advance(5.0)
    await rig.mine(1)
    await rig.finalise()
    assert await rig.state(tx) is State.CANCELLED


@staged()
async def test_a_wish_that_no_price_can_be_had_for_is_refused_in_the_end(rig: Rig) -> None:
    tx = await rig.submit("pay")
    await rig.reaches(tx, State.SENT)
    for voice in rig.endpoints:
        voice.fail("market", unreachable())
    await rig.advance(5.0)
    with pytest.raises(WishRefused, match="no answer came"):
        await rig.asking.bump(tx.id, patience=600.0)
    assert await rig.state(tx) is State.SENT


@staged(finality_lag=2)
async def test_blocks_that_cannot_be_read_are_asked_for_less_and_less_often(rig: Rig) -> None:
    """Somebody used the nonce, and who that was cannot be read."""
    tx = await rig.submit("pay")
    await rig.reaches(tx, State.SENT)
    rig.intrude()
    await rig.mine()
    for voice in rig.endpoints:
        voice.fail("executed", unreachable())
    await rig.finalise()
    await rig.advance(60.0)
    assert await rig.mark(tx) == "unproved_supersede"
    asked = sum(voice.asked["executed"] for voice in rig.endpoints)
    await rig.advance(3600.0)
    # Twice over three endpoints, once a minute, and some at first.
    assert sum(voice.asked["executed"] for voice in rig.endpoints) - asked <= 6 * (
        3600_000 // settle.LONGEST_PAUSE + 10
    )


@staged()
async def test_a_lane_that_breaks_again_and_again_is_marked_and_the_mark_goes(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.tolerate("lane.broke")
    tx = await rig.submit("pay")
    await rig.reaches(tx, State.SENT)

    async def look_up(_desk: object) -> list[object]:
        raise ZeroDivisionError("of nobody in particular")

    await rig.stop(rig.node)
    with monkeypatch.context() as broken:
        broken.setattr(watch, "look_up", look_up)
        await rig.start_node()
        await rig.advance(60.0)
        attention = (await rig.lane()).record.attention
        assert attention is not None
        assert attention.code == "lane_broken"
        assert "ZeroDivisionError" in attention.reason
    await rig.advance(60.0)
    await rig.mine()
    await rig.finalise()
    assert await rig.state(tx) is State.CONFIRMED
    await rig.advance(40.0)
    assert await rig.lane_mark() is None


@staged()
async def test_a_wait_for_the_chain_is_in_the_log_once_a_minute_and_not_each_round(rig: Rig) -> None:
    for voice in rig.endpoints:
        voice.fail("account", unreachable())
    await rig.submit("pay")
    await rig.advance(150.0)
    told = [line for line in rig.trace.lines if "waits_for_chain" in line or "stage.waits" in line]
    assert 1 <= len(told) <= 4
