"""A running service over a real node, asked over real HTTP."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from nonchalant.app import Nonchalant
from nonchalant.config import Listen, parse_settings
from nonchalant.service.asgi import Limits
from nonchalant.service.server import bind, serve, url_of
from tests import anvil
from tests.anvil import Anvil

SENDER = "0xf39fd6e51aad88f6f4ce6ab8827279cfffb92266"
CHECKSUMMED = "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266"
OTHER = "0x70997970c51812dc3a010c7d01b50e0d17dc79c8"

# The chain does not answer: what is accepted stays queued.
SETTINGS = """
store = "sqlite:nonchalant.db"
auth = "off"
[[chains]]
id = 31337
endpoints = ["http://127.0.0.1:1"]
request_timeout = 0.5
fees = { max_fee_per_gas = "100 gwei" }
[[accounts]]
chains = [31337]
key = { mnemonic = { file = "words" } }
queue_limit = 3000
"""


@dataclass
class Running:
    node: Nonchalant
    url: str
    session: aiohttp.ClientSession
    stop: asyncio.Event
    serving: asyncio.Task[None]

    async def post(self, body: object = None, **options: Any) -> tuple[int, Any, Any]:
        return await self.call("POST", "/v1/transactions", **({"json": body} | options))

    async def get(self, path: str, **options: Any) -> tuple[int, Any, Any]:
        return await self.call("GET", path, **options)

    async def call(self, method: str, path: str, **options: Any) -> tuple[int, Any, Any]:
        async with self.session.request(method, self.url + path, **options) as answer:
            raw = await answer.read()
            is_json = "json" in answer.content_type
            content = await answer.json(content_type=None) if raw and is_json else raw.decode() or None
            return answer.status, content, answer.headers


@asynccontextmanager
async def running(folder: Path, settings: str = SETTINGS, limits: Limits | None = None) -> AsyncIterator[Running]:
    words = folder / "words"
    words.write_text("test test test test test test test test test test test junk")
    words.chmod(0o600)
    stop = asyncio.Event()
    async with (
        Nonchalant.open(parse_settings(settings, folder=folder, environ={})) as node,
        aiohttp.ClientSession() as session,
    ):
        with bind(Listen("127.0.0.1", 0)) as listening:
            serving = asyncio.create_task(serve(node, listening, stop, limits))
            yield Running(node, url_of(listening), session, stop, serving)
            stop.set()
            await serving


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Running]:
    async with running(tmp_path) as service:
        yield service


@pytest.fixture
async def chain() -> AsyncIterator[Anvil]:
    async with anvil.running() as chain:
        yield chain


@pytest.fixture
async def live(tmp_path: Path, chain: Anvil) -> AsyncIterator[Running]:
    """The same, over a chain that answers."""
    settings = SETTINGS.replace("http://127.0.0.1:1", chain.url).replace(
        "request_timeout = 0.5", "poll_interval = 0.05"
    )
    async with running(tmp_path, settings) as live:
        yield live
