"""One client's connection: what httptools and uvicorn leave open, the size of a head and the time it may take."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import (
    HEADER_VALUE_RE,
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from nonchalant.errors import BadRequest, NonchalantError
from nonchalant.service import http
from nonchalant.service.asgi import Service, problem
from nonchalant.service.http import DIRECT
from nonchalant.service.problems import HeadTooLarge

# A connection closed while more comes in is reset, and the client may never read why: so we hear it out, that long.
LINGER_SECONDS: Final = 1.0


class Connection(HttpToolsProtocol):
    """Closes when a head does not come in time, or when more is sent than a head may have and nothing comes of it."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        service = self.config.app
        assert isinstance(service, Service)
        self._service = service
        self._limits = service.limits
        self._head_is_due: asyncio.TimerHandle | None = None
        self._in_head = False
        self._pending = 0  # bytes since a head, a piece of a body or a message was complete
        self._moved = False
        self._too_large = False
        self._refused = False
        self._cycles: list[RequestResponseCycle] = []  # those that are not answered: uvicorn knows the newest alone

    # Narrower than what asyncio says, as it is in uvicorn.
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_came()
        super().connection_lost(exc)
        # Whoever sent more than one call at once is gone for the earlier ones, too.
        for cycle in self._cycles:
            if not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        self._moved = False
        super().data_received(data)
        # Most heads come whole: only what is left unfinished is timed.
        if self._in_head and self._head_is_due is None and not self._refused:
            self._await_head()
        self._pending = 0 if self._moved else self._pending + len(data)
        if self._pending > self._limits.head_bytes and not self._refused:
            self._refuse(HeadTooLarge())

    def send_400_response(self, msg: str) -> None:
        self._refuse(HeadTooLarge() if self._too_large else BadRequest(msg))

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head_came()
        self._in_head = True

    def on_headers_complete(self) -> None:
        self._moved = True
        self._head_came()
        size, is_forwarded = len(self.url), False
        for name, value in self.headers:
            size += len(name) + len(value)
            is_forwarded = is_forwarded or name.startswith(b"x-forwarded-")
        if size > self._limits.head_bytes:
            self._too_large = True
            raise HeadTooLarge  # for the parser, which stops; `send_400_response` follows
        # Who it is from, as a proxy says, is for uvicorn's middleware to find out; most calls come without one.
        self.app = self.config.loaded_app if is_forwarded else self._service
        super().on_headers_complete()
        self.scope["extensions"] = {DIRECT: {"call": _Direct(self.cycle)}}
        self._cycles = [one for one in self._cycles if not one.response_complete]
        self._cycles.append(self.cycle)

    def on_body(self, body: bytes) -> None:
        self._moved = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._moved = True
        super().on_message_complete()

    def timeout_keep_alive_handler(self) -> None:
        """Closing waits until all is read: for ever, if nobody reads."""
        super().timeout_keep_alive_handler()
        self._linger(self.transport.get_write_buffer_size())

    def _linger(self, unread: int) -> None:
        if unread:
            self.loop.call_later(http.UNREAD_SECONDS, self._cut_unless_read, unread)

    def _cut_unless_read(self, unread: int) -> None:
        left = self.transport.get_write_buffer_size()
        if left < unread:
            self._linger(left)
        else:
            self.transport.abort()

    def _await_head(self) -> None:
        self._head_is_due = self.loop.call_later(self._limits.head_seconds, self._head_is_late)

    def _head_came(self) -> None:
        self._in_head = False
        if self._head_is_due is not None:
            self._head_is_due.cancel()
            self._head_is_due = None

    def _head_is_late(self) -> None:
        # While an earlier call on this connection is answered, it stays; uvicorn closes it when it is idle after that.
        if not self._is_answering():
            self.transport.close()

    def _refuse(self, error: NonchalantError) -> None:
        self._refused = True
        self._head_came()
        if self._is_answering():
            self.transport.close()
            return
        status, headers, body = problem(error).raw()
        lines = [name + b": " + value + b"\r\n" for name, value in headers if name != b"connection"]
        self.transport.write(b"".join([STATUS_LINE[status], *lines, b"connection: close\r\n\r\n", body]))
        self.transport.write_eof()
        self.loop.call_later(LINGER_SECONDS, self.transport.close)

    def _is_answering(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle  # None before the first call, whatever uvicorn declares
        return cycle is not None and not cycle.response_complete


class _Direct:
    """`http.Direct`, for one call: what uvicorn's cycle would do in several steps, where none of them has to wait."""

    __slots__ = ("_cycle",)

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = cycle

    def whole_body(self) -> bytes | None:
        cycle = self._cycle
        if cycle.more_body or cycle.disconnected or cycle.waiting_for_100_continue:
            return None
        cycle.flow.resume_reading()
        cycle.message_event.clear()
        body, cycle.body = bytes(cycle.body), bytearray()
        return body

    def answer(self, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> bool:
        cycle = self._cycle
        if not cycle.keep_alive or cycle.disconnected or cycle.flow.write_paused or cycle.scope["method"] == "HEAD":
            return False
        if HEADER_VALUE_RE.search(b" ".join([value for _, value in headers])):
            return False  # uvicorn refuses it, too
        lines = [b"%b: %b\r\n" % line for line in (*cycle.default_headers, *headers)]
        cycle.response_started = True
        # In two pieces it would be two packets, and twice the system calls.
        cycle.transport.write(b"".join([STATUS_LINE[status], *lines, b"\r\n", body]))
        cycle.response_complete = True
        cycle.message_event.set()
        cycle.on_response()
        return True

    def cut(self) -> None:
        self._cycle.transport.abort()
