"""Which server this is, and how far it has come: a PostgreSQL that lost commits must not pay twice.

A promoted standby or a recovered backup writes on a new timeline; a dump lands on another server; a snapshot of the disk
shows only in that the log is shorter than a node remembers.
"""

from __future__ import annotations

from dataclasses import dataclass

from nonchalant.store.rows import Row


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """What a node has seen, or sees now. `system` None: not asked for."""

    system: int | None
    timeline: int
    wal: int  # the log's length in bytes: it never goes back

    @classmethod
    def of(cls, row: Row) -> Whereabouts:
        return cls(dict(row).get("system_identifier"), row["timeline"], row["wal"])

    def has_lost(self, seen: Whereabouts) -> bool:
        """Whether commits that were seen may be missing here."""
        other = self.system is not None and seen.system is not None and self.system != seen.system
        return other or self.timeline != seen.timeline or self.wal < seen.wal

    def since(self, seen: Whereabouts) -> Whereabouts:
        """What is known after both were seen."""
        return Whereabouts(self.system or seen.system, self.timeline, max(self.wal, seen.wal))
