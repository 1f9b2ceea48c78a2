"""Which server this is, and how far it has come: a PostgreSQL that lost commits must not pay twice.

A promoted standby or a recovered backup writes on a new timeline; a dump lands on another server, or in tables that are
new to this one; a copy of the database is another database; a snapshot of the disk shows only in that the log is shorter
than a node remembers.
"""

from __future__ import annotations

from dataclasses import dataclass

from nonchalant.store.rows import Row


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """What a node has seen, or sees now. `system` None: not asked for; `home` None: not known."""

    system: int | None
    timeline: int
    wal: int  # the log's length in bytes: it never goes back
    home: int | None = None  # which table of which database it was read from: every new one has another number

    @classmethod
    def of(cls, row: Row) -> Whereabouts:
        told = dict(row)
        return cls(told.get("system_identifier"), row["timeline"], row["wal"], told.get("home"))

    def has_lost(self, seen: Whereabouts) -> bool:
        """Whether commits that were seen may be missing here."""
        other = _differ(self.system, seen.system) or _differ(self.home, seen.home)
        return other or self.timeline != seen.timeline or self.wal < seen.wal

    def since(self, seen: Whereabouts) -> Whereabouts:
        """What is known after both were seen."""
        return Whereabouts(self.system or seen.system, self.timeline, max(self.wal, seen.wal), self.home or seen.home)


def _differ(found: int | None, seen: int | None) -> bool:
    return found is not None and seen is not None and found != seen
