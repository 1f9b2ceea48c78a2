"""What was measured, in bench/RESULTS.md: dated, with the machine and the command."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from datetime import UTC, datetime

from tests.anvil import ROOT

RESULTS = ROOT / "bench" / "RESULTS.md"
TITLE = "# What was reached\n\nEach entry says when, on what and by which command; newer ones are below.\n"


def record(heading: str, command: str, lines: Sequence[str], table: Sequence[str] = ()) -> None:
    """Add an entry; others stay as they are. `table`: lines below the others, as they are."""
    RESULTS.parent.mkdir(exist_ok=True)
    old = RESULTS.read_text() if RESULTS.exists() else TITLE
    today = datetime.now(UTC).date().isoformat()
    entry = [f"## {today} {heading}", "", f"{machine()}; `{command}`", "", *(f"- {line}" for line in lines)]
    entry += ["", *table] if table else []
    RESULTS.write_text(old.rstrip("\n") + "\n\n" + "\n".join(entry) + "\n")


def machine() -> str:
    load = os.getloadavg()[0]
    return f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}, load {load:.1f}"
