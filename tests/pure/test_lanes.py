"""Nonce arithmetic, and a lane that only ever believes what was committed."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nonchalant.lanes import Lane, Work, exposure
from nonchalant.model import Change, Fees, Payload, Reservation, Stranger
from nonchalant.values import replace
from nonchalant.words import AttemptKind, SlotKind, State
from tests.examples import ALICE, BOB, LANE, a_hash, a_lane, a_receipt, a_record, a_slot, a_transaction, an_attempt


@st.composite
def lanes(draw: st.DrawFn) -> Lane:
    """Any lane that its own commits can lead to: slots from the settled bound on, `next_nonce` above all of them."""
    settled_below = draw(st.integers(0, 5))
    nonces = draw(st.sets(st.integers(settled_below, settled_below + 12)))
    lowest_next = max((settled_below, *(nonce + 1 for nonce in nonces)))
    given = st.integers(lowest_next, lowest_next + 4)
    next_nonce = draw(given if nonces else given | st.none())
    count = draw(st.integers(settled_below, settled_below + 14))
    final_count = draw(st.integers(0, count))
    return a_lane(*nonces, count=count, final_count=final_count, settled_below=settled_below, next_nonce=next_nonce)


def with_slots(lane: Lane, nonces: list[int], next_nonce: int) -> Lane:
    """The lane after a commit that bound these."""
    slots = [*lane.slots.values(), *(a_slot(nonce, tx_id=None) for nonce in nonces)]
    after = Lane(replace(lane.record, next_nonce=next_nonce), slots)
    after.count, after.final_count = lane.count, lane.final_count
    return after


# nonces


def test_the_first_unbound_nonce_is_above_what_is_used_and_what_is_bound_next_to_it() -> None:
    assert a_lane(2, 3, 5, count=2, next_nonce=6).first_unbound == 4
    assert a_lane(2, 3, 5, settled_below=4, count=2, next_nonce=6).first_unbound == 4
    assert a_lane(2, 3, 5, count=5, next_nonce=6).first_unbound == 6
    assert a_lane(next_nonce=3).first_unbound == 0


@given(lanes(), st.integers(0, 10))
def test_nonces_given_out_are_free_unused_distinct_and_ascending(lane: Lane, wanted: int) -> None:
    taken = lane.take(wanted)
    assert len(taken) == wanted
    assert all(lower < upper for lower, upper in pairwise(taken))
    assert not set(taken) & set(lane.slots)
    assert all(nonce >= max(lane.count, lane.record.settled_below) for nonce in taken)


@given(lanes(), st.integers(1, 10))
def test_what_can_be_given_is_what_is_given_out(lane: Lane, wanted: int) -> None:
    taken = lane.take(wanted)
    assert [nonce for nonce in range(taken[-1] + 1) if lane.can_give(nonce)] == taken


@given(lanes(), st.integers(1, 10))
def test_no_hole_stays_below_a_nonce_that_is_given_out(lane: Lane, wanted: int) -> None:
    taken = lane.take(wanted)
    below = set(range(max(lane.count, lane.record.settled_below), taken[-1]))
    assert below <= set(taken) | set(lane.slots)


@given(lanes(), st.integers(0, 10))
def test_the_next_nonce_is_above_everything_bound_and_gives_trailing_holes_back(lane: Lane, wanted: int) -> None:
    taken = lane.take(wanted)
    after = lane.next_after(taken)
    lowest = max(lane.record.settled_below, lane.count)
    bound = set(lane.slots) | set(taken)
    assert all(nonce < after for nonce in bound)
    # Only trailing holes: the number just below is bound, or used, or final.
    assert after == lowest or after - 1 in bound
    assert after >= lowest


@given(lanes(), st.data())
def test_what_is_freed_at_the_end_is_given_back(lane: Lane, data: st.DataObject) -> None:
    freed = data.draw(st.lists(st.sampled_from(sorted(lane.slots)), unique=True)) if lane.slots else []
    after = lane.next_after(freed=freed)
    kept = set(lane.slots) - set(freed)
    assert after == max(lane.record.settled_below, lane.count, max(kept, default=-1) + 1)


@pytest.mark.parametrize(("count", "behind"), [(2, True), (3, False), (4, False)])
def test_a_chain_that_executed_less_than_was_final_is_behind(count: int, behind: bool) -> None:
    lane = Lane(a_record(next_nonce=3, settled_below=3))
    lane.count = count
    assert lane.is_behind is behind


def test_a_hole_below_a_nonce_that_is_only_reserved_is_no_gap() -> None:
    held = a_slot(3, tx_id=None, kind=SlotKind.RESERVATION, payload_version=1, reservation=Reservation("h", 9))
    lane = Lane(a_record(next_nonce=4), [replace(held, attempts=())])
    assert (lane.holes(), lane.gaps()) == ([0, 1, 2], [])
    assert Lane(a_record(next_nonce=4), [held]).gaps() == [0, 1, 2]


def test_below_a_nonce_that_is_final_nothing_is_free_whatever_an_endpoint_that_lags_says() -> None:
    reserved = a_slot(12, tx_id=None, kind=SlotKind.RESERVATION, payload_version=1, reservation=Reservation("h", 9))
    bound = a_slot(13)
    lane = Lane(a_record(next_nonce=14, settled_below=12), [reserved, bound])
    lane.apply(Change(slots=(replace(bound, settled=True),)))
    loaded = Lane(a_record(next_nonce=14, settled_below=12), [reserved], final_below=14)
    for one in (lane, loaded):
        assert one.count == 0  # as far as it was told
        assert (one.holes(), one.take(1), one.first_unbound, one.can_give(13)) == ([], [14], 14, False)
        assert one.next_after(freed=[12]) == 14
        one.apply(Change(lane=a_record(next_nonce=14, settled_below=10), freed=(12,), unsettled_from=10))
        assert one.take(2) == [10, 11]


@given(lanes(), st.integers(0, 8), st.integers(0, 8))
def test_nonces_given_out_twice_in_a_row_never_collide(lane: Lane, first: int, second: int) -> None:
    taken = lane.take(first)
    after = with_slots(lane, taken, lane.next_after(taken))
    assert not set(taken) & set(after.take(second))


@given(lanes())
def test_a_gap_is_a_hole_with_something_signed_above_it(lane: Lane) -> None:
    assert set(lane.gaps()) == {hole for hole in lane.holes() if any(nonce > hole for nonce in lane.slots)}


@given(lanes(), st.data())
def test_the_settled_prefix_never_passes_an_unsettled_slot_and_never_falls(lane: Lane, data: st.DataObject) -> None:
    settled = data.draw(st.sets(st.sampled_from(sorted(lane.slots)))) if lane.slots else set()
    prefix = lane.settled_prefix(settled)
    assert prefix >= lane.record.settled_below
    assert all(nonce >= prefix for nonce in lane.slots if nonce not in settled)
    known = max(lane.record.settled_below, lane.final_count, *(nonce + 1 for nonce in settled), 0)
    # It stops only where something is not final.
    assert prefix == known or (prefix in lane.slots and prefix not in settled)


def test_a_lane_that_was_never_synchronised_starts_where_the_chain_stands() -> None:
    assert a_lane(count=7).next_nonce == 7
    assert a_lane(count=7).take(2) == [7, 8]


def test_the_next_nonce_rises_with_what_the_chain_executed() -> None:
    assert a_lane(count=7, next_nonce=5).next_nonce == 7
    assert a_lane(count=3, next_nonce=5).next_nonce == 5


def test_the_lowest_holes_are_given_out_first() -> None:
    lane = a_lane(2, 5, count=1, next_nonce=7)
    assert lane.holes() == [1, 3, 4, 6]
    assert lane.gaps() == [1, 3, 4]
    assert lane.take(6) == [1, 3, 4, 6, 7, 8]


# an account that others use too


@given(lanes(), st.integers(0, 30), st.integers(1, 10))
def test_no_nonce_that_pools_show_in_use_is_given_out_or_filled(lane: Lane, pooled: int, wanted: int) -> None:
    lane.pooled = pooled
    taken = lane.take(wanted)
    assert all(nonce >= pooled for nonce in taken)
    assert not set(taken) & set(lane.slots)
    assert all(nonce >= pooled for nonce in lane.gaps() + lane.vacant(pooled + 5))
    lowest = max(lane.count, lane.record.settled_below)
    assert set(lane.borrowed()) == {
        nonce for nonce in range(lowest, max(lane.slots, default=0)) if nonce < pooled and nonce not in lane.slots
    }


def test_numbers_in_use_are_skipped_and_taken_back_when_pools_forget_them() -> None:
    lane = a_lane(2, 5, count=1, next_nonce=7)
    lane.pooled = 4
    assert (lane.take(4), lane.gaps(), lane.borrowed()) == ([4, 6, 7, 8], [4], [1, 3])
    assert lane.vacant(7) == [4, 6]
    lane.pooled = 9
    assert lane.take(2) == [9, 10]
    assert lane.next_nonce == 7  # what pools hold is no use of a nonce yet
    lane.pooled = 2
    assert (lane.gaps(), lane.borrowed()) == ([3, 4], [1])


# what waits


def test_a_slot_is_open_until_the_chain_used_its_nonce() -> None:
    lane = a_lane(4, 5, 6, count=5)
    mined = replace(lane.slots[6], receipt=a_receipt())
    lane.slots[6] = mined
    assert [slot.nonce for slot in lane.open_slots()] == [5]
    assert lane.is_consumed(mined)


def test_a_slot_is_lost_when_its_nonce_is_used_and_none_of_its_attempts_is_known_to_have_run() -> None:
    lane = a_lane(3, 4, 5, count=5)
    lane.slots[3] = replace(lane.slots[3], receipt=a_receipt())
    assert [slot.nonce for slot in lane.lost_slots()] == [4]


def test_room_is_bounded_by_what_is_in_flight_and_by_what_is_not_final() -> None:
    lane = a_lane(0, 1, 2, 3, count=2)
    assert lane.room(window=5, unsettled=100) == 3
    assert lane.room(window=5, unsettled=6) == 2
    assert lane.room(window=1, unsettled=100) == 0


def test_a_slot_can_cost_its_dearest_attempt_and_its_value() -> None:
    slot = a_slot(0, an_attempt(a_hash(1), fees=Fees(100, 1), gas=10), an_attempt(a_hash(2), fees=Fees(50, 1), gas=30))
    assert exposure(slot, None) == 1500
    assert exposure(slot, a_transaction(payload=Payload(to=ALICE, value=7))) == 1507


def test_what_is_in_flight_is_committed_and_what_ran_is_not() -> None:
    tx = a_transaction("a", payload=Payload(to=ALICE, value=7), nonce=1, state=State.SENT, hash="0x1")
    lane = Lane(a_record(), [a_slot(0, tx_id=None), a_slot(1, tx_id="a")], [tx])
    both = 2 * 21_000 * 100 + 7
    assert lane.committed() == both
    lane.count = 1
    assert lane.committed() == both - 21_000 * 100


def test_a_slot_can_be_offered_what_the_balance_covers_beside_the_others() -> None:
    first, second = (a_slot(nonce, an_attempt(f"0x0{nonce}", nonce, None, fees=Fees(10, 1), gas=3)) for nonce in (0, 1))
    lane = Lane(a_record(next_nonce=2), [replace(first, tx_id=None), replace(second, tx_id=None)])
    lane.balance = 100
    assert lane.committed() == 60
    assert lane.can_pay(lane.slots[0], 70)
    assert not lane.can_pay(lane.slots[0], 71)


def test_the_fee_for_data_is_committed_while_it_is_in_flight() -> None:
    lane = a_lane(0, 1)
    plain = lane.committed()
    lane.data_fees = {0: 5, 1: 7, 9: 100}  # of what is not bound, nothing counts
    assert lane.committed() == plain + 12
    lane.apply(Change(freed=(1,), slots=(replace(lane.slots[0], settled=True),)))
    assert lane.data_fees == {9: 100}


def test_the_fee_for_data_stays_when_the_payload_is_replaced() -> None:
    """What it replaces may still run."""
    lane = a_lane(0)
    lane.data_fees = {0: 5}
    for hash, kind in (("0xb1", AttemptKind.BUMP), ("0xb2", AttemptKind.REPLACEMENT)):
        lane.apply(Change(attempts=(an_attempt(hash, 0, "tx", kind=kind),)))
    assert lane.data_fees == {0: 5}


def test_a_filler_has_no_transaction() -> None:
    tx = a_transaction("a")
    lane = Lane(a_record(), [a_slot(0, tx_id=None), a_slot(1, tx_id="a")], [tx])
    assert lane.transaction_of(lane.slots[0]) is None
    assert lane.transaction_of(lane.slots[1]) is tx


def test_every_attempt_of_every_slot_is_watched_not_the_newest_only() -> None:
    old, new = an_attempt(a_hash("old"), 1), an_attempt(a_hash("new"), 1)
    lane = Lane(a_record(), [a_slot(1, old, new)])
    assert lane.attempt_hashes() == [old.hash, new.hash]
    assert lane.nonce_of(old.hash) == lane.nonce_of(new.hash) == 1
    assert lane.nonce_of("0xelse") is None


def test_slots_are_held_in_nonce_order_however_they_come() -> None:
    assert list(a_lane(5, 3, 4).slots) == [3, 4, 5]
    assert a_lane(1).key == LANE


# applying what was committed


def apply(lane: Lane, /, **change: Any) -> Lane:
    lane.apply(Change(**change))
    return lane


def test_a_bound_slot_is_known_with_its_attempts_and_in_order() -> None:
    low, high = a_slot(2, tx_id=None), a_slot(9, tx_id=None)
    lane = apply(a_lane(5), slots=(high, low), attempts=(*high.attempts, *low.attempts))
    assert list(lane.slots) == [2, 5, 9]
    assert lane.nonce_of(high.newest.hash) == 9


def test_a_settled_slot_is_forgotten_with_its_attempts() -> None:
    lane = a_lane(1, 2)
    settled = replace(lane.slots[1], settled=True)
    apply(lane, slots=(settled,))
    assert list(lane.slots) == [2]
    assert lane.nonce_of(settled.newest.hash) is None


def test_a_freed_slot_is_forgotten_even_when_it_was_answered_in_the_same_change() -> None:
    lane = a_lane(1, 2)
    gone = lane.slots[1].newest
    apply(lane, freed=(1,), answered=(replace(gone, answer="refused"),))
    assert list(lane.slots) == [2]
    assert lane.nonce_of(gone.hash) is None


def test_an_answer_changes_the_attempt_it_is_about_and_no_other() -> None:
    old, new = an_attempt(a_hash("old"), 1), an_attempt(a_hash("new"), 1)
    lane = Lane(a_record(), [a_slot(1, old, new)])
    answered = replace(old, answer="accepted", sent_at=5)
    apply(lane, answered=(answered,))
    assert lane.slots[1].attempts == (answered, new)


def test_transactions_are_kept_while_they_are_live_and_have_a_slot() -> None:
    flying = a_transaction("a", state=State.SENT, nonce=1, hash="0x1")
    lane = apply(a_lane(), transactions=(flying,))
    assert lane.transactions == {"a": flying}
    apply(lane, transactions=(replace(flying, state=State.CONFIRMED),))
    assert lane.transactions == {}
    apply(lane, transactions=(flying,))
    apply(lane, transactions=(replace(flying, state=State.QUEUED, nonce=None, hash=None),))
    assert lane.transactions == {}


def test_the_record_is_replaced_when_the_change_has_one() -> None:
    lane = a_lane(next_nonce=3)
    apply(lane, freed=())
    assert lane.record.next_nonce == 3
    apply(lane, lane=a_record(next_nonce=9))
    assert lane.record.next_nonce == 9


# strangers


def a_stranger(hash: str = "0xf1", value: int = 1) -> Stranger:
    return Stranger(hash, 3, Payload(to=BOB, value=value).deed)


def test_a_payload_finds_the_first_stranger_that_did_the_same() -> None:
    strangers = [a_stranger("0xf0", value=9), a_stranger("0xf1"), a_stranger("0xf2")]
    lane = Lane(a_record(), strangers=strangers)
    assert lane.twin_of(a_transaction(payload=Payload(to=BOB, value=1, gas=5))) == strangers[1]
    assert lane.twin_of(a_transaction(payload=Payload(to=BOB, value=2))) is None
    assert a_lane().twin_of(a_transaction(payload=Payload(to=BOB, value=1))) is None


def test_one_stranger_holds_one_transaction_and_no_second_one() -> None:
    lane, tx = a_lane(), a_transaction("a")
    apply(lane, strangers=(a_stranger(),))
    work = Work(lane, 5)
    work.hold_for(tx, a_stranger())
    [held] = work.change().transactions
    assert held.held
    assert held.attention is not None
    assert held.attention.code == "same_payload_executed"
    assert "0xf1" in held.attention.reason
    assert lane.twin_of(tx) == a_stranger()
    lane.apply(work.change())
    assert lane.twin_of(tx) is None


def test_a_stranger_that_was_never_met_can_be_held_for_at_once() -> None:
    lane = apply(a_lane(), strangers=(replace(a_stranger(), tx_id="a"),))
    assert lane.strangers == {}


def test_a_slot_can_cost_the_dearest_of_all_payloads_it_was_signed_for() -> None:
    tx = a_transaction(payload=Payload(to=None, value=3), earlier=(Payload(to=None, value=900),))
    first = an_attempt("0x01", fees=Fees(10, 1), gas=10)
    second = an_attempt("0x02", fees=Fees(20, 1), gas=10, kind=AttemptKind.REPLACEMENT, payload_version=2)
    cancel = an_attempt("0x03", fees=Fees(30, 1), gas=10, kind=AttemptKind.CANCEL)
    assert exposure(a_slot(0, first, second, cancel), tx) == 900 + 100
    assert exposure(a_slot(0, second, cancel), tx) == 300
    assert exposure(a_slot(0, second), tx) == 203
