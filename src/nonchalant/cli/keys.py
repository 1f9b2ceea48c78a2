"""`key create`, `list`, `revoke`: through the service; or, with --config, on the store itself.

The second way is for who has no key yet, or lost it: who may read the settings may do it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer

from nonchalant.access import DEFAULT_TENANT, FeeRule, NonceRule, Scope
from nonchalant.cli.client import Client, Shown
from nonchalant.cli.options import AsJson, KeyFile, Store, Url, reach
from nonchalant.cli.terminal import moment, say, show, show_json, show_table
from nonchalant.reaching import DEFAULT_URL

if TYPE_CHECKING:
    from nonchalant.cli.on_store import OnStore

PAGE = 500

key = typer.Typer(
    help="API keys: create, list, revoke.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@key.command()
def create(
    name: Annotated[str, typer.Argument(metavar="NAME")],
    *,
    scope: Annotated[
        list[Scope],
        typer.Option(
            "--scope", metavar="SCOPE", help="tx:write, tx:read, lane:admin, sign or admin; several times for several."
        ),
    ],
    lane: Annotated[
        list[str] | None,
        typer.Option("--lane", metavar="LANES", help="Accounts it may use: *, 1:*, 1:0x…; several times for several."),
    ] = None,
    tenant: Annotated[str, typer.Option(help="Whose transactions it sees.")] = DEFAULT_TENANT,
    expires: Annotated[
        str | None, typer.Option(metavar="TIME", help="When: 90d for days from now, or 2030-01-31T12:00:00Z.")
    ] = None,
    nonces: Annotated[
        NonceRule, typer.Option(help="What a nonce means that a JSON-RPC client names.")
    ] = NonceRule.EXACT,
    fees: Annotated[FeeRule, typer.Option(help="What prices mean that a JSON-RPC client names.")] = FeeRule.WISH,
    rate: Annotated[
        float | None, typer.Option(help="Calls a second, for each node; without it no limit.", show_default=False)
    ] = None,
    store: Store = None,
    url: Url = DEFAULT_URL,
    key_file: KeyFile = None,
    as_json: AsJson = False,
) -> None:
    """Make an API key and show it, this once."""
    body: dict[str, Any] = {
        "name": name,
        "scopes": [one.value for one in scope],
        "lanes": lane or ["*"],
        "tenant": tenant,
        "nonces": nonces.value,
        "fees": fees.value,
        "rate": rate,
        "expires_at": None if expires is None else _moment(expires),
    }
    made = reach(url, key_file).make("/v1/keys", body) if store is None else _on(store).create_key(body)
    if as_json:
        show_json(made)
        return
    until = f" until {made['expires_at']}" if made["expires_at"] else ""
    say(f"{made['id']} ({made['name']}): {', '.join(made['scopes'])} on {', '.join(made['lanes'])}{until}")
    say("this is the key; nobody can show it again:", style="yellow")
    show(made["key"])


@key.command("list")
def list_(store: Store = None, url: Url = DEFAULT_URL, key_file: KeyFile = None, as_json: AsJson = False) -> None:
    """List all keys, newest first; never their secrets."""
    found = _all(reach(url, key_file)) if store is None else _on(store).list_keys()
    if as_json:
        show_json({"keys": found})
        return
    show_table(
        ("id", "name", "tenant", "scopes", "lanes", "made (UTC)", "state"),
        [
            (
                one["id"],
                one["name"],
                one["tenant"],
                ", ".join(one["scopes"]),
                ", ".join(one["lanes"]),
                moment(one["created_at"]),
                _state(one),
            )
            for one in found
        ],
        styles=[None if one["live"] else "dim" for one in found],
    )


@key.command()
def revoke(
    key_id: Annotated[str, typer.Argument(metavar="ID")],
    store: Store = None,
    url: Url = DEFAULT_URL,
    key_file: KeyFile = None,
    as_json: AsJson = False,
) -> None:
    """Let nobody in by a key any more, at once and on every node."""
    path = f"/v1/keys/{quote(key_id, safe='')}/revoke"
    revoked = reach(url, key_file).post(path) if store is None else _on(store).revoke_key(key_id)
    show_json(revoked) if as_json else show(f"{revoked['id']} ({revoked['name']}) is revoked", style="green")


def _on(config: Path) -> OnStore:
    from nonchalant.cli.on_store import OnStore

    return OnStore(config)


def _all(client: Client) -> list[Shown]:
    found: list[Shown] = []
    cursor: str | None = None
    while True:
        page = client.get("/v1/keys", {"limit": PAGE, "cursor": cursor})
        found += page["keys"]
        cursor = page["next_cursor"]
        if cursor is None:
            return found


def _state(one: Shown) -> str:
    if one["revoked_at"]:
        return f"revoked {moment(one['revoked_at'])}"
    if not one["live"]:
        return f"expired {moment(one['expires_at'])}"
    return f"until {moment(one['expires_at'])}" if one["expires_at"] else "live"


def _moment(text: str) -> str | int:
    """As the service takes it."""
    days = re.fullmatch(r"([1-9][0-9]{0,4})d", text, re.ASCII)
    if days is None:
        return text
    from nonchalant.system import SystemClock

    return SystemClock().now() // 1000 + int(days[1]) * 86_400
