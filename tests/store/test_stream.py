"""The stream as a node has it: the same from memory and from the store, and to each only what is his."""

import asyncio

from nonchalant.access import LanePattern
from nonchalant.interest import Interest
from nonchalant.model import Change, Event
from nonchalant.notify import Doorbells, Notifier
from nonchalant.ports import EventRange, Store
from nonchalant.store.contract import SqlStore
from nonchalant.stream import Stream
from tests.examples import LANE
from tests.store.acts import OTHER_LANE, ManualClock, accept, take
from tests.store.test_retention import DAY, KEPT, run


async def all_of(stream: Stream, after: int = 0, limit: int = 3) -> list[Event]:
    found: list[Event] = []
    while (page := await stream.page(after, limit)).told:
        found += [told.event for told in page.told]
        assert page.upto == found[-1].position
        after = page.upto
    assert page.upto == after
    return found


async def test_what_is_told_while_nobody_listens_is_read_by_whoever_comes_later(store: Store) -> None:
    stream = Stream(store)
    notifier = Notifier(store, [stream])
    with stream.heard():
        await notifier.drain()
        await accept(store, "heard")
        await notifier.drain()
        start = await store.last_position()
    await accept(store, "missed")
    await notifier.drain()
    await accept(store, "missed too")
    await notifier.drain()
    with stream.heard():
        news = stream.news
        assert [event.tx_id for event in await all_of(stream, start)] == ["missed", "missed too"]
        await accept(store, "heard again")
        await notifier.drain()
        assert news.is_set()
        assert [event.tx_id for event in await all_of(stream, start)] == ["missed", "missed too", "heard again"]
        assert [event.tx_id for event in await all_of(stream)] == ["heard", "missed", "missed too", "heard again"]
    assert not stream.is_wanted


async def test_whoever_is_busy_when_something_is_told_finds_it_when_he_looks(store: Store) -> None:
    """However many drains there were since he asked for news."""
    stream = Stream(store)
    notifier = Notifier(store, [stream])
    with stream.heard():
        await notifier.drain()
        start = await store.last_position()
        for name in ("a", "b", "c"):
            await accept(store, name)
            await notifier.drain()
        news = stream.news
        assert [event.tx_id for event in await all_of(stream, start)] == ["a", "b", "c"]
        assert not news.is_set()


async def test_whoever_waits_for_one_transaction_looks_once_when_listening_begins_anew(store: Store) -> None:
    bells = Doorbells()
    notifier = Notifier(store, [bells])
    [tx] = await accept(store, "tx")
    await notifier.drain()  # while nobody waits
    bell = bells.hang(tx.id)
    await notifier.drain()
    assert bell.is_set()
    bells.take_down(tx.id, bell)
    assert not bells.is_wanted


async def test_what_is_remembered_and_what_is_read_are_the_same_stream(store: Store) -> None:
    stream = Stream(store, remembered=4)
    notifier = Notifier(store, [stream])
    await accept(store, "before")
    with stream.heard():
        await notifier.drain()  # from now on
        for number in range(15):
            await accept(store, f"a{number}", f"b{number}")
            if number % 2:
                await notifier.drain()
        await notifier.drain()
    everything = list(await store.events_after(0, limit=1_000))
    assert len(stream._recent) < 15
    for start in (0, *(event.position for event in everything)):
        assert await all_of(stream, start) == [event for event in everything if event.position > start]


async def test_news_wake_everybody_who_waits_and_none_is_lost(store: Store) -> None:
    stream = Stream(store)
    notifier = Notifier(store, [stream])
    await notifier.drain()
    start = await store.last_position()

    async def read(count: int) -> list[Event]:
        found: list[Event] = []
        after = start
        while len(found) < count:
            news = stream.news
            page = await stream.page(after)
            found += [told.event for told in page.told]
            after = page.upto
            if not page.told:
                await news.wait()
        return found

    with stream.heard():
        readers = [asyncio.create_task(read(5)) for _ in range(3)]
        for number in range(5):
            await accept(store, f"t{number}")
            await notifier.drain()
        async with asyncio.timeout(60):
            everybody = await asyncio.gather(*readers)
    for found in everybody:
        assert [event.tx_id for event in found] == [f"t{number}" for number in range(5)]


