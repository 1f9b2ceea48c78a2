"""A shut-down ends, whatever hangs, and its log says what did."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from nonchalant import app
from nonchalant.app import Nonchalant, Wrap
from nonchalant.config import parse_settings
from nonchalant.errors import StoreUnavailable
from nonchalant.leaving import Leaving
from nonchalant.ports import Store
from nonchalant.service import server
from nonchalant.system import SystemClock
from tests.e2e.rig import until
from tests.service.conftest import SENDER, running

# What a hung test would take, not what is tested.
FAR_TOO_LONG = 60


async def hang() -> None:
    await asyncio.Event().wait()


async def test_a_step_that_hangs_or_fails_is_told_and_the_next_one_is_taken() -> None:
    taken: list[str] = []

    async def fail() -> None:
        raise OSError("no space left on device")

    async def miss() -> None:
        raise StoreUnavailable("the server is away")

    async def go() -> None:
        taken.append("store")

    with capture_logs() as logs:
        leaving = Leaving(SystemClock())
        await leaving.step("intake", miss(), seconds=FAR_TOO_LONG)
        await leaving.step("engine", hang(), seconds=0.01)
        await leaving.step("connections", fail(), seconds=FAR_TOO_LONG)
        await leaving.step("store", go(), seconds=FAR_TOO_LONG)
        leaving.over()
    assert taken == ["store"]
    assert [(log["event"], log.get("step")) for log in logs] == [
        ("shutdown.incomplete", "intake"),
        ("shutdown.slow", "engine"),
        ("shutdown.failed", "connections"),
        ("shutdown.done", None),
    ]
    assert [log["event"] for log in logs if "exc_info" in log] == ["shutdown.failed"]  # frames only of what is odd
    assert set(logs[-1]) > {"seconds", "intake", "engine", "connections", "store"}


class Unreleasing:
    """A store that stops answering when the lanes are to be handed over."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.closed = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def release(self, *_: Any) -> None:
        await hang()

    async def close(self) -> None:
        await self._store.close()
        self.closed = True


@asynccontextmanager
async def silent_node() -> AsyncIterator[str]:
    """It takes every connection, and never answers."""

    async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(swallow, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


async def test_neither_a_silent_endpoint_nor_a_silent_store_holds_a_node_that_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "ENGINE_SECONDS", 0.5)
    (tmp_path / "words").write_text("test test test test test test test test test test test junk")
    (tmp_path / "words").chmod(0o600)
    stores: list[Unreleasing] = []

    def wrapped(store: Store) -> Any:
        stores.append(Unreleasing(store))
        return stores[-1]

    async with silent_node() as url, asyncio.timeout(2 * FAR_TOO_LONG):
        settings = parse_settings(
            f"""
            store = "sqlite:nonchalant.db"
            auth = "off"
            [[chains]]
            id = 31337
            endpoints = ["{url}"]
            request_timeout = 600
            [[accounts]]
            chains = [31337]
            key = {{ mnemonic = {{ file = "words" }} }}
            """,
            folder=tmp_path,
            environ={},
        )
        with capture_logs() as logs:
            async with Nonchalant.open(settings, wrap=Wrap(store=wrapped)) as node:
                await node.send(chain_id=31337, sender=SENDER, to=SENDER)
                await until(lambda: node.engine.desks, "a lane is worked", seconds=FAR_TOO_LONG)
    assert stores[0].closed
    told = [(log["event"], log.get("step")) for log in logs if log["event"].startswith("shutdown.")]
    # On a busy machine others may be slow as well.
    assert [(event, step) for event, step in told if step in ("engine", None)] == [
        ("shutdown.slow", "engine"),
        ("shutdown.done", None),
    ]


@pytest.mark.parametrize(("method", "code"), [("POST", "store_unavailable"), ("GET", "shutting_down")])
async def test_a_call_that_waits_for_a_silent_store_is_told_so_when_the_node_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, method: str, code: str
) -> None:
    monkeypatch.setattr(server, "GRACE_SECONDS", 0.2)
    asked, go_on = asyncio.Event(), asyncio.Event()
    async with asyncio.timeout(FAR_TOO_LONG), running(tmp_path) as service:
        store = service.node.store

        async def hang_for_now(*given: Any, **named: Any) -> Any:
            asked.set()
            await go_on.wait()
            return await (accept if method == "POST" else transactions)(*given, **named)

        accept, transactions = store.accept, store.transactions
        monkeypatch.setattr(store, "accept", hang_for_now)
        monkeypatch.setattr(store, "transactions", hang_for_now)
        body = {"chain_id": 31337, "from": SENDER, "to": SENDER} if method == "POST" else None
        with capture_logs() as logs:
            calling = asyncio.create_task(service.call(method, "/v1/transactions", json=body))
            await asked.wait()
            service.stop.set()
            status, said, _ = await calling
            await service.serving
        go_on.set()
    assert (status, said["code"]) == (503, code)
    assert [log["event"] for log in logs if log["log_level"] == "warning"] == ["call.cut_short"]
    assert not any(record.exc_info for record in caplog.records), "no frames"


def test_a_thread_that_a_hook_has_left_behind_keeps_no_node_that_stops(tmp_path: Path) -> None:
    (tmp_path / "words").write_text("test test test test test test test test test test test junk")
    (tmp_path / "words").chmod(0o600)
    (tmp_path / "careless.py").write_text(
        "import threading\nthreading.Thread(target=threading.Event().wait).start()\ndef hook(*_): ...\n"
    )
    (tmp_path / "nonchalant.toml").write_text(
        """
        store = "sqlite:nonchalant.db"
        auth = "off"
        listen = "127.0.0.1:0"
        attention_hook = "careless:hook"
        [[chains]]
        id = 31337
        endpoints = ["http://127.0.0.1:1"]
        [[accounts]]
        chains = [31337]
        key = { mnemonic = { file = "words" } }
        """
    )
    surroundings = {**os.environ, "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"}
    command = [sys.executable, "-c", "from nonchalant.cli import main; main()", "serve"]
    process = subprocess.Popen(command, cwd=tmp_path, env=surroundings, stderr=-1, text=True)
    try:
        assert process.stderr is not None
        assert json.loads(process.stderr.readline())["event"] == "service.listening"
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=FAR_TOO_LONG)
    finally:
        process.kill()
    assert json.loads(said.splitlines()[-1])["event"] == "service.stopped"
    assert process.returncode == 0


STUCK = """
import asyncio, sys, threading
from nonchalant import logs
from nonchalant.service.server import until_signalled

logs.configure()

async def main():
    with until_signalled(0.5) as stop:
        # As a name server that never answers: Python waits for such a thread, at its very end.
        asyncio.get_running_loop().run_in_executor(None, threading.Event().wait)
        print("ready", flush=True)
        await stop.wait()

asyncio.run(main())
"""


def test_a_process_that_cannot_end_is_ended_and_says_where_it_hung() -> None:
    process = subprocess.Popen([sys.executable, "-c", STUCK], stdout=-1, stderr=-1, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=FAR_TOO_LONG)
    finally:
        process.kill()
    assert process.returncode == 1
    assert json.loads(said.splitlines()[0])["event"] == "shutdown.given_up"
    assert "Thread 0x" in said
