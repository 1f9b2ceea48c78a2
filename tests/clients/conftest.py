"""A service over a chain that is mined by hand, and the stock clients, unchanged, that talk to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from nonchalant.app import Nonchalant
from nonchalant.config import Listen, parse_settings
from nonchalant.service.server import bind, serve, url_of
from tests import anvil
from tests.anvil import Anvil
from tests.clients.stock import Cast, Client, Web3Py, scripted
from tests.e2e import rig
from tests.e2e.rig import until

SCRIPTED = ("ethers", "viem", "web3js", "hardhat")


@dataclass
class Stand:
    """The service, its chain, and what an operator does to transactions meanwhile."""

    chain: Anvil
    node: Nonchalant
    url: str
    session: aiohttp.ClientSession
    folder: Path

    @property
    def rpc_url(self) -> str:
        return f"{self.url}/rpc/{anvil.CHAIN_ID}"

    async def rpc(self, method: str, *params: object, **headers: str) -> Any:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        async with self.session.post(self.rpc_url, json=body, headers=headers) as answer:
            assert answer.status == 200
            return await answer.json()

    async def rest(self, method: str, path: str, **options: Any) -> Any:
        async with self.session.request(method, self.url + path, **options) as answer:
            found = await answer.json()
            assert answer.status < 300, found
            return found

    async def by_hash(self, hash: str) -> dict[str, Any]:
        [tx] = (await self.rest("GET", "/v1/transactions", params={"hash": hash}))["transactions"]
        return tx

    async def of(self, account: str) -> list[dict[str, Any]]:
        """Its transactions, newest first."""
        return (await self.rest("GET", "/v1/transactions", params={"from": account, "limit": "500"}))["transactions"]

    async def last_hash(self, account: str) -> str | None:
        """Of the newest that is signed: the first hash that it had."""
        signed = [tx["attempts"][0]["hash"] for tx in await self.of(account) if tx["attempts"]]
        return signed[0] if signed else None

    async def do(self, verb: str, hash: str, body: object = None) -> None:
        """Bump, cancel or replace what has this hash, and wait until nodes have what came of it."""
        tx = await self.by_hash(hash)
        before = len(tx["attempts"])
        await self.rest("POST", f"/v1/transactions/{tx['id']}/{verb}", json={} if body is None else body)

        async def is_done() -> bool:
            attempts = (await self.by_hash(hash))["attempts"]
            return len(attempts) > before and attempts[-1]["answer"] == "accepted"

        await until(is_done, f"{verb} of {hash} sent")

    async def sent(self, hash: str) -> None:
        """Until a node has it: what is mined now holds it."""

        async def is_sent() -> bool:
            return (await self.by_hash(hash))["attempts"][-1]["answer"] == "accepted"

        await until(is_sent, f"{hash} sent")


@asynccontextmanager
async def standing(folder: Path, endpoints: int = 1, of_chain: str = "", **options: object) -> AsyncIterator[Stand]:
    """`of_chain` are further lines for the chain; several endpoints are the same node by other names."""
    stop = asyncio.Event()
    async with anvil.running() as chain, aiohttp.ClientSession() as session:
        urls = [chain.url + "/" * number for number in range(endpoints)]
        text = rig.settings_text(*urls, **{"window": 64, **options})
        text = text.replace('data_fee = "none"', f'data_fee = "none"\n{of_chain}')
        settings = parse_settings(text, folder=folder, environ={})
        async with Nonchalant.open(settings) as node:
            await until(lambda: node.engine.followers[anvil.CHAIN_ID].started, "the chain seen")
            with bind(Listen("127.0.0.1", 0)) as listening:
                serving = asyncio.create_task(serve(node, listening, stop))
                yield Stand(chain, node, url_of(listening), session, folder)
                stop.set()
                await serving


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stand(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stand]:
    async with standing(tmp_path_factory.mktemp("service")) as made:
        yield made


# A client that is started once serves all its tests; so they stay in one process.
@pytest_asyncio.fixture(
    scope="module",
    loop_scope="module",
    params=[
        pytest.param(name, marks=pytest.mark.xdist_group(f"client-{name}")) for name in (*SCRIPTED, "web3py", "cast")
    ],
)
async def client(
    request: pytest.FixtureRequest, stand: Stand, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Client]:
    folder = tmp_path_factory.mktemp(request.param)
    if request.param in SCRIPTED:
        async with scripted(request.param, stand.rpc_url, folder) as made:
            yield made
    elif request.param == "cast":
        yield Cast(stand.rpc_url, folder, stand.last_hash)
    else:
        made = Web3Py(stand.rpc_url)
        yield made
        await made.w3.provider.disconnect()