async def test_whose_a_transaction_is_decides_who_hears_of_it(store: Store) -> None:
    await accept(store, "mine", tenant="me")
    await accept(store, "yours", tenant="you")
    await accept(store, "elsewhere", tenant="me", lane=OTHER_LANE)
    stream = Stream(store)
    told = (await stream.page(0)).told

    async def seen(interest: Interest) -> set[str | None]:
        found = {one.event.tx_id for one in await stream.seen_by(interest, told) if one.event.kind == "tx.accepted"}
        assert found == {one.event.tx_id for one in await stream.seen_by(interest, told) if one.event.tx_id}
        return found

    assert await seen(Interest()) == {"mine", "yours", "elsewhere"}
    assert await seen(Interest(tenant="me")) == {"mine", "elsewhere"}
    assert await seen(Interest(tenant="me", within=(LanePattern(*LANE),))) == {"mine"}
    assert await seen(Interest(lanes=(LanePattern(None, OTHER_LANE.address),))) == {"elsewhere"}
    assert await seen(Interest(tenant="nobody")) == set()


async def test_the_tenants_of_a_few_transactions(store: Store) -> None:
    await accept(store, "mine", tenant="me")
    await accept(store, "yours", tenant="you")
    assert await store.tenants(["mine", "yours", "nobody's"]) == {"mine": "me", "yours": "you"}
    assert await store.tenants([]) == {}


async def test_what_retention_takes_away_is_known_by_its_last_position(store: SqlStore, clock: ManualClock) -> None:
    assert await store.event_range() == EventRange(0, 0)
    await run(store, "old", 0)
    await store.last_position()
    newest = (await store.history("old"))[-1]
    clock.pass_seconds(31 * DAY)
    await accept(store, "young")
    last = await store.last_position()
    await store.forget_settled(older_than=KEPT, limit=100)
    kept = await store.event_range()
    assert newest.position <= kept.forgotten < last == kept.last
    assert [event.tx_id for event in await store.events_after(kept.forgotten, limit=10)] == ["young"]


async def test_the_last_position_stays_when_its_event_goes(store: SqlStore, clock: ManualClock) -> None:
    await run(store, "old", 0)
    last = await store.last_position()
    clock.pass_seconds(31 * DAY)
    await store.forget_settled(older_than=KEPT, limit=100)
    assert await store.events_after(0, limit=10) == []
    assert await store.event_range() == EventRange(last, last)
    await accept(store, "next")
    assert [event.position for event in await store.events_after(last, limit=10)] == [last + 1]


async def test_what_retention_takes_away_before_anybody_read_it_is_known_too(
    store: SqlStore, clock: ManualClock
) -> None:
    lease = await take(store)
    seen = await store.last_position()
    told = Event(kind="lane.filled", lane=LANE, at=clock.now())
    await store.commit(Change(events=(told,)), lease)
    clock.pass_seconds(31 * DAY)
    await store.forget_settled(older_than=KEPT, limit=100)
    assert (await store.event_range()).forgotten > seen


async def test_what_nobody_has_read_yet_is_found_by_its_time(store: SqlStore, clock: ManualClock) -> None:
    since = clock.now()
    await accept(store, "one")
    await accept(store, "two")
    found = await store.position_since(since)
    assert found is not None
    assert [event.tx_id for event in await store.events_after(found - 1, limit=9)] == ["one", "two"]


async def test_events_get_their_positions_also_while_nobody_listens(store: SqlStore) -> None:
    notifier = Notifier(store, [])
    asked: list[str] = []
    last_position = store.last_position

    async def counted() -> int:
        asked.append("last")
        return await last_position()

    store.last_position = counted  # type: ignore[method-assign]
    notifier.tell()
    for _ in range(3):
        await notifier.number()
    assert len(asked) == 1  # nothing was told since
    notifier.tell()
    await notifier.number()
    assert len(asked) == 2
