"""Options that several commands take."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nonchalant.amounts import parse_wei
from nonchalant.cli.client import Client

Url = Annotated[
    str, typer.Option("--url", envvar="NONCHALANT_URL", help="Where the service listens.", show_default=True)
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Config = Annotated[
    Path | None, typer.Option("--config", help="The settings file; without it nonchalant.toml.", show_default=False)
]
Chain = Annotated[
    int | None, typer.Option("--chain", help="The chain's id; without it the only one.", show_default=False)
]


def wei(text: str, option: str) -> int:
    """An option's amount, with or without its unit."""
    try:
        return parse_wei(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None


def pick_lane(client: Client, sender: str | None, chain: int | None) -> tuple[int, str]:
    """The lane a command means. Without a sender: the only one, or on a dev chain the first."""
    if sender is not None and chain is not None:
        return chain, sender
    lanes = [
        lane
        for lane in client.lanes()
        if chain in (None, lane["chain_id"]) and (sender is None or lane["address"].lower() == sender.lower())
    ]
    if not lanes:
        raise typer.BadParameter("the service has no such account; `nonchalant lane list` shows what it has")
    on_dev_chain = all(lane["chain_id"] == 31337 for lane in lanes)
    if len(lanes) > 1 and not on_dev_chain:
        choices = "\n".join(f"  --chain {lane['chain_id']} --from {lane['address']}" for lane in lanes)
        raise typer.BadParameter(f"say which account, one of:\n{choices}")
    return lanes[0]["chain_id"], lanes[0]["address"]
