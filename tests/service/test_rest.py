"""The REST interface, over real HTTP."""

import asyncio
import io
import json
import re
import socket
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nonchalant.config import Listen
from nonchalant.errors import BadSettings
from nonchalant.service.server import bind
from tests.service.conftest import CHECKSUMMED, OTHER, SENDER, SETTINGS, Running, running

BODY = {"chain_id": 31337, "from": SENDER, "to": OTHER, "value": "1000"}


def kept(shown: dict[str, object]) -> dict[str, object]:
    """Without the sentence, which also tells of others."""
    return {name: value for name, value in shown.items() if name != "waiting"}


async def test_a_transaction_is_accepted_and_found_again(service: Running) -> None:
    status, accepted, headers = await service.post(
        {
            **BODY,
            "data": "0xAB",
            "metadata": {"invoice": 42},
            "priority": 7,
            "simulate": True,
            "abi": [{"type": "error", "name": "Closed"}],
        },
        headers={"Idempotency-Key": "one"},
    )
    assert status == 202
    assert headers["Location"] == f"/v1/transactions/{accepted['id']}"
    assert headers["Content-Type"] == "application/json"
    assert accepted["state"] == "queued"
    assert (accepted["from"], accepted["value"], accepted["data"]) == (CHECKSUMMED, "1000", "0xab")
    assert (accepted["metadata"], accepted["priority"], accepted["simulate"]) == ({"invoice": 42}, 7, True)
    assert (accepted["fees"], accepted["idempotency_key"]) == ({"speed": "standard"}, "one")
    assert (accepted["nonce"], accepted["hash"], accepted["attempts"], accepted["receipt"]) == (None, None, [], None)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", accepted["created_at"])
    status, found, _ = await service.get(f"/v1/transactions/{accepted['id']}")
    assert (status, kept(found)) == (200, kept(accepted))


async def test_a_repeated_key_answers_the_same_transaction(service: Running) -> None:
    _, first, headers = await service.post(BODY, headers={"Idempotency-Key": "k"})
    assert "Idempotency-Replayed" not in headers
    status, second, headers = await service.post({**BODY, "value": "0x3e8"}, headers={"Idempotency-Key": "k"})
    assert (status, kept(second)) == (202, kept(first))
    assert headers["Idempotency-Replayed"] == "true"
    assert len((await service.get("/v1/transactions"))[1]["transactions"]) == 1


async def test_a_key_reused_for_another_request_is_refused(service: Running) -> None:
    await service.post(BODY, headers={"Idempotency-Key": "k"})
    status, problem, headers = await service.post({**BODY, "value": 1}, headers={"Idempotency-Key": "k"})
    assert (status, problem["code"], problem["status"]) == (422, "idempotency_key_reused", 422)
    assert headers["Content-Type"] == "application/problem+json"


async def test_a_key_whose_transaction_was_removed_answers_410_with_its_id(service: Running) -> None:
    _, sent, _ = await service.post(BODY, headers={"Idempotency-Key": "k"})
    await service.node.asking.cancel(sent["id"])
    while await service.node.store.transaction(sent["id"]) is not None:
        await service.node.store.forget_settled(older_than=0, limit=9)
    assert (await service.get(f"/v1/transactions/{sent['id']}"))[0] == 404
    status, problem, _ = await service.post(BODY, headers={"Idempotency-Key": "k"})
    assert (status, problem["code"], problem["tx"]) == (410, "transaction_removed", sent["id"])
    status, problem, _ = await service.post({**BODY, "value": 1}, headers={"Idempotency-Key": "k"})
    assert (status, problem["code"]) == (422, "idempotency_key_reused")
    assert (await service.get("/v1/transactions"))[1]["transactions"] == []


async def test_a_full_queue_says_when_to_come_back(tmp_path: Path) -> None:
    async with running(tmp_path, SETTINGS.replace("queue_limit = 3000", "queue_limit = 1")) as service:
        assert (await service.post(BODY))[0] == 202
        status, problem, headers = await service.post(BODY)
    assert (status, problem["code"]) == (429, "queue_full")
    assert int(headers["Retry-After"]) > 0


