"""`audit verify` and `list`: what was done with power, and whether somebody meddled with the log of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nonchalant.cli.options import AsJson, KeyFile, Store, Url, reach
from nonchalant.cli.terminal import moment, plain, say, show, show_fields, show_json, show_table
from nonchalant.reaching import DEFAULT_URL

if TYPE_CHECKING:
    from nonchalant.audit import Broken, Entry, Head

PAGE = 500

audit = typer.Typer(help="The audit log: list, verify.", no_args_is_help=True, rich_markup_mode=None)

# Where the log ends, and the entries after a position.
Read = Callable[[int, int], "tuple[Head, list[Entry]]"]


@audit.command()
def verify(
    head: Annotated[
        str | None,
        typer.Option("--head", metavar="HASH", help="A hash that an earlier run showed, kept elsewhere."),
    ] = None,
    store: Store = None,
    url: Url = DEFAULT_URL,
    key_file: KeyFile = None,
    as_json: AsJson = False,
) -> None:
    """Check that nobody changed, moved or removed an entry of the log; exit code 1 and its place if somebody did."""
    from nonchalant.audit import Check

    read = _reader(store, url, key_file)
    end, entries = read(0, PAGE)
    check = Check(end, None if head is None else head.lower().removeprefix("0x"))
    broken = check.read(entries)
    while broken is None and entries:
        _, entries = read(check.read_to.position, PAGE)
        broken = check.read(entries)
    broken = broken or check.finish()
    _tell(check.read_to, broken, as_json=as_json)
    if broken is not None:
        raise typer.Exit(1)


@audit.command("list")
def list_(
    after: Annotated[int, typer.Option(min=0, help="Go on after this position.")] = 0,
    limit: Annotated[int, typer.Option(min=1, max=500, help="At most this many.")] = 50,
    store: Store = None,
    url: Url = DEFAULT_URL,
    key_file: KeyFile = None,
    as_json: AsJson = False,
) -> None:
    """List the log, oldest first."""
    from nonchalant.key_views import show_entry

    head, entries = _reader(store, url, key_file)(after, limit)
    shown = [_fields(show_entry(entry)) for entry in entries]
    if as_json:
        show_json({"entries": shown, "head": {"position": head.position, "hash": head.hash}})
        return
    show_table(
        ("", "at (UTC)", "who", "what", "on", "with"),
        [
            (
                str(one["position"]),
                moment(one["at"]),
                plain(f"{one['actor']} {one['name']}".strip()),
                plain(one["action"]),
                plain(one["subject"]),
                plain(json.dumps(one["data"], ensure_ascii=False)),
            )
            for one in shown
        ],
    )
    last = shown[-1]["position"] if shown else after
    if last < head.position:
        say(f"more: --after {last}", style="dim")


def _reader(store: Path | None, url: str, key_file: Path | None) -> Read:
    if store is not None:
        from nonchalant.cli.on_store import OnStore

        return OnStore(store).read_log
    from nonchalant.audit import Head

    client = reach(url, key_file)

    def read(after: int, limit: int) -> tuple[Head, list[Entry]]:
        page = client.get("/v1/audit", {"after": after, "limit": limit})
        return Head(page["head"]["position"], page["head"]["hash"]), [_entry(one) for one in page["entries"]]

    return read


def _entry(shown: dict[str, Any]) -> Entry:
    """The entry as it was hashed."""
    from nonchalant.audit import Entry, written
    from nonchalant.scalars import parse_moment

    fields = {**shown, "at": parse_moment(shown["at"], "at"), "data": written(shown["data"])}
    return Entry(**{name: fields[name] for name in Entry.__dataclass_fields__})


def _fields(view: Any) -> dict[str, Any]:
    return {name: getattr(view, name) for name in view.__struct_fields__}


def _tell(read_to: Head, broken: Broken | None, *, as_json: bool) -> None:
    if as_json:
        told: dict[str, Any] = {"ok": broken is None, "entries": read_to.position, "head": read_to.hash}
        show_json(told if broken is None else told | {"broken": broken.position, "reason": broken.reason})
        return
    if broken is not None:
        show(f"entry {broken.position}: {broken.reason}", style="red")
    show_fields([("entries", str(read_to.position)), ("head", read_to.hash)])
    if broken is None:
        show("the log is whole up to here", style="green")
    else:
        say("the entries up to that one are as they were written; compare the rest with a backup", style="yellow")
