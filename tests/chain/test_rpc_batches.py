"""Many calls in one request: who shares it, who is spoilt by whom, and nodes that want fewer."""

from __future__ import annotations

import asyncio
import json

import pytest
from aiohttp import web

from nonchalant.chain.evm.rpc import BODY_BYTES, GROW_AFTER, REFUSALS, Call
from nonchalant.errors import NodeRefused, Unreachable
from tests.chain.misbehaving import echo, error, numbered, results, serving, talking, well

# batching


async def test_calls_of_one_turn_share_a_request():
    async with serving() as node, talking(node) as rpc:
        replies = await asyncio.gather(*(rpc.call("m", index) for index in range(30)))
        assert [json.loads(reply) for reply in replies] == [["m", index] for index in range(30)]
        assert node.sizes == [30]


async def test_calls_made_while_all_requests_are_under_way_share_the_next():
    gate = asyncio.Event()

    async def slow(body):
        await gate.wait()
        return well(body)

    async with serving(slow) as node, talking(node, concurrency=1) as rpc:
        first = asyncio.create_task(rpc.call("first"))
        await node.asked.wait()
        rest = []
        for index in range(5):
            rest.append(asyncio.create_task(rpc.call("later", index)))
            await asyncio.sleep(0.001)
        gate.set()
        await asyncio.gather(first, *rest)
        assert node.sizes == [0, 5]


async def test_no_more_requests_are_under_way_than_allowed():
    under_way = most = 0
    full = asyncio.Event()

    async def count(body):
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        if under_way == 3:
            full.set()
        await full.wait()
        await asyncio.sleep(0.01)  # one too many would come meanwhile
        under_way -= 1
        return well(body)

    async with serving(count) as node, talking(node, concurrency=3, batch_items=1) as rpc:
        await asyncio.gather(*(rpc.call("m", index) for index in range(20)))
        assert most == 3
        assert len(node.bodies) == 20


async def test_a_long_list_is_sent_in_order_in_several_requests():
    async with serving() as node, talking(node) as rpc:
        assert results(await rpc.calls(numbered(250))) == [["m", index] for index in range(250)]
        assert node.sizes == [100, 100, 50]
        assert [call["params"][0] for body in node.bodies for call in body] == list(range(250))


