"""`config check` and `doctor`: what is wrong, and what to do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from nonchalant.cli.options import AsJson, Config
from nonchalant.cli.terminal import plain, show, show_fields, show_json

if TYPE_CHECKING:
    from nonchalant.cli.examination import Finding

AUTH = {
    "keys": "keys: every call needs an API key",
    "off": "off: everybody on this machine may do everything",
}

config = typer.Typer(help="The settings: check.", no_args_is_help=True, rich_markup_mode=None)


@config.command()
def check(config: Config = None, as_json: AsJson = False) -> None:
    """Read the settings and every key they name; say what they mean."""
    from nonchalant.chain.evm.addresses import checksum
    from nonchalant.config import load_settings
    from nonchalant.parts import adviser_of, signers_of

    settings = load_settings(config)
    keys = signers_of(settings)
    adviser_of(settings, {lane: account for lane, (_, account) in keys.items()})
    lanes = list(keys)
    if as_json:
        show_json(
            {
                "ok": True,
                "store": settings.store_name,
                "listen": str(settings.listen),
                "auth": settings.auth,
                "attention_hook": settings.attention_hook,
                "chains": [
                    {
                        "id": chain.id,
                        "endpoints": [endpoint.name for endpoint in chain.endpoints],
                        "finality": chain.finality,
                    }
                    for chain in settings.chains
                ],
                "accounts": [{"chain_id": lane.chain_id, "address": checksum(lane.address)} for lane in lanes],
            }
        )
        return
    show_fields(
        [
            ("store", settings.store_name),
            ("listen", str(settings.listen)),
            ("auth", AUTH[settings.auth]),
            ("attention hook", settings.attention_hook),
            *(
                (
                    f"chain {chain.id}",
                    ", ".join(endpoint.name for endpoint in chain.endpoints)
                    + (", final by tag" if chain.depth is None else f", final after {chain.depth} blocks"),
                )
                for chain in settings.chains
            ),
            *((f"account on {lane.chain_id}", checksum(lane.address)) for lane in lanes),
        ]
    )
    show("the settings are right", style="green")


def doctor(config: Config = None, as_json: AsJson = False) -> None:
    """Look at settings, keys, store, endpoints and accounts; exit code 1 if something is wrong."""
    from nonchalant.cli.examination import examine

    findings = list(examine(config))
    wrong = [finding for finding in findings if not finding.ok]
    if as_json:
        show_json({"ok": not wrong, "findings": [finding.fields() for finding in findings]})
    else:
        for finding in findings:
            _show(finding)
        show(
            f"{len(wrong)} of {len(findings)} need a hand" if wrong else "all is well",
            style="red" if wrong else "green",
        )
    if wrong:
        raise typer.Exit(1)


def _show(finding: Finding) -> None:
    mark, style = ("✓", None) if finding.ok else ("✗", "red")
    show(f"{mark} {finding.what}: {plain(finding.detail)}", style=style)
    if finding.remedy is not None:
        show(f"  → {plain(finding.remedy)}", style="yellow")
