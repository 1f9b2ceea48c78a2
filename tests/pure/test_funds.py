"""What an account can pay, and what it keeps."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nonchalant.fees import FeeRules
from nonchalant.funds import Purse, kept_for, kept_for_slot
from nonchalant.model import Fees, Slot
from nonchalant.policy import BUMPED_AT_ONCE
from nonchalant.words import SlotKind, Speed
from tests.examples import a_slot, a_transaction, an_attempt

amounts = st.integers(0, 10**6)


def test_a_single_transaction_may_take_the_last_wei() -> None:
    purse = Purse(1000, 0)
    assert purse.lacks(1000) == 0
    assert purse.lacks(1001) == 1


def test_what_comes_behind_leaves_enough_to_bump_what_is_ahead() -> None:
    purse = Purse(1000, 400, [150])
    assert purse.reserve == 150
    assert purse.lacks(450) == 0
    assert purse.lacks(451) == 1


def test_what_is_bought_counts_for_the_next() -> None:
    purse = Purse(1000, 0)
    purse.pay(600, 100)
    assert (purse.left, purse.reserve) == (400, 100)
    assert purse.lacks(300) == 0
    assert purse.lacks(301) == 1


@given(amounts, amounts, st.lists(amounts, max_size=8), st.lists(st.tuples(amounts, amounts), max_size=8))
def test_the_lowest_slots_can_always_be_bumped(
    balance: int, committed: int, kept: list[int], wanted: list[tuple[int, int]]
) -> None:
    """Whatever is bought while nothing lacks, what is left covers the reserve of what was ahead of it."""
    purse = Purse(balance, committed, kept)
    for cost, keep in wanted:
        before = purse.reserve
        if purse.lacks(cost) == 0:
            purse.pay(cost, keep)
            assert purse.left >= before


def test_only_the_slots_that_are_bumped_at_once_have_a_reserve() -> None:
    purse = Purse(10_000, 0, [1] * (BUMPED_AT_ONCE + 3))
    assert purse.reserve == BUMPED_AT_ONCE
    purse.pay(1, 50)
    assert purse.reserve == BUMPED_AT_ONCE


def test_a_third_of_the_price_is_kept_for_one_slot_as_far_as_the_caps_go() -> None:
    assert kept_for(21_000, 1000, Speed.FAST, FeeRules()) == 21_000 * 331
    assert kept_for(21_000, 1000, Speed.FAST, FeeRules(max_fee=1100)) == 21_000 * 100
    assert kept_for(21_000, 1000, Fees(1000, 1), FeeRules()) == 0


def test_the_dearest_attempt_of_a_slot_counts() -> None:
    slot = a_slot(
        0, an_attempt("0xaa", fees=Fees(100, 1), gas=50_000), an_attempt("0xbb", fees=Fees(1000, 2), gas=21_000)
    )
    assert kept_for_slot(slot, a_transaction(), FeeRules()) == 50_000 * 331


def test_what_does_nothing_is_bumped_whatever_price_the_user_named() -> None:
    tx = a_transaction(fees=Fees(100, 1))
    payload, nothing = a_slot(0, an_attempt("0xaa")), a_slot(0, an_attempt("0xaa"), payload_version=0)
    assert kept_for_slot(payload, tx, FeeRules()) == 0
    assert kept_for_slot(nothing, tx, FeeRules()) > 0


def test_nothing_is_kept_for_a_nonce_at_which_nothing_is_signed() -> None:
    assert kept_for_slot(Slot(nonce=0, kind=SlotKind.RESERVATION, tx_id=None, attempts=()), None, FeeRules()) == 0
