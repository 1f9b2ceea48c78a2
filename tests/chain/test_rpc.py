"""JSON-RPC against real HTTP servers that misbehave in every way we know of."""

from __future__ import annotations

import asyncio
import gzip
import json
import traceback
from contextlib import asynccontextmanager, suppress

import pytest
from aiohttp import web

from nonchalant.chain.evm.rpc import BODY_BYTES, GROW_AFTER, REFUSALS, Call, Rpc
from nonchalant.errors import BadSettings, NodeRefused, Unreachable
from nonchalant.secret import host_of
from tests.chain.misbehaving import Node, echo, error, serving, well


@asynccontextmanager
async def talking(node: Node, **options):
    rpc = Rpc(node.url, "node", **{"timeout": 5.0, **options})
    try:
        yield rpc
    finally:
        await rpc.close()


def results(replies):
    return [json.loads(reply) if not isinstance(reply, Exception) else type(reply) for reply in replies]


def numbered(count: int, method: str = "m") -> list[Call]:
    return [Call(method, (index,)) for index in range(count)]


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

    async def count(body):
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.01)
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


# whole answers that cannot be used


@pytest.mark.parametrize("status", [301, 302, 307, 401, 403, 429, 500, 502, 503, 504])
async def test_http_errors_are_unreachable_even_over_a_proper_answer(status):
    async with serving(lambda body: web.json_response(well(body), status=status)) as node, talking(node) as rpc:
        assert results(await rpc.calls(numbered(3))) == [Unreachable] * 3
        with pytest.raises(Unreachable, match=str(status)):
            await rpc.call("m")


async def test_a_redirect_is_not_followed():
    async with serving() as other:
        moved = web.HTTPTemporaryRedirect
        async with serving(lambda _: moved(other.url)) as node, talking(node) as rpc:
            with pytest.raises(Unreachable):
                await rpc.call("m")
        assert other.bodies == []


async def test_a_json_rpc_error_under_http_400_is_the_nodes_refusal():
    async with (
        serving(lambda body: web.json_response(error(body["id"], "nonce too low"), status=400)) as node,
        talking(node) as rpc,
    ):
        with pytest.raises(NodeRefused, match="nonce too low"):
            await rpc.call("m")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>Bad gateway</html>",
        b"null",
        b"7",
        b'"text"',
        b"{}",
        b"[]",
        b"[[]]",
        b"{",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'[{"id":1,"result":' + b"[" * 100_000,
        b"\xff\xfe\x00",
        b'{"id":1,"result":"\xff"}',
        b'[{"id":1,"error":"\xff"}]',
        b'{"id":99,"result":"0x1"}',
        b'{"id":null,"result":"0x1"}',
        b'{"id":1,"result":' + b"9" * 10_000 + b"}",
    ],
)
async def test_what_is_not_json_rpc_is_unreachable(body):
    async with serving(lambda _: web.Response(body=body)) as node, talking(node) as rpc:
        for count in (3, 2):
            assert results(await rpc.calls(numbered(count))) == [Unreachable] * count
        [reply] = await rpc.calls(numbered(1))
        assert isinstance(reply, Unreachable)


async def test_a_huge_answer_is_cut_off():
    async with (
        serving(lambda body: echo(body) | {"result": "x" * 2_000_000}) as node,
        talking(node, answer_bytes=100_000) as rpc,
    ):
        with pytest.raises(Unreachable, match="100000 bytes"):
            await rpc.call("m")


async def test_a_compressed_huge_answer_is_cut_off():
    bomb = gzip.compress(b'{"id":1,"result":"' + b"x" * 50_000_000 + b'"}')

    async with (
        serving(lambda _: web.Response(body=bomb, headers={"Content-Encoding": "gzip"})) as node,
        talking(node, answer_bytes=100_000) as rpc,
    ):
        with pytest.raises(Unreachable):
            await rpc.call("m")


# transport


