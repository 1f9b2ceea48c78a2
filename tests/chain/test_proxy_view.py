"""The chain that the fault proxy shows: late, still, forked, or lying about what is final."""

from __future__ import annotations

import pytest

from nonchalant.errors import NodeRefused, Unreachable
from nonchalant.model import Account, Payload
from tests.chain.proxied import ALICE, BOB, ask, result, transfer


async def test_a_lagging_view_knows_nothing_above_its_head(node, proxy, endpoint, truth):
    await node.mine(6)
    await endpoint.send([transfer().raw])
    await node.mine(3)
    real = await truth.view()
    assert (real.head.number, real.finalized.number) == (9, 7)
    block = (await truth.block(7)).hash
    async with proxy.lag(3):
        view = await endpoint.view()
        assert (view.head.number, view.finalized.number) == (6, 4)
        assert view.head.hash == (await truth.block(6)).hash
        assert await result(proxy.url, "eth_blockNumber") == "0x6"
        assert await endpoint.block(7) is None
        assert await endpoint.block(block) is None
        assert await endpoint.find([transfer().hash]) == [None]
        assert await result(proxy.url, "eth_getBlockReceipts", "0x7") is None
        assert await result(proxy.url, "eth_getBlockReceipts", block) is None
        assert (await result(proxy.url, "eth_getTransactionByHash", transfer().hash))["blockNumber"] is None
        assert await endpoint.account(ALICE, view.head) == Account(0, 10_000 * 10**18)
        assert await result(proxy.url, "eth_getTransactionCount", ALICE, "latest") == "0x0"
        assert await result(proxy.url, "eth_getTransactionCount", ALICE, {"blockNumber": "0x6"}) == "0x0"
        assert await result(proxy.url, "eth_getTransactionCount", ALICE, "pending") == "0x1"
        assert await result(proxy.url, "eth_getLogs", {"fromBlock": "earliest"}) == []
        with pytest.raises(Unreachable):
            await endpoint.account(ALICE, real.head)
        answer = await ask(proxy.url, ("eth_getBalance", ALICE, "0x7"))
        assert answer["error"] == {"code": -32000, "message": "header not found"}
        assert await endpoint.estimate(ALICE, Payload(to=BOB), view.head) == 21_000
        assert (await result(proxy.url, "eth_feeHistory", "0x2", "latest", []))["oldestBlock"] == "0x5"
        await node.mine()
        assert (await endpoint.view()).head.number == 7
        assert await endpoint.find([transfer().hash]) == await truth.find([transfer().hash])
    assert await endpoint.view() == await truth.view()


async def test_a_lag_longer_than_the_chain_shows_its_first_block(node, proxy, endpoint):
    await node.mine(2)
    proxy.lag(5)
    view = await endpoint.view()
    assert (view.head.number, view.finalized.number) == (0, 0)


async def test_a_frozen_view_does_not_move(node, proxy, endpoint, truth):
    await node.mine(5)
    before = await endpoint.view()
    async with await proxy.freeze():
        await endpoint.send([transfer().raw])
        await node.mine(3)
        assert await endpoint.view() == before
        assert await endpoint.block(6) is None
        assert await endpoint.block((await truth.block(6)).hash) is None
        assert await endpoint.find([transfer().hash]) == [None]
        assert (await endpoint.account(ALICE, before.head)).count == 0
        assert await endpoint.estimate(ALICE, Payload(to=BOB), before.head) == 21_000
    assert (await endpoint.view()).head.number == 8


async def test_two_views_of_one_chain_after_a_reorg(node, proxy, endpoint, truth):
    await node.mine(5)
    await endpoint.send([transfer().raw])
    await node.mine(3)
    old = await endpoint.view()
    receipts = await endpoint.find([transfer().hash])
    blocks = [await endpoint.block(number) for number in range(9)]
    executed = await endpoint.executed(receipts[0].block)
    account = await endpoint.account(ALICE, old.head)
    await proxy.freeze()
    await node.reorg(4)
    await node.mine(2)

    new = await truth.view()
    assert await truth.find([transfer().hash]) == [None]
    assert await truth.block(old.head.hash) is None

    assert await endpoint.view() == old
    assert [await endpoint.block(number) for number in range(9)] == blocks
    assert [await endpoint.block(block.hash) for block in blocks] == blocks
    assert await endpoint.block(new.head.hash) is None
    assert await endpoint.find([transfer().hash]) == receipts
    assert list(await endpoint.receipts(receipts[0].block, [transfer().hash])) == receipts
    assert await result(proxy.url, "eth_getBlockReceipts", receipts[0].block.hash) != []
    assert await endpoint.executed(receipts[0].block) == executed
    assert (await result(proxy.url, "eth_getTransactionByHash", transfer().hash))["blockHash"] == receipts[0].block.hash
    assert await endpoint.account(ALICE, old.head) == account
    assert (await endpoint.account(ALICE, old.head)).count == 1
    assert await endpoint.estimate(ALICE, Payload(to=BOB), old.head) == 21_000

    proxy.finality_ahead(99)
    assert (await endpoint.view()).finalized == old.head
    proxy.heal()
    assert await endpoint.view() == new


async def test_an_old_view_keeps_the_code_that_accounts_had(node, proxy, endpoint, truth):
    await node.mine(4)
    await node.set_code(ALICE, bytes.fromhex("ef0100" + "ab" * 20))
    await node.mine()
    old = (await endpoint.view()).head
    await endpoint.account(ALICE, old)  # the proxy keeps the accounts that were asked for
    await proxy.freeze()
    await node.reorg(3)
    assert (await endpoint.account(ALICE, old)).delegated
    assert not (await truth.account(ALICE, (await truth.view()).head)).delegated


async def test_the_old_fork_outlives_a_node_that_is_shorter_now(node, proxy, endpoint):
    await node.mine(6)
    old = await endpoint.view()
    await proxy.freeze(depth=4)
    await node.rollback(3)
    assert await endpoint.view() == old
    assert (await endpoint.account(BOB, old.head)).count == 0
    assert await endpoint.estimate(ALICE, Payload(to=BOB), old.head) == 21_000


async def test_a_lie_about_finality_reaches_up_to_the_head(node, proxy, endpoint):
    await node.mine(8)
    async with proxy.finality_ahead(1):
        assert (await endpoint.view()).finalized.number == 7
        assert await result(proxy.url, "eth_getTransactionCount", ALICE, "finalized") == "0x0"
    async with proxy.finality_ahead(50):
        view = await endpoint.view()
        assert view.finalized == view.head
    assert (await endpoint.view()).finalized.number == 6


async def test_a_missing_finalized_is_an_error(node, proxy, endpoint):
    async with proxy.finality_missing():
        with pytest.raises(Unreachable, match="finalized block not found"):
            await endpoint.view()
        assert await result(proxy.url, "eth_blockNumber") == "0x0"
    await endpoint.view()


async def test_the_node_s_own_refusals_come_through_a_blurred_view(node, proxy, endpoint):
    await node.set_code(BOB, bytes.fromhex("60006000fd"))  # PUSH1 0 PUSH1 0 REVERT
    await node.mine(2)
    proxy.lag(1)
    with pytest.raises(NodeRefused) as refused:
        await endpoint.estimate(ALICE, Payload(to=BOB), (await endpoint.view()).head)
    assert refused.value.node_code == 3
