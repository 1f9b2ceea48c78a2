"""The README's first screen works as it is printed."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from nonchalant.devchain import MNEMONIC, RECIPIENT
from tests import anvil
from tests.docs.pages import ROOT, Block, blocks
from tests.service.conftest import CHECKSUMMED


def example() -> Block:
    [found] = [block for block in blocks("python") if block.page == "README.md"]
    return found


async def run(folder: Path) -> str:
    (folder / "pay.py").write_text(example().text)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "pay.py", cwd=folder, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    async with asyncio.timeout(60):
        output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
    return output.decode()


def settings(endpoint: str, key: str) -> str:
    return f"""
    store = "sqlite:nonchalant.db"
    auth = "off"
    [[chains]]
    id = {anvil.CHAIN_ID}
    endpoints = ["{endpoint}"]
    poll_interval = 0.1
    [[accounts]]
    chains = [{anvil.CHAIN_ID}]
    key = {key}
    """


async def test_the_library_example_pays_once_however_often_it_is_run(tmp_path: Path) -> None:
    home = tmp_path / ".nonchalant"
    home.mkdir()
    async with anvil.running(block_time=0.2) as chain:
        (home / "mnemonic").write_text(MNEMONIC)
        (home / "mnemonic").chmod(0o600)
        (home / "nonchalant.toml").write_text(settings(chain.url, '{ mnemonic = { file = "mnemonic" } }'))
        before = int(await chain.rpc("eth_getBalance", RECIPIENT, "latest"), 16)
        first, second = await run(tmp_path), await run(tmp_path)
        paid = int(await chain.rpc("eth_getBalance", RECIPIENT, "latest"), 16) - before
    assert first.startswith("confirmed 0x")
    assert second == first
    assert paid == 10**15


def test_the_first_screen_has_the_two_commands_and_the_example() -> None:
    first_screen = (ROOT / "README.md").read_text().partition("\n## ")[0]
    assert "\nmake run\n" in first_screen
    assert f".venv/bin/nonchalant send --to {RECIPIENT} --value 0.01ether" in first_screen
    assert example().text in first_screen


def test_the_example_of_the_package_is_the_readmes_in_short() -> None:
    import nonchalant

    assert nonchalant.__doc__ is not None
    for call in ("async with Nonchalant.open(", "await nc.send(", "await tx.settled()"):
        assert call in nonchalant.__doc__
        assert call in example().text


def code_of(page: str) -> dict[str, Any]:
    """What the page's block of Python defines."""
    [block] = [block for block in blocks("python") if block.page == f"docs/how-to/{page}.md"]
    defined: dict[str, Any] = {}
    exec(compile(block.text, block.page, "exec"), defined)
    return defined


@asynccontextmanager
async def a_node(folder: Path) -> AsyncIterator[Any]:
    from nonchalant import Nonchalant
    from nonchalant.config import parse_settings

    key = folder / "key"
    key.write_text(anvil.KEYS[0])
    key.chmod(0o600)
    async with anvil.running(block_time=0.2) as chain:
        text = settings(chain.url, '{ file = "key" }')
        async with Nonchalant.open(parse_settings(text, folder=folder, environ={})) as nc:
            yield nc


async def test_the_code_of_the_how_to_works(tmp_path: Path) -> None:
    """It is defined by running the block, and called as its text says."""
    shown = code_of("embed-the-library")
    async with a_node(tmp_path) as nc:
        tx_id = await shown["pay"](nc, 7, RECIPIENT, 5)
        assert tx_id == await shown["pay"](nc, 7, RECIPIENT, 5)
        assert (await shown["outcome"](nc, tx_id)).startswith("paid, for ")


async def test_the_code_that_calls_the_service_works(tmp_path: Path) -> None:
    from nonchalant.client import Client
    from nonchalant.config import Listen
    from nonchalant.service.server import bind, serve, url_of

    shown, stop = code_of("call-it-from-python"), asyncio.Event()
    for_web3 = code_of("use-it-with-web3py")
    async with a_node(tmp_path) as nc:
        with bind(Listen("127.0.0.1", 0)) as listening:
            serving = asyncio.create_task(serve(nc, listening, stop))
            async with Client(url_of(listening)) as client:
                tx_id = await shown["pay"](client, 7, RECIPIENT, 5)
                assert tx_id == await shown["pay"](client, 7, RECIPIENT, 5)
                assert (await shown["outcome"](client, tx_id)).startswith("paid, for ")
            url, node = url_of(listening), nc.settings.chains[0].endpoints[0].url
            assert await asyncio.to_thread(for_web3["pay"], node, url, CHECKSUMMED, RECIPIENT, 5) == 1
            stop.set()
            await serving


async def test_the_code_that_cancels_works(tmp_path: Path) -> None:
    shown = code_of("cancel-replace-expire")
    async with a_node(tmp_path) as nc:
        assert await shown["pay_within_a_minute"](nc) in ("cancelled", "confirmed")