async def test_a_node_that_does_not_answer_is_given_up_in_time_and_the_next_call_works():
    async def hang_once(body):
        if len(node.bodies) == 1:
            await asyncio.sleep(30)
        return well(body)

    async with serving(hang_once) as node, talking(node, timeout=0.2) as rpc:
        async with asyncio.timeout(2):
            assert results(await rpc.calls(numbered(3))) == [Unreachable] * 3
        assert results(await rpc.calls(numbered(1))) == [["m", 0]]


async def test_a_body_that_trickles_does_not_outlast_the_time_out():
    async def handle(reader, writer):
        await reader.read(10_000)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        while not writer.is_closing():
            writer.write(b" ")
            await asyncio.sleep(0.02)

    async with listening(handle) as url:
        rpc = Rpc(url, "node", timeout=0.3)
        async with asyncio.timeout(2):
            with pytest.raises(Unreachable, match=r"within 0\.3 s"):
                await rpc.call("m")
        await rpc.close()


async def test_calls_that_do_not_get_their_turn_in_time_give_up():
    async def hang(_):
        await asyncio.sleep(30)

    async with serving(hang) as node, talking(node, timeout=0.2, concurrency=1, batch_items=1) as rpc:
        async with asyncio.timeout(2):
            replies = await asyncio.gather(*(rpc.calls(numbered(1)) for _ in range(20)))
        assert all(isinstance(reply, Unreachable) for [reply] in replies)
        assert len(node.bodies) <= 3


async def test_nothing_more_of_a_list_is_sent_once_the_node_is_unreachable():
    async with serving(lambda _: web.Response(status=503)) as node, talking(node, batch_items=10) as rpc:
        assert results(await rpc.calls(numbered(50))) == [Unreachable] * 50
        assert len(node.bodies) == 1


@asynccontextmanager
async def listening(handle):
    """A bare TCP server; `handle` is left when the test is done."""
    writers = []

    async def connected(reader, writer):
        writers.append(writer)
        await handle(reader, writer)

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for writer in writers:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\x00\x01\x02 rubbish\r\n\r\n",
        b"HTTP/1.1 999999 What\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\n" + b"X: " + b"y" * 200_000 + b"\r\n\r\n",
        b"HTTP/1.1 302 Found\r\nLocation: http://[::bad\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
    ],
)
async def test_broken_http_is_unreachable(answer):
    async def handle(reader, writer):
        await reader.read(10_000)
        writer.write(answer)
        writer.close()

    async with listening(handle) as url:
        rpc = Rpc(url, "node", timeout=1)
        assert results(await rpc.calls(numbered(2))) == [Unreachable] * 2
        await rpc.close()


async def test_nobody_listening_is_unreachable_and_says_so():
    rpc = Rpc("http://127.0.0.1:1", "127.0.0.1:1", timeout=1)
    with pytest.raises(Unreachable, match=r"127\.0\.0\.1:1 cannot be reached"):
        await rpc.call("m")
    await rpc.close()


async def test_a_cancelled_caller_leaves_its_neighbours_alone():
    gate = asyncio.Event()

    async def slow(body):
        await gate.wait()
        return well(body)

    async with serving(slow) as node, talking(node) as rpc:
        calls = [asyncio.create_task(rpc.call("m", index)) for index in range(3)]
        await node.asked.wait()
        calls[1].cancel()
        gate.set()
        assert json.loads(await calls[0]) == ["m", 0]
        assert json.loads(await calls[2]) == ["m", 2]


async def test_a_call_cancelled_before_its_turn_is_never_sent():
    async with serving() as node, talking(node) as rpc:
        call = asyncio.create_task(rpc.call("cancelled"))
        other = asyncio.create_task(rpc.call("other"))
        await asyncio.sleep(0)
        call.cancel()
        await other
        assert [body["method"] for body in node.bodies] == ["other"]


async def test_closing_answers_all_who_wait_and_refuses_what_comes_after():
    async def hang(_):
        await asyncio.sleep(30)

    async with serving(hang) as node:
        rpc = Rpc(node.url, "node", timeout=20, concurrency=1, batch_items=1)
        calls = [asyncio.create_task(rpc.calls(numbered(1))) for _ in range(3)]
        await node.asked.wait()
        await rpc.close()
        async with asyncio.timeout(1):
            assert [results(await call) for call in calls] == [[Unreachable]] * 3
            with pytest.raises(Unreachable, match="closed"):
                await rpc.call("m")


