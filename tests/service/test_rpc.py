"""The drop-in JSON-RPC: its envelope, its methods, what nonces and prices of clients mean, and who may do what."""

from __future__ import annotations

import asyncio
import io
import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from eth_account import Account
from eth_account.messages import encode_defunct, encode_typed_data

from nonchalant.access import ANYBODY, Caller, FeeRule, LanePattern, NonceRule, Scope
from nonchalant.errors import StoreUnavailable
from nonchalant.service.asgi import Service
from nonchalant.service.rpc import sending
from nonchalant.values import replace
from tests.anvil import KEYS
from tests.clients.conftest import Stand, standing
from tests.e2e.rig import until
from tests.lessons import lesson
from tests.service.conftest import OTHER, SENDER

PAYEE = "0x00000000000000000000000000000000000000aa"
PAY = {"from": SENDER, "to": PAYEE, "value": "0x1"}
GWEI = 10**9


@pytest.fixture
async def stand(tmp_path: Path) -> AsyncIterator[Stand]:
    async with standing(tmp_path) as made:
        yield made


class Key:
    """Calls made by somebody with a key of his own: as the server makes them, past the gate."""

    def __init__(self, stand: Stand, **rules: Any) -> None:
        self.service = Service(stand.node)
        caller = replace(ANYBODY, key_id="key", **rules)

        class Open:
            async def recognise(self, _call: object) -> Caller:
                return caller

            admit = recognise

            def charge(self, caller: Caller, calls: int) -> None:
                pass

        self.service.front.gate = Open()

    async def rpc(self, method: str, *params: object, leaves: bool = False, **headers: str) -> Any:
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
        came: list[dict[str, Any]] = [{"type": "http.request", "body": body}]
        came += [{"type": "http.disconnect"}] if leaves else []
        said: list[Any] = []

        async def receive() -> dict[str, Any]:
            return came.pop(0) if came else await asyncio.Future()

        async def send(message: Any) -> None:
            said.append(message)

        given = {"content-type": "application/json", **headers}
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/rpc/31337",
            "raw_path": b"/rpc/31337",
            "query_string": b"",
            "headers": [(name.lower().encode(), value.encode()) for name, value in given.items()],
        }
        await self.service(scope, receive, send)
        assert said[0]["status"] == 200, said
        return json.loads(said[1]["body"])


async def post(stand: Stand, raw: bytes | str | io.BytesIO, **headers: str) -> tuple[int, Any]:
    headers = {"Content-Type": "application/json", **headers}
    async with stand.session.post(stand.rpc_url, data=raw, headers=headers) as answer:
        body = await answer.read()
        return answer.status, (await answer.json(content_type=None) if body else None)


async def mined(stand: Stand, hash: str) -> dict[str, Any]:
    """Its receipt, once there is one."""
    await stand.sent(hash)
    await stand.chain.mine()
    receipt: dict[str, Any] = (await stand.rpc("eth_getTransactionReceipt", hash))["result"]
    return receipt


# the envelope


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"", -32700),
        (b"{", -32700),
        (b'{"jsonrpc":"2.0"', -32700),
        (b"\xff\xfe", -32700),
        (b"7", -32600),
        (b"[]", -32600),
        (b"{}", -32600),
        (b'{"jsonrpc":"1.0","id":1,"method":"eth_chainId"}', -32600),
        (b'{"jsonrpc":"2.0","id":{},"method":"eth_chainId"}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":7}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"eth_chainId","params":{"a":1}}', -32602),
        (b'{"jsonrpc":"2.0","id":1,"method":"eth_nothing\\u0000"}', -32601),
        (b"[" * 65 + b"]" * 65, -32600),
        (b"[" + b",".join([b"1"] * 101) + b"]", -32600),
    ],
)
async def test_what_is_no_call_is_answered_with_its_number(stand: Stand, raw: bytes, code: int) -> None:
    status, answer = await post(stand, raw)
    assert (status, answer["error"]["code"]) == (200, code)
    assert answer["error"]["message"]


async def test_brackets_within_text_are_not_depth(stand: Stand) -> None:
    text = '{"jsonrpc":"2.0","id":1,"method":"eth_chainId","params":["' + '[\\"{' * 100 + '"]}'
    assert (await post(stand, text))[1]["result"] == "0x7a69"


