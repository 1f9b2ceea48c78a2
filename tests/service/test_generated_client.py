"""A stock generator makes a client of the OpenAPI document, without a warning, and that client works."""

import asyncio
import json
import os
from pathlib import Path

from tests.anvil import Anvil
from tests.conftest import ROOT
from tests.service.conftest import SETTINGS, running

PROGRAMS = ROOT / ".make" / "client-generator" / "bin"
USE = Path(__file__).with_name("use_generated_client.py")


async def run(*command: str | Path) -> str:
    process = await asyncio.create_subprocess_exec(
        *map(str, command),
        env={**os.environ, "PATH": f"{PROGRAMS}:{os.environ['PATH']}"},  # it formats what it wrote
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()
    return said.decode()


async def test_a_generated_client_sends_and_reads(tmp_path: Path, chain: Anvil) -> None:
    assert (PROGRAMS / "openapi-python-client").exists(), "the client generator is not installed: run `make install`"
    await chain.set_block_time(1)
    settings = SETTINGS.replace("http://127.0.0.1:1", chain.url).replace("request_timeout = 0.5", "poll_interval = 0.1")
    async with running(tmp_path, settings) as service:
        _, document, _ = await service.get("/openapi.json")
        described = tmp_path / "openapi.json"
        described.write_text(json.dumps(document))
        await run(
            *(PROGRAMS / "openapi-python-client", "generate", "--path", described, "--fail-on-warning"),
            *("--meta", "none", "--output-path", tmp_path / "generated"),
        )
        assert await run(PROGRAMS / "python", USE, tmp_path, service.url) == "used\n"
