"""A wire between a node and what it talks to, which can be cut, stalled, or made to lose what is said."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from enum import StrEnum
from typing import Self

CHUNK = 65_536


class Condition(StrEnum):
    WHOLE = "whole"
    CUT = "cut"  # connections are reset, new ones too
    STALLED = "stalled"  # nothing arrives, until it is whole again: then all of it does
    DEAF = "deaf"  # what is said is lost, and nobody is told until it is whole again


Heard = Callable[[bytes], Awaitable[None]]


class Link:
    """Connections to a port of this link go on to `target`. Who listens is given what a node says, before it goes on."""

    def __init__(self, target: int, heard: Callable[[], Heard] | None = None) -> None:
        self.condition = Condition.WHOLE
        self.port = 0
        self._target = target
        self._heard = heard
        self._flows = asyncio.Event()
        self._flows.set()
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def become(self, condition: Condition) -> None:
        before, self.condition = self.condition, condition
        if condition is Condition.CUT or (before is Condition.DEAF and condition is not Condition.DEAF):
            self.reset()
        if condition is Condition.STALLED:
            self._flows.clear()
        else:
            self._flows.set()

    def reset(self) -> None:
        for writer in self._open:
            writer.transport.abort()

    @asynccontextmanager
    async def standing(self) -> AsyncIterator[Self]:
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            self.become(Condition.CUT)
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._carry(reader, writer)
        except (OSError, asyncio.CancelledError):
            pass  # either end went away, or this one
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.condition is Condition.CUT:
            return
        there, onward = await asyncio.open_connection("127.0.0.1", self._target)
        ends = {writer, onward}
        self._open |= ends
        heard = None if self._heard is None else self._heard()
        ways = [
            asyncio.create_task(self._pump(reader, onward, heard)),
            asyncio.create_task(self._pump(there, writer, None)),
        ]
        try:
            # One direction closed: so is the other, as both protocols here do it.
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._open -= ends
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            onward.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, heard: Heard | None) -> None:
        while data := await reader.read(CHUNK):
            if heard is not None:
                await heard(data)
            await self._flows.wait()
            if self.condition is not Condition.DEAF:
                writer.write(data)
                await writer.drain()


class Ear:
    """Every signed transaction that a node let out, whatever became of it, and when, in milliseconds.

    Each is shown to `witness` before the last of its bytes goes on, so before the chain can have it.
    """

    SAID = re.compile(rb'eth_sendRawTransaction","params":\["0x([0-9a-f]+)"')
    WORD = b"eth_sendRawTransaction"

    def __init__(self, witness: Callable[[Sequence[bytes]], Awaitable[None]]) -> None:
        self.sent: dict[bytes, int] = {}
        self._witness = witness

    def connection(self) -> Heard:
        kept = b""

        async def heard(data: bytes) -> None:
            nonlocal kept
            kept += data
            end, passing = 0, list[bytes]()
            for found in self.SAID.finditer(kept):
                passing.append(bytes.fromhex(found[1].decode()))
                end = found.end()
            # What was said in part: from its first word, or the part of a word.
            begun = kept.find(self.WORD, end)
            kept = kept[begun if begun >= 0 else max(end, len(kept) - len(self.WORD)) :]
            for raw in passing:
                self.sent.setdefault(raw, time.time_ns() // 1_000_000)
            if passing:
                await self._witness(passing)

        return heard
