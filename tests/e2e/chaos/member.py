"""One node of the crowd: a service in a process of its own, that can die at a numbered crash point.

python -m tests.e2e.chaos.member --config n.toml --crash-at store.commit:after:2
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import uvloop

from nonchalant import logs
from nonchalant.app import Nonchalant, Wrap
from nonchalant.config import LogFormat, load_settings
from nonchalant.errors import NonchalantError
from nonchalant.service import server
from nonchalant.testing.crashpoints import CrashPoints, Point
from tests.e2e.node import speak_into

# It could not begin, such as without a database; whoever runs it tries again.
NOT_NOW = 75

STOP_SECONDS = 29.0


def freeze() -> None:
    """What a machine that swaps, or moves to another host, does: all of it stands still, and then goes on from there."""
    os.kill(os.getpid(), signal.SIGSTOP)


async def run(config: Path, crash_at: str | None, freeze_at: str | None) -> None:
    settings = load_settings(config)
    deadly = CrashPoints(None if crash_at is None else Point.parse(crash_at))
    cold = CrashPoints(None if freeze_at is None else Point.parse(freeze_at), end=freeze)
    wrap = Wrap(
        store=lambda store: deadly.store(cold.store(store)),
        endpoint=lambda endpoint: deadly.endpoint(cold.endpoint(endpoint)),
        signer=lambda signer: deadly.signer(cold.signer(signer)),
    )
    with server.until_signalled(STOP_SECONDS) as stop, server.bind(settings.listen) as listening:
        async with Nonchalant.open(settings, wrap=wrap) as node:
            print(f"owner {node.engine.cluster.owner}", flush=True)
            await server.serve(node, listening, stop)


def main(arguments: Sequence[str] | None = None, output: Path | None = None) -> None:
    speak_into(output)
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.chaos.member", description=__doc__)
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--crash-at", metavar="N|CALL:SIDE:OCCURRENCE", help="die by kill -9 at this point")
    parser.add_argument("--freeze-at", metavar="N|CALL:SIDE:OCCURRENCE", help="stop there until SIGCONT")
    options = parser.parse_args(arguments)
    logs.configure(LogFormat.JSON, sys.stderr)
    try:
        uvloop.run(run(options.config, options.crash_at, options.freeze_at))
    except NonchalantError as error:
        print(f"not now: {error}", flush=True)
        sys.exit(NOT_NOW)


if __name__ == "__main__":
    main()
