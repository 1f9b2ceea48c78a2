"""Every fenced transaction against a take-over, in every order of their statements, on a real server: no stale write."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import asyncpg
import pytest

from nonchalant.errors import LeaseLost, RowMoved
from nonchalant.model import Lease, Transaction
from nonchalant.store import connections, owning
from nonchalant.store.legible import Legible
from nonchalant.store.postgres import PostgresStore
from nonchalant.store.statements import Statement
from nonchalant.store.talk import Procedure
from tests.examples import LANE
from tests.lessons import lesson
from tests.postgres import Cluster
from tests.store.acts import TTL, ManualClock, accept, assignment, empty, filler, on_postgres, sql, take

HEIRS = ("new", "newer")

Act = Callable[[], Awaitable[None]]
Stale = Callable[[Lease, Sequence[Transaction]], Procedure[Any]]


class Actor:
    """One transaction on a connection of its own, a statement at a time. A refusal ends it."""

    def __init__(self, name: str, store: PostgresStore, procedure: Procedure[Any]) -> None:
        self.name = name
        self.refused: Exception | None = None
        self.committed = False
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
        except StopIteration:
            self.xid = await self._connection.fetchval("SELECT pg_current_xact_id_if_assigned()::TEXT")
            await connections.commit(self._connection)
            self.committed = True
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
        await self._store._work.pool.release(self._connection)


class Stage:
    """One lane, its owner `old`, and `new` that takes it over; and `newer` that takes it over once more."""

    def __init__(self, store: PostgresStore, clock: ManualClock, observer: asyncpg.Connection) -> None:
        self.store = store
        self._clock = clock
        self._observer = observer

    async def prepare(self) -> tuple[Lease, list[Transaction]]:
        await empty(self.store)
        await self.store.declare([LANE])
        lease = await take(self.store, "old")
        return lease, await accept(self.store, "a", "b")

    async def statements(self, stale: Stale) -> int:
        """How many statements it takes when nobody is in its way, COMMIT included."""
        procedure, count = stale(*await self.prepare()), 1
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
        """Who committed, in that order, and what became of the owner."""
        lease, txs = await self.prepare()
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


def loading(lease: Lease, _: Sequence[Transaction]) -> Procedure[Any]:
    return owning.load(lease, Legible())


def renewing(lease: Lease, _: Sequence[Transaction]) -> Procedure[Any]:
    return owning.renew_one(lease, TTL)


def releasing(lease: Lease, _: Sequence[Transaction]) -> Procedure[Any]:
    return owning.release([lease], None)


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
        [lease] = await sql(stage.store, "SELECT owner, epoch FROM leases")
        [slots] = await sql(stage.store, "SELECT count(*) AS n FROM slots")
        # Whatever was refused left nothing behind.
        assert (slots["n"] > 0) == (stale in (filling, assigning) and "old" in committed), (order, old.refused)
        assert lease["owner"] == "new"
        assert lease["epoch"] == 2
    return len(found), bad


@lesson("no-fencing")
@pytest.mark.parametrize("stale", [filling, assigning])
async def test_no_order_lets_a_stale_owner_write_after_a_take_over(stage: Stage, stale: Stale) -> None:
    tried, bad = await stale_writes(stage, stale)
    assert tried >= 35
    assert bad == 0


async def test_no_order_lets_a_stale_owner_believe_what_it_read_after_a_take_over(stage: Stage) -> None:
    every = orders(await stage.statements(loading), TAKE_OVER)
    assert len(every) >= 120
    read = 0
    for order in every:
        committed, old = await stage.play(loading, order)
        # Whoever read the lane to the end did so before the other had it, and kept the other waiting: it has locked it.
        assert not old.committed or (old.xid is not None and committed == ["old", "new"]), order
        read += old.committed
    assert read > 0


@pytest.mark.parametrize("stale", [renewing, releasing])
async def test_no_order_lets_a_stale_owner_touch_the_new_one_s_lease(stage: Stage, stale: Stale) -> None:
    """It may still commit: that it changed nothing."""
    tried, _ = await stale_writes(stage, stale)
    assert tried == 10


async def stale_writes_among_three(stage: Stage, found: Sequence[Sequence[str]]) -> int:
    """In how many of these orders the old owner's write came after a take-over."""
    bad = 0
    for order in found:
        committed, old = await stage.play(filling, order)
        [lease] = await sql(stage.store, "SELECT owner, epoch FROM leases")
        [slots] = await sql(stage.store, "SELECT count(*) AS n FROM slots")
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
        assert (slots["n"] > 0) == ("old" in committed), (order, old.refused)
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
