"""What nodes on PostgreSQL tell one another: events, in an order that holds for every reader, and wake-ups."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import suppress

import asyncpg
import pytest

from nonchalant.lifecycle import Cancelled, step
from nonchalant.model import Change, Event, Lease
from nonchalant.store import postgres, wakes
from nonchalant.store.postgres import PostgresStore, _numbered
from nonchalant.store.talk import Fence, Procedure, Tell
from nonchalant.wishes import Sync, Wish
from nonchalant.words import LaneKey, Mode
from tests.examples import LANE
from tests.postgres import Cluster
from tests.store.acts import OTHER_LANE, accept, begun, on_a_server, second, sql, take

store = pytest.fixture(on_a_server)


def told(number: int) -> Event:
    return Event(kind="lane.filled", lane=LANE, at=0, data={"number": number})


# events


async def test_a_position_is_seen_only_after_all_lower_ones(store: PostgresStore, postgres: Cluster) -> None:
    """One that was told first commits last; a reader that saw the other must not miss it."""
    lease, late = await take(store), await take(store, lane=OTHER_LANE)
    await store.last_position()
    seen: list[int] = []
    position = await store.last_position()
    async with store._work.transaction() as connection:
        await store._run(connection, _telling(late, told(1)), [])
        await store.commit(Change(events=(told(2),)), lease)
        for event in await store.events_after(position, limit=9):
            seen.append(int(str(event.data["number"])))
            position = event.position
        assert seen == [2]
    seen += [int(str(event.data["number"])) for event in await store.events_after(position, limit=9)]
    assert seen == [2, 1]


async def test_who_stands_still_while_it_gives_positions_keeps_nobody_from_reading(
    store: PostgresStore, postgres: Cluster
) -> None:
    lease = await take(store)
    start = await store.last_position()

    async def read(node: PostgresStore) -> list[object]:
        return [event.data["number"] for event in await node.events_after(start, limit=9)]

    await store.commit(Change(events=(told(1),)), lease)
    assert await read(store) == [1]
    hasty = await second(store, postgres, stall_seconds=3.0)
    frozen = await asyncpg.connect(postgres.dsn)
    try:
        await frozen.execute(f"BEGIN; SELECT last FROM {store.schema}.numbering FOR UPDATE")
        await store.commit(Change(events=(told(2),)), lease)
        assert await read(hasty) == [1]
    finally:
        await frozen.close()
        await hasty.close()
    assert await read(store) == [1, 2]


@pytest.mark.parametrize("step", range(5))
async def test_a_repeat_that_is_told_while_positions_are_given_is_counted_with_the_others(
    store: PostgresStore, step: int
) -> None:
    """Between any two statements of who gives them."""
    lease, said = await take(store), itertools.count()
    start = await store.last_position()

    async def repeat() -> None:
        again = Event(kind="lane.attention", lane=LANE, at=next(said), data={"code": "chain_trouble"})
        await store.commit(Change(events=(again,)), lease)

    async def read() -> list[tuple[int, int, int | None]]:
        return [(event.at, event.times, event.since) for event in await store.events_after(start, limit=9)]

    for _ in range(3):
        await repeat()
        await read()
    await repeat()
    async with store._work.transaction() as connection:
        numbering = _numbered()
        statement = next(numbering)
        with suppress(StopIteration):
            for number in itertools.count():
                answer = await store._take(connection, statement)
                if number == step:
                    await repeat()
                statement = numbering.send(answer)
    assert number == 4
    assert await read() == [(0, 1, None), (4, 5, 0)]


def _telling(lease: Lease, *events: Event) -> Procedure[None]:
    yield Fence(lease)
    yield Tell(events)


async def test_readers_at_once_see_every_event_once_and_in_one_order_while_many_write(
    store: PostgresStore, postgres: Cluster
) -> None:
    lanes = [LaneKey(7, f"0x{number:040x}") for number in range(6)]
    await store.declare(lanes)
    leases = [await take(store, lane=lane) for lane in lanes]
    others = [await second(store, postgres) for _ in range(2)]
    start, writing = await store.last_position(), True

    async def write(node: PostgresStore, lease: Lease) -> None:
        for number in range(25):
            at = Event(kind="lane.filled", lane=lease.lane, at=number, data={"number": number})
            await node.commit(Change(events=(at,)), lease)

    async def read(node: PostgresStore) -> list[tuple[str, int]]:
        found: list[tuple[str, int]] = []
        position = start
        while True:
            last_look = not writing
            for event in await node.events_after(position, limit=7):
                assert event.position > position
                position = event.position
                found.append((event.lane.address, event.at))
            if last_look and position == await node.last_position():
                return found

    readers = [asyncio.create_task(read(node)) for node in (store, *others)]
    nodes = (store, *others)
    await asyncio.gather(*(write(nodes[n % 3], lease) for n, lease in enumerate(leases)))
    writing = False
    first, *rest = await asyncio.gather(*readers)
    assert all(found == first for found in rest)
    assert sorted(first) == sorted((lane.address, number) for lane in lanes for number in range(25))
    for lane in lanes:
        assert [number for address, number in first if address == lane.address] == list(range(25))
    for other in others:
        await other.close()


# wake-ups


async def test_what_one_node_accepts_another_hears_of_and_nobody_hears_himself(
    store: PostgresStore, postgres: Cluster
) -> None:
    other = await second(store, postgres)
    heard: asyncio.Queue[list[LaneKey]] = asyncio.Queue()
    freed: asyncio.Queue[list[LaneKey]] = asyncio.Queue()
    own: list[LaneKey] = []
    assert store.wakes is not None
    assert other.wakes is not None
    other.wakes.hear = lambda lanes: heard.put_nowait(list(lanes))
    other.wakes.hear_free = lambda lanes: freed.put_nowait(list(lanes))
    store.wakes.hear = store.wakes.hear_free = own.extend

    async def hears(lane: LaneKey, ear: asyncio.Queue[list[LaneKey]] = heard) -> None:
        async with asyncio.timeout(60):
            while lane not in await ear.get():
                pass

    while heard.empty():  # until it listens
        await accept(store, f"first{own}", lane=OTHER_LANE)
        await asyncio.sleep(0.01)
        own.append(OTHER_LANE)
    own.clear()
    [tx] = await accept(store, "a")
    await hears(LANE)
    moved, events = step(tx, Cancelled(), 0)
    await store.alter_queued(moved, events)
    await hears(LANE)
    await store.wish(Wish("w", OTHER_LANE, Sync()), limit=9)
    await hears(OTHER_LANE)
    await store.control(LANE, Mode.PAUSED, "")
    await hears(LANE)
    lease = await take(store)
    await store.release([lease])
    await hears(LANE, freed)
    assert own == []
    await other.close()


async def test_what_a_busy_node_says_collects_until_a_lane_is_let_go(
    store: PostgresStore, postgres: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever lets go may be about to stop, so that is said at once, with all that collected."""
    other = await second(store, postgres)
    said: asyncio.Queue[tuple[str, list[LaneKey]]] = asyncio.Queue()
    assert store.wakes is not None
    assert other.wakes is not None
    async with asyncio.timeout(60):
        while not (store.wakes.connected and other.wakes.connected):  # noqa: ASYNC110 - nobody is told
            await asyncio.sleep(0.01)
        other.wakes.hear = lambda lanes: said.put_nowait(("changed", list(lanes)))
        other.wakes.hear_free = lambda lanes: said.put_nowait(("free", list(lanes)))
        monkeypatch.setattr(wakes, "COLLECT_SECONDS", 3600.0)
        store.wakes.tell([OTHER_LANE])
        assert [await said.get(), await said.get()] == [("changed", [OTHER_LANE]), ("free", [])]
        store.wakes.tell([OTHER_LANE])
        store.wakes.tell([LANE])
        await store.events_after(0, limit=9)  # time enough to say it
        store.wakes.tell_free([LANE])
        assert [await said.get(), await said.get()] == [("changed", sorted([LANE, OTHER_LANE])), ("free", [LANE])]
    await other.close()