async def test_a_batch_is_answered_in_its_order_and_one_bad_call_spoils_no_other(stand: Stand) -> None:
    calls = (
        '[{"jsonrpc":"2.0","id":"a","method":"eth_chainId"},3,{"jsonrpc":"2.0","method":"eth_chainId"},'
        '{"jsonrpc":"2.0","id":null,"method":"net_version"},{"jsonrpc":"2.0","id":1e2,"method":"eth_nothing"}]'
    )
    status, answers = await post(stand, calls)
    assert status == 200
    assert [answer["id"] for answer in answers] == ["a", None, None, 100]
    assert [answer.get("result") for answer in answers] == ["0x7a69", None, "31337", None]
    assert [answer.get("error", {}).get("code") for answer in answers] == [None, -32600, None, -32601]


async def test_a_notification_is_done_and_has_no_answer(stand: Stand) -> None:
    call = json.dumps({"jsonrpc": "2.0", "method": "eth_sendTransaction", "params": [PAY]})
    assert await post(stand, call) == (204, None)
    assert await post(stand, f"[{call},{call}]") == (204, None)
    assert len(await stand.of(SENDER)) == 3


async def test_the_transactions_of_a_batch_are_accepted_in_its_order(stand: Stand) -> None:
    calls = [
        {"jsonrpc": "2.0", "id": n, "method": "eth_sendTransaction", "params": [{**PAY, "value": hex(n + 1)}]}
        for n in range(12)
    ]
    # One of which a price is missing, that has to be asked for first.
    calls[3]["params"][0]["maxPriorityFeePerGas"] = hex(GWEI)  # type: ignore[index]
    async with stand.session.post(stand.rpc_url, json=calls) as answer:
        answers = await answer.json()
    assert [one["id"] for one in answers] == list(range(12))
    sent = [await stand.by_hash(one["result"]) for one in answers]
    assert [(tx["nonce"], tx["value"]) for tx in sent] == [(n, str(n + 1)) for n in range(12)]


async def test_other_paths_and_bodies_are_told_as_problems(stand: Stand) -> None:
    async with stand.session.post(f"{stand.url}/rpc/1", json={}) as answer:
        assert answer.status == 404
    assert (await post(stand, "{}", **{"Content-Type": "text/plain"}))[0] == 415
    assert (await post(stand, io.BytesIO(b" " * (1024 * 1024 + 1))))[0] == 413


# sending


async def test_a_request_that_gets_no_nonce_in_time_is_called_off_and_the_error_says_so(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "HASH_SECONDS", 0.5)
    await stand.rest("POST", f"/v1/lanes/31337/{SENDER}/pause")
    error = (await stand.rpc("eth_sendTransaction", PAY))["error"]
    assert error["code"] == -32000
    assert "nothing will be sent" in error["message"]
    await stand.rest("POST", f"/v1/lanes/31337/{SENDER}/resume")
    [tx] = await stand.of(SENDER)
    assert (tx["id"], tx["state"], tx["nonce"]) == (error["data"]["tx"], "cancelled", None)


