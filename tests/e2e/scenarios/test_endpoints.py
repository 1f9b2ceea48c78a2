"""Endpoints that disagree, lag, lie, answer nothing or serve another chain; and a chain that is not the one it was."""

from __future__ import annotations

import pytest

from nonchalant.testing.faults import SEND
from nonchalant.words import State
from tests import anvil
from tests.e2e.scenarios.conftest import Interlude
from tests.e2e.scenarios.scene import ALICE, Scene
from tests.lessons import lesson

KEYS = ["a", "b", "c"]


@lesson("lower-count")
async def test_an_endpoint_that_lags_is_believed_in_nothing_that_it_does_not_have(
    scene: Scene, interlude: Interlude
) -> None:
    await scene.start(endpoints=2)
    scene.proxies[0].lag(3)
    await scene.pay("a", "b")
    await scene.sent()
    await scene.mined("a", "b")
    await interlude()
    await scene.pay("c")
    await scene.settle()
    assert await scene.nonces(*KEYS) == [0, 1, 2]
    assert "tx.reorged" not in [kind for key in KEYS for kind in await scene.history(key)]
    await scene.audit()


async def test_a_lagging_endpoint_holds_finality_back_to_what_both_call_final(scene: Scene) -> None:
    await scene.start(endpoints=2)
    lag = scene.proxies[1].lag(4)
    await scene.pay("a")
    await scene.sent()
    await scene.mined("a")
    await scene.mine(4)
    assert (await scene.tx("a")).state is State.MINED
    assert scene.follower.head.final.number < (await scene.tx("a")).receipt.block.number  # type: ignore[union-attr]
    lag.off()
    await scene.become(State.CONFIRMED)
    await scene.audit()


async def test_endpoints_on_two_forks_settle_nothing_that_only_one_of_them_has(
    scene: Scene, interlude: Interlude
) -> None:
    await scene.start(endpoints=2)
    await scene.mine(3)
    await scene.pay("a")
    await scene.sent()
    await scene.mined("a")
    photograph, boast = await scene.proxies[1].freeze(), scene.proxies[1].finality_ahead(2)
    await scene.chain.reorg(1)
    await scene.chain.mine(4)
    await interlude()
    await scene.until(lambda: "agree" in (scene.follower.trouble or ""), "the disagreement is told")
    assert (await scene.tx("a")).state is not State.CONFIRMED
    photograph.off()
    boast.off()
    await scene.settle()
    await scene.audit()


@lesson("consumed-by-ourselves")
@pytest.mark.parametrize("count", ["0x9", "0x0"], ids=["too high", "too low"])
async def test_one_endpoint_of_three_with_a_wrong_count_moves_no_nonce(
    scene: Scene, interlude: Interlude, count: str
) -> None:
    await scene.start(endpoints=3)
    await scene.pay("a")
    await scene.settle()
    scene.proxies[0].answer("eth_getTransactionCount", count)
    await scene.pay("b")
    await scene.sent("b")
    await interlude()
    await scene.pay("c")
    await scene.settle()
    assert await scene.nonces(*KEYS) == [0, 1, 2]
    assert (await scene.audit()).fillers == 0


@pytest.mark.telling
@lesson("one-receipt")
async def test_one_endpoint_that_calls_its_head_final_settles_nothing_early(scene: Scene, interlude: Interlude) -> None:
    await scene.start(endpoints=2)
    scene.proxies[0].finality_ahead(2)
    await scene.pay("a")
    await scene.sent()
    await scene.mined("a")
    await interlude()
    await scene.seen()
    assert (await scene.tx("a")).state is State.MINED
    await scene.chain.reorg(1)
    await scene.become(State.SENT)
    await scene.settle()
    await scene.audit()


async def test_a_finalised_block_that_no_endpoint_names_any_more_stops_settling_until_it_is_back(
    scene: Scene, interlude: Interlude
) -> None:
    await scene.start()
    await scene.mine(3)
    await scene.pay("a")
    await scene.sent()
    await scene.mined("a")
    missing = scene.proxy.finality_missing()
    await scene.chain.mine(3)
    await scene.until(lambda: scene.follower.trouble, "the trouble is told")
    await interlude()
    assert (await scene.tx("a")).state is State.MINED
    missing.off()
    await scene.settle()
    await scene.audit()


async def test_one_of_two_endpoints_without_a_finalised_block_does_not_count(scene: Scene) -> None:
    """As it answers no view at all, the other one is half of them, and its word is enough."""
    await scene.start(endpoints=2)
    scene.proxies[1].finality_missing()
    await scene.pay(*KEYS)
    await scene.settle()
    await scene.audit()


@lesson("slow-neighbour")
@pytest.mark.parametrize("silent", [0, 1], ids=["first", "second"])
async def test_an_endpoint_that_answers_nothing_holds_nothing_up(
    scene: Scene, interlude: Interlude, silent: int
) -> None:
    await scene.start(endpoints=2)
    scene.proxies[silent].hang()
    await scene.pay("a", "b")
    await scene.sent()
    await interlude()
    await scene.pay("c")
    await scene.settle()
    assert not scene.proxies[silent].delivered
    await scene.audit()


