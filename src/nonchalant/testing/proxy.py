"""A JSON-RPC endpoint that misbehaves on demand: a server of its own before a real node, such as anvil.

    async with FaultProxy("http://127.0.0.1:8545") as proxy:
        proxy.refuse("eth_sendRawTransaction", "nonce too low", times=3)
        async with proxy.timeout_after_acceptance():
            ...  # the client at proxy.url hears nothing; the node has it all
        proxy.lag(3)

Bytes pass three things on their way: faults of the network (refuse, time-out, late delivery, …), then the rules of the
pool (`enforce`), then the node. Of several faults that want the same call the one switched on first strikes. A time-out
is silence: it lasts until the client gives up.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import Counter
from contextlib import AsyncExitStack, suppress
from typing import Any, Final, Self, TypeVar

from aiohttp import web

from nonchalant.testing.faults import (
    SEND,
    CallFault,
    Canned,
    Hang,
    HttpAnswer,
    Late,
    Matching,
    Outcome,
    Reset,
    Rule,
    Silence,
    Slow,
    Switch,
)
from nonchalant.testing.rules import PoolRule, Refusal, Swallowed
from nonchalant.testing.sight import Sight, photograph
from nonchalant.testing.traffic import Sent, Traffic
from nonchalant.testing.upstream import Upstream

F = TypeVar("F")

PAGE: Final = "<html><body><center><h1>{status}</h1></center><hr><center>nginx</center></body></html>"
GARBAGE: Final = b'{"jsonrpc":"2.0","id":1,"resu'
BODY_BYTES: Final = 64 * 1024 * 1024
NO_LINGER: Final = struct.pack("ii", 1, 0)  # closing sends a reset


class FaultProxy:
    """Serves at `url` what the node at `upstream` answers, as well or as badly as it is told to. Use `async with`.

    `method` None means any call; `times` None means until switched off; `matching` looks at the transaction sent.
    """

    def __init__(self, upstream: str) -> None:
        self.url = ""
        self._traffic = Traffic(Upstream(upstream))
        self._closing = asyncio.Event()
        self._at_work: set[asyncio.Task[tuple[Outcome, float]]] = set()
        self._exit = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._traffic.node)
            app = web.Application(client_max_size=BODY_BYTES)
            app.router.add_post("/{anything:.*}", self._handle)
            # Cancelled when the client hangs up: silence ends then.
            runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            stack.push_async_callback(self._finish)
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            host, port = runner.addresses[0]
            self.url = f"http://{host}:{port}"
            self._exit = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._exit.aclose()

    # what has passed

    @property
    def sent(self) -> list[Sent]:
        """Every transaction that came, in order of arrival."""
        return self._traffic.sent

    @property
    def delivered(self) -> list[Sent]:
        """What the node was handed, in that order."""
        handed_over = [(each.delivered_at, each) for each in self.sent if each.delivered_at is not None]
        return [each for _, each in sorted(handed_over, key=lambda pair: pair[0])]

    @property
    def held(self) -> list[Sent]:
        """What is late and not released yet."""
        return self._traffic.held

    @property
    def calls(self) -> Counter[str]:
        """How often each method was called."""
        return self._traffic.calls

    @property
    def requests(self) -> int:
        """How many HTTP requests came; a batch is one."""
        return self._traffic.requests

    # faults of single calls

    def refuse(
        self,
        method: str | None,
        message: str,
        *,
        code: int = -32000,
        data: object = None,
        times: int | None = None,
        matching: Matching | None = None,
    ) -> Rule[CallFault]:
        """Answer with this error; the node hears nothing."""
        return self._on(self._traffic.call_rules, Refusal(message, code, data), method, times, matching)

    def answer(self, method: str, result: object, *, times: int | None = None) -> Rule[CallFault]:
        """Answer with this result; the node hears nothing."""
        return self._on(self._traffic.call_rules, Canned(result), method, times)

    def timeout_before_acceptance(
        self, method: str | None = SEND, *, times: int | None = None, matching: Matching | None = None
    ) -> Rule[CallFault]:
        """No answer, and the node never hears of it."""
        return self._on(self._traffic.call_rules, Silence(delivered=False), method, times, matching)

    def timeout_after_acceptance(
        self, method: str | None = SEND, *, times: int | None = None, matching: Matching | None = None
    ) -> Rule[CallFault]:
        """No answer, but the node got it."""
        return self._on(self._traffic.call_rules, Silence(delivered=True), method, times, matching)

    def late_delivery(
        self, *, answered: bool = True, times: int | None = None, matching: Matching | None = None
    ) -> Rule[CallFault]:
        """Keep transactions back until `release`; the client hears success, or nothing if not `answered`."""
        return self._on(self._traffic.call_rules, Late(answered), SEND, times, matching)

    def swallow(self, *, times: int | None = None, matching: Matching | None = None) -> Rule[CallFault]:
        """Answer a transaction with success and keep nothing."""
        return self._on(self._traffic.call_rules, Swallowed(), SEND, times, matching)

    # faults of whole requests

    def hang(self, *, delivered: bool = False, method: str | None = None, times: int | None = None) -> Rule[Outcome]:
        """No answer to the whole request that has such a call."""
        return self._on(self._traffic.request_rules, Hang(delivered), method, times)

    def reset(self, *, delivered: bool = False, method: str | None = None, times: int | None = None) -> Rule[Outcome]:
        """Break the connection instead of answering."""
        return self._on(self._traffic.request_rules, Reset(delivered), method, times)

    def status(
        self, status: int, *, delivered: bool = False, method: str | None = None, times: int | None = None
    ) -> Rule[Outcome]:
        """Answer with this HTTP status and a page for people, such as gateways have."""
        answer = HttpAnswer(status, PAGE.format(status=status).encode(), "text/html", delivered)
        return self._on(self._traffic.request_rules, answer, method, times)

    def garbage(
        self,
        body: bytes = GARBAGE,
        *,
        delivered: bool = False,
        method: str | None = None,
        times: int | None = None,
    ) -> Rule[Outcome]:
        """Answer 200 with something else than JSON-RPC."""
        return self._on(self._traffic.request_rules, HttpAnswer(200, body, delivered=delivered), method, times)

    def slow(self, seconds: float, *, method: str | None = None, times: int | None = None) -> Rule[Slow]:
        """Keep the answers back that long; what else strikes them strikes nevertheless."""
        return self._on(self._traffic.slow_rules, Slow(seconds), method, times)

    # the pool

    def enforce(self, rule: PoolRule, *, times: int | None = None, matching: Matching | None = None) -> Rule[PoolRule]:
        """Let the node's pool have this rule; see `nonchalant.testing.rules`."""
        return self._on(self._traffic.pool_rules, rule, SEND, times, matching)

    async def release(self, *sent: Sent) -> None:
        """Hand these to the node now, in this order (again, if it had them before); by default all that are held."""
        for each in sent or tuple(self.held):
            if each in self.held:
                self.held.remove(each)
            await self._traffic.hand_over(each)

    async def forget_mempool(self) -> None:
        """Let the node (an anvil) lose all that is not mined, as a restart would."""
        await self._traffic.node.ask("anvil_dropAllTransactions")

    # the view

    def lag(self, blocks: int) -> Switch:
        """Stay so many blocks behind the node."""
        return self._blur(lag=blocks)

    async def freeze(self, depth: int = 32) -> Switch:
        """Go on showing the chain as it is now: no new blocks, and no reorg that is not deeper than `depth`."""
        return self._blur(photograph=await photograph(self._traffic.node, depth, self._traffic.addresses))

    def finality_ahead(self, blocks: int) -> Switch:
        """Call so many blocks more final than are, up to the head."""
        return self._blur(finality_ahead=blocks)

    def finality_missing(self) -> Switch:
        """Know no `finalized` and no `safe` block."""
        return self._blur(finality_missing=True)

    def heal(self) -> None:
        """All faults off. What is held stays held: bytes on their way do not vanish."""
        traffic = self._traffic
        for rules in (traffic.call_rules, traffic.request_rules, traffic.slow_rules, traffic.pool_rules):
            rules.clear()
        traffic.sight = Sight()

    # inside

    @staticmethod
    def _on(
        rules: list[Rule[F]], fault: F, method: str | None, times: int | None, matching: Matching | None = None
    ) -> Rule[F]:
        return Rule(fault, rules, method=method, times=times, matching=matching)

    def _blur(self, **change: Any) -> Switch:
        self._traffic.see(**change)
        return Switch(lambda: self._traffic.see(**{name: getattr(Sight(), name) for name in change}))

    async def _handle(self, request: web.Request) -> web.Response:
        work = asyncio.create_task(self._traffic.reply(await request.read()))
        self._at_work.add(work)
        work.add_done_callback(self._at_work.discard)
        reply, delay = await asyncio.shield(work)  # a node goes on when its client has gone
        if delay:
            await self._closed(within=delay)
        match reply:
            case HttpAnswer(status, body, content_type):
                return web.Response(status=status, body=body, content_type=content_type)
            case Reset() if request.transport is not None:
                request.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
                request.transport.abort()
        await self._closing.wait()
        return web.Response(status=503)

    async def _closed(self, within: float) -> None:
        with suppress(TimeoutError):  # the time is over, and it goes on
            async with asyncio.timeout(within):
                await self._closing.wait()

    async def _finish(self) -> None:
        self._closing.set()
        await asyncio.gather(*self._at_work, return_exceptions=True)
