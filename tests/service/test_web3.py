"""The real web3.py, blocking and asynchronous, against a running service and the user's own node."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from web3 import AsyncHTTPProvider, AsyncWeb3, HTTPProvider, Web3
from web3.exceptions import ContractLogicError, TransactionNotFound, Web3RPCError

from nonchalant import BadRequest, Fees, KeyReused
from nonchalant.client import BlockingClient, Client, ServiceUnreachable
from nonchalant.web3 import NotSent, attach, detach
from tests.anvil import Anvil
from tests.e2e.rig import until
from tests.lessons import lesson
from tests.service import flaky
from tests.service.conftest import CHECKSUMMED, OTHER, Running

# A counter: each call adds one to its first slot and emits a log without topics.
#   constructor: returns the 17 bytes after it
RUNTIME = "600160005401600055" + "60006000a0" + "00"
COUNTER = "0x" + f"60{len(RUNTIME) // 2:02x}600c60003960{len(RUNTIME) // 2:02x}6000f3" + RUNTIME
STRANGER = Web3.to_checksum_address("0x" + "77" * 20)
TO = Web3.to_checksum_address(OTHER)


@pytest.fixture
async def blocking(live: Running, chain: Anvil) -> AsyncIterator[tuple[Web3, BlockingClient]]:
    w3 = Web3(HTTPProvider(chain.url))
    with BlockingClient(live.url) as client:
        attach(w3, client)
        yield w3, client


@pytest.fixture
async def asynchronous(live: Running, chain: Anvil) -> AsyncIterator[tuple[AsyncWeb3[Any], Client]]:
    w3: AsyncWeb3[Any] = AsyncWeb3(AsyncHTTPProvider(chain.url))
    async with Client(live.url) as client:
        attach(w3, client)
        yield w3, client
        await w3.provider.disconnect()


@asynccontextmanager
async def mining(chain: Anvil) -> AsyncIterator[None]:
    """A block now and then, as long as the block lasts."""

    async def mine() -> None:
        while True:
            await chain.mine()
            await asyncio.sleep(0.2)

    task = asyncio.create_task(mine())
    try:
        yield
    finally:
        task.cancel()


async def in_thread(work: Callable[[], Any]) -> Any:
    return await asyncio.to_thread(work)


def by_hash(client: BlockingClient, hash: bytes) -> Any:
    [tx] = client.transactions(hash=hash)
    return tx


# --- blocking ---


async def test_a_managed_account_sends_and_waits(blocking: tuple[Web3, BlockingClient], chain: Anvil) -> None:
    w3, client = blocking

    def send() -> tuple[Any, Any]:
        hash = w3.eth.send_transaction({"from": CHECKSUMMED, "to": TO, "value": Web3.to_wei(1, "gwei")})
        return hash, w3.eth.wait_for_transaction_receipt(hash, timeout=120)

    async with mining(chain):
        hash, receipt = await in_thread(send)
    assert (receipt.status, receipt.transactionHash) == (1, hash)
    assert (await in_thread(lambda: by_hash(client, hash))).value == str(10**9)


@lesson("receipt-by-first-hash")
async def test_the_first_hash_finds_the_receipt_after_a_bump(
    blocking: tuple[Web3, BlockingClient], chain: Anvil
) -> None:
    w3, client = blocking
    w3.eth.default_account = CHECKSUMMED
    hash = await in_thread(lambda: w3.eth.send_transaction({"to": TO, "value": 7}))
    waiting = asyncio.create_task(in_thread(lambda: w3.eth.wait_for_transaction_receipt(hash, timeout=120)))
    tx = await in_thread(lambda: client.bump(by_hash(client, hash)))
    assert len(tx.attempts) == 2
    # Nodes know the bumped one only; it is found by the hash that was answered.
    pending = await in_thread(lambda: w3.eth.get_transaction(hash))
    assert (pending.hash, pending["value"], pending.to) == (hash, 7, TO)
    async with mining(chain):
        receipt = await waiting
    assert (receipt.status, receipt.transactionHash) == (1, hash)
    assert receipt.nonchalantHash == tx.attempts[1].hash
    found = await in_thread(lambda: w3.eth.get_transaction(hash))
    assert (found.hash, found.blockNumber) == (hash, receipt.blockNumber)


async def test_another_process_finds_it_by_its_hash_too(
    blocking: tuple[Web3, BlockingClient], live: Running, chain: Anvil
) -> None:
    w3, client = blocking
    hash = await in_thread(lambda: w3.eth.send_transaction({"from": CHECKSUMMED, "to": TO, "value": 7}))
    await in_thread(lambda: client.bump(by_hash(client, hash)))

    def elsewhere() -> Any:
        other = Web3(HTTPProvider(chain.url))
        with BlockingClient(live.url) as client:
            attach(other, client)
            return other.eth.wait_for_transaction_receipt(hash, timeout=120)

    async with mining(chain):
        assert (await in_thread(elsewhere)).transactionHash == hash


async def test_what_was_cancelled_meanwhile_is_a_receipt_that_says_so(
    blocking: tuple[Web3, BlockingClient], chain: Anvil
) -> None:
    w3, client = blocking
    hash = await in_thread(lambda: w3.eth.send_transaction({"from": CHECKSUMMED, "to": TO, "value": 7}))
    await in_thread(lambda: client.cancel(by_hash(client, hash)))
    async with mining(chain):
        receipt = await in_thread(lambda: w3.eth.wait_for_transaction_receipt(hash, timeout=120))
    assert (receipt.status, receipt.transactionHash, receipt.logs) == (0, hash, [])
    assert receipt.nonchalantState == "cancelled"
    asked = await in_thread(lambda: w3.eth.get_transaction(hash))
    assert (asked["value"], asked.to) == (7, TO)  # what was asked for, not what took its nonce


async def test_what_was_replaced_meanwhile_is_found_and_shown_as_it_was_asked_for(
    blocking: tuple[Web3, BlockingClient], chain: Anvil
) -> None:
    w3, client = blocking
    hash = await in_thread(lambda: w3.eth.send_transaction({"from": CHECKSUMMED, "to": TO, "value": 7}))
    await in_thread(lambda: client.replace(by_hash(client, hash), to=STRANGER, value=9))
    async with mining(chain):
        receipt = await in_thread(lambda: w3.eth.wait_for_transaction_receipt(hash, timeout=120))
    assert (receipt.status, receipt.transactionHash, receipt.to) == (1, hash, STRANGER)
    asked = await in_thread(lambda: w3.eth.get_transaction(hash))
    assert (asked["value"], asked.to) == (7, TO)


async def test_contracts_are_deployed_and_called(blocking: tuple[Web3, BlockingClient], chain: Anvil) -> None:
    w3, client = blocking
    w3.eth.default_account = CHECKSUMMED
    abi = [{"type": "function", "name": "count", "inputs": [], "outputs": [], "stateMutability": "nonpayable"}]

    def deploy_and_call() -> Any:
        made = w3.eth.wait_for_transaction_receipt(
            w3.eth.contract(abi=abi, bytecode=COUNTER).constructor().transact(), timeout=120
        )
        counter = w3.eth.contract(made.contractAddress, abi=abi)
        hashes = [counter.functions.count().transact() for _ in range(3)]
        receipts = [w3.eth.wait_for_transaction_receipt(hash, timeout=120) for hash in hashes]
        told = [(int(tx.nonce or 0), tx.attempts[0].gas, len(tx.attempts), tx.failure) for tx in client.transactions()]
        assert [(one.status, len(one.logs)) for one in receipts] == [(1, 1)] * 3, told
        return int.from_bytes(w3.eth.get_storage_at(made.contractAddress, 0))

    async with mining(chain):
        assert await in_thread(deploy_and_call) == 3


async def test_the_key_that_is_given_makes_a_call_safe_to_repeat(
    blocking: tuple[Web3, BlockingClient], chain: Anvil
) -> None:
    w3, client = blocking
    call: Any = {"from": CHECKSUMMED, "to": TO, "value": 7, "nonchalantIdempotencyKey": "invoice-42"}
    first, again = [await in_thread(lambda: w3.eth.send_transaction(call)) for _ in range(2)]
    assert first == again
    assert (await in_thread(lambda: by_hash(client, first))).idempotency_key == "invoice-42"
    with pytest.raises(KeyReused):
        await in_thread(lambda: w3.eth.send_transaction({**call, "value": 8}))


async def test_prices_gas_and_lists_arrive(blocking: tuple[Web3, BlockingClient], chain: Anvil) -> None:
    w3, client = blocking
    key = "0x" + "00" * 32
    hash = await in_thread(
        lambda: w3.eth.send_transaction(
            {
                "from": CHECKSUMMED,
                "to": TO,
                "value": Web3.to_wei(1, "gwei"),
                "gas": 60_000,
                "data": "0x0102",
                "chainId": 31337,
                "maxFeePerGas": Web3.to_wei(20, "gwei"),
                "maxPriorityFeePerGas": Web3.to_wei(1, "gwei"),
                "accessList": [{"address": TO, "storageKeys": [key]}],
            }
        )
    )
    tx = await in_thread(lambda: by_hash(client, hash))
    assert (tx.gas, tx.data, tx.fees.max_fee_per_gas) == (60_000, "0x0102", str(20 * 10**9))
    assert tx.access_list[0].storage_keys == [key]
    hash = await in_thread(lambda: w3.eth.send_transaction({"from": CHECKSUMMED, "to": TO, "gasPrice": 20 * 10**9}))
    assert (await in_thread(lambda: by_hash(client, hash))).fees.gas_price == str(20 * 10**9)


async def test_what_it_does_not_send_is_refused_by_name(blocking: tuple[Web3, BlockingClient]) -> None:
    w3, client = blocking
    for field, value in (("nonce", 5), ("authorizationList", []), ("gasLimit", 5)):
        with pytest.raises(BadRequest) as caught:
            await asyncio.to_thread(w3.eth.send_transaction, {"from": CHECKSUMMED, "to": TO, field: value})
        assert caught.value.field == field
    assert await in_thread(lambda: list(client.transactions())) == []


async def test_what_would_revert_is_told_and_not_sent(blocking: tuple[Web3, BlockingClient], chain: Anvil) -> None:
    w3, client = blocking
    await chain.set_code(STRANGER, bytes.fromhex("60006000fd"))
    with pytest.raises((Web3RPCError, ContractLogicError), match="revert"):
        await in_thread(lambda: w3.eth.send_transaction({"from": CHECKSUMMED, "to": STRANGER}))
    [tx] = await in_thread(lambda: list(client.transactions()))
    assert (tx.state, tx.nonce) == ("failed", None)


async def test_a_lane_that_gives_out_no_nonce_sends_nothing(live: Running, chain: Anvil) -> None:
    w3 = Web3(HTTPProvider(chain.url))
    with BlockingClient(live.url) as client:
        attach(w3, client, seconds_to_sign=0.5)
        await in_thread(lambda: client.lane(31337, CHECKSUMMED).pause("key rotation"))
        with pytest.raises(NotSent, match="nothing will be"):
            await in_thread(lambda: w3.eth.send_transaction({"from": CHECKSUMMED, "to": TO}))
        [tx] = await in_thread(lambda: list(client.transactions()))
        assert (tx.state, tx.nonce) == ("cancelled", None)


async def test_a_service_that_goes_away_after_it_accepted_says_how_to_repeat(live: Running, chain: Anvil) -> None:
    async with flaky.before(live.url) as between, Client(between.url, retries=0) as client:
        w3: AsyncWeb3[Any] = AsyncWeb3(AsyncHTTPProvider(chain.url))
        attach(w3, client)
        await client.lane(31337, CHECKSUMMED).pause()
        # Is it managed, is it accepted, is it signed? The last one is lost, and what aiohttp repeats by itself.
        between.faults = [flaky.NONE, flaky.NONE, flaky.LOSE_CALL, flaky.LOSE_CALL]
        with pytest.raises(ServiceUnreachable, match="was accepted") as caught:
            await w3.eth.send_transaction({"from": CHECKSUMMED, "to": TO, "value": 1, "gas": 21000, "gasPrice": 10**10})
        assert caught.value.heard
        [tx] = [tx async for tx in client.transactions()]
        assert tx.idempotency_key == caught.value.idempotency_key
        await w3.provider.disconnect()


async def test_everything_else_goes_to_the_users_own_node(blocking: tuple[Web3, BlockingClient], chain: Anvil) -> None:
    w3, client = blocking
    await chain.set_balance(STRANGER, 10**18)
    await chain.rpc("anvil_impersonateAccount", STRANGER)

    def work() -> Any:
        hash = w3.eth.send_transaction({"from": STRANGER, "to": TO, "value": 5})
        receipt = w3.eth.wait_for_transaction_receipt(hash, timeout=120)
        with pytest.raises(TransactionNotFound):
            w3.eth.get_transaction_receipt("0x" + "12" * 32)
        with pytest.raises(TransactionNotFound):
            w3.eth.get_transaction("0x" + "12" * 32)
        return receipt, w3.eth.get_balance(STRANGER), w3.eth.block_number

    async with mining(chain):
        receipt, balance, _ = await in_thread(work)
    assert receipt["from"] == STRANGER
    assert balance < 10**18
    assert await in_thread(lambda: list(client.transactions())) == []


async def test_a_batch_is_answered_in_order(blocking: tuple[Web3, BlockingClient], chain: Anvil) -> None:
    w3, client = blocking
    hash = await in_thread(lambda: w3.eth.send_transaction({"from": CHECKSUMMED, "to": TO, "value": 7}))
    await in_thread(lambda: client.bump(by_hash(client, hash)))

    def batch() -> Any:
        with w3.batch_requests() as together:
            together.add(w3.eth.get_transaction(hash))
            together.add(w3.eth.get_block("latest"))
            return together.execute()

    found, block = await in_thread(batch)
    assert (found["hash"], "parentHash" in block) == (hash, True)


async def test_twenty_threads_send_at_once(blocking: tuple[Web3, BlockingClient], chain: Anvil) -> None:
    w3, _ = blocking

    def one(number: int) -> Any:
        hash = w3.eth.send_transaction({"from": CHECKSUMMED, "to": TO, "value": number})
        return w3.eth.wait_for_transaction_receipt(hash, timeout=200)

    async with mining(chain):
        receipts = await asyncio.gather(*(asyncio.to_thread(one, number) for number in range(20)))
    assert {receipt.status for receipt in receipts} == {1}
    assert len({receipt.transactionHash for receipt in receipts}) == 20


async def test_it_is_detached_again(blocking: tuple[Web3, BlockingClient]) -> None:
    w3, client = blocking
    detach(w3)
    await in_thread(lambda: w3.eth.send_transaction({"from": CHECKSUMMED, "to": TO}))  # anvil has the key, too
    assert await in_thread(lambda: list(client.transactions())) == []
    with pytest.raises(TypeError, match="BlockingClient"):
        attach(w3, Client())  # type: ignore[call-overload]


# --- asynchronous ---


async def test_the_asynchronous_web3_sends_and_waits_over_a_bump(
    asynchronous: tuple[AsyncWeb3[Any], Client], chain: Anvil
) -> None:
    w3, client = asynchronous
    hash = await w3.eth.send_transaction({"from": CHECKSUMMED, "to": TO, "value": 7})
    [tx] = [tx async for tx in client.transactions(hash=hash)]
    tx = await client.bump(tx, Fees(50 * 10**9, 5 * 10**9))
    assert (await w3.eth.get_transaction(hash))["value"] == 7
    waiting = asyncio.create_task(w3.eth.wait_for_transaction_receipt(hash, timeout=120))
    await until(waiting.done, "mined", tick=chain.mine, every=0.2)
    receipt: Any = await waiting
    assert (receipt.status, receipt.transactionHash, receipt.nonchalantHash) == (1, hash, tx.attempts[1].hash)


async def test_the_asynchronous_batch_is_answered_in_order(
    asynchronous: tuple[AsyncWeb3[Any], Client], chain: Anvil
) -> None:
    w3, client = asynchronous
    hash = await w3.eth.send_transaction({"from": CHECKSUMMED, "to": TO, "value": 7})
    [tx] = [tx async for tx in client.transactions(hash=hash)]
    await client.bump(tx)
    async with w3.batch_requests() as together:
        together.add(w3.eth.get_block("latest"))
        together.add(w3.eth.get_transaction(hash))
        block, found = await together.async_execute()
    assert ("parentHash" in block, found["hash"]) == (True, hash)
