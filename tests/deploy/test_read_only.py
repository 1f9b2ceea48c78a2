"""What the image holds, run as it is meant to run: installed from its own lock, as somebody without rights, on a file system
that cannot be written to, and stopped by SIGTERM. Docker is not needed for that, only Linux."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests import anvil, postgres
from tests.anvil import Anvil
from tests.deploy.test_recipes import DEPLOY, ROOT, compose, seconds
from tests.e2e.rig import until
from tests.ports import free_port
from tests.service.conftest import OTHER, SENDER

# Every mount is made read-only but one folder; what is started then has no rights in any namespace.
CONFINED = """
set -eu
mount --bind "$1" "$1"
awk '{ print $2 }' /proc/self/mounts | while read -r place; do
    case "$place" in
        "$1" | /proc*) ;; # the kernel's own, which needs it below
        *) mount -o remount,bind,ro "$place" || [ ! -w "$place" ] ;;
    esac
done
shift
if touch /tmp/nonchalant-can-write 2>/dev/null; then echo "it can write" >&2; exit 9; fi
exec unshare --user --map-user=10001 --map-group=10001 -- "$@"
"""
UNSHARE = [
    "unshare",
    "--user",
    "--map-root-user",
    "--mount",
    "--propagation",
    "private",
    "--",
    "sh",
    "-c",
    CONFINED,
    "-",
]


def can_be_confined() -> bool:
    if not sys.platform.startswith("linux") or shutil.which("unshare") is None:
        return False
    with tempfile.TemporaryDirectory() as folder:
        return subprocess.run(confined(folder, "true"), capture_output=True, check=False).returncode == 0


def confined(data: object, *command: object) -> list[str]:
    return [*UNSHARE, str(data), *map(str, command)]


pytestmark = pytest.mark.skipif(not can_be_confined(), reason="this system gives no namespaces to its users")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`nonchalant` as the image has it: the steps of deploy/Dockerfile."""
    [uv] = ROOT.glob(".make/uv-*/bin/uv")
    home = tmp_path_factory.mktemp("image")
    python = home / "bin" / "python"
    lock, whole = DEPLOY / "requirements.lock", ROOT / "requirements.lock"
    for step in (
        ["venv", "--quiet", "--clear", "--python", sys.executable, home],
        ["pip", "sync", "--quiet", "--python", python, "--require-hashes", "--only-binary", ":all:", lock],
        [
            "build",
            "--quiet",
            "--wheel",
            "--build-constraints",
            whole,
            "--require-hashes",
            "--out-dir",
            home / "dist",
            ROOT,
        ],
    ):
        subprocess.run([uv, *step], check=True, cwd=ROOT)
    [wheel] = (home / "dist").glob("*.whl")
    subprocess.run([uv, "pip", "install", "--quiet", "--python", python, "--no-deps", wheel], check=True)
    return home / "bin" / "nonchalant"


@pytest.fixture(scope="module")
def server() -> Iterator[postgres.Cluster]:
    with postgres.running() as cluster:
        yield cluster


@pytest.fixture
async def chain() -> AsyncIterator[Anvil]:
    async with anvil.running() as chain:
        yield chain


class Node:
    def __init__(self, process: subprocess.Popen[bytes], url: str, log: Path, session: aiohttp.ClientSession) -> None:
        self.process = process
        self.url = url
        self.log = log
        self.session = session

    async def ask(self, method: str, path: str, **options: Any) -> tuple[int, Any]:
        async with self.session.request(method, self.url + path, **options) as answer:
            return answer.status, await answer.json(content_type=None)

    async def is_ready(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        try:
            return (await self.ask("GET", "/readyz"))[0] == 200
        except aiohttp.ClientError:
            return False


def environment() -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "HOME": "/tmp",
        "RELAYER_KEY": anvil.KEYS[0],
        "PYTHONDONTWRITEBYTECODE": "1",
        "NONCHALANT_LOG_FORMAT": "json",
    }


