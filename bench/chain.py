"""The chain's node, a process of its own: the stub, or anvil."""

from __future__ import annotations

import asyncio
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import msgspec

from bench.rpc import Rpc, connected
from bench.work import CHAIN_ID, payees, payers
from tests import anvil

Kind = Literal["stub", "anvil"]

BLOCK_SECONDS: Final = 0.25
FUNDS: Final = hex(10**24)

# Its own limit ends a block at 1,428 transfers; states of old blocks would be written under the home directory.
ANVIL_OPTIONS: Final = ("--gas-limit", "300000000000", "--order", "fifo", "--prune-history")


@dataclass(frozen=True, slots=True)
class Chain:
    kind: Kind
    url: str
    pid: int
    rpc: Rpc


@asynccontextmanager
async def running(kind: Kind, lanes: int, *, first_nonce: int = 0) -> AsyncIterator[Chain]:
    """A new chain on which the payers of so many lanes have funds; on a stub, each may have sent something before."""
    if kind == "stub":
        async with _stub(lanes, first_nonce) as (url, pid), connected(url) as rpc:
            yield Chain(kind, url, pid, rpc)
        return
    async with anvil.running(*ANVIL_OPTIONS, block_time=BLOCK_SECONDS) as node, connected(node.url) as rpc:
        await rpc.calls("anvil_setBalance", [(payer, FUNDS) for payer in payers(lanes)])
        yield Chain(kind, node.url, node.process.pid, rpc)


@asynccontextmanager
async def _stub(lanes: int, first_nonce: int) -> AsyncIterator[tuple[str, int]]:
    with tempfile.TemporaryDirectory(prefix="stub-") as folder:
        known = Path(folder) / "payers.json"
        known.write_bytes(msgspec.json.encode(dict(zip(payees(lanes), payers(lanes), strict=True))))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "nonchalant.testing.stub", "--chain-id", str(CHAIN_ID)),
            *("--block-time", str(BLOCK_SECONDS), "--payers", str(known), "--first-nonce", str(first_nonce)),
            start_new_session=True,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        try:
            url = (await process.stdout.readline()).decode().strip()
            if not url:
                raise RuntimeError("the stub node did not start; its own words are above")
            yield url, process.pid
        finally:
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)
            await process.wait()