async def test_what_cannot_be_called_off_while_the_lane_is_compared_with_its_chain_is_held(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever hears an error sends again: each of them would go once the lane is reconciled."""
    monkeypatch.setattr(sending, "HASH_SECONDS", 2.0)
    [path] = stand.folder.glob("*.db")
    with closing(sqlite3.connect(path, timeout=10)) as store, store:
        store.execute("UPDATE lanes SET incarnation = incarnation - 1")  # as if the store had been restored
    errors = [(await stand.rpc("eth_sendTransaction", PAY))["error"] for _ in range(2)]
    assert all("nothing will be sent" in error["message"] for error in errors)
    assert [(tx["state"], tx["held"]) for tx in await stand.of(SENDER)] == [("queued", True)] * 2


async def test_a_store_that_is_away_for_a_moment_after_acceptance_is_waited_for(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error that says that nothing was written would have the client send it a second time."""
    attempts, failures = stand.node.store.attempts, iter([StoreUnavailable()] * 2)

    async def away(tx_ids: Any) -> Any:
        for failure in failures:
            raise failure
        return await attempts(tx_ids)

    monkeypatch.setattr(stand.node.store, "attempts", away)
    hash = (await stand.rpc("eth_sendTransaction", PAY))["result"]
    assert (await stand.by_hash(hash))["attempts"][0]["hash"] == hash


async def test_what_lacks_funds_is_told_in_words_that_clients_know(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "HASH_SECONDS", 3.0)
    error = (await stand.rpc("eth_sendTransaction", {**PAY, "value": hex(10**24)}))["error"]
    assert error["message"].startswith("insufficient funds for gas * price + value")
    assert error["data"]["code"] == "insufficient_funds"


async def test_what_would_revert_is_refused_with_the_contract_s_words_and_spends_no_nonce(stand: Stand) -> None:
    error = (await stand.rpc("eth_sendTransaction", {"from": SENDER, "data": "0x60006000fd"}))["error"]
    assert "revert" in error["message"]
    assert (error["code"], error["data"]["code"]) == (-32000, "failed")
    assert (await stand.rpc("eth_getTransactionCount", SENDER, "latest"))["result"] == "0x0"


async def test_whoever_leaves_before_he_has_his_hash_takes_his_transaction_with_him(stand: Stand) -> None:
    await stand.rest("POST", f"/v1/lanes/31337/{SENDER}/pause")
    await Key(stand).rpc("eth_sendTransaction", PAY, leaves=True)
    assert [tx["state"] for tx in await stand.of(SENDER)] == ["cancelled"]


async def test_whoever_can_ask_again_in_the_same_way_may_leave(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    await stand.rest("POST", f"/v1/lanes/31337/{SENDER}/pause")
    leaving = asyncio.create_task(Key(stand).rpc("eth_sendTransaction", PAY, leaves=True, **{"Idempotency-Key": "k"}))

    async def is_queued() -> bool:
        return [tx["state"] for tx in await stand.of(SENDER)] == ["queued"]

    await until(is_queued, "accepted")
    again = asyncio.create_task(stand.rpc("eth_sendTransaction", PAY, **{"Idempotency-Key": "k"}))
    await stand.rest("POST", f"/v1/lanes/31337/{SENDER}/resume")
    assert (await again)["result"] == (await leaving)["result"]
    assert len(await stand.of(SENDER)) == 1


async def test_the_same_idempotency_key_is_the_same_transaction_and_in_a_batch_each_call_has_its_own(
    stand: Stand,
) -> None:
    first = await stand.rpc("eth_sendTransaction", PAY, **{"Idempotency-Key": "k"})
    assert await stand.rpc("eth_sendTransaction", PAY, **{"Idempotency-Key": "k"}) == first
    other = await stand.rpc("eth_sendTransaction", {**PAY, "value": "0x2"}, **{"Idempotency-Key": "k"})
    assert other["error"]["data"]["code"] == "idempotency_key_reused"
    batch = [{"jsonrpc": "2.0", "id": n, "method": "eth_sendTransaction", "params": [PAY]} for n in range(3)]
    for _ in range(2):
        async with stand.session.post(stand.rpc_url, json=batch, headers={"Idempotency-Key": "b"}) as answer:
            assert len({one["result"] for one in await answer.json()}) == 3
    assert len(await stand.of(SENDER)) == 4


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"vaule": "0x1"}, "vaule"),
        ({"value": "1"}, "value"),
        ({"value": 1}, "value"),
        ({"chainId": "0x1"}, "chainId does not match"),
        ({"type": "0x3"}, "type not supported"),
        ({"type": "0x0", "maxFeePerGas": "0x1"}, "type 2"),
        ({"type": "0x2", "gasPrice": "0x1"}, "types 0 and 1"),
        ({"gasPrice": "0x1", "maxFeePerGas": "0x1"}, "both gasPrice"),
        ({"maxFeePerGas": "0x1", "maxPriorityFeePerGas": "0x2"}, "maxFeePerGas (1) < maxPriorityFeePerGas (2)"),
        ({"data": "0x01", "input": "0x02"}, 'both "data" and "input"'),
        ({"gas": "0x1"}, "gas"),
        ({"to": "0x12"}, "to"),
        ({"accessList": [{"address": PAYEE, "storageKeys": ["0x1"]}]}, "accessList[0].storageKeys[0]"),
        ({"from": PAYEE}, "unknown account"),
    ],
)
async def test_what_is_wrong_with_a_transaction_is_told_by_the_client_s_own_names(
    stand: Stand, given: dict[str, object], words: str
) -> None:
    error = (await stand.rpc("eth_sendTransaction", PAY | given))["error"]
    assert words in error["message"]
    assert await stand.of(SENDER) == []


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({"gasPrice": hex(3 * GWEI)}, "0x0"),
        ({"type": "0x0"}, "0x0"),
        ({"gasPrice": hex(3 * GWEI), "accessList": [{"address": PAYEE, "storageKeys": ["0x" + "00" * 32]}]}, "0x1"),
        ({"maxFeePerGas": hex(4 * GWEI)}, "0x2"),
        ({"maxPriorityFeePerGas": hex(GWEI)}, "0x2"),
        ({"maxFeePerGas": hex(4 * GWEI), "maxPriorityFeePerGas": hex(GWEI), "input": "0x1234"}, "0x2"),
        ({"to": PAYEE, "data": None, "value": None, "nonce": None, "accessList": []}, "0x2"),
    ],
)
async def test_every_type_is_signed_as_it_was_asked_for(stand: Stand, given: dict[str, object], kind: str) -> None:
    hash = (await stand.rpc("eth_sendTransaction", PAY | given))["result"]
    await stand.sent(hash)
    ours, theirs = (
        (await stand.rpc("eth_getTransactionByHash", hash))["result"],
        await stand.chain.rpc("eth_getTransactionByHash", hash),
    )
    assert ours["type"] == kind
    if kind == "0x2":  # of which nodes show what it would pay now
        del ours["gasPrice"]
    # What we show of it before any block has it is what a node shows.
    assert {name: ours[name] for name in ours if name in theirs} == {
        name: value.lower() if name in ("from", "to") else value for name, value in theirs.items() if name in ours
    }
    assert (await mined(stand, hash))["status"] == "0x1"


