"""`serve` and `dev`: run a node."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nonchalant.cli.options import Config


def serve(config: Config = None) -> None:
    """Run a node: the service and the engine, until SIGTERM or Ctrl-C."""
    from nonchalant.cli.running import serve

    serve(config)


def dev(
    port: Annotated[int, typer.Option(min=0, max=65535, help="Where the service listens.")] = 8645,
    chain_port: Annotated[int, typer.Option(min=1, max=65535, help="Where the local chain listens.")] = 8545,
    data: Annotated[Path, typer.Option(help="Where chain and database are kept.")] = Path(".nonchalant"),
    block_time: Annotated[float, typer.Option(min=0.05, max=3600, help="Seconds between blocks.")] = 1.0,
    fresh: Annotated[bool, typer.Option("--fresh", help="Forget the chain and the database first.")] = False,
) -> None:
    """Run a node with a local chain and funded accounts; needs no settings and no key."""
    from nonchalant.cli.running import dev

    dev(port=port, chain_port=chain_port, folder=data, block_time=block_time, fresh=fresh)
