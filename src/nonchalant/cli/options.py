"""Options that several commands take."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from nonchalant.amounts import parse_wei
from nonchalant.cli.client import Client
from nonchalant.reaching import find_key
from nonchalant.words import Speed

Url = Annotated[
    str, typer.Option("--url", envvar="NONCHALANT_URL", help="Where the service listens.", show_default=True)
]
KeyFile = Annotated[
    Path | None,
    typer.Option("--key-file", help="A file with the API key; without it NONCHALANT_KEY.", show_default=False),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Config = Annotated[
    Path | None, typer.Option("--config", help="The settings file; without it nonchalant.toml.", show_default=False)
]
# Of those commands that otherwise ask the service.
Store = Annotated[
    Path | None,
    typer.Option(
        "--config", help="Do it without the service, on the store that this settings file names.", show_default=False
    ),
]
Chain = Annotated[
    int | None, typer.Option("--chain", help="The chain's id; without it the only one.", show_default=False)
]

Account = Annotated[str, typer.Argument(metavar="ADDRESS")]
Id = Annotated[str, typer.Argument(metavar="ID")]

# What should happen.
PayTo = Annotated[str | None, typer.Option("--to", help="The receiver; without one a contract is created.")]
Value = Annotated[str, typer.Option("--value", metavar="AMOUNT", help="In wei, or as 5gwei, 0.01ether.")]
Data = Annotated[str, typer.Option("--data", help="Call data as 0x-hex.")]
Gas = Annotated[int | None, typer.Option("--gas", help="The gas limit; without it an estimate.", show_default=False)]
Abi = Annotated[
    Path | None, typer.Option("--abi", help="A JSON ABI whose errors put a revert in words.", show_default=False)
]

# What to offer for it.
Quickness = Annotated[Speed | None, typer.Option("--speed", help="How eagerly to pay.", show_default=False)]
MaxFee = Annotated[
    str | None, typer.Option("--max-fee", metavar="AMOUNT", help="The most for one gas, with --max-priority-fee.")
]
MaxPriorityFee = Annotated[
    str | None, typer.Option("--max-priority-fee", metavar="AMOUNT", help="The tip for one gas, with --max-fee.")
]
GasPrice = Annotated[
    str | None, typer.Option("--gas-price", metavar="AMOUNT", help="For one gas, where there is no base fee.")
]


def reach(url: str, key_file: Path | None) -> Client:
    """The service, with the key that was given: in a file, or in NONCHALANT_KEY; none, if there is none."""
    return Client(url, find_key(key_file))


def payload_of(*, to: str | None, value: str, data: str, gas: int | None, abi: Path | None) -> dict[str, Any]:
    """What should happen, as the service takes it."""
    body: dict[str, Any] = {"value": str(wei(value, "--value")), "data": data}
    given = {"to": to, "gas": gas, "abi": None if abi is None else _abi(abi)}
    return body | {name: value for name, value in given.items() if value is not None}


def fees_of(
    *, speed: Speed | None, max_fee: str | None, max_priority_fee: str | None, gas_price: str | None
) -> dict[str, str] | None:
    """What to offer, as the service takes it; None: nothing was said of it."""
    prices = {
        "max_fee_per_gas": ("--max-fee", max_fee),
        "max_priority_fee_per_gas": ("--max-priority-fee", max_priority_fee),
        "gas_price": ("--gas-price", gas_price),
    }
    fees = {name: str(wei(text, option)) for name, (option, text) in prices.items() if text is not None}
    return fees | ({} if speed is None else {"speed": speed.value}) or None


def _abi(path: Path) -> object:
    """The ABI in a file: alone, or under `abi` as compilers put it."""
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise typer.BadParameter(f"cannot read {path}: {error}", param_hint="--abi") from None
    return document["abi"] if isinstance(document, dict) and "abi" in document else document


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
