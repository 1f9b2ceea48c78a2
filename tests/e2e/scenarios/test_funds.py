"""Out of funds, before and after a nonce was taken, and back."""

from __future__ import annotations

import pytest

from nonchalant.words import State
from tests.e2e.scenarios.conftest import Interlude
from tests.e2e.scenarios.scene import ALICE, ETHER, GWEI, Scene
from tests.lessons import lesson

KEYS = ["a", "b", "c"]


async def test_out_of_funds_waits_with_a_mark_and_goes_when_funds_arrive(scene: Scene, interlude: Interlude) -> None:
    await scene.chain.set_balance(ALICE, 0)
    await scene.start()
    await scene.pay(*KEYS)
    reason = await scene.marked("a", "insufficient_funds")
    assert ALICE in reason
    await interlude()
    assert await scene.count(tag="pending") == 0
    assert {tx.state for tx in await scene.txs(KEYS)} == {State.QUEUED}
    await scene.chain.set_balance(ALICE, ETHER)
    await scene.settle()
    assert {tx.attention for tx in await scene.txs(KEYS)} == {None}
    await scene.audit()


@pytest.mark.telling
async def test_funds_that_vanish_under_what_is_in_flight_keep_every_slot_until_they_are_back(
    scene: Scene, interlude: Interlude
) -> None:
    await scene.start()
    await scene.pay(*KEYS)
    await scene.sent()
    await scene.proxy.forget_mempool()
    await scene.chain.set_balance(ALICE, 0)
    await scene.chain.mine()
    await scene.marked("a", "insufficient_funds", tick=scene.tick)
    await scene.pay("late")
    await interlude()
    assert await scene.nonces(*KEYS, "late") == [0, 1, 2, None]
    await scene.chain.set_balance(ALICE, ETHER)
    await scene.settle()
    assert await scene.nonces(*KEYS, "late") == [0, 1, 2, 3]
    await scene.audit()


@lesson("head-of-line")
async def test_what_costs_more_than_there_is_lets_others_pass(scene: Scene, interlude: Interlude) -> None:
    await scene.chain.set_balance(ALICE, ETHER)
    await scene.start()
    await scene.pay("dear", value=5 * ETHER)
    await scene.pay(*KEYS)
    await scene.marked("dear", "insufficient_funds")
    await interlude()
    await scene.settle(*KEYS)
    await scene.chain.set_balance(ALICE, 10 * ETHER)
    await scene.settle()
    assert await scene.nonces(*KEYS, "dear") == [0, 1, 2, 3]
    await scene.audit()


async def test_what_is_in_flight_counts_before_more_is_signed(scene: Scene, interlude: Interlude) -> None:
    """Two of three fit the balance, value and highest fee together; the third goes when the first two have run."""
    await scene.chain.set_balance(ALICE, ETHER)
    await scene.start()
    await scene.pay(*KEYS, value=4 * ETHER // 10)
    await scene.sent("a", "b")
    await scene.marked("c", "insufficient_funds")
    await interlude()
    assert await scene.pool() == [0, 1]
    await scene.chain.set_balance(ALICE, 2 * ETHER)
    await scene.settle()
    await scene.audit()


async def test_a_bump_that_the_account_cannot_pay_does_not_replace_what_it_can(
    scene: Scene, interlude: Interlude
) -> None:
    await scene.chain.set_balance(ALICE, 70_000 * GWEI)  # 21,000 gas at three gwei, and not much more
    await scene.start()
    await scene.pay("a")
    await scene.sent()
    await scene.marked("a", "insufficient_funds", tick=scene.crowd)
    await interlude()
    assert len(await scene.attempts("a")) == 1
    await scene.disperse()
    await scene.settle()
    await scene.audit()
