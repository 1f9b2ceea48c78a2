"""One HTTP call: what came in, what goes out, and the ASGI that carries both."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, MutableMapping, Sequence
from contextlib import AbstractContextManager, aclosing
from dataclasses import dataclass
from typing import Any, Final, Protocol
from urllib.parse import parse_qsl

import msgspec

from nonchalant.access import ANYBODY, Caller
from nonchalant.errors import BadRequest
from nonchalant.service.problems import BodyTooSlow, NotJson, TooLarge

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

MAX_BODY: Final = 1024 * 1024
MAX_PARAMETERS: Final = 50

JSON: Final = "application/json"
PROBLEM_JSON: Final = "application/problem+json"
EVENT_STREAM: Final = "text/event-stream"

# How long a client may leave what was sent to it unread before it is cut off; it comes back to where it was.
UNREAD_SECONDS: Final = 30.0

# Where a connection of ours is found among ASGI's extensions; whoever else carries the calls has none.
DIRECT: Final = "nonchalant.direct"

ALWAYS: Final = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))

_encoder = msgspec.json.Encoder()


class Gone(Exception):
    """The client closed the connection; there is nobody to answer."""


class Direct(Protocol):
    """What a connection does beside ASGI for the call that it carries: most have come whole before anybody asks, and are
    answered in one piece, so that there is nothing to wait for and nothing to time."""

    def whole_body(self) -> bytes | None:
        """The body, which is the caller's from now on; None: not all of it has come, `receive` waits for it."""

    def answer(self, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> bool:
        """Whether it was written, all of it at once; False: nothing was, `send` does what there is to do first."""

    def cut(self) -> None:
        """Close, with what nobody reads still in the buffer."""


@dataclass(slots=True)
class Call:
    """A request. `parts` are the path's variable parts, in order; `caller` is who makes it; `route` the path as the table
    of calls has it, for counting."""

    scope: Scope
    receive: Receive
    body_seconds: float
    parts: Sequence[str] = ()
    route: str = "none"
    caller: Caller = ANYBODY
    _headers: dict[bytes, bytes] | None = None  # by their names, once one was asked for
    _read: bytes | None = None  # the body, once it has come

    def _query(self) -> list[tuple[str, str]]:
        if not self.scope["query_string"]:
            return []
        try:
            return parse_qsl(
                self.scope["query_string"].decode("latin-1"), keep_blank_values=True, max_num_fields=MAX_PARAMETERS
            )
        except ValueError:
            raise BadRequest(f"more than {MAX_PARAMETERS} parameters in the query") from None

    def only(self, known: Iterable[str]) -> dict[str, str]:
        """The query's parameters; `BadRequest` for one that is unknown or there twice."""
        given: dict[str, str] = {}
        for name, value in self._query():
            if name not in known:
                names = ", ".join(known)
                raise BadRequest(f"unknown parameter{f'; known here: {names}' if names else ''}", field=name)
            if name in given:
                raise BadRequest("given twice", field=name)
            given[name] = value
        return given

    def lists(self, known: Iterable[str], repeatable: Iterable[str]) -> dict[str, list[str]]:
        """The query's parameters, each a list: of those that may be repeated, or be several with commas between."""
        given: dict[str, list[str]] = {}
        for name, value in self._query():
            if name not in known:
                raise BadRequest(f"unknown parameter; known here: {', '.join(known)}", field=name)
            if name in given and name not in repeatable:
                raise BadRequest("given twice", field=name)
            given.setdefault(name, []).extend(value.split(",") if name in repeatable else [value])
        return given

    def header(self, name: str) -> str | None:
        """The header's value; `BadRequest` if it is there twice."""
        given = self.scope["headers"]
        if self._headers is None:
            self._headers = dict(given)
        wanted = name.lower().encode()
        value = self._headers.get(wanted)
        if value is None:
            return None
        if len(self._headers) < len(given) and [header for header, _ in given].count(wanted) > 1:
            raise BadRequest("given twice", field=name)
        return value.decode("latin-1")

    async def json_body(self, *, may_be_empty: bool = False) -> bytes:
        """The body, which must be called JSON; where it may be empty, nothing at all counts as an empty object.

        A page in a browser cannot call a body JSON without asking this host first. It can post nothing, but then its
        browser says where the page is from.
        """
        media_type = (self.header("Content-Type") or "").partition(";")[0]
        if media_type.strip().lower() != JSON:
            if may_be_empty and self.header("Origin") is None and not await self._body():
                return b"{}"
            raise NotJson
        return await self._body() or (b"{}" if may_be_empty else b"")

    async def wish(self) -> bytes:
        """The body of a call that takes nothing else, and that may have none."""
        self.only(())
        return await self.json_body(may_be_empty=True)

    async def left(self) -> None:
        """Returns when the client has closed the connection."""
        while (await self.receive())["type"] != "http.disconnect":
            pass

    async def cut(self) -> None:
        """Close the connection with what nobody reads still in its buffer, where that can be done."""
        if self._direct is not None:
            self._direct.cut()
            await self.left()

    def answered(self, answer: Answer) -> bool:
        """Whether it went out at once; False: nothing of it did."""
        # Uvicorn closes what is to be closed.
        direct = self._direct
        if direct is None or "Connection" in answer.headers:
            return False
        return direct.answer(*answer.raw())

    @property
    def _direct(self) -> Direct | None:
        found: Direct | None = self.scope.get("extensions", {}).get(DIRECT, {}).get("call")
        return found

    async def _body(self) -> bytes:
        if self._read is not None:
            return self._read
        length = self.header("Content-Length")
        if length is not None and length.isdigit() and int(length[:20]) > MAX_BODY:
            raise TooLarge
        direct = self._direct
        whole = None if direct is None else direct.whole_body()
        if whole is None:
            whole = await self._coming_body()
        elif len(whole) > MAX_BODY:
            raise TooLarge
        self._read = whole
        return whole

    async def _coming_body(self) -> bytes:
        try:
            async with asyncio.timeout(self.body_seconds):
                return await self._received()
        except TimeoutError:
            raise BodyTooSlow from None

    async def _received(self) -> bytes:
        body = bytearray()
        while True:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise Gone
            body += message.get("body", b"")
            if len(body) > MAX_BODY:
                raise TooLarge
            if not message.get("more_body", False):
                return bytes(body)


class Answer(msgspec.Struct, frozen=True):
    """What goes back. `content` is anything msgspec can write as JSON, or bytes that go as they are."""

    content: object
    status: int = 200
    headers: dict[str, str] = {}
    media_type: str = JSON

    def raw(self) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
        """Status, headers and body, as they go over the wire."""
        body = self.content if isinstance(self.content, bytes) else _encoder.encode(self.content)
        headers = [(b"content-type", self.media_type.encode("latin-1")), (b"content-length", b"%d" % len(body))]
        if self.status == 204:  # which has none
            headers.clear()
        headers += ALWAYS
        headers += [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in self.headers.items()]
        return self.status, headers, body

    async def send(self, send: Send) -> None:
        status, headers, body = self.raw()
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


@dataclass(frozen=True, slots=True)
class Streaming:
    """An answer without an end of its own: what `pieces` gives goes out as it comes. `place` is given back afterwards."""

    call: Call
    pieces: AsyncGenerator[bytes, None]
    place: AbstractContextManager[None]
    media_type: str = EVENT_STREAM
    unread_seconds: float = UNREAD_SECONDS

    async def send(self, send: Send) -> None:
        with self.place:
            # Proxies must not keep it back until it is complete.
            headers = {"Content-Type": self.media_type, "Cache-Control": "no-store", "X-Accel-Buffering": "no"}
            encoded = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
            await send({"type": "http.response.start", "status": 200, "headers": encoded})
            if self.call.scope["method"] != "HEAD":
                async with aclosing(self.pieces) as pieces:
                    async for piece in pieces:
                        await self._send_piece(send, piece)
            await send({"type": "http.response.body", "body": b""})

    async def _send_piece(self, send: Send, piece: bytes) -> None:
        """`Gone` if the client reads nothing of what was sent before: the socket holds it up, and the limit is reached."""
        try:
            async with asyncio.timeout(self.unread_seconds):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        except TimeoutError:
            await self.call.cut()
            raise Gone from None
