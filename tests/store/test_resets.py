"""What was final is given up by an operator only, and counted; a halt is left only by opening the lane."""

from __future__ import annotations

import pytest

from nonchalant.errors import RowMoved
from nonchalant.model import Change, Reservation
from nonchalant.ports import Store
from nonchalant.values import replace
from nonchalant.words import LaneKey, Mode, SlotKind
from tests.examples import LANE, a_hash, a_record, a_slot, an_attempt
from tests.store.acts import take


async def settled(store: Store, below: int) -> None:
    lease = await take(store)
    slots = [a_slot(nonce, tx_id=None) for nonce in range(below)]
    attempts = tuple(slot.attempts[0] for slot in slots)
    await store.commit(Change(slots=tuple(slots), attempts=attempts), lease)
    record = a_record(next_nonce=below, settled_below=below)
    await store.commit(Change(slots=tuple(replace(slot, settled=True) for slot in slots), lane=record), lease)


async def test_a_reset_that_is_counted_lowers_the_bound_and_frees_what_was_final(store: Store) -> None:
    await settled(store, 3)
    lease = await take(store)
    record = a_record(next_nonce=1, settled_below=1, resets=1)
    await store.commit(Change(lane=record, unsettled_from=1), lease)
    assert (await store.load(lease)).record == record
    anew = an_attempt(a_hash("anew"), 1, None, epoch=lease.epoch)
    again = replace(a_slot(1, tx_id=None), attempts=(anew,))
    await store.commit(Change(slots=(again,), attempts=(anew,)), lease)
    assert list((await store.load(lease)).slots) == [again]  # with nothing of the filler that was final
    with pytest.raises(RowMoved):
        await store.commit(Change(slots=(replace(again, nonce=0),)), lease)


async def test_what_is_not_final_stays_bound_with_all_that_was_signed_for_it(store: Store) -> None:
    """Its bytes may be anywhere: no reset gives its nonce to anybody else."""
    await settled(store, 3)
    lease = await take(store)
    live = a_slot(3, tx_id=None)
    await store.commit(Change(slots=(live,), attempts=live.attempts), lease)
    await store.commit(Change(lane=a_record(next_nonce=4, settled_below=1, resets=1), unsettled_from=1), lease)
    assert list((await store.load(lease)).slots) == [live]


async def test_without_counting_it_nothing_is_given_up(store: Store) -> None:
    await settled(store, 3)
    lease = await take(store)
    with pytest.raises(RowMoved):
        await store.commit(Change(lane=a_record(next_nonce=1, settled_below=1), unsettled_from=1), lease)
    loaded = await store.load(lease)
    assert loaded.record.settled_below == 3
    with pytest.raises(RowMoved):
        await store.commit(Change(slots=(a_slot(1, tx_id=None),)), lease)


async def test_a_reservation_becomes_a_filler_and_nothing_else(store: Store) -> None:
    lease = await take(store)
    held = replace(
        a_slot(0, tx_id=None),
        kind=SlotKind.RESERVATION,
        payload_version=1,
        attempts=(),
        reservation=Reservation("h", 5),
    )
    await store.commit(Change(slots=(held,)), lease)
    with pytest.raises(RowMoved):
        await store.commit(Change(slots=(a_slot(0, tx_id="a"),)), lease)
    closed = replace(held, kind=SlotKind.FILLER, payload_version=0)
    await store.commit(Change(slots=(closed,)), lease)
    assert list((await store.load(lease)).slots) == [closed]
    with pytest.raises(RowMoved):
        await store.commit(Change(slots=(held,)), lease)


@pytest.mark.parametrize("mode", [Mode.PAUSED, Mode.DRAINING])
async def test_a_halt_is_left_by_opening_the_lane_only(store: Store, mode: Mode) -> None:
    await store.halt(LANE.chain_id, "a final block vanished")
    before = await store.control(LANE, mode, "lunch")
    assert before.mode is Mode.HALTED
    control = (await store.orders(LANE)).control
    assert (control.mode, control.reason) == (Mode.HALTED, "a final block vanished")
    await store.control(LANE, Mode.OPEN, "")
    assert (await store.orders(LANE)).control.mode is Mode.OPEN
    await store.control(LANE, mode, "lunch")
    assert (await store.orders(LANE)).control.mode is mode


async def test_a_halt_is_every_lane_s_of_the_chain_and_of_no_other(store: Store) -> None:
    sister, abroad = LaneKey(LANE.chain_id, "0x" + "cc" * 20), LaneKey(LANE.chain_id + 1, LANE.address)
    await store.declare([sister, abroad])
    await store.halt(LANE.chain_id, "why")
    modes = [(await store.orders(lane)).control.mode for lane in (LANE, sister, abroad)]
    assert modes == [Mode.HALTED, Mode.HALTED, Mode.OPEN]
    events = [event for event in await store.events_after(0, limit=100) if event.kind == "lane.paused"]
    await store.halt(LANE.chain_id, "why")
    assert [event for event in await store.events_after(0, limit=100) if event.kind == "lane.paused"] == events


async def test_to_open_a_lane_is_to_believe_its_chain(store: Store) -> None:
    lease = await take(store)
    await store.commit(Change(lane=a_record(next_nonce=0, seen_block=9, seen_hash="0x09")), lease)
    await store.control(LANE, Mode.PAUSED, "")
    assert (await store.load(lease)).record.seen_hash == "0x09"
    await store.control(LANE, Mode.OPEN, "")
    assert (await store.load(lease)).record.seen_hash is None
