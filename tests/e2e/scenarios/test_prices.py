"""Prices that move: the cap, spikes, and what nodes want of a replacement."""

from __future__ import annotations

from itertools import pairwise

import pytest

from nonchalant.model import Fees
from nonchalant.testing.rules import PriceFloor, ReplacementStep
from nonchalant.words import State
from tests.e2e.scenarios.conftest import Interlude
from tests.e2e.scenarios.scene import GWEI, Scene
from tests.lessons import lesson


@pytest.mark.telling
@lesson("price-cap")
async def test_at_the_cap_it_is_sent_again_and_marked_and_mined_when_the_market_falls(
    scene: Scene, interlude: Interlude
) -> None:
    cap = 10 * GWEI
    await scene.start(fees=f"max_fee_per_gas = {cap}")
    await scene.pay("a", "b", "c")
    await scene.sent()

    async def spike() -> None:
        await scene.base_fee(80 * GWEI)

    for key in "abc":
        reason = await scene.marked(key, "price_at_cap", tick=spike)
        assert str(cap) in reason
    await scene.proxy.forget_mempool()
    await interlude()
    before = len(scene.proxy.sent)
    await scene.until(lambda: _nonces(scene, before) == {0, 1, 2}, "all are sent again", tick=spike)
    assert (await scene.count(), await scene.pool()) == (0, [])
    await scene.base_fee(GWEI)
    await scene.settle()
    assert max(each.transaction.max_fee for each in scene.proxy.sent if each.transaction) <= cap
    await scene.audit()


def _nonces(scene: Scene, since: int) -> set[int]:
    return {each.transaction.nonce for each in scene.proxy.sent[since:] if each.transaction}


async def test_a_fee_spike_is_followed_and_after_it_nothing_is_made_dearer(scene: Scene, interlude: Interlude) -> None:
    await scene.start()
    await scene.pay("a", "b")
    await scene.sent()
    await scene.until(lambda: _tried(scene, 1, "a", "b"), "both are bumped", tick=lambda: scene.base_fee(30 * GWEI))
    await interlude()
    await scene.base_fee(GWEI)
    await scene.settle()
    await scene.pay("after")
    await scene.settle()
    [cheap] = await scene.attempts("after")
    assert cheap.fees.max_fee < (await scene.attempts("a"))[0].fees.max_fee * 2
    assert (await scene.audit()).bumps == 2


async def _tried(scene: Scene, more_than: int, *keys: str) -> bool:
    return all([len(await scene.attempts(key)) > more_than for key in keys])


@pytest.mark.telling
@lesson("replacement-step")
async def test_every_bump_pays_a_tenth_more_in_every_fee_field_and_nodes_take_it(
    scene: Scene, interlude: Interlude
) -> None:
    await scene.start()
    scene.proxy.enforce(ReplacementStep())
    await scene.pay("a", "b")
    await scene.sent()
    await scene.until(lambda: _tried(scene, 2, "a", "b"), "bumped twice", tick=scene.crowd)
    await interlude()
    await scene.until(lambda: _tried(scene, 3, "a", "b"), "bumped again", tick=scene.crowd)
    await scene.disperse()
    await scene.settle()
    for key in "ab":
        for old, new in pairwise(await scene.attempts(key)):
            assert new.fees.max_fee * 10 >= old.fees.max_fee * 11
            assert (new.fees.priority or 0) * 10 >= (old.fees.priority or 0) * 11
    assert [each for each in scene.proxy.sent if "underpriced" in each.message] == []
    assert (await scene.audit()).bumps == 2


async def test_a_node_that_wants_more_than_a_tenth_takes_a_later_bump(scene: Scene, interlude: Interlude) -> None:
    await scene.start()
    rule = scene.proxy.enforce(ReplacementStep(percent=25))
    await scene.pay("a")
    await scene.sent()
    await scene.until(lambda: rule.hits >= 1, "a bump is refused", tick=scene.crowd)
    await interlude()
    refused = [each.hash for each in scene.proxy.sent if "replacement" in each.message]
    await scene.until(lambda: _taken_since(scene, refused[-1]), "a later one is taken", tick=scene.crowd)
    await scene.disperse()
    await scene.settle()
    assert (await scene.tx("a")).hash not in refused
    await scene.audit()


def _taken_since(scene: Scene, hash: str) -> bool:
    hashes = [each.hash for each in scene.proxy.sent]
    last = len(hashes) - hashes[::-1].index(hash)
    return any(each.taken for each in scene.proxy.sent[last:])


async def test_what_is_below_a_node_s_floor_is_marked_and_bumped_until_it_is_taken(
    scene: Scene, interlude: Interlude
) -> None:
    await scene.start()
    floor = scene.proxy.enforce(PriceFloor(13 * GWEI // 10))
    await scene.pay("a", "b")
    await scene.until(lambda: floor.hits >= 2, "refused")
    await interlude()
    assert await scene.pool() == []
    await scene.settle()
    executed = await scene.attempts("a")
    assert (executed[-1].fees.priority or 0) * 10 >= 13 * GWEI
    await scene.audit()


@pytest.mark.parametrize("fees", [Fees(4 * GWEI, GWEI), Fees(4 * GWEI)], ids=["type 2", "legacy"])
async def test_a_price_named_by_the_user_is_never_raised_and_is_sent_again_until_it_is_enough(
    scene: Scene, interlude: Interlude, fees: Fees
) -> None:
    await scene.start()
    await scene.pay("named", fees=fees)
    await scene.sent()
    await scene.base_fee(40 * GWEI, 3)
    await scene.marked("named", "price_at_cap", tick=lambda: scene.base_fee(40 * GWEI))
    await interlude()
    await scene.base_fee(GWEI)
    await scene.settle()
    assert [attempt.fees for attempt in await scene.attempts("named")] == [fees]
    await scene.audit()


async def test_a_price_named_by_the_user_waits_for_the_base_fee_to_fall_to_it(
    scene: Scene, interlude: Interlude
) -> None:
    await scene.base_fee(100 * GWEI)
    await scene.start()
    await scene.pay("named", fees=Fees(50 * GWEI, GWEI))
    reason = await scene.marked("named", "price_below_base_fee")
    assert "base fee" in reason
    await interlude()
    assert (await scene.tx("named")).state is State.QUEUED
    assert await scene.count(tag="pending") == 0
    await scene.base_fee(GWEI)
    await scene.settle()
    await scene.audit()
