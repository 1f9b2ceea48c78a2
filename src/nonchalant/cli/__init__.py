"""The command line. What takes time to import is imported by the command that needs it."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path


def main() -> None:
    """The program's entry: runs the command, and turns what went wrong into one line and an exit code."""
    from nonchalant.errors import NonchalantError

    try:
        from nonchalant.cli.commands import app

        app(prog_name="nonchalant")
    except NonchalantError as error:
        _fail(str(error))
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:  # noqa: BLE001 - a person reads where, not all the frames
        place = traceback.extract_tb(error.__traceback__)[-1]
        _fail(
            f"{type(error).__name__}: {error} ({Path(place.filename).name}:{place.lineno}); this is a bug, please report it"
        )


def _fail(message: str) -> None:
    from nonchalant.cli.terminal import plain, say

    say(f"error: {plain(message)}", style="red")
    sys.exit(1)