# nonces


@lesson("client-habits")
async def test_a_nonce_that_comes_again_is_the_same_transaction_and_at_a_better_price_a_bump(stand: Stand) -> None:
    prices = {"maxFeePerGas": hex(4 * GWEI), "maxPriorityFeePerGas": hex(GWEI)}
    numbered = {**PAY, "nonce": "0x0"}
    first = (await stand.rpc("eth_sendTransaction", numbered | prices))["result"]
    assert (await stand.rpc("eth_sendTransaction", numbered | prices))["result"] == first
    assert len((await stand.by_hash(first))["attempts"]) == 1
    dearer = {"maxFeePerGas": hex(8 * GWEI), "maxPriorityFeePerGas": hex(2 * GWEI)}
    assert (await stand.rpc("eth_sendTransaction", numbered | dearer))["result"] == first
    attempts = (await stand.by_hash(first))["attempts"]
    assert [attempt["fees"]["max_fee_per_gas"] for attempt in attempts] == [str(4 * GWEI), str(8 * GWEI)]
    other = (await stand.rpc("eth_sendTransaction", {**numbered, "value": "0x2"} | dearer))["error"]
    assert other["message"].startswith("nonce too low")
    assert other["data"]["code"] == "nonce_taken"
    assert len(await stand.of(SENDER)) == 1


@lesson("client-habits")
async def test_nonces_that_arrive_out_of_order_are_put_in_order(stand: Stand) -> None:
    async def send(nonce: int) -> str:
        return (await stand.rpc("eth_sendTransaction", {**PAY, "value": hex(nonce), "nonce": hex(nonce)}))["result"]

    late = [asyncio.create_task(send(nonce)) for nonce in (2, 1)]

    async def both_wait() -> bool:
        return len(await stand.of(SENDER)) == 2

    await until(both_wait, "accepted")
    assert (await stand.rpc("eth_getTransactionCount", SENDER, "pending"))["result"] == "0x0"
    hashes = [await send(0), await late[1], await late[0]]
    assert [(await stand.by_hash(hash))["nonce"] for hash in hashes] == [0, 1, 2]
    assert (await stand.rpc("eth_getTransactionCount", SENDER, "latest"))["result"] == "0x3"