@asynccontextmanager
async def running(program: Path, settings: Path, data: Path, port: int) -> AsyncIterator[Node]:
    log = settings.with_suffix(".log")
    with log.open("wb") as said:
        command = confined(data, program, "serve", "--config", settings)
        process = subprocess.Popen(command, stdout=said, stderr=said, env=environment(), cwd=data)  # noqa: ASYNC220 - at once
    try:
        async with aiohttp.ClientSession() as session:
            node = Node(process, f"http://127.0.0.1:{port}", log, session)
            await until(node.is_ready, "ready", seconds=120)
            yield node
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def write_settings(folder: Path, chain: Anvil, store: str, port: int) -> Path:
    settings = folder / "nonchalant.toml"
    settings.write_text(f"""
        store = "{store}"
        listen = "127.0.0.1:{port}"
        auth = "off"
        [[chains]]
        id = 31337
        endpoints = ["{chain.url}"]
        poll_interval = 0.1
        [[accounts]]
        chains = [31337]
        key = {{ env = "RELAYER_KEY" }}
    """)
    return settings


def written_since(folder: Path, known: set[Path]) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")} - {
        str(one.relative_to(folder)) for one in known
    }


@pytest.mark.parametrize("store", ["sqlite", "postgresql"])
async def test_a_node_writes_nothing_but_its_data_and_drains_on_sigterm(
    store: str, program: Path, server: postgres.Cluster, chain: Anvil, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    port = free_port()
    address = "sqlite:data/nonchalant.db" if store == "sqlite" else f"{server.dsn}?schema=image"
    settings = write_settings(tmp_path, chain, address, port)
    image = set(program.parent.parent.rglob("*"))
    if store == "postgresql":
        command = confined(data, program, "db", "migrate", "--config", settings)
        migrated = await asyncio.to_thread(subprocess.run, command, env=environment(), capture_output=True, check=False)
        assert migrated.returncode == 0, migrated.stderr.decode()
    async with running(program, settings, data, port) as node:
        body = {"chain_id": 31337, "from": SENDER, "to": OTHER, "value": "1"}
        status, tx = await node.ask("POST", "/v1/transactions", json=body)
        assert status == 202
        waiting = asyncio.create_task(node.ask("GET", f"/v1/transactions/{tx['id']}?wait=60"))

        async def is_sent() -> bool:
            return (await node.ask("GET", f"/v1/transactions/{tx['id']}"))[1]["state"] == "sent"

        await until(is_sent, "sent", seconds=120)
        node.process.send_signal(signal.SIGTERM)
        # Who waits is answered, and the process is gone before anybody would kill it.
        assert (await waiting)[0] == 200
        grace = seconds(compose()["services"]["node"]["stop_grace_period"])
        await until(lambda: node.process.poll() is not None, "stopped", seconds=grace)
        assert node.process.returncode == 0, node.log.read_text()
        events = [json.loads(line)["event"] for line in node.log.read_text().splitlines() if line.startswith("{")]
        assert "shutdown.done" in events
        assert not {"shutdown.slow", "shutdown.given_up", "shutdown.failed"} & set(events)
    made = {path.name for path in data.iterdir()}
    assert made == set() if store == "postgresql" else all(name.startswith("nonchalant.db") for name in made)
    assert written_since(program.parent.parent, image) == set()


async def test_the_health_check_of_the_image_tells_ready_from_not(program: Path, chain: Anvil, tmp_path: Path) -> None:
    [line] = [
        line for line in (DEPLOY / "Dockerfile").read_text().splitlines() if line.lstrip().startswith('CMD ["python"')
    ]
    _, option, code = json.loads(line.strip().removeprefix("CMD "))
    data, port = tmp_path / "data", free_port()
    data.mkdir()
    check = [str(program.with_name("python")), option, code.replace("8645", str(port))]
    settings = write_settings(tmp_path, chain, "sqlite:data/nonchalant.db", port)
    async with running(program, settings, data, port):
        assert (await asyncio.to_thread(subprocess.run, check, check=False)).returncode == 0
    ended = await asyncio.to_thread(subprocess.run, check, capture_output=True, check=False)
    assert ended.returncode == 1
