"""Steering a lane over REST, and nonces for those who sign by themselves, on a real chain."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from eth_account import Account

from tests import anvil
from tests.anvil import Anvil
from tests.service.conftest import OTHER, SENDER, Running

LANE = f"/v1/lanes/31337/{SENDER}"
BODY = {"chain_id": 31337, "from": SENDER, "to": OTHER, "value": "1000"}
TOOLS = ("pause", "drain", "resume", "sync", "fill", "reset", "cancel", "reservations")
GWEI = 10**9


async def ask(service: Running, tool: str, body: object = None, **options: Any) -> tuple[int, Any]:
    status, answer, _ = await service.call(
        "POST", f"{LANE}/{tool}", **({} if body is None else {"json": body}), **options
    )
    return status, answer


async def shown(service: Running, tx_id: str) -> dict[str, Any]:
    return (await service.get(f"/v1/transactions/{tx_id}"))[1]


# --- how it is run: no chain is needed for that ---


async def test_a_lane_is_paused_and_resumed_with_a_reason(service: Running) -> None:
    status, lane = await ask(service, "pause", {"reason": "key rotation"})
    assert (status, lane["control"]["mode"], lane["control"]["reason"]) == (200, "paused", "key rotation")
    assert lane["control"]["since"] is not None
    assert (await service.get(LANE))[1]["control"] == lane["control"]
    assert (await service.post(BODY))[0] == 202  # a paused lane takes requests
    status, lane = await ask(service, "resume")
    assert (status, lane["control"]["mode"]) == (200, "open")


async def test_what_a_lane_told_of_itself_is_read_newest_first(service: Running) -> None:
    for tool in ("pause", "resume", "drain"):
        await ask(service, tool, {"reason": f"to {tool}"})
    status, page, _ = await service.get(f"{LANE}/events?limit=2")
    assert status == 200
    assert [event["data"]["reason"] for event in page["events"]] == ["to drain", "to resume"]
    _, rest, _ = await service.get(f"{LANE}/events?cursor={page['next_cursor']}")
    assert "to pause" in [event["data"].get("reason") for event in rest["events"]]
    assert rest["next_cursor"] is None
    assert (await service.get(f"{LANE}/events?limit=0"))[0] == 400
    assert (await service.get(f"/v1/lanes/31337/{OTHER}/events"))[0] == 404


async def test_a_draining_lane_takes_no_requests_but_answers_known_keys(service: Running) -> None:
    _, first, _ = await service.post(BODY, headers={"Idempotency-Key": "k"})
    await ask(service, "drain")
    status, problem, _ = await service.post(BODY)
    assert (status, problem["code"]) == (409, "lane_draining")
    status, again, _ = await service.post(BODY, headers={"Idempotency-Key": "k"})
    assert (status, again["id"]) == (202, first["id"])
    await ask(service, "resume")
    assert (await service.post(BODY))[0] == 202


async def test_all_that_is_queued_is_cancelled_at_once(service: Running) -> None:
    ids = [(await service.post({**BODY, "value": n}))[1]["id"] for n in range(5)]
    await service.call("POST", f"/v1/transactions/{ids[0]}/hold")
    assert await ask(service, "cancel") == (202, {"asked": 5})
    assert {(await shown(service, tx_id))["state"] for tx_id in ids} == {"cancelled"}
    assert await ask(service, "cancel") == (202, {"asked": 0})


async def test_what_is_queued_says_that_its_chain_is_not_seen(service: Running) -> None:
    _, tx, _ = await service.post(BODY)
    assert (await shown(service, tx["id"]))["waiting"].startswith("Its chain cannot be followed")
    await ask(service, "pause", {"reason": "x"})
    _, page, _ = await service.get("/v1/transactions")
    assert page["transactions"][0]["waiting"].startswith("Its chain cannot be followed")


@pytest.mark.parametrize("tool", [*TOOLS, "reservations/5/used", "reservations/5/release"])
async def test_a_lane_that_is_not_there_is_not_found(service: Running, tool: str) -> None:
    for path, status in ((f"31337/{OTHER}", 404), (f"1/{SENDER}", 404), ("x/0x12", 400)):
        answer = await service.call("POST", f"/v1/lanes/{path}/{tool}", json={})
        assert answer[0] == status
    assert (await service.get(f"{LANE}/{tool}"))[0] == 405


@pytest.mark.parametrize(
    ("tool", "body", "field"),
    [
        ("pause", {"why": "x"}, "why"),
        ("drain", {"reason": "a\nb"}, "reason"),
        ("sync", {"x": 1}, "x"),
        ("cancel", {"x": 1}, "x"),
        ("fill", {"nonce": "x"}, "nonce"),
        ("reset", {"force": "yes"}, "force"),
        ("reservations", {"seconds": 601}, "seconds"),
        ("reservations/5/used", {"hash": "0x12"}, "holder"),
        ("reservations/5/release", {}, "holder"),
        ("reservations/x/release", {"holder": "0" * 32}, "nonce"),
        (f"reservations/{2**63}/release", {"holder": "0" * 32}, "nonce"),
    ],
)
async def test_a_bad_word_names_the_field(service: Running, tool: str, body: object, field: str) -> None:
    status, problem = await ask(service, tool, body)
    assert (status, problem["code"], problem["field"]) == (400, "bad_request", field)


async def test_no_web_page_can_steer(service: Running) -> None:
    for tool in TOOLS:
        status, problem = await ask(service, tool, headers={"Origin": "https://evil.example"})
        assert (status, problem["code"]) == (415, "unsupported_media_type")


# --- the tools ---


async def until(service: Running, tx_id: str, holds: str | Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The transaction once it is in this state, or as described."""
    async with asyncio.timeout(60):
        found = await shown(service, tx_id)
        while not (found["state"] == holds if isinstance(holds, str) else holds(found)):
            _, found, _ = await service.get(f"/v1/transactions/{tx_id}?wait=1&after={found['version']}")
    return found