@pytest.mark.parametrize(
    ("changes", "code", "field"),
    [
        ({"to": "0x12"}, "bad_request", "to"),
        ({"chain_id": 5}, "unknown_chain", "chain_id"),
        ({"from": OTHER}, "unknown_account", "from"),
        ({"data": "0xz"}, "bad_request", "data"),
        ({"value": str(2**256)}, "bad_request", "value"),
        ({"fees": {"gas_price": 10**12}}, "fee_above_cap", "fees.gas_price"),
        (
            {"abi": [{"type": "error", "name": "A", "inputs": [{"type": "int7"}]}]},
            "bad_request",
            "abi[0].inputs[0].type",
        ),
        ({"simulate": "yes"}, "bad_request", "simulate"),
        ({"valid_until": 5}, "bad_request", "valid_until"),
    ],
)
async def test_a_bad_request_names_the_field(
    service: Running, changes: dict[str, object], code: str, field: str
) -> None:
    status, problem, headers = await service.post({**BODY, **changes})
    assert (status, problem["code"], problem["field"]) == (400, code, field)
    assert problem["type"] == f"urn:nonchalant:problem:{code}"
    assert problem["detail"].startswith(f"{field}: ")
    assert headers["Content-Type"] == "application/problem+json"
    assert (await service.get("/v1/transactions"))[1]["transactions"] == []


@pytest.mark.parametrize("media_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
async def test_only_json_is_taken_so_that_no_web_page_can_send(service: Running, media_type: str) -> None:
    status, problem, _ = await service.post(
        data=json.dumps(BODY).encode(), json=None, headers={"Content-Type": media_type}
    )
    assert (status, problem["code"]) == (415, "unsupported_media_type")


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8645", "127.0.0.1.evil.example"])
async def test_a_foreign_host_name_is_refused_so_that_no_web_page_can_read(service: Running, host: str) -> None:
    status, problem, _ = await service.get("/v1/transactions", headers={"Host": host})
    assert (status, problem["code"]) == (421, "wrong_host")
    for own in ("localhost", "localhost:1", "127.0.0.1", "[::1]:8645"):
        assert (await service.get("/livez", headers={"Host": own}))[0] == 200


async def test_a_large_body_is_refused_however_it_comes(service: Running) -> None:
    async def trickle():
        for _ in range(20):
            yield b" " * 100_000

    for data in (io.BytesIO(b" " * (1024 * 1024 + 1)), trickle()):
        status, problem, _ = await service.post(data=data, json=None, headers={"Content-Type": "application/json"})
        assert (status, problem["code"]) == (413, "too_large")


async def test_a_key_given_twice_is_refused(service: Running) -> None:
    headers = [("Idempotency-Key", "a"), ("Idempotency-Key", "b")]
    status, problem, _ = await service.post(BODY, headers=headers)
    assert (status, problem["field"]) == (400, "Idempotency-Key")


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/", 404, "not_found"),
        ("GET", "/v1/transactions/", 404, "not_found"),
        ("GET", "/v1/transactions/nope", 404, "not_found"),
        ("GET", "/v1/transactions/nope/events", 404, "not_found"),
        ("GET", "/v1/transactions/%00%ff", 404, "not_found"),
        ("GET", "/v1/transactions/a%2Fcancel", 404, "not_found"),
        ("GET", "/v1%2Ftransactions", 404, "not_found"),
        ("GET", "/v1/transactions/a/cancel", 405, "method_not_allowed"),
        ("POST", "/v1/transactions/a/cancelled", 404, "not_found"),
        ("POST", "/v1/transactions/a", 405, "method_not_allowed"),
        ("DELETE", "/v1/transactions", 405, "method_not_allowed"),
        ("OPTIONS", "/v1/transactions", 405, "method_not_allowed"),
        ("POST", "/openapi.json", 405, "method_not_allowed"),
        ("GET", "/v1/transactions?sort=up", 400, "bad_request"),
        ("GET", "/v1/transactions?limit=1&limit=2", 400, "bad_request"),
        ("GET", "/v1/transactions?limit=0", 400, "bad_request"),
        ("GET", "/v1/transactions?" + "&".join(f"a{i}=1" for i in range(60)), 400, "bad_request"),
        ("GET", "/v1/transactions/a?wait=61", 400, "bad_request"),
        ("GET", "/v1/transactions/a?wait=nan", 400, "bad_request"),
        ("GET", "/v1/transactions/a?wait=1_0", 400, "bad_request"),
        ("GET", "/v1/transactions/a?wait=1&wait=2", 400, "bad_request"),
        ("GET", "/v1/transactions/a?after=x", 400, "bad_request"),
        ("GET", "/v1/lanes?x=1", 400, "bad_request"),
        ("GET", "/v1/lanes/main/0x12", 400, "bad_request"),
        ("GET", f"/v1/lanes/31337/{OTHER}", 404, "not_found"),
        ("POST", "/v1/transactions?x=1", 400, "bad_request"),
        ("GET", "/livez?x=1", 400, "bad_request"),
    ],
)
async def test_what_is_not_there_is_a_problem(service: Running, method: str, path: str, status: int, code: str) -> None:
    answer = await service.call(method, path)
    assert (answer[0], answer[1]["code"]) == (status, code)
    if status == 405:
        assert answer[2]["Allow"]


