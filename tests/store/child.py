"""A process of its own on a store's file: `python -m tests.store.child WHAT PATH OWNER`. What it did, it prints."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import sys
import time

from nonchalant.errors import LeaseLost
from nonchalant.model import Change, Event, Lease
from nonchalant.store import migrations, sqlite
from nonchalant.store.migrations import migrate
from nonchalant.store.sqlite import SqliteStore
from nonchalant.words import LaneKey
from tests.examples import LANE, a_request
from tests.store.acts import accept, assign

OWN_LANES = {owner: LaneKey(7, f"0x{owner}") for owner in "abcd"}
LIMITS = dict.fromkeys((LANE, *OWN_LANES.values()), 10_000)
ROUNDS = 60
WRITES = 4
TURNS = range(0, ROUNDS, 5)  # in these rounds one waits for the common lane, and keeps it until all is written


class RealClock:
    def now(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class RealEntropy:
    def token(self) -> str:
        return os.urandom(16).hex()

    def uniform(self, low: float, high: float) -> float:
        return low


def say(text: object) -> None:
    print(text, flush=True)


def opened(path: str) -> SqliteStore:
    return SqliteStore.open(path, clock=RealClock(), entropy=RealEntropy())


async def accept_for_ever(store: SqliteStore, owner: str) -> None:
    """Say each id only after it was acknowledged."""
    number = 0
    while True:
        ids = [f"{owner}{number + step}" for step in range(3)]
        await accept(store, *ids)
        for id in ids:
            say(id)
        number += 3


async def hammer(store: SqliteStore, owner: str) -> None:
    """Fill and work a lane of one's own, and fight the others for a common one."""
    lane = OWN_LANES[owner]
    epoch = await store.acquire(lane, owner, 600)
    assert epoch is not None
    own = Lease(lane, owner, epoch, 0.0)
    for number in range(ROUNDS):
        [tx] = await store.accept([a_request(f"{owner}{number}", lane=lane)], limits=LIMITS)
        await assign(store, own, (tx, number))  # type: ignore[arg-type]
        # A new owner each time, and what is told without compaction: the test reads every one of them.
        if number in TURNS:
            await take_turn(store, f"{owner}-{number}")
        else:
            await fight(store, f"{owner}-{number}")


async def take_turn(store: SqliteStore, owner: str) -> None:
    while (epoch := await store.acquire(LANE, owner, 600)) is None:  # noqa: ASYNC110 - as a sweep does
        await asyncio.sleep(0.001)
    lease = Lease(LANE, owner, epoch, 0.0)
    await write(store, lease)
    await store.release([lease])


async def fight(store: SqliteStore, owner: str) -> None:
    """For a lease that ends while its owner writes, or just does not: how often, the machine decides."""
    epoch = await store.acquire(LANE, owner, 0.004)
    if epoch is not None:
        await write(store, Lease(LANE, owner, epoch, 0.0))


async def write(store: SqliteStore, lease: Lease) -> None:
    for step in range(WRITES):
        told = Event(kind="lane.filled", lane=LANE, at=0, data={"epoch": lease.epoch, "step": step})
        try:
            await store.commit(Change(events=(told,)), lease)
        except LeaseLost:
            say("lost")
            return
    say("kept")


def write_slowly(path: str) -> None:
    """As one who makes the file by migrating does: it has no log yet, and its writer is not done."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("CREATE TABLE t (x)")
        say("writes")
        time.sleep(0.5)
        connection.execute("COMMIT")


async def main(what: str, path: str, owner: str) -> None:
    # Where a commit takes a slow disk tens of milliseconds, those that write without a pause leave another no turn for
    # longer than a node waits before it comes again.
    sqlite.BUSY_SECONDS = migrations.BUSY_SECONDS = 120.0
    if what == "write slowly":
        write_slowly(path)
        return
    if what == "migrate":
        say(migrate(f"sqlite:{path}").version)
        return
    store = opened(path)
    await store.declare([LANE, *OWN_LANES.values()])
    say("open")
    if what == "accept":
        await accept_for_ever(store, owner)
    elif what == "hammer":
        await hammer(store, owner)
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