async def test_a_nonce_that_was_used_is_too_low(stand: Stand) -> None:
    await mined(stand, (await stand.rpc("eth_sendTransaction", PAY))["result"])
    error = (await stand.rpc("eth_sendTransaction", {**PAY, "nonce": "0x0"}))["error"]
    assert error["message"].startswith("nonce too low")
    assert (error["code"], error["data"]["code"]) == (-32000, "nonce_too_low")


async def test_a_key_may_take_nonces_for_order_only_or_refuse_them(stand: Stand) -> None:
    ordering, refusing = Key(stand, nonces=NonceRule.ORDER), Key(stand, nonces=NonceRule.REFUSE)
    hash = (await ordering.rpc("eth_sendTransaction", {**PAY, "nonce": "0x9"}))["result"]
    assert (await stand.by_hash(hash))["nonce"] == 0
    assert (
        "must not name nonces"
        in (await refusing.rpc("eth_sendTransaction", {**PAY, "nonce": "0x1"}))["error"]["message"]
    )
    assert "result" in await refusing.rpc("eth_sendTransaction", PAY)


async def test_counts_of_earlier_blocks_and_of_other_accounts_are_the_chain_s(stand: Stand) -> None:
    hash = (await stand.rpc("eth_sendTransaction", PAY))["result"]
    for tag in ("latest", "pending"):
        assert (await stand.rpc("eth_getTransactionCount", SENDER, tag))["result"] == "0x1"
    assert (await stand.rpc("eth_getTransactionCount", SENDER, "earliest"))["result"] == "0x0"
    assert (await stand.rpc("eth_getTransactionCount", SENDER, "0x0"))["result"] == "0x0"
    await mined(stand, hash)
    assert (await stand.rpc("eth_getTransactionCount", PAYEE, "latest"))["result"] == "0x0"


# prices


async def test_prices_are_a_wish_or_a_cap_as_the_key_has_it(stand: Stand) -> None:
    prices = {"maxFeePerGas": hex(3 * GWEI), "maxPriorityFeePerGas": hex(GWEI)}
    wished = (await Key(stand, fees=FeeRule.WISH).rpc("eth_sendTransaction", PAY | prices))["result"]
    capped = (await Key(stand, fees=FeeRule.CAP).rpc("eth_sendTransaction", PAY | prices))["result"]
    shown = {"max_fee_per_gas": str(3 * GWEI), "max_priority_fee_per_gas": str(GWEI)}
    assert (await stand.by_hash(wished))["fees"] == {**shown, "wish": True}
    assert (await stand.by_hash(capped))["fees"] == shown


async def test_a_wish_below_the_base_fee_begins_at_the_market_s_price_and_a_cap_there_is_called_off(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "HASH_SECONDS", 2.0)
    low = {"maxFeePerGas": "0x10", "maxPriorityFeePerGas": "0x1"}
    hash = (await Key(stand).rpc("eth_sendTransaction", PAY | low))["result"]
    assert int((await stand.by_hash(hash))["attempts"][0]["fees"]["max_fee_per_gas"]) > GWEI
    error = (await Key(stand, fees=FeeRule.CAP).rpc("eth_sendTransaction", PAY | low))["error"]
    assert error["message"].startswith("max fee per gas less than block base fee")


# hashes


async def test_a_transaction_that_a_block_has_is_found_before_our_follower_saw_it(stand: Stand) -> None:
    """Blocks that are passed through may be ahead of what the engine knows."""
    hash = (await stand.rpc("eth_sendTransaction", PAY))["result"]
    await stand.sent(hash)
    await stand.node.engine.stop()  # nobody follows the chain any more
    await stand.chain.mine()
    assert (await stand.by_hash(hash))["state"] == "sent"
    receipt = (await stand.rpc("eth_getTransactionReceipt", hash))["result"]
    assert (receipt["status"], receipt["nonchalantState"], receipt["nonchalantHash"]) == ("0x1", "mined", hash)
    shown = (await stand.rpc("eth_getTransactionByHash", hash))["result"]
    assert (shown["blockHash"], shown["blockNumber"]) == (receipt["blockHash"], receipt["blockNumber"])


