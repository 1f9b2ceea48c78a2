"""`send` and `tx`: hand a transaction over, and see what becomes of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from nonchalant.amounts import format_wei
from nonchalant.cli.client import DEFAULT_URL, Client, Shown
from nonchalant.cli.options import AsJson, Chain, Url, pick_lane, wei
from nonchalant.cli.terminal import (
    STATE_STYLES,
    json_object,
    moment,
    plain,
    say,
    short,
    show,
    show_fields,
    show_json,
    show_table,
)
from nonchalant.model import LIVE_STATES, Speed, State

tx = typer.Typer(help="Transactions: list, show, watch.", no_args_is_help=True, rich_markup_mode=None)


def send(
    *,
    to: Annotated[str | None, typer.Option(help="The receiver; without one a contract is created.")] = None,
    value: Annotated[str, typer.Option(metavar="AMOUNT", help="In wei, or as 5gwei, 0.01ether.")] = "0",
    data: Annotated[str, typer.Option(help="Call data as 0x-hex.")] = "0x",
    sender: Annotated[
        str | None, typer.Option("--from", help="The account; without it the only one, on a dev chain the first.")
    ] = None,
    chain: Chain = None,
    gas: Annotated[int | None, typer.Option(help="The gas limit; without it an estimate.", show_default=False)] = None,
    speed: Annotated[Speed | None, typer.Option(help="How eagerly to pay.", show_default=False)] = None,
    priority: Annotated[int, typer.Option(min=0, max=9, help="Its place among what is queued; higher goes first.")] = 5,
    simulate: Annotated[
        bool, typer.Option("--simulate", help="Run it on the newest block first, also with --gas.")
    ] = False,
    abi: Annotated[
        Path | None, typer.Option(help="A JSON ABI whose errors put a revert in words.", show_default=False)
    ] = None,
    idempotency_key: Annotated[
        str | None, typer.Option(help="Repeating the command with it sends nothing twice.")
    ] = None,
    metadata: Annotated[str | None, typer.Option(help="A JSON object to keep with it.")] = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Stay until it has ended.")] = True,
    timeout: Annotated[float, typer.Option(min=0, help="Seconds to stay at most.")] = 600,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Send a transaction and show its way until it is confirmed (exit code 0) or ends otherwise (1)."""
    client = Client(url)
    chain_id, account = pick_lane(client, sender, chain)
    body: dict[str, Any] = {
        "chain_id": chain_id,
        "from": account,
        "value": str(wei(value, "--value")),
        "data": data,
        "priority": priority,
        "simulate": simulate,
    }
    if to is not None:
        body["to"] = to
    if gas is not None:
        body["gas"] = gas
    if speed is not None:
        body["fees"] = {"speed": speed.value}
    if abi is not None:
        body["abi"] = _abi(abi)
    if metadata is not None:
        try:
            body["metadata"] = json_object(metadata)
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--metadata") from None
    accepted = client.send(body, idempotency_key)
    if not wait:
        show_json(accepted) if as_json else show(accepted["id"])
        return
    _watch(client, accepted, timeout, as_json=as_json)


def _abi(path: Path) -> object:
    """The ABI in a file: alone, or under `abi` as compilers put it."""
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise typer.BadParameter(f"cannot read {path}: {error}", param_hint="--abi") from None
    return document["abi"] if isinstance(document, dict) and "abi" in document else document


