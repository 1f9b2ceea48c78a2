"""Endpoint and chain against a real node."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from nonchalant.chain.evm import endpoints
from nonchalant.chain.evm.endpoints import EvmChain, EvmEndpoint
from nonchalant.errors import NodeRefused, Unreachable
from nonchalant.model import Accepted, BlockRef, Draft, Executed, Fees, Payload, Refused, Sealed, Unknown
from nonchalant.ports import Chain, Endpoint, Signer
from nonchalant.signers import LocalSigner, from_private_key
from nonchalant.values import replace
from nonchalant.words import LaneKey, Speed
from tests.anvil import ADDRESSES, CHAIN_ID, KEYS, Anvil, running

GWEI = 10**9
ALICE, BOB = ADDRESSES[0], ADDRESSES[1]
REVERTS = bytes.fromhex("60006000fd")  # PUSH1 0 PUSH1 0 REVERT
OVERFLOWS = bytes.fromhex("7f4e487b71" + "00" * 28 + "600052601160045260246000fd")  # reverts with Panic(0x11)
RETURNS_NOTHING = bytes.fromhex("600a80600b6000396000f3") + bytes(10)  # init code: deploys ten zero bytes
NOWHERE = "0x" + "77" * 32


@pytest.fixture
async def endpoint(node: Anvil) -> AsyncIterator[EvmEndpoint]:
    made = at(node.url)
    yield made
    await made.close()


@pytest.fixture
def alice() -> LocalSigner:
    return from_private_key(KEYS[0])


def at(url: str, chain_id: int = CHAIN_ID, *, finality_tag: bool = True) -> EvmEndpoint:
    return EvmEndpoint(chain_id, url, "anvil", timeout=10, finality_tag=finality_tag)


CHAIN = EvmChain(CHAIN_ID, [])
TRANSFER = Draft(
    lane=LaneKey(CHAIN_ID, ALICE),
    nonce=0,
    payload=Payload(to=BOB, value=5),
    gas=21_000,
    fees=Fees(20 * GWEI, GWEI),
)


async def sealed(signer: Signer, *drafts: Draft) -> list[Sealed]:
    signatures = await signer.sign([CHAIN.digest(draft) for draft in drafts])
    return [CHAIN.seal(draft, signature) for draft, signature in zip(drafts, signatures, strict=True)]


async def transfers(signer: Signer, count: int) -> list[Sealed]:
    return await sealed(signer, *(replace(TRANSFER, nonce=nonce) for nonce in range(count)))


def test_the_adapters_are_what_the_ports_ask_for(alice):
    endpoint: Endpoint = at("http://127.0.0.1:1")
    chain: Chain = EvmChain(CHAIN_ID, [at("http://127.0.0.1:1")])
    signer: Signer = alice
    assert (endpoint.name, chain.chain_id, signer.address) == ("anvil", CHAIN_ID, ALICE)


@pytest.mark.parametrize(
    ("fees", "access_list"),
    [
        (Fees(20 * GWEI), ()),
        (Fees(20 * GWEI), ((BOB, ("0x" + "00" * 32,)),)),
        (Fees(20 * GWEI, GWEI), ()),
        (Fees(20 * GWEI, GWEI), ((BOB, ()),)),
    ],
)
async def test_every_type_is_executed_under_the_hash_we_computed(node, endpoint, alice, fees, access_list):
    payload = Payload(to=BOB, value=5, data=b"hello", access_list=access_list)
    [transaction] = await sealed(alice, replace(TRANSFER, payload=payload, gas=60_000, fees=fees))
    assert await endpoint.send([transaction.raw]) == [Accepted()]
    await node.mine()
    head = (await endpoint.view()).head
    [receipt] = await endpoint.receipts(head, [transaction.hash])
    assert receipt.succeeded
    assert receipt.block == head
    assert receipt.cost > 0
    assert await endpoint.executed(head) == [Executed(transaction.hash, ALICE, 0, BOB, 5, b"hello")]
    assert (await endpoint.account(ALICE, head)).balance == 10_000 * 10**18 - 5 - receipt.cost


async def test_a_view_holds_the_head_and_the_finalised_block(node, endpoint):
    await node.mine(5)
    view = await endpoint.view()
    assert (view.head.number, view.finalized.number) == (5, 3)
    assert view.finalized == (await endpoint.block(3)).ref


async def test_the_finalised_block_is_not_asked_for_where_a_depth_decides(node):
    plain = at(node.url, finality_tag=False)
    assert (await plain.view()).finalized is None
    await plain.close()


async def test_blocks_are_linked_and_found_by_number_and_by_hash(node, endpoint, alice):
    [transaction] = await transfers(alice, 1)
    await endpoint.send([transaction.raw])
    await node.mine(2)
    first, second = await endpoint.block(1), await endpoint.block(2)
    assert first.transactions == (transaction.hash,)
    assert second.parent == first.hash
    assert await endpoint.block(first.hash) == first
    assert await endpoint.block(99) is None
    assert await endpoint.block(NOWHERE) is None


@pytest.mark.parametrize("count", [3, endpoints.MANY_RECEIPTS + 8])
async def test_receipts_come_from_exactly_the_block_asked_for(node, endpoint, alice, count):
    batch = await transfers(alice, count)
    assert await endpoint.send([each.raw for each in batch]) == [Accepted()] * count
    await node.mine()
    head = (await endpoint.view()).head
    hashes = [each.hash for each in batch]
    assert [receipt.hash for receipt in await endpoint.receipts(head, hashes)] == hashes
    assert [receipt.hash for receipt in await endpoint.receipts(head, hashes[::-1])] == hashes[::-1]
    for wrong in (BlockRef(head.number, NOWHERE), BlockRef(head.number - 1, (await endpoint.block(0)).hash)):
        with pytest.raises(Unreachable):
            await endpoint.receipts(wrong, hashes)
    with pytest.raises(Unreachable, match=f"{count} of {count + 1}"):
        await endpoint.receipts(head, [*hashes, NOWHERE])
    assert await endpoint.receipts(head, []) == []


async def test_a_receipt_is_gone_after_a_reorg_and_the_old_block_is_no_longer_believed(node, endpoint, alice):
    [transaction] = await transfers(alice, 1)
    await endpoint.send([transaction.raw])
    await node.mine()
    old = (await endpoint.view()).head
    assert (await endpoint.account(ALICE, old)).count == 1
    await node.reorg(1)
    assert (await endpoint.view()).head != old
    assert await endpoint.find([transaction.hash]) == [None]
    with pytest.raises(Unreachable):
        await endpoint.receipts(old, [transaction.hash])
    with pytest.raises(Unreachable):
        await endpoint.account(ALICE, old)
    with pytest.raises(Unreachable):
        await endpoint.executed(old)
    with pytest.raises(Unreachable):
        await endpoint.estimate(ALICE, Payload(to=BOB), old)


async def test_a_block_the_node_does_not_have_yet_is_unreachable_for_every_question(endpoint):
    ahead = BlockRef(50, NOWHERE)
    with pytest.raises(Unreachable):
        await endpoint.account(ALICE, ahead)
    with pytest.raises(Unreachable):
        await endpoint.estimate(ALICE, Payload(to=BOB), ahead)
    with pytest.raises(Unreachable):
        await endpoint.executed(ahead)
    with pytest.raises(Unreachable):
        await endpoint.receipts(ahead, [NOWHERE])


async def test_find_answers_none_for_what_is_unknown_or_pending(node, endpoint, alice):
    mined, pending = await transfers(alice, 2)
    await endpoint.send([mined.raw])
    await node.mine()
    await endpoint.send([pending.raw])
    first, second, third = await endpoint.find([mined.hash, pending.hash, NOWHERE])
    assert first.block.number == 1
    assert (second, third) == (None, None)


async def test_an_account_is_read_at_the_block_asked_for(node, endpoint, alice):
    for transaction in await transfers(alice, 3):
        await endpoint.send([transaction.raw])
        await node.mine()
    for number in range(4):
        assert (await endpoint.account(ALICE, (await endpoint.block(number)).ref)).count == number


async def test_an_account_is_delegated_while_its_code_is_a_delegation(node, endpoint):
    async def delegated() -> bool:
        return (await endpoint.account(ALICE, (await endpoint.view()).head)).delegated

    assert not await delegated()
    await node.set_code(ALICE, bytes.fromhex("ef0100" + "ab" * 20))
    assert await delegated()
    for code in (REVERTS, b""):
        await node.set_code(ALICE, code)
        assert not await delegated()


async def test_the_pending_count_is_the_pools(node, endpoint, alice):
    assert await endpoint.pending(ALICE) == 0
    await endpoint.send([transaction.raw for transaction in await transfers(alice, 3)])
    assert await endpoint.pending(ALICE) == 3
    assert (await endpoint.account(ALICE, (await endpoint.view()).head)).count == 0
    await node.drop_all()
    assert await endpoint.pending(ALICE) == 0


async def test_a_reverted_transaction_is_reported_as_such_and_a_creation_names_its_contract(node, endpoint, alice):
    target = "0x" + "ee" * 20
    await node.set_code(target, REVERTS)
    creation = Payload(to=None, data=RETURNS_NOTHING)
    fails, creates = await sealed(
        alice,
        replace(TRANSFER, payload=Payload(to=target), gas=100_000),
        replace(TRANSFER, nonce=1, payload=creation, gas=200_000),
    )
    await endpoint.send([fails.raw, creates.raw])
    await node.mine()
    failed, created = await endpoint.find([fails.hash, creates.hash])
    assert not failed.succeeded
    assert created.succeeded
    assert await node.rpc("eth_getCode", created.contract, "latest") == "0x" + "00" * 10
    assert (await endpoint.executed(created.block))[1].to is None


async def test_estimates_are_for_the_newest_block_and_refusals_carry_the_nodes_words(node, endpoint):
    head = (await endpoint.view()).head
    assert await endpoint.estimate(ALICE, Payload(to=BOB, value=1), head) == 21_000
    assert await endpoint.estimate(ALICE, Payload(to=None, data=RETURNS_NOTHING), head) > 53_000
    with_list = Payload(to=BOB, access_list=((BOB, (NOWHERE,)),))
    assert await endpoint.estimate(ALICE, with_list, head) > 21_000
    await node.set_code("0x" + "ee" * 20, REVERTS)
    with pytest.raises(NodeRefused, match="revert"):
        await endpoint.estimate(ALICE, Payload(to="0x" + "ee" * 20), head)
    await node.set_code("0x" + "ef" * 20, OVERFLOWS)
    with pytest.raises(NodeRefused, match=r"^execution reverted: arithmetic overflow or underflow \(panic 0x11\)$"):
        await endpoint.estimate(ALICE, Payload(to="0x" + "ef" * 20), head)


async def test_what_our_head_does_not_show_yet_is_estimated_as_it_will_run(node, endpoint):
    """A caller may have seen the block already; for a contract that is not there, a transfer's gas would seem enough."""
    before = (await endpoint.view()).head
    await node.mine()
    await node.set_code("0x" + "ed" * 20, bytes.fromhex("6001600055"))  # it stores a one
    await node.mine()
    assert await endpoint.estimate(ALICE, Payload(to="0x" + "ed" * 20), before) > 40_000


