"""Cancel, bump, replace, hold and release over REST: of what is queued, and of what a real chain holds."""

import asyncio
from typing import Any

import pytest

from tests.anvil import Anvil
from tests.service.conftest import CHECKSUMMED, OTHER, SENDER, Running

BODY = {"chain_id": 31337, "from": SENDER, "to": OTHER, "value": "1000"}
VERBS = ("cancel", "bump", "replace", "hold", "release")
GWEI = 10**9


async def wish(service: Running, tx_id: str, verb: str, body: object = None, **options: Any) -> tuple[int, Any, Any]:
    return await service.call("POST", f"/v1/transactions/{tx_id}/{verb}", **({"json": body} if body else {}), **options)


async def kinds(service: Running, tx_id: str) -> list[str]:
    _, history, _ = await service.get(f"/v1/transactions/{tx_id}/events")
    return [event["kind"] for event in history["events"]]


# --- what is asked for with the request ---


async def test_limits_of_a_request_are_kept_and_shown(service: Running) -> None:
    limits = {"valid_until": "2090-01-01T01:00:00+01:00", "confirmations": 7, "on_superseded": "hold"}
    status, shown, _ = await service.post({**BODY, **limits})
    assert status == 202
    assert shown["valid_until"] == "2090-01-01T00:00:00.000Z"
    assert (shown["confirmations"], shown["on_superseded"]) == (7, "hold")
    assert (shown["payload_version"], shown["earlier"], shown["outcome"]) == (1, [], None)


async def test_a_deadline_in_the_past_is_refused_unless_the_request_is_known(service: Running) -> None:
    status, problem, _ = await service.post({**BODY, "valid_until": 5})
    assert (status, problem["code"], problem["field"]) == (400, "bad_request", "valid_until")
    assert (await service.get("/v1/transactions"))[1]["transactions"] == []
    # A client that repeats its request after the deadline learns what became of it.
    soon = service.node._clock.now() // 1000 + 1
    _, first, _ = await service.post({**BODY, "valid_until": soon}, headers={"Idempotency-Key": "k"})
    await until(service, first["id"], lambda shown: shown["state"] == "expired")
    status, again, headers = await service.post({**BODY, "valid_until": soon}, headers={"Idempotency-Key": "k"})
    assert (status, again["id"], again["state"]) == (202, first["id"], "expired")
    assert headers["Idempotency-Replayed"] == "true"
    assert again["outcome"] == {"ran": None, "payload_version": None, "hash": None}


# --- what is queued ---


async def test_a_queued_transaction_is_held_and_released(service: Running) -> None:
    _, tx, _ = await service.post(BODY)
    status, shown, _ = await wish(service, tx["id"], "hold", {"reason": "the invoice is wrong"})
    assert (status, shown["state"], shown["held"]) == (202, "queued", True)
    assert (shown["attention"]["code"], shown["attention"]["reason"]) == ("held", "the invoice is wrong")
    status, problem, _ = await wish(service, tx["id"], "release", {"mark": "superseded"})
    assert (status, problem["code"]) == (409, "held_for_another_reason")
    status, shown, _ = await wish(service, tx["id"], "release")
    assert (status, shown["held"], shown["attention"]) == (202, False, None)
    assert await kinds(service, tx["id"]) == ["tx.accepted", "tx.held", "tx.released"]


async def test_a_queued_transaction_is_cancelled_at_once_and_stays_so(service: Running) -> None:
    _, tx, _ = await service.post(BODY)
    for _ in range(2):
        status, shown, _ = await wish(service, tx["id"], "cancel")
        assert (status, shown["state"], shown["nonce"]) == (202, "cancelled", None)
    for verb in VERBS[1:]:
        status, problem, _ = await wish(service, tx["id"], verb, {"to": OTHER} if verb == "replace" else None)
        assert (status, problem["code"]) == (409, "too_late"), verb
    assert await kinds(service, tx["id"]) == ["tx.accepted", "tx.cancelled"]


async def test_a_queued_transaction_is_replaced_and_its_first_payload_remembered(service: Running) -> None:
    _, tx, _ = await service.post({**BODY, "data": "0x01", "gas": 50_000})
    status, shown, _ = await wish(service, tx["id"], "replace", {"to": SENDER, "value": "5", "fees": {"speed": "fast"}})
    assert (status, shown["id"], shown["payload_version"]) == (202, tx["id"], 2)
    assert (shown["to"], shown["value"], shown["data"], shown["gas"]) == (CHECKSUMMED, "5", "0x", None)
    assert shown["fees"] == {"speed": "fast"}
    [first] = shown["earlier"]
    assert (first["version"], first["value"], first["data"], first["gas"]) == (1, "1000", "0x01", 50_000)


