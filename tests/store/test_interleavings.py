"""Every fenced transaction against a take-over, in every order of their statements, on a real server: no stale write."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any

import asyncpg
import pytest

from nonchalant.errors import LeaseLost, RowMoved
from nonchalant.lifecycle import Confirmed, Failed, Included
from nonchalant.model import Change, Event, Lease, Transaction
from nonchalant.store import connections, owning
from nonchalant.store.legible import Legible
from nonchalant.store.postgres import PostgresStore
from nonchalant.store.statements import Statement
from nonchalant.store.talk import Procedure
from nonchalant.values import replace
from tests.examples import LANE, a_hash, a_receipt, a_record, a_slot, an_attempt
from tests.lessons import lesson
from tests.postgres import Cluster
from tests.store.acts import TTL, ManualClock, accept, assignment, empty, filler, on_postgres, sql, take, work

HEIRS = ("new", "newer")

Act = Callable[[], Awaitable[None]]
Stale = Callable[[Lease, Sequence[Transaction]], Procedure[Any]]


class Actor:
    """One transaction on a connection of its own, a statement at a time. A refusal ends it."""

    def __init__(self, name: str, store: PostgresStore, procedure: Procedure[Any]) -> None:
        self.name = name
        self.refused: Exception | None = None
        self.committed = False
        self.told: Any = None  # what it is answered, once it has committed
        self.xid: str | None = None  # the server's number for a transaction that locked or wrote something
        self._store = store
        self._procedure = procedure
        self._answer: Any = None
        self._connection: Any = None
        self._last: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        self._connection = await self._store._work.begun()
        self.pid = self._connection.get_server_pid()

    async def statement(self) -> None:
        """The next one; after the last, COMMIT."""
        try:
            step = self._procedure.send(self._answer)
        except StopIteration as end:
            self.xid = await self._connection.fetchval("SELECT pg_current_xact_id_if_assigned()::TEXT")
            await connections.commit(self._connection)
            self.committed, self.told = True, end.value
        else:
            self._answer = await self._store._take(self._connection, step)

    def start(self, act: Act) -> asyncio.Task[None]:
        """When the act before it has ended."""
        before = self._last

        async def in_turn() -> None:
            if before is not None:
                await before
            try:
                if self.refused is None:
                    await act()
            except (LeaseLost, RowMoved, asyncpg.PostgresError) as error:
                self.refused = error
                await connections.roll_back(self._connection)

        self._last = asyncio.create_task(in_turn())
        return self._last

    async def end(self) -> None:
        if self._last is not None:
            await self._last
        self._procedure.close()
        self._store._work.pool.release(self._connection)


class Stage:
    """One lane, its owner `old`, and `new` that takes it over; and `newer` that takes it over once more."""

    def __init__(self, store: PostgresStore, clock: ManualClock, observer: asyncpg.Connection) -> None:
        self.store = store
        self._clock = clock
        self._observer = observer

    async def prepare(self, stale: Stale) -> tuple[Lease, list[Transaction]]:
        await empty(self.store)
        await self.store.declare([LANE])
        lease = await take(self.store, "old")
        txs = await accept(self.store, "a", "b")
        for change in BEFORE[stale](lease, txs) if stale in BEFORE else ():
            await self.store.commit(change, lease)
        return lease, txs

    async def kept(self) -> list[Any]:
        """All that only an owner writes."""
        return [
            await sql(self.store, f"SELECT * FROM {table} ORDER BY 1, 2, 3")
            for table in ("slots", "attempts", "transactions", "lanes")
        ]

    async def statements(self, stale: Stale) -> int:
        """How many statements it takes when nobody is in its way, COMMIT included."""
        procedure, count = stale(*await self.prepare(stale)), 1
        async with self.store._work.transaction() as connection:
            step = next(procedure)
            while True:
                count += 1
                answer = await self.store._take(connection, step)
                try:
                    step = procedure.send(answer)
                except StopIteration:
                    return count

    async def play(self, stale: Stale, order: Sequence[str]) -> tuple[list[str], Actor]:
        """Who committed, in that order, and what became of the owner. Who did not has left nothing behind."""
        lease, txs = await self.prepare(stale)
        before = await self.kept()
        old = Actor("old", self.store, stale(lease, txs))
        heirs = [Actor(name, self.store, owning.acquire(LANE, name, TTL)) for name in HEIRS if name in order]
        actors = {actor.name: actor for actor in (old, *heirs)}
        for actor in actors.values():
            await actor.begin()
        begun = set()
        for name in order:
            actor = actors[name]
            if actor is not old and name not in begun:
                self._clock.pass_seconds(TTL + 1)  # each take-over begins because the lease ran out
                begun.add(name)
            await self._until_it_waits(actor, actor.start(actor.statement))
        for actor in actors.values():
            await actor.end()
        committed = [(await self._committed_at(actor), actor.name) for actor in actors.values() if actor.committed]
        assert (await self.kept() != before) == (stale in WRITING and old.committed), (order, old.refused)
        return [name for _, name in sorted(committed)], old

    async def _committed_at(self, actor: Actor) -> float:
        """By the server's clock: it lets go of locks before it answers, so its answers may overtake one another."""
        if actor.xid is None:
            return 0.0  # it left nothing that could be too late
        asked = "SELECT extract(epoch FROM pg_xact_commit_timestamp($1::TEXT::XID))"
        return float(await self._observer.fetchval(asked, actor.xid))

    async def _until_it_waits(self, actor: Actor, act: asyncio.Task[None]) -> None:
        """Either the statement has ended, or the server says that it waits for a lock."""
        while not act.done():
            waiting = "SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = $1"
            if await self._observer.fetchval(waiting, actor.pid):
                return
            await asyncio.wait([act], timeout=0.001)


