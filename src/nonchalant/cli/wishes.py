"""`tx cancel`, `bump`, `replace`, `hold`, `release`: what is wanted of a transaction now."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from nonchalant.cli.client import Client, Shown
from nonchalant.cli.options import (
    Abi,
    AsJson,
    Data,
    Gas,
    GasPrice,
    Id,
    KeyFile,
    MaxFee,
    MaxPriorityFee,
    PayTo,
    Quickness,
    Url,
    Value,
    fees_of,
    payload_of,
    reach,
)
from nonchalant.cli.terminal import STATE_STYLES, plain, say, show, show_json
from nonchalant.cli.watching import watch_until_the_end
from nonchalant.reaching import DEFAULT_URL
from nonchalant.words import LIVE_STATES, State

Wait = Annotated[bool, typer.Option("--wait", help="Stay until it has ended.")]
Timeout = Annotated[float, typer.Option(min=0, help="With --wait: seconds to stay at most.")]
Reason = Annotated[str | None, typer.Option(help="Why, for whoever looks at it later.")]

Mark = Annotated[
    str | None, typer.Option(help="The mark it is held with, unless somebody held it: then it may have run already.")
]


def add_to(tx: typer.Typer) -> None:
    for command in (cancel, bump, replace, hold, release):
        tx.command()(command)


def cancel(
    tx_id: Id,
    wait: Wait = False,
    timeout: Timeout = 600,
    url: Url = DEFAULT_URL,
    key_file: KeyFile = None,
    as_json: AsJson = False,
) -> None:
    """Let a transaction not run, if that can still be helped. With --wait, exit code 1 if it ran all the same."""
    client = reach(url, key_file)
    shown = client.wish(tx_id, "cancel")
    if wait and shown["state"] in LIVE_STATES:
        watch_until_the_end(client, shown, timeout, as_json=as_json, wanted=State.CANCELLED)
        return
    _tell(shown, as_json=as_json)
    if shown["state"] in LIVE_STATES and not as_json:
        say(f"whichever is executed first counts; `nonchalant tx watch {shown['id']}` shows it", style="dim")


def bump(
    tx_id: Id,
    *,
    speed: Quickness = None,
    max_fee: MaxFee = None,
    max_priority_fee: MaxPriorityFee = None,
    gas_price: GasPrice = None,
    wait: Wait = False,
    timeout: Timeout = 600,
    url: Url = DEFAULT_URL,
    key_file: KeyFile = None,
    as_json: AsJson = False,
) -> None:
    """Offer more for a transaction: so much, or without a price what the market asks."""
    fees = fees_of(speed=speed, max_fee=max_fee, max_priority_fee=max_priority_fee, gas_price=gas_price)
    client = reach(url, key_file)
    _answer(client, client.wish(tx_id, "bump", _given(fees=fees)), wait=wait, timeout=timeout, as_json=as_json)


def replace(
    tx_id: Id,
    *,
    to: PayTo = None,
    value: Value = "0",
    data: Data = "0x",
    gas: Gas = None,
    abi: Abi = None,
    speed: Quickness = None,
    max_fee: MaxFee = None,
    max_priority_fee: MaxPriorityFee = None,
    gas_price: GasPrice = None,
    wait: Wait = False,
    timeout: Timeout = 600,
    url: Url = DEFAULT_URL,
    key_file: KeyFile = None,
    as_json: AsJson = False,
) -> None:
    """Let something else run in a transaction's place, under its id; nothing of what it was to do is kept."""
    fees = fees_of(speed=speed, max_fee=max_fee, max_priority_fee=max_priority_fee, gas_price=gas_price)
    body = payload_of(to=to, value=value, data=data, gas=gas, abi=abi) | _given(fees=fees)
    client = reach(url, key_file)
    _answer(client, client.wish(tx_id, "replace", body), wait=wait, timeout=timeout, as_json=as_json)


def hold(
    tx_id: Id, reason: Reason = None, url: Url = DEFAULT_URL, key_file: KeyFile = None, as_json: AsJson = False
) -> None:
    """Keep a queued transaction from being sent until it is released."""
    _tell(reach(url, key_file).wish(tx_id, "hold", _given(reason=reason)), as_json=as_json)


def release(
    tx_id: Id, mark: Mark = None, url: Url = DEFAULT_URL, key_file: KeyFile = None, as_json: AsJson = False
) -> None:
    """Let a held transaction go on, at the place it had."""
    _tell(reach(url, key_file).wish(tx_id, "release", _given(mark=mark)), as_json=as_json)


def _answer(client: Client, shown: Shown, *, wait: bool, timeout: float, as_json: bool) -> None:
    if wait:
        watch_until_the_end(client, shown, timeout, as_json=as_json)
    else:
        _tell(shown, as_json=as_json)


def _tell(shown: Shown, *, as_json: bool) -> None:
    """How it stands, now that the wish was heard."""
    if as_json:
        show_json(shown)
        return
    held = " (held)" if shown["held"] else ""
    version = f"  payload {shown['payload_version']}" if shown["payload_version"] > 1 else ""
    show(f"{shown['id']}  {shown['state']}{held}{version}", STATE_STYLES.get(shown["state"]))
    if shown["waiting"] is not None:
        show(f"  {plain(shown['waiting'])}")


def _given(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}
