"""Stock clients, as anybody installs them, driven by a test: each sends, waits, deploys and reads in its own usual way."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from web3 import AsyncHTTPProvider, AsyncWeb3

from tests.anvil import ROOT

HERE = Path(__file__).resolve().parent
INSTALLED = Path(os.environ.get("NONCHALANT_CLIENTS") or ROOT / ".make" / "clients")
START_SECONDS = 120.0  # on a busy machine
ANSWER_SECONDS = 120.0

# Returns a contract that answers 42 to anything.
CODE = "0x69602a60005260206000f3600052600a6016f3"
ABI = [
    {"type": "function", "name": "answer", "stateMutability": "view", "inputs": [], "outputs": [{"type": "uint256"}]}
]


class ClientError(Exception):
    """The client itself gave up, in its own words."""


@dataclass(frozen=True)
class Outcome:
    """What the client calls the receipt."""

    hash: str
    status: int
    contract: str | None = None


class Client(Protocol):
    async def accounts(self) -> list[str]: ...
    async def send(self, **tx: str) -> str:
        """The hash it was told."""

    async def wait(self, hash: str) -> Outcome: ...
    async def deploy(self, sender: str) -> str: ...
    async def call(self, contract: str) -> int: ...


@dataclass
class Scripted:
    """A client in a process of Node, behind `driver.mjs`."""

    process: asyncio.subprocess.Process
    log: Path
    _last: int = 0
    _open: dict[int, asyncio.Future[Any]] = field(default_factory=dict)

    async def listen(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            answer = json.loads(line)
            waiting = self._open.pop(answer["id"])
            if waiting.done():
                continue
            if "error" in answer:
                waiting.set_exception(ClientError(f"{answer.get('code')}: {answer['error']} ({answer['all'][:500]})"))
            else:
                waiting.set_result(answer.get("result"))
        for waiting in self._open.values():
            if not waiting.done():
                waiting.set_exception(ClientError(f"it ended: {self.log.read_text()[-2000:]}"))

    async def ask(self, act: str, **given: object) -> Any:
        assert self.process.stdin is not None
        self._last += 1
        answer = self.expect(self._last)
        self.process.stdin.write(json.dumps({"id": self._last, "act": act, **given}).encode() + b"\n")
        return await asyncio.wait_for(answer, ANSWER_SECONDS)

    def expect(self, number: int) -> asyncio.Future[Any]:
        self._open[number] = asyncio.get_running_loop().create_future()
        return self._open[number]

    async def accounts(self) -> list[str]:
        return await self.ask("accounts")

    async def send(self, **tx: str) -> str:
        return await self.ask("send", tx=tx)

    async def wait(self, hash: str) -> Outcome:
        return Outcome(**await self.ask("wait", hash=hash))

    async def deploy(self, sender: str) -> str:
        return await self.ask("deploy", **{"from": sender, "code": CODE})

    async def call(self, contract: str) -> int:
        return await self.ask("call", contract=contract)


@asynccontextmanager
async def scripted(name: str, url: str, folder: Path) -> AsyncIterator[Scripted]:
    """Its script beside its packages, as in anybody's project."""
    for script in (*HERE.glob("*.mjs"), HERE / "hardhat.config.js"):
        shutil.copy(script, folder)
    (folder / "package.json").write_text('{"type": "module"}')
    (folder / "node_modules").symlink_to(INSTALLED / "node_modules")
    log = folder / "log"
    with log.open("wb") as said:
        process = await asyncio.create_subprocess_exec(
            str(INSTALLED / "node-program"),
            f"{name}.mjs",
            cwd=folder,
            env={**os.environ, "RPC_URL": url, "HOME": str(folder), "HARDHAT_DISABLE_TELEMETRY_PROMPT": "true"},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=said,
            limit=2**20,
        )
    client = Scripted(process, log)
    ready = client.expect(0)
    listening = asyncio.create_task(client.listen())
    try:
        await asyncio.wait_for(ready, START_SECONDS)
        yield client
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        await listening


class Web3Py:
    def __init__(self, url: str) -> None:
        self.w3 = AsyncWeb3(AsyncHTTPProvider(url))

    async def accounts(self) -> list[str]:
        return list(await self.w3.eth.accounts)

    async def send(self, **tx: str) -> str:
        given: dict[str, Any] = {**tx, "value": int(tx.get("value", "0"), 0)}
        for name in ("from", "to"):
            if name in given:
                given[name] = self.w3.to_checksum_address(given[name])
        return (await self.w3.eth.send_transaction(given)).to_0x_hex()

    async def wait(self, hash: str) -> Outcome:
        receipt = await self.w3.eth.wait_for_transaction_receipt(hash, timeout=ANSWER_SECONDS)
        return Outcome(receipt["transactionHash"].to_0x_hex(), receipt["status"], receipt["contractAddress"])

    async def deploy(self, sender: str) -> str:
        made = self.w3.eth.contract(abi=ABI, bytecode=CODE).constructor()
        return (await made.transact({"from": self.w3.to_checksum_address(sender)})).to_0x_hex()

    async def call(self, contract: str) -> int:
        address = self.w3.to_checksum_address(contract)
        return await self.w3.eth.contract(address, abi=ABI).functions.answer().call()


@dataclass
class Cast:
    """The command: it sends and waits in one, so the hash is what the service was asked for."""

    url: str
    folder: Path
    last_hash: Callable[[str], Any]  # of an account, as the service answered it
    _waiting: dict[str, asyncio.Task[dict[str, Any]]] = field(default_factory=dict)

    async def accounts(self) -> list[str]:
        return json.loads(await self.run("rpc", "eth_accounts"))

    async def send(self, **tx: str) -> str:
        value = ["--value", str(int(tx["value"], 0))] if "value" in tx else []
        return await self._begin(tx["from"], tx["to"], *value)

    async def deploy(self, sender: str) -> str:
        return await self._begin(sender, "--create", CODE)

    async def _begin(self, sender: str, *given: str) -> str:
        before = await self.last_hash(sender)
        running = asyncio.create_task(self.send_and_wait(sender, *given))
        async with asyncio.timeout(ANSWER_SECONDS):
            while (hash := await self.last_hash(sender)) == before:
                if running.done():
                    running.result()
                await asyncio.sleep(0.05)
        self._waiting[hash] = running
        return hash

    async def send_and_wait(self, sender: str, *given: str) -> dict[str, Any]:
        # What it prints before the receipt failed is the receipt.
        return json.loads(await self.run("send", "--unlocked", "--from", sender, "--json", "--timeout", "100", *given))

    async def wait(self, hash: str) -> Outcome:
        receipt = await self._waiting.pop(hash)
        return Outcome(receipt["transactionHash"], int(receipt["status"], 0), receipt["contractAddress"])

    async def call(self, contract: str) -> int:
        return int((await self.run("call", contract, "answer()(uint256)")).split()[0])

    async def run(self, *arguments: str) -> str:
        # Before the rest: what follows the code of a contract are its arguments.
        command, *rest = arguments
        return await program(str(INSTALLED / "cast"), command, "--rpc-url", self.url, *rest, folder=self.folder)


async def program(*command: str, folder: Path, **environ: str) -> str:
    """What it prints; `ClientError` with its last words if it fails and prints nothing."""
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=folder,
        env={**os.environ, "HOME": str(folder), "FOUNDRY_DISABLE_NIGHTLY_WARNING": "1", **environ},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            said, complained = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            with contextlib.suppress(ProcessLookupError):
                await process.wait()
    if process.returncode and not said.strip():
        raise ClientError(complained.decode()[-2000:])
    return said.decode()
