"""What lies between a client and its service, and loses things: a proxy that follows a list of faults."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp
from aiohttp import web

LOSE_ANSWER = "lose the answer"
LOSE_CALL = "lose the call"
NONE = "nothing this time"


@dataclass
class Flaky:
    """Each call meets the next fault: a status to answer with (with `Retry-After`), a loss, or nothing any more."""

    behind: str
    faults: list[str | tuple[int, str, str]] = field(default_factory=list)
    cuts: list[int] = field(default_factory=list)  # after how many bytes each stream is cut off
    seen: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    url: str = ""

    async def pass_on(self, request: web.Request) -> web.StreamResponse:
        self.seen.append((request.method, request.path_qs, dict(request.headers)))
        fault = self.faults.pop(0) if self.faults else None
        if isinstance(fault, tuple):
            status, wait, body = fault
            kind = "application/problem+json" if body.startswith("{") else "text/html"
            return web.Response(status=status, text=body, content_type=kind, headers={"Retry-After": wait})
        if fault == LOSE_CALL:
            return self.cut(request)
        hidden = {"Host", "Content-Length"}
        headers = {name: value for name, value in request.headers.items() if name not in hidden}
        async with (
            aiohttp.ClientSession() as session,
            session.request(
                request.method, self.behind + request.path_qs, data=await request.read() or None, headers=headers
            ) as answer,
        ):
            if answer.content_type == "text/event-stream":
                return await self.stream(request, answer)
            raw = await answer.read()
            if fault == LOSE_ANSWER:
                return self.cut(request)
            return web.Response(status=answer.status, body=raw, content_type=answer.content_type)

    async def stream(self, request: web.Request, answer: aiohttp.ClientResponse) -> web.StreamResponse:
        """What goes on is passed on byte by byte, up to where it is cut."""
        left = self.cuts.pop(0) if self.cuts else None
        passed = web.StreamResponse(headers={"Content-Type": answer.content_type})
        await passed.prepare(request)
        async for piece in answer.content.iter_any():
            await passed.write(piece[:left])
            if left is not None and (left := left - len(piece)) <= 0:
                return self.cut(request)
        return passed

    def cut(self, request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.close()
        return web.Response()


@asynccontextmanager
async def before(url: str) -> AsyncIterator[Flaky]:
    flaky = Flaky(url)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", flaky.pass_on)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    assert site._server is not None
    port = site._server.sockets[0].getsockname()[1]
    flaky.url = f"http://127.0.0.1:{port}"
    try:
        yield flaky
    finally:
        await runner.cleanup()
