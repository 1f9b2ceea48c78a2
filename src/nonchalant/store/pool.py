"""Connections that are lent and given back. The driver has such a thing too; giving one back to that takes it three turns of
the event loop, before the caller has its answer, and nearly as long as a small question itself.

Nothing is kept in a session, so there is nothing to clean up when one comes back.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import asyncpg

Connect = Callable[[], Awaitable[asyncpg.Connection]]

# One that nobody used for so long is closed.
IDLE_SECONDS = 300.0


class Pool:
    """At most so many, made when they are needed; the one that was used last goes first."""

    def __init__(self, connect: Connect, most: int, *, patience: float) -> None:
        self._connect = connect
        self._most = most
        self._patience = patience  # how long to wait for one, in seconds
        self._free: deque[tuple[float, asyncpg.Connection]] = deque()  # since when
        self._all: set[asyncpg.Connection] = set()
        self._room = most  # for others
        # Whoever waits gets a connection, or None: there is room to make one.
        self._waiting: deque[asyncio.Future[asyncpg.Connection | None]] = deque()
        self._recovering: set[asyncio.Task[None]] = set()
        self._closed = False

    async def acquire(self) -> asyncpg.Connection:
        """One to be given back. `TimeoutError` if none is given back for too long."""
        if self._closed:
            raise asyncpg.InterfaceError("the connections were closed")
        now = asyncio.get_running_loop().time()
        while self._free:
            since, connection = self._free.pop()
            if not connection.is_closed() and now - since <= IDLE_SECONDS:
                return connection
            connection.terminate()
            self._forget(connection)
        if self._room:
            self._room -= 1
            return await self._made()
        return await self._given() or await self._made()

    def release(self, connection: asyncpg.Connection) -> None:
        if not connection.is_closed() and connection.is_in_transaction():
            connection.terminate()  # whatever left it so: the next one would write into what nobody commits
        if self._closed or connection.is_closed():
            self._forget(connection)
            return
        now = asyncio.get_running_loop().time()
        if not self._hand(connection):
            self._free.append((now, connection))
        while self._free and now - self._free[0][0] > IDLE_SECONDS:
            _, unused = self._free.popleft()
            unused.terminate()
            self._forget(unused)

    def release_interrupted(self, connection: asyncpg.Connection) -> None:
        """One whose question was called off: it is lent again once the server has heard of that."""
        task = asyncio.create_task(self._recovered(connection))
        self._recovering.add(task)
        task.add_done_callback(self._recovering.discard)

    async def _recovered(self, connection: asyncpg.Connection) -> None:
        is_well = False
        try:
            async with asyncio.timeout(self._patience):
                await connection.fetchval("SELECT 1")  # the driver has it wait for the end of the other
            is_well = True
        except (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError):
            pass
        finally:
            if not is_well:
                connection.terminate()
            self.release(connection)

    @asynccontextmanager
    async def lent(self) -> AsyncIterator[asyncpg.Connection]:
        connection = await self.acquire()
        try:
            yield connection
        finally:
            self.release(connection)

    def terminate(self) -> None:
        """All at once, also those that are lent."""
        self._closed = True
        for connection in self._all:
            connection.terminate()
        self._free.clear()
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_exception(asyncpg.InterfaceError("the connections were closed"))

    async def _made(self) -> asyncpg.Connection:
        """A new one, for which room is kept."""
        try:
            connection = await self._connect()
        except BaseException:  # cancelled, too: the room is another's
            self._make_room()
            raise
        if self._closed:
            connection.terminate()
            raise asyncpg.InterfaceError("the connections were closed")
        self._all.add(connection)
        return connection

    async def _given(self) -> asyncpg.Connection | None:
        waiter: asyncio.Future[asyncpg.Connection | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            async with asyncio.timeout(self._patience):
                return await asyncio.shield(waiter)
        except BaseException:  # given up at the very moment it came, it is the next one's
            if waiter.done() and not waiter.exception():
                given = waiter.result()
                if given is None:
                    self._make_room()
                else:
                    self.release(given)
            waiter.cancel()
            raise

    def _forget(self, connection: asyncpg.Connection) -> None:
        if connection in self._all:
            self._all.discard(connection)
            self._make_room()

    def _make_room(self) -> None:
        if not self._hand(None):
            self._room += 1

    def _hand(self, connection: asyncpg.Connection | None) -> bool:
        """To whoever waits longest; False: nobody does."""
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(connection)
                return True
        return False
