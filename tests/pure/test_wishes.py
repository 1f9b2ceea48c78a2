"""What people want, as values."""

import pytest

from nonchalant.model import Payload
from nonchalant.wishes import Act, Bump, Cancel, Fill, Refusal, Release, Replace, Reserve, Reset, Sync, Use, Wish
from tests.examples import LANE


@pytest.mark.parametrize("act", [Cancel("tx"), Replace("tx", Payload(to=None)), Bump("tx")], ids=repr)
def test_a_wish_about_a_transaction_names_it(act: Act) -> None:
    assert Wish("w", LANE, act).tx_id == "tx"


@pytest.mark.parametrize(
    "act",
    [Reserve("holder", 5), Use(3, "holder", "0xaa"), Release(3, "holder"), Sync(), Fill(), Reset()],
    ids=repr,
)
def test_a_wish_about_a_lane_names_no_transaction(act: Act) -> None:
    assert Wish("w", LANE, act).tx_id is None


def test_a_refusal_says_what_else_there_is_to_know() -> None:
    refusal = Refusal("attempts_live", "two are", count=2)
    assert (refusal.code, refusal.reason, refusal.data, str(refusal)) == (
        "attempts_live",
        "two are",
        {"count": 2},
        "two are",
    )
