"""From a connection to a call: finds the route, answers errors as problem documents."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote

import structlog
from structlog.contextvars import bind_contextvars

from nonchalant.errors import CommitUnknown, Forbidden, NonchalantError, ShuttingDown
from nonchalant.model import Attempt
from nonchalant.observing.catalogue import OTHER
from nonchalant.service import http
from nonchalant.service.auditing import carry_out
from nonchalant.service.front import Front, Node, Route
from nonchalant.service.gate import gate_of
from nonchalant.service.http import PROBLEM_JSON, Answer, Call, Gone, Receive, Scope, Send, Streaming
from nonchalant.service.lanes import named_lane
from nonchalant.service.lookup import Lookup
from nonchalant.service.problems import (
    Busy,
    NoSuchPath,
    WrongHost,
    WrongMethod,
    describe,
    status_of,
)
from nonchalant.service.routes import ROUTES
from nonchalant.words import TxId

# Waiting calls are cheap, but not free; beyond this a caller is told to come back.
MOST_AT_ONCE: Final = 2_000

# An orchestrator kills a node whose probes fail: they are answered however many calls are under way.
# What they die of is best seen while they do.
PROBES: Final = frozenset({"/livez", "/readyz", "/metrics"})

METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"})

# What a call is told that was still under way when the node's time to stop was over.
CUT_SHORT: Final = (
    "this node stops, and the store has not said what became of the request; send it again, to another node or after the "
    "restart, with the same Idempotency-Key if it had one"
)

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one client can take from the others. Only tests need other values; `problems.py` names these to callers."""

    calls: int = MOST_AT_ONCE
    waiting: int = MOST_AT_ONCE // 2  # of the calls, those that wait for a change: the rest is left for posts
    streams: int = MOST_AT_ONCE // 4  # of events
    body_seconds: float = 10.0
    head_seconds: float = 10.0
    head_bytes: int = 64 * 1024  # httptools and uvicorn have no limit of their own


