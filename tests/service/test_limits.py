"""No client can take the service from the others: sizes, times and numbers end somewhere."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from nonchalant.config import parse_settings
from nonchalant.errors import BadSettings
from nonchalant.parts import signers_of
from nonchalant.service.asgi import MOST_AT_ONCE, PROBES, Limits
from nonchalant.service.routes import ROUTES
from tests.service.conftest import OTHER, SENDER, SETTINGS, Running, running

BODY = {"chain_id": 31337, "from": SENDER, "to": OTHER, "value": "1000"}
HEAD = b"POST /v1/transactions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
# Where an answer may come only from what is tested, a head and a body are waited for much longer than a test waits.
PATIENT = Limits(head_seconds=600, body_seconds=600)
SOONER = 120.0
BODILESS = HEAD + b"Content-Length: 10\r\n\r\n"

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def connected(service: Running, *raw: bytes) -> AsyncIterator[Streams]:
    reader, writer = await asyncio.open_connection("127.0.0.1", int(service.url.rpartition(":")[2]))
    try:
        for piece in raw:
            writer.write(piece)
        yield reader, writer
    finally:
        writer.close()


async def answer_until_closed(reader: asyncio.StreamReader) -> tuple[int, bytes, dict]:
    """Status, head and problem; it ends only when the service closes the connection."""
    async with asyncio.timeout(SOONER):
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    return int(head.split()[1]), head.lower(), json.loads(body)


async def test_calls_without_a_body_do_not_make_the_probes_fail(tmp_path: Path) -> None:
    async with running(tmp_path, limits=Limits(calls=20, body_seconds=600)) as service:
        slow = AsyncExitStack()
        for _ in range(20):
            await slow.enter_async_context(connected(service, BODILESS))
        async with asyncio.timeout(60):
            while (await service.get("/v1/lanes"))[0] != 503:
                pass
        status, problem, headers = await service.post(BODY)
        assert (status, problem["code"]) == (503, "busy")
        assert headers["Retry-After"]
        for probe in PROBES:
            assert (await service.get(probe))[0] == 200
        await slow.aclose()
        async with asyncio.timeout(60):
            while (await service.post(BODY))[0] != 202:
                pass


def test_probes_are_calls_and_waiting_leaves_room_for_posts() -> None:
    assert {route.path for route in ROUTES} >= PROBES
    assert Limits().waiting < Limits().calls == MOST_AT_ONCE


@pytest.mark.parametrize("part", [b"", b'{"chain_id":'])
async def test_a_body_that_does_not_arrive_is_answered_and_the_connection_closed(tmp_path: Path, part: bytes) -> None:
    async with running(tmp_path, limits=Limits(body_seconds=0.2)) as service:
        async with connected(service, HEAD + b"Content-Length: 50\r\n\r\n", part) as (reader, _):
            status, head, problem = await answer_until_closed(reader)
        assert (status, problem["code"]) == (408, "body_too_slow")
        assert b"connection: close" in head
        assert b"content-type: application/problem+json" in head
        assert (await service.get("/v1/transactions"))[1]["transactions"] == []


WHOLE = json.dumps(BODY).encode()
KEYED = HEAD + b"Idempotency-Key: the same\r\n"
SIZED = KEYED + b"Content-Length: %d\r\n" % len(WHOLE)


@pytest.mark.parametrize(
    ("pieces", "before", "closes"),
    [
        ([SIZED + b"\r\n" + WHOLE], b"", False),
        ([SIZED + b"\r\n", WHOLE], b"", False),
        ([SIZED[:30], SIZED[30:] + b"\r\n" + WHOLE[:9], WHOLE[9:]], b"", False),
        ([KEYED + b"Transfer-Encoding: chunked\r\n\r\n", b"%x\r\n%b\r\n0\r\n\r\n" % (len(WHOLE), WHOLE)], b"", False),
        ([SIZED + b"Expect: 100-continue\r\n\r\n", WHOLE], b"HTTP/1.1 100 Continue\r\n\r\n", False),
        ([SIZED + b"Connection: close\r\n\r\n" + WHOLE], b"", True),
    ],
)
async def test_the_answer_is_the_same_in_however_many_pieces_a_request_comes(
    tmp_path: Path, pieces: list[bytes], before: bytes, closes: bool
) -> None:
    async with running(tmp_path, limits=PATIENT) as service:
        _, tx, _ = await service.post(BODY, headers={"Idempotency-Key": "the same"})
        async with connected(service) as (reader, writer):
            for _ in range(1 if closes else 2):  # another call finds the connection as it was
                for piece in pieces:
                    writer.write(piece)
                    await asyncio.sleep(0.05)
                async with asyncio.timeout(SOONER):
                    head = await reader.readuntil(b"\r\n\r\n")
                    if before:
                        assert head == before
                        head = await reader.readuntil(b"\r\n\r\n")
                    status, *lines = head.decode().split("\r\n")[:-2]
                    headers = dict(line.split(": ", 1) for line in lines)
                    shown = json.loads(await reader.readexactly(int(headers["content-length"])))
                assert (status, shown["id"]) == ("HTTP/1.1 202 Accepted", tx["id"])
                assert headers.pop("connection", None) == ("close" if closes else None)
                assert list(headers) == [
                    *("date", "content-type", "content-length", "cache-control", "x-content-type-options"),
                    *("location", "idempotency-replayed"),
                ]
            assert not closes or await reader.read() == b""


async def test_an_answer_that_need_not_wait_goes_out_in_one_piece(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_pieces = []

    async def send(cycle: RequestResponseCycle, message: Any) -> None:
        in_pieces.append(message["type"])
        await in_steps(cycle, message)

    in_steps = RequestResponseCycle.send
    monkeypatch.setattr(RequestResponseCycle, "send", send)
    async with running(tmp_path, limits=PATIENT) as service:
        assert (await service.post(BODY))[0] == 202
        assert in_pieces == []
        assert (await service.post(BODY, headers={"Connection": "close"}))[0] == 202
        assert in_pieces == ["http.response.start", "http.response.body"]


async def test_a_body_that_trickles_is_not_waited_for_either(tmp_path: Path) -> None:
    async with (
        running(tmp_path, limits=Limits(body_seconds=0.3)) as service,
        connected(service, HEAD + b"Content-Length: 1000000\r\n\r\n") as (reader, writer),
    ):

        async def trickle() -> None:
            while True:
                writer.write(b" ")
                await asyncio.sleep(0.05)

        trickling = asyncio.create_task(trickle())
        line = await asyncio.wait_for(reader.readline(), SOONER)
        trickling.cancel()
        assert line.startswith(b"HTTP/1.1 408 ")


async def test_those_who_wait_do_not_starve_posts_and_give_their_place_back(tmp_path: Path) -> None:
    async with running(tmp_path, limits=Limits(calls=3, waiting=1)) as service:
        _, tx, _ = await service.post(BODY)
        path = f"/v1/transactions/{tx['id']}"
        async with connected(service, f"GET {path}?wait=60 HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()):
            async with asyncio.timeout(60):
                while (refused := await service.get(f"{path}?wait=0.01"))[0] != 503:
                    pass
            assert refused[1]["code"] == "busy"
            assert (await service.get(path))[0] == 200
            assert (await service.get(f"{path}?wait=60&after={tx['version'] - 1}"))[0] == 200
            assert (await service.post(BODY))[0] == 202
        async with asyncio.timeout(40):  # less than that call would have waited
            while (await service.get(f"{path}?wait=0.01"))[0] != 200:
                pass


@pytest.mark.parametrize(
    "raw",
    [
        b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 70_000 + b"\r\n\r\n",
        b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /livez?" + b"x" * 70_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 50_000 + b"\r\n",
        # never complete
        b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 70_000,
        b"GET /" + b"x" * 70_000,
    ],
)
async def test_a_head_has_a_largest_size(tmp_path: Path, raw: bytes) -> None:
    async with running(tmp_path, limits=PATIENT) as service, connected(service, raw) as (reader, _):
        status, head, problem = await answer_until_closed(reader)
    assert (status, problem["code"]) == (431, "head_too_large")
    assert b"connection: close" in head


async def test_what_is_not_http_is_a_problem_too(tmp_path: Path) -> None:
    async with running(tmp_path, limits=PATIENT) as service, connected(service, b"GARBAGE\r\n\r\n") as (reader, _):
        status, _, problem = await answer_until_closed(reader)
    assert (status, problem["code"]) == (400, "bad_request")


async def test_what_follows_a_body_has_a_largest_size_too(service: Running) -> None:
    async with connected(service, HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n") as (reader, writer):
        await asyncio.sleep(0.1)
        writer.write(b"X: " + b"x" * 300_000)
        async with asyncio.timeout(60):
            with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
                await reader.readexactly(1)


async def test_a_head_below_the_limit_and_a_large_body_pass(service: Running) -> None:
    assert (await service.get("/livez", headers={"X": "x" * 8_000, "Y": "y" * 8_000}))[0] == 200
    status, problem, _ = await service.post({**BODY, "metadata": {"a": "x" * 900_000}})
    assert (status, problem["field"]) == (400, "metadata")


@pytest.mark.parametrize("raw", [b"", b"GET /livez HTTP/1.1\r\nHost: loc"])
async def test_a_connection_without_a_head_is_closed(tmp_path: Path, raw: bytes) -> None:
    async with running(tmp_path, limits=Limits(head_seconds=2)) as service, connected(service, raw) as (reader, _):
        async with asyncio.timeout(SOONER):
            assert await reader.read() == b""
        assert (await service.get("/livez"))[0] == 200


async def test_a_call_may_take_longer_than_its_head(tmp_path: Path) -> None:
    async with running(tmp_path, limits=Limits(head_seconds=2)) as service:
        _, tx, _ = await service.post(BODY)
        assert (await service.get(f"/v1/transactions/{tx['id']}?wait=3"))[0] == 200


def test_a_key_that_is_none_is_told_with_its_account(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("not a key")
    key.chmod(0o600)
    broken = SETTINGS.replace('{ mnemonic = { file = "words" } }', '{ file = "key" }')
    settings = parse_settings(broken, folder=tmp_path, environ={})
    with pytest.raises(BadSettings, match=r"^accounts\[0\]\.key: the private key is not 64 hex digits") as caught:
        signers_of(settings)
    assert "not a key" not in str(caught.value)
    key.unlink()
    with pytest.raises(BadSettings, match=r"^accounts\[0\]\.key\.file: cannot read"):
        signers_of(settings)
