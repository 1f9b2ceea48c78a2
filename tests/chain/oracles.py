"""Price oracles on a real HTTP server, which may misbehave as they like."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from aiohttp import web

from nonchalant.chain.evm.pricing import Cached, HttpOracle, JsonPath
from nonchalant.errors import Unreachable
from nonchalant.words import Speed
from tests.chain.misbehaving import at_some_port

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
    async with at_some_port(served.handle) as url:
        served.url = f"{url}/v2?key={SECRET}"
        yield served


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
