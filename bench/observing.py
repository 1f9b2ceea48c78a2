"""What watching costs: `python -m bench.observing`.

The counting of a transaction's whole way, from the very commits that tell of it; the intake with a watched store and
with a plain one, interleaved.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from pathlib import Path

from nonchalant.intake import Intake
from nonchalant.lanes import Lane, Work
from nonchalant.lifecycle import Assigned, Broadcast, Confirmed, Included
from nonchalant.model import Change, LaneRecord, Lease, Slot, Transaction
from nonchalant.observing.commits import Counting
from nonchalant.observing.observatory import Observatory
from nonchalant.observing.tallies import Tallies
from nonchalant.store.sqlite import SqliteStore
from nonchalant.system import SystemClock, SystemEntropy
from nonchalant.values import replace
from nonchalant.words import SlotKind
from tests.examples import LANE, a_hash, a_receipt, a_request, a_transaction, an_attempt

TRANSACTIONS = 2_000
BATCH = 100
ROUNDS = 7


def commits_of(transactions: list[Transaction]) -> list[Change]:
    """What is committed on the way of a batch: signed, sent, mined, final."""
    record, changes = LaneRecord(key=LANE), []
    signing = Work(Lane(record), 1_000)
    moved: list[tuple[Transaction, Slot]] = []
    for nonce, tx in enumerate(transactions):
        attempt = an_attempt(a_hash(tx.id), nonce, tx.id)
        signed = signing.move(tx, Assigned(nonce, attempt.hash))
        signing.bind(nonce, SlotKind.TRANSACTION, attempt)
        moved.append((signed, Slot(nonce=nonce, kind=SlotKind.TRANSACTION, tx_id=tx.id, attempts=(attempt,))))
    changes.append(signing.change())
    for step in (Broadcast, Included, Confirmed):
        work = Work(Lane(record), 2_000)
        after = []
        for tx, slot in moved:
            receipt = a_receipt(slot.attempts[0].hash)
            after.append((work.move(tx, Included(receipt) if step is Included else step()), slot))  # type: ignore[call-arg]
            work.answered(replace(slot.attempts[0], sent_at=1_500)) if step is Broadcast else work.include(
                slot, receipt
            )
        moved = after
        changes.append(work.change())
    return changes


def way() -> float:
    """Microseconds that counting takes for one transaction, all of its way."""
    lease, counting = Lease(LANE, "node", 1, 0.0), Counting(Tallies())
    batches = [
        commits_of([a_transaction(f"tx{number}") for number in range(start, start + BATCH)])
        for start in range(0, TRANSACTIONS, BATCH)
    ]
    began = time.process_time()
    for changes in batches:
        for change in changes:
            counting.committed(change, lease)
    return (time.process_time() - began) / TRANSACTIONS * 1e6


async def intake(*, watched: bool) -> float:
    """Microseconds of processor time that accepting takes a request."""
    clock = SystemClock()
    with tempfile.TemporaryDirectory() as folder:
        store = SqliteStore.open(Path(folder) / "nonchalant.db", clock=clock, entropy=SystemEntropy())
        await store.declare([LANE])
        used = Observatory(clock, lease_seconds=10).store(store) if watched else store
        intake = Intake(used, clock, limits={LANE: 10**6}, arrived=lambda _: None)
        began = time.process_time()
        await asyncio.gather(*(intake.submit(a_request(f"tx{number}")) for number in range(TRANSACTIONS)))
        took = time.process_time() - began
        await intake.close()
        await store.close()
    return took / TRANSACTIONS * 1e6


async def main() -> None:
    print(f"counting the whole way: {statistics.median(way() for _ in range(ROUNDS)):.1f} µs a transaction")
    plain, watched = [], []
    for _ in range(ROUNDS):
        plain.append(await intake(watched=False))
        watched.append(await intake(watched=True))
    print(f"accepting: {statistics.median(plain):.0f} µs a request plain, {statistics.median(watched):.0f} µs watched")


if __name__ == "__main__":
    asyncio.run(main())
