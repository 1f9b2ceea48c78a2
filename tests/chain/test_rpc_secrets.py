"""What a node's address holds is for the node alone: no error and no log shows it."""

from __future__ import annotations

import asyncio
import traceback

import pytest
from aiohttp import web

from nonchalant.chain.evm.rpc import Rpc
from nonchalant.errors import BadSettings, NodeRefused, Unreachable
from nonchalant.secret import host_of
from tests.chain.misbehaving import error, serving

USER, PASSWORD, TOKEN, KEY = "opsuser", "hunter2-hunter2", "0a1b2c3d4e5f60718293a4b5c6d7e8f9", "query-secret-77"


def shown(problem: BaseException) -> str:
    """All that a log could print of it, hidden context included."""
    texts = []
    seen: BaseException | None = problem
    while seen is not None:
        texts += [str(seen), repr(seen), repr(vars(seen)), *traceback.format_exception(seen)]
        seen = seen.__cause__ or seen.__context__
    return "\n".join(texts)


def with_secrets(url: str) -> str:
    return url.replace("http://", f"http://{USER}:{PASSWORD}@") + f"/v3/{TOKEN}?apikey={KEY}"


@pytest.mark.parametrize(
    "behave",
    [
        lambda body: web.Response(status=401),
        lambda body: web.Response(status=500, text=TOKEN),
        lambda body: web.Response(text=f"<a href='{TOKEN}'>"),
        lambda body: web.HTTPFound(f"http://127.0.0.1/{TOKEN}"),
        lambda body: web.Response(headers={"Content-Encoding": "gzip"}, body=b"no gzip"),
        lambda body: error(body["id"], f"project {TOKEN} ({PASSWORD}) has no {KEY}", data={"url": f"/v3/{TOKEN}"}),
        lambda body: error(body["id"], f"{USER} unknown", 429),
        lambda body: asyncio.sleep(3),
    ],
)
async def test_no_credential_of_the_url_is_ever_shown(behave):
    async with serving(behave) as node:
        url = with_secrets(node.url)
        name = host_of(url)
        rpc = Rpc(url, name, timeout=0.5)
        with pytest.raises((Unreachable, NodeRefused)) as caught:
            await rpc.call("m")
        visible = shown(caught.value) + repr(rpc) + str(rpc) + name
        await rpc.close()
    assert not [secret for secret in (USER, PASSWORD, TOKEN, KEY) if secret in visible]


async def test_no_credential_is_shown_when_nobody_listens():
    url = with_secrets("http://127.0.0.1:1")
    rpc = Rpc(url, host_of(url), timeout=1)
    with pytest.raises(Unreachable) as caught:
        await rpc.call("m")
    await rpc.close()
    assert not [secret for secret in (USER, PASSWORD, TOKEN, KEY) if secret in shown(caught.value)]


async def test_credentials_and_path_of_the_url_reach_the_node():
    async with serving() as node:
        rpc = Rpc(with_secrets(node.url), "node", timeout=20)
        await rpc.call("m")
        await rpc.close()
        assert node.headers[0]["Authorization"].startswith("Basic ")


async def test_an_ordinary_path_does_not_spoil_the_nodes_words():
    async with serving(lambda body: error(body["id"], "execution reverted")) as node:
        rpc = Rpc(node.url + "/execution/reverted", "node", timeout=20)
        with pytest.raises(NodeRefused, match="execution reverted"):
            await rpc.call("m")
        await rpc.close()


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://me:secret@rpc.example/v2/token?key=k", "rpc.example"),
        ("http://127.0.0.1:8545", "127.0.0.1:8545"),
        ("http://[::1]:8", "[::1]:8"),
    ],
)
def test_a_name_shows_host_and_port_alone(url, name):
    assert host_of(url) == name


@pytest.mark.parametrize(
    "url", ["", "localhost", "ws://u:hunter2@host", "http://", "http://hunter2@", "http://h:hunter2x/"]
)
def test_an_unusable_url_is_refused_without_showing_it(url):
    with pytest.raises(BadSettings, match="https://host:port/path") as caught:
        Rpc(url, "node", timeout=1)
    assert "hunter2" not in str(caught.value)
