"""The blocking client: the asynchronous one, in an event loop on a thread of its own."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from types import TracebackType
from typing import Any, Concatenate, Final, ParamSpec, Protocol, Self, TypeVar

from nonchalant.client.calling import DEFAULT_RETRIES, DEFAULT_TIMEOUT, Client
from nonchalant.client.keys import Keys
from nonchalant.client.lanes import ClientLane, Reservation
from nonchalant.client.webhooks import Webhooks

P = ParamSpec("P")
R = TypeVar("R")
I_co = TypeVar("I_co", covariant=True)


class Loop:
    """An event loop on its own thread, started by the first call. After a fork, the child's first call starts its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._process = os.getpid()

    @property
    def is_running(self) -> bool:
        return self._loop is not None and self._process == os.getpid()

    def run(self, work: Coroutine[Any, Any, R]) -> R:
        """What comes of it. A caller that is interrupted takes the work back."""
        future = asyncio.run_coroutine_threadsafe(work, self._started())
        try:
            return future.result()
        except BaseException:  # interrupted, too: nobody waits for it any more
            future.cancel()
            raise

    def stop(self) -> None:
        with self._lock:
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
            if loop is None or thread is None or self._process != os.getpid():
                return
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None or self._process != os.getpid():
                self._process = os.getpid()
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name="nonchalant-client", daemon=True)
                self._thread.start()
            return self._loop


class _Wraps(Protocol[I_co]):
    """Something blocking around something that is not."""

    @property
    def inner(self) -> I_co: ...
    @property
    def loop(self) -> Loop: ...


def _blocking(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[_Wraps[Any], P], R]:
    """The method of the same name, waited for."""

    @wraps(method)
    def call(self: _Wraps[Any], /, *given: P.args, **named: P.kwargs) -> R:
        return self.loop.run(method(self.inner, *given, **named))

    return call


def _iterating(
    method: Callable[Concatenate[Any, P], AsyncIterator[R]],
) -> Callable[Concatenate[_Wraps[Any], P], Iterator[R]]:
    """The method of the same name, one item after the other."""

    @wraps(method)
    def call(self: _Wraps[Any], /, *given: P.args, **named: P.kwargs) -> Iterator[R]:
        items = method(self.inner, *given, **named)
        try:
            while (item := self.loop.run(_next(items))) is not _END:
                yield item  # type: ignore[misc] # what is not the end is an item
        finally:
            if self.loop.is_running:  # else its connections are gone already
                self.loop.run(_closed(items))

    return call


_END: Final = object()


async def _next(items: AsyncIterator[R]) -> R | object:
    return await anext(items, _END)


async def _closed(items: AsyncIterator[object]) -> None:
    close = getattr(items, "aclose", None)
    if close is not None:
        await close()


class BlockingReservation:
    """A nonce that is kept for us; nobody else may speak for it."""

    def __init__(self, inner: Reservation, loop: Loop) -> None:
        self.inner = inner
        self.loop = loop
        self.nonce = inner.nonce
        self.holder = inner.holder  # a secret: whoever has it speaks for the nonce
        self.expires_at = inner.expires_at

    used = _blocking(Reservation.used)
    release = _blocking(Reservation.release)

    def __repr__(self) -> str:
        return f"<BlockingReservation {self.nonce}>"


class BlockingLane:
    """One account on one chain, as `ClientLane`."""

    def __init__(self, inner: ClientLane, loop: Loop) -> None:
        self.inner = inner
        self.loop = loop
        self.chain_id = inner.chain_id
        self.address = inner.address

    show = _blocking(ClientLane.show)
    pause = _blocking(ClientLane.pause)
    drain = _blocking(ClientLane.drain)
    resume = _blocking(ClientLane.resume)
    cancel_all = _blocking(ClientLane.cancel_all)
    sync = _blocking(ClientLane.sync)
    fill = _blocking(ClientLane.fill)
    reset = _blocking(ClientLane.reset)

    @contextmanager
    def reserve(self, seconds: float = 60.0) -> Iterator[BlockingReservation]:
        """As `ClientLane.reserve`."""
        slot = self.take(seconds)
        yield slot
        self.loop.run(slot.inner.leave())

    def take(self, seconds: float = 60.0) -> BlockingReservation:
        """As `reserve`, for those who say what became of it elsewhere: keep its `nonce` and its `holder`."""
        return BlockingReservation(self.loop.run(self.inner.take(seconds)), self.loop)

    def reserved(self, nonce: int, holder: str) -> BlockingReservation:
        """A nonce that was taken before, to say what became of it; whether it is still ours shows then."""
        return BlockingReservation(self.inner.reserved(nonce, holder), self.loop)

    def __repr__(self) -> str:
        return f"<BlockingLane {self.chain_id}:{self.address}>"


