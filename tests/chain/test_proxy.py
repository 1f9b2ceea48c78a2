"""The fault proxy before a real node: each fault does what it says, and what it does not say stays well."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import aiohttp
import pytest

from nonchalant.errors import Unreachable
from nonchalant.model import Accepted, Fees, Refused, Unknown
from nonchalant.testing import FaultProxy, Told
from nonchalant.testing.rules import PoolLimit
from tests.anvil import CHAIN_ID
from tests.chain.proxied import ALICE, GWEI, ask, client, nonces, pool, raws, result, transfer, transfers

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