async def mine_until(service: Running, chain: Anvil, tx_id: str, state: str) -> None:
    async with asyncio.timeout(60):
        while (await shown(service, tx_id))["state"] != state:
            await chain.mine()
            await asyncio.sleep(0.1)


async def test_a_pause_keeps_back_what_is_queued_and_lets_go_on_what_is_sent(live: Running, chain: Anvil) -> None:
    _, first, _ = await live.post(BODY)
    await until(live, first["id"], "sent")
    await ask(live, "pause", {"reason": "look"})
    _, second, _ = await live.post({**BODY, "value": 2})
    await mine_until(live, chain, first["id"], "confirmed")
    waiting = await shown(live, second["id"])
    assert (waiting["state"], waiting["nonce"]) == ("queued", None)
    assert waiting["waiting"] == "Its lane is paused (look); it gets a nonce once that is resumed."
    await ask(live, "resume")
    await until(live, second["id"], "sent")


async def test_a_lane_tells_what_its_chain_says(live: Running) -> None:
    status, found = await ask(live, "sync")
    assert status == 200
    assert (found["count"], found["next_nonce"], found["live"], found["holes"]) == (0, 0, 0, [])
    _, tx, _ = await live.post(BODY)
    await until(live, tx["id"], "sent")
    _, found = await ask(live, "sync")
    assert (found["next_nonce"], found["live"], found["executed"]) == (1, 1, 0)


async def test_what_is_no_hole_is_not_filled(live: Running) -> None:
    assert await ask(live, "fill") == (200, {"filled": [], "left": 0})
    status, problem = await ask(live, "fill", {"nonce": 7})
    assert (status, problem["code"]) == (409, "not_a_hole")


async def test_a_reset_is_refused_while_something_lives_and_says_what(live: Running) -> None:
    _, tx, _ = await live.post(BODY)
    sent = await until(live, tx["id"], "sent")
    status, problem = await ask(live, "reset")
    assert (status, problem["code"]) == (409, "attempts_live")
    assert problem["data"]["count"] == 1
    kept = {"nonce": 0, "kind": "transaction", "tx": tx["id"], "hash": sent["hash"]}
    assert problem["data"]["live"] == [kept]
    status, done = await ask(live, "reset", {"force": True})
    assert (status, done["next_nonce"], done["kept"], done["recalled"]) == (200, 1, [kept], [])
    assert (await live.get(LANE))[1]["health"]["resets"] == 1
    assert (await shown(live, tx["id"]))["attention"]["code"] == "reset"


