"""Leases: one holder, a new epoch for each, and only the store's clock says when one is over."""

import pytest

from nonchalant.model import Lease
from nonchalant.ports import LaneWork, Store
from nonchalant.values import replace
from nonchalant.words import LaneKey
from tests.examples import LANE
from tests.store.acts import OTHER_LANE, TTL, ManualClock, accept, take


async def test_a_free_lane_is_taken_with_the_first_epoch(store: Store) -> None:
    assert await store.acquire(LANE, "a", TTL) == 1


async def test_a_lane_that_another_node_holds_is_not_taken(store: Store, clock: ManualClock) -> None:
    await take(store, "a")
    clock.pass_seconds(TTL - 0.001)
    assert await store.acquire(LANE, "b", TTL) is None


async def test_after_expiry_anybody_takes_over_with_the_next_epoch(store: Store, clock: ManualClock) -> None:
    await take(store, "a")
    clock.pass_seconds(TTL)
    assert await store.acquire(LANE, "b", TTL) == 2
    assert await store.acquire(LANE, "a", TTL) is None


async def test_taking_one_s_own_lane_anew_raises_the_epoch(store: Store) -> None:
    old = await take(store, "a")
    new = await take(store, "a")
    assert (old.epoch, new.epoch) == (1, 2)
    assert await store.renew([old], TTL) == []
    assert await store.renew([new], TTL) == [LANE]


async def test_renewing_prolongs_from_now(store: Store, clock: ManualClock) -> None:
    lease = await take(store, "a")
    clock.pass_seconds(TTL - 1)
    assert await store.renew([lease], TTL) == [LANE]
    clock.pass_seconds(TTL - 1)
    assert await store.acquire(LANE, "b", TTL) is None
    clock.pass_seconds(1)
    assert await store.acquire(LANE, "b", TTL) == 2


async def test_a_lease_that_expired_is_not_renewed_even_if_nobody_took_it(store: Store, clock: ManualClock) -> None:
    lease = await take(store, "a")
    clock.pass_seconds(TTL)
    assert await store.renew([lease], TTL) == []


@pytest.mark.parametrize(
    "stranger",
    [Lease(LANE, "b", 1, 0.0), Lease(LANE, "a", 2, 0.0), Lease(LANE, "a", 0, 0.0), Lease(OTHER_LANE, "a", 1, 0.0)],
)
async def test_only_the_holder_of_this_epoch_renews(store: Store, stranger: Lease) -> None:
    await take(store, "a")
    assert await store.renew([stranger], TTL) == []


async def test_of_several_leases_those_still_held_are_renewed(store: Store, clock: ManualClock) -> None:
    lost = await take(store, "a")
    clock.pass_seconds(TTL)
    held = await take(store, "a", OTHER_LANE)
    assert await store.renew([lost, held], TTL) == [OTHER_LANE]


async def test_a_released_lane_is_taken_over_at_once_with_the_next_epoch(store: Store) -> None:
    lease = await take(store, "a")
    await store.release([lease])
    assert await store.acquire(LANE, "b", TTL) == 2


async def test_releasing_what_was_lost_leaves_the_new_holder_alone(store: Store, clock: ManualClock) -> None:
    old = await take(store, "a")
    clock.pass_seconds(TTL)
    new = await take(store, "b")
    await store.release([old])
    assert await store.renew([new], TTL) == [LANE]
    retaken = await take(store, "b")
    await store.release([new])
    assert await store.renew([retaken], TTL) == [LANE]


async def test_only_the_holder_releases(store: Store) -> None:
    lease = await take(store, "a")
    await store.release([replace(lease, owner="b"), replace(lease, epoch=lease.epoch + 1)])
    assert await store.renew([lease], TTL) == [LANE]


async def test_a_lane_that_was_never_declared_cannot_be_taken(store: Store) -> None:
    assert await store.acquire(LaneKey(1, "0x00"), "a", TTL) is None


async def test_declaring_a_lane_again_changes_nothing(store: Store) -> None:
    lease = await take(store, "a")
    await store.declare([LANE])
    assert await store.renew([lease], TTL) == [LANE]


async def test_a_take_over_is_an_event_that_names_owner_and_epoch(store: Store) -> None:
    await take(store, "a")
    await take(store, "a")
    events = await store.events_after(0, limit=9)
    assert [(event.kind, event.lane, dict(event.data)) for event in events] == [
        ("lane.lease", LANE, {"owner": "a", "epoch": 1}),
        ("lane.lease", LANE, {"owner": "a", "epoch": 2}),
    ]


async def test_epochs_never_decrease_whatever_happens_to_the_lease(store: Store, clock: ManualClock) -> None:
    epochs = []
    for round_ in range(30):
        epoch = await store.acquire(LANE, "ab"[round_ % 2], TTL)
        if epoch is not None:
            epochs.append(epoch)
            if round_ % 3 == 0:
                await store.release([Lease(LANE, "ab"[round_ % 2], epoch, 0.0)])
        clock.pass_seconds(TTL if round_ % 5 == 0 else 1)
    assert len(epochs) > 10
    assert epochs == list(range(1, len(epochs) + 1))


# who lives


async def test_live_nodes_are_counted_until_their_heartbeat_is_over(store: Store, clock: ManualClock) -> None:
    assert await store.heartbeat("a", TTL) == 1
    clock.pass_seconds(TTL / 2)
    assert await store.heartbeat("b", TTL) == 2
    clock.pass_seconds(TTL / 2)
    assert await store.heartbeat("b", TTL) == 1


async def test_a_node_that_leaves_is_not_counted_any_more(store: Store) -> None:
    await store.heartbeat("a", TTL)
    await store.release([], "a")
    assert await store.heartbeat("b", TTL) == 1


# who has work


async def test_a_lane_without_work_is_nobody_s_to_take(store: Store) -> None:
    assert await store.lanes_with_work() == []


async def test_a_lane_with_work_names_its_holder_while_the_lease_holds(store: Store, clock: ManualClock) -> None:
    await accept(store, "a")
    assert await store.lanes_with_work() == [LaneWork(LANE, None)]
    lease = await take(store, "node-a")
    assert await store.lanes_with_work() == [LaneWork(LANE, "node-a")]
    clock.pass_seconds(TTL)
    assert await store.lanes_with_work() == [LaneWork(LANE, None)]
    await store.release([lease])
    assert await store.lanes_with_work() == [LaneWork(LANE, None)]


async def test_lanes_with_work_come_in_order(store: Store) -> None:
    await accept(store, "a", lane=OTHER_LANE)
    await accept(store, "b")
    assert [found.lane for found in await store.lanes_with_work()] == sorted([LANE, OTHER_LANE])
