"""How people say a lane should be run: read by the statements that give out work, on every node at once."""

import pytest

from nonchalant.lifecycle import Expired
from nonchalant.model import Change, Control, Event, LaneRecord
from nonchalant.ports import Draining, Duplicate, Filter, LaneWork, Store, Wished
from nonchalant.values import replace
from nonchalant.wishes import Sync, Wish
from nonchalant.words import LaneKey, Mode, State
from tests.examples import BOB, LANE, a_request
from tests.store.acts import LIMITS, OTHER_LANE, ManualClock, accept, assign, take, work

CLOSED = [Mode.PAUSED, Mode.DRAINING, Mode.HALTED]


async def control_of(store: Store, lane: LaneKey = LANE) -> Control:
    summary = await store.lane(lane)
    assert summary is not None
    assert summary.control == (await store.orders(lane)).control
    return summary.control


async def told(store: Store) -> list[tuple[str, object]]:
    return [(event.kind, event.data["mode"]) for event in await lane_events(store)]


async def lane_events(store: Store) -> list[Event]:
    return [event for event in await store.events_after(0, limit=999) if event.kind in ("lane.paused", "lane.resumed")]


async def test_a_lane_nobody_said_anything_about_is_open(store: Store) -> None:
    assert await control_of(store) == Control(Mode.OPEN, "", 0)


async def test_what_is_said_is_kept_answers_what_was_said_before_and_is_told(store: Store, clock: ManualClock) -> None:
    assert await store.control(LANE, Mode.PAUSED, "lunch") == Control()
    paused = Control(Mode.PAUSED, "lunch", clock.now())
    assert await control_of(store) == paused
    clock.pass_seconds(5)
    assert await store.control(LANE, Mode.OPEN, "") == paused
    assert await control_of(store) == Control(Mode.OPEN, "", clock.now())
    assert await told(store) == [("lane.paused", "paused"), ("lane.resumed", "open")]
    assert await control_of(store, OTHER_LANE) == Control()


@pytest.mark.parametrize("mode", CLOSED)
async def test_nothing_queued_is_given_out_while_a_lane_is_closed(store: Store, mode: Mode) -> None:
    [tx] = await accept(store, "a")
    await accept(store, "b", lane=OTHER_LANE)
    await store.control(LANE, mode, "")
    assert await store.queued(LANE, limit=9) == []
    assert await store.lanes_with_work() == [LaneWork(OTHER_LANE, None)]
    await store.control(LANE, Mode.OPEN, "")
    assert await store.queued(LANE, limit=9) == [tx]
    assert LaneWork(LANE, None) in await store.lanes_with_work()


@pytest.mark.parametrize("mode", CLOSED)
async def test_what_is_in_flight_and_what_is_wished_is_work_in_a_closed_lane(store: Store, mode: Mode) -> None:
    [tx] = await accept(store, "a")
    await assign(store, await take(store), (tx, 0))
    await store.control(LANE, mode, "")
    await store.control(OTHER_LANE, mode, "")
    assert await store.wish(Wish("w", OTHER_LANE, Sync()), limit=9) is Wished.TAKEN
    assert await store.lanes_with_work() == [LaneWork(LANE, "node-a"), LaneWork(OTHER_LANE, None)]


@pytest.mark.parametrize("mode", Mode)
async def test_only_a_draining_lane_takes_nothing_new(store: Store, mode: Mode) -> None:
    await store.control(LANE, mode, "")
    here, elsewhere = await store.accept([a_request("a"), a_request("b", lane=OTHER_LANE)], limits=LIMITS)
    assert isinstance(here, Draining) is (mode is Mode.DRAINING)
    assert not isinstance(elsewhere, Draining)


async def test_a_draining_lane_still_knows_what_it_took(store: Store) -> None:
    [tx] = await accept(store, "a", idempotency_key="k", body_hash="h")
    await store.control(LANE, Mode.DRAINING, "")
    again, retry = a_request("a", idempotency_key="k"), a_request("b", idempotency_key="k", body_hash="h")
    assert await store.accept([again, retry], limits=LIMITS) == [tx, Duplicate(tx)]
    assert isinstance((await store.accept([a_request("c")], limits=LIMITS))[0], Draining)


# halted


async def test_halting_a_chain_stops_every_lane_of_it_and_no_other(store: Store, clock: ManualClock) -> None:
    elsewhere = LaneKey(8, BOB)
    await store.declare([elsewhere])
    await store.control(OTHER_LANE, Mode.PAUSED, "lunch")
    await store.halt(LANE.chain_id, "finality broke")
    halted = Control(Mode.HALTED, "finality broke", clock.now())
    assert [await control_of(store, lane) for lane in (LANE, OTHER_LANE, elsewhere)] == [halted, halted, Control()]


