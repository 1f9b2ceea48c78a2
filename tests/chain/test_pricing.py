"""Prices that do not come from the node: asked of a real HTTP server that misbehaves."""

from __future__ import annotations

import asyncio
import gzip
import json
import sys
from contextlib import suppress

import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st

from nonchalant.chain.evm.pricing import ANSWER_BYTES, HIGHEST, Quote, written
from nonchalant.errors import Unreachable
from nonchalant.words import Speed
from tests.chain.oracles import GOOD, GWEI, PATHS, SECRET, asking, one, raw_serving, refusal, serving


async def test_an_oracle_quotes_each_speed_in_wei_rounded_up():
    async with serving() as served, asking(served.url) as oracle:
        quote = await oracle.quote()
    assert quote == Quote({Speed.SLOW: 30_700_000_000, Speed.STANDARD: 31_000_000_001, Speed.FAST: 32 * GWEI})
    assert oracle.name == served.url.removeprefix("http://").partition("/")[0]


@pytest.mark.parametrize(
    ("value", "decimals", "wei"),
    [
        (7, 0, 7),
        (7, 9, 7 * GWEI),
        (1.5, 9, 1_500_000_000),
        (1.5, 0, 2),
        (0.1, 9, 100_000_000),
        ("0.05", 9, 50_000_000),
        ("25", 9, 25 * GWEI),
        ("1e3", 0, 1000),
        ("0x10", 0, 16),
        ("0X1F", 9, 31 * GWEI),
        ("0.0000000000001", 9, 1),
        (10**15, 0, 10**15),
    ],
)
async def test_a_price_may_be_a_number_a_decimal_text_or_hex(value, decimals, wei):
    assert await one(value, decimals=decimals) == wei


@pytest.mark.parametrize(
    "value",
    [
        *(0, 0.0, -1, -0.5, "0", "-1", "0x0", True, False, None, "", " 1", "1 gwei", "1,5", "NaN", "Infinity", "-Infinity"),
        *("1_000", "٣", "0x", "0xzz", "0x" + "f" * 65, "1e999", "1" * 41, 10**25, [1], {"value": 1}, "1e-99"),
    ],
)  # fmt: skip
async def test_what_is_no_believable_price_is_refused(value):
    async with serving({"x": value}) as served:
        assert "at x" in await refusal(served.url, paths={Speed.STANDARD: ("x",)})


@pytest.mark.parametrize("number", ["1e999999999", "1e-999999999", "1e400", "9" * 1_000, "-1e99", "1." + "0" * 100_000])
async def test_numbers_made_to_fill_the_memory_are_answered_at_once(number):
    def say(request: web.Request) -> web.Response:
        return web.Response(text=f'{{"x": {number}}}', content_type="application/json")

    async with serving(say) as served, asking(served.url, paths={Speed.STANDARD: ("x",)}, decimals=0) as oracle:
        with suppress(Unreachable):
            async with asyncio.timeout(4):  # less than the oracle itself is waited for
                assert (await oracle.quote()).prices == {Speed.STANDARD: 1}


async def test_a_price_above_the_highest_to_believe_is_refused():
    assert await one(500, most=500 * GWEI) == 500 * GWEI
    async with serving({"x": 501}) as served:
        assert "too high" in await refusal(served.url, paths={Speed.STANDARD: ("x",)}, most=500 * GWEI)
    async with serving({"x": HIGHEST}) as served:  # wei taken for gwei
        assert "too high" in await refusal(served.url, paths={Speed.STANDARD: ("x",)})


@pytest.mark.parametrize(
    ("document", "path", "found"),
    [
        ({"result": [{"price": 1}]}, ("result", 0, "price"), True),
        ([[1]], (0, 0), True),
        ({"0": 1}, ("0",), True),
        ({"result": []}, ("result", 0), False),
        ({"result": {"0": 1}}, ("result", 0), False),
        ([1], ("0",), False),
        ({}, ("a", "b"), False),
        ({"a": None}, ("a", "b"), False),
        ({"a": "text"}, ("a", 0), False),
        (None, ("a",), False),
    ],
)
async def test_a_path_leads_to_the_price_or_to_an_error_that_names_it(document, path, found):
    async with serving(document) as served:
        if found:
            async with asking(served.url, paths={Speed.STANDARD: path}) as oracle:
                assert (await oracle.quote()).prices == {Speed.STANDARD: GWEI}
        else:
            assert written(path) in await refusal(served.url, paths={Speed.STANDARD: path})


