"""Ours as a service: `nonchalant serve`, as a user would start it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import aiohttp

from bench import settings
from tests.ports import free_port

START_SECONDS: Final = 60.0


class NotStarted(Exception):
    """The service did not start; the end of its log follows."""


@dataclass(frozen=True, slots=True)
class Service:
    url: str
    pid: int


@asynccontextmanager
async def running(folder: Path, *, url: str, store: str, lanes: int) -> AsyncIterator[Service]:
    """One node of its own on the store."""
    port = free_port()
    file = settings.write(folder, url=url, store=store, lanes=lanes, port=port)
    log = folder / f"serve-{port}.log"
    with log.open("wb") as said:
        process = await asyncio.create_subprocess_exec(
            *(str(Path(sys.executable).with_name("nonchalant")), "serve", "--config", str(file)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
    try:
        service = Service(f"http://127.0.0.1:{port}", process.pid)
        await _ready(service, process, log)
        yield service
    finally:
        if process.returncode is None:
            os.kill(process.pid, signal.SIGTERM)
        await process.wait()


async def _ready(service: Service, process: asyncio.subprocess.Process, log: Path) -> None:
    try:
        async with asyncio.timeout(START_SECONDS), aiohttp.ClientSession() as session:
            while process.returncode is None:
                try:
                    async with session.get(f"{service.url}/readyz") as answer:
                        if answer.status == 200:
                            return
                except aiohttp.ClientError:
                    pass
                await asyncio.sleep(0.05)
    except TimeoutError:
        pass
    raise NotStarted(log.read_text()[-3000:])