async def test_what_is_queued_again_has_no_receipt_until_it_is_mined_and_then_under_its_first_hash(
    stand: Stand,
) -> None:
    hash = (await stand.rpc("eth_sendTransaction", PAY))["result"]
    await stand.sent(hash)
    await stand.chain.drop_all()
    await stand.chain.send_as(SENDER, to=PAYEE, value="0x7", gas="0x5208", maxFeePerGas=hex(9 * GWEI))
    await stand.chain.mine()
    assert (await stand.rpc("eth_getTransactionReceipt", hash))["result"] is None

    async def second_nonce() -> bool:
        return (await stand.by_hash(hash))["nonce"] == 1

    await until(second_nonce, "queued again, and signed again", tick=stand.chain.mine, every=0.2)
    newest = (await stand.by_hash(hash))["hash"]
    receipt: dict[str, Any] = {}

    async def served() -> bool:
        receipt.update((await stand.rpc("eth_getTransactionReceipt", hash))["result"] or {})
        return bool(receipt)

    await until(served, "its receipt", tick=stand.chain.mine, every=0.2)
    assert (receipt["transactionHash"], receipt["nonchalantHash"], receipt["status"]) == (hash, newest, "0x1")


async def test_what_is_cancelled_after_it_lost_its_nonce_has_a_failed_receipt_that_stays_the_same(
    stand: Stand,
) -> None:
    body = {"chain_id": 31337, "from": SENDER, "to": PAYEE, "value": 1, "on_superseded": "hold"}
    tx = await stand.rest("POST", "/v1/transactions", json=body)

    async def signed() -> str | None:
        return (await stand.rest("GET", f"/v1/transactions/{tx['id']}"))["hash"]

    hash = await until(signed, "signed")
    await stand.sent(hash)
    await stand.chain.drop_all()
    await stand.chain.send_as(SENDER, to=PAYEE, value="0x7", gas="0x5208", maxFeePerGas=hex(9 * GWEI))

    async def is_held() -> bool:
        return (await stand.by_hash(hash))["held"]

    await until(is_held, "held", tick=stand.chain.mine, every=0.2)
    await stand.rest("POST", f"/v1/transactions/{tx['id']}/cancel", json={})

    async def served() -> Any:
        return (await stand.rpc("eth_getTransactionReceipt", hash))["result"]

    receipt = await until(served, "its receipt", tick=stand.chain.mine, every=0.5)
    assert (receipt["status"], receipt["nonchalantState"], receipt["nonchalantHash"]) == ("0x0", "cancelled", None)
    await stand.chain.mine(3)
    assert await served() == receipt
    block = await stand.chain.rpc("eth_getBlockByHash", receipt["blockHash"], False)
    assert block["number"] == receipt["blockNumber"]


async def test_logs_are_served_under_the_hash_that_was_asked_for_and_a_cancel_has_none(stand: Stand) -> None:
    # Code that logs once, and is no contract that anybody keeps.
    logging = {"from": SENDER, "data": "0x60006000a000"}
    bumped = (await stand.rpc("eth_sendTransaction", logging))["result"]
    await stand.do("bump", bumped)
    receipt = await mined(stand, bumped)
    assert receipt["nonchalantHash"] != bumped
    assert [log["transactionHash"] for log in receipt["logs"]] == [bumped]
    cancelled = (await stand.rpc("eth_sendTransaction", logging))["result"]
    await stand.do("cancel", cancelled)
    receipt = await mined(stand, cancelled)
    assert (receipt["logs"], receipt["status"], receipt["contractAddress"]) == ([], "0x0", None)
    # The cancel itself is found as the chain has it.
    real = receipt["nonchalantHash"]
    assert (await stand.rpc("eth_getTransactionReceipt", real))["result"]["status"] == "0x1"


async def test_what_is_nobody_s_is_the_node_s_to_answer(stand: Stand) -> None:
    stranger = "0x00000000000000000000000000000000000000ff"
    await stand.chain.set_balance(stranger, 10**18)
    theirs = await stand.chain.send_as(stranger, to=PAYEE, gas="0x5208", gasPrice=hex(3 * GWEI))
    assert (await stand.rpc("eth_getTransactionByHash", theirs))["result"]["hash"] == theirs
    assert (await stand.rpc("eth_getTransactionReceipt", "0x" + "12" * 32))["result"] is None
    assert "error" in await stand.rpc("eth_getTransactionReceipt", "0x12")