async def test_the_headers_are_sent_and_no_cookie_comes_back():
    def say(request: web.Request) -> web.Response:
        response = web.json_response(GOOD)
        response.set_cookie("session", "1")
        return response

    async with serving(say) as served, asking(served.url, headers={"X-Key": SECRET}) as oracle:
        await oracle.quote()
        await oracle.quote()
    assert [request.headers["X-Key"] for request in served.requests] == [SECRET, SECRET]
    assert not any("Cookie" in request.headers for request in served.requests)


@pytest.mark.parametrize("status", [201, 204, 301, 302, 307, 400, 401, 403, 404, 418, 429, 500, 503])
async def test_any_status_but_200_is_a_failure_and_redirects_are_not_followed(status):
    def say(request: web.Request) -> web.Response:
        return web.json_response(GOOD, status=status, headers={"Location": "/elsewhere"})

    async with serving(say) as served:
        assert f"HTTP {status}" in await refusal(served.url)
        assert len(served.requests) == 1


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"{", b"\xff\xfe", b"[" * 100_000, b'"ok"', gzip.compress(b"{}", mtime=0)]
)
async def test_what_is_not_the_expected_json_is_a_failure(body):
    def say(request: web.Request) -> web.Response:
        coded = {"Content-Encoding": "gzip"} if body.startswith(b"\x1f\x8b") else {}
        return web.Response(body=body, content_type="application/json", headers=coded)

    async with serving(say) as served:
        assert await refusal(served.url)


async def test_nesting_does_no_harm_although_a_library_raised_the_recursion_limit():
    import eth_account  # noqa: F401 - it does

    assert sys.getrecursionlimit() >= 100_000
    for part in (b"[", b'{"a":', b'[{"a":'):
        body = part * (ANSWER_BYTES // len(part))

        def say(request: web.Request, body: bytes = body) -> web.Response:
            return web.Response(body=body, content_type="application/json")

        async with serving(say) as served:
            assert "lists and objects" in await refusal(served.url)


async def test_an_answer_without_end_is_cut_off():
    async def flood(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n")
        while True:
            writer.write(b"[" * 65_536)
            await writer.drain()

    async with raw_serving(flood) as url:
        assert f"more than {ANSWER_BYTES} bytes" in await refusal(url)


async def test_a_silent_or_dripping_oracle_is_given_up():
    async def hang(writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(30)

    async def drip(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n")
        for _ in range(300):
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(0.1)

    for behave in (hang, drip):
        async with raw_serving(behave) as url:
            assert "did not answer within 0.3 s" in await refusal(url, timeout=0.3)


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"\x00\x01 garbage\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 999999 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: " + b"y" * 100_000 + b"\r\n\r\n{}",
    ],
)
async def test_broken_http_is_a_failure(said):
    async def break_off(writer: asyncio.StreamWriter) -> None:
        writer.write(said)
        await writer.drain()

    async with raw_serving(break_off) as url:
        assert await refusal(url)


async def test_an_oracle_that_is_not_there_or_cannot_be_asked_is_a_failure():
    assert "cannot be reached" in await refusal(f"http://user:{SECRET}@127.0.0.1:1/{SECRET}")
    async with serving() as served:
        assert "cannot be reached" in await refusal(served.url, headers={"X-Key": f"{SECRET}\r\nX-Other: 1"})


_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=10)
    | st.sampled_from(["0x1", "1.5", "NaN"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["standard", "maxPriorityFee"]), inner),
    max_leaves=8,
)


def test_whatever_an_oracle_says_gives_a_price_within_bounds_or_unreachable():
    with asyncio.Runner() as runner:

        @settings(max_examples=150)
        @given(_values | st.fixed_dictionaries({"standard": st.fixed_dictionaries({"maxPriorityFee": _values})}))
        def check(document: object) -> None:
            async def ask() -> None:
                text = json.dumps(document)  # with NaN and Infinity, as Python's own servers say it
                async with (
                    serving(lambda request: web.Response(text=text)) as served,
                    asking(served.url, paths={Speed.STANDARD: PATHS[Speed.STANDARD]}) as oracle,
                ):
                    with suppress(Unreachable):
                        assert 0 < (await oracle.quote()).prices[Speed.STANDARD] <= HIGHEST

            runner.run(ask())

        check()