# what must never be shown

USER, PASSWORD, TOKEN, KEY = "opsuser", "hunter2-hunter2", "0a1b2c3d4e5f60718293a4b5c6d7e8f9", "query-secret-77"


def shown(problem: BaseException) -> str:
    """All that a log could print of it, hidden context included."""
    texts = []
    seen: BaseException | None = problem
    while seen is not None:
        texts += [str(seen), repr(seen), repr(vars(seen)), *traceback.format_exception(seen)]
        seen = seen.__cause__ or seen.__context__
    return "\n".join(texts)


def with_secrets(url: str) -> str:
    return url.replace("http://", f"http://{USER}:{PASSWORD}@") + f"/v3/{TOKEN}?apikey={KEY}"


@pytest.mark.parametrize(
    "behave",
    [
        lambda body: web.Response(status=401),
        lambda body: web.Response(status=500, text=TOKEN),
        lambda body: web.Response(text=f"<a href='{TOKEN}'>"),
        lambda body: web.HTTPFound(f"http://127.0.0.1/{TOKEN}"),
        lambda body: web.Response(headers={"Content-Encoding": "gzip"}, body=b"no gzip"),
        lambda body: error(body["id"], f"project {TOKEN} ({PASSWORD}) has no {KEY}", data={"url": f"/v3/{TOKEN}"}),
        lambda body: error(body["id"], f"{USER} unknown", 429),
        lambda body: asyncio.sleep(3),
    ],
)
async def test_no_credential_of_the_url_is_ever_shown(behave):
    async with serving(behave) as node:
        url = with_secrets(node.url)
        name = host_of(url)
        rpc = Rpc(url, name, timeout=0.5)
        with pytest.raises((Unreachable, NodeRefused)) as caught:
            await rpc.call("m")
        visible = shown(caught.value) + repr(rpc) + str(rpc) + name
        await rpc.close()
    assert not [secret for secret in (USER, PASSWORD, TOKEN, KEY) if secret in visible]


async def test_no_credential_is_shown_when_nobody_listens():
    url = with_secrets("http://127.0.0.1:1")
    rpc = Rpc(url, host_of(url), timeout=1)
    with pytest.raises(Unreachable) as caught:
        await rpc.call("m")
    await rpc.close()
    assert not [secret for secret in (USER, PASSWORD, TOKEN, KEY) if secret in shown(caught.value)]


async def test_credentials_and_path_of_the_url_reach_the_node():
    async with serving() as node:
        rpc = Rpc(with_secrets(node.url), "node", timeout=1)
        await rpc.call("m")
        await rpc.close()
        assert node.headers[0]["Authorization"].startswith("Basic ")


async def test_an_ordinary_path_does_not_spoil_the_nodes_words():
    async with serving(lambda body: error(body["id"], "execution reverted")) as node:
        rpc = Rpc(node.url + "/execution/reverted", "node", timeout=1)
        with pytest.raises(NodeRefused, match="execution reverted"):
            await rpc.call("m")
        await rpc.close()


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://me:secret@rpc.example/v2/token?key=k", "rpc.example"),
        ("http://127.0.0.1:8545", "127.0.0.1:8545"),
        ("http://[::1]:8", "[::1]:8"),
    ],
)
def test_a_name_shows_host_and_port_alone(url, name):
    assert host_of(url) == name


@pytest.mark.parametrize(
    "url", ["", "localhost", "ws://u:hunter2@host", "http://", "http://hunter2@", "http://h:hunter2x/"]
)
def test_an_unusable_url_is_refused_without_showing_it(url):
    with pytest.raises(BadSettings, match="https://host:port/path") as caught:
        Rpc(url, "node", timeout=1)
    assert "hunter2" not in str(caught.value)
