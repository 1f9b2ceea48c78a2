"""What a node does with a store, in one line each."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass
from typing import Any

from nonchalant.lanes import Lane, Work
from nonchalant.lifecycle import Assigned
from nonchalant.model import Attempt, Change, LaneKey, LaneRecord, Lease, SlotKind, Transaction
from nonchalant.ports import Acceptance, Filter, Store
from tests.examples import BOB, LANE, a_hash, a_request, an_attempt

OTHER_LANE = LaneKey(7, BOB)
LIMITS = {LANE: 1_000, OTHER_LANE: 1_000}
TTL = 10.0


class ManualClock:
    """Stands still until a test, or somebody's sleep, moves it."""

    def __init__(self, start: int = 1_000_000) -> None:
        self.millis = start

    def now(self) -> int:
        return self.millis

    def monotonic(self) -> float:
        return self.millis / 1000

    async def sleep(self, seconds: float) -> None:
        self.pass_seconds(seconds)
        await asyncio.sleep(0)

    def pass_seconds(self, seconds: float) -> None:
        self.millis += round(seconds * 1000)


class Counting:
    """Entropy that a test can foresee."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def token(self) -> str:
        return f"{next(self._numbers):032x}"

    def uniform(self, low: float, high: float) -> float:
        return low


async def accept(store: Store, *ids: str, **fields: Any) -> list[Transaction]:
    """New transactions with these ids."""
    answers = await store.accept([a_request(id, **fields) for id in ids], limits=LIMITS)
    return [only_transaction(answer) for answer in answers]


def only_transaction(answer: Acceptance) -> Transaction:
    assert isinstance(answer, Transaction)
    return answer


async def take(store: Store, owner: str = "node-a", lane: LaneKey = LANE) -> Lease:
    epoch = await store.acquire(lane, owner, TTL)
    assert epoch is not None
    return Lease(lane, owner, epoch, 0.0)


def work(lease: Lease, at: int = 0, **record: Any) -> Work:
    return Work(Lane(LaneRecord(key=lease.lane, **record)), at)


def assignment(lease: Lease, *pairs: tuple[Transaction, int]) -> Change:
    """What assigning these to their nonces commits."""
    making = work(lease)
    for tx, nonce in pairs:
        attempt = an_attempt(a_hash(f"{tx.id}@{nonce}"), nonce, tx.id, epoch=lease.epoch)
        making.move(tx, Assigned(nonce, attempt.hash))
        making.bind(nonce, SlotKind.TRANSACTION, attempt)
    return making.change()


def filler(lease: Lease, nonce: int) -> Change:
    making = work(lease)
    making.bind(nonce, SlotKind.FILLER, an_attempt(a_hash(f"filler@{nonce}"), nonce, None, epoch=lease.epoch))
    return making.change()


async def assign(store: Store, lease: Lease, *pairs: tuple[Transaction, int]) -> list[Transaction]:
    """Bind them; the transactions as they stand then."""
    change = assignment(lease, *pairs)
    await store.commit(change, lease)
    return list(change.transactions)


@dataclass(frozen=True)
class Everything:
    """All that a store shows of itself; two that are equal hold the same."""

    transactions: list[Transaction]
    attempts: dict[str, list[Attempt]]
    lanes: list[Any]
    events: list[Any]


async def everything(store: Store) -> Everything:
    transactions = list(await store.transactions(Filter(limit=10_000)))
    attempts = await store.attempts([tx.id for tx in transactions])
    return Everything(
        transactions=transactions,
        attempts={tx_id: list(found) for tx_id, found in attempts.items()},
        lanes=list(await store.lanes()),
        events=list(await store.events_after(0, limit=10_000)),
    )
