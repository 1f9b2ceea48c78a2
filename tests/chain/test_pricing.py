"""Prices that do not come from the node: against a real HTTP server that misbehaves, and on anvil."""

from __future__ import annotations

import asyncio
import gzip
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from nonchalant.app import Nonchalant
from nonchalant.chain.evm.endpoints import EvmEndpoint
from nonchalant.chain.evm.pricing import (
    ANSWER_BYTES,
    HIGHEST,
    REFRESH_SECONDS,
    RETRY_SECONDS,
    Cached,
    Fixed,
    HttpOracle,
    JsonPath,
    Quote,
    Quotes,
    priced,
    written,
)
from nonchalant.config import load_settings
from nonchalant.errors import Unreachable
from nonchalant.fees import FeeRules, opening
from nonchalant.model import Fees, Market, Speed
from tests.anvil import ADDRESSES, CHAIN_ID, KEYS, running

GWEI = 10**9
PRICES = {Speed.SLOW: 1 * GWEI, Speed.STANDARD: 2 * GWEI, Speed.FAST: 5 * GWEI}
PATHS: dict[Speed, JsonPath] = {
    Speed.SLOW: ("safeLow", "maxPriorityFee"),
    Speed.STANDARD: ("standard", "maxPriorityFee"),
    Speed.FAST: ("fast", "maxPriorityFee"),
}
GOOD = {
    "safeLow": {"maxPriorityFee": 30.7, "maxFee": 40},
    "standard": {"maxPriorityFee": "31.000000001"},
    "fast": {"maxPriorityFee": 32},
}
SECRET = "hunter2hunter2"

Behaviour = Callable[[web.Request], web.StreamResponse | Awaitable[web.StreamResponse]]


class Served:
    """A running server: what it answers, and what it was asked."""

    def __init__(self, behave: Behaviour) -> None:
        self.behave = behave
        self.url = ""
        self.requests: list[web.Request] = []

    def says(self, document: object) -> None:
        self.behave = lambda request: web.json_response(document)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        answer = self.behave(request)
        return await answer if isinstance(answer, Awaitable) else answer


