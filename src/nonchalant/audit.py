"""The audit log: what was ordered by whom, each entry bound to the one before it by a hash.

Whoever can write to the database can change an entry, but not so that the hashes still fit: not without writing every
later entry anew, and then the last hash is another one. Who keeps a hash elsewhere sees that, too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from nonchalant.access import Caller
from nonchalant.words import Millis

# What the first entry follows.
NOTHING: Final = "0" * 64

# Who acts where no key says so.
ANYBODY: Final = "anybody"  # keys are not asked for
COMMAND_LINE: Final = "command line"  # on the store itself, without the service
FIRST_START: Final = "first start"

# Text of callers that is longer is cut: a parameter is written down to know what was ordered, not to keep it.
LONGEST_TEXT: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """Who acts: a key's id, or one of the words above; and what that is called."""

    id: str
    name: str = ""

    @classmethod
    def of(cls, caller: Caller) -> Actor:
        return cls(id=ANYBODY) if caller.key_id is None else cls(id=caller.key_id, name=caller.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deed:
    """What is to be written down. `data` are the parameters, without anything secret."""

    actor: Actor
    action: str
    subject: str
    data: Mapping[str, object] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The parameters as they are written and hashed."""
        return written(_shortened(self.data))

    @property
    def about(self) -> str:
        """The subject as it is written: part of a path may be anything."""
        return "".join(sign if sign.isprintable() else "?" for sign in self.subject[:LONGEST_TEXT])


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line of the log as it was found. `data` is JSON, as text: what was hashed."""

    position: int
    at: Millis
    actor: str
    name: str
    action: str
    subject: str
    data: str
    previous: str
    hash: str


@dataclass(frozen=True, slots=True)
class Head:
    """Where the log ends; position 0: it is empty."""

    position: int = 0
    hash: str = NOTHING


@dataclass(frozen=True, slots=True)
class Broken:
    """The first place where the log is not what was written."""

    position: int
    reason: str


def hash_of(
    *, position: int, at: Millis, actor: str, name: str, action: str, subject: str, data: str, previous: str
) -> str:
    fields = [position, at, actor, name, action, subject, data, previous]
    return hashlib.sha256(msgspec.json.encode(fields)).hexdigest()


def written(value: object) -> str:
    """The one way in which these parameters are written."""
    return msgspec.json.encode(value, order="sorted").decode()


@dataclass(slots=True)
class Check:
    """Reads the log from its beginning, page by page.

    `end` is where the store said, before anything was read, that its log ends: meanwhile it may grow. `kept` is a hash
    of an entry that somebody wrote down elsewhere.
    """

    end: Head
    kept: str | None = None
    read_to: Head = Head()
    _found: bool = False

    def read(self, entries: Iterable[Entry]) -> Broken | None:
        """None: all of these follow from those before."""
        for entry in entries:
            broken = self._wrong_with(entry)
            if broken is not None:
                return broken
            self.read_to = Head(entry.position, entry.hash)
            self._found |= entry.hash == self.kept
        return None

    def finish(self) -> Broken | None:
        """Nothing more was found; None: all is there."""
        position = self.read_to.position + 1
        if self.read_to.position < self.end.position:
            return Broken(position, f"it is missing, with all after it; {self.end.position} entries were written")
        if self.kept not in (None, NOTHING) and not self._found:
            return Broken(position, "no entry has the hash that was kept: the end was cut off, or written anew")
        return None

    def _wrong_with(self, entry: Entry) -> Broken | None:
        position = self.read_to.position + 1
        if entry.position != position:
            return Broken(position, f"it is missing; the next is entry {entry.position}")
        if entry.previous != self.read_to.hash:
            return Broken(position, "it does not follow the one before it")
        fields = {name: getattr(entry, name) for name in _HASHED}
        if hash_of(**fields) != entry.hash:
            return Broken(position, "it was changed: its hash is not that of what it says")
        if position == self.end.position and entry.hash != self.end.hash:
            return Broken(position, "the store noted another hash for it")
        return None


_HASHED: Final = ("position", "at", "actor", "name", "action", "subject", "data", "previous")


def _shortened(value: Any) -> Any:
    match value:
        case str() if len(value) > LONGEST_TEXT:
            return f"{value[:LONGEST_TEXT]}… ({len(value)} characters)"
        case Mapping():
            return {name: _shortened(item) for name, item in value.items()}
        case list() | tuple():
            return [_shortened(item) for item in value]
        case _:
            return value
