"""The local chain of `nonchalant dev`: anvil as a child process, and the folder that it shares with the database.

Chain and database survive together or not at all: a database that remembers blocks the chain has forgotten would, quite
rightly, refuse to work.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import fcntl
import glob
import os
import shutil
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from nonchalant.errors import BadSettings
from nonchalant.ports import Clock

CHAIN_ID: Final = 31337
# Known to everybody: these accounts are funded on dev chains, and on no other.
MNEMONIC: Final = "test test test test test test test test test test test junk"
MANAGED_ACCOUNTS: Final = 5
# The last of anvil's ten accounts: somebody to send to, whom nobody manages.
RECIPIENT: Final = "0xa0Ee7A142d267C1f36714E4a8F75612F20a79720"

# Anvil writes its whole state each time; leaving writes it too, so this only limits what a power cut takes.
SAVE_SECONDS: Final = 60
START_SECONDS: Final = 15.0
STOP_SECONDS: Final = 60.0  # a chain of many days takes a while to write
PR_SET_PDEATHSIG: Final = 1


def find_anvil() -> Path:
    """The anvil to run: NONCHALANT_ANVIL, else the one on the PATH, else the one that `make` installed here."""
    named = os.environ.get("NONCHALANT_ANVIL")
    if named:
        if not os.access(named, os.X_OK):
            raise BadSettings(f"NONCHALANT_ANVIL: {named} is not a program; name anvil's binary, or unset it")
        return Path(named)
    installed = glob.glob(".make/anvil/node_modules/@foundry-rs/anvil-*/bin/anvil")  # noqa: PTH207 - relative, as it is
    found = shutil.which("anvil") or (installed[0] if installed else None)
    if found is None:
        raise BadSettings(
            "anvil, the local chain, was not found; in a clone run `make install`, elsewhere install Foundry "
            "(https://getfoundry.sh), or name the binary in NONCHALANT_ANVIL"
        )
    return Path(found).absolute()


# --- the folder ---


@dataclass(frozen=True, slots=True)
class Home:
    """Where a dev chain and its database live. Exists only while it is locked."""

    folder: Path
    lock: int  # a file descriptor that anvil inherits: the lock holds until both are gone

    @property
    def database(self) -> Path:
        return self.folder / "nonchalant.db"

    @property
    def chain(self) -> Path:
        return self.folder / "chain.json"

    @property
    def settings(self) -> Path:
        return self.folder / "nonchalant.toml"

    @property
    def log(self) -> Path:
        return self.folder / "anvil.log"

    def clear(self) -> None:
        """Forget chain and database, both."""
        for kept in (self.chain, *self.folder.glob("nonchalant.db*")):
            kept.unlink(missing_ok=True)

    def torn(self, remembered: int) -> str | None:
        """Why chain and database do not belong together; None if they do, or if there is nothing yet.

        `remembered` is the highest block that the database calls final.
        """
        if not self.chain.exists() and not self.database.exists():
            return None
        if not self.database.exists():
            return "the database is missing"
        if not self.chain.exists():
            return "the chain's state was never saved"
        height = saved_height(self.chain)
        if height is None:
            return "the chain's state cannot be read"
        if height < remembered:
            return "the chain's state is older than the database"
        return None

    def write_settings(self, *, port: int, chain_port: int, block_time: float) -> None:
        """Written at each start, so that every other command can be shown this node: `doctor --config …`."""
        phrase = self.folder / "mnemonic"
        phrase.unlink(missing_ok=True)
        phrase.touch(mode=0o600)
        phrase.write_text(MNEMONIC + "\n")
        self.settings.write_text(
            f"""\
# Written by `nonchalant dev` at each start.
store = "sqlite:{self.database.name}"
auth = "off"
listen = "127.0.0.1:{port}"

[[chains]]
id = {CHAIN_ID}
endpoints = ["http://127.0.0.1:{chain_port}"]
finality = "tag"
poll_interval = {min(1.0, max(0.05, block_time / 4)):g}
rpc_methods = ["anvil_*", "evm_*", "hardhat_*", "debug_*", "trace_*", "txpool_*"]

