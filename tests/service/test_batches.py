"""Several transactions in one call: all are accepted, or none is, under one key."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.anvil import Anvil
from tests.service.conftest import OTHER, SENDER, SETTINGS, Running, running

BODY = {"chain_id": 31337, "from": SENDER, "to": OTHER, "value": "1000"}


def several(count: int) -> dict[str, Any]:
    return {"transactions": [{**BODY, "value": str(number)} for number in range(count)]}


async def post(service: Running, body: object, key: str | None = None) -> tuple[int, Any, Any]:
    headers = {} if key is None else {"Idempotency-Key": key}
    return await service.call("POST", "/v1/transactions/batch", json=body, headers=headers)


async def listed(service: Running, query: str = "") -> list[str]:
    _, page, _ = await service.get(f"/v1/transactions?limit=500{query}")
    return [tx["id"] for tx in page["transactions"]]


async def test_all_are_accepted_in_order_and_found_together(service: Running) -> None:
    _, alone, _ = await service.post(BODY)
    status, accepted, headers = await post(service, several(5), key="all")
    assert status == 202
    assert [tx["value"] for tx in accepted["transactions"]] == ["0", "1", "2", "3", "4"]
    assert {tx["batch"] for tx in accepted["transactions"]} == {accepted["batch"]}
    assert [tx["idempotency_key"] for tx in accepted["transactions"]] == ["all", None, None, None, None]
    ids = [tx["id"] for tx in accepted["transactions"]]
    assert headers["Location"] == f"/v1/transactions?batch={accepted['batch']}"
    _, page, _ = await service.get(headers["Location"])
    assert [tx["id"] for tx in page["transactions"]] == ids[::-1]
    assert await listed(service) == [*ids[::-1], alone["id"]]
    assert (await service.get(f"/v1/transactions/{alone['id']}"))[1]["batch"] is None


async def test_the_same_key_and_body_answer_the_same_again(service: Running) -> None:
    _, first, headers = await post(service, several(3), key="k")
    assert "Idempotency-Replayed" not in headers
    status, second, headers = await post(service, several(3), key="k")
    assert (status, headers["Idempotency-Replayed"]) == (202, "true")
    assert second["batch"] == first["batch"]
    assert [tx["id"] for tx in second["transactions"]] == [tx["id"] for tx in first["transactions"]]
    assert len(await listed(service)) == 3


async def test_the_same_key_with_another_body_is_refused(service: Running) -> None:
    await post(service, several(3), key="k")
    reordered = {"transactions": several(3)["transactions"][::-1]}
    for body in (several(2), several(4), reordered):
        status, problem, _ = await post(service, body, key="k")
        assert (status, problem["code"]) == (422, "idempotency_key_reused")
    assert len(await listed(service)) == 3


async def test_a_key_is_for_one_request_or_for_one_batch(service: Running) -> None:
    await service.post(BODY, headers={"Idempotency-Key": "single"})
    status, problem, _ = await post(service, {"transactions": [BODY]}, key="single")
    assert (status, problem["code"]) == (422, "idempotency_key_reused")
    await post(service, {"transactions": [BODY]}, key="batch")
    status, problem, _ = await service.post(BODY, headers={"Idempotency-Key": "batch"})
    assert (status, problem["code"]) == (422, "idempotency_key_reused")
    assert len(await listed(service)) == 2


@pytest.mark.parametrize(
    ("wrong", "code", "field"),
    [
        ({"to": "0x12"}, "bad_request", "transactions[3].to"),
        ({"to": 5}, "bad_request", "transactions[3].to"),
        ({"chain_id": 5}, "unknown_chain", "transactions[3].chain_id"),
        ({"from": OTHER}, "unknown_account", "transactions[3].from"),
        ({"priority": "high"}, "bad_request", "transactions[3].priority"),
        ({"fees": {"gas_price": 10**12}}, "fee_above_cap", "transactions[3].fees.gas_price"),
        ({"fees": {"speed": "now"}}, "bad_request", "transactions[3].fees.speed"),
        ({"nonce": 1}, "bad_request", "transactions[3].nonce"),
        ({"valid_until": 5}, "bad_request", "transactions[3].valid_until"),
        ({"metadata": {"a": [[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]}}, "too_deep", "transactions[3].metadata"),
    ],
)
async def test_one_bad_item_is_named_and_nothing_is_accepted(
    service: Running, wrong: dict[str, object], code: str, field: str
) -> None:
    body = several(6)
    body["transactions"][3] |= wrong
    status, problem, _ = await post(service, body, key="k")
    assert (status, problem["code"], problem["field"]) == (400, code, field)
    assert problem["detail"].startswith(f"{field}: ")
    assert await listed(service) == []
    # The key is still free.
    assert (await post(service, several(2), key="k"))[0] == 202


@pytest.mark.parametrize(
    ("body", "code", "field"),
    [
        ({"transactions": []}, "bad_request", "transactions"),
        ({"transactions": [BODY] * 501}, "batch_too_long", "transactions"),
        ({"transactions": [BODY, 5]}, "bad_request", "transactions[1]"),
        ({"transactions": {}}, "bad_request", "transactions"),
        ({}, "bad_request", "transactions"),
        ({"transactions": [BODY], "atomic": True}, "bad_request", "atomic"),
        ([BODY], "bad_request", None),
    ],
)
async def test_what_is_no_batch_is_refused(service: Running, body: object, code: str, field: str | None) -> None:
    status, problem, _ = await post(service, body)
    assert (status, problem["code"], problem.get("field")) == (400, code, field)
    assert await listed(service) == []


async def test_the_largest_batch_is_accepted(service: Running) -> None:
    status, accepted, _ = await post(service, several(500), key="k")
    assert (status, len(accepted["transactions"])) == (202, 500)
    assert len({tx["id"] for tx in accepted["transactions"]}) == 500
    assert await listed(service, f"&batch={accepted['batch']}") == [tx["id"] for tx in accepted["transactions"]][::-1]


async def test_without_room_for_all_nothing_is_accepted(tmp_path: Path) -> None:
    async with running(tmp_path, SETTINGS.replace("queue_limit = 3000", "queue_limit = 4")) as service:
        await service.post(BODY)
        status, problem, headers = await post(service, several(4), key="k")
        assert (status, problem["code"]) == (429, "queue_full")
        assert int(headers["Retry-After"]) > 0
        assert len(await listed(service)) == 1
        assert (await post(service, several(3), key="k"))[0] == 202
        assert len(await listed(service)) == 4
        # What is known is answered, room or not.
        assert (await post(service, several(3), key="k"))[0] == 202


async def test_a_lane_that_drains_refuses_the_whole(tmp_path: Path) -> None:
    two = SETTINGS.replace('file = "words" }', 'file = "words" }, count = 2')
    async with running(tmp_path, two) as service:
        await service.call("POST", f"/v1/lanes/31337/{OTHER}/drain")
        status, problem, _ = await post(service, {"transactions": [BODY, {**BODY, "from": OTHER}, BODY]})
        assert (status, problem["code"]) == (409, "lane_draining")
        assert await listed(service) == []


async def test_batches_at_once_under_one_key_are_one(service: Running) -> None:
    answers = await asyncio.gather(*(post(service, several(20), key="k") for _ in range(20)))
    assert {status for status, _, _ in answers} == {202}
    assert len({shown["batch"] for _, shown, _ in answers}) == 1
    assert sum("Idempotency-Replayed" not in headers for _, _, headers in answers) == 1
    assert len(await listed(service)) == 20


async def test_a_batch_of_which_some_are_kept_no_more_is_told_as_gone(service: Running) -> None:
    _, sent, _ = await post(service, several(3), key="k")
    first, last = sent["transactions"][0]["id"], sent["transactions"][2]["id"]
    for ended in (last, first):
        await service.node.asking.cancel(ended)
        while await service.node.store.transaction(ended) is not None:
            await service.node.store.forget_settled(older_than=0, limit=9)
        status, problem, _ = await post(service, several(3), key="k")
        assert (status, problem["code"], problem["tx"]) == (410, "transaction_removed", first)
    assert len(await listed(service)) == 1


async def test_a_batch_is_executed_in_its_order(live: Running, chain: Anvil) -> None:
    await chain.set_block_time(1)
    _, sent, _ = await post(live, several(10), key="k")
    for number, tx in enumerate(sent["transactions"]):
        shown = tx
        async with asyncio.timeout(120):
            while shown["state"] != "confirmed":
                _, shown, _ = await live.get(f"/v1/transactions/{tx['id']}?wait=30")
        assert (shown["nonce"], shown["value"], shown["batch"]) == (number, str(number), sent["batch"])
    status, again, headers = await post(live, several(10), key="k")
    assert (status, headers["Idempotency-Replayed"]) == (202, "true")
    assert [tx["state"] for tx in again["transactions"]] == ["confirmed"] * 10
