"""Unchanged clients send, wait, deploy and read through the service, whatever happens to the transaction meanwhile."""

from __future__ import annotations

import asyncio

import pytest

from tests.anvil import ADDRESSES
from tests.clients.conftest import Stand
from tests.clients.stock import Client
from tests.lessons import lesson

pytestmark = pytest.mark.asyncio(loop_scope="module")

SENDER, OTHER, CROWD, MAKER = ADDRESSES[:4]
PAYEE = "0x00000000000000000000000000000000000000aa"


async def test_it_lists_the_managed_accounts(stand: Stand, client: Client) -> None:
    assert [account.lower() for account in await client.accounts()] == list(ADDRESSES)


@lesson("receipt-by-first-hash")
async def test_what_it_sends_has_a_real_hash_and_its_receipt(stand: Stand, client: Client) -> None:
    hash = await client.send(**{"from": SENDER, "to": PAYEE, "value": "0x1"})
    found = await stand.rpc("eth_getTransactionByHash", hash)
    assert (found["result"]["hash"], found["result"]["blockNumber"]) == (hash, None)
    waiting = asyncio.create_task(client.wait(hash))
    await stand.sent(hash)
    await stand.chain.mine()
    outcome = await waiting
    assert (outcome.hash, outcome.status) == (hash, 1)
    assert (await stand.chain.rpc("eth_getTransactionReceipt", hash))["status"] == "0x1"


@lesson("receipt-by-first-hash")
async def test_it_finds_what_was_bumped_meanwhile(stand: Stand, client: Client) -> None:
    hash = await client.send(**{"from": SENDER, "to": PAYEE, "value": "0x2"})
    waiting = asyncio.create_task(client.wait(hash))
    await stand.do("bump", hash)
    await stand.chain.mine()
    outcome = await waiting
    assert (outcome.hash, outcome.status) == (hash, 1)
    assert await stand.chain.rpc("eth_getTransactionReceipt", hash) is None  # it was the bump that ran
    receipt = (await stand.rpc("eth_getTransactionReceipt", hash))["result"]
    assert (await stand.chain.rpc("eth_getTransactionReceipt", receipt["nonchalantHash"]))["status"] == "0x1"


async def test_it_hears_that_what_was_cancelled_meanwhile_failed(stand: Stand, client: Client) -> None:
    before = int(await stand.chain.rpc("eth_getBalance", PAYEE, "latest"), 16)
    hash = await client.send(**{"from": SENDER, "to": PAYEE, "value": "0x3"})
    waiting = asyncio.create_task(client.wait(hash))
    await stand.do("cancel", hash)
    await stand.chain.mine()
    outcome = await waiting
    assert (outcome.hash, outcome.status) == (hash, 0)
    receipt = (await stand.rpc("eth_getTransactionReceipt", hash))["result"]
    assert (receipt["nonchalantState"], receipt["logs"], receipt["to"]) == ("cancelled", [], PAYEE)
    assert int(await stand.chain.rpc("eth_getBalance", PAYEE, "latest"), 16) == before


async def test_it_finds_what_was_replaced_meanwhile(stand: Stand, client: Client) -> None:
    instead = "0x00000000000000000000000000000000000000bb"
    before = int(await stand.chain.rpc("eth_getBalance", instead, "latest"), 16)
    hash = await client.send(**{"from": SENDER, "to": PAYEE, "value": "0x4"})
    waiting = asyncio.create_task(client.wait(hash))
    await stand.do("replace", hash, {"to": instead, "value": 5})
    await stand.chain.mine()
    outcome = await waiting
    assert (outcome.hash, outcome.status) == (hash, 1)
    assert int(await stand.chain.rpc("eth_getBalance", instead, "latest"), 16) == before + 5
    shown = (await stand.rpc("eth_getTransactionByHash", hash))["result"]
    assert (shown["to"], int(shown["value"], 16)) == (PAYEE, 4)  # as it was asked for


async def test_it_deploys_a_contract_and_calls_it(stand: Stand, client: Client) -> None:
    hash = await client.deploy(MAKER)
    waiting = asyncio.create_task(client.wait(hash))
    await stand.sent(hash)
    await stand.chain.mine()
    outcome = await waiting
    assert outcome.status == 1
    assert outcome.contract is not None
    assert await client.call(outcome.contract) == 42
