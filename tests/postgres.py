"""A real PostgreSQL of our own: a cluster in a temporary folder on a free port, stopped by its pid."""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import asyncpg

from tests.ports import free_port

# Nothing is synchronised to a disk that nobody will read again; what a process sees of another is as ever.
SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "shared_buffers": "32MB",
    "max_connections": "200",
    "max_wal_size": "256MB",
    "autovacuum_naptime": "10s",
    "track_commit_timestamp": "on",
    "listen_addresses": "127.0.0.1",
    "log_min_messages": "warning",
}
START_SECONDS = 120.0


class NotInstalled(Exception):
    """PostgreSQL's server is not on this machine: run `tools/install-postgres`."""


def program(name: str) -> str:
    """Where one of PostgreSQL's programs is: on the PATH, or where Debian keeps the newest version's."""
    versions = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda path: int(path.parts[-3]))
    found = (str(versions[-1]) if versions else None) or shutil.which(name) or shutil.which(name, path="/usr/sbin")
    if found is None:
        raise NotInstalled(f"{name} was not found; run `tools/install-postgres`")
    return found


def unprivileged() -> Sequence[str]:
    """Words before a command: the server refuses to run as root."""
    return ("runuser", "-u", "postgres", "--") if os.geteuid() == 0 else ()


def give(folder: Path) -> None:
    """Let the user that the server runs as write in it."""
    if os.geteuid() == 0:
        user = pwd.getpwnam("postgres")
        os.chown(folder, user.pw_uid, user.pw_gid)


@dataclass
class Cluster:
    """One server. `dsn` is its superuser's, who needs no password."""

    folder: Path
    port: int = field(default_factory=free_port)
    _process: subprocess.Popen[bytes] | None = None

    @property
    def dsn(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def make(self) -> None:
        self._run(
            "initdb", "--pgdata", self.data, "--username=postgres", "--auth=trust", "--no-sync", "--encoding=UTF8"
        )
        self.configure(SETTINGS | {"unix_socket_directories": str(self.folder)})

    def configure(self, settings: dict[str, str]) -> None:
        """From the next start on."""
        with (self.data / "postgresql.conf").open("a") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in settings.items())

    def start(self) -> None:
        """Returns when it answers."""
        log = self.folder / "log"
        command = [*unprivileged(), program("postgres"), "-D", str(self.data), "-p", str(self.port)]
        with log.open("a") as said:
            self._process = subprocess.Popen(command, stdout=said, stderr=said, stdin=subprocess.DEVNULL)
        give_up_at = time.monotonic() + START_SECONDS
        while not self.answers():
            if time.monotonic() > give_up_at:
                raise TimeoutError(f"PostgreSQL does not answer:\n{log.read_text()}")
            time.sleep(0.02)

    def answers(self) -> bool:
        ask = [program("pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        return subprocess.run(ask, check=False).returncode == 0

    @property
    def pid(self) -> int | None:
        try:
            return int((self.data / "postmaster.pid").read_text().splitlines()[0])
        except (FileNotFoundError, IndexError):
            return None

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """By default connections are cut and what is committed is kept (a fast shutdown); SIGQUIT is a crash."""
        pid = self.pid
        if pid is None or self._process is None:
            return
        os.kill(pid, how)
        self._process.wait(START_SECONDS)
        self._process = None

    def restart(self, how: signal.Signals = signal.SIGINT) -> None:
        self.stop(how)
        self.start()

    def _run(self, name: str, *arguments: object) -> None:
        command = [*unprivileged(), program(name), *map(str, arguments)]
        done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=self.folder)
        if done.returncode:
            raise RuntimeError(f"{name} failed:\n{done.stdout}{done.stderr}")


class Reader:
    """A schema's tables, for who cannot wait for anything: questions are asked on a thread of their own."""

    def __init__(self, dsn: str, schema: str) -> None:
        self._dsn = dsn
        self._schema = schema
        self._connection: asyncpg.Connection | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def ask(self, query: str) -> list[asyncpg.Record]:
        """None if there are no tables yet."""
        return asyncio.run_coroutine_threadsafe(self._ask(query), self._loop).result(START_SECONDS)

    async def _ask(self, query: str) -> list[asyncpg.Record]:
        if self._connection is None:
            self._connection = await asyncpg.connect(self._dsn, server_settings={"search_path": self._schema})
        try:
            found: list[asyncpg.Record] = await self._connection.fetch(query)
            return found
        except asyncpg.UndefinedTableError:
            return []

    def close(self) -> None:
        if self._connection is not None:
            asyncio.run_coroutine_threadsafe(self._connection.close(), self._loop).result(START_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Where the server's user may write too; gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="nonchalant-pg-"))
    give(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def running(settings: dict[str, str] | None = None) -> Iterator[Cluster]:
    """A new server for as long as the block lasts."""
    with temporary_folder() as folder:
        cluster = Cluster(folder)
        cluster.make()
        cluster.configure(settings or {})
        cluster.start()
        try:
            yield cluster
        finally:
            cluster.stop(signal.SIGQUIT)  # nobody will read it again, so nothing is written out


@contextmanager
def pooler(cluster: Cluster, *, size: int = 3) -> Iterator[str]:
    """The address of a PgBouncer in transaction mode before the server, with few sessions, so that they are shared."""
    with temporary_folder() as folder:
        port = free_port()
        (folder / "users").write_text('"postgres" ""\n')
        settings = folder / "pgbouncer.ini"
        settings.write_text(
            f"[databases]\n* = host=127.0.0.1 port={cluster.port}\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n"
            f"auth_type = trust\nauth_file = {folder / 'users'}\n"
            f"pool_mode = transaction\ndefault_pool_size = {size}\nmax_client_conn = 200\n"
        )
        for file in (folder / "users", settings):
            give(file)
        command = [*unprivileged(), program("pgbouncer"), "-q", str(settings)]
        with (folder / "log").open("w") as said:
            process = subprocess.Popen(command, stdout=said, stderr=said, stdin=subprocess.DEVNULL)
        try:
            _wait_for(port, process, folder / "log")
            yield f"postgresql://postgres@127.0.0.1:{port}/postgres"
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(START_SECONDS)


def _wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    give_up_at = time.monotonic() + START_SECONDS
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        if process.poll() is not None or time.monotonic() > give_up_at:
            raise TimeoutError(f"PgBouncer does not answer:\n{log.read_text()}")
        time.sleep(0.02)
