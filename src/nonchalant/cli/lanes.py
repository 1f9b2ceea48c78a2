"""`lane`: accounts and how they fare."""

from __future__ import annotations

import typer

from nonchalant.amounts import format_wei
from nonchalant.cli.client import Shown
from nonchalant.cli.options import Account, AsJson, Chain, KeyFile, Url, pick_lane, reach
from nonchalant.cli.terminal import moment, show_fields, show_json, show_table
from nonchalant.reaching import DEFAULT_URL

# What of a lane's own events stands below it.
LAST_EVENTS = 5

lane = typer.Typer(
    help="Lanes, one account on one chain each: list, show, watch, and an operator's tools.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@lane.command("list")
def list_(url: Url = DEFAULT_URL, key_file: KeyFile = None, as_json: AsJson = False) -> None:
    """List all lanes."""
    found = reach(url, key_file).lanes()
    if as_json:
        show_json({"lanes": found})
        return
    show_table(
        ("chain", "account", "mode", "balance", "next nonce", "queued", "in flight", "attention"),
        [
            (
                str(one["chain_id"]),
                one["address"],
                one["control"]["mode"],
                _balance(one) or "?",
                "?" if one["next_nonce"] is None else str(one["next_nonce"]),
                str(one["transactions"].get("queued", 0)),
                in_flight(one),
                trouble_of(one) or "",
            )
            for one in found
        ],
        styles=["yellow" if trouble_of(one) else None for one in found],
    )


@lane.command()
def show(
    address: Account,
    chain: Chain = None,
    url: Url = DEFAULT_URL,
    key_file: KeyFile = None,
    as_json: AsJson = False,
) -> None:
    """Show one lane."""
    client = reach(url, key_file)
    chain_id, account = pick_lane(client, address, chain)
    one = client.get(f"/v1/lanes/{chain_id}/{account}")
    if as_json:
        show_json(one)
        return
    lease = one["lease"]
    show_fields(
        [
            ("chain", str(one["chain_id"])),
            ("account", one["address"]),
            ("mode", _control(one["control"])),
            ("health", _mark(one["health"]["trouble"])),
            ("balance", _balance(one) or "(the chain does not answer)"),
            ("committed", one["committed"] and f"{format_wei(int(one['committed']))} by what is in flight"),
            ("reserve", one["reserve"] and f"{format_wei(int(one['reserve']))} for better prices"),
            ("head", None if one["head"] is None else str(one["head"])),
            ("next nonce", "(not yet known)" if one["next_nonce"] is None else str(one["next_nonce"])),
            ("final below", str(one["settled_below"])),
            ("quarantined", None if one["quarantined_below"] is None else f"below {one['quarantined_below']}"),
            ("in flight", in_flight(one) + _pace(one)),
            ("reserved", _reserved(one["reservations"])),
            ("wishes", _wishes(one["wishes"])),
            ("resets", str(one["health"]["resets"]) if one["health"]["resets"] else None),
            ("transactions", ", ".join(f"{n} {state}" for state, n in one["transactions"].items()) or "none live"),
            ("slots", ", ".join(f"{n} {kind}" for kind, n in one["slots"].items()) or "none open"),
            (
                "lease",
                "nobody's now"
                if lease["owner"] is None
                else f"{lease['owner']}, epoch {lease['epoch']}, until {moment(lease['expires_at'])} UTC",
            ),
            ("attention", _mark(one["attention"])),
        ]
    )
    told = client.get(f"/v1/lanes/{chain_id}/{account}/events?limit={LAST_EVENTS}")["events"]
    if told:
        typer.echo()
        show_table(
            ("last events", "", ""),
            [(moment(event["at"]), event["kind"], _data(event["data"])) for event in told],
        )


def _data(data: Shown) -> str:
    return ", ".join(f"{name} {value}" for name, value in data.items() if value is not None)


def _balance(one: Shown) -> str | None:
    return None if one["balance"] is None else format_wei(int(one["balance"]))


def in_flight(one: Shown) -> str:
    count = "?" if one["in_flight"] is None else one["in_flight"]
    return f"{count} of {one['window']}" if one["window"] is not None else "(no longer configured)"


def trouble_of(one: Shown) -> str | None:
    """What keeps a lane from going on as it should, in one sentence."""
    found = [one["health"]["trouble"], one["attention"]]
    return next((mark["reason"] for mark in found if mark is not None), None)


def _control(control: Shown) -> str:
    if control["since"] is None:
        return str(control["mode"])
    reason = f", {control['reason']}" if control["reason"] else ""
    return f"{control['mode']} since {moment(control['since'])} UTC{reason}"


def _mark(mark: Shown | None) -> str | None:
    return None if mark is None else f"{mark['reason']} ({mark['code']}, since {moment(mark['since'])})"


def _pace(one: Shown) -> str:
    said = ["strict"] if one["pace"] == "strict" else []
    said += ["its code is delegated"] if one["delegated"] else []
    said += ["others sign with its key too"] if one["shared"] else []
    if not said and one["window"] != one["window_limit"]:
        said = [f"of {one['window_limit']} by the settings, nodes take no more"]
    return f" ({', '.join(said)})" if said else ""


def _reserved(reservations: list[Shown]) -> str | None:
    return ", ".join(f"{one['nonce']} until {moment(one['expires_at'])[6:]}" for one in reservations) or None


def _wishes(wishes: list[Shown]) -> str | None:
    return ", ".join(f"{one['kind']} {one['tx'] or ''}".strip() for one in wishes[:5]) or None