class BlockingKeys:
    """The keys of a service, as `Keys`."""

    def __init__(self, inner: Keys, loop: Loop) -> None:
        self.inner = inner
        self.loop = loop

    create = _blocking(Keys.create)
    list = _iterating(Keys.list)
    get = _blocking(Keys.get)
    revoke = _blocking(Keys.revoke)
    audit = _iterating(Keys.audit)


class BlockingWebhooks:
    """Where events are delivered to, as `Webhooks`."""

    def __init__(self, inner: Webhooks, loop: Loop) -> None:
        self.inner = inner
        self.loop = loop

    create = _blocking(Webhooks.create)
    list = _iterating(Webhooks.list)
    get = _blocking(Webhooks.get)
    change = _blocking(Webhooks.change)
    remove = _blocking(Webhooks.remove)
    enable = _blocking(Webhooks.enable)
    disable = _blocking(Webhooks.disable)
    rotate = _blocking(Webhooks.rotate)
    test = _blocking(Webhooks.test)
    replay = _blocking(Webhooks.replay)
    deliveries = _iterating(Webhooks.deliveries)
    replay_delivery = _blocking(Webhooks.replay_delivery)


class BlockingClient:
    """One service, from code that is not asynchronous; as `Client`. Threads may share it, and so may a running event loop,
    which then waits. Use it as `with BlockingClient() as client`, or close it when done."""

    def __init__(
        self,
        url: str | None = None,
        *,
        key: str | None = None,
        key_file: str | os.PathLike[str] | None = None,
        timeout: float = DEFAULT_TIMEOUT,
        retries: int = DEFAULT_RETRIES,
    ) -> None:
        self._make = partial(Client, url, key=key, key_file=key_file, timeout=timeout, retries=retries)
        self._client = self._make()
        self._process = os.getpid()
        self.loop = Loop()

    @property
    def inner(self) -> Client:
        """Connections do not survive a fork: the child has a client of its own."""
        if self._process != os.getpid():
            self._client, self._process = self._make(), os.getpid()
        return self._client

    @property
    def url(self) -> str:
        return self._client.url

    def close(self) -> None:
        """Give its connections and its thread back; a later call begins anew."""
        if self.loop.is_running:
            self.loop.run(self.inner.close())
            self.loop.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<BlockingClient {self.url}>"

    send = _blocking(Client.send)
    send_many = _blocking(Client.send_many)
    get = _blocking(Client.get)
    settled = _blocking(Client.settled)
    transactions = _iterating(Client.transactions)
    history = _blocking(Client.history)
    events = _iterating(Client.events)
    cancel = _blocking(Client.cancel)
    bump = _blocking(Client.bump)
    replace = _blocking(Client.replace)
    hold = _blocking(Client.hold)
    release = _blocking(Client.release)
    lanes = _blocking(Client.lanes)

    def do(self, work: Callable[[Client], Coroutine[Any, Any, R]]) -> R:
        """Several calls in one go: what the asynchronous client does with this function."""
        return self.loop.run(work(self.inner))

    @property
    def keys(self) -> BlockingKeys:
        """API keys and the audit log, for those who may see them."""
        return BlockingKeys(self.inner.keys, self.loop)

    @property
    def webhooks(self) -> BlockingWebhooks:
        """Where events are delivered to, for those who may say so."""
        return BlockingWebhooks(self.inner.webhooks, self.loop)

    def lane(self, chain_id: int, address: str) -> BlockingLane:
        """One account on one chain: to look at, to steer, or to reserve its nonces."""
        return BlockingLane(self.inner.lane(chain_id, address), self.loop)