async def test_ears_that_were_cut_off_grow_again(store: PostgresStore, postgres: Cluster) -> None:
    other = await second(store, postgres)
    heard: asyncio.Queue[list[LaneKey]] = asyncio.Queue()
    assert other.wakes is not None
    other.wakes.hear = lambda lanes: heard.put_nowait(list(lanes))
    await sql(store, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'")
    async with asyncio.timeout(60):
        number = 0
        while True:
            await accept(store, f"tx{number}")
            number += 1
            await asyncio.sleep(0.05)
            if not heard.empty() and LANE in heard.get_nowait():
                break
    await other.close()


async def test_positions_go_on_after_retention_took_what_was_being_numbered(
    store: PostgresStore, postgres: Cluster
) -> None:
    for name in ("a", "b", "c"):
        await accept(store, name)
    retention = await asyncpg.connect(postgres.dsn)
    try:
        deleting = retention.transaction()
        await deleting.start()
        telling = await retention.fetchval(
            f"DELETE FROM {store.schema}.told_events WHERE tx_id = 'b' RETURNING told >> 20"
        )
        await retention.execute(f"DELETE FROM {store.schema}.tellings WHERE telling = $1", telling)
        reading = await begun(store, store.events_after(0, limit=99))
        assert not reading.done()
        await deleting.commit()
    finally:
        await retention.close()
    await reading
    await accept(store, "d")
    assert [event.tx_id for event in await store.events_after(0, limit=99)] == ["a", "c", "d"]


async def test_a_telling_goes_with_the_last_that_was_told_in_it(store: PostgresStore) -> None:
    """Of what tells the same again, and of what retention removes."""
    lease = await take(store)

    async def tellings() -> int:
        await store.last_position()  # whoever reads gives positions
        return int((await sql(store, "SELECT count(*) AS n FROM tellings"))[0]["n"])

    before = await tellings()
    repeat = Event(kind="lane.attention", lane=LANE, at=0, data={"code": "chain_trouble"})
    for _ in range(5):
        await store.commit(Change(events=(repeat,)), lease)
        await store.last_position()
    await store.commit(Change(events=(told(1), repeat)), lease)
    await store.commit(Change(events=(repeat,)), lease)
    # The first, the newest, and the one in which something else was told.
    assert await tellings() == before + 3
    await sql(store, "UPDATE told_events SET at = 0")
    await store.forget_settled(older_than=1, limit=99)
    assert await tellings() == 0


async def test_many_that_have_no_position_yet_get_them_in_steps_and_in_order(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "NUMBERED_AT_ONCE", 3)
    lease = await take(store)
    start = await store.last_position()
    for number in range(10):
        await store.commit(Change(events=(told(number), told(number))), lease)
    steps, write = [], store._write

    async def counted(procedure: Procedure[int], **how: bool) -> int:
        steps.append(procedure)
        return await write(procedure, **how)

    monkeypatch.setattr(store, "_write", counted)
    found = await store.events_after(start, limit=99)
    assert len(steps) == 4
    assert [event.position for event in found] == list(range(start + 1, start + 21))
    assert [event.data["number"] for event in found] == [number for number in range(10) for _ in range(2)]
