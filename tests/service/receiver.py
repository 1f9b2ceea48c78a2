"""A receiver of webhooks: a real HTTP server that believes nothing the stock library does not."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from standardwebhooks.webhooks import Webhook as Stock

from tests.e2e.rig import until


@dataclass(frozen=True)
class Message:
    id: str
    headers: dict[str, str]
    body: str

    @property
    def content(self) -> dict[str, Any]:
        return json.loads(self.body)  # type: ignore[no-any-return]

    @property
    def event(self) -> dict[str, Any]:
        return self.content["data"]  # type: ignore[no-any-return]

    @property
    def kind(self) -> str:
        return str(self.content["type"])

    def is_signed_by(self, secret: str) -> bool:
        try:
            Stock(secret).verify(self.body, self.headers)
        except Exception:  # noqa: BLE001 - whatever it has against it
            return False
        return True


Answer = Callable[[Message], Awaitable[web.StreamResponse]]


async def take_it(_: Message) -> web.StreamResponse:
    return web.Response(status=204)


@dataclass
class Receiver:
    """`tried` are all that came, in this order; `taken` those that were answered with success."""

    url: str = ""
    answer: Answer = take_it
    tried: list[Message] = field(default_factory=list)
    taken: list[Message] = field(default_factory=list)
    under_way: int = 0
    most_under_way: int = 0

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = (await request.read()).decode()
        message = Message(request.headers["webhook-id"], dict(request.headers), body)
        self.tried.append(message)
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            answered = await self.answer(message)
        finally:
            self.under_way -= 1
        if 200 <= answered.status < 300:
            self.taken.append(message)
        return answered

    def of(self, tx_id: str) -> list[str]:
        """The kinds of what was taken of one transaction, each once, in the order in which they came first."""
        seen = dict.fromkeys((one.id, one.kind) for one in self.taken if one.event.get("tx") == tx_id)
        return [kind for _, kind in seen]

    async def has(self, count: int, what: str = "taken") -> list[Message]:
        found: list[Message] = getattr(self, what)
        await until(lambda: len(found) >= count, lambda: f"{count} {what}: {[one.kind for one in found]}", seconds=60)
        return found


@asynccontextmanager
async def receiving(answer: Answer = take_it, host: str = "127.0.0.1") -> AsyncIterator[Receiver]:
    receiver = Receiver(answer=answer)
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", receiver.handle)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, host, 0)
    await site.start()
    assert isinstance(site._server, asyncio.Server)
    receiver.url = f"http://{host}:{site._server.sockets[0].getsockname()[1]}/hook"
    try:
        yield receiver
    finally:
        await runner.cleanup()
