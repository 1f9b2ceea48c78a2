"""All commands, in one place."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nonchalant.cli import audit, benchmark, checks, keys, lanes, nodes, steering, transactions, wishes
from nonchalant.cli.options import AsJson, Config
from nonchalant.cli.terminal import show, show_fields, show_json

app = typer.Typer(
    help="Sends blockchain transactions for a backend, exactly once, and never worries about nonces.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # Rich's help brings a quarter of a second of imports
)
db = typer.Typer(help="The store's schema: migrate, status.", no_args_is_help=True, rich_markup_mode=None)

app.command()(nodes.dev)
app.command()(nodes.serve)
app.command()(transactions.send)
app.add_typer(transactions.tx, name="tx")
wishes.add_to(transactions.tx)
app.add_typer(lanes.lane, name="lane")
steering.add_to(lanes.lane)
app.add_typer(keys.key, name="key")
app.add_typer(audit.audit, name="audit")
app.command()(checks.doctor)
app.add_typer(checks.config, name="config")
app.add_typer(db, name="db")


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        show(f"nonchalant {version('nonchalant')}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and leave.")
    ] = False,
) -> None:
    pass


@db.command()
def migrate(config: Config = None, as_json: AsJson = False) -> None:
    """Bring the store to this program's schema version, making it if it is missing."""
    from nonchalant.config import load_settings
    from nonchalant.store import schemas
    from nonchalant.system import SystemEntropy

    _show_schema(schemas.migrate(load_settings(config).store, SystemEntropy()), as_json=as_json)


@db.command()
def status(config: Config = None, as_json: AsJson = False) -> None:
    """Show the store's schema version; exit code 1 if it has to be migrated."""
    from nonchalant.config import load_settings
    from nonchalant.store import schemas

    found = schemas.status(load_settings(config).store)
    _show_schema(found, as_json=as_json)
    if not found.is_current:
        raise typer.Exit(1)


def _show_schema(found: object, *, as_json: bool) -> None:
    from nonchalant.store.migrations import Status

    assert isinstance(found, Status)
    if as_json:
        show_json(
            {"path": str(found.path), "version": found.version, "latest": found.latest, "current": found.is_current}
        )
        return
    show_fields([("store", str(found.path)), ("version", str(found.version)), ("latest", str(found.latest))])


@app.command()
def sim(
    seeds: Annotated[int, typer.Option(min=1, help="How many histories.")] = 100,
    first: Annotated[int, typer.Option(min=0, help="The first seed.")] = 0,
    mutant: Annotated[
        str | None, typer.Option(metavar="NAME", help="Break one of our own rules; `list` prints the names.")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Processes; without it one a core.", show_default=False)
    ] = None,
    trace: Annotated[
        Path | None, typer.Option(help="Write the trace of a failing seed here.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run simulated histories full of faults, and check every promise in each."""
    from nonchalant.sim.command import main

    raise typer.Exit(main(seeds=seeds, first=first, mutant=mutant, as_json=as_json, jobs=jobs, trace=trace))


app.command()(benchmark.bench)
