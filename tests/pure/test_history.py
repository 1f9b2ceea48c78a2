"""Which events tell the same fact."""

import pytest

from nonchalant.history import REPEATABLE, fact_of, repeated
from nonchalant.model import Event
from nonchalant.words import LaneKey
from tests.examples import BOB, LANE


def refusal(**fields: object) -> Event:
    data = {"hash": "0x1", "endpoint": "a", "reason": "txpool_full", "message": "full"} | fields
    return Event(kind="attempt.refused", lane=LANE, at=0, tx_id="tx", data=data)


def test_the_same_refusal_by_the_same_endpoint_is_one_fact_whatever_the_words_and_the_attempt() -> None:
    assert fact_of(refusal()) == fact_of(refusal(message="still full", hash="0x2"))
    others = [refusal(endpoint="b"), refusal(reason="nonce_too_high")]
    assert len({fact_of(event) for event in (refusal(), *others)}) == 3


def test_facts_of_two_transactions_or_lanes_are_two() -> None:
    facts = [
        fact_of(Event(kind="lane.attention", lane=lane, at=0, tx_id=tx_id, data={"code": "look"}))
        for lane, tx_id in ((LANE, None), (LaneKey(7, BOB), None), (LANE, "a"), (LANE, "b"))
    ]
    assert len(set(facts)) == 4


@pytest.mark.parametrize(
    "kind", ["tx.accepted", "tx.signed", "tx.mined", "tx.reorged", "attempt.bumped", "lane.filled"]
)
def test_what_costs_a_nonce_a_block_or_a_price_counts_by_itself(kind: str) -> None:
    assert kind not in REPEATABLE
    assert fact_of(Event(kind=kind, lane=LANE, at=0, tx_id="tx")) is None


def test_a_repeat_says_how_often_and_since_when() -> None:
    event = repeated(refusal(), 7, 12)
    assert (event.times, event.since, event.data) == (7, 12, refusal().data)


def test_a_lane_paused_for_two_reasons_was_paused_twice() -> None:
    facts = [
        fact_of(Event(kind="lane.paused", lane=LANE, at=0, data=data))
        for data in ({"mode": "paused"}, {"code": "insufficient_funds"}, {"code": "too_many_resets"})
    ]
    assert len(set(facts)) == 3
