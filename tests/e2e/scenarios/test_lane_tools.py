"""Sync, fill and reset; a lane that is halted and resumed; accounts that others use too; lanes that are unfit."""

from __future__ import annotations

import asyncio

import pytest

from nonchalant.errors import WishRefused
from nonchalant.steering import LaneHandle
from nonchalant.words import State
from tests import anvil
from tests.e2e.scenarios.conftest import Interlude
from tests.e2e.scenarios.scene import ALICE, ETHER, GWEI, Scene
from tests.lessons import lesson

KEYS = [f"k{n}" for n in range(4)]


def lane(scene: Scene) -> LaneHandle:
    return scene.node.lane(anvil.CHAIN_ID, ALICE)


# by hand


async def test_a_sync_finds_what_happened_on_the_chain(scene: Scene, interlude: Interlude) -> None:
    await scene.start()
    await scene.pay(*KEYS)
    await scene.sent()
    await interlude()
    await scene.mined(*KEYS)
    found = await lane(scene).sync()
    assert (found["count"], found["next_nonce"], found["holes"]) == (4, 4, [])
    await scene.settle()
    await scene.audit()


async def test_a_fill_by_hand_closes_a_used_nonce_that_never_comes(scene: Scene, interlude: Interlude) -> None:
    await scene.start()
    nonce = await scene.reserve()
    await scene.pay("behind")
    await scene.used(nonce, scene.sign(nonce, "never"), with_bytes=False)
    await scene.sent()
    await interlude()
    assert (await lane(scene).fill(nonce))["filled"] == [nonce]
    await scene.settle()
    assert await scene.paid("never") == [0]
    assert (await scene.audit()).fillers == 1


@lesson("reset-while-live")
async def test_a_reset_while_attempts_live_is_refused_and_forced_it_gives_no_nonce_out_twice(
    scene: Scene, interlude: Interlude
) -> None:
    await scene.start()
    await scene.pay(*KEYS)
    await scene.sent()
    with pytest.raises(WishRefused):
        await lane(scene).reset()
    await lane(scene).reset(force=True)
    await interlude()
    await scene.pay("after")
    await scene.settle()
    assert await scene.nonces(*KEYS, "after") == [0, 1, 2, 3, 4]
    await scene.audit()


@lesson("reset-while-live")
async def test_after_a_forced_reset_what_pools_forgot_still_keeps_its_nonce(scene: Scene, interlude: Interlude) -> None:
    await scene.start()
    await scene.pay(*KEYS)
    await scene.sent()
    late = scene.proxy.late_delivery()
    await scene.proxy.forget_mempool()
    await late.struck(4)
    late.off()
    await lane(scene).reset(force=True)
    await scene.pay("after")
    await interlude()
    await scene.proxy.release()
    await scene.settle()
    assert await scene.nonces(*KEYS, "after") == [0, 1, 2, 3, 4]
    await scene.audit()


async def test_a_reset_of_an_idle_lane_goes_on_where_the_chain_stands(scene: Scene, interlude: Interlude) -> None:
    await scene.start()
    await scene.pay(*KEYS)
    await scene.settle()
    assert (await lane(scene).reset())["next_nonce"] == 4
    await interlude()
    await scene.pay("after")
    await scene.settle()
    assert await scene.nonces("after") == [4]
    await scene.audit()


async def test_a_lane_that_was_halted_goes_on_when_somebody_resumes_it(scene: Scene, interlude: Interlude) -> None:
    await scene.start()
    await scene.mine(2)
    await scene.pay("final")
    await scene.settle()
    await scene.mine(6)  # far above what is about to vanish
    await scene.pay("flying")
    await scene.sent("flying")
    await scene.chain.reorg(5)
    await scene.until(lambda: _marked(scene, "chain_halted"), "halted", tick=scene.tick)
    await interlude()
    await scene.pay("waiting")
    for _ in range(3):
        await scene.tick()
    assert [tx.state for tx in await scene.txs(["flying", "waiting"])] == [State.SENT, State.QUEUED]
    await lane(scene).resume("it was looked at")
    await scene.settle()
    await scene.audit()


async def _marked(scene: Scene, code: str) -> bool:
    return await scene.lane_mark() == code


# shared with others


async def test_numbers_that_others_have_in_the_pool_are_skipped(scene: Scene, interlude: Interlude) -> None:
    await scene.start(account="shared = true")
    foreign = [await scene.intrude(f"theirs{n}", nonce=n, price=2 * GWEI) for n in range(2)]
    await scene.pay("a", "b")
    await scene.sent()
    assert await scene.nonces("a", "b") == [2, 3]
    await interlude()
    await scene.settle()
    assert await scene.count() == 4
    await scene.audit(foreign=foreign)


async def test_what_others_leave_open_in_a_shared_account_is_closed(scene: Scene, interlude: Interlude) -> None:
    await scene.start(account="shared = true")
    await scene.intrude("theirs", nonce=0, price=2 * GWEI)
    await scene.pay("a")
    await scene.sent()
    assert await scene.nonces("a") == [1]
    keep = scene.proxy.timeout_before_acceptance()
    await scene.proxy.forget_mempool()
    keep.off()
    await interlude()
    await scene.settle()
    assert (await scene.audit()).fillers == 1


async def test_others_who_go_on_using_a_shared_account_displace_nothing_for_good(
    scene: Scene, interlude: Interlude
) -> None:
    await scene.start(account="shared = true", window=2)
    foreign = []
    for number, key in enumerate(KEYS):
        await scene.pay(key)
        await scene.become(State.SENT, State.MINED, State.CONFIRMED, keys=[key], tick=scene.tick)
        if number == 1:
            await interlude()
        await scene.tick()
        foreign.append(await scene.intrude(f"theirs{number}", price=2 * GWEI))
        await scene.tick()
    await scene.settle()
    await scene.audit(foreign=foreign)


# unfit


async def test_a_balance_below_the_minimum_stops_a_lane_until_it_is_filled_up(
    scene: Scene, interlude: Interlude
) -> None:
    await scene.chain.set_balance(ALICE, 2 * ETHER)
    await scene.start(account=f"health = {{ min_balance = {ETHER} }}")
    await scene.pay("before")
    await scene.settle()
    await scene.chain.set_balance(ALICE, ETHER // 2)
    await scene.mine()
    await scene.pay("waits")
    await scene.until(lambda: _unfit(scene), "unfit", tick=scene.tick)
    await interlude()
    await asyncio.sleep(0.2)
    assert (await scene.tx("waits")).state is State.QUEUED
    await scene.chain.set_balance(ALICE, 2 * ETHER)
    await scene.settle()
    assert not _unfit(scene)
    await scene.audit()


def _unfit(scene: Scene) -> bool:
    [(reason,)] = scene.ask("SELECT unhealthy FROM lanes")
    return reason is not None
