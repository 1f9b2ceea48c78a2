"""What may have run in a commit that was lost: who waits for it, who is held for it, and that nothing ends it."""

import pytest

from nonchalant.errors import MayHaveRun
from nonchalant.lanes import doubt_for
from nonchalant.lifecycle import Cancelled, Held, step
from nonchalant.model import Attention, Change, Stranger, Transaction
from nonchalant.ports import Store
from nonchalant.values import replace
from nonchalant.words import Mode, State
from tests.examples import LANE, a_record, a_request
from tests.store.acts import LIMITS, ManualClock, accept, take


async def read(store: Store, tx_id: str) -> Transaction:
    found = await store.transaction(tx_id)
    assert found is not None
    return found


async def stranger_like(store: Store, tx: Transaction) -> Stranger:
    stranger = Stranger("0xf1", 3, tx.payload.deed)
    await store.commit(Change(strangers=(stranger,)), await take(store))
    return stranger


async def hold(store: Store, tx_id: str, mark: Attention) -> None:
    held, events = step(await read(store, tx_id), Held(mark), 5)
    await store.alter_queued(held, events)


async def test_who_did_the_same_is_found_until_somebody_is_held_for_it(store: Store) -> None:
    await accept(store, "a", "b")
    a, b = await read(store, "a"), await read(store, "b")
    assert await store.twin_of(a) is None
    stranger = await stranger_like(store, a)
    assert await store.twin_of(a) == stranger
    with pytest.raises(MayHaveRun):
        await store.alter_queued(*step(a, Cancelled(), 5))
    held, events = step(a, Held(doubt_for(stranger, 5)), 5)
    await store.alter_queued(held, events, stranger)
    assert (await read(store, "a")).is_in_doubt
    assert await store.twin_of(a) is None
    assert await store.twin_of(b) is None
    await store.alter_queued(*step(await read(store, "a"), Cancelled(), 6))
    assert (await read(store, "a")).state is State.CANCELLED


async def test_one_that_did_the_same_holds_one_request_however_often_it_is_found(store: Store) -> None:
    await accept(store, "a", "b")
    a = await read(store, "a")
    stranger = await stranger_like(store, a)
    await store.alter_queued(*step(a, Held(doubt_for(stranger, 5)), 5), stranger)
    await stranger_like(store, a)
    assert await store.twin_of(await read(store, "b")) is None
    assert (await store.load(await take(store))).strangers == []


@pytest.mark.parametrize("how", ["held", "paused", "draining"])
async def test_a_lane_that_is_in_quarantine_is_work_while_anything_waits_there(store: Store, how: str) -> None:
    await accept(store, "a")
    if how == "held":
        await hold(store, "a", Attention("held", "so", 5))
    else:
        await store.control(LANE, Mode(how), "")
    assert await store.lanes_with_work() == []
    lease = await take(store)
    await store.commit(Change(lane=a_record(quarantined_below=16)), lease)
    await store.release([lease])
    assert [found.lane for found in await store.lanes_with_work()] == [LANE]
    await store.alter_queued(*step(await read(store, "a"), Held(Attention("held", "so", 5)), 6))
    lease = await take(store)
    await store.commit(Change(lane=a_record()), lease)
    await store.release([lease])
    assert await store.lanes_with_work() == []


async def test_what_is_overdue_is_shown_whatever_else_was_done_and_not_once_a_person_is_to_decide(
    store: Store, clock: ManualClock
) -> None:
    requests = [replace(a_request(name), valid_until=clock.millis + 10) for name in ("a", "b")]
    await store.accept(requests, limits=LIMITS)
    stranger = await stranger_like(store, await read(store, "a"))
    clock.millis += 20
    assert {tx.id for tx in await store.overdue(limit=9)} == {"a", "b"}
    held, events = step(await read(store, "a"), Held(doubt_for(stranger, 5)), 5)
    await store.alter_queued(held, events, stranger)
    await hold(store, "b", Attention("held", "so", 5))
    assert [tx.id for tx in await store.overdue(limit=9)] == ["b"]
