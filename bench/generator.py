"""A cheap generator of load for a while: wrk where it is installed, else callers of our own in a process of theirs."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import signal
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from tests.anvil import ROOT

LUA: Final = Path(__file__).with_name("wrk.lua")


class Unusable(Exception):
    """The load was not what it should have been; the generator's own words follow."""


class Told(msgspec.Struct, frozen=True):
    """What a generator tells of its run."""

    seconds: float
    answered: int
    errors: int


class Load(msgspec.Struct, frozen=True):
    seconds: float
    answered: int
    share: float  # what the generator used of one core


def name() -> str:
    return "wrk" if shutil.which("wrk") else "our own callers (wrk is not installed: run `tools/install-wrk`)"


def write(file: Path, requests: Iterable[bytes]) -> None:
    with file.open("wb") as out:
        out.writelines(b"%d\n%b" % (len(request), request) for request in requests)


def read(file: Path) -> list[bytes]:
    requests, data, at = [], file.read_bytes(), 0
    while at < len(data):
        start = data.index(b"\n", at) + 1
        at = start + int(data[at : start - 1])
        requests.append(data[start:at])
    return requests


async def generate(service: str, file: Path, *, connections: int, seconds: float) -> Load:
    """Each request of the file once, on so many connections, until the time is over or all are answered."""
    process = await asyncio.create_subprocess_exec(
        *_command(service, file, connections, seconds),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        cwd=ROOT,
        start_new_session=True,
    )
    before = _used_by_children()
    try:
        _, said = await process.communicate()
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    try:
        told = msgspec.json.decode(said, type=Told)
    except msgspec.DecodeError:
        raise Unusable(said.decode(errors="replace")[-2000:]) from None
    if told.errors or not told.answered:
        raise Unusable(f"of {told.answered} requests {told.errors} failed")
    return Load(told.seconds, told.answered, (_used_by_children() - before) / told.seconds)


def _command(service: str, file: Path, connections: int, seconds: float) -> list[str]:
    if shutil.which("wrk"):
        options = ["--threads", "1", "--connections", str(connections), "--duration", f"{seconds:.0f}s"]
        return ["wrk", *options, "--timeout", "30s", "--script", str(LUA), service, "--", str(file)]
    return [sys.executable, "-m", "bench.callers", service, str(file), str(connections), str(seconds)]


def _used_by_children() -> float:
    """Seconds of a core, of those that ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