async def test_replacing_is_bounded(service: Running) -> None:
    _, tx, _ = await service.post(BODY)
    for n in range(50):
        assert (await wish(service, tx["id"], "replace", {"to": OTHER, "value": n}))[0] == 202
    status, problem, _ = await wish(service, tx["id"], "replace", {"to": OTHER, "value": 50})
    assert (status, problem["code"]) == (409, "too_many_replacements")
    assert (await wish(service, tx["id"], "cancel"))[0] == 202


async def test_the_price_of_a_queued_transaction_changes(service: Running) -> None:
    _, tx, _ = await service.post(BODY)
    fees = {"max_fee_per_gas": str(50 * GWEI), "max_priority_fee_per_gas": "1"}
    assert (await wish(service, tx["id"], "bump", {"fees": fees}))[1]["fees"] == fees
    assert (await wish(service, tx["id"], "bump"))[1]["fees"] == fees


@pytest.mark.parametrize(
    ("verb", "body", "code", "field"),
    [
        ("cancel", {"x": 1}, "bad_request", "x"),
        ("release", {"reason": "x"}, "bad_request", "reason"),
        ("release", {"mark": 5}, "bad_request", "mark"),
        ("hold", {"reason": "x" * 501}, "bad_request", "reason"),
        ("hold", {"reason": ["x"]}, "bad_request", "reason"),
        ("bump", {"speed": "fast"}, "bad_request", "speed"),
        ("bump", {"fees": {"speed": "warp"}}, "bad_request", "fees.speed"),
        ("bump", {"fees": {"gas_price": 101 * GWEI}}, "fee_above_cap", "fees.gas_price"),
        ("replace", {}, "bad_request", "to"),
        ("replace", {"to": "0x12"}, "bad_request", "to"),
        ("replace", {"to": OTHER, "value": -1}, "bad_request", "value"),
        ("replace", {"to": OTHER, "priority": 9}, "bad_request", "priority"),
        ("replace", {"to": OTHER, "fees": {"gas_price": 101 * GWEI}}, "fee_above_cap", "fees.gas_price"),
    ],
)
async def test_a_bad_wish_names_the_field_and_changes_nothing(
    service: Running, verb: str, body: object, code: str, field: str
) -> None:
    _, tx, _ = await service.post(BODY)
    status, problem, _ = await service.call("POST", f"/v1/transactions/{tx['id']}/{verb}", json=body)
    assert (status, problem["code"], problem["field"]) == (400, code, field)
    assert (await service.get(f"/v1/transactions/{tx['id']}"))[1]["version"] == tx["version"]


@pytest.mark.parametrize("verb", VERBS)
async def test_a_wish_about_nothing_is_not_found(service: Running, verb: str) -> None:
    body = {"to": OTHER} if verb == "replace" else None
    assert (await wish(service, "tx_nope", verb, body))[1]["code"] == "not_found"
    assert (await service.get(f"/v1/transactions/tx_nope/{verb}"))[1]["code"] == "method_not_allowed"
    assert (await wish(service, "tx_nope", verb, body, params={"x": "1"}))[1]["code"] == "bad_request"


async def test_no_web_page_can_wish(service: Running) -> None:
    """A page may post without a body to any host; its browser then names the page's origin."""
    _, tx, _ = await service.post(BODY)
    for headers in (
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "x", "Content-Type": "text/plain"},
    ):
        status, problem, _ = await wish(service, tx["id"], "cancel", headers=headers)
        assert (status, problem["code"]) == (415, "unsupported_media_type")
    status, problem, _ = await wish(service, tx["id"], "cancel", data=b"{}", headers={"Content-Type": "text/plain"})
    assert (status, problem["code"]) == (415, "unsupported_media_type")
    assert (await service.get(f"/v1/transactions/{tx['id']}"))[1]["state"] == "queued"
    own = {"Origin": service.url, "Content-Type": "application/json"}
    assert (await wish(service, tx["id"], "cancel", data=b"", headers=own))[0] == 202


# --- what the chain holds ---


async def sent(service: Running, **changes: object) -> dict[str, Any]:
    _, tx, _ = await service.post({**BODY, **changes})
    return await until(service, tx["id"], lambda shown: shown["state"] == "sent" and shown["attempts"][0]["sent_at"])


async def until(service: Running, tx_id: str, holds: Any) -> dict[str, Any]:
    async with asyncio.timeout(60):
        _, shown, _ = await service.get(f"/v1/transactions/{tx_id}")
        while not holds(shown):
            _, shown, _ = await service.get(f"/v1/transactions/{tx_id}?wait=1&after={shown['version']}")
    return shown


