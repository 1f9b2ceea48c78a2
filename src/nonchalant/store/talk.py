"""How what the stores share speaks to a database.

What has to be read and written is a procedure: a generator that yields a step and is sent the answer. It knows neither
driver nor thread nor event loop, so the same one runs on SQLite in a thread, on SQLite in place inside the simulator,
and on PostgreSQL over a socket.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from nonchalant.errors import LeaseLost, RowMoved
from nonchalant.model import Event, Lease
from nonchalant.store.rows import Row
from nonchalant.words import Millis

T = TypeVar("T")
Columns: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Ask:
    """One named query. `narrow`: without the lines whose values are not given.

    What time it is by the store's clock, every query knows by itself: it is no column.
    """

    query: str
    columns: Columns = field(default_factory=dict)
    narrow: bool = False


@dataclass(frozen=True, slots=True)
class AskForEach:
    """A named query for each of these; where the database can, in one round trip."""

    query: str
    each: Sequence[Columns]
    common: Columns = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Fence:
    """The first step of every owner's transaction; a row with `now` if the lease is held."""

    lease: Lease


@dataclass(frozen=True, slots=True)
class Moment:
    """What time it is by the store's clock: a row with `now`."""


@dataclass(frozen=True, slots=True)
class Keys:
    """Who accepts and who removes exclude each other, until they have committed: a row with `now`.

    A key goes from one table to another when its transaction is removed; nobody may look in between.
    """

    alone: bool


@dataclass(frozen=True, slots=True)
class Tell:
    """Write events down, in this order. Of those that tell the same again, only the first and the newest stay."""

    events: Sequence[Event]


@dataclass(frozen=True, slots=True)
class Number:
    """Give every event that is committed its position."""


Step: TypeAlias = Ask | AskForEach | Fence | Moment | Keys | Tell | Number


@dataclass(frozen=True, slots=True)
class Answer:
    rows: Sequence[Row] = ()
    count: int = 0  # rows that were found or written


Procedure: TypeAlias = Generator[Step, Answer, T]


def ask(query: str, **columns: object) -> Procedure[Sequence[Row]]:
    answer = yield Ask(query, columns)
    return answer.rows


def change(query: str, **columns: object) -> Procedure[int]:
    """How many rows it changed."""
    answer = yield Ask(query, columns)
    return answer.count


def ask_for_each(query: str, each: Sequence[Columns], **common: object) -> Procedure[Sequence[Row]]:
    if not each:
        return ()
    answer = yield AskForEach(query, each, common)
    return answer.rows


def change_each(query: str, each: Sequence[Columns], **common: object) -> Procedure[int]:
    """How many rows it changed in all."""
    if not each:
        return 0
    answer = yield AskForEach(query, each, common)
    return answer.count


def expect_each(query: str, each: Sequence[Columns], **common: object) -> Procedure[None]:
    """Each of them changes its row, or nothing is committed."""
    changed = yield from change_each(query, each, **common)
    if changed != len(each):
        names = ", ".join(str(columns.get("id") or columns.get("nonce")) for columns in each)
        raise RowMoved(f"{query}: {'one of ' if len(each) > 1 else ''}{names} is not as it was read")


def tell(events: Sequence[Event]) -> Procedure[None]:
    if events:
        yield Tell(events)


def now() -> Procedure[Millis]:
    answer = yield Moment()
    return int(answer.rows[0]["now"])


def with_keys(*, alone: bool) -> Procedure[Millis]:
    """What time it is, once nobody is in the way."""
    answer = yield Keys(alone)
    return int(answer.rows[0]["now"])


def fence(lease: Lease) -> Procedure[Millis]:
    """`LeaseLost` unless it is held; what time it is."""
    answer = yield Fence(lease)
    if not answer.rows:
        raise LeaseLost(f"lease of {lease.lane} at epoch {lease.epoch} is not ours any more")
    return int(answer.rows[0]["now"])


def holder(lease: Lease) -> dict[str, Any]:
    return {**lease.lane._asdict(), "owner": lease.owner, "epoch": lease.epoch}


def millis(seconds: float) -> Millis:
    return round(seconds * 1000)
