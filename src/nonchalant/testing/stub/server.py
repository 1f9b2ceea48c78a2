"""The stub behind a port."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Self

import uvicorn

from nonchalant.system import SystemClock
from nonchalant.testing.stub.answers import Answers
from nonchalant.testing.stub.ledger import Ledger
from nonchalant.words import Address

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]

LOOPBACK: Final = "127.0.0.1"


class StubNode:
    """Serves JSON-RPC at `url`, with a block every `block_seconds`; None: only when `mine` is called.

    `finalized` and `safe` are `final_depth` blocks below the head. `payers` and `first_nonce` are as in `Ledger`.
    Beside the methods of a node, `stub_hold` takes a list of addresses: what they send is in no block before
    `stub_release`.

    async with StubNode(31337) as node:
        ...  # whatever speaks to a node speaks to node.url
    """

    def __init__(
        self,
        chain_id: int,
        *,
        block_seconds: float | None = 0.25,
        final_depth: int = 2,
        payers: Mapping[Address, Address] | None = None,
        first_nonce: int = 0,
        port: int = 0,
    ) -> None:
        self.ledger = Ledger(chain_id, payers=payers, first_nonce=first_nonce)
        self.url = ""
        self._clock = SystemClock()
        self._answers = Answers(self.ledger, final_depth=final_depth, clock=self._clock)
        self._block_seconds = block_seconds
        self._port = port
        self._tasks: list[asyncio.Task[None]] = []

    def mine(self) -> None:
        self.ledger.mine(self._clock.now() // 1_000)

    async def __aenter__(self) -> Self:
        listening = socket.create_server((LOOPBACK, self._port))
        self.url = f"http://{LOOPBACK}:{listening.getsockname()[1]}"
        config = uvicorn.Config(
            self._serve,
            interface="asgi3",
            http="httptools",
            ws="none",
            lifespan="off",
            proxy_headers=False,
            log_config=None,
            access_log=False,
        )
        self._server = _Server(config)
        self._tasks.append(asyncio.create_task(self._server.serve(sockets=[listening])))
        if self._block_seconds is not None:
            self._tasks.append(asyncio.create_task(self._mine_for_ever(self._block_seconds)))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.should_exit = True
        for task in self._tasks[1:]:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _mine_for_ever(self, seconds: float) -> None:
        due = self._clock.monotonic()
        while True:
            due += seconds
            await self._clock.sleep(max(0.0, due - self._clock.monotonic()))
            self.mine()

    async def _serve(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        message = await receive()
        body: bytes = message.get("body", b"")
        if message.get("more_body"):
            parts = [body]
            while message.get("more_body"):
                message = await receive()
                parts.append(message.get("body", b""))
            body = b"".join(parts)
        answer = self._answers.reply(body)
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(answer)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})


class _Server(uvicorn.Server):
    def capture_signals(self) -> Any:  # whoever runs the stub has his own
        return contextlib.nullcontext()
