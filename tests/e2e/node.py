"""One node in a process of its own, to be killed.

It submits what a file of JSON lines asks for and is not acknowledged yet, as a client that tries again would, with an
idempotency key each; every acknowledgement is on disk before the next line is read. Then it works until SIGTERM.

    python -m tests.e2e.node --config n.toml --requests r.jsonl --acks a.jsonl --crash-at store.commit:after:2
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from nonchalant import logs
from nonchalant.app import Nonchalant, Wrap
from nonchalant.config import LogFormat
from nonchalant.errors import CommitUnknown, ShuttingDown, StoreUnavailable
from nonchalant.testing.crashpoints import CrashPoints, Point


class Acks:
    """Who was told that their transaction is accepted. On disk, like a client's own books."""

    def __init__(self, path: Path) -> None:
        self.keys = set(read_acks(path))
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, key: str, tx_id: str) -> None:
        os.write(self._file, json.dumps({"key": key, "id": tx_id}).encode() + b"\n")
        os.fsync(self._file)
        self.keys.add(key)


def read_acks(path: Path) -> dict[str, str]:
    """Idempotency key to transaction id; a last line torn by a kill was not acknowledged."""
    acks: dict[str, str] = {}
    if path.exists():
        for line in path.read_bytes().split(b"\n")[:-1]:
            ack = json.loads(line)
            acks[ack["key"]] = ack["id"]
    return acks


async def submit(node: Nonchalant, requests: list[dict[str, object]], acks: Acks, rate: float | None) -> None:
    async def one(request: dict[str, object]) -> None:
        with contextlib.suppress(ShuttingDown):
            while True:
                with contextlib.suppress(StoreUnavailable, CommitUnknown):
                    handle = await node.send(**request)
                    acks.write(str(request["idempotency_key"]), handle.id)
                    return
                await asyncio.sleep(0.1)

    async with asyncio.TaskGroup() as group:
        for request in requests:
            group.create_task(one(request))
            if rate:
                await asyncio.sleep(1 / rate)


async def run(options: argparse.Namespace) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    at = None if options.crash_at is None else Point.parse(options.crash_at)
    points = CrashPoints(at, reached=show if options.list_points else None)
    wrap = Wrap(store=points.store, endpoint=points.endpoint, signer=points.signer)
    # Somebody listens, so that events are read back too.
    async with Nonchalant.open(options.config, wrap=wrap) as node, heard(node):
        print("ready", flush=True)
        acks = Acks(options.acks)
        lines = [json.loads(line) for line in options.requests.read_text().splitlines()]
        client = asyncio.create_task(
            submit(node, [line for line in lines if line["idempotency_key"] not in acks.keys], acks, options.rate)
        )
        stopped = asyncio.create_task(stop.wait())
        await asyncio.wait([client, stopped], return_when=asyncio.FIRST_COMPLETED)
        if client.done():
            client.result()
            await stopped
        client.cancel()
        await asyncio.wait([client])


@contextlib.asynccontextmanager
async def heard(node: Nonchalant) -> AsyncIterator[None]:
    with node.stream.heard():
        yield


def show(number: int, point: Point) -> None:
    print(f"point {number} {point}", flush=True)


def speak_into(output: Path | None) -> None:
    """A file that takes what the process says, log and all."""
    if output is not None:
        said = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(said, 1)
        os.dup2(said, 2)


def main(arguments: Sequence[str] | None = None, output: Path | None = None) -> None:
    speak_into(output)
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.node", description=__doc__)
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--requests", type=Path, required=True)
    parser.add_argument("--acks", type=Path, required=True)
    parser.add_argument("--rate", type=float, help="submissions a second; all at once if left out")
    parser.add_argument("--crash-at", metavar="N|CALL:SIDE:OCCURRENCE", help="die by kill -9 at this point")
    parser.add_argument("--list-points", action="store_true", help="print every point as it is reached")
    options = parser.parse_args(arguments)
    logs.configure(LogFormat.JSON, sys.stderr)
    asyncio.run(run(options))


if __name__ == "__main__":
    main()
