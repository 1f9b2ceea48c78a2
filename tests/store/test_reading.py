"""What readers see: queues, listings, histories, events and lanes."""

import pytest

from nonchalant.lifecycle import Held, Marked
from nonchalant.model import Change, Event, LaneRecord
from nonchalant.ports import Filter, LaneWork, Store
from nonchalant.values import replace
from nonchalant.words import AttemptKind, LaneKey, State
from tests.examples import ALICE, BOB, LANE, MARK, a_hash, an_attempt
from tests.store.acts import OTHER_LANE, TTL, ManualClock, accept, assign, filler, take, work

# the queue


async def test_the_queue_goes_by_priority_and_then_by_place(store: Store) -> None:
    await accept(store, "d", "c", priority=5)
    await accept(store, "b", priority=9)
    await accept(store, "a", priority=0)
    assert [tx.id for tx in await store.queued(LANE, limit=9)] == ["b", "d", "c", "a"]
    assert [tx.id for tx in await store.queued(LANE, limit=2)] == ["b", "d"]


async def test_the_queue_is_read_without_what_is_to_be_skipped(store: Store) -> None:
    await accept(store, "a", "b", "c", "d")
    assert [tx.id for tx in await store.queued(LANE, limit=2, skip={"a", "c"})] == ["b", "d"]
    assert [tx.id for tx in await store.queued(LANE, limit=1, skip=["b", "gone", 'it\'s "quoted"'])] == ["a"]
    assert await store.queued(LANE, limit=9, skip=["a", "b", "c", "d"]) == []


async def test_the_queue_leaves_out_what_is_held_has_a_slot_or_is_another_lane_s(store: Store) -> None:
    held, flying, waiting = await accept(store, "held", "flying", "waiting")
    await accept(store, "elsewhere", lane=OTHER_LANE)
    lease = await take(store)
    making = work(lease)
    making.move(held, Held(MARK))
    await store.commit(making.change(), lease)
    await assign(store, lease, (flying, 0))
    assert list(await store.queued(LANE, limit=9)) == [waiting]


async def test_what_waits_earlier_in_the_lane_is_known_by_place_whatever_its_priority(store: Store) -> None:
    first, second = await accept(store, "a", priority=0) + await accept(store, "b", priority=9)
    await accept(store, "elsewhere", lane=OTHER_LANE)
    [elsewhere] = await accept(store, "later elsewhere", lane=LaneKey(7, BOB))
    assert await store.has_queued_before(second)
    assert not await store.has_queued_before(first)
    assert await store.has_queued_before(elsewhere)
    await assign(store, await take(store), (first, 0))
    assert not await store.has_queued_before(second)


async def test_what_is_held_is_not_waited_for(store: Store) -> None:
    held, waiting = await accept(store, "a", "b")
    lease = await take(store)
    making = work(lease)
    making.move(held, Held(MARK))
    await store.commit(making.change(), lease)
    assert not await store.has_queued_before(waiting)


async def test_attempts_are_known_by_their_hash_for_as_long_as_they_are_kept(store: Store) -> None:
    [tx] = await accept(store, "a")
    lease = await take(store)
    await assign(store, lease, (tx, 0))
    [slot] = (await store.load(lease)).slots
    await store.commit(Change(slots=(replace(slot, settled=True),)), lease)
    assert await store.known_attempts([slot.newest.hash, "0xelse"]) == {slot.newest.hash}
    assert await store.known_attempts([]) == frozenset()


# who has work


async def test_a_lane_has_work_while_something_waits_or_is_not_final(store: Store) -> None:
    [tx] = await accept(store, "a")
    assert await store.lanes_with_work() == [LaneWork(LANE, None)]
    lease = await take(store)
    await assign(store, lease, (tx, 0))
    assert await store.lanes_with_work() == [LaneWork(LANE, "node-a")]
    [slot] = (await store.load(lease)).slots
    await store.commit(Change(slots=(replace(slot, settled=True),)), lease)
    assert await store.lanes_with_work() == []


