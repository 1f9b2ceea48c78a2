"""Every line of a node at work says which node wrote it, and about which lane under which epoch; and none holds a secret."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.anvil import Anvil
from tests.lessons import lesson
from tests.service.conftest import chain

__all__ = ["chain"]

SECRET = "s3cr3tkey"

# A node whose endpoint breaks on what is sent, and whose store breaks once, in words that hold a secret.
NODE = f"""
import asyncio, sys
from nonchalant import logs
from nonchalant.app import Nonchalant, Wrap
from nonchalant.config import LogFormat, load_settings
from nonchalant.service.server import bind, serve

logs.configure(LogFormat.JSON)
commits = 0

class Around:
    def __init__(self, inner):
        self.inner = inner
    def __getattr__(self, name):
        return getattr(self.inner, name)

class BreakingEndpoint(Around):
    async def send(self, raws):
        raise RuntimeError("cannot post to https://user:{SECRET}@node.example/v3/{SECRET}")

class BreakingStore(Around):
    async def commit(self, change, lease):
        global commits
        commits += 1
        if commits == 2:
            raise RuntimeError("postgresql://user:{SECRET}@h/db broke")
        await self.inner.commit(change, lease)

async def main():
    settings = load_settings("nonchalant.toml")
    stop = asyncio.Event()
    wrap = Wrap(store=BreakingStore, endpoint=BreakingEndpoint)
    async with Nonchalant.open(settings, wrap=wrap) as node:
        with bind(settings.listen) as listening:
            serving = asyncio.create_task(serve(node, listening, stop))
            lane = next(iter(node.known_lanes))
            await node.send(chain_id=lane.chain_id, sender=lane.address, to=lane.address, metadata={{"a": "{SECRET}"}})
            print("accepted", flush=True)
            await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
            stop.set()
            await serving

asyncio.run(main())
"""


@pytest.fixture
def folder(tmp_path: Path, chain: Anvil) -> Path:
    (tmp_path / "words").write_text("test test test test test test test test test test test junk")
    (tmp_path / "words").chmod(0o600)
    (tmp_path / "nonchalant.toml").write_text(
        f"""
        store = "sqlite:nonchalant.db"
        auth = "off"
        listen = "127.0.0.1:0"
        [[chains]]
        id = 31337
        endpoints = ["{chain.url}/?apikey={SECRET}", "http://user:{SECRET}@127.0.0.1:1/{SECRET}"]
        poll_interval = 0.1
        [[accounts]]
        chains = [31337]
        key = {{ mnemonic = {{ file = "words" }} }}
        """
    )
    return tmp_path


@lesson("secrets-printed")
async def test_every_line_names_its_node_and_every_line_of_a_lane_its_epoch(folder: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", NODE),
        cwd=folder,
        env=dict(os.environ),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=2**24,
    )
    said: list[dict[str, Any]] = []
    try:
        assert process.stderr is not None
        wanted = {"lane.broke", "endpoint.broke"}
        async with asyncio.timeout(120):
            while wanted - {line["event"] for line in said}:
                said.append(json.loads(await process.stderr.readline()))
            _, rest = await process.communicate(b"\n")
    finally:
        if process.returncode is None:
            process.kill()
    said += [json.loads(line) for line in rest.splitlines()]
    assert SECRET not in json.dumps(said)
    by_event = {line["event"]: line for line in said}
    nodes = {line["node"] for line in said if "node" in line}
    assert len(nodes) == 1
    for event in wanted:
        line = by_event[event]
        assert line["node"] in nodes
        assert line["lane"].startswith("31337:0x")
        assert line["epoch"] >= 1
    # Taken anew after the error: the next lines name the next epoch.
    assert by_event["endpoint.broke"]["epoch"] > by_event["lane.broke"]["epoch"]
    own = [line for line in said if not line["event"].startswith(("shutdown", "service.stop"))]
    unnamed = [
        line["event"] for line in own if "node" not in line and "." in line["event"] and " " not in line["event"]
    ]
    assert unnamed == []
    lanes = [line for line in own if "lane" in line]
    assert [line["event"] for line in lanes if not isinstance(line.get("epoch"), int)] == []
