"""Rows that somebody or something changed so that they cannot be read: each is warned of once, and stops nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import structlog

from nonchalant.model import Attempt, Event, Receipt, Slot, Transaction
from nonchalant.store import rows, stand_ins
from nonchalant.store.rows import Row
from nonchalant.store.talk import Procedure

log = structlog.get_logger()

T = TypeVar("T")


class Legible:
    """Reads rows of one store, and remembers which it warned of."""

    def __init__(self) -> None:
        self._warned: set[tuple[str, object]] = set()

    def warn(self, what: str, name: object) -> None:
        if (what, name) not in self._warned:
            self._warned.add((what, name))
            log.warning("row.undecodable", **{what: name})

    def transaction(self, row: Row) -> Transaction | None:
        """None: it cannot be read."""
        try:
            return rows.transaction(row)
        except rows.UNDECODABLE:
            self.warn("tx", row["id"])
            return None

    def transactions(self, found: Iterable[Row]) -> list[Transaction]:
        return [tx for tx in map(self.transaction, found) if tx is not None]

    def events(self, found: Iterable[Row]) -> list[Event]:
        good = []
        for row in found:
            try:
                good.append(rows.event(row))
            except rows.UNDECODABLE:
                self.warn("position", row["position"])
        return good

    # what an owner must have, legible or not

    def attempt(self, row: Row) -> Attempt:
        try:
            return rows.attempt(row)
        except rows.UNDECODABLE:
            self.warn("attempt", row["hash"])
            return stand_ins.attempt(dict(row))

    def slot(self, row: Row, attempts: Sequence[Attempt], receipt: Receipt | None) -> Slot:
        try:
            return rows.slot(row, attempts, receipt)
        except rows.UNDECODABLE:
            self.warn("slot", row["nonce"])
            return stand_ins.slot(row, attempts, receipt)

    def with_a_slot(self, row: Row, signed: Sequence[Attempt], now: int) -> Transaction:
        try:
            return rows.with_payloads_of(rows.transaction(row), signed)
        except rows.UNDECODABLE:
            self.warn("tx", row["id"])
            return stand_ins.transaction(dict(row), signed, now)

    def filler_receipt(self, row: Row) -> Receipt | None:
        """None also if it cannot be read: the owner finds it on the chain again."""
        try:
            return rows.receipt(row["receipt"])
        except rows.UNDECODABLE:
            self.warn("filler", row["nonce"])
            return None


def full_page(
    page: Callable[[int | None, int], Procedure[Sequence[Row]]],
    cursor: str,
    start: int | None,
    limit: int,
    readable: Callable[[Iterable[Row]], list[T]],
) -> Procedure[list[T]]:
    """Read on past rows that cannot be read: a short page tells its reader that nothing follows."""
    good: list[T] = []
    while len(good) < limit:
        missing = limit - len(good)
        found = yield from page(start, missing)
        good += readable(found)
        if len(found) < missing:
            break
        start = found[-1][cursor]
    return good
