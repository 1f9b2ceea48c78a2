"""Cancelling, in every state and at every position; and the races that a cancel can lose."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress

import pytest

from nonchalant.errors import TooLate, WishRefused
from nonchalant.testing.faults import SEND
from nonchalant.testing.rules import ReplacementStep
from nonchalant.words import AttemptKind, State
from tests.e2e.scenarios.conftest import Interlude
from tests.e2e.scenarios.scene import ALICE, ETHER, Scene
from tests.lessons import lesson

KEYS = [f"k{n}" for n in range(5)]


async def test_cancelling_what_is_queued_is_immediate_and_spends_no_nonce(scene: Scene, interlude: Interlude) -> None:
    await scene.start(window=2)
    await scene.pay(*KEYS)
    await scene.sent(*KEYS[:2])
    await scene.cancel(*KEYS[2:4])
    assert [tx.state for tx in await scene.txs(KEYS[2:4])] == [State.CANCELLED] * 2
    await interlude()
    await scene.settle()
    assert await scene.nonces(KEYS[0], KEYS[1], KEYS[4]) == [0, 1, 2]
    assert (await scene.audit(cancelled=KEYS[2:4])).cancels == 0


async def test_cancelling_what_is_held_ends_it(scene: Scene, interlude: Interlude) -> None:
    await scene.start(window=1)
    await scene.pay("first", "held", "last")
    await (await scene.handle("held")).hold()
    await interlude()
    await scene.cancel("held")
    await scene.settle()
    await scene.audit(cancelled=["held"])


@pytest.mark.parametrize("position", [0, pytest.param(2, marks=pytest.mark.telling), 4], ids=["head", "middle", "tail"])
async def test_cancelling_what_is_in_flight_has_its_nonce_consumed_by_what_does_nothing(
    scene: Scene, interlude: Interlude, position: int
) -> None:
    await scene.start()
    scene.proxy.enforce(ReplacementStep())
    await scene.pay(*KEYS)
    await scene.sent()
    await scene.cancel(KEYS[position])
    await interlude()
    await scene.cancelling(KEYS[position])
    await scene.settle()
    assert await scene.nonces(*KEYS) == list(range(5))
    assert [each for each in scene.proxy.sent if "underpriced" in each.message] == []
    assert (await scene.audit(cancelled=[KEYS[position]])).cancels == 1


async def test_cancelling_what_no_node_has_taken_yet(scene: Scene, interlude: Interlude) -> None:
    """Signed and refused: its bytes were handed over, so its nonce must be consumed all the same."""
    await scene.start()
    full = scene.proxy.refuse(SEND, "txpool is full")
    await scene.pay(*KEYS)
    await full.struck(5)
    assert {tx.state for tx in await scene.txs(KEYS)} == {State.SIGNED}
    await scene.cancel(KEYS[1])
    await interlude()
    full.off()
    await scene.settle()
    assert await scene.nonces(*KEYS) == list(range(5))
    assert (await scene.audit(cancelled=[KEYS[1]])).cancels == 1


@lesson("cancel-recorded-first")
@pytest.mark.parametrize("position", [0, 2], ids=["head", "middle"])
async def test_a_node_killed_before_the_cancel_is_handed_over_never_sends_the_payload_again(
    scene: Scene, position: int
) -> None:
    await scene.start()
    await scene.pay(*KEYS)
    await scene.sent()
    payload = (await scene.tx(KEYS[position])).hash
    silence = scene.proxy.timeout_before_acceptance(matching=lambda sent: sent.to == ALICE)
    await scene.cancel(KEYS[position])
    await silence.struck()
    await scene.kill()
    silence.off()
    await scene.proxy.forget_mempool()
    before = len(scene.proxy.sent)
    await scene.come_back()
    await scene.settle()
    assert payload not in [each.hash for each in scene.proxy.sent[before:]]
    assert (await scene.audit(cancelled=[KEYS[position]])).cancels == 1


async def test_a_cancel_that_comes_too_late_changes_nothing_and_says_so(scene: Scene, interlude: Interlude) -> None:
    await scene.start()
    await scene.pay(*KEYS)
    await scene.sent()
    await scene.mined(*KEYS)
    await scene.cancel(KEYS[0])
    await interlude()
    await scene.settle()
    with pytest.raises(TooLate):
        await scene.cancel(KEYS[1])
    assert (await scene.audit()).cancels == 0


async def test_a_cancel_that_loses_the_race_is_confirmed_with_the_payload_that_ran(
    scene: Scene, interlude: Interlude
) -> None:
    await scene.start()
    await scene.pay(*KEYS)
    await scene.sent()
    late = scene.proxy.late_delivery(matching=lambda sent: sent.to == ALICE)
    await scene.cancel(KEYS[2])
    await late.struck()
    await interlude()
    await scene.mined(*KEYS)
    late.off()
    await scene.proxy.release()
    await scene.settle()
    assert (await scene.audit()).cancels == 0


@lesson("cancel-resends")
async def test_after_a_reorg_the_cancel_is_sent_again_and_never_the_original(
    scene: Scene, interlude: Interlude
) -> None:
    await scene.start()
    await scene.mine(2)
    await scene.pay(*KEYS)
    await scene.sent()
    payload = (await scene.tx(KEYS[1])).hash
    await scene.cancel(KEYS[1])
    await scene.cancelling(KEYS[1])
    await scene.mined(*KEYS)
    before = len(scene.proxy.sent)
    await scene.chain.reorg(1)
    await interlude()
    await scene.settle()
    assert payload not in [each.hash for each in scene.proxy.sent[before:]]
    assert (await scene.audit(cancelled=[KEYS[1]])).cancels == 1


async def test_a_cancel_asked_for_while_it_was_mined_wins_if_a_reorg_takes_the_block_away(
    scene: Scene, interlude: Interlude
) -> None:
    await scene.start()
    await scene.mine(2)
    await scene.pay("a")
    await scene.sent()
    await scene.mined("a")
    await scene.cancel("a")
    await interlude()
    await scene.chain.reorg(1)
    await scene.settle()
    assert (await scene.audit(cancelled=["a"])).cancels == 1


async def test_a_cancel_wins_over_bumps_and_is_bumped_itself_while_blocks_pass_it_by(
    scene: Scene, interlude: Interlude
) -> None:
    await scene.start()
    scene.proxy.enforce(ReplacementStep())
    await scene.pay("a")
    await scene.sent()
    await scene.until(lambda: _attempts(scene, "a", AttemptKind.BUMP), "bumped", tick=scene.crowd)
    await scene.cancel("a")
    await scene.until(lambda: _attempts(scene, "a", AttemptKind.CANCEL, 2), "its cancel is bumped", tick=scene.crowd)
    await interlude()
    await scene.disperse()
    await scene.settle()
    kinds = [one.kind for one in await scene.attempts("a")]
    assert AttemptKind.BUMP not in kinds[kinds.index(AttemptKind.CANCEL) :]
    assert (await scene.audit(cancelled=["a"])).cancels == 1


async def _attempts(scene: Scene, key: str, kind: AttemptKind, least: int = 1) -> bool:
    return [one.kind for one in await scene.attempts(key)].count(kind) >= least


async def test_cancelling_without_funds_waits_for_them_and_the_payload_does_not_run_meanwhile(
    scene: Scene, interlude: Interlude
) -> None:
    await scene.start()
    await scene.pay("a")
    await scene.sent()
    await scene.proxy.forget_mempool()
    await scene.chain.set_balance(ALICE, 0)
    await scene.chain.mine()
    await scene.seen()
    await scene.cancel("a")
    await scene.marked("a", "insufficient_funds", tick=scene.tick)
    await interlude()
    await scene.chain.set_balance(ALICE, ETHER)
    await scene.settle()
    assert (await scene.audit(cancelled=["a"])).cancels == 1


async def test_asking_twice_to_cancel_is_asking_once(scene: Scene, interlude: Interlude) -> None:
    await scene.start(window=2)
    await scene.pay("flying", "other", "queued")
    await scene.sent("flying", "other")
    await scene.cancel("flying", "queued", "flying", "queued")
    await interlude()
    await scene.settle()
    await scene.cancel("flying", "queued")
    assert (await scene.audit(cancelled=["flying", "queued"])).cancels == 1


@lesson("cancel-all-cancels")
async def test_cancelling_everything_leaves_nothing_to_run(scene: Scene, interlude: Interlude) -> None:
    keys = [f"c{n}" for n in range(10)]
    await scene.start(window=4)
    await scene.pay(*keys)
    await scene.sent(*keys[:4])
    assert await scene.node.asking.cancel_all(scene.lane) == 10
    await interlude()
    await scene.cancelling(*keys[:4])
    await scene.settle()
    assert await scene.count() == 4
    assert (await scene.audit(cancelled=keys)).cancels == 4
    await scene.come_back()
    await scene.pay("after")
    await scene.settle("after")
    assert await scene.nonces("after") == [4]


@pytest.mark.telling
async def test_of_200_transactions_cancelled_at_random_each_ends_once_as_the_chain_shows(scene: Scene) -> None:
    chance = random.Random(7)
    keys = [f"r{n}" for n in range(200)]
    await scene.start(accounts=4, window=8)
    cancelled: set[str] = set()

    async def cancel_some(asked: int) -> None:
        for key in chance.sample(keys[:asked], k=min(asked, 3)):
            with suppress(TooLate, WishRefused):  # it has ended already
                await scene.cancel(key)
                cancelled.add(key)

    for number, key in enumerate(keys):
        await scene.pay(key, account=number % 4)
        if chance.random() < 0.3:
            await cancel_some(number + 1)
        if chance.random() < 0.06:
            await scene.chain.mine()
            await asyncio.sleep(0.02)
        if number == 100:
            await scene.kill()
            await scene.come_back()
    await cancel_some(200)
    await scene.settle()
    ended = {key: (await scene.tx(key)).state for key in keys}
    gone = [key for key in keys if ended[key] is State.CANCELLED]
    # What was asked for too late has run; nothing else was cancelled.
    assert set(gone) <= cancelled
    assert len(gone) > 20
    assert {ended[key] for key in keys if key not in gone} == {State.CONFIRMED}
    await scene.audit(cancelled=gone)
