"""A stale owner cannot write, and cannot read what it would act on."""

from collections.abc import Awaitable, Callable

import pytest

from nonchalant.errors import LeaseLost
from nonchalant.model import Change, Event, LaneRecord, Lease
from nonchalant.ports import Store
from nonchalant.values import replace
from tests.examples import LANE, MARK, a_slot, an_attempt
from tests.lessons import lesson
from tests.store.acts import TTL, ManualClock, accept, assign, assignment, everything, filler, take

Lose = Callable[[Store, ManualClock, Lease], Awaitable[Lease]]


async def _expired(store: Store, clock: ManualClock, lease: Lease) -> Lease:
    clock.pass_seconds(TTL)
    return lease


async def _taken_over(store: Store, clock: ManualClock, lease: Lease) -> Lease:
    clock.pass_seconds(TTL)
    await take(store, "node-b")
    return lease


async def _retaken(store: Store, clock: ManualClock, lease: Lease) -> Lease:
    await take(store, lease.owner)
    return lease


async def _released(store: Store, clock: ManualClock, lease: Lease) -> Lease:
    await store.release([lease])
    return lease


async def _another_owner(store: Store, clock: ManualClock, lease: Lease) -> Lease:
    return replace(lease, owner="node-x")


async def _epoch_to_come(store: Store, clock: ManualClock, lease: Lease) -> Lease:
    return replace(lease, epoch=lease.epoch + 1)


LOSSES = [_expired, _taken_over, _retaken, _released, _another_owner, _epoch_to_come]


@lesson("no-fencing")
@pytest.mark.parametrize("lose", LOSSES)
async def test_no_part_of_a_stale_owner_s_commit_is_written(store: Store, clock: ManualClock, lose: Lose) -> None:
    waiting, flying = await accept(store, "waiting", "flying")
    lease = await take(store)
    await assign(store, lease, (flying, 0))
    known = (await store.attempts(["flying"]))["flying"][0]
    stale = await lose(store, clock, lease)
    before = await everything(store)
    parts = [
        assignment(lease, (waiting, 1)),
        filler(lease, 1),
        Change(freed=(0,)),
        Change(slots=(replace(a_slot(0, tx_id="flying"), settled=True),)),
        Change(attempts=(an_attempt("0xbb", 0, "flying"),)),
        Change(answered=(replace(known, answer="accepted"),)),
        Change(lane=LaneRecord(key=LANE, next_nonce=9, attention=MARK)),
        Change(events=(Event(kind="lane.paused", lane=LANE, at=0),)),
    ]
    for part in parts:
        with pytest.raises(LeaseLost):
            await store.commit(part, stale)
    assert await everything(store) == before


@pytest.mark.parametrize("lose", LOSSES)
async def test_a_stale_owner_cannot_load_the_lane(store: Store, clock: ManualClock, lose: Lose) -> None:
    stale = await lose(store, clock, await take(store))
    with pytest.raises(LeaseLost):
        await store.load(stale)


async def test_the_holder_commits_until_the_last_moment(store: Store, clock: ManualClock) -> None:
    lease = await take(store)
    clock.pass_seconds(TTL - 0.001)
    await store.commit(filler(lease, 0), lease)
    assert [slot.nonce for slot in (await store.load(lease)).slots] == [0]


async def test_the_next_owner_finds_what_the_last_one_committed(store: Store, clock: ManualClock) -> None:
    [tx] = await accept(store, "a")
    old = await take(store, "node-a")
    [signed] = await assign(store, old, (tx, 0))
    clock.pass_seconds(TTL)
    loaded = await store.load(await take(store, "node-b"))
    assert list(loaded.transactions) == [signed]
    [slot] = loaded.slots
    assert (slot.nonce, slot.tx_id, slot.newest.epoch) == (0, "a", old.epoch)
