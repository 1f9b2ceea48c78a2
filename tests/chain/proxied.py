"""Clients of a node behind the fault proxy, and what they send."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from coincurve import PrivateKey

from nonchalant.chain.evm import encoding
from nonchalant.chain.evm.endpoints import EvmEndpoint
from nonchalant.model import Draft, Fees, Payload, Sealed
from nonchalant.words import LaneKey
from tests.anvil import ADDRESSES, CHAIN_ID, KEYS, Anvil

GWEI = 10**9
ALICE, BOB = ADDRESSES[0], ADDRESSES[1]
FEES = Fees(20 * GWEI, GWEI)
DELEGATED = bytes.fromhex("ef0100") + bytes.fromhex(BOB[2:])  # EIP-7702: ALICE runs the code of BOB


@asynccontextmanager
async def client(url: str, patience: float = 30) -> AsyncIterator[EvmEndpoint]:
    made = EvmEndpoint(CHAIN_ID, url, "proxy", timeout=patience, finality_tag=True)
    try:
        yield made
    finally:
        await made.close()


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