async def test_a_filler_is_work(store: Store) -> None:
    lease = await take(store)
    await store.commit(filler(lease, 0), lease)
    assert await store.lanes_with_work() == [LaneWork(LANE, "node-a")]


async def test_what_is_held_is_no_work(store: Store) -> None:
    [tx] = await accept(store, "a")
    lease = await take(store)
    making = work(lease)
    making.move(tx, Held(MARK))
    await store.commit(making.change(), lease)
    assert await store.lanes_with_work() == []


# listings


async def listed(store: Store, **filter: object) -> list[str]:
    return [tx.id for tx in await store.transactions(Filter(**filter))]  # type: ignore[arg-type]


async def test_a_listing_runs_from_the_newest_down(store: Store) -> None:
    await accept(store, "a", "b", "c")
    assert await listed(store) == ["c", "b", "a"]


async def test_pages_of_a_listing_hold_everything_once(store: Store) -> None:
    await accept(store, *(f"tx{number}" for number in range(7)))
    pages, before = [], None
    while page := await store.transactions(Filter(before=before, limit=3)):
        pages.append([tx.id for tx in page])
        before = page[-1].place
        await accept(store, f"new{len(pages)}")  # what comes meanwhile does not shift the pages
    assert pages == [["tx6", "tx5", "tx4"], ["tx3", "tx2", "tx1"], ["tx0"]]


@pytest.mark.parametrize(
    ("filter", "ids"),
    [
        ({"state": State.SIGNED}, ["b"]),
        ({"state": State.QUEUED}, ["d", "c", "a"]),
        ({"state": State.MINED}, []),
        ({"chain_id": 7}, ["d", "c", "b", "a"]),
        ({"chain_id": 8}, []),
        ({"sender": ALICE}, ["c", "b", "a"]),
        ({"sender": BOB}, ["d"]),
        ({"nonce": 5}, ["b"]),
        ({"nonce": 0}, []),
        ({"hash": a_hash("b@5")}, ["b"]),
        ({"hash": a_hash("bump")}, ["b"]),
        ({"hash": a_hash("none")}, []),
        ({"idempotency_key": "k"}, ["c"]),
        ({"state": State.QUEUED, "sender": ALICE, "limit": 1}, ["c"]),
        ({"chain_id": 7, "sender": ALICE, "nonce": 5, "state": State.SIGNED}, ["b"]),
        ({"nonce": 5, "state": State.QUEUED}, []),
    ],
)
async def test_a_listing_shows_what_its_filter_asks_for(
    store: Store, filter: dict[str, object], ids: list[str]
) -> None:
    _, second = await accept(store, "a", "b")
    await accept(store, "c", idempotency_key="k")
    await accept(store, "d", lane=OTHER_LANE)
    lease = await take(store)
    await assign(store, lease, (second, 5))
    bump = an_attempt(a_hash("bump"), 5, "b", kind=AttemptKind.BUMP)
    [slot] = (await store.load(lease)).slots
    await store.commit(Change(slots=(slot.with_attempt(bump),), attempts=(bump,)), lease)
    assert await listed(store, **filter) == ids


async def test_what_is_not_there_is_none(store: Store) -> None:
    assert await store.transaction("nobody") is None
    assert await store.attempts(["nobody"]) == {"nobody": []}
    assert await store.history("nobody") == []
    assert await store.lane(LaneKey(1, "0x00")) is None


# events


async def test_events_have_rising_positions_in_the_order_of_their_commits(store: Store) -> None:
    [tx] = await accept(store, "a")
    lease = await take(store)
    await assign(store, lease, (tx, 0))
    own = (Event(kind="lane.filled", lane=LANE, at=3, data={"n": 1}), Event(kind="lane.foreign", lane=LANE, at=2))
    await store.commit(Change(events=own), lease)
    events = await store.events_after(0, limit=99)
    assert [event.kind for event in events] == ["tx.accepted", "lane.lease", "tx.signed", "lane.filled", "lane.foreign"]
    positions = [event.position for event in events]
    assert positions == sorted(set(positions))
    assert await store.last_position() == positions[-1]
    assert replace(events[3], position=0) == own[0]


