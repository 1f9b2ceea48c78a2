"""`python -m nonchalant.testing.stub`: the stub as a process of its own, until it is told to end."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from pathlib import Path

import msgspec
import uvloop

from nonchalant.testing.stub.server import StubNode


async def _run(options: argparse.Namespace) -> None:
    payers = {} if options.payers is None else msgspec.json.decode(options.payers.read_bytes(), type=dict[str, str])
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with StubNode(
        options.chain_id,
        block_seconds=options.block_time,
        final_depth=options.final_depth,
        payers=payers,
        first_nonce=options.first_nonce,
        port=options.port,
    ) as node:
        sys.stdout.write(f"{node.url}\n")
        sys.stdout.flush()
        await stop.wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m nonchalant.testing.stub", description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--chain-id", type=int, default=31337)
    parser.add_argument("--block-time", type=float, default=0.25)
    parser.add_argument("--final-depth", type=int, default=2)
    parser.add_argument("--first-nonce", type=int, default=0, help="how many every account has sent before")
    parser.add_argument("--payers", type=Path, help="JSON: who pays whom, by the address that is paid")
    uvloop.run(_run(parser.parse_args()))
