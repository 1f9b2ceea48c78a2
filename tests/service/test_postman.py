"""Deliveries go to the address that was checked, or nowhere."""

import asyncio
from collections.abc import Sequence

import pytest
from aiohttp import web

from nonchalant import postman
from nonchalant.postman import Postman
from nonchalant.targets import Targets
from nonchalant.webhooks import signed_headers
from tests.lessons import lesson
from tests.service.receiver import Message, receiving

HEADERS = signed_headers(["whsec_AAAA"], "msg_1", 1_700_000_000_000, "{}")


class Names:
    """A name server that somebody else controls: another answer each time."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    async def __call__(self, host: str, _port: int) -> Sequence[str]:
        self.asked.append(host)
        return self.answers.pop(0)


async def close_after(_: Message) -> web.StreamResponse:
    return web.Response(headers={"Connection": "close"})


@lesson("webhook-targets")
async def test_a_name_that_leads_elsewhere_the_second_time_is_refused_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first answer is let through as if it were public: what is connected to is that, and nobody asks again."""
    monkeypatch.setattr(postman, "is_public", lambda address: str(address) == "127.0.0.1")
    names = Names(["127.0.0.1"], ["127.0.0.2"], ["127.0.0.1", "127.0.0.2"], ["127.0.0.1"])
    async with receiving(close_after) as receiver:
        url = receiver.url.replace("127.0.0.1", "receiver.example")
        post = Postman(Targets.PUBLIC, names)
        try:
            assert (await post.post(url, HEADERS, "{}")).status == 200
            assert receiver.taken[0].headers["Host"].startswith("receiver.example")
            for _ in range(2):
                said = await post.post(url, HEADERS, "{}")
                assert said.status is None
                assert said.error == "receiver.example leads to 127.0.0.2, which is not a public address"
            assert (await post.post(url, HEADERS, "{}")).status == 200
        finally:
            await post.close()
        assert len(receiver.tried) == 2
    assert names.asked == ["receiver.example"] * 4


@lesson("webhook-targets")
@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "localhost",
        "2130706433",
        "0x7f.1",
        "0177.0.0.1",
        "127.1",
        "0",
        "0.0.0.0",
    ],
)
async def test_no_way_to_write_this_machine_reaches_it(host: str) -> None:
    async with receiving() as receiver:
        port = receiver.url.rpartition(":")[2].partition("/")[0]
        post = Postman(Targets.PUBLIC)
        try:
            said = await post.post(f"http://{host}:{port}/", HEADERS, "{}")
        finally:
            await post.close()
        assert said.status is None
        assert receiver.tried == []


async def test_no_proxy_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    async with receiving() as proxy, receiving() as receiver:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        post = Postman(Targets.ANY)
        try:
            assert (await post.post(receiver.url, HEADERS, "{}")).delivered
        finally:
            await post.close()
        assert (len(proxy.tried), len(receiver.tried)) == (0, 1)


async def test_an_answer_without_an_end_counts_by_its_status() -> None:
    async def endless(message: Message) -> web.StreamResponse:
        class Drip(web.StreamResponse):
            async def write_eof(self, data: bytes = b"") -> None:
                await self.write(b"wait for it")
                await asyncio.sleep(30)

        return Drip(status=202)

    async with receiving(endless) as receiver:
        post = Postman(Targets.ANY)
        try:
            async with asyncio.timeout(20):
                assert (await post.post(receiver.url, HEADERS, "{}")).status == 202
        finally:
            await post.close()


async def test_a_receiver_that_says_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postman, "ANSWER_SECONDS", 0.2)

    async def hang(_: Message) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError

    async with receiving(hang) as receiver:
        post = Postman(Targets.ANY)
        try:
            said = await post.post(receiver.url, HEADERS, "{}")
        finally:
            await post.close()
        assert (said.status, said.error) == (None, "no answer within 0.2 seconds")


async def test_what_is_not_http_is_no_answer() -> None:
    async def babble(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"what?\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(babble, "127.0.0.1", 0)
    post = Postman(Targets.ANY)
    try:
        port = server.sockets[0].getsockname()[1]
        said = await post.post(f"http://127.0.0.1:{port}/", HEADERS, "{}")
        assert said.status is None
        assert said.error
        assert (await post.post(f"https://127.0.0.1:{port}/", HEADERS, "{}")).status is None
        assert (await post.post("http://nowhere.invalid/", HEADERS, "{}")).status is None
    finally:
        await post.close()
        server.close()
        await server.wait_closed()
