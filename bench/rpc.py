"""A bare JSON-RPC caller: for contestants that have none, and for whoever looks at the chain from outside."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import aiohttp
import msgspec

T = TypeVar("T")


class RpcError(Exception):
    """The node refused something that a benchmark relies on; its words follow."""


class _Error(msgspec.Struct):
    code: int
    message: str


class _Reply(msgspec.Struct):
    id: int | None = None
    result: msgspec.Raw = msgspec.Raw(b"null")
    error: _Error | None = None


_read_one = msgspec.json.Decoder(_Reply).decode
_read_many = msgspec.json.Decoder(list[_Reply]).decode


class Rpc:
    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self._url = url
        self._session = session

    async def call(self, method: str, *params: object, result: type[T]) -> T:
        reply = _read_one(await self.post(_body(1, method, params)))
        return msgspec.json.decode(_result(method, reply), type=result)

    async def calls(self, method: str, each: Sequence[Sequence[object]]) -> list[Any]:
        """Many at once, in one request."""
        replies = _read_many(await self.post(batch(method, each)))
        return [msgspec.json.decode(_result(method, reply)) for reply in sorted(replies, key=lambda one: one.id or 0)]

    async def post(self, body: bytes) -> bytes:
        async with self._session.post(self._url, data=body, headers={"Content-Type": "application/json"}) as response:
            return await response.read()


def batch(method: str, each: Sequence[Sequence[object]]) -> bytes:
    return b"[" + b",".join([_body(number, method, params) for number, params in enumerate(each)]) + b"]"


def check_sent(answer: bytes) -> None:
    """Every transaction of the batch was taken."""
    for reply in _read_many(answer):
        _result("eth_sendRawTransaction", reply)


def _body(number: int, method: str, params: Sequence[object]) -> bytes:
    return b'{"jsonrpc":"2.0","id":%d,"method":"%s","params":%s}' % (
        number,
        method.encode(),
        msgspec.json.encode(params),
    )


def _result(method: str, reply: _Reply) -> msgspec.Raw:
    if reply.error is not None:
        raise RpcError(f"{method}: {reply.error.message}")
    return reply.result


@asynccontextmanager
async def connected(url: str, *, connections: int = 16) -> AsyncIterator[Rpc]:
    timeout = aiohttp.ClientTimeout(total=60)
    connector = aiohttp.TCPConnector(limit=connections)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
        yield Rpc(url, session)
