"""Callers of a service that cost next to nothing: connections that write what was written beforehand, and of an answer
read how it went and where it ends."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import urlsplit

import msgspec
import uvloop

from bench import generator

LENGTH: Final = b"content-length: "
END_OF_HEAD: Final = b"\r\n\r\n"


class Refused(Exception):
    """The service did not take what it was given; its words follow."""


class Connection(asyncio.Protocol):
    """One question at a time; `answered` is called with this connection when its answer is complete."""

    def __init__(self, answered: Callable[[Connection], None], failed: Callable[[Exception], None]) -> None:
        self._answered = answered
        self._failed = failed
        self._read = b""
        self._end = 0  # of the answer; 0: its head is not complete
        self._transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.WriteTransport", transport)  # uvloop's is one by its methods only

    def ask(self, request: bytes) -> None:
        assert self._transport is not None
        self._transport.write(request)

    def close(self) -> None:
        assert self._transport is not None
        self._failed = lambda _: None
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self._read += data
        if not self._end and (head := self._read.find(END_OF_HEAD)) > 0:
            at = self._read.index(LENGTH) + len(LENGTH)
            self._end = head + len(END_OF_HEAD) + int(self._read[at : self._read.index(b"\r", at)])
        if self._end and len(self._read) >= self._end:
            # JSON-RPC answers 200 to what it refuses too.
            if self._read[9:12] != b"202" and (self._read[9:12] != b"200" or b'"error"' in self._read):
                self._failed(Refused(self._read[-500:].decode(errors="replace")))
                return
            self._read, self._end = b"", 0
            self._answered(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._failed(exc or Refused("the service closed the connection"))


class Pool:
    """So many connections, over all of the services; `answered` as above. Whatever goes wrong is raised by `until`."""

    def __init__(self, services: Sequence[str], connections: int, answered: Callable[[Connection], None]) -> None:
        self._services = services
        self._wanted = connections
        self._answered = answered
        self._trouble: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.connections: list[Connection] = []

    async def open(self) -> None:
        loop = asyncio.get_running_loop()
        for number in range(self._wanted):
            where = urlsplit(self._services[number % len(self._services)])
            assert where.hostname is not None
            assert where.port is not None
            _, made = await loop.create_connection(
                lambda: Connection(self._answered, self._fail), where.hostname, where.port
            )
            self.connections.append(made)

    async def until(self, done: asyncio.Event) -> None:
        waiting: asyncio.Future[Any] = asyncio.ensure_future(done.wait())
        await asyncio.wait([waiting, self._trouble], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if self._trouble.done():
            self._trouble.result()

    def close(self) -> None:
        for connection in self.connections:
            connection.close()

    def _fail(self, trouble: Exception) -> None:
        if not self._trouble.done():
            self._trouble.set_exception(trouble)


async def ask_all(
    services: Sequence[str],
    connections: int,
    requests: Sequence[bytes],
    *,
    began: Callable[[], None] = lambda: None,
    seconds: float | None = None,
) -> int:
    """Every request, as fast as the answers come; how many were answered. `began` is called when all connections stand.
    `seconds`: after so long no further one is asked."""
    waiting: Iterator[bytes] = iter(requests)
    asked, answered, done = 0, 0, asyncio.Event()
    until = None if seconds is None else time.monotonic() + seconds

    def ask(connection: Connection) -> None:
        nonlocal asked
        if until is not None and time.monotonic() > until:
            return
        if (request := next(waiting, None)) is not None:
            asked += 1
            connection.ask(request)

    def on_answer(connection: Connection) -> None:
        nonlocal answered
        answered += 1
        ask(connection)
        if answered == asked:
            done.set()

    pool = Pool(services, min(connections, len(requests)), on_answer)
    await pool.open()
    began()
    for connection in pool.connections:
        ask(connection)
    try:
        await pool.until(done)
    finally:
        pool.close()
    return answered


async def _generate(service: str, file: Path, connections: int, seconds: float) -> None:
    requests = generator.read(file)
    began = time.monotonic()
    answered = await ask_all([service], connections, requests, seconds=seconds)
    told = generator.Told(time.monotonic() - began, answered, 0)
    sys.stderr.buffer.write(msgspec.json.encode(told))


if __name__ == "__main__":
    where, requests, many, longest = sys.argv[1:]
    uvloop.run(_generate(where, Path(requests), int(many), float(longest)))