@pytest.fixture
async def stage(postgres: Cluster) -> AsyncIterator[Stage]:
    clock = ManualClock()
    async with on_postgres(postgres, clock, stall_seconds=20) as store:
        observer = await asyncpg.connect(postgres.dsn)
        yield Stage(store, clock, observer)
        await observer.close()


def orders(old: int, new: int) -> list[list[str]]:
    """Every order of so many statements of each."""
    return [
        ["new" if place in places else "old" for place in range(old + new)]
        for places in itertools.combinations(range(old + new), new)
    ]


def orders_of_three(old: int, each: int) -> list[list[str]]:
    """Every order of so many statements of the owner, and of each of two who take over."""
    return [
        ["newer" if place in later else name for place, name in enumerate(order)]
        for order in orders(old, 2 * each)
        for later in itertools.combinations([place for place, name in enumerate(order) if name == "new"], each)
    ]


def filling(lease: Lease, _: Sequence[Transaction]) -> Procedure[None]:
    return owning.commit(filler(lease, 0), lease)


def assigning(lease: Lease, txs: Sequence[Transaction]) -> Procedure[None]:
    return owning.commit(assignment(lease, *((tx, nonce) for nonce, tx in enumerate(txs))), lease)


def _bound(lease: Lease, txs: Sequence[Transaction]) -> list[Change]:
    """Both have a nonce."""
    return [assignment(lease, *((tx, nonce) for nonce, tx in enumerate(txs)))]


def settling(lease: Lease, txs: Sequence[Transaction]) -> Procedure[None]:
    """The first one's block is final, and the bound rises above its nonce."""
    [bound] = _bound(lease, txs)
    slot, making = bound.slots[0], work(lease, next_nonce=2)
    making.move(bound.transactions[0], Included(a_receipt(slot.newest.hash)))
    making.move(bound.transactions[0], Confirmed())
    making.settle(slot)
    making.record(a_record(next_nonce=2, settled_below=1))
    return owning.commit(making.change(), lease)


def freeing(lease: Lease, txs: Sequence[Transaction]) -> Procedure[None]:
    """Its bytes never left, and its nonce is given back."""
    [bound] = _bound(lease, txs)
    making = work(lease, next_nonce=2)
    making.move(bound.transactions[0], Failed("nobody wants it"))
    making.free(bound.slots[0])
    making.record(a_record(next_nonce=3))
    return owning.commit(making.change(), lease)


def _final(lease: Lease, _: Sequence[Transaction]) -> list[Change]:
    """Fillers at three nonces, all of them final."""
    fillers = [filler(lease, nonce) for nonce in range(3)]
    slots = tuple(replace(change.slots[0], settled=True) for change in fillers)
    return [*fillers, Change(slots=slots, lane=a_record(next_nonce=3, settled_below=3))]


def unsettling(lease: Lease, _: Sequence[Transaction]) -> Procedure[None]:
    """A reset: nonces are not final after all, and the first of them is bound again."""
    anew = an_attempt(a_hash("anew"), 1, None, epoch=lease.epoch)
    change = Change(
        lane=a_record(next_nonce=2, settled_below=1, resets=1),
        unsettled_from=1,
        slots=(a_slot(1, anew, tx_id=None),),
        attempts=(anew,),
        events=(Event(kind="lane.reset", lane=lease.lane, at=0),),
    )
    return owning.commit(change, lease)


def loading(lease: Lease, _: Sequence[Transaction]) -> Procedure[Any]:
    return owning.load(lease, Legible())


def renewing(lease: Lease, _: Sequence[Transaction]) -> Procedure[Any]:
    return owning.renew_one(lease, TTL)


def renewing_all(lease: Lease, _: Sequence[Transaction]) -> Procedure[Any]:
    """As a node does first: what somebody has locked is left out."""
    return owning.renew([lease], TTL)


def releasing(lease: Lease, _: Sequence[Transaction]) -> Procedure[Any]:
    return owning.release([lease], None)