async def test_the_market_has_a_base_fee_and_a_tip_for_every_speed(node, endpoint, alice):
    quiet = await endpoint.market()
    assert quiet.base_fee > 0
    assert quiet.gas_limit == int((await node.rpc("eth_getBlockByNumber", "latest", False))["gasLimit"], 16)
    assert set(quiet.priority) == set(Speed)
    for transaction in await transfers(alice, 3):
        await endpoint.send([transaction.raw])
        await node.mine()
    busy = await endpoint.market()
    assert busy.priority == dict.fromkeys(Speed, GWEI)
    assert busy.base_fee != quiet.base_fee


async def test_a_chain_without_a_base_fee_has_a_gas_price():
    async with running("--hardfork", "istanbul") as node:
        endpoint = at(node.url)
        market = await endpoint.market()
        await endpoint.close()
    assert market.base_fee is None
    assert market.gas_price > 0
    assert market.priority == {}


async def test_each_of_a_batch_gets_its_own_answer_in_order(node, endpoint, alice):
    good, again, poor, gapped = await sealed(
        alice,
        TRANSFER,
        TRANSFER,
        replace(TRANSFER, nonce=1, payload=Payload(to=BOB, value=10**30)),
        replace(TRANSFER, nonce=5),
    )
    answers = await endpoint.send([good.raw, again.raw, poor.raw, gapped.raw, b"\x02rubbish"])
    assert answers[0] == Accepted()
    assert answers[3] == Accepted()
    assert all(isinstance(answers[index], Refused) for index in (1, 2, 4)), answers
    assert "already" in answers[1].message
    assert "funds" in answers[2].message.lower()