@tx.command("list")
def list_(
    *,
    state: Annotated[State | None, typer.Option(help="In this state.", show_default=False)] = None,
    chain: Annotated[int | None, typer.Option(help="On this chain.", show_default=False)] = None,
    sender: Annotated[str | None, typer.Option("--from", help="Of this account.")] = None,
    nonce: Annotated[int | None, typer.Option(help="At this nonce.", show_default=False)] = None,
    hash_: Annotated[str | None, typer.Option("--hash", help="With an attempt of this hash.")] = None,
    idempotency_key: Annotated[str | None, typer.Option(help="Accepted under this key.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=500, help="At most this many.")] = 20,
    cursor: Annotated[str | None, typer.Option(help="Go on where a page ended.")] = None,
    url: Url = DEFAULT_URL,
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
        "limit": limit,
        "cursor": cursor,
    }
    page = Client(url).get("/v1/transactions", query)
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
def show_one(
    tx_id: Annotated[str, typer.Argument(metavar="ID")], url: Url = DEFAULT_URL, as_json: AsJson = False
) -> None:
    """Show one transaction with its attempts and its history."""
    client = Client(url)
    shown = client.transaction(tx_id)
    if as_json:
        show_json(shown)
        return
    receipt, attention = shown["receipt"], shown["attention"]
    show_fields(
        [
            ("id", shown["id"]),
            ("state", shown["state"] + (" (held)" if shown["held"] else "")),
            ("failure", shown["failure"]),
            (
                "attention",
                attention and f"{attention['reason']} ({attention['code']}, since {moment(attention['since'])})",
            ),
            ("chain", str(shown["chain_id"])),
            ("from", shown["from"]),
            ("to", shown["to"] or "(creates a contract)"),
            ("value", format_wei(int(shown["value"]))),
            ("data", None if shown["data"] == "0x" else short(shown["data"], keep=66)),
            ("gas limit", None if shown["gas"] is None else str(shown["gas"])),
            ("fees", _fees(shown["fees"])),
            ("priority", str(shown["priority"])),
            ("nonce", None if shown["nonce"] is None else str(shown["nonce"])),
            ("hash", shown["hash"]),
            ("block", receipt and f"{receipt['block_number']} ({receipt['block_hash']})"),
            ("cost", receipt and f"{format_wei(int(receipt['cost']))} for {receipt['gas_used']} gas"),
            ("contract", receipt and receipt["contract"]),
            ("key", shown["idempotency_key"]),
            ("metadata", None if shown["metadata"] is None else str(shown["metadata"])),
            ("accepted", moment(shown["created_at"]) + " UTC"),
        ]
    )
    if shown["attempts"]:
        show()
        show_table(
            ("attempt", "nonce", "fees", "gas", "sent (UTC)", "nodes said", "hash"),
            [
                (
                    a["kind"],
                    str(a["nonce"]),
                    _fees(a["fees"]),
                    str(a["gas"]),
                    moment(a["sent_at"]),
                    a["answer"] or "",
                    a["hash"],
                )
                for a in shown["attempts"]
            ],
        )
    events = client.get(f"/v1/transactions/{shown['id']}/events")["events"]
    show()
    show_table(
        ("at (UTC)", "event", ""),
        [
            (moment(e["at"]), e["kind"], ", ".join(f"{name} {value}" for name, value in e["data"].items()))
            for e in events
        ],
    )


@tx.command()
def watch(
    tx_id: Annotated[str, typer.Argument(metavar="ID")],
    timeout: Annotated[float | None, typer.Option(min=0, help="Seconds to stay at most.", show_default=False)] = None,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Show a transaction's way until it is confirmed (exit code 0) or ends otherwise (1)."""
    client = Client(url)
    _watch(client, client.transaction(tx_id), timeout, as_json=as_json)


def _watch(client: Client, shown: Shown, timeout: float | None, *, as_json: bool) -> None:
    told: dict[str, object] = {}

    def tell(now: Shown) -> None:
        for line, style in _news(now, told):
            show(plain(line), style)

    if not as_json:
        tell(shown)
    try:
        end = client.follow(shown, timeout, (lambda _: None) if as_json else tell)
    except KeyboardInterrupt:
        say(f"it goes on without you; see `nonchalant tx watch {shown['id']}`", style="dim")
        raise typer.Exit(130) from None
    if as_json:
        show_json(end)
    if end["held"]:
        say(f"it is held and does not go on by itself; see `nonchalant tx show {end['id']}`", "yellow")
    elif end["state"] in LIVE_STATES:
        say(
            f"still {end['state']} after {timeout:g} s; it goes on by itself, see `nonchalant tx watch {end['id']}`",
            "yellow",
        )
    if end["state"] != State.CONFIRMED:
        raise typer.Exit(1)


def _news(now: Shown, told: dict[str, object]) -> list[tuple[str, str | None]]:
    """What has changed since the last time, as lines; `told` remembers."""
    lines: list[tuple[str, str | None]] = []
    if told.get("state") != (now["state"], now["hash"]):
        told["state"] = (now["state"], now["hash"])
        lines.append(
            (
                f"{moment(now['updated_at'])[6:]}  {now['state']:<9}  {_what(now)}".rstrip(),
                STATE_STYLES.get(now["state"]),
            )
        )
    attention = now["attention"]
    if attention is not None and told.get("attention") != attention["reason"]:
        lines.append((f"          needs attention: {attention['reason']}", "yellow"))
    told["attention"] = attention and attention["reason"]
    return lines


def _what(now: Shown) -> str:
    receipt = now["receipt"]
    match now["state"]:
        case "queued":
            return str(now["id"])
        case "signed":
            return f"nonce {now['nonce']}"
        case "sent":
            return f"nonce {now['nonce']}  {now['hash']}"
        case "mined":
            return f"block {receipt['block_number']}  {now['hash']}"
        case "confirmed" | "reverted":
            why = "" if now["failure"] is None else f"  {now['failure']}"
            return f"block {receipt['block_number']}  cost {format_wei(int(receipt['cost']))}  {now['hash']}{why}"
        case _:
            return str(now["failure"] or "")


def _row(shown: Shown) -> tuple[str, ...]:
    marks = (" held" if shown["held"] else "") + (" !" if shown["attention"] else "")
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


def _fees(fees: dict[str, str]) -> str:
    if "speed" in fees:
        return fees["speed"]
    if "gas_price" in fees:
        return f"{format_wei(int(fees['gas_price']))} a gas"
    most, tip = int(fees["max_fee_per_gas"]), int(fees["max_priority_fee_per_gas"])
    return f"up to {format_wei(most)} a gas, tip {format_wei(tip)}"
