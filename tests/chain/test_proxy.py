"""The fault proxy before a real node: each fault does what it says, and what it does not say stays well."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import aiohttp
import pytest
from coincurve import PrivateKey
from eth_account import Account as EthAccount
from hypothesis import given
from hypothesis import strategies as st

from nonchalant.chain.evm import encoding
from nonchalant.chain.evm.decoding import RawTransaction, decode, unrlp
from nonchalant.chain.evm.endpoints import EvmEndpoint
from nonchalant.errors import NodeRefused, Unreachable
from nonchalant.model import Accepted, Account, Draft, Fees, LaneKey, Payload, Refused, Sealed, Unknown
from nonchalant.testing import FaultProxy, Told
from nonchalant.testing.rules import (
    ARBITRUM,
    GETH,
    RETH,
    AccountLimit,
    DelegatedLimit,
    Held,
    NoGaps,
    Pooled,
    PoolLimit,
    PriceFloor,
    ReplacementStep,
    Swallowed,
)
from tests.anvil import ADDRESSES, CHAIN_ID, KEYS, Anvil, running

GWEI = 10**9
ALICE, BOB = ADDRESSES[0], ADDRESSES[1]
FEES = Fees(20 * GWEI, GWEI)
DELEGATED = bytes.fromhex("ef0100") + bytes.fromhex(BOB[2:])  # EIP-7702: ALICE runs the code of BOB


@pytest.fixture
async def node() -> AsyncIterator[Anvil]:
    async with running() as anvil:
        yield anvil


@pytest.fixture
async def proxy(node: Anvil) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(node.url) as made:
        yield made


@asynccontextmanager
async def client(url: str, patience: float = 30) -> AsyncIterator[EvmEndpoint]:
    made = EvmEndpoint(CHAIN_ID, url, "proxy", timeout=patience, finality_tag=True)
    try:
        yield made
    finally:
        await made.close()


@pytest.fixture
async def endpoint(proxy: FaultProxy) -> AsyncIterator[EvmEndpoint]:
    async with client(proxy.url) as made:
        yield made


@pytest.fixture
async def hasty(proxy: FaultProxy) -> AsyncIterator[EvmEndpoint]:
    """A client that gives up soon, and knows already whom it talks to."""
    async with client(proxy.url, patience=1) as made:
        await made.view()
        yield made


@pytest.fixture
async def truth(node: Anvil) -> AsyncIterator[EvmEndpoint]:
    """The node itself, past the proxy."""
    async with client(node.url) as made:
        yield made


def transfer(nonce: int = 0, fees: Fees = FEES, key: int = 0, value: int = 5) -> Sealed:
    draft = Draft(
        lane=LaneKey(CHAIN_ID, ADDRESSES[key]),
        nonce=nonce,
        payload=Payload(to=BOB, value=value),
        gas=60_000,
        fees=fees,
    )
    private = PrivateKey(bytes.fromhex(KEYS[key][2:]))
    return encoding.seal(draft, private.sign_recoverable(encoding.digest(draft), hasher=None))


def transfers(count: int) -> list[Sealed]:
    return [transfer(nonce) for nonce in range(count)]


def raws(batch: list[Sealed]) -> list[bytes]:
    return [each.raw for each in batch]


def nonces(sent: list[Any]) -> list[int]:
    return [each.transaction.nonce for each in sent]


async def pool(node: Anvil) -> set[str]:
    """The hashes that the node holds."""
    content = await node.rpc("txpool_content")
    return {each["hash"] for part in content.values() for held in part.values() for each in held.values()}


async def ask(url: str, *questions: tuple[Any, ...]) -> Any:
    """The answer to one question, or to several in one batch, as it is."""
    bodies = [
        {"jsonrpc": "2.0", "id": at, "method": method, "params": params}
        for at, (method, *params) in enumerate(questions)
    ]
    async with (
        aiohttp.ClientSession() as session,
        session.post(url, json=bodies if len(bodies) > 1 else bodies[0]) as response,
    ):
        return await response.json()


async def result(url: str, method: str, *params: object) -> Any:
    return (await ask(url, (method, *params)))["result"]


# reading transactions


@given(st.integers(0, 2**32))
def test_what_our_encoder_writes_is_read_back(seed):
    chance = random.Random(seed)
    key = PrivateKey(chance.randbytes(32))
    sender = EthAccount.from_key(key.secret).address.lower()
    max_fee = chance.getrandbits(chance.randrange(1, 90))
    draft = Draft(
        lane=LaneKey(chance.choice([1, 31337, 2**40]), sender),
        nonce=chance.choice([0, 1, 127, 128, chance.getrandbits(60)]),
        payload=Payload(
            to=chance.choice([None, BOB]),
            value=chance.getrandbits(chance.randrange(1, 128)),
            data=chance.randbytes(chance.choice([0, 1, 55, 56, 300])),
            access_list=chance.choice([(), ((BOB, ("0x" + "01" * 32,)),)]),
        ),
        gas=chance.getrandbits(30),
        fees=chance.choice([Fees(max_fee), Fees(max_fee, chance.randrange(max_fee + 1))]),
    )
    sealed = encoding.seal(draft, key.sign_recoverable(encoding.digest(draft), hasher=None))
    assert decode(sealed.raw) == RawTransaction(
        kind=2 if draft.fees.priority is not None else 1 if draft.payload.access_list else 0,
        hash=sealed.hash,
        sender=sender,
        chain_id=draft.lane.chain_id,
        nonce=draft.nonce,
        max_fee=max_fee,
        priority=max_fee if draft.fees.priority is None else draft.fees.priority,
        gas=draft.gas,
        to=draft.payload.to,
        value=draft.payload.value,
        data=draft.payload.data,
    )


def test_a_signature_for_any_chain_is_read_too():
    wanted = {"nonce": 3, "gasPrice": GWEI, "gas": 21_000, "to": "0x" + "11" * 20, "value": 1, "data": b""}
    signed = EthAccount.sign_transaction(wanted, KEYS[0])
    read = decode(bytes(signed.raw_transaction))
    assert (read.sender, read.chain_id, read.nonce) == (ALICE, None, 3)


@given(st.binary(max_size=200) | st.binary(max_size=60).map(lambda tail: transfer().raw[:-60] + tail))
def test_bytes_that_are_no_transaction_are_a_value_error(raw):
    for read in (decode, unrlp):
        try:
            read(raw)
        except ValueError:
            continue


# with no fault on


async def test_a_healthy_proxy_is_the_node(node, proxy, endpoint, truth):
    batch = transfers(3)
    assert await endpoint.send(raws(batch)) == [Accepted()] * 3
    await node.mine(4)
    assert await endpoint.view() == await truth.view()
    assert await endpoint.block(1) == await truth.block(1)
    assert await endpoint.find([each.hash for each in batch]) == await truth.find([each.hash for each in batch])
    assert nonces(proxy.sent) == nonces(proxy.delivered) == [0, 1, 2]
    assert all(each.taken and each.told is Told.ACCEPTED for each in proxy.sent)
    assert proxy.sent[0].transaction.sender == ALICE
    assert proxy.calls["eth_sendRawTransaction"] == 3
    assert proxy.requests < sum(proxy.calls.values())


async def test_what_the_node_refuses_is_recorded_with_its_words(proxy, endpoint):
    poor = transfer(value=10**30)
    [answer] = await endpoint.send([poor.raw])
    assert isinstance(answer, Refused)
    [sent] = proxy.sent
    assert (sent.told, sent.message, sent.taken) == (Told.REFUSED, answer.message, False)


async def test_what_is_no_json_rpc_is_for_the_node_to_judge(node, proxy):
    bodies = (
        b"no json",
        b"[]",
        b'{"id":1}',
        b'{"jsonrpc":"2.0","id":1,"method":"eth_sendRawTransaction","params":["0xzz"]}',
    )
    async with aiohttp.ClientSession() as session:
        for body in bodies:
            answers = []
            for url in (node.url, proxy.url):
                async with session.post(url, data=body, headers={"Content-Type": "application/json"}) as response:
                    answers.append(await response.read())
            assert answers[0] == answers[1]


async def test_a_node_that_is_gone_is_a_bad_gateway(node, proxy, endpoint):
    await node.stop()
    with pytest.raises(Unreachable, match="HTTP 502"):
        await endpoint.view()


# single calls


async def test_a_refusal_lasts_as_often_as_it_was_asked_to(node, proxy, endpoint):
    rule = proxy.refuse("eth_sendRawTransaction", "nonce too low", times=3)
    raw = transfer().raw
    for _ in range(3):
        assert await endpoint.send([raw]) == [Refused("nonce too low", -32000, None)]
    assert await pool(node) == set()
    assert await endpoint.send([raw]) == [Accepted()]
    assert rule.hits == 3
    assert [each.told for each in proxy.sent] == [Told.REFUSED] * 3 + [Told.ACCEPTED]
    assert [each.delivered_at is None for each in proxy.sent] == [True] * 3 + [False]


async def test_a_canned_answer_is_given_until_it_is_switched_off(proxy):
    rule = proxy.answer("eth_chainId", "0x1")
    assert await result(proxy.url, "eth_chainId") == "0x1"
    rule.off()
    assert await result(proxy.url, "eth_chainId") == hex(CHAIN_ID)


async def test_before_acceptance_the_bytes_never_reach_the_node(node, proxy, hasty):
    async with proxy.timeout_before_acceptance() as rule:
        [answer] = await hasty.send([transfer().raw])
        assert isinstance(answer, Unknown)
        await rule.struck()
    assert await pool(node) == set()
    assert proxy.delivered == []
    assert await hasty.send([transfer().raw]) == [Accepted()]


async def test_after_acceptance_the_node_has_them_and_the_client_hears_nothing(node, proxy, hasty):
    async with proxy.timeout_after_acceptance():
        [answer] = await hasty.send([transfer().raw])
    assert isinstance(answer, Unknown)
    assert await pool(node) == {transfer().hash}
    [sent] = proxy.sent
    assert (sent.told, sent.taken) == (Told.NOTHING, True)


@pytest.mark.parametrize("accepted", [False, True])
async def test_of_a_batch_only_the_matching_transaction_goes_unanswered(node, proxy, endpoint, accepted):
    fault = proxy.timeout_after_acceptance if accepted else proxy.timeout_before_acceptance
    fault(matching=lambda transaction: transaction.nonce == 1)
    batch = transfers(3)
    first, second, third = await endpoint.send(raws(batch))
    assert (first, third) == (Accepted(), Accepted())
    assert isinstance(second, Unknown)
    assert (batch[1].hash in await pool(node)) is accepted


async def test_a_time_out_of_another_method_leaves_sending_alone(proxy, hasty):
    proxy.timeout_before_acceptance("eth_getBlockByNumber")
    with pytest.raises(Unreachable):
        await hasty.view()
    proxy.heal()
    assert await hasty.send([transfer().raw]) == [Accepted()]


async def test_late_bytes_reach_the_node_when_they_are_released_in_the_order_asked_for(node, proxy, endpoint):
    proxy.late_delivery(times=3)
    batch = transfers(3)
    assert await endpoint.send(raws(batch)) == [Accepted()] * 3
    assert await pool(node) == set()
    proxy.heal()
    late = proxy.held[2], proxy.held[0]
    await proxy.release(*late)
    assert await pool(node) == {batch[2].hash, batch[0].hash}
    assert nonces(proxy.held) == [1]
    await proxy.release()
    assert proxy.held == []
    assert nonces(proxy.delivered) == [2, 0, 1]
    await node.mine()
    assert all(await endpoint.find([each.hash for each in batch]))


async def test_late_bytes_may_also_be_a_time_out_first(node, proxy, hasty):
    proxy.late_delivery(answered=False)
    [answer] = await hasty.send([transfer().raw])
    assert isinstance(answer, Unknown)
    await proxy.release()
    assert await pool(node) == {transfer().hash}


async def test_late_bytes_that_came_too_late_are_refused_by_the_node(node, proxy, endpoint):
    proxy.late_delivery(times=1)
    await endpoint.send([transfer(fees=Fees(30 * GWEI, 2 * GWEI)).raw])
    await endpoint.send([transfer().raw])
    await node.mine()
    await proxy.release()
    assert [each.taken for each in proxy.sent] == [False, True]


async def test_an_old_attempt_can_be_handed_over_once_more(node, proxy, endpoint):
    await endpoint.send([transfer().raw])
    await proxy.forget_mempool()
    assert await pool(node) == set()
    await proxy.release(proxy.sent[0])
    assert await pool(node) == {transfer().hash}


async def test_what_is_swallowed_was_accepted_and_is_nowhere(node, proxy, endpoint):
    proxy.swallow(times=1)
    assert await endpoint.send(raws(transfers(2))) == [Accepted()] * 2
    assert await pool(node) == {transfer(1).hash}
    assert [(each.told, each.taken) for each in proxy.sent] == [(Told.ACCEPTED, False), (Told.ACCEPTED, True)]


# whole requests

BROKEN: dict[str, tuple[Callable[..., Any], str]] = {
    "429": (lambda proxy, **options: proxy.status(429, **options), "HTTP 429"),
    "500": (lambda proxy, **options: proxy.status(500, **options), "HTTP 500"),
    "502": (lambda proxy, **options: proxy.status(502, **options), "HTTP 502"),
    "garbage": (lambda proxy, **options: proxy.garbage(**options), "JSON-RPC"),
    "reset": (lambda proxy, **options: proxy.reset(**options), "cannot be reached"),
    "hang": (lambda proxy, **options: proxy.hang(**options), "did not answer within"),
}


@pytest.mark.parametrize("delivered", [False, True])
@pytest.mark.parametrize("kind", BROKEN)
async def test_a_broken_request_breaks_for_all_its_calls(node, proxy, hasty, kind, delivered):
    switch_on, message = BROKEN[kind]
    rule = switch_on(proxy, times=1, delivered=delivered, method="eth_sendRawTransaction")
    answers = await hasty.send(raws(transfers(2)))
    assert all(isinstance(answer, Unknown) and message in answer.reason for answer in answers)
    assert rule.hits == 1
    assert len(await pool(node)) == (2 if delivered else 0)
    assert {each.told for each in proxy.sent} == {Told.NOTHING}
    assert {each.taken for each in proxy.sent} == {delivered}
    assert (await hasty.view()).head.number == 0


async def test_gateways_answer_with_a_page_for_people(proxy):
    proxy.status(502, times=1)
    async with aiohttp.ClientSession() as session, session.post(proxy.url, json={"id": 1, "method": "x"}) as response:
        assert (response.status, response.content_type) == (502, "text/html")
        assert (await response.text()).startswith("<html>")


async def test_a_reset_is_a_reset(proxy):
    proxy.reset()
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientOSError, match="reset by peer"):
            await session.post(proxy.url, json={"jsonrpc": "2.0", "id": 1, "method": "eth_chainId"})


async def test_slow_answers_are_right_answers(proxy, endpoint):
    proxy.slow(0.3, method="eth_sendRawTransaction")
    began = asyncio.get_running_loop().time()
    assert await endpoint.send([transfer().raw]) == [Accepted()]
    assert asyncio.get_running_loop().time() - began >= 0.3


async def test_a_client_that_goes_away_does_not_stop_the_node(node, proxy):
    slow = proxy.slow(1, method="eth_sendRawTransaction")
    async with FaultProxy(proxy.url) as front, client(front.url, patience=0.5) as impatient:
        front.refuse("eth_gasPrice", "so that the calls of a batch are handed over one after the other")
        await impatient.view()
        answers = await impatient.send(raws(transfers(2)))
        assert all(isinstance(answer, Unknown) for answer in answers)
        await slow.struck(2)
    assert await pool(node) == {each.hash for each in transfers(2)}


async def test_one_batch_can_have_a_refusal_an_answer_and_a_silence(proxy):
    proxy.refuse("eth_gasPrice", "no", code=-32005, data="later")
    proxy.timeout_before_acceptance("eth_chainId")
    answers = await ask(proxy.url, ("eth_gasPrice",), ("eth_chainId",), ("eth_blockNumber",))
    assert answers == [
        {"jsonrpc": "2.0", "id": 0, "error": {"code": -32005, "message": "no", "data": "later"}},
        {"jsonrpc": "2.0", "id": 2, "result": "0x0"},
    ]


# the pool


async def test_the_step_is_wanted_on_every_fee_field_and_rounded_up(node, proxy, endpoint):
    proxy.enforce(ReplacementStep())
    odd = Fees(20 * GWEI + 1, GWEI + 1)
    step = Fees(22 * GWEI + 2, 1_100_000_002)
    refused = Refused("replacement transaction underpriced", -32000, None)
    assert await endpoint.send([transfer(fees=odd).raw]) == [Accepted()]
    for fees in (replace(step, max_fee=step.max_fee - 1), replace(step, priority=step.priority - 1), odd):
        answer = Refused("transaction already imported", -32003, None) if fees == odd else refused
        assert await endpoint.send([transfer(fees=fees).raw]) == [answer]
    assert await pool(node) == {transfer(fees=odd).hash}
    assert await endpoint.send([transfer(fees=step).raw]) == [Accepted()]
    assert await pool(node) == {transfer(fees=step).hash}


async def test_a_gas_price_has_one_fee_that_counts_as_both(proxy, endpoint):
    proxy.enforce(ReplacementStep())
    prices = [Fees(20 * GWEI), Fees(22 * GWEI - 1), Fees(22 * GWEI)]
    answers = [(await endpoint.send([transfer(fees=fees).raw]))[0] for fees in prices]
    assert [type(answer) for answer in answers] == [Accepted, Refused, Accepted]


@pytest.mark.parametrize(
    ("words", "message", "code"),
    [(GETH, "account limit exceeded: pooled 2 txs", -32000), (RETH, "txpool is full", -32003)],
)
async def test_an_account_has_only_so_many_in_the_pool(node, proxy, endpoint, words, message, code):
    proxy.enforce(AccountLimit(2, words))
    answers = await endpoint.send([*raws(transfers(3)), transfer(key=1).raw])
    assert answers == [Accepted(), Accepted(), Refused(message, code, None), Accepted()]
    assert await endpoint.send([transfer(1, fees=Fees(40 * GWEI, 2 * GWEI)).raw]) == [Accepted()]
    await node.mine()
    assert await endpoint.send([transfer(2).raw]) == [Accepted()]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (GETH, "nonce too high: tx nonce 2, gapped nonce 1"),
        (RETH, "nonce too high"),
        (ARBITRUM, f"nonce too high: address {ALICE}, tx: 2 state: 0"),
    ],
)
async def test_a_gapped_nonce_is_refused(proxy, endpoint, words, message):
    proxy.enforce(NoGaps(words=words))
    answers = await endpoint.send(raws([transfer(0), transfer(2), transfer(1), transfer(2)]))
    assert answers == [Accepted(), Refused(message, -32000, None), Accepted(), Accepted()]


async def test_a_gapped_nonce_can_be_dropped_in_silence(node, proxy, endpoint):
    async with proxy.enforce(NoGaps(silently=True)) as rule:
        assert await endpoint.send(raws([transfer(0), transfer(2)])) == [Accepted()] * 2
    assert rule.hits == 1
    assert await pool(node) == {transfer(0).hash}
    assert [each.taken for each in proxy.sent] == [True, False]


async def test_a_price_below_the_floor_is_refused(proxy, endpoint):
    proxy.enforce(PriceFloor(2 * GWEI))
    answers = await endpoint.send([transfer().raw, transfer(fees=Fees(20 * GWEI, 2 * GWEI)).raw])
    message = f"transaction underpriced: gas tip cap {GWEI}, minimum needed {2 * GWEI}"
    assert answers == [Refused(message, -32000, None), Accepted()]


async def test_a_full_pool_takes_replacements_only(proxy, endpoint):
    proxy.enforce(PoolLimit(1))
    batch = [transfer(0), transfer(1), transfer(0, key=1), transfer(0, fees=Fees(40 * GWEI, 2 * GWEI))]
    full = Refused("txpool is full", -32000, None)
    assert await endpoint.send(raws(batch)) == [Accepted(), full, full, Accepted()]


async def test_a_delegated_account_has_one_in_flight(node, proxy, endpoint):
    proxy.enforce(DelegatedLimit())
    await node.set_code(ALICE, DELEGATED)
    gap, first, second = await endpoint.send(raws([transfer(1), transfer(0), transfer(1)]))
    assert gap == Refused("gapped-nonce tx from delegated accounts", -32000, None)
    assert first == Accepted()
    assert second == Refused("in-flight transaction limit reached for delegated accounts", -32000, None)
    assert await endpoint.send(raws([transfer(0, key=1), transfer(1, key=1)])) == [Accepted()] * 2


async def test_late_and_unanswered_bytes_meet_the_rules_of_the_pool_too(node, proxy, hasty):
    proxy.enforce(NoGaps())
    proxy.late_delivery(times=1)
    proxy.timeout_after_acceptance(times=1)
    assert await hasty.send([transfer(5).raw]) == [Accepted()]
    [answer] = await hasty.send([transfer(6).raw])
    assert isinstance(answer, Unknown)
    await proxy.release()
    assert await pool(node) == set()
    assert [each.taken for each in proxy.sent] == [False, False]


async def test_what_nodes_check_first_is_not_overruled(node, proxy, endpoint):
    await endpoint.send([transfer().raw])
    await node.mine()
    proxy.enforce(PoolLimit(0))
    [answer] = await endpoint.send([transfer().raw])
    assert answer.message == "nonce too low"


def test_rules_judge_values():
    read = decode(transfer(3).raw)
    same = Held(hash="0x", max_fee=read.max_fee, priority=read.priority)
    assert ReplacementStep(0).judge(read, Pooled(count=3, next_nonce=4, held={3: same})) == GETH.replacement
    assert ReplacementStep().judge(read, Pooled(count=3, next_nonce=3)) is None
    assert AccountLimit(0).judge(read, Pooled(count=3, next_nonce=3)) is None
    assert NoGaps(silently=True).judge(read, Pooled(count=1, next_nonce=2)) == Swallowed()


# the view


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


# the proxy itself


async def test_healing_ends_every_fault_at_once(node, proxy, endpoint):
    await node.mine(5)
    proxy.refuse(None, "no")
    proxy.status(500)
    proxy.slow(60)
    proxy.enforce(PoolLimit(0))
    proxy.lag(2)
    proxy.finality_missing()
    await proxy.freeze()
    proxy.heal()
    assert (await endpoint.view()).head.number == 5
    assert await endpoint.send([transfer().raw]) == [Accepted()]


async def test_a_proxy_closes_with_requests_hanging(node):
    async with FaultProxy(node.url) as proxy, client(proxy.url) as endpoint:
        rule = proxy.hang()
        question = asyncio.create_task(endpoint.view())
        await rule.struck()
        await proxy.__aexit__()
        with pytest.raises(Unreachable):
            await question
