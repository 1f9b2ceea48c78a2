"""`send` and `tx`: hand a transaction over, and see what becomes of it."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from nonchalant.amounts import format_wei
from nonchalant.cli.client import Shown
from nonchalant.cli.details import show_details
from nonchalant.cli.options import (
    Abi,
    AsJson,
    Chain,
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
    pick_lane,
    reach,
)
from nonchalant.cli.terminal import (
    STATE_STYLES,
    json_object,
    moment,
    say,
    short,
    show,
    show_json,
    show_table,
)
from nonchalant.cli.watching import watch_until_the_end
from nonchalant.reaching import DEFAULT_URL
from nonchalant.words import OnSuperseded, State

# What a live transaction's state does not say.
MARKS = {"cancel": " cancelling", "expiry": " expiring", "nothing": " giving up"}

tx = typer.Typer(
    help="Transactions: list, show, watch, cancel, bump, replace, hold, release.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


def send(
    *,
    to: PayTo = None,
    value: Value = "0",
    data: Data = "0x",
    sender: Annotated[
        str | None, typer.Option("--from", help="The account; without it the only one, on a dev chain the first.")
    ] = None,
    chain: Chain = None,
    gas: Gas = None,
    speed: Quickness = None,
    max_fee: MaxFee = None,
    max_priority_fee: MaxPriorityFee = None,
    gas_price: GasPrice = None,
    priority: Annotated[int, typer.Option(min=0, max=9, help="Its place among what is queued; higher goes first.")] = 5,
    simulate: Annotated[
        bool, typer.Option("--simulate", help="Run it on the newest block first, also with --gas.")
    ] = False,
    abi: Abi = None,
    valid_until: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Past it, it expires: 2030-01-31T12:00:00Z, or seconds since 1970."),
    ] = None,
    confirmations: Annotated[
        int | None,
        typer.Option(
            min=1, max=10_000, help="Have an event when so many blocks are above its own.", show_default=False
        ),
    ] = None,
    on_superseded: Annotated[
        OnSuperseded | None,
        typer.Option(help="If somebody else uses its nonce; without it, as finality allows.", show_default=False),
    ] = None,
    idempotency_key: Annotated[
        str | None, typer.Option(help="Repeating the command with it sends nothing twice.")
    ] = None,
    metadata: Annotated[str | None, typer.Option(help="A JSON object to keep with it.")] = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Stay until it has ended.")] = True,
    timeout: Annotated[float, typer.Option(min=0, help="Seconds to stay at most.")] = 600,
    url: Url = DEFAULT_URL,
    key_file: KeyFile = None,
    as_json: AsJson = False,
) -> None:
    """Send a transaction and show its way until it is confirmed (exit code 0) or ends otherwise (1)."""
    client = reach(url, key_file)
    chain_id, account = pick_lane(client, sender, chain)
    body: dict[str, Any] = {
        "chain_id": chain_id,
        "from": account,
        **payload_of(to=to, value=value, data=data, gas=gas, abi=abi),
        "priority": priority,
        "simulate": simulate,
    }
    wanted = {
        "fees": fees_of(speed=speed, max_fee=max_fee, max_priority_fee=max_priority_fee, gas_price=gas_price),
        "valid_until": valid_until,
        "confirmations": confirmations,
        "on_superseded": None if on_superseded is None else on_superseded.value,
    }
    body |= {name: value for name, value in wanted.items() if value is not None}
    if metadata is not None:
        try:
            body["metadata"] = json_object(metadata)
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--metadata") from None
    accepted = client.send(body, idempotency_key)
    if not wait:
        show_json(accepted) if as_json else show(accepted["id"])
        return
    watch_until_the_end(client, accepted, timeout, as_json=as_json)


@tx.command("list")
def list_(
    *,
    state: Annotated[State | None, typer.Option(help="In this state.", show_default=False)] = None,
    chain: Annotated[int | None, typer.Option(help="On this chain.", show_default=False)] = None,
    sender: Annotated[str | None, typer.Option("--from", help="Of this account.")] = None,
    nonce: Annotated[int | None, typer.Option(help="At this nonce.", show_default=False)] = None,
    hash_: Annotated[str | None, typer.Option("--hash", help="With an attempt of this hash.")] = None,
    idempotency_key: Annotated[str | None, typer.Option(help="Accepted under this key.")] = None,
    batch: Annotated[str | None, typer.Option(help="Accepted together with others, as this batch.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=500, help="At most this many.")] = 20,
    cursor: Annotated[str | None, typer.Option(help="Go on where a page ended.")] = None,
    url: Url = DEFAULT_URL,
    key_file: KeyFile = None,
    as_json: AsJson = False,
) -> None:
    """List transactions, newest first."""
    query = {
        "state": None if state is None else state.value,
        "chain_id": chain,
        "from": sender,
        "nonce": nonce,
        "hash": hash_,
        "idempotency_key": idempotency_key,
        "batch": batch,
        "limit": limit,
        "cursor": cursor,
    }
    page = reach(url, key_file).get("/v1/transactions", query)
    if as_json:
        show_json(page)
        return
    found = page["transactions"]
    show_table(
        ("id", "state", "from", "to", "value", "nonce", "hash", "accepted (UTC)"),
        [_row(shown) for shown in found],
        styles=[STATE_STYLES.get(shown["state"]) for shown in found],
    )
    if page["next_cursor"] is not None:
        say(f"more: --cursor {page['next_cursor']}", style="dim")


@tx.command("show")
def show_one(tx_id: Id, url: Url = DEFAULT_URL, key_file: KeyFile = None, as_json: AsJson = False) -> None:
    """Show one transaction with its attempts and its history."""
    client = reach(url, key_file)
    shown = client.transaction(tx_id)
    if as_json:
        show_json(shown)
        return
    show_details(shown, client.get(f"/v1/transactions/{shown['id']}/events")["events"])


@tx.command()
def watch(
    tx_id: Id,
    timeout: Annotated[float | None, typer.Option(min=0, help="Seconds to stay at most.", show_default=False)] = None,
    url: Url = DEFAULT_URL,
    key_file: KeyFile = None,
    as_json: AsJson = False,
) -> None:
    """Show a transaction's way until it is confirmed (exit code 0) or ends otherwise (1)."""
    client = reach(url, key_file)
    watch_until_the_end(client, client.transaction(tx_id), timeout, as_json=as_json, explain=True)


def _row(shown: Shown) -> tuple[str, ...]:
    wanted = "" if shown["state"] == "mined" else MARKS.get(shown["wanted"], "")
    marks = (" held" if shown["held"] else "") + wanted + (" !" if shown["attention"] else "")
    return (
        shown["id"],
        shown["state"] + marks,
        short(shown["from"], keep=6),
        short(shown["to"], keep=6) or "(new contract)",
        format_wei(int(shown["value"])),
        "" if shown["nonce"] is None else str(shown["nonce"]),
        short(shown["hash"]),
        moment(shown["created_at"]),
    )
