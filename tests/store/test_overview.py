"""How the whole store stands, for people who watch it."""

from __future__ import annotations

from nonchalant.lifecycle import Broadcast, Held, Included
from nonchalant.model import Attention
from nonchalant.ports import Store
from nonchalant.values import replace
from nonchalant.words import Mode
from tests.examples import LANE, MARK, a_receipt
from tests.store.acts import OTHER_LANE, ManualClock, accept, assign, settle, take, work

CHAIN = LANE.chain_id


async def test_what_is_live_is_counted_by_state_and_what_is_held_apart(store: Store) -> None:
    await accept(store, "waits")
    await accept(store, "elsewhere", lane=OTHER_LANE)
    held, signed, sent, mined, ended = await accept(store, "held", "signed", "sent", "mined", "ended")
    lease = await take(store)
    signed, sent, mined, ended = await assign(store, lease, (signed, 0), (sent, 1), (mined, 2), (ended, 3))
    making = work(lease)
    making.move(held, Held(MARK))
    making.move(sent, Broadcast())
    making.move(mined, Included(a_receipt(mined.hash or "")))
    await store.commit(making.change(), lease)
    await settle(store, lease, "ended")
    found = {state: count for (chain, state), count in (await store.overview(limit=99)).live.items() if chain == CHAIN}
    elsewhere = int(OTHER_LANE.chain_id == CHAIN)
    assert found == {"queued": 1 + elsewhere, "held": 1, "signed": 1, "sent": 1, "mined": 1}


async def test_the_oldest_that_waits_for_a_block_is_told_by_the_stores_clock(store: Store, clock: ManualClock) -> None:
    assert (await store.overview(limit=99)).oldest_unmined == {}
    await accept(store, "old")
    clock.pass_seconds(60)
    await accept(store, "young")
    clock.pass_seconds(30)
    assert 85_000 <= (await store.overview(limit=99)).oldest_unmined[CHAIN] <= 120_000


async def test_what_is_held_or_mined_makes_nothing_old(store: Store, clock: ManualClock) -> None:
    held, mined = await accept(store, "held", "mined")
    lease = await take(store)
    [mined] = await assign(store, lease, (mined, 0))
    making = work(lease)
    making.move(held, Held(MARK))
    making.move(mined, Included(a_receipt(mined.hash or "")))
    await store.commit(making.change(), lease)
    clock.pass_seconds(90)
    assert (await store.overview(limit=99)).oldest_unmined == {}


async def test_no_more_is_counted_than_was_asked_for(store: Store) -> None:
    await accept(store, *"abcdef")
    assert sum((await store.overview(limit=4)).live.values()) == 4


async def test_lanes_are_counted_by_what_keeps_them(store: Store) -> None:
    await store.control(LANE, Mode.PAUSED, "")
    lease = await take(store, lane=OTHER_LANE)
    making = work(lease)
    ill = Attention("low_balance", "", 0)
    making.record(replace(making.lane_record, quarantined_below=5, unhealthy=ill, attention=MARK))
    await store.commit(making.change(), lease)
    lanes = (await store.overview(limit=99)).lanes
    counted = {condition: 0 for _, condition in lanes}
    for (_, condition), count in lanes.items():
        counted[condition] += count
    assert counted == {"paused": 1, "draining": 0, "halted": 0, "quarantined": 1, "unhealthy": 1, "marked": 1}