WRITING: Sequence[Stale] = (filling, assigning, settling, freeing, unsettling)
RENEWING: Sequence[Stale] = (renewing, renewing_all)

# What an owner had committed before.
BEFORE: Mapping[Stale, Callable[[Lease, Sequence[Transaction]], list[Change]]] = {
    settling: _bound,
    freeing: _bound,
    unsettling: _final,
}

# Taking the lease, telling of it, COMMIT.
TAKE_OVER = 3

# Of all orders of three transactions, for no test to take minutes.
PARTS = 8


async def stale_writes(stage: Stage, stale: Stale) -> tuple[int, int]:
    """How many orders there are, and in how many the old owner's write came after the take-over."""
    found = orders(await stage.statements(stale), TAKE_OVER)
    bad = 0
    for order in found:
        committed, old = await stage.play(stale, order)
        assert "new" in committed
        bad += committed == ["new", "old"]
        # Nobody is told that a lease was prolonged which another has.
        assert not (stale in RENEWING and old.told) or committed == ["old", "new"], order
        [lease] = await sql(stage.store, "SELECT owner, epoch FROM leases")
        assert lease["owner"] == "new"
        assert lease["epoch"] == 2
    return len(found), bad


@lesson("no-fencing")
@pytest.mark.parametrize("stale", WRITING)
async def test_no_order_lets_a_stale_owner_write_after_a_take_over(stage: Stage, stale: Stale) -> None:
    tried, bad = await stale_writes(stage, stale)
    assert tried >= 35
    assert bad == 0


async def read_too_late(stage: Stage) -> tuple[int, int]:
    """How many orders there are, and in how many the old owner could believe what it read though another had the lane."""
    found = orders(await stage.statements(loading), TAKE_OVER)
    read = bad = 0
    for order in found:
        committed, old = await stage.play(loading, order)
        # Whoever reads the lane to the end does so before the other has it, and keeps the other waiting: it has locked it.
        bad += old.committed and not (old.xid is not None and committed == ["old", "new"])
        read += old.committed
    assert read > 0
    return len(found), bad


async def test_no_order_lets_a_stale_owner_believe_what_it_read_after_a_take_over(stage: Stage) -> None:
    tried, bad = await read_too_late(stage)
    assert tried >= 120
    assert bad == 0


@pytest.mark.parametrize("stale", [*RENEWING, releasing])
async def test_no_order_lets_a_stale_owner_touch_the_new_one_s_lease(stage: Stage, stale: Stale) -> None:
    """It may still commit: that it changed nothing."""
    tried, _ = await stale_writes(stage, stale)
    assert tried == 10


async def stale_writes_among_three(stage: Stage, found: Sequence[Sequence[str]]) -> int:
    """In how many of these orders the old owner's write came after a take-over."""
    bad = 0
    for order in found:
        committed, _ = await stage.play(filling, order)
        [lease] = await sql(stage.store, "SELECT owner, epoch FROM leases")
        told = await sql(
            stage.store,
            "SELECT owner FROM (SELECT data::JSONB ->> 'owner' AS owner, told FROM events"
            " WHERE kind = 'lane.lease') AS leases WHERE owner <> 'old' ORDER BY told",
        )
        heirs = [row["owner"] for row in told]
        # Whoever comes while the other's lease is fresh gets nothing; every other one gets an epoch of its own.
        assert heirs, order
        assert len(heirs) == len(set(heirs)), (order, heirs)
        assert lease["owner"] == [name for name in committed if name in heirs][-1], (order, committed)
        assert lease["epoch"] == 1 + len(heirs), (order, heirs)
        bad += "old" in [name for name in committed if name == "old" or name in heirs][1:]
    return bad


async def test_nor_do_two_take_overs_in_any_of_some_orders(stage: Stage) -> None:
    every = orders_of_three(await stage.statements(filling), TAKE_OVER)
    assert await stale_writes_among_three(stage, random.Random(1).sample(every, 60)) == 0


@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
async def test_nor_do_two_take_overs_in_any_order(stage: Stage, part: int) -> None:
    every = orders_of_three(await stage.statements(filling), TAKE_OVER)
    assert len(every) >= 4_200
    assert await stale_writes_among_three(stage, every[part::PARTS]) == 0


async def test_without_the_row_lock_the_same_orders_show_stale_writes(stage: Stage) -> None:
    fence = stage.store._sql["fence"]
    assert "FOR NO KEY UPDATE" in fence.sql
    unlocked = Statement(fence.sql.replace("FOR NO KEY UPDATE", ""), fence.names, fence.gives_rows)
    stage.store._sql._known["fence"] = unlocked
    tried, bad = await stale_writes(stage, filling)
    assert tried >= 35
    assert bad > 0
    every = orders_of_three(await stage.statements(filling), TAKE_OVER)
    assert await stale_writes_among_three(stage, random.Random(1).sample(every, 60)) > 0