async def end(service: Running, chain: Anvil, tx_id: str) -> dict[str, Any]:
    async with asyncio.timeout(60):
        while (await service.get(f"/v1/transactions/{tx_id}"))[1]["outcome"] is None:
            await chain.mine()
            await asyncio.sleep(0.1)
    return (await service.get(f"/v1/transactions/{tx_id}"))[1]


async def test_a_sent_transaction_is_cancelled_by_what_does_nothing(live: Running, chain: Anvil) -> None:
    tx = await sent(live)
    before = int(await chain.rpc("eth_getBalance", OTHER, "latest"), 16)
    assert (await wish(live, tx["id"], "cancel"))[0] == 202
    shown = await until(live, tx["id"], lambda shown: len(shown["attempts"]) == 2 and shown["attempts"][1]["sent_at"])
    assert [(one["kind"], one["payload_version"]) for one in shown["attempts"]] == [("original", 1), ("cancel", 0)]
    status, problem, _ = await wish(live, tx["id"], "replace", {"to": OTHER})
    assert (status, problem["code"]) == (409, "already_cancelled")
    ended = await end(live, chain, tx["id"])
    assert (ended["state"], ended["nonce"]) == ("cancelled", tx["nonce"])
    assert ended["outcome"] == {"ran": "cancel", "payload_version": None, "hash": ended["attempts"][1]["hash"]}
    assert int(await chain.rpc("eth_getBalance", OTHER, "latest"), 16) == before


async def test_a_sent_transaction_is_replaced_at_its_nonce(live: Running, chain: Anvil) -> None:
    tx = await sent(live)
    status, shown, _ = await wish(live, tx["id"], "replace", {"to": OTHER, "value": "7"})
    assert (status, shown["value"], shown["nonce"], shown["payload_version"]) == (202, "7", tx["nonce"], 2)
    assert [(one["kind"], one["payload_version"]) for one in shown["attempts"]] == [("original", 1), ("replacement", 2)]
    ended = await end(live, chain, tx["id"])
    assert ended["state"] == "confirmed"
    assert ended["outcome"] == {"ran": "payload", "payload_version": 2, "hash": ended["hash"]}
    assert [one["value"] for one in ended["earlier"]] == ["1000"]


async def test_a_bump_offers_more_and_too_little_is_refused_with_what_is_needed(live: Running, chain: Anvil) -> None:
    tx = await sent(live)
    status, shown, _ = await wish(live, tx["id"], "bump")
    assert (status, [one["kind"] for one in shown["attempts"]]) == (202, ["original", "bump"])
    first, second = (int(one["fees"]["max_fee_per_gas"]) for one in shown["attempts"])
    assert second * 10 >= first * 11
    few = {"max_fee_per_gas": str(second + 1), "max_priority_fee_per_gas": "1"}
    status, problem, _ = await wish(live, tx["id"], "bump", {"fees": few})
    assert (status, problem["code"]) == (409, "underpriced")
    assert str(-(-second * 11 // 10)) in problem["detail"]
    status, problem, _ = await wish(live, tx["id"], "bump", {"fees": {"gas_price": str(90 * GWEI)}})
    assert (status, problem["code"]) == (409, "wrong_fee_type")
    status, problem, _ = await wish(live, tx["id"], "hold")
    assert (status, problem["code"]) == (409, "too_late")
    assert (await end(live, chain, tx["id"]))["state"] == "confirmed"


async def test_a_replacement_that_would_revert_is_refused_and_the_first_payload_goes_on(
    live: Running, chain: Anvil
) -> None:
    always_reverts = "0x" + "12" * 20
    await chain.set_code(always_reverts, bytes.fromhex("60006000fd"))
    tx = await sent(live)
    status, problem, _ = await wish(live, tx["id"], "replace", {"to": always_reverts})
    assert (status, problem["code"]) == (409, "would_revert")
    ended = await end(live, chain, tx["id"])
    assert (ended["state"], ended["payload_version"], ended["value"]) == ("confirmed", 1, "1000")


async def test_what_is_sent_expires_by_what_does_nothing(live: Running, chain: Anvil) -> None:
    tx = await sent(live, valid_until=live.node._clock.now() // 1000 + 2)
    await until(live, tx["id"], lambda shown: len(shown["attempts"]) == 2 and shown["attempts"][1]["sent_at"])
    ended = await end(live, chain, tx["id"])
    assert ended["state"] == "expired"
    assert ended["outcome"]["ran"] == "expiry"