async def test_a_second_halt_keeps_the_first_reason_and_is_not_told_again(store: Store, clock: ManualClock) -> None:
    await store.halt(LANE.chain_id, "first")
    since = clock.now()
    clock.pass_seconds(5)
    await store.halt(LANE.chain_id, "second")
    assert await control_of(store) == Control(Mode.HALTED, "first", since)
    assert len(await lane_events(store)) == 2  # one a lane


async def test_to_open_a_lane_is_to_believe_its_chain_as_it_is_now(store: Store) -> None:
    lease = await take(store)
    record = LaneRecord(key=LANE, next_nonce=4, seen_block=100, seen_hash="0xb100", resets=2)
    await store.commit(Change(lane=record), lease)
    for mode in (Mode.PAUSED, Mode.HALTED):
        await store.control(LANE, mode, "")
        assert (await store.load(lease)).record == record
    await store.control(LANE, Mode.OPEN, "")
    assert (await store.load(lease)).record == replace(record, seen_hash=None)


async def test_an_owner_that_read_the_lane_before_it_was_opened_does_not_bring_the_old_chain_back(store: Store) -> None:
    lease = await take(store)
    record = LaneRecord(key=LANE, next_nonce=4, seen_block=100, seen_hash="0xb100")
    await store.commit(Change(lane=record), lease)
    await store.control(LANE, Mode.OPEN, "")
    await store.commit(Change(lane=replace(record, next_nonce=5)), lease)
    assert (await store.load(lease)).record == replace(record, next_nonce=5, seen_hash=None)
    later = replace(record, next_nonce=5, seen_block=101, seen_hash="0xb101")
    await store.commit(Change(lane=later), lease)
    assert (await store.load(lease)).record == later


# deadlines


async def test_what_is_overdue_is_found_in_any_lane_the_longest_overdue_first(store: Store, clock: ManualClock) -> None:
    soon, late = clock.now() + 1_000, clock.now() + 5_000
    await accept(store, "never")
    await accept(store, "late", valid_until=late)
    await accept(store, "soon", valid_until=soon, lane=OTHER_LANE)
    assert await store.overdue(limit=9) == []
    clock.pass_seconds(1)
    assert [tx.id for tx in await store.overdue(limit=9)] == ["soon"]
    clock.pass_seconds(5)
    assert [tx.id for tx in await store.overdue(limit=9)] == ["soon", "late"]
    assert [tx.id for tx in await store.overdue(limit=1)] == ["soon"]


async def test_what_has_a_slot_or_has_ended_is_not_overdue(store: Store, clock: ManualClock) -> None:
    flying, ended = await accept(store, "flying", "ended", valid_until=clock.now() + 1_000)
    lease = await take(store)
    await assign(store, lease, (flying, 0))
    making = work(lease)
    making.move(ended, Expired())
    await store.commit(making.change(), lease)
    clock.pass_seconds(1)
    assert await store.overdue(limit=9) == []


async def test_what_is_overdue_gets_no_nonce_whatever_its_owner_s_clock_says(store: Store, clock: ManualClock) -> None:
    tx, other = await accept(store, "late", valid_until=clock.now() + 1_000) + await accept(store, "other")
    lease = await take(store)
    clock.pass_seconds(1)
    with pytest.raises(Exception, match="late is not as it was read"):
        await assign(store, lease, (other, 0), (tx, 1))
    assert [tx.state for tx in await store.transactions(Filter())] == [State.QUEUED, State.QUEUED]
    await assign(store, lease, (other, 0))


async def test_what_is_overdue_and_has_a_slot_goes_on(store: Store, clock: ManualClock) -> None:
    [tx] = await accept(store, "a", valid_until=clock.now() + 1_000)
    lease = await take(store)
    [signed] = await assign(store, lease, (tx, 0))
    clock.pass_seconds(1)
    await store.commit(Change(transactions=(replace(signed, state=State.SENT, version=signed.version + 1),)), lease)
    assert [tx.state for tx in await store.transactions(Filter())] == [State.SENT]


# listings


async def test_a_listing_of_what_is_live_leaves_out_what_has_ended(store: Store) -> None:
    first, second, _ = await accept(store, "a", "b", "c")
    await accept(store, "d", lane=OTHER_LANE)
    lease = await take(store)
    making = work(lease)
    making.move(first, Expired())
    await store.commit(making.change(), lease)
    await assign(store, lease, (second, 0))
    assert [tx.id for tx in await store.transactions(Filter(live=True))] == ["d", "c", "b"]
    assert [tx.id for tx in await store.transactions(Filter(live=True, sender=LANE.address))] == ["c", "b"]
    for everything in (None, False):
        assert [tx.id for tx in await store.transactions(Filter(live=everything))] == ["d", "c", "b", "a"]