@lesson("slow-neighbour")
async def test_an_endpoint_that_answers_its_head_and_nothing_else_holds_nothing_up(scene: Scene) -> None:
    await scene.start(endpoints=2)
    for method in ("eth_getTransactionCount", "eth_estimateGas", "eth_getTransactionReceipt", SEND):
        scene.proxies[0].hang(method=method)
    await scene.pay(*KEYS)
    await scene.settle()
    await scene.audit()


async def test_an_endpoint_that_refuses_every_send_is_made_up_for_by_the_other(
    scene: Scene, interlude: Interlude
) -> None:
    await scene.start(endpoints=2)
    scene.proxies[0].refuse(SEND, "transaction sender is not allowed", code=-32000)
    await scene.pay(*KEYS)
    await scene.sent()
    await interlude()
    await scene.settle()
    await scene.audit()


async def test_no_endpoint_for_a_while_loses_nothing(scene: Scene, interlude: Interlude) -> None:
    await scene.start(endpoints=2)
    await scene.pay("a")
    await scene.sent()
    outage = [proxy.reset() for proxy in scene.proxies]
    await scene.pay("b", "c")
    await scene.chain.mine()
    await outage[0].struck(5)
    await interlude()
    assert [tx.state for tx in await scene.txs(KEYS)] == [State.SENT, State.QUEUED, State.QUEUED]
    for fault in outage:
        fault.off()
    await scene.settle()
    await scene.audit()


async def test_an_endpoint_of_another_chain_is_handed_nothing(scene: Scene, interlude: Interlude) -> None:
    await scene.start(endpoints=2)
    scene.proxies[0].answer("eth_chainId", "0x1")
    await scene.pay(*KEYS)
    await scene.sent()
    await interlude()
    await scene.settle()
    assert scene.proxies[0].sent == []
    await scene.audit()


async def test_a_node_that_comes_back_as_another_chain_is_handed_nothing_until_it_is_ours_again(
    scene: Scene, interlude: Interlude
) -> None:
    await scene.start()
    await scene.pay("a")
    await scene.settle()
    other = scene.proxy.answer("eth_chainId", "0x1")
    await scene.until(lambda: "chain 1" in (scene.follower.trouble or ""), "the wrong chain is told")
    handed_over = len(scene.proxy.sent)
    await scene.pay("b", "c")
    await other.struck(5)
    await interlude()
    assert [tx.state for tx in await scene.txs(["b", "c"])] == [State.QUEUED, State.QUEUED]
    assert len(scene.proxy.sent) == handed_over
    other.off()
    await scene.settle()
    await scene.audit()


@pytest.mark.parametrize("taller", [False, pytest.param(True, marks=pytest.mark.telling)], ids=["shorter", "taller"])
async def test_a_chain_that_was_reset_is_noticed_and_nothing_is_sent_to_it(scene: Scene, taller: bool) -> None:
    """Another chain with the same id stands where ours was: nothing that we called final is on it."""
    await scene.start()
    await scene.pay("done")
    await scene.settle()
    await scene.pay("flying")
    await scene.sent("flying")
    height = await scene.chain.height()
    await scene.chain.stop()
    async with anvil.running(port=scene.chain.port) as other:
        await other.mine(height + 5 if taller else height - 2)
        await scene.until(lambda: _halted(scene), "the lane is stopped and marked", tick=other.mine)
        before = len(scene.proxy.sent)
        await scene.pay("after")
        for _ in range(5):
            await scene.tick()
        assert len(scene.proxy.sent) == before
        states = [tx.state for tx in await scene.txs(["done", "flying", "after"])]
        assert states == [State.CONFIRMED, State.SENT, State.QUEUED]
        assert int(await other.rpc("eth_getTransactionCount", ALICE, "latest"), 16) == 0


async def _halted(scene: Scene) -> bool:
    return await scene.lane_mark() == "chain_halted"


async def test_receipts_that_one_endpoint_never_has_come_from_the_other(scene: Scene, interlude: Interlude) -> None:
    await scene.start(endpoints=2)
    scene.proxies[0].answer("eth_getTransactionReceipt", None)
    scene.proxies[0].answer("eth_getBlockReceipts", None)
    await scene.pay(*KEYS)
    await scene.sent()
    await interlude()
    await scene.settle()
    assert "tx.superseded" not in [kind for key in KEYS for kind in await scene.history(key)]
    await scene.audit()


@lesson("missing-receipt")
async def test_receipts_that_nobody_has_are_no_proof_and_are_waited_for(scene: Scene, interlude: Interlude) -> None:
    await scene.start()
    await scene.pay(*KEYS)
    await scene.sent()
    none = [scene.proxy.answer(f"eth_get{what}", None) for what in ("TransactionReceipt", "BlockReceipts")]
    await scene.chain.mine(4)
    await none[0].struck(3)
    await interlude()
    assert {tx.state for tx in await scene.txs(KEYS)} == {State.SENT}
    for rule in none:
        rule.off()
    await scene.settle()
    assert await scene.nonces(*KEYS) == [0, 1, 2]
    assert "tx.superseded" not in [kind for key in KEYS for kind in await scene.history(key)]
    await scene.audit()