class Service:
    """The ASGI application over one node."""

    def __init__(self, node: Node, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self.front = Front(
            node,
            gate_of(node.settings.auth, node.store),
            Lookup(self._attempts),
            most_waiting=self.limits.waiting,
            most_streams=self.limits.streams,
        )
        self.under_way = 0
        self.observatory = node.observatory
        self.observatory.under_way = lambda: self.under_way
        # Who must have a key may call us what he likes: a page that was led here by a name has none to send.
        self.hosts = None if node.settings.auth == "keys" else _own_names(node)
        paths = _by_path(ROUTES)
        self.named = {path: routes for path, routes in paths.items() if not any(map(_is_variable, path))}
        self.patterns = [(path, routes) for path, routes in paths.items() if path not in self.named]

    async def _attempts(self, tx_ids: Sequence[TxId]) -> Mapping[TxId, Sequence[Attempt]]:
        return await self.front.node.store.attempts(tx_ids)

    def close(self) -> None:
        """Let waiting calls answer now, and be not ready."""
        self.front.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        self.under_way += 1
        bind_contextvars(node=self.observatory.node)  # for every line that this call logs
        self.observatory.hear_caller(scope["headers"])
        call, began = Call(scope, receive, self.limits.body_seconds), self.observatory.seconds()
        try:
            answer = await self._answer(call)
            self._count(call, answer, self.observatory.seconds() - began)
            if not (isinstance(answer, Answer) and call.answered(answer)):
                await answer.send(self._timely(call, send))
        except Gone:
            return
        finally:
            self.under_way -= 1

    @staticmethod
    def _timely(call: Call, send: Send) -> Send:
        """Sends as `send` does, and cuts off a client that leaves unread what was sent before: it would keep its place."""

        async def sent(message: MutableMapping[str, Any]) -> None:
            try:
                async with asyncio.timeout(http.UNREAD_SECONDS):
                    await send(message)
            except TimeoutError:
                await call.cut()
                raise Gone from None

        return sent

    def _count(self, call: Call, answer: Answer | Streaming, seconds: float) -> None:
        method = call.scope["method"]
        waited = b"wait=" in call.scope["query_string"]  # by its own wish
        self.observatory.called(
            # A caller may call its method anything.
            method if method in METHODS else OTHER,
            call.route,
            answer.status if isinstance(answer, Answer) else 200,
            None if waited else seconds,
        )

    async def _answer(self, call: Call) -> Answer | Streaming:
        try:
            if self.under_way > self.limits.calls and call.scope["path"] not in PROBES:
                raise Busy
            self._check_host(call)
            route, call.parts = self._find(call.scope["method"], call.scope["raw_path"])
            call.route = route.path
            if route.scope is not None:
                call.caller = await self.front.gate.admit(call)
                if not call.caller.may(route.scope):
                    raise Forbidden(f"this key lacks the scope {route.scope}; ask whoever gave it to you")
                named_lane(route.path, call)
            return await carry_out(self.front, route, call)
        except Gone:
            raise
        except asyncio.CancelledError:
            if not self.front.closing:
                raise
            # Its time is over while something hangs, the store most likely: the caller hears that instead of nothing.
            log.warning("call.cut_short", method=call.scope["method"], path=call.scope["path"])
            return problem(ShuttingDown() if call.scope["method"] in {"GET", "HEAD"} else CommitUnknown(CUT_SHORT))
        except NonchalantError as error:
            if status_of(error) == 500:
                log.exception("call.failed", method=call.scope["method"], path=call.scope["path"])
            return problem(error)
        except Exception:  # a bug of ours must answer too
            # The caller gets a problem document like any other, the log gets what it must not see.
            log.exception("call.failed", method=call.scope["method"], path=call.scope["path"])
            return problem(NonchalantError())

    def _find(self, method: str, path: bytes) -> tuple[Route, Sequence[str]]:
        method = "GET" if method == "HEAD" else method
        # Before what is escaped in it is read: a slash in an id is part of the id.
        asked = tuple(path.decode("latin-1").split("/"))
        if b"%" in path:
            asked = tuple(map(unquote, asked))
        routes, parts = self._at(asked)
        if method not in routes:
            raise WrongMethod(list(routes))
        return routes[method], parts

    def _at(self, asked: tuple[str, ...]) -> tuple[Mapping[str, Route], Sequence[str]]:
        """The calls at a path, by their methods; what has a name of its own goes before what stands for any."""
        if asked in self.named:
            return self.named[asked], ()
        for pattern, routes in self.patterns:
            parts = _match(pattern, asked)
            if parts is not None:
                return routes, parts
        raise NoSuchPath

    def _check_host(self, call: Call) -> None:
        """A name that somebody else controls may resolve to us: a browser must not be led here by it."""
        host = call.header("Host")
        if host is None or self.hosts is None:
            return
        name, _, port = host.rpartition(":")
        if (name if port.isdigit() else host).lower() not in self.hosts:
            raise WrongHost


def _by_path(routes: Sequence[Route]) -> dict[tuple[str, ...], dict[str, Route]]:
    """The calls at each path, by their methods; those with fewer variable parts first."""
    found: dict[tuple[str, ...], dict[str, Route]] = {}
    for route in sorted(routes, key=lambda route: route.path.count("{")):
        found.setdefault(tuple(route.path.split("/")), {})[route.method] = route
    return found


def _is_variable(part: str) -> bool:
    return part.startswith("{")


def _own_names(node: Node) -> frozenset[str]:
    return frozenset({"localhost", "127.0.0.1", "[::1]", str(node.settings.listen).rpartition(":")[0]})


def _match(pattern: Sequence[str], asked: Sequence[str]) -> list[str] | None:
    """The variable parts; None: another path."""
    if len(pattern) != len(asked):
        return None
    parts = []
    for expected, found in zip(pattern, asked, strict=True):
        if _is_variable(expected):
            if not found:
                return None
            parts.append(found)
        elif expected != found:
            return None
    return parts


def problem(error: NonchalantError) -> Answer:
    document, headers = describe(error)
    return Answer(document, document.status, headers, PROBLEM_JSON)
