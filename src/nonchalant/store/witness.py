"""Noticing a store that lost commits: an older copy put in its place must not pay twice."""

from __future__ import annotations

import os
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from nonchalant.store import queries

# More events than a store can lose before it is noticed.
POSITIONS_SKIPPED = 1_000_000_000


class Witness(Protocol):
    """Remembers, outside the store, how far the store had come: an older copy put in its place is noticed."""

    def seen(self) -> tuple[str, int] | None: ...

    def saw(self, store_id: str, commits: int) -> None: ...


@dataclass(slots=True)
class FileWitness:
    """A small file beside the store. Not synchronised: a power cut loses nothing that an older copy would hide."""

    path: Path
    _file: int | None = None

    def seen(self) -> tuple[str, int] | None:
        try:
            store_id, commits = self.path.read_text().partition("\n")[0].split()
            return store_id, int(commits)
        except (FileNotFoundError, ValueError):
            return None

    def saw(self, store_id: str, commits: int) -> None:
        if self._file is None:
            self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT, 0o600)
        os.pwrite(self._file, f"{store_id} {commits:020d}\n".encode(), 0)

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def notice_restore(connection: sqlite3.Connection, witness: Witness) -> bool:
    """Whether the file is older than what the witness saw; if so every lane will be reconciled before it assigns."""
    sql = queries.load("sqlite")
    # The witness first: another process may commit between the two, and what was seen earlier is never ahead of it.
    seen = witness.seen()
    found = connection.execute(sql["position"]).fetchone()
    lost = seen is not None and (seen[0] != found["store_id"] or seen[1] > found["commits"])
    if lost:
        connection.execute(sql["raise_incarnation"])
        connection.execute(sql["begin_positions"])
        connection.execute(sql["skip_positions"], {"skipped": POSITIONS_SKIPPED})
    if lost or seen is None:
        witness.saw(found["store_id"], found["commits"])
    return lost