async def test_a_lanes_own_events_are_read_newest_first_and_page_by_page(store: Store) -> None:
    [tx] = await accept(store, "a")
    lease = await take(store)
    await assign(store, lease, (tx, 0))
    own = [Event(kind="lane.filled", lane=LANE, at=n, data={"n": n}) for n in (1, 2)]
    lost = Event(kind="lane.foreign", lane=LANE, at=3, tx_id="a", data={"n": 3})
    await store.commit(Change(events=(*own, lost)), lease)
    await take(store, lane=OTHER_LANE)
    newest = await store.lane_history(LANE, limit=2)
    assert [event.data.get("n") for event in newest] == [3, 2]
    older = await store.lane_history(LANE, limit=9, before=newest[-1].position)
    assert [event.kind for event in older] == ["lane.filled", "lane.lease"]
    assert await store.lane_history(LANE, limit=9, before=older[-1].position) == []


async def test_events_are_read_on_from_any_position(store: Store) -> None:
    assert await store.last_position() == 0
    await accept(store, "a", "b", "c")
    everything = await store.events_after(0, limit=99)
    assert await store.events_after(everything[0].position, limit=1) == [everything[1]]
    assert await store.events_after(everything[-1].position, limit=9) == []


async def test_positions_are_not_used_twice_when_a_commit_was_refused(store: Store) -> None:
    [tx] = await accept(store, "a")
    lease = await take(store)
    last = await store.last_position()
    making = work(lease)
    making.move(tx, Marked(MARK))
    await store.commit(making.change(), lease)
    with pytest.raises(Exception, match="not as it was read"):
        await store.commit(making.change(), lease)
    await accept(store, "b")
    positions = [event.position for event in await store.events_after(last, limit=9)]
    assert len(positions) == len(set(positions)) == 2


async def test_a_history_holds_the_events_of_one_transaction_in_order(store: Store) -> None:
    first, second = await accept(store, "a", "b")
    await assign(store, await take(store), (first, 0), (second, 1))
    assert [event.kind for event in await store.history("a")] == ["tx.accepted", "tx.signed"]
    assert {event.tx_id for event in await store.history("a")} == {"a"}


# lanes


async def test_a_lane_shows_its_record_its_counts_and_its_lease(store: Store, clock: ManualClock) -> None:
    first, *_ = await accept(store, "a", "b", "c")
    lease = await take(store)
    await assign(store, lease, (first, 0))
    await store.commit(filler(lease, 1), lease)
    summary = await store.lane(LANE)
    assert summary is not None
    assert summary.record == LaneRecord(key=LANE)
    assert summary.states == {State.QUEUED: 2, State.SIGNED: 1}
    assert summary.slots == {"transaction": 1, "filler": 1}
    assert (summary.owner, summary.epoch, summary.expires_at) == ("node-a", 1, clock.now() + TTL * 1000)
    clock.pass_seconds(TTL)
    expired = await store.lane(LANE)
    assert expired is not None
    assert (expired.owner, expired.epoch) == (None, 1)


async def test_a_lane_counts_only_what_is_live(store: Store) -> None:
    [tx] = await accept(store, "a")
    lease = await take(store)
    await assign(store, lease, (tx, 0))
    [slot] = (await store.load(lease)).slots
    await store.commit(Change(slots=(replace(slot, settled=True),)), lease)
    summary = await store.lane(LANE)
    assert summary is not None
    assert summary.slots == {}


async def test_all_declared_lanes_are_listed_in_order(store: Store) -> None:
    await store.declare([LaneKey(1, BOB), LANE])
    assert [summary.record.key for summary in await store.lanes()] == [LaneKey(1, BOB), LANE, OTHER_LANE]


async def test_a_new_store_has_lost_nothing(store: Store) -> None:
    assert await store.incarnation() == 0
