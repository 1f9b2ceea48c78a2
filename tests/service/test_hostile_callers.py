"""Callers that mean harm: none of them takes the service, or what is not his, from the others."""

from __future__ import annotations

import asyncio
import socket
import time
from pathlib import Path

import pytest

from nonchalant.access import Scope
from nonchalant.chain.evm import messages
from nonchalant.service import http
from nonchalant.service.asgi import Limits
from nonchalant.service.rpc import envelope, passing
from nonchalant.service.rpc.failures import RpcError
from tests.service.conftest import SENDER, SETTINGS, Running, running
from tests.service.keyed import WITH_KEYS, a_holder, keyed

PAY = {"chain_id": 31337, "from": SENDER, "to": SENDER, "value": "1"}


def test_text_that_never_ends_is_looked_at_once() -> None:
    body = b'"' + b'\\"' * 500_000 + b"[" * 65
    began = time.perf_counter()
    with pytest.raises(RpcError):
        envelope.read(body)
    assert time.perf_counter() - began < 1


@pytest.mark.parametrize("deep", [64, 65])
def test_depth_counts_outside_of_text(deep: int) -> None:
    body = (
        b'{"jsonrpc":"2.0","id":1,"method":"m","params":'
        + b"[" * (deep - 1)
        + b'"[{\\"[['
        + b"[" * 70
        + b'"'
        + b"]" * (deep - 1)
        + b"}"
    )
    if deep == 64:
        envelope.read(body)
    else:
        with pytest.raises(RpcError, match="deeper"):
            envelope.read(body)


def test_typed_data_whose_types_are_hashed_again_and_again_is_refused() -> None:
    document = {
        "types": {
            "EIP712Domain": [{"name": "name", "type": "string"}],
            "M": [{"name": "s", "type": "S[]"}],
            "S": [{"name": "b", "type": "B"}],
            "B": [{"name": f"a{n}", "type": "bool"} for n in range(2_000)],
        },
        "primaryType": "M",
        "domain": {"name": "x"},
        "message": {"s": [{}] * 2_000},
    }
    began = time.perf_counter()
    with pytest.raises(ValueError, match="too"):
        messages.typed_digest(document)
    assert time.perf_counter() - began < 0.5


async def test_who_never_reads_does_not_keep_a_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "UNREAD_SECONDS", 0.3)
    async with running(tmp_path, WITH_KEYS, Limits(calls=5)) as service:
        host, _, port = service.url.removeprefix("http://").rpartition(":")
        lazy = []
        for _ in range(8):
            one = socket.socket()
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            one.connect((host, int(port)))
            one.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n" * 60)
            lazy.append(one)
        await asyncio.sleep(2)
        status, said, _ = await service.get("/v1/lanes")
        for one in lazy:
            one.close()
        assert status == 401, said  # 503 busy: nobody is served any more


def test_what_a_node_would_sign_anew_is_not_passed_on() -> None:
    class Chain:
        rpc_methods = ()
        endpoints = ("one",)

    assert passing.refusal("eth_resend", Chain()) is not None  # type: ignore[arg-type]


async def test_a_stream_names_at_most_so_many_transactions(service: Running) -> None:
    ids = [(await service.post(PAY))[1]["id"] for _ in range(60)]
    asked = 0
    real = service.node.store.transaction

    async def counted(tx_id: str) -> object:
        nonlocal asked
        asked += 1
        return await real(tx_id)

    service.node.store.transaction = counted  # type: ignore[method-assign]
    async with service.session.get(service.url + "/v1/events?tx=" + ",".join(ids)) as answer:
        assert answer.status == 400, asked


async def test_who_never_reads_his_last_answer_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "UNREAD_SECONDS", 0.3)
    monkeypatch.setattr("nonchalant.service.openapi.document", lambda: "a" * 20_000_000)
    async with running(tmp_path, WITH_KEYS) as service:
        host, _, port = service.url.removeprefix("http://").rpartition(":")
        with socket.socket() as lazy:
            lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            lazy.connect((host, int(port)))
            lazy.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n")
            await asyncio.sleep(6.5)  # uvicorn keeps what is idle for 5
            lazy.setblocking(False)
            came = 0
            while more := await asyncio.wait_for(asyncio.get_running_loop().sock_recv(lazy, 1_000_000), 5):
                came += len(more)
        assert came < 20_000_000


async def test_what_befell_anothers_transaction_is_not_in_the_lanes_history(tmp_path: Path) -> None:
    from nonchalant.model import Event
    from nonchalant.words import LaneKey

    async with keyed(tmp_path) as service:
        one = await a_holder(service, Scope.TX_WRITE, Scope.TX_READ, tenant="one")
        two = await a_holder(service, Scope.TX_READ, tenant="two")
        tx = (await service.post(PAY, headers=one))[1]["id"]
        lane = LaneKey(31337, SENDER)
        told = [Event(kind="lane.foreign", lane=lane, at=1, tx_id=tx, data={"nonce": 0, "hash": None}, position=1)]

        async def history(*_: object, **__: object) -> list[Event]:
            return told

        service.node.store.lane_history = history  # type: ignore[method-assign]
        path = f"/v1/lanes/31337/{SENDER}/events"
        assert len((await service.get(path, headers=one))[1]["events"]) == 1
        assert (await service.get(path, headers=two))[1]["events"] == []


async def test_a_stream_ends_with_its_connection_whatever_was_sent_after_it(tmp_path: Path) -> None:
    async with running(tmp_path, SETTINGS, Limits(streams=3)) as service:
        host, _, port = service.url.removeprefix("http://").rpartition(":")
        for _ in range(3):
            _, writer = await asyncio.open_connection(host, int(port))
            writer.write(
                f"GET /v1/events HTTP/1.1\r\nHost: {host}\r\n\r\nGET /livez HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()
            )
            await asyncio.sleep(0.2)
            writer.close()
        await asyncio.sleep(1)
        async with service.session.get(service.url + "/v1/events") as answer:
            assert answer.status == 200  # 503: three that nobody listens to have all places, for ever


async def test_whose_nonce_it_is_is_not_told_to_another_tenant(tmp_path: Path) -> None:
    from nonchalant.access import ANYBODY
    from nonchalant.errors import NonceTaken
    from nonchalant.values import replace
    from nonchalant.wire import parse_request

    async with keyed(tmp_path) as service:
        node = service.node

        def asking(tenant: str, value: str) -> object:
            request = parse_request(
                {**PAY, "value": value},
                tx_id=node.new_id(),
                settings=node.settings,
                lanes=node.known_lanes,
                caller=replace(ANYBODY, tenant=tenant),
            )
            return replace(request, asked_nonce=0)

        held, _ = await node.submit(asking("one", "1"))  # type: ignore[arg-type]
        with pytest.raises(NonceTaken, match=held.id):
            await node.submit(asking("one", "2"))  # type: ignore[arg-type]
        with pytest.raises(NonceTaken) as refused:
            await node.submit(asking("two", "2"))  # type: ignore[arg-type]
        assert held.id not in str(refused.value)
