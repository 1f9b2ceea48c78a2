"""Whether a lane is fit to give out nonces, and that no check keeps it from ever doing so again."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nonchalant.health import OUT_OF_FUNDS, HealthRules, Pulse, Signs, ailment, feel
from nonchalant.model import Attention
from tests.examples import LANE

FIT = Signs(balance=1000)
EVERYTHING = HealthRules(min_balance=100, movement_within=10, confirmation_within=60, max_resets=2)


def judged(rules: HealthRules = EVERYTHING, **signs: Any) -> Attention | None:
    return ailment(LANE, Signs(**{"balance": 1000} | signs), rules, 7)


def code(rules: HealthRules = EVERYTHING, **signs: Any) -> str | None:
    found = judged(rules, **signs)
    return found and found.code


def test_a_lane_that_shows_nothing_is_fit() -> None:
    assert judged() is None


def test_what_is_missing_is_told_in_wei() -> None:
    found = judged(lacks=12345)
    assert found is not None
    assert (found.code, found.since) == (OUT_OF_FUNDS, 7)
    assert "lacks 12345 wei on chain 7" in found.reason


def test_want_of_funds_comes_before_a_low_balance() -> None:
    assert code(lacks=1, balance=0) == OUT_OF_FUNDS
    assert code(balance=99) == "balance_below_minimum"
    assert code(balance=100) is None


@pytest.mark.parametrize(
    ("signs", "expected"),
    [
        ({"in_flight": 1, "since_movement": 10_001}, "no_movement"),
        ({"in_flight": 1, "since_movement": 10_000}, None),
        ({"in_flight": 0, "since_movement": 99_999}, None),
        ({"unsettled": 1, "since_confirmation": 60_001}, "no_confirmation"),
        ({"unsettled": 1, "since_confirmation": 60_000}, None),
        ({"unsettled": 0, "since_confirmation": 99_999}, None),
        ({"unsettled": 1, "resets": 3}, "too_many_resets"),
        ({"unsettled": 1, "resets": 2}, None),
        ({"unsettled": 0, "resets": 9}, None),
    ],
)
def test_what_does_not_move_is_told_while_something_is_on_its_way(signs: dict[str, Any], expected: str | None) -> None:
    assert code(**signs) == expected


@given(st.integers(0, 10**9), st.integers(0, 10**9), st.integers(0, 100))
def test_with_nothing_on_its_way_and_money_no_check_keeps_a_lane_from_sending(
    moved: int, confirmed: int, resets: int
) -> None:
    assert code(since_movement=moved, since_confirmation=confirmed, resets=resets) is None


def test_a_check_that_is_not_configured_never_fails() -> None:
    nothing = HealthRules(movement_within=None)
    assert code(nothing, balance=0, in_flight=9, unsettled=9, since_movement=10**9, since_confirmation=10**9) is None
    assert code(nothing, unsettled=9, resets=10**6) is None


def test_by_default_only_an_hour_without_movement_pauses_a_lane() -> None:
    assert code(HealthRules(), balance=0, unsettled=1, since_confirmation=10**9, resets=10**6) is None
    assert code(HealthRules(), in_flight=1, since_movement=3_600_001) == "no_movement"


@given(st.integers(0, 10**6), st.integers(0, 10**6))
def test_the_reason_stays_the_same_while_the_lane_stands_still(one: int, other: int) -> None:
    """A reason that counted seconds would be written anew with each of them."""
    first = judged(in_flight=1, since_movement=10_001 + one)
    second = judged(in_flight=1, since_movement=10_001 + other)
    assert first == second


# the pulse


def felt(before: Pulse | None, ticks: int, **given: Any) -> Pulse:
    defaults: dict[str, Any] = {"count": 5, "confirmed": 100, "in_flight": 1, "unsettled": 1}
    return feel(before, ticks=ticks, **defaults | given)


def test_the_first_pulse_is_of_now() -> None:
    assert felt(None, 50) == Pulse(count=5, moved_at=50, confirmed=100, confirmed_at=50)


def test_while_nothing_changes_the_pulse_stays() -> None:
    pulse = felt(felt(None, 50), 90)
    assert (pulse.moved_at, pulse.confirmed_at) == (50, 50)


def test_a_count_that_moves_and_a_confirmation_are_progress() -> None:
    pulse = felt(felt(None, 50), 90, count=6)
    assert (pulse.moved_at, pulse.confirmed_at) == (90, 50)
    pulse = felt(pulse, 120, count=6, confirmed=110)
    assert (pulse.moved_at, pulse.confirmed_at) == (90, 120)


def test_the_times_run_only_while_something_is_on_its_way() -> None:
    idle = felt(felt(None, 50), 90, in_flight=0, unsettled=0)
    assert (idle.moved_at, idle.confirmed_at) == (90, 90)
    mined = felt(felt(None, 50), 90, in_flight=0)
    assert (mined.moved_at, mined.confirmed_at) == (90, 50)
