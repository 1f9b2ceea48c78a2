"""A real HTTP server that answers JSON-RPC as badly as a test asks it to; and how a test talks to it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from nonchalant.chain.evm.rpc import Call, Rpc

Answer = Any  # JSON, or a web.Response
Behaviour = Callable[[Any], Answer | Awaitable[Answer]]


@dataclass
class Node:
    """`bodies` are the requests it got, decoded, in order of arrival; `asked` is set once there is one."""

    behave: Behaviour
    url: str = ""
    bodies: list[Any] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    asked: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def sizes(self) -> list[int]:
        """How many calls each request had; 0 for one that was no batch."""
        return [len(body) if isinstance(body, list) else 0 for body in self.bodies]

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = json.loads(await request.read())
        self.bodies.append(body)
        self.headers.append(dict(request.headers))
        self.asked.set()
        answer = self.behave(body)
        if isinstance(answer, Awaitable):
            answer = await answer
        return answer if isinstance(answer, web.StreamResponse) else web.json_response(answer)


def echo(call: dict[str, Any]) -> dict[str, Any]:
    """The good answer of these tests: the method's name and its parameters."""
    return {"jsonrpc": "2.0", "id": call["id"], "result": [call["method"], *call["params"]]}


def error(identifier: int | None, message: str = "no", code: int = -32000, **more: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": identifier, "error": {"code": code, "message": message, **more}}


def well(body: Any) -> Answer:
    return [echo(call) for call in body] if isinstance(body, list) else echo(body)


@asynccontextmanager
async def serving(behave: Behaviour = well) -> AsyncIterator[Node]:
    node = Node(behave)
    async with at_some_port(node.handle) as node.url:
        yield node


@asynccontextmanager
async def at_some_port(handle: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> AsyncIterator[str]:
    """A server that takes every request of any size; its address."""
    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.router.add_route("*", "/{anything:.*}", handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    [address] = runner.addresses
    try:
        yield f"http://127.0.0.1:{address[1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def talking(node: Node, **options: Any) -> AsyncIterator[Rpc]:
    rpc = Rpc(node.url, "node", **{"timeout": 5.0, **options})
    try:
        yield rpc
    finally:
        await rpc.close()


def results(replies: Sequence[Any]) -> list[Any]:
    """What was answered; where nothing usable was, the kind of error."""
    return [json.loads(reply) if not isinstance(reply, Exception) else type(reply) for reply in replies]


def numbered(count: int, method: str = "m") -> list[Call]:
    return [Call(method, (index,)) for index in range(count)]