[[accounts]]
chains = [{CHAIN_ID}]
key = {{ mnemonic = {{ file = "{phrase.name}" }}, count = {MANAGED_ACCOUNTS} }}
"""
        )


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[Home]:
    """The folder, for this process alone; `BadSettings` if another `dev` works there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise BadSettings(f"--data: cannot use {folder}: {error.strerror}") from None
    try:
        _take(lock, folder)
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}".encode(), 0)
        yield Home(folder.absolute(), lock)
    finally:
        os.close(lock)


def _take(lock: int, folder: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return
    except BlockingIOError:
        holder, _, chain = os.pread(lock, 64, 0).decode("ascii", "replace").partition(" ")
    if holder.isdigit() and _is_alive(int(holder)):
        raise BadSettings(
            f"another `nonchalant dev` (process {holder}) works in {folder}; stop it, or give this one another --data"
        )
    # The other was killed, and its chain holds the lock while it saves its state; where nothing told it to, we do.
    if sys.platform != "linux" and chain.isdigit() and _is_alive(int(chain)):
        os.kill(int(chain), signal.SIGTERM)
    fcntl.flock(lock, fcntl.LOCK_EX)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


class _Saved(msgspec.Struct):
    best_block_number: int | str


def saved_height(state: Path) -> int | None:
    """The highest block in a state that anvil saved; None if the file is torn."""
    try:
        saved = msgspec.json.decode(state.read_bytes(), type=_Saved)
        number = saved.best_block_number
        return number if isinstance(number, int) else int(number, 0)
    except (OSError, ValueError):  # msgspec's errors are ValueErrors
        return None


# --- the process ---


@dataclass(slots=True)
class Anvil:
    """A running dev chain."""

    process: asyncio.subprocess.Process
    home: Home
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def stop(self) -> None:
        """Let it save its state and end."""
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await self.process.wait()
        except TimeoutError:
            self.process.kill()
            await self.process.wait()

    def last_words(self) -> str:
        words = self.home.log.read_text(errors="replace").strip().splitlines() if self.home.log.exists() else []
        return words[-1] if words else f"it left exit code {self.process.returncode} and no message"


async def start_anvil(program: Path, home: Home, *, port: int, block_time: float, clock: Clock) -> Anvil:
    """A chain that goes on from its saved state and dies with this process; `BadSettings` if it does not come up."""
    require_free(port, "--chain-port")
    with home.log.open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            program,
            *("--quiet", "--host", "127.0.0.1", "--port", str(port), "--chain-id", str(CHAIN_ID)),
            *("--mnemonic", MNEMONIC, "--block-time", f"{block_time:g}", "--slots-in-an-epoch", "1"),
            *("--state", str(home.chain), "--state-interval", str(SAVE_SECONDS), "--prune-history", "500"),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=(home.lock,),
            # Ctrl-C is for us: the chain goes last.
            start_new_session=True,
            preexec_fn=_dies_with(os.getpid()) if sys.platform == "linux" else None,
        )
    os.pwrite(home.lock, f"{os.getpid()} {process.pid}".encode(), 0)
    anvil = Anvil(process, home, port)
    deadline = clock.monotonic() + START_SECONDS
    while not await _answers(port):
        if process.returncode is not None:
            raise BadSettings(f"anvil, the local chain, ended at once: {anvil.last_words()}")
        if clock.monotonic() > deadline:
            await anvil.stop()
            raise BadSettings(f"anvil, the local chain, does not answer on port {port}; see {home.log}")
        await clock.sleep(0.02)
    return anvil


def require_free(port: int, option: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise BadSettings(
                f"port {port} cannot be used ({error.strerror}); stop what listens there, or choose another by {option}"
            ) from None


def _dies_with(parent: int) -> Callable[[], None]:
    """For the child, before it becomes anvil: end, and save, when the parent does, however that happens."""
    prctl = ctypes.CDLL(None).prctl

    def arrange() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(1)

    return arrange


async def _answers(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True
