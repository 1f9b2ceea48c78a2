"""`lane pause`, `resume`, `drain`, `sync`, `fill`, `reset`, `cancel`, `watch`: an operator's tools."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Annotated

import typer

from nonchalant.cli.client import RETRY_SECONDS, Client, Refusal, ServiceUnreachable, Shown
from nonchalant.cli.lanes import in_flight, trouble_of
from nonchalant.cli.options import Account, AsJson, Chain, KeyFile, Url, pick_lane, reach
from nonchalant.cli.terminal import plain, say, show, show_fields, show_json, show_table
from nonchalant.reaching import DEFAULT_URL

# A lane with ten thousand transactions takes a while to cancel.
LONGEST = 600.0

Reason = Annotated[str | None, typer.Option(help="Why, for whoever looks at it later.")]
Done = Callable[[Shown], bool]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]


def add_to(lane: typer.Typer) -> None:
    for command in (watch, pause, resume, drain, sync, fill, reset, cancel):
        lane.command()(command)


def pause(
    address: Account,
    chain: Chain = None,
    reason: Reason = None,
    url: Url = DEFAULT_URL,
    key_file: KeyFile = None,
    as_json: AsJson = False,
) -> None:
    """Have a lane give out no more nonces; what has one goes on."""
    _control("pause", reach(url, key_file), address, chain, reason, as_json=as_json)


def resume(
    address: Account,
    chain: Chain = None,
    reason: Reason = None,
    url: Url = DEFAULT_URL,
    key_file: KeyFile = None,
    as_json: AsJson = False,
) -> None:
    """Have a lane give out nonces again. After a halt, this says that its chain is right as it is now."""
    _control("resume", reach(url, key_file), address, chain, reason, as_json=as_json)


def drain(
    address: Account,
    chain: Chain = None,
    reason: Reason = None,
    wait: Annotated[bool, typer.Option("--wait", help="Stay until nothing of it is in flight.")] = False,
    timeout: Annotated[float, typer.Option(min=0, help="With --wait: seconds to stay at most.")] = 600,
    url: Url = DEFAULT_URL,
    key_file: KeyFile = None,
    as_json: AsJson = False,
) -> None:
    """Have a lane give out no more nonces and take no new requests. With --wait, exit code 1 if it is not empty by then."""
    client = reach(url, key_file)
    path = _path(client, address, chain)
    shown = client.post(f"{path}/drain", _reason(reason))
    if wait:
        shown = _follow(client, path, shown, timeout, tell=not as_json, done=lambda now: not now["slots"])
    _tell_control(shown, as_json=as_json)
    if wait and shown["slots"]:
        say(f"{sum(shown['slots'].values())} nonces are not final after {timeout:g} s", style="yellow")
        raise typer.Exit(1)


def sync(
    address: Account, chain: Chain = None, url: Url = DEFAULT_URL, key_file: KeyFile = None, as_json: AsJson = False
) -> None:
    """Have a lane look at its chain anew, and show what that says."""
    client = reach(url, key_file)
    found = client.post(f"{_path(client, address, chain)}/sync")
    if as_json:
        show_json(found)
        return
    show_fields(
        [
            ("head", f"block {found['head']}, final to {found['final']}"),
            ("executed", f"every nonce below {found['count']}, and finally below {found['final_count']}"),
            ("next nonce", str(found["next_nonce"])),
            ("final below", str(found["settled_below"])),
            ("not final", f"{found['live']} nonces, {found['executed']} attempts of them in a block"),
            ("holes", ", ".join(map(str, found["holes"])) or "none"),
        ]
    )


def fill(
    address: Account,
    chain: Chain = None,
    nonce: Annotated[int | None, typer.Option(min=0, help="This hole alone.", show_default=False)] = None,
    url: Url = DEFAULT_URL,
    key_file: KeyFile = None,
    as_json: AsJson = False,
) -> None:
    """Close the holes that something waits behind, by transfers of nothing."""
    client = reach(url, key_file)
    found = client.post(f"{_path(client, address, chain)}/fill", {} if nonce is None else {"nonce": nonce})
    if as_json:
        show_json(found)
        return
    filled = ", ".join(map(str, found["filled"]))
    show(f"being filled: {filled}" if filled else "there is no hole that anything waits behind")
    if found["left"]:
        say(f"{found['left']} more wait for room; repeat the command", style="yellow")


def reset(
    address: Account,
    chain: Chain = None,
    force: Annotated[bool, typer.Option("--force", help="Also while something may still be executed.")] = False,
    yes: Yes = False,
    url: Url = DEFAULT_URL,
    key_file: KeyFile = None,
    as_json: AsJson = False,
) -> None:
    """Take the chain's word for a lane's next nonce. Refused while something of it may still be executed."""
    client = reach(url, key_file)
    path = _path(client, address, chain)
    if force and not yes:
        _ask_before_force(client.get(path))
    try:
        found = client.post(f"{path}/reset", {"force": force})
    except Refusal as refusal:
        if not as_json and refusal.data.get("live"):
            _show_kept(refusal.data["live"])
        raise
    if as_json:
        show_json(found)
        return
    show(f"next nonce {found['next_nonce']}, final below {found['settled_below']}", style="green")
    if found["settled_below"] < found["settled_below_before"]:
        show(f"given up: what was final from {found['settled_below']} to {found['settled_below_before'] - 1}")
    if found["recalled"]:
        show(f"queued again, because nothing of them left: {', '.join(found['recalled'])}")
    if found["kept"]:
        show("these keep their nonce, because they may still be executed:")
        _show_kept(found["kept"])


def cancel(
    address: Account,
    chain: Chain = None,
    yes: Yes = False,
    url: Url = DEFAULT_URL,
    key_file: KeyFile = None,
    as_json: AsJson = False,
) -> None:
    """Cancel all that is live in a lane: what is queued at once, the rest if that can still be helped."""
    client = reach(url, key_file)
    path = _path(client, address, chain)
    if not yes:
        live = sum(client.get(path)["transactions"].values())
        _ask(f"cancel all {live} live transactions of {address}?")
    found = client.post(f"{path}/cancel", waits=LONGEST)
    if as_json:
        show_json(found)
        return
    show(f"{found['asked']} asked not to run; `nonchalant tx list` shows what becomes of them")


def watch(
    address: Account,
    chain: Chain = None,
    timeout: Annotated[float | None, typer.Option(min=0, help="Seconds to stay at most.", show_default=False)] = None,
    url: Url = DEFAULT_URL,
    key_file: KeyFile = None,
    as_json: AsJson = False,
) -> None:
    """Show a lane whenever something of it changes, until Ctrl-C; with --json one object a line."""
    client = reach(url, key_file)
    path = _path(client, address, chain)
    try:
        _follow(client, path, client.get(path), timeout, tell=True, as_json=as_json)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


# --- how they do it ---


def _path(client: Client, address: str, chain: int | None) -> str:
    chain_id, account = pick_lane(client, address, chain)
    return f"/v1/lanes/{chain_id}/{account}"


def _reason(reason: str | None) -> dict[str, object]:
    return {} if reason is None else {"reason": reason}


def _control(verb: str, client: Client, address: str, chain: int | None, reason: str | None, *, as_json: bool) -> None:
    _tell_control(client.post(f"{_path(client, address, chain)}/{verb}", _reason(reason)), as_json=as_json)


def _tell_control(shown: Shown, *, as_json: bool) -> None:
    if as_json:
        show_json(shown)
        return
    control, live = shown["control"], shown["transactions"]
    why = f" ({control['reason']})" if control["reason"] else ""
    flying = sum(count for state, count in live.items() if state != "queued")
    show(f"{shown['address']}  {control['mode']}{plain(why)}  {live.get('queued', 0)} queued, {flying} in flight")


def _ask_before_force(lane: Shown) -> None:
    slots = sum(lane["slots"].values())
    _ask(
        f"{slots} nonces of {lane['address']} are not final. By force, the chain's count becomes the next nonce: what may "
        "still be executed keeps its nonce, and what was final here may be given up. Reset it?"
    )


def _ask(question: str) -> None:
    if not sys.stdin.isatty():
        raise typer.BadParameter("nobody is here to be asked; say --yes if you mean it", param_hint="--yes")
    if not typer.confirm(question, err=True):
        say("nothing was done")
        raise typer.Exit(1)


def _show_kept(kept: list[Shown]) -> None:
    show_table(
        ("nonce", "kind", "transaction", "hash"),
        [(str(one["nonce"]), one["kind"], one["tx"] or "", one["hash"] or "") for one in kept],
    )


def _follow(
    client: Client,
    path: str,
    shown: Shown,
    seconds: float | None,
    *,
    tell: bool,
    as_json: bool = False,
    done: Done = lambda _now: False,
) -> Shown:
    """The lane once it is `done`, or when the time is over; each change is told. A service that is away is waited for."""
    clock = time.monotonic  # noqa: TID251 - a person waits here; nothing else is decided by it
    deadline = None if seconds is None else clock() + seconds
    told: object = None
    while True:
        line = _line(shown)
        if tell and line != told:
            told = line
            if as_json:
                sys.stdout.write(json.dumps(shown, ensure_ascii=False) + "\n")
                sys.stdout.flush()
            else:
                show(plain(f"{time.strftime('%H:%M:%S', time.gmtime())}  {line}"))
        if done(shown) or (deadline is not None and clock() >= deadline):
            return shown
        time.sleep(RETRY_SECONDS)  # noqa: TID251 - a person waits here
        try:
            shown = client.get(path)
        except ServiceUnreachable as error:
            if told is not None:
                say(f"{error}; waiting for it", style="yellow")
            told = None


def _line(shown: Shown) -> str:
    live = ", ".join(f"{count} {state}" for state, count in shown["transactions"].items()) or "nothing live"
    parts = [
        shown["control"]["mode"],
        live,
        f"in flight {in_flight(shown)}",
        f"next nonce {'?' if shown['next_nonce'] is None else shown['next_nonce']}",
        f"final below {shown['settled_below']}",
    ]
    parts += (
        [f"reserved {', '.join(str(one['nonce']) for one in shown['reservations'])}"] if shown["reservations"] else []
    )
    parts += [f"{len(shown['wishes'])} wishes open"] if shown["wishes"] else []
    trouble = trouble_of(shown)
    return "  ".join(parts) + (f"  ! {trouble}" if trouble else "")
