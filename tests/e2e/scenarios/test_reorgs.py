"""Reorgs at every depth up to finality, and past it; with and without what the old blocks had executed."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from nonchalant.words import State
from tests.e2e import ledger
from tests.e2e.scenarios.conftest import Interlude
from tests.e2e.scenarios.scene import ALICE, DEAR, GWEI, TRANSFER, Scene
from tests.lessons import lesson

FINALITY = 6
KEYS = ["a", "b", "c"]
DEPTHS = [pytest.param(depth, marks=[pytest.mark.telling] * (depth == FINALITY)) for depth in range(1, FINALITY + 1)]


@pytest.fixture
def slots_in_an_epoch() -> int:
    return FINALITY // 2


async def mined_at_depth(scene: Scene, depth: int, keys: Sequence[str] = KEYS) -> None:
    """They are executed, and `depth` blocks would take them away."""
    await scene.start()
    await scene.mine(FINALITY)
    await scene.pay(*keys)
    await scene.sent()
    await scene.mined(*keys)
    if depth > 1:
        await scene.mine(depth - 1)


@lesson("receipt-after-reorg")
@pytest.mark.parametrize("depth", DEPTHS)
async def test_what_a_reorg_forgets_is_back_in_flight_sent_again_and_confirmed_once(
    scene: Scene, interlude: Interlude, depth: int
) -> None:
    await mined_at_depth(scene, depth)
    await scene.chain.reorg(depth)
    await interlude()
    await scene.become(State.SENT)
    await scene.until(lambda: scene.pools(3), "anvil forgot them, and has them again")
    for key in KEYS:
        assert "tx.reorged" in await scene.history(key)
    await scene.settle()
    assert await scene.nonces(*KEYS) == [0, 1, 2]
    assert (await scene.audit()).fillers == 0


@lesson("one-receipt")
@pytest.mark.parametrize("depth", range(1, FINALITY + 1))
async def test_what_a_reorg_takes_along_is_confirmed_in_its_new_block(
    scene: Scene, interlude: Interlude, depth: int
) -> None:
    await mined_at_depth(scene, depth)
    before = [tx.receipt for tx in await scene.txs(KEYS)]
    await scene.chain.reorg(depth, [(await scene.raw(key), depth - 1) for key in KEYS])
    await interlude()
    await scene.settle()
    for old, tx in zip(before, await scene.txs(KEYS), strict=True):
        assert old is not None
        assert tx.receipt is not None
        assert old.block != tx.receipt.block
    await scene.audit()


@pytest.mark.telling
@lesson("receipt-after-reorg")
@lesson("older-attempt-mined")
async def test_after_a_reorg_an_older_attempt_may_come_back_and_win(scene: Scene, interlude: Interlude) -> None:
    await scene.start()
    await scene.mine(FINALITY)
    await scene.pay("a")
    await scene.sent()
    await scene.until(lambda: _bumped(scene), "bumped", tick=scene.crowd)
    await scene.disperse()
    await scene.mined("a")
    executed = await scene.tx("a")
    original = (await scene.attempts("a"))[0]
    assert executed.hash != original.hash
    await scene.chain.reorg(1, [("0x" + original.raw.hex(), 0)])
    await interlude()
    await scene.until(lambda: _has_hash(scene, original.hash), "the original is what ran")
    await scene.settle()
    assert (await scene.audit()).bumps == 0


async def _bumped(scene: Scene) -> bool:
    return len(await scene.attempts("a")) > 1


async def _has_hash(scene: Scene, hash: str) -> bool:
    tx = await scene.tx("a")
    return (tx.state, tx.hash) == (State.MINED, hash)


@pytest.mark.parametrize("depth", [1, 3])
async def test_a_reorg_that_gives_the_nonce_to_somebody_else_queues_ours_again_at_finality(
    scene: Scene, interlude: Interlude, depth: int
) -> None:
    await mined_at_depth(scene, depth)
    theirs = {"from": ALICE, "to": ledger.recipient("theirs"), **TRANSFER, "nonce": "0x0", "gasPrice": hex(DEAR)}
    await scene.chain.rpc("anvil_impersonateAccount", ALICE)
    await scene.chain.reorg(depth, [(theirs, 0)])
    block = await scene.chain.rpc("eth_getBlockByNumber", hex(await scene.chain.height() - depth + 1), True)
    [foreign] = [tx["hash"] for tx in block["transactions"]]
    await interlude()
    await scene.become(State.SENT, keys=["b", "c"])
    await scene.settle()
    assert await scene.nonces("a", "b", "c") == [3, 1, 2]
    assert (await scene.history("a")).count("tx.superseded") == 1
    await scene.audit(foreign=[foreign])


async def test_a_reorg_while_we_are_away_is_seen_by_the_next_node(scene: Scene) -> None:
    await mined_at_depth(scene, 2)
    await scene.kill()
    await scene.chain.reorg(2)
    await scene.come_back()
    await scene.become(State.SENT)
    await scene.settle()
    await scene.audit()


async def test_a_reorg_of_blocks_that_nobody_of_ours_ever_saw_tells_no_story(scene: Scene) -> None:
    await scene.start()
    await scene.mine(FINALITY)
    await scene.pay(*KEYS)
    await scene.sent()
    await scene.stop()
    await scene.chain.mine(2)
    await scene.chain.reorg(2)
    await scene.come_back()
    await scene.settle()
    assert "tx.reorged" not in [kind for key in KEYS for kind in await scene.history(key)]
    await scene.audit()


async def test_reorgs_one_after_the_other_with_a_burst_under_way_execute_each_once(
    scene: Scene, interlude: Interlude
) -> None:
    keys = [f"w{n}" for n in range(12)]
    await scene.start(window=4)
    await scene.mine(FINALITY)
    await scene.pay(*keys)
    for depth in (1, 2, 3, 1):
        await scene.mine(depth)
        await scene.chain.reorg(depth)
        await scene.seen()
    await interlude()
    await scene.settle()
    await scene.audit()


async def test_a_reorg_past_finality_stops_the_lane_with_a_mark_and_ends_stay(scene: Scene) -> None:
    await scene.start()
    await scene.mine(2)
    await scene.pay("final")
    await scene.settle()
    await scene.pay("flying")
    await scene.sent("flying")
    await scene.chain.reorg(FINALITY + 3)
    await scene.chain.mine(2)
    await scene.until(lambda: _lane_mark(scene), "the lane is marked", tick=scene.tick)
    assert await scene.lane_mark() == "chain_halted"
    assert (await scene.tx("final")).state is State.CONFIRMED
    sent = len(scene.proxy.sent)
    await scene.pay("after")
    await scene.proxy.forget_mempool()
    for _ in range(5):
        await scene.tick()
    assert len(scene.proxy.sent) == sent
    assert (await scene.tx("after")).state is State.QUEUED


async def _lane_mark(scene: Scene) -> bool:
    return await scene.lane_mark() is not None


async def test_after_a_reorg_the_receipt_tells_the_price_that_was_paid_in_the_end(
    scene: Scene, interlude: Interlude
) -> None:
    await mined_at_depth(scene, 2, ["a"])
    before = (await scene.tx("a")).receipt
    await scene.chain.reorg(2)
    await scene.become(State.SENT)
    await interlude()
    await scene.base_fee(2 * GWEI)
    await scene.settle()
    after = (await scene.tx("a")).receipt
    assert before is not None
    assert after is not None
    assert after.gas_price != before.gas_price
    await scene.audit()
