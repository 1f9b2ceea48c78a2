"""`bench`: the benchmark, which is part of the source and not of the package."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from nonchalant.cli.options import AsJson
from nonchalant.errors import BadSettings

ROOT = Path(__file__).resolve().parents[3]


def bench(
    quick: Annotated[bool, typer.Option("--quick", help="One round of a tenth of the work: some minutes.")] = False,
    long: Annotated[
        bool, typer.Option("--long", help="Instead: cost with more settled, more lanes, more pending.")
    ] = False,
    only: Annotated[
        str, typer.Option(metavar="NAMES", help="Some parts, with commas between; an unknown one shows all.")
    ] = "",
    rounds: Annotated[int | None, typer.Option(min=1, help="Without it three.", show_default=False)] = None,
    transactions: Annotated[
        int | None, typer.Option(min=1, help="Of every case, instead of its own number.", show_default=False)
    ] = None,
    record: Annotated[bool, typer.Option("--record", help="Add what was found to bench/RESULTS.md.")] = False,
    profile: Annotated[
        Path | None,
        typer.Option(help="Where our time goes, by py-spy: a .svg, or .txt, or .json.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure throughput and latency beside what else one could do, each run audited; from a clone of the source."""
    if not (ROOT / "bench" / "command.py").exists():
        raise BadSettings("the benchmark is not in the package: clone the source, and run `make bench` there")
    sys.path.insert(0, str(ROOT))
    try:
        command = import_module("bench.command")
    except ModuleNotFoundError as missing:
        raise BadSettings(f"the benchmark needs {missing.name}, which is not installed: run `make install`") from None
    code = command.main(
        long=long,
        quick=quick,
        only=[name for name in only.split(",") if name],
        rounds=rounds,
        transactions=transactions,
        record=record,
        profile=profile,
        as_json=as_json,
    )
    raise typer.Exit(code)
