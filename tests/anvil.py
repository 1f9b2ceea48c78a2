"""A real anvil of our own: started on a free port in a temporary folder, stopped by its pid."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from tests.ports import free_port

ROOT = Path(__file__).resolve().parent.parent
CHAIN_ID = 31337
MNEMONIC = "test test test test test test test test test test test junk"
PATH = "m/44'/60'/0'/0"
KEYS = (
    "0xac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80",
    "0x59c6995e998f97a5a0044966f0945389dc9e86dae88c7a8412f4603b6b78690d",
    "0x5de4111afa1a4b94908f83103eb1f1706367c2e68ca870fc3fb9a804cdab365a",
    "0x7c852118294e51e653712a81e05800f419141751be58f605c371e15141b007a6",
    "0x47e179ec197488593b187f80a00eb0da91f1b9d0b13f8733639f19c30a34926a",
)
ADDRESSES = (
    "0xf39fd6e51aad88f6f4ce6ab8827279cfffb92266",
    "0x70997970c51812dc3a010c7d01b50e0d17dc79c8",
    "0x3c44cdddb6a900fa2b585dd299e03d12fa4293bc",
    "0x90f79bf6eb2c4f870365e785982e1f101e93b906",
    "0x15d34aaf54267db7d7c367839aaf71a00a2c6a65",
)

START_SECONDS = 120.0  # dozens of them start at once


class NodeError(Exception):
    """The node answered a question of the test with an error."""


def binary() -> Path:
    """Where anvil is: what NONCHALANT_ANVIL says, on the PATH, or as make installed it."""
    installed = ROOT.glob(".make/anvil/node_modules/@foundry-rs/anvil-*/bin/anvil")
    found = os.environ.get("NONCHALANT_ANVIL") or shutil.which("anvil") or next(installed, None)
    if found is None:
        raise FileNotFoundError("anvil is not installed: run `make install`")
    return Path(found)


class Anvil:
    """One running node. Mining is by hand unless `block_time` is given: nothing happens that the test did not ask."""

    def __init__(self, process: asyncio.subprocess.Process, port: int, session: aiohttp.ClientSession) -> None:
        self.process = process
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self._session = session

    async def rpc(self, method: str, *params: object) -> Any:
        question = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        async with self._session.post(self.url, json=question) as response:
            answer = await response.json()
        if "error" in answer:
            raise NodeError(f"{method}: {answer['error']}")
        return answer["result"]

    async def height(self) -> int:
        return int(await self.rpc("eth_blockNumber"), 16)

    async def mine(self, blocks: int = 1) -> None:
        await self.rpc("anvil_mine", hex(blocks))

    async def reorg(self, depth: int, transactions: Sequence[tuple[object, int]] = ()) -> None:
        """Replace the last `depth` blocks; anvil forgets what they executed, unless it is given to be put in again
        as (raw hex or call object, index of the new block)."""
        await self.rpc("anvil_reorg", depth, list(transactions))

    async def rollback(self, depth: int) -> None:
        """Take the last `depth` blocks away."""
        await self.rpc("anvil_rollback", depth)

    async def set_automine(self, on: bool) -> None:
        await self.rpc("evm_setAutomine", on)

    async def set_block_time(self, seconds: int) -> None:
        """0 stops mining by the clock."""
        await self.rpc("evm_setIntervalMining", seconds)

    async def set_balance(self, address: str, wei: int) -> None:
        await self.rpc("anvil_setBalance", address, hex(wei))

    async def set_nonce(self, address: str, nonce: int) -> None:
        await self.rpc("anvil_setNonce", address, hex(nonce))

    async def set_code(self, address: str, code: bytes) -> None:
        await self.rpc("anvil_setCode", address, "0x" + code.hex())

    async def set_next_base_fee(self, wei: int) -> None:
        await self.rpc("anvil_setNextBlockBaseFeePerGas", hex(wei))

    async def drop(self, transaction_hash: str) -> None:
        """Throw one transaction out of the mempool."""
        await self.rpc("anvil_dropTransaction", transaction_hash)

    async def drop_all(self) -> None:
        await self.rpc("anvil_dropAllTransactions")

    async def send_as(self, sender: str, **call: object) -> str:
        """A foreign transaction: the node signs it, whoever the sender is."""
        await self.rpc("anvil_impersonateAccount", sender)
        transaction_hash: str = await self.rpc("eth_sendTransaction", {"from": sender, **call})
        return transaction_hash

    async def snapshot(self) -> str:
        identifier: str = await self.rpc("evm_snapshot")
        return identifier

    async def revert(self, snapshot: str) -> None:
        await self.rpc("evm_revert", snapshot)

    async def stop(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()


@asynccontextmanager
async def running(
    *options: str,
    path: Path | None = None,
    port: int | None = None,
    chain_id: int = CHAIN_ID,
    block_time: float | None = None,
    slots_in_an_epoch: int = 1,
) -> AsyncIterator[Anvil]:
    """An anvil that answers. `port` lets a test start it again where it was; `options` go to anvil as they are."""
    port = port or free_port()
    mining = ["--no-mining"] if block_time is None else ["--block-time", str(block_time)]
    command = [
        *(str(path or binary()), "-q", "--port", str(port), "--chain-id", str(chain_id)),
        *("--slots-in-an-epoch", str(slots_in_an_epoch), *mining, *options),
    ]
    with tempfile.TemporaryDirectory(prefix="anvil-") as folder:
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=folder,
            env={**os.environ, "HOME": folder},  # it keeps old states under the home directory
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        async with aiohttp.ClientSession() as session:
            node = Anvil(process, port, session)
            try:
                await _answering(node)
                yield node
            finally:
                await node.stop()


async def _answering(node: Anvil) -> None:
    async with asyncio.timeout(START_SECONDS):
        while True:
            if node.process.returncode is not None:
                raise RuntimeError(f"anvil ended with {node.process.returncode} before it answered")
            try:
                await node.rpc("eth_chainId")
            except aiohttp.ClientError:
                await asyncio.sleep(0.02)
            else:
                return
