"""What `serve` and `dev` do, with everything that takes time to import."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import shutil
import sys
from collections.abc import Coroutine
from pathlib import Path

import structlog
import uvloop
from structlog.contextvars import bind_contextvars

from nonchalant import devchain, logs
from nonchalant.app import Nonchalant
from nonchalant.chain.evm.addresses import checksum
from nonchalant.cli.terminal import say, show
from nonchalant.config import Listen, Settings, load_settings
from nonchalant.devchain import Anvil, Home
from nonchalant.errors import BadSettings
from nonchalant.reaching import DEFAULT_URL
from nonchalant.service import server
from nonchalant.store import migrations
from nonchalant.store.sqlite import SqliteStore
from nonchalant.system import SystemClock, SystemEntropy
from nonchalant.waiting import within

# How long a node may take to stop: the calls under way, then `app`'s steps. Orchestrators kill after half a minute.
STOP_SECONDS = 29.0

# How long the local chain may take before people are told what is waited for.
TELL_SECONDS = 2.0

# How many objects there may be more before the collector looks; Python's 700 are less than a batch is made of.
YOUNG = 10_000


def serve(config: Path | None) -> None:
    settings = load_settings(config)
    logs.configure(settings.log_format)
    _run(_serve(settings))


def dev(*, port: int, chain_port: int, folder: Path, block_time: float, fresh: bool) -> None:
    logs.configure(level=logging.WARNING)
    _run(_dev(port=port, chain_port=chain_port, folder=folder, block_time=block_time, fresh=fresh))


async def _serve(settings: Settings) -> None:
    log = structlog.get_logger()
    with server.until_signalled(STOP_SECONDS) as stop, server.bind(settings.listen) as listening:
        async with Nonchalant.open(settings) as node:
            bind_contextvars(node=node.observatory.node)
            await _show_first_key(node)
            log.info("service.listening", at=server.url_of(listening), lanes=len(node.known_lanes))
            await server.serve(node, listening, stop)
            log.info("service.stopping")
    log.info("service.stopped")


async def _show_first_key(node: Nonchalant) -> None:
    """On a store that never had a key, make an admin's and show it: on stdout, once, and never in the log."""
    if node.settings.auth != "keys":
        return
    made = await node.keyring.make_first()
    if made is None:
        return
    key, written = made
    show(f"The first API key of this store, {key.id}, for an admin. Keep it: nobody can show it again.", style="bold")
    show(written.text)
    show("Use it as NONCHALANT_KEY, or in a file with --key-file, to make others: nonchalant key create --help")
    sys.stdout.flush()


async def _dev(*, port: int, chain_port: int, folder: Path, block_time: float, fresh: bool) -> None:
    program = devchain.find_anvil()
    if port:
        devchain.require_free(port, "--port")
    with (
        devchain.locked(folder) as home,
        server.until_signalled(STOP_SECONDS + devchain.STOP_SECONDS) as stop,
        server.bind(Listen("127.0.0.1", port)) as listening,
    ):
        await _make_consistent(home, fresh=fresh)
        port = listening.getsockname()[1]
        home.write_settings(port=port, chain_port=chain_port, block_time=block_time)
        settings = load_settings(home.settings, environ={})
        anvil = await devchain.start_anvil(program, home, port=chain_port, block_time=block_time, clock=SystemClock())
        watching = asyncio.create_task(_stop_without(anvil, stop))
        try:
            async with Nonchalant.open(settings) as node:
                _greet(node, home, anvil, url=server.url_of(listening), block_time=block_time)
                await server.serve(node, listening, stop)
                say("stopping")
            died = watching.done()
        finally:
            watching.cancel()
            await _stop(anvil)
        if died:
            raise BadSettings(f"the local chain ended: {anvil.last_words()}; start again to go on")


async def _make_consistent(home: Home, *, fresh: bool) -> None:
    if fresh:
        home.clear()
        return
    torn = home.torn(await _remembered(home) if home.database.exists() else 0)
    if torn is not None:
        say(f"{torn} (the last run was cut off): starting both afresh", style="yellow")
        home.clear()


async def _remembered(home: Home) -> int:
    """The highest block that the database calls final. One of an older version is brought up to date first."""
    try:
        _bring_up_to_date(f"sqlite:{home.database}")
        store = SqliteStore.open(home.database, clock=SystemClock(), entropy=SystemEntropy())
    except BadSettings as error:
        raise BadSettings(f"{error}; or begin anew with --fresh") from None
    try:
        return max((lane.record.seen_block for lane in await store.lanes()), default=0)
    finally:
        await store.close()


def _bring_up_to_date(url: str) -> None:
    found = migrations.status(url)
    if 0 < found.version < found.latest:
        migrations.migrate(url)
        say(f"the database had schema version {found.version}, and has {found.latest} now")


async def _stop(anvil: Anvil) -> None:
    stopping = asyncio.create_task(anvil.stop())
    if await within(SystemClock(), TELL_SECONDS, [stopping]):
        say("waiting for the local chain, which saves its state")
    await stopping


async def _stop_without(anvil: Anvil, stop: asyncio.Event) -> None:
    await anvil.process.wait()
    stop.set()


def _greet(node: Nonchalant, home: Home, anvil: Anvil, *, url: str, block_time: float) -> None:
    accounts = [checksum(lane.address) for lane in node.known_lanes]
    where = "" if url == DEFAULT_URL else f" --url {url}"
    show("Nonchalant is running.", style="bold green")
    show(f"  service   {url}  (API: {url}/openapi.json)")
    show(f"  JSON-RPC  {url}/rpc/{devchain.CHAIN_ID}  (for ethers, viem, web3.py, cast, as they are)")
    show(f"  chain     {anvil.url}  (id {devchain.CHAIN_ID}, a block every {block_time:g} s)")
    show(f"  data      {home.folder}")
    show(f"  accounts  {accounts[0]}")
    for account in accounts[1:]:
        show(f"            {account}")
    show("\nTry it in another terminal:")
    show(f"  {_program()} send --to {devchain.RECIPIENT} --value 0.01ether{where}", style="bold")
    show("\nCtrl-C stops it; the next run goes on where this one stopped.")


def _program() -> str:
    """How this program is called from here."""
    called = Path(sys.argv[0])
    found = shutil.which("nonchalant")
    if found is not None and called.exists() and Path(found).samefile(called):
        return "nonchalant"
    with contextlib.suppress(ValueError):  # it lies elsewhere: the whole path, then
        return str(called.absolute().relative_to(Path.cwd()))
    return str(called)


def _run(node: Coroutine[object, object, None]) -> None:
    os.umask(0o077)  # databases and keys are nobody else's
    # What is here now stays to the end, and most of what comes goes without the collector: it need not look through the
    # one again, nor through the other each time there is a little more of it.
    gc.freeze()
    gc.set_threshold(YOUNG, 10, 10)
    uvloop.run(node)
    # All is closed. Python would take itself apart now, which on a busy machine takes longer than all that came before,
    # and would wait for any thread that somebody's hook has left behind.
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
