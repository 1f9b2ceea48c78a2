"""Staying with a transaction: what is told of its way, and how the command ends."""

from __future__ import annotations

import typer

from nonchalant.amounts import format_wei
from nonchalant.cli.client import Client, Shown
from nonchalant.cli.terminal import STATE_STYLES, moment, plain, say, show, show_json
from nonchalant.words import HELD_MARK, LIVE_STATES, State


def watch_until_the_end(
    client: Client,
    shown: Shown,
    timeout: float | None,
    *,
    as_json: bool,
    explain: bool = False,
    wanted: State = State.CONFIRMED,
) -> None:
    """Tell its way until it has ended, is held, or the time is over; exit code 1 unless it ended as wanted.

    Why it waits is told when nothing happens for a while, and at once to those who want it explained.
    """
    told: dict[str, object] = {}

    def tell(now: Shown, *, explain: bool) -> None:
        for line, style in _news(now, told, explain=explain):
            show(plain(line), style)

    def mute(_now: Shown, *, explain: bool) -> None:
        pass

    if not as_json:
        tell(shown, explain=explain)
    try:
        end = client.follow(shown, timeout, mute if as_json else tell)
    except KeyboardInterrupt:
        say(f"it goes on without you; see `nonchalant tx watch {shown['id']}`", style="dim")
        raise typer.Exit(130) from None
    if as_json:
        show_json(end)
    if end["held"]:
        mark = end["attention"]["code"] if end["attention"] else HELD_MARK
        named = "" if mark == HELD_MARK else f" --mark {mark}"
        say(f"it does not go on by itself; `nonchalant tx release {end['id']}{named}` lets it go", "yellow")
    elif end["state"] in LIVE_STATES:
        say(
            f"still {end['state']} after {timeout:g} s: {plain(end['waiting'] or '')}\n"
            f"it goes on without you; see `nonchalant tx watch {end['id']}`",
            "yellow",
        )
    if end["state"] != wanted:
        raise typer.Exit(1)


def _news(now: Shown, told: dict[str, object], *, explain: bool) -> list[tuple[str, str | None]]:
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
    if attention is not None and not now["held"] and told.get("attention") != attention["reason"]:
        lines.append((f"          needs attention: {attention['reason']}", "yellow"))
    told["attention"] = attention and attention["reason"]
    if (explain or now["held"]) and now["waiting"] is not None and told.get("why") != now["waiting"]:
        told["why"] = now["waiting"]
        lines.append((f"          {now['waiting']}", "yellow" if now["held"] else "dim"))
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