# signed elsewhere


def signed(nonce: int, key: str = KEYS[0], **more: Any) -> Any:
    tx = {"nonce": nonce, "to": bytes.fromhex(PAYEE[2:]), "value": 1, "gas": 21_000, "chainId": 31337}
    prices = {"maxFeePerGas": 3 * GWEI, "maxPriorityFeePerGas": GWEI}
    return Account.sign_transaction(tx | prices | more, key)


async def test_signed_bytes_of_a_managed_account_are_taken_at_a_reserved_nonce_only(stand: Stand) -> None:
    bytes_ = signed(0)
    refused = (await stand.rpc("eth_sendRawTransaction", bytes_.raw_transaction.to_0x_hex()))["error"]
    assert (refused["code"], refused["data"]["code"]) == (-32000, "not_reserved")
    assert "reserve" in refused["message"]
    await stand.rest("POST", f"/v1/lanes/31337/{SENDER}/reservations", json={"seconds": 60})
    for _ in range(2):  # and the same again is the same
        answer = await stand.rpc("eth_sendRawTransaction", bytes_.raw_transaction.to_0x_hex())
        assert answer["result"] == bytes_.hash.to_0x_hex()

    async def is_executed() -> bool:
        return await stand.chain.rpc("eth_getTransactionReceipt", bytes_.hash.to_0x_hex()) is not None

    await until(is_executed, "sent by us", tick=stand.chain.mine, every=0.2)


async def test_signed_bytes_of_others_are_handed_on_and_what_cannot_be_read_is_not(stand: Stand) -> None:
    key = "0x" + "77" * 32
    await stand.chain.set_balance(Account.from_key(key).address, 10**18)
    theirs = signed(0, key)
    assert (await stand.rpc("eth_sendRawTransaction", theirs.raw_transaction.to_0x_hex()))[
        "result"
    ] == theirs.hash.to_0x_hex()
    for raw in ("0x03c0", "0x12", "0x"):
        assert "type not supported" in (await stand.rpc("eth_sendRawTransaction", raw))["error"]["message"]
    elsewhere = (await stand.rpc("eth_sendRawTransaction", signed(0, chainId=1).raw_transaction.to_0x_hex()))["error"]
    assert "invalid chain id for signer: have 1 want 31337" in elsewhere["message"]


async def test_texts_and_typed_data_are_signed_for_those_who_may_have_that(stand: Stand) -> None:
    document = {
        "types": {
            "EIP712Domain": [{"name": "chainId", "type": "uint256"}],
            "Mail": [{"name": "text", "type": "string"}],
        },
        "primaryType": "Mail",
        "domain": {"chainId": 31337},
        "message": {"text": "hello"},
    }
    text = encode_defunct(b"hello")
    for method, params in (
        ("eth_sign", (SENDER, "0x" + b"hello".hex())),
        ("personal_sign", ("0x" + b"hello".hex(), SENDER)),
    ):
        signature = (await stand.rpc(method, *params))["result"]
        assert Account.recover_message(text, signature=signature).lower() == SENDER
    for method in ("eth_signTypedData", "eth_signTypedData_v4"):
        signature = (await stand.rpc(method, SENDER, document))["result"]
        assert Account.recover_message(encode_typed_data(full_message=document), signature=signature).lower() == SENDER
    other_chain = {**document, "domain": {"chainId": 1}}
    assert "chain 1" in (await stand.rpc("eth_signTypedData_v4", SENDER, other_chain))["error"]["message"]
    assert (await stand.rpc("eth_signTransaction", PAY))["error"]["code"] == -32601
    plain = Key(stand, scopes=frozenset({Scope.TX_READ, Scope.TX_WRITE}))
    for method in ("eth_sign", "eth_signTypedData_v4"):
        assert (await plain.rpc(method, SENDER, "0x12"))["error"]["data"]["code"] == "forbidden"


# who may do what