async def test_bodies_stay_below_the_size_limit():
    async with serving() as node, talking(node) as rpc:
        large = "0x" + "ab" * (BODY_BYTES // 5)
        assert all(not isinstance(reply, Exception) for reply in await rpc.calls([Call("m", (large,))] * 5))
        assert node.sizes == [2, 2, 0]
        assert all(int(headers["Content-Length"]) <= BODY_BYTES for headers in node.headers)


async def test_groups_of_one_caller_are_not_torn_apart():
    async with serving() as node, talking(node, batch_items=10) as rpc:
        await asyncio.gather(*(rpc.calls(numbered(4)) for _ in range(5)))
        assert node.sizes == [8, 8, 4]


async def test_shared_calls_are_asked_once_after_all_that_rests_on_them():
    shared = Call("header", ("0x1",), shared=True)
    async with serving() as node, talking(node) as rpc:
        replies = await asyncio.gather(*(rpc.calls([Call("m", (index,)), shared]) for index in range(10)))
        assert all(results(pair)[1] == ["header", "0x1"] for pair in replies)
        assert [call["method"] for call in node.bodies[0]] == ["m"] * 10 + ["header"]


async def test_an_empty_list_asks_nothing():
    async with serving() as node, talking(node) as rpc:
        assert await rpc.calls([]) == []
        assert node.bodies == []


# one bad item does not fail its neighbours


async def test_answers_out_of_order_find_their_questions():
    async with serving(lambda body: well(body)[::-1]) as node, talking(node) as rpc:
        assert results(await rpc.calls(numbered(5))) == [["m", index] for index in range(5)]


async def test_only_the_missing_items_are_unreachable():
    async with serving(lambda body: [echo(call) for call in body[::2]]) as node, talking(node) as rpc:
        assert results(await rpc.calls(numbered(4))) == [["m", 0], Unreachable, ["m", 2], Unreachable]


async def test_an_error_is_the_refusal_of_its_own_item():
    def second_fails(body):
        answers = well(body)
        answers[1] = error(body[1]["id"], "execution reverted", 3, data="0x08c3")
        return answers

    async with serving(second_fails) as node, talking(node) as rpc:
        first, second, third = await rpc.calls(numbered(3))
        assert results([first, third]) == [["m", 0], ["m", 2]]
        assert isinstance(second, NodeRefused)
        assert (second.message, second.node_code, second.data) == ("execution reverted", 3, "0x08c3")


@pytest.mark.parametrize(
    "rubbish",
    [
        *(None, 7, "text", [], {}, {"id": 1}, {"jsonrpc": "2.0", "id": "1", "result": 1}),
        *({"id": True, "result": 1}, {"id": 1.0, "result": 1}, {"id": None, "result": 1}, {"id": 10**40, "result": 1}),
        *({"id": 1, "error": 5}, {"id": 1, "error": []}, {"id": 1, "error": {}}, {"id": 1, "error": {"message": 5}}),
    ],
)
async def test_a_rubbish_item_is_unreachable_alone(rubbish):
    def first_is_rubbish(body):
        return [rubbish, *map(echo, body[1:])]

    async with serving(first_is_rubbish) as node, talking(node) as rpc:
        assert results(await rpc.calls(numbered(3))) == [Unreachable, ["m", 1], ["m", 2]]


async def test_a_null_error_beside_a_result_is_no_error():
    async with serving(lambda body: echo(body) | {"error": None}) as node, talking(node) as rpc:
        assert json.loads(await rpc.call("m")) == ["m"]


async def test_a_null_result_is_a_result():
    async with serving(lambda body: {"id": body["id"], "result": None}) as node, talking(node) as rpc:
        assert json.loads(await rpc.call("m")) is None


async def test_an_error_given_as_text_is_a_refusal():
    async with serving(lambda body: {"id": body["id"], "error": "go away"}) as node, talking(node) as rpc:
        with pytest.raises(NodeRefused, match="go away"):
            await rpc.call("m")


# batches that are refused as a whole


async def test_a_node_that_refuses_batches_gets_single_calls_and_this_is_remembered():
    def no_batches(body):
        return error(None, "batch requests are not supported", -32600) if isinstance(body, list) else echo(body)

    async with serving(no_batches) as node, talking(node) as rpc:
        assert results(await rpc.calls(numbered(20))) == [["m", index] for index in range(20)]
        node.bodies.clear()
        assert results(await rpc.calls(numbered(20))) == [["m", index] for index in range(20)]
        assert node.sizes == [0] * 20


async def test_a_node_that_allows_few_items_gets_few_and_this_is_remembered():
    def at_most_ten(body):
        return error(None, "batch too large") if isinstance(body, list) and len(body) > 10 else well(body)

    async with serving(at_most_ten) as node, talking(node) as rpc:
        assert results(await rpc.calls(numbered(100))) == [["m", index] for index in range(100)]
        node.bodies.clear()
        await rpc.calls(numbered(100))
        assert max(node.sizes) <= 10
        assert len(node.bodies) <= 20


async def test_larger_batches_are_tried_again_after_a_while():
    limit = 10

    def at_most(body):
        return error(None, "batch too large") if isinstance(body, list) and len(body) > limit else well(body)

    async with serving(at_most) as node, talking(node, batch_items=40) as rpc:
        await rpc.calls(numbered(40))
        limit = 40
        for _ in range(GROW_AFTER):
            await rpc.calls(numbered(40))
        node.bodies.clear()
        await rpc.calls(numbered(40))
        assert node.sizes == [40]


@pytest.mark.parametrize("place", [0, 1, 37, 99])
async def test_a_bad_item_that_spoils_its_batch_is_refused_alone_and_nothing_is_remembered(place):
    def poisoned(body):
        calls = body if isinstance(body, list) else [body]
        return error(None, "invalid request", -32600) if any(c["params"] == [place] for c in calls) else well(body)

    async with serving(poisoned) as node, talking(node) as rpc:
        replies = results(await rpc.calls(numbered(100)))
        assert replies == [NodeRefused if index == place else ["m", index] for index in range(100)]
        node.bodies.clear()
        await rpc.calls([Call("m", (str(index),)) for index in range(100)])
        assert node.sizes == [100]


async def test_a_node_that_refuses_everything_is_not_hammered():
    async with serving(lambda _: error(None, "over capacity")) as node, talking(node) as rpc:
        replies = await rpc.calls(numbered(100))
        assert all(isinstance(reply, NodeRefused | Unreachable) for reply in replies)
        assert len(node.bodies) <= 2 * REFUSALS + 2


async def test_a_batch_too_large_for_a_gateway_is_cut():
    def small_bodies(body):
        return web.Response(status=413, text="<html>") if isinstance(body, list) and len(body) > 10 else well(body)

    async with serving(small_bodies) as node, talking(node) as rpc:
        assert results(await rpc.calls(numbered(40))) == [["m", index] for index in range(40)]


@pytest.mark.parametrize("status", [400, 404, 405, 413])
async def test_a_page_under_an_http_error_is_unreachable_and_named(status):
    async with serving(lambda _: web.Response(status=status, text="<html>")) as node, talking(node) as rpc:
        with pytest.raises(Unreachable, match=f"HTTP {status}"):
            await rpc.call("m")


@pytest.mark.parametrize("code", [429, 500, 503])
async def test_http_codes_inside_json_rpc_are_no_verdict(code):
    async with serving(lambda body: error(None, "slow down", code)) as node, talking(node) as rpc:
        assert results(await rpc.calls(numbered(10))) == [Unreachable] * 10
        assert len(node.bodies) == 1
        assert results(await rpc.calls(numbered(1))) == [Unreachable]