async def test_a_listing_goes_on_where_the_page_ended(service: Running) -> None:
    ids = [(await service.post({**BODY, "value": n}))[1]["id"] for n in range(5)]
    seen, cursor = [], ""
    while cursor is not None:
        _, page, _ = await service.get(f"/v1/transactions?limit=2{f'&cursor={cursor}' if cursor else ''}")
        seen += [tx["id"] for tx in page["transactions"]]
        cursor = page["next_cursor"]
    assert seen == ids[::-1]


async def test_a_listing_is_filtered(service: Running) -> None:
    _, tx, _ = await service.post(BODY, headers={"Idempotency-Key": "k"})
    for query, found in (
        ("state=queued", 1), ("state=mined", 0), ("chain_id=31337", 1), ("chain_id=1", 0), (f"from={CHECKSUMMED}", 1),
        (f"from={OTHER}", 0), ("nonce=0", 0), ("idempotency_key=k", 1), ("idempotency_key=l", 0), ("hash=0x" + "00" * 32, 0),
    ):  # fmt: skip
        _, page, _ = await service.get(f"/v1/transactions?{query}")
        assert [shown["id"] for shown in page["transactions"]] == [tx["id"]] * found, query


async def test_a_history_begins_with_acceptance(service: Running) -> None:
    _, tx, _ = await service.post(BODY)
    status, history, _ = await service.get(f"/v1/transactions/{tx['id']}/events")
    assert status == 200
    first = history["events"][0]
    assert (first["kind"], first["tx"]) == ("tx.accepted", tx["id"])
    assert first["lane"] == {"chain_id": 31337, "address": CHECKSUMMED}


async def test_lanes_are_shown(service: Running) -> None:
    await service.post(BODY)
    _, lanes, _ = await service.get("/v1/lanes")
    (listed,) = lanes["lanes"]
    status, alone, _ = await service.get(f"/v1/lanes/31337/{SENDER}")
    assert status == 200
    for lane in (listed, alone):
        assert (lane["address"], lane["window"], lane["transactions"]) == (CHECKSUMMED, 16, {"queued": 1})
    # The engine works meanwhile: it may take the lane, renew its lease or load it between the two calls.
    moving = {"lease", "in_flight", "attention"}
    assert {name: listed[name] for name in listed.keys() - moving} == {
        name: alone[name] for name in alone.keys() - moving
    }


async def test_probes_tell_alive_from_ready(service: Running) -> None:
    assert (await service.get("/livez"))[:2] == (200, {"status": "alive"})
    assert (await service.get("/readyz"))[:2] == (200, {"status": "ready"})
    await service.node.engine.stop()
    status, problem, headers = await service.get("/readyz")
    assert (status, problem["code"]) == (503, "not_ready")
    assert headers["Retry-After"]
    assert (await service.get("/livez"))[0] == 200


def test_the_socket_is_known_as_tcp_so_that_no_answer_is_delayed() -> None:
    with bind(Listen("127.0.0.1", 0)) as listening:
        assert listening.proto == socket.IPPROTO_TCP


def test_an_address_in_use_is_told_with_the_remedy() -> None:
    with bind(Listen("127.0.0.1", 0)) as listening, pytest.raises(BadSettings, match="choose another port"):
        bind(Listen("127.0.0.1", listening.getsockname()[1]))
    with pytest.raises(BadSettings, match="cannot listen"):
        bind(Listen("192.0.2.1", 1))


async def test_head_is_get_without_its_body(service: Running) -> None:
    status, body, _ = await service.call("HEAD", "/livez")
    assert (status, body) == (200, None)


