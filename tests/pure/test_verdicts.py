"""What answers, estimates and other people's transactions prove, and what they do not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nonchalant.errors import NodeRefused
from nonchalant.model import Accepted, Executed, Payload, Refused, Unknown
from nonchalant.policy import (
    NEVER_SENT,
    Estimate,
    estimate_verdict,
    fate_of,
    has_left,
    is_unsendable,
    is_verdict,
    refusal_verdict,
    supersede_doubt,
    supersede_hold,
)
from nonchalant.rejections import Fate, Rejection
from nonchalant.words import OnSuperseded
from tests.examples import ALICE, BOB, a_slot, a_transaction, an_attempt

TAKEN = NEVER_SENT.started(0, 0).finished(Fate.ACCEPTED, "geth")


# what an answer proves


def test_an_accepted_answer_is_accepted_and_no_answer_proves_nothing() -> None:
    assert fate_of(Accepted()) == (Fate.ACCEPTED, None)
    assert fate_of(Unknown("time-out")) == (Fate.POSSIBLY_SENT, None)


def test_a_refusal_proves_what_its_class_proves() -> None:
    assert fate_of(Refused("nonce too low")) == (Fate.POSSIBLY_SENT, Rejection.NONCE_TOO_LOW)
    assert fate_of(Refused("invalid sender")) == (Fate.BYTES_REFUSED, Rejection.INVALID_SIGNATURE_OR_CHAIN_ID)


# whether bytes have left


def test_bytes_that_were_never_handed_over_have_not_left() -> None:
    assert not has_left(an_attempt("0xaa", epoch=3), 3, NEVER_SENT)


def test_an_attempt_of_an_earlier_epoch_has_always_left() -> None:
    refused = NEVER_SENT.started(0, 0).finished(Fate.BYTES_REFUSED, "geth")
    assert has_left(an_attempt("0xaa", epoch=2), 3, NEVER_SENT)
    assert has_left(an_attempt("0xaa", epoch=2), 3, refused)


def test_bytes_on_their_way_have_left() -> None:
    assert has_left(an_attempt("0xaa", epoch=3), 3, NEVER_SENT.started(0, 0))


@given(st.lists(st.sampled_from(Fate), max_size=6), st.integers(0, 3))
def test_bytes_have_left_unless_everybody_who_got_them_refused_the_bytes_themselves(
    answers: list[Fate], waiting: int
) -> None:
    sending = NEVER_SENT
    for _ in range(len(answers) + waiting):
        sending = sending.started(0, 0)
    for fate in answers:
        sending = sending.finished(fate, "geth")
    safe = waiting == 0 and all(fate is Fate.BYTES_REFUSED for fate in answers)
    assert has_left(an_attempt("0xaa", epoch=3), 3, sending) is not safe


def test_what_was_accepted_or_unclear_once_stays_so() -> None:
    sending = NEVER_SENT.started(0, 0).started(0, 0).started(5, 0)
    assert (sending.at, sending.under_way, sending.handed) == (5, 3, 3)
    sending = (
        sending.finished(Fate.ACCEPTED, "geth").finished(Fate.POSSIBLY_SENT, "geth").finished(Fate.REFUSED, "geth")
    )
    assert (sending.under_way, sending.accepted, sending.uncertain, sending.refused_bytes) == (0, True, True, 0)
    plain = NEVER_SENT.started(0, 0).finished(Fate.REFUSED, "geth")
    assert (plain.accepted, plain.uncertain) == (False, False)


def test_a_slot_can_be_given_back_only_when_every_attempt_was_refused_for_its_bytes() -> None:
    refused = NEVER_SENT.started(0, 0).finished(Fate.BYTES_REFUSED, "geth")
    slot = a_slot(0, an_attempt("0xaa", epoch=3), an_attempt("0xbb", epoch=3))
    assert is_unsendable(slot, 3, {"0xaa": refused, "0xbb": refused})
    assert not is_unsendable(slot, 3, {"0xaa": refused, "0xbb": TAKEN})
    assert not is_unsendable(slot, 3, {"0xaa": refused, "0xbb": refused.started(1, 0)})
    # Signed a moment ago and not yet handed over: nothing says that it cannot be sent.
    assert not is_unsendable(slot, 3, {"0xaa": refused})
    assert not is_unsendable(slot, 4, {"0xaa": refused, "0xbb": refused})


# estimates


@pytest.mark.parametrize("rejection", Rejection)
def test_an_estimate_that_fails_condemns_only_what_would_revert(rejection: Rejection) -> None:
    hopeless = {Rejection.EXECUTION_REVERTED, Rejection.GAS_LIMIT_EXCEEDS_BLOCK, Rejection.OVERSIZED_DATA}
    if rejection in hopeless:
        assert estimate_verdict(rejection) is Estimate.REVERTS
    elif rejection is Rejection.INSUFFICIENT_FUNDS:
        assert estimate_verdict(rejection) is Estimate.NO_FUNDS
    else:
        assert estimate_verdict(rejection) is Estimate.ASK_AGAIN


@pytest.mark.parametrize(
    ("message", "code", "verdict"),
    [
        ("execution reverted: no", 3, Estimate.REVERTS),
        ("insufficient funds for transfer", -32000, Estimate.NO_FUNDS),
        ("rate limit exceeded", -32005, Estimate.ASK_AGAIN),
    ],
)
def test_a_node_s_error_is_a_verdict_only_when_it_is_about_the_question(
    message: str, code: int, verdict: Estimate
) -> None:
    refusal = NodeRefused(message, code)
    assert refusal_verdict(refusal) is verdict
    assert is_verdict(refusal) is (verdict is not Estimate.ASK_AGAIN)


# what somebody else did


TWIN = Executed("0xf1", ALICE, 4, BOB, 1, b"")
OTHER = Executed("0xf2", ALICE, 5, BOB, 2, b"")


def test_a_transaction_whose_twin_consumed_its_slot_is_held() -> None:
    hold = supersede_hold(a_transaction(), TWIN, quarantined=False, by_depth=False, now=9)
    assert hold is not None
    assert (hold.code, hold.since) == ("same_payload_executed", 9)
    assert "0xf1" in hold.reason


def test_in_quarantine_whatever_consumed_the_slot_the_transaction_is_held() -> None:
    for consumer in (OTHER, None):
        hold = supersede_hold(a_transaction(), consumer, quarantined=True, by_depth=False, now=9)
        assert hold is not None
        assert hold.code == "store_lost_commits"


def test_a_payload_that_cannot_be_read_may_be_what_consumed_the_slot() -> None:
    for tx in (a_transaction(payload=Payload(to=None)), a_transaction(earlier=(Payload(to=None),))):
        hold = supersede_hold(tx, OTHER, quarantined=False, by_depth=False, now=9)
        assert hold is not None
        assert hold.code == "store_lost_commits"


def test_a_transaction_whose_slot_a_stranger_took_may_go_again() -> None:
    assert supersede_hold(a_transaction(), OTHER, quarantined=False, by_depth=False, now=9) is None
    assert supersede_hold(a_transaction(), None, quarantined=False, by_depth=False, now=9) is None


def test_where_finality_is_a_depth_what_lost_its_nonce_waits_for_a_person() -> None:
    hold = supersede_hold(a_transaction(), OTHER, quarantined=False, by_depth=True, now=9)
    assert hold is not None
    assert hold.code == "superseded"


@pytest.mark.parametrize("by_depth", [True, False])
@pytest.mark.parametrize("asked", OnSuperseded)
def test_who_asked_what_should_become_of_a_lost_nonce_gets_it(asked: OnSuperseded, by_depth: bool) -> None:
    tx = a_transaction(on_superseded=asked)
    hold = supersede_hold(tx, OTHER, quarantined=False, by_depth=by_depth, now=9)
    assert (hold is not None) is (asked is OnSuperseded.HOLD)


def test_a_doubt_holds_whoever_asked_to_be_sent_again() -> None:
    tx = a_transaction(on_superseded=OnSuperseded.REQUEUE)
    assert supersede_hold(tx, TWIN, quarantined=False, by_depth=False, now=9) is not None
    assert supersede_doubt(tx, TWIN, quarantined=False, now=9) is not None


def test_what_an_earlier_payload_would_do_is_a_doubt_too() -> None:
    replaced = a_transaction(payload=Payload(to=BOB, value=9), earlier=(Payload(to=BOB, value=1),))
    doubt = supersede_doubt(replaced, TWIN, quarantined=False, now=9)
    assert doubt is not None
    assert doubt.code == "same_payload_executed"
    assert supersede_doubt(replaced, OTHER, quarantined=False, now=9) is None
