"""JSON-RPC against real HTTP servers that misbehave in every way we know of."""

from __future__ import annotations

import asyncio
import gzip
import json
from contextlib import asynccontextmanager, suppress

import pytest
from aiohttp import web

from nonchalant.chain.evm.rpc import Rpc
from nonchalant.errors import NodeRefused, Unreachable
from tests.chain.misbehaving import echo, error, numbered, results, serving, talking, well

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

    async with serving(hang_once) as node, talking(node, timeout=2.0) as rpc:
        async with asyncio.timeout(20):
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
        async with asyncio.timeout(10):
            with pytest.raises(Unreachable, match=r"within 0\.3 s"):
                await rpc.call("m")
        await rpc.close()


async def test_calls_that_do_not_get_their_turn_in_time_give_up():
    async def hang(_):
        await asyncio.sleep(30)

    async with serving(hang) as node, talking(node, timeout=0.2, concurrency=1, batch_items=1) as rpc:
        async with asyncio.timeout(20):
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
    rpc = Rpc("http://127.0.0.1:1", "127.0.0.1:1", timeout=20)
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
        async with asyncio.timeout(10):
            assert [results(await call) for call in calls] == [[Unreachable]] * 3
            with pytest.raises(Unreachable, match="closed"):
                await rpc.call("m")