async def test_a_key_sees_and_uses_its_own_accounts_only(stand: Stand) -> None:
    key = Key(stand, lanes=(LanePattern(31337, OTHER),), scopes=frozenset(Scope) - {Scope.ADMIN})
    assert (await key.rpc("eth_accounts"))["result"] == [OTHER]
    foreign = await key.rpc("eth_sendTransaction", PAY)
    assert (foreign["error"]["code"], foreign["error"]["data"]["code"]) == (-32000, "unknown_account")
    assert "result" in await key.rpc("eth_sendTransaction", {**PAY, "from": OTHER})
    hash = (await stand.rpc("eth_sendTransaction", PAY))["result"]
    await stand.do("bump", hash)
    await stand.chain.mine()
    # What the chain shows anybody may see; what only we know, not.
    assert (await key.rpc("eth_getTransactionReceipt", hash))["result"] is None
    assert (await stand.rpc("eth_getTransactionReceipt", hash))["result"] is not None
    await stand.rpc("eth_sendTransaction", PAY)
    assert (await key.rpc("eth_getTransactionCount", SENDER, "latest"))["result"] == "0x1"
    raw = signed(2).raw_transaction.to_0x_hex()
    assert (await key.rpc("eth_sendRawTransaction", raw))["error"]["data"]["code"] == "not_reserved"


async def test_a_key_that_only_reads_sends_nothing(stand: Stand) -> None:
    key = Key(stand, scopes=frozenset({Scope.TX_READ}))
    assert (await key.rpc("eth_sendTransaction", PAY))["error"]["data"]["code"] == "forbidden"
    raw = signed(0).raw_transaction.to_0x_hex()
    assert (await key.rpc("eth_sendRawTransaction", raw))["error"]["data"]["code"] == "forbidden"
    assert (await key.rpc("eth_blockNumber"))["result"] == "0x0"


async def test_transactions_are_the_tenant_s(stand: Stand) -> None:
    hash = (await Key(stand, tenant="acme").rpc("eth_sendTransaction", PAY))["result"]
    other = Key(stand, tenant="other", scopes=frozenset({Scope.TX_READ}))
    await stand.do("bump", hash)
    await stand.chain.mine()
    assert (await other.rpc("eth_getTransactionReceipt", hash))["result"] is None


# what is passed on


async def test_what_changes_or_needs_a_node_s_memory_is_not_passed_on(tmp_path: Path) -> None:
    async with standing(tmp_path) as stand:
        for method in ("eth_sendBundle", "eth_sendUserOperation", "eth_submitWork", "eth_subscribe", "anvil_mine"):
            error = (await stand.rpc(method))["error"]
            assert error["code"] == -32601
            assert f"the method {method} does not exist/is not available" in error["message"]
        assert "result" in await stand.rpc("eth_newBlockFilter")  # there is one endpoint, which remembers it


async def test_a_chain_s_settings_let_more_through_and_several_endpoints_no_filters(tmp_path: Path) -> None:
    more = 'rpc_methods = ["anvil_*", "txpool_status"]'
    async with standing(tmp_path, endpoints=2, of_chain=more) as stand:
        assert "result" in await stand.rpc("anvil_nodeInfo")
        assert "result" in await stand.rpc("txpool_status")
        assert (await stand.rpc("txpool_content"))["error"]["code"] == -32601
        assert "eth_getLogs" in (await stand.rpc("eth_newBlockFilter"))["error"]["message"]


async def test_a_node_s_refusal_comes_back_as_the_node_gave_it(stand: Stand) -> None:
    call = {"from": SENDER, "data": "0x60006000fd"}
    theirs = await stand.chain._session.post(
        stand.chain.url, json={"jsonrpc": "2.0", "id": 1, "method": "eth_call", "params": [call, "latest"]}
    )
    assert (await stand.rpc("eth_call", call, "latest"))["error"] == (await theirs.json())["error"]


async def test_a_chain_that_does_not_answer_is_told_and_nothing_of_its_address(stand: Stand) -> None:
    await stand.chain.stop()
    error = (await stand.rpc("eth_gasPrice"))["error"]
    assert (error["code"], error["data"]["code"]) == (-32002, "chain_unreachable")
    assert (await stand.rpc("eth_accounts"))["result"]
