"""`lane`: accounts and how they fare."""

from __future__ import annotations

from typing import Annotated

import typer

from nonchalant.amounts import format_wei
from nonchalant.cli.client import DEFAULT_URL, Client, Shown
from nonchalant.cli.options import AsJson, Chain, Url, pick_lane
from nonchalant.cli.terminal import moment, show_fields, show_json, show_table

lane = typer.Typer(
    help="Lanes, one account on one chain each: list, show.", no_args_is_help=True, rich_markup_mode=None
)


@lane.command("list")
def list_(url: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """List all lanes."""
    found = Client(url).lanes()
    if as_json:
        show_json({"lanes": found})
        return
    show_table(
        ("chain", "account", "balance", "next nonce", "queued", "in flight", "attention"),
        [
            (
                str(one["chain_id"]),
                one["address"],
                _balance(one) or "?",
                "?" if one["next_nonce"] is None else str(one["next_nonce"]),
                str(one["transactions"].get("queued", 0)),
                _in_flight(one),
                "" if one["attention"] is None else one["attention"]["reason"],
            )
            for one in found
        ],
        styles=["yellow" if one["attention"] else None for one in found],
    )


@lane.command()
def show(
    address: Annotated[str, typer.Argument(metavar="ADDRESS")],
    chain: Chain = None,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Show one lane."""
    client = Client(url)
    chain_id, account = pick_lane(client, address, chain)
    one = client.get(f"/v1/lanes/{chain_id}/{account}")
    if as_json:
        show_json(one)
        return
    lease, attention = one["lease"], one["attention"]
    show_fields(
        [
            ("chain", str(one["chain_id"])),
            ("account", one["address"]),
            ("balance", _balance(one) or "(the chain does not answer)"),
            ("head", None if one["head"] is None else str(one["head"])),
            ("next nonce", "(not yet known)" if one["next_nonce"] is None else str(one["next_nonce"])),
            ("final below", str(one["settled_below"])),
            ("quarantined", None if one["quarantined_below"] is None else f"below {one['quarantined_below']}"),
            ("in flight", _in_flight(one)),
            ("transactions", ", ".join(f"{n} {state}" for state, n in one["transactions"].items()) or "none live"),
            ("slots", ", ".join(f"{n} {kind}" for kind, n in one["slots"].items()) or "none open"),
            (
                "lease",
                "nobody's now"
                if lease["owner"] is None
                else f"{lease['owner']}, epoch {lease['epoch']}, until {moment(lease['expires_at'])} UTC",
            ),
            (
                "attention",
                attention and f"{attention['reason']} ({attention['code']}, since {moment(attention['since'])})",
            ),
        ]
    )


def _balance(one: Shown) -> str | None:
    return None if one["balance"] is None else format_wei(int(one["balance"]))


def _in_flight(one: Shown) -> str:
    count = "?" if one["in_flight"] is None else one["in_flight"]
    return f"{count} of {one['window']}" if one["window"] is not None else "(no longer configured)"
