"""The HTTP server, in the engine's own event loop, from its socket to its last answer."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import faulthandler
import os
import signal
import socket
import threading
from collections.abc import Iterator
from typing import Final

import structlog
import uvicorn

from nonchalant.config import Listen
from nonchalant.errors import BadSettings
from nonchalant.service.asgi import Limits, Service
from nonchalant.service.connection import Connection
from nonchalant.service.front import Node

# How long calls under way may take once we stop; a call that waits for a change answers at once.
GRACE_SECONDS: Final = 10
BACKLOG: Final = 2048

log = structlog.get_logger()


def bind(listen: Listen) -> socket.socket:
    """A socket bound there; `BadSettings` with the remedy if it cannot be."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            listen.host, listen.port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP
        )[0]
        # With its protocol named, or asyncio takes it for something else than TCP and every answer waits 40 ms.
        bound = socket.socket(family, kind, protocol)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
            bound.listen(BACKLOG)
        except OSError:
            bound.close()
            raise
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            problem = "another program listens there; stop it, or choose another port"
        else:
            problem = error.strerror or str(error)
        raise BadSettings(f"cannot listen on {listen}: {problem}") from None
    return bound


def url_of(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


async def serve(node: Node, listening: socket.socket, stop: asyncio.Event, limits: Limits | None = None) -> None:
    """Answer calls until `stop` is set; then take no more, answer those under way, and return."""
    service = Service(node, limits)
    config = uvicorn.Config(
        service,
        http=Connection,
        loop="none",  # we run inside one already
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )
    server = _Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
        service.close()
        server.should_exit = True
        await serving


@contextlib.contextmanager
def until_signalled(longest: float) -> Iterator[asyncio.Event]:
    """An event that SIGTERM, SIGINT or SIGHUP sets. A second one ends the process at once: every step survives that.

    So does the end of the `longest` time, in seconds, that stopping may take, whatever hangs: also a thread that waits
    for a name server, which Python would wait for.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        if stop.is_set():
            os._exit(1)
        stop.set()
        last = threading.Timer(longest, _give_up, [longest])
        last.daemon = True  # nobody waits for it
        last.start()

    # What was told to be ignored (nohup) stays ignored.
    signals = [
        number
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        if signal.getsignal(number) is not signal.SIG_IGN
    ]
    for number in signals:
        loop.add_signal_handler(number, on_signal)
    try:
        yield stop
    finally:
        for number in signals:
            loop.remove_signal_handler(number)


def _give_up(seconds: float) -> None:
    log.error("shutdown.given_up", seconds=seconds)
    faulthandler.dump_traceback()  # where it hangs
    os._exit(1)


class _Server(uvicorn.Server):
    """Signals belong to whoever runs the engine too."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