async def test_waiting_answers_when_the_time_is_over(service: Running) -> None:
    _, tx, _ = await service.post(BODY)
    status, shown, _ = await service.get(f"/v1/transactions/{tx['id']}?wait=0.2")
    assert (status, shown["state"]) == (200, "queued")
    status, shown, _ = await service.get(f"/v1/transactions/{tx['id']}?wait=60&after={tx['version'] - 1}")
    assert (status, kept(shown)) == (200, kept(tx))


async def test_stopping_answers_those_who_wait(service: Running) -> None:
    _, tx, _ = await service.post(BODY)
    waiting = asyncio.create_task(service.get(f"/v1/transactions/{tx['id']}?wait=60"))
    await asyncio.sleep(0.1)
    service.stop.set()
    assert (await asyncio.wait_for(waiting, 30))[0] == 200
    await asyncio.wait_for(service.serving, 30)


@pytest.mark.parametrize(
    "raw",
    [
        b"GARBAGE\r\n\r\n",
        b"GET /v1/transactions/\xff\xfe HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /%zz HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET http://evil.example/livez HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"POST /v1/transactions HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
        b"POST /v1/transactions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999999999999\r\n\r\n",
        b"POST /v1/transactions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Type: application/json\r\n\r\n{",
        b"GET /livez HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nHost: \xff\r\n\r\n",
        b"GET /livez HTTP/1.1\r\n\r\n",
        b"GET /v1/transactions?%ff=%ff&\xff HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
)
async def test_odd_http_never_breaks_the_service(service: Running, raw: bytes) -> None:
    port = int(service.url.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(raw)
    writer.write_eof()
    answer = await asyncio.wait_for(reader.read(), 5)
    writer.close()
    assert not answer.startswith(b"HTTP/1.1 5"), answer
    assert (await service.get("/livez"))[0] == 200


async def test_an_unexpected_error_is_answered_and_logged_not_told(service: Running) -> None:
    async def broken(request):
        raise ZeroDivisionError("the secret is 42")

    service.node.submit = broken
    status, problem, _ = await service.post(BODY)
    assert (status, problem["code"]) == (500, "internal")
    assert "42" not in json.dumps(problem)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=70) | st.just(OTHER),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=8,
)
fields = st.sampled_from(
    [
        *(*BODY, "data", "gas", "access_list", "fees", "priority", "metadata", "nonce"),
        *("valid_until", "confirmations", "on_superseded", "abi", "simulate", "reason"),
    ]
)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
async def test_no_input_is_answered_with_5xx(service: Running, data: st.DataObject) -> None:
    body = data.draw(
        st.dictionaries(fields, json_values, max_size=4).map(lambda changes: {**BODY, **changes}) | json_values
    )
    raw = data.draw(st.just(json.dumps(body).encode()) | st.binary(max_size=200))
    key = data.draw(st.none() | st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=300))
    headers = {"Content-Type": "application/json"} | ({} if key is None else {"Idempotency-Key": key})
    status, answer, _ = await service.post(data=raw, json=None, headers=headers)
    assert status in (202, 400, 422), answer
    verb = data.draw(st.sampled_from(["cancel", "bump", "replace", "hold", "release"]))
    target = answer["id"] if status == 202 else "tx_nope"
    wish = data.draw(st.dictionaries(fields, json_values, max_size=4) | json_values)
    status, answer, _ = await service.call("POST", f"/v1/transactions/{target}/{verb}", json=wish)
    assert status in (202, 400, 404, 409), answer
    control = data.draw(st.sampled_from(["pause", "drain", "resume"]))
    status, answer, _ = await service.call("POST", f"/v1/lanes/31337/{SENDER}/{control}", json=wish)
    assert status in (200, 400), answer
    await service.call("POST", f"/v1/lanes/31337/{SENDER}/resume")
    query = data.draw(
        st.dictionaries(st.sampled_from(["state", "nonce", "cursor", "limit", "wait"]), st.text(max_size=30))
    )
    status, answer, _ = await service.call("GET", "/v1/transactions", params=query)
    assert status in (200, 400), answer
    part = data.draw(st.text(min_size=1, max_size=50))
    for path in (f"/v1/transactions/{part}", f"/v1/transactions/{part}/events", f"/v1/lanes/31337/{part}", f"/{part}"):
        status, answer, _ = await service.call("GET", path)
        assert status in (200, 400, 404, 405), answer