@asynccontextmanager
async def serving(behave: Behaviour | object = GOOD) -> AsyncIterator[Served]:
    served = Served(behave if callable(behave) else lambda request: web.json_response(behave))
    app = web.Application()
    app.router.add_route("*", "/{anything:.*}", served.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    [address] = runner.addresses
    served.url = f"http://127.0.0.1:{address[1]}/v2?key={SECRET}"
    try:
        yield served
    finally:
        await runner.cleanup()


@asynccontextmanager
async def raw_serving(act: Callable[[asyncio.StreamWriter], Awaitable[None]]) -> AsyncIterator[str]:
    """A server below HTTP."""

    handling: set[asyncio.Task[None] | None] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handling.add(asyncio.current_task())
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await reader.readuntil(b"\r\n\r\n")
            await act(writer)
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/?key={SECRET}"
    finally:
        server.close()
        tasks = [task for task in handling if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def asking(url: str, **options: Any) -> AsyncIterator[HttpOracle]:
    oracle = HttpOracle(url, **{"paths": PATHS, "decimals": 9, "timeout": 5, **options})
    try:
        yield oracle
    finally:
        await oracle.close()


async def refusal(url: str, **options: Any) -> str:
    async with asking(url, **options) as oracle:
        with pytest.raises(Unreachable) as caught:
            await oracle.quote()
    told = f"{caught.value} {caught.value!r} {oracle!r}"
    assert SECRET not in told
    # Whoever logs the whole chain of exceptions prints no secret either.
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    return str(caught.value)


async def one(value: object, **options: Any) -> Any:
    """The price of an oracle that says this of every speed."""
    async with serving({"x": value}) as served, asking(served.url, paths={Speed.STANDARD: ("x",)}, **options) as oracle:
        return (await oracle.quote()).prices[Speed.STANDARD]


# the oracle


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
            async with asyncio.timeout(1):
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
        await asyncio.sleep(3)

    async def drip(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n")
        for _ in range(30):
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


# keeping what it said


class HandClock:
    """Time passes when the test says so."""

    def __init__(self) -> None:
        self.time = 1_000.0

    def now(self) -> int:
        return int(self.time * 1000)

    def monotonic(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.time += seconds


@asynccontextmanager
async def caching(served: Served, max_age: float = 60.0) -> AsyncIterator[tuple[Cached, HandClock]]:
    clock = HandClock()
    cached = Cached(HttpOracle(served.url, paths=PATHS, decimals=9, timeout=5), max_age=max_age, clock=clock)
    try:
        yield cached, clock
    finally:
        await cached.close()


def down(request: web.Request) -> web.Response:
    return web.Response(status=503)


async def test_an_oracle_is_asked_once_by_however_many_and_again_when_it_is_due():
    async with serving() as served, caching(served) as (cached, clock):
        first = await asyncio.gather(*(cached.quote() for _ in range(20)))
        assert len(served.requests) == 1
        assert first == [first[0]] * 20
        clock.time += REFRESH_SECONDS - 0.1
        await cached.quote()
        assert len(served.requests) == 1
        served.says(GOOD | {"fast": {"maxPriorityFee": 99}})
        clock.time += 0.2
        assert (await cached.quote()).prices[Speed.FAST] == 99 * GWEI
        assert len(served.requests) == 2


async def test_what_a_failing_oracle_said_last_serves_until_it_is_too_old():
    async with serving() as served, caching(served, max_age=60) as (cached, clock):
        said = await cached.quote()
        served.behave = down
        clock.time += 60
        assert await cached.quote() == said
        clock.time += 0.1
        assert await cached.quote() is None
        served.says(GOOD)
        clock.time += RETRY_SECONDS
        assert await cached.quote() == said


async def test_an_absurd_answer_does_not_replace_a_good_one():
    async with serving() as served, caching(served) as (cached, clock):
        said = await cached.quote()
        served.says(GOOD | {"fast": {"maxPriorityFee": 0}})
        clock.time += 2 * REFRESH_SECONDS
        assert await cached.quote() == said


async def test_a_failing_oracle_is_left_alone_for_a_while_and_reported_once():
    async with serving(down) as served, caching(served) as (cached, clock):
        with capture_logs() as logs:
            for _ in range(5):
                assert await cached.quote() is None
            assert len(served.requests) == 1
            clock.time += RETRY_SECONDS
            assert await cached.quote() is None
            assert len(served.requests) == 2
            served.says(GOOD)
            clock.time += RETRY_SECONDS
            assert await cached.quote() is not None
        assert [entry["event"] for entry in logs] == ["oracle.failing", "oracle.recovered"]
        assert SECRET not in str(logs)


async def test_a_short_age_is_kept_although_refreshing_is_rarer():
    async with serving() as served, caching(served, max_age=1) as (cached, clock):
        await cached.quote()
        clock.time += 1.1
        assert await cached.quote() is not None
        assert len(served.requests) == 2


async def test_a_caller_that_gives_up_leaves_the_others_served():
    asked, release = asyncio.Event(), asyncio.Event()

    async def slowly(request: web.Request) -> web.Response:
        asked.set()
        await release.wait()
        return web.json_response(GOOD)

    async with serving(slowly) as served, caching(served) as (cached, _):
        first, second = (asyncio.create_task(cached.quote()) for _ in range(2))
        await asked.wait()
        first.cancel()
        release.set()
        assert await second is not None


# what a quote makes of a market


def test_a_quote_is_what_is_paid_beyond_the_base_fee():
    market = priced(10 * GWEI, Quote(PRICES))
    assert market == Market(base_fee=10 * GWEI, gas_price=12 * GWEI, priority=PRICES)
    assert opening(Speed.FAST, market, FeeRules()) == Fees(25 * GWEI, 5 * GWEI)


@pytest.mark.parametrize("includes_base_fee", [True, False])
def test_without_a_base_fee_each_speed_pays_exactly_its_quote(includes_base_fee):
    market = priced(None, Quote(PRICES, includes_base_fee))
    assert market is not None
    assert {speed: opening(speed, market, FeeRules()) for speed in Speed} == {
        speed: Fees(price) for speed, price in PRICES.items()
    }


def test_the_base_fee_is_taken_off_a_quote_that_includes_it():
    market = priced(2 * GWEI, Quote(PRICES, includes_base_fee=True))
    assert market is not None
    assert market.priority == {Speed.SLOW: 0, Speed.STANDARD: 0, Speed.FAST: 3 * GWEI}


def test_a_whole_price_below_the_base_fee_is_not_believed():
    assert priced(5 * GWEI, Quote(PRICES, includes_base_fee=True)) is not None
    assert priced(5 * GWEI + 1, Quote(PRICES, includes_base_fee=True)) is None


def test_a_price_of_nothing_is_a_price_where_it_is_fixed():
    market = priced(0, Quote(dict.fromkeys(Speed, 0)))
    assert market is not None
    assert opening(Speed.FAST, market, FeeRules()) == Fees(0, 0)


# on a real node


@asynccontextmanager
async def quoted(url: str, quotes: Quotes) -> AsyncIterator[EvmEndpoint]:
    endpoint = EvmEndpoint(CHAIN_ID, url, "anvil", timeout=10, finality_tag=True, quotes=quotes)
    try:
        yield endpoint
    finally:
        await endpoint.close()
        await quotes.close()


async def test_fixed_prices_come_with_the_base_fee_of_the_chain():
    async with running() as node, quoted(node.url, Fixed(PRICES)) as endpoint:
        await node.set_next_base_fee(7 * GWEI)
        await node.mine()
        market = await endpoint.market()
        assert market.base_fee > 0
        assert market.priority == PRICES
        assert market.gas_limit == 30_000_000


async def test_fixed_prices_are_the_gas_prices_of_a_chain_without_base_fee():
    async with running("--hardfork", "berlin") as node, quoted(node.url, Fixed(PRICES)) as endpoint:
        market = await endpoint.market()
        assert market.base_fee is None
        assert opening(Speed.FAST, market, FeeRules()) == Fees(5 * GWEI)


async def test_while_the_oracle_fails_the_node_is_asked():
    async with (
        serving() as served,
        running() as node,
        caching(served) as (cached, clock),
        quoted(node.url, cached) as endpoint,
    ):
        assert (await endpoint.market()).priority[Speed.FAST] == 32 * GWEI
        served.behave = down
        clock.time += 61
        assert (await endpoint.market()).priority[Speed.FAST] < 32 * GWEI
        served.says(GOOD)
        clock.time += RETRY_SECONDS
        assert (await endpoint.market()).priority[Speed.FAST] == 32 * GWEI


async def test_while_an_oracle_is_below_the_base_fee_the_node_is_asked():
    paths = dict.fromkeys(Speed, ("price",))
    async with serving({"price": 1}) as served, running() as node:
        oracle = HttpOracle(served.url, paths=paths, decimals=0, includes_base_fee=True, timeout=5)
        async with quoted(node.url, Cached(oracle, max_age=60, clock=HandClock())) as endpoint:
            market = await endpoint.market()
        assert served.requests
        assert market.gas_price > 1
        assert market.priority[Speed.FAST] > 1


async def test_a_node_that_is_gone_is_unreachable_whatever_the_quotes():
    async with quoted("http://127.0.0.1:1", Fixed(PRICES)) as endpoint:
        with pytest.raises(Unreachable):
            await endpoint.market()


@pytest.mark.parametrize("source", ["fixed", "oracle"])
async def test_a_running_node_pays_what_the_settings_say(tmp_path, monkeypatch, source):
    monkeypatch.setenv("RELAYER_KEY", KEYS[0])
    monkeypatch.setenv("ORACLE_KEY", SECRET)
    async with serving({"result": {"price": "1.234"}}) as served, running(block_time=1) as node:
        fees = {
            "fixed": '{ source = "fixed", fixed = "1.234 gwei" }',
            "oracle": f"""{{ source = "oracle", oracle = {{ url = "{served.url}", unit = "gwei",
                paths = {{ standard = "result.price" }}, headers = {{ X-Key = {{ env = "ORACLE_KEY" }} }} }} }}""".replace(
                "\n", " "
            ),
        }[source]
        file = tmp_path / "nonchalant.toml"
        file.write_text(f"""
            store = "sqlite:{tmp_path}/test.db"
            [[chains]]
            id = {CHAIN_ID}
            endpoints = ["{node.url}"]
            poll_interval = 0.1
            fees = {fees}
            [[accounts]]
            chains = [{CHAIN_ID}]
            key = {{ env = "RELAYER_KEY" }}
        """)
        async with Nonchalant.open(load_settings(file)) as app:
            handle = await app.send(chain_id=CHAIN_ID, sender=ADDRESSES[0], to=ADDRESSES[1], value=1, fees="fast")
            tx = await handle.settled(timeout=30)
            [attempt] = (await app.store.attempts([tx.id]))[tx.id]
        assert tx.state == "confirmed"
        assert attempt.fees.priority == 1_234_000_000
        assert source == "fixed" or served.requests[0].headers["X-Key"] == SECRET
