"""The audit log's rows. Whoever writes one holds the row of its head until the commit: there is one chain, however many nodes write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nonchalant.audit import Deed, Entry, Head, hash_of
from nonchalant.errors import RowMoved
from nonchalant.store.rows import Row
from nonchalant.store.talk import Procedure, ask, change, now


def lock() -> Procedure[Head]:
    """Where the log ends. Until the commit nobody else writes to it, nor anything that is written down with it."""
    [found] = yield from ask("lock_audit")
    return _head(found)


def note(deed: Deed) -> Procedure[int]:
    """Write it down, in the commit that it is part of; the entry's position."""
    head = yield from lock()
    return (yield from note_after(head, deed))


def note_after(head: Head, deed: Deed) -> Procedure[int]:
    """As `note`, where the log is locked already."""
    position, at = head.position + 1, (yield from now())
    fields: dict[str, Any] = {
        "position": position,
        "at": at,
        "actor": deed.actor.id,
        "name": deed.actor.name,
        "action": deed.action,
        "subject": deed.about,
        "data": deed.text,
        "previous": head.hash,
    }
    hash = hash_of(**fields)
    yield from change("insert_audit", **fields, hash=hash)
    if (yield from change("move_audit_head", position=position, hash=hash, previous=head.hash)) != 1:
        raise RowMoved("the audit log does not end where it was locked")
    return position


def after(position: int, limit: int) -> Procedure[Sequence[Entry]]:
    found = yield from ask("audit_after", after=position, limit=limit)
    return [Entry(**{column: row[column] for column in Entry.__dataclass_fields__}) for row in found]


def head() -> Procedure[Head]:
    [found] = yield from ask("audit_head")
    return _head(found)


def _head(row: Row) -> Head:
    return Head(row["position"], row["hash"])