async def test_all_that_is_live_is_cancelled(live: Running, chain: Anvil) -> None:
    ids = [(await live.post({**BODY, "value": n}))[1]["id"] for n in range(3)]
    for tx_id in ids:
        await until(live, tx_id, "sent")
    assert await ask(live, "cancel") == (202, {"asked": 3})
    for tx_id in ids:
        await until(live, tx_id, lambda found: len(found["attempts"]) == 2)
    first, *_, last = [await shown(live, tx_id) for tx_id in ids]
    assert (first["wanted"], last["wanted"]) == ("cancel", "cancel")
    assert last["waiting"] == f"It is being cancelled: nonce 2 waits for nonce 0 of transaction {ids[0]}."
    for tx_id in ids:
        await mine_until(live, chain, tx_id, "cancelled")


# --- nonces for others ---


def signed(nonce: int, **changes: object) -> tuple[str, str]:
    """By somebody else, with the same key: the hash and the bytes."""
    fields = {
        "nonce": nonce, "to": "0x" + "77" * 20, "value": 5, "gas": 21_000, "chainId": 31337, "type": 2,
        "maxFeePerGas": 5 * GWEI, "maxPriorityFeePerGas": GWEI,
    } | changes  # fmt: skip
    done = Account.sign_transaction(fields, anvil.KEYS[0])
    return "0x" + bytes(done.hash).hex(), "0x" + bytes(done.raw_transaction).hex()


async def test_a_reserved_nonce_is_used_and_sent_by_us(live: Running, chain: Anvil) -> None:
    status, reserved = await ask(live, "reservations", {"seconds": 60})
    assert (status, reserved["nonce"]) == (201, 0)
    lane = (await live.get(LANE))[1]
    assert lane["reservations"] == [{"nonce": 0, "expires_at": reserved["expires_at"], "hash": None}]
    assert reserved["holder"] not in str(lane)
    _, behind, _ = await live.post(BODY)
    waiting = await until(live, behind["id"], "sent")
    assert waiting["waiting"] == "Nonce 1 waits for nonce 0 which is reserved for somebody else."
    hash, raw = signed(0)
    said = {"holder": reserved["holder"], "hash": hash, "raw": raw}
    assert await ask(live, "reservations/0/used", said) == (200, {"nonce": 0, "hash": hash})
    assert await ask(live, "reservations/0/used", said) == (200, {"nonce": 0, "hash": hash})
    await mine_until(live, chain, behind["id"], "confirmed")
    assert await chain.rpc("eth_getTransactionReceipt", hash) is not None


async def test_only_the_holder_speaks_for_a_nonce(live: Running) -> None:
    _, reserved = await ask(live, "reservations")
    stranger = {"holder": "0" * 32}
    hash, raw = signed(0)
    for word, body in (("release", stranger), ("used", {**stranger, "hash": hash, "raw": raw})):
        status, problem = await ask(live, f"reservations/0/{word}", body)
        assert (status, problem["code"]) == (409, "not_the_holder")
    own = {"holder": reserved["holder"]}
    wrong_hash, wrong = signed(5)
    status, problem = await ask(live, "reservations/0/used", {**own, "hash": wrong_hash, "raw": wrong})
    assert (status, problem["code"]) == (409, "wrong_bytes")
    status, problem = await ask(live, "reservations/0/used", {**own, "hash": hash, "raw": "0x1234"})
    assert (status, problem["code"]) == (409, "cannot_be_sent")
    assert await ask(live, "reservations/0/release", own) == (200, {"nonce": 0, "next_nonce": 0})
    status, problem = await ask(live, "reservations/0/release", own)
    assert (status, problem["code"]) == (409, "not_reserved")


async def test_a_paused_lane_reserves_nothing(live: Running) -> None:
    await ask(live, "pause")
    status, problem = await ask(live, "reservations")
    assert (status, problem["code"]) == (409, "lane_paused")
