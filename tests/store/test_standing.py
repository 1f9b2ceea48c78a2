"""How a live transaction stands among the others of its lane, and what a lane shows of what waits."""

from __future__ import annotations

import pytest

from nonchalant.lifecycle import Broadcast, Held, Included
from nonchalant.model import Reservation, Slot, Transaction
from nonchalant.ports import FirstOpen, Numbering, OpenWish, Reserved, Standing, Store
from nonchalant.values import replace
from nonchalant.wishes import Cancel, Sync, Wish
from nonchalant.words import SlotKind, State, Wanted
from tests.examples import LANE, MARK, a_receipt
from tests.store.acts import OTHER_LANE, ManualClock, accept, assign, filler, take, work


async def standing(store: Store, tx: Transaction, limit: int = 9) -> Standing:
    now = await store.transaction(tx.id)
    assert now is not None
    return (await store.standings([now], limit=limit))[tx.id]


async def test_those_that_go_before_it_are_counted_by_priority_and_place(store: Store) -> None:
    first, second = await accept(store, "first", "second")
    [urgent] = await accept(store, "urgent", priority=9)
    [last] = await accept(store, "last", priority=0)
    await accept(store, "elsewhere", lane=OTHER_LANE, priority=9)
    order = [urgent, first, second, last]
    assert [(await standing(store, tx)).ahead for tx in order] == [0, 1, 2, 3]
    assert (await standing(store, last, limit=1)).ahead == 2  # one more than was to be counted


async def test_what_is_held_is_not_in_the_line(store: Store) -> None:
    held, waiting = await accept(store, "held", "waiting")
    lease = await take(store)
    making = work(lease)
    making.move(held, Held(MARK))
    await store.commit(making.change(), lease)
    assert (await standing(store, held)).ahead is None
    assert (await standing(store, waiting)).ahead == 0


async def test_what_is_wanted_at_its_slot_is_told(store: Store) -> None:
    [tx] = await accept(store, "a")
    lease = await take(store)
    await assign(store, lease, (tx, 4))
    assert await standing(store, tx) == Standing(payload_version=1, first=FirstOpen(4, SlotKind.TRANSACTION, "a"))
    [slot] = (await store.load(lease)).slots
    making = work(lease)
    making.slot(replace(slot, wanted=Wanted.CANCEL, payload_version=0))
    await store.commit(making.change(), lease)
    told = await standing(store, tx)
    assert (told.wanted, told.payload_version) == (Wanted.CANCEL, 0)


async def test_the_lowest_nonce_that_is_not_executed_is_named(store: Store) -> None:
    low, high = await accept(store, "low", "high")
    lease = await take(store)
    low, high = await assign(store, lease, (low, 4), (high, 6))
    await store.commit(filler(lease, 5), lease)
    assert (await standing(store, high)).first == FirstOpen(4, SlotKind.TRANSACTION, "low")
    making = work(lease)
    low = making.move(low, Broadcast())
    making.move(low, Included(a_receipt(low.hash)))
    await store.commit(making.change(), lease)
    assert (await standing(store, high)).first == FirstOpen(5, SlotKind.FILLER, None)


async def test_what_has_ended_stands_nowhere(store: Store) -> None:
    [tx] = await accept(store, "a")
    ended = replace(tx, state=State.CANCELLED)
    assert await store.standings([ended], limit=9) == {}


async def test_a_lane_shows_what_is_reserved_without_its_secret(store: Store) -> None:
    lease = await take(store)
    held = Slot(nonce=3, kind=SlotKind.RESERVATION, tx_id=None, attempts=(), reservation=Reservation("the secret", 77))
    making = work(lease)
    making.slot(held)
    await store.commit(making.change(), lease)
    summary = await store.lane(LANE)
    assert summary is not None
    assert summary.reservations == [Reserved(3, 77, None)]
    assert "the secret" not in repr(summary)


async def test_a_lane_shows_what_waits_for_its_owner(store: Store, clock: ManualClock) -> None:
    [tx] = await accept(store, "a")
    await assign(store, await take(store), (tx, 0))
    await store.wish(Wish("1", LANE, Cancel("a")), limit=9)
    await store.wish(Wish("2", LANE, Sync()), limit=9)
    await store.wish(Wish("3", OTHER_LANE, Sync()), limit=9)
    summary = await store.lane(LANE)
    assert summary is not None
    assert summary.wishes == [OpenWish("cancel", "a", clock.now()), OpenWish("sync", None, clock.now())]


# nonces that are spoken for


async def test_what_is_queued_will_take_nonces_and_what_is_held_will_not(store: Store) -> None:
    assert await store.numbering(LANE) == Numbering(None, 0)
    first, held, _ = await accept(store, "first", "held", "waiting")
    await accept(store, "fourth", asked_nonce=9)
    await accept(store, "elsewhere", lane=OTHER_LANE)
    lease = await take(store)
    await assign(store, lease, (first, 4))
    making = work(lease)
    making.move(held, Held(MARK))
    making.record(replace(making.lane_record, next_nonce=5))
    await store.commit(making.change(), lease)
    assert await store.numbering(LANE) == Numbering(5, 1, frozenset({9}))


@pytest.mark.parametrize(
    ("numbering", "executed", "free"),
    [
        (Numbering(None, 0), 7, 7),
        (Numbering(5, 0), 0, 5),
        (Numbering(5, 0), 8, 8),  # somebody else used three
        (Numbering(5, 3), 0, 8),
        (Numbering(5, 0, frozenset({5, 6, 8})), 0, 7),
        (Numbering(5, 2, frozenset({6})), 0, 8),  # 5 and 7 for those that take any
    ],
)
def test_the_next_free_nonce_is_the_lowest_that_nothing_accepted_will_take(
    numbering: Numbering, executed: int, free: int
) -> None:
    assert numbering.next_free(executed) == free