async def test_a_node_of_another_chain_answers_nothing_and_is_handed_nothing(node, alice):
    [transaction] = await transfers(alice, 1)
    endpoint = at(node.url, chain_id=1)
    head = BlockRef(0, NOWHERE)
    for question in (
        endpoint.view(),
        endpoint.block(0),
        endpoint.find([transaction.hash]),
        endpoint.receipts(head, [transaction.hash]),
        endpoint.account(ALICE, head),
        endpoint.executed(head),
        endpoint.pending(ALICE),
        endpoint.estimate(ALICE, Payload(to=BOB), head),
        endpoint.replay(ALICE, Payload(to=BOB), 21_000, head),
        endpoint.market(),
    ):
        with pytest.raises(Unreachable, match="answers for chain 31337, not 1"):
            await question
    [answer] = await endpoint.send([transaction.raw])
    assert isinstance(answer, Unknown)
    assert "chain 31337, not 1" in answer.reason
    await endpoint.close()
    assert await node.rpc("eth_getTransactionByHash", transaction.hash) is None


async def test_a_node_that_comes_back_as_another_chain_is_noticed_before_it_is_handed_anything(alice):
    [transaction] = await transfers(alice, 1)
    async with running() as node:
        port = node.port
        endpoint = at(node.url)
        assert (await endpoint.view()).head.number == 0
    with pytest.raises(Unreachable):
        await endpoint.view()
    async with running(chain_id=999, port=port) as other:
        [answer] = await endpoint.send([transaction.raw])
        assert isinstance(answer, Unknown)
        assert "chain 999" in answer.reason
        assert await other.rpc("eth_getTransactionByHash", transaction.hash) is None
    await endpoint.close()


async def test_a_node_that_is_gone_raises_unreachable_and_leaves_sends_unknown(alice):
    [transaction] = await transfers(alice, 1)
    async with running() as node:
        endpoint = at(node.url)
        await endpoint.view()
    assert all(isinstance(answer, Unknown) for answer in await endpoint.send([transaction.raw] * 3))
    with pytest.raises(Unreachable):
        await endpoint.block(0)
    await endpoint.close()


async def test_a_thousand_transactions_are_handed_over_in_order(node, endpoint, alice):
    batch = await transfers(alice, 1_000)
    assert await endpoint.send([each.raw for each in batch]) == [Accepted()] * 1_000
    await node.mine()
    head = (await endpoint.view()).head
    block = await endpoint.block(head.hash)
    assert block.transactions == tuple(each.hash for each in batch)
    assert (await endpoint.account(ALICE, head)).count == 1_000
