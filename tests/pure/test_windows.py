"""How much may be on its way at once, and what nodes' answers change about that."""

from __future__ import annotations

from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nonchalant.model import Refused
from nonchalant.policy import NEVER_SENT, Sending, fate_of
from nonchalant.rejections import Fate, Rejection
from nonchalant.windows import Pace, TooHigh, after_answers, effective, grown, shrunk, too_high
from tests.lessons import lesson

LIMIT, DELEGATED = Rejection.ACCOUNT_LIMIT_EXCEEDED, Rejection.IN_FLIGHT_LIMIT_DELEGATED
TOO_HIGH = Rejection.NONCE_TOO_HIGH
windows = st.integers(1, 100)


def answered(*answers: Rejection | None, to: Sending = NEVER_SENT) -> Sending:
    """Handed to one endpoint after the other; None: it took it."""

    def answer(sending: Sending, said: tuple[int, Rejection | None]) -> Sending:
        number, rejection = said
        fate = Fate.ACCEPTED if rejection is None else rejection.fate
        return sending.started(0, 0).finished(fate, f"node-{number}", rejection)

    return reduce(answer, enumerate(answers), to)


# the window that counts


@lesson("delegated-account")
@given(windows, st.none() | windows)
def test_an_account_with_delegated_code_has_one_in_flight(limit: int, learnt: int | None) -> None:
    assert effective(limit, Pace.PIPELINED, delegated=True, learnt=learnt) == 1


@given(windows, st.none() | windows, st.booleans())
def test_in_strict_mode_one_is_in_flight(limit: int, learnt: int | None, delegated: bool) -> None:
    assert effective(limit, Pace.STRICT, delegated=delegated, learnt=learnt) == 1


@given(windows, windows)
def test_what_was_learnt_counts_up_to_what_is_configured(limit: int, learnt: int) -> None:
    assert effective(limit, Pace.PIPELINED, delegated=False, learnt=learnt) == min(limit, learnt)
    assert effective(limit, Pace.PIPELINED, delegated=False, learnt=None) == limit


# what endpoints last said


def test_only_a_clear_answer_changes_what_an_endpoint_said() -> None:
    sending = answered(None)
    assert sending.said == {"node-0": "accepted"}
    assert answered(Rejection.NONCE_TOO_LOW, to=sending).said == {"node-0": "accepted"}
    assert sending.started(0, 0).finished(Fate.POSSIBLY_SENT, "node-0").said == {"node-0": "accepted"}
    assert answered(LIMIT, to=sending).said == {"node-0": "account_limit_exceeded"}
    assert answered(Rejection.ALREADY_KNOWN, to=answered(LIMIT)).said == {"node-0": "accepted"}


# too many of one account


@lesson("account-limit")
@given(windows, st.integers(0, 100))
def test_a_refusal_for_too_many_shrinks_the_window_to_what_was_taken_and_never_below_one(
    window: int, before: int
) -> None:
    after = after_answers(window, answered(LIMIT), before)
    assert after == shrunk(window, before)
    assert 1 <= after <= window
    assert after <= max(1, before)


def test_one_node_that_takes_it_is_enough() -> None:
    assert after_answers(8, answered(LIMIT, None), 3) == 8
    assert after_answers(8, answered(LIMIT, LIMIT), 3) == 3


def test_nothing_is_decided_while_an_answer_is_to_come() -> None:
    assert after_answers(8, answered(LIMIT).started(0, 0), 3) == 8


def test_a_node_that_is_silent_decides_nothing() -> None:
    sending = answered(LIMIT).started(0, 0).finished(Fate.POSSIBLY_SENT, "node-1")
    assert after_answers(8, sending, 3) == 3


@pytest.mark.parametrize("rejection", [Rejection.UNDERPRICED, Rejection.INSUFFICIENT_FUNDS, TOO_HIGH])
def test_other_refusals_leave_the_window_alone(rejection: Rejection) -> None:
    assert after_answers(8, answered(rejection, rejection), 3) == 8


@lesson("delegated-account")
@pytest.mark.parametrize(
    "words",
    [
        "in-flight transaction limit reached for delegated accounts",
        "gapped-nonce tx from delegated accounts",
    ],
)
def test_nodes_that_take_one_of_a_delegated_account_get_one(words: str) -> None:
    fate, rejection = fate_of(Refused(words, -32000))
    sending = NEVER_SENT.started(0, 0).finished(fate, "geth", rejection)
    assert after_answers(8, sending, 3) == 1


# too far ahead


@lesson("gap-refused-late")
def test_a_nonce_called_too_high_first_means_a_hole_at_that_endpoint() -> None:
    lower = answered(None)
    assert too_high(answered(Rejection.UNDERPRICED), "node-0", [lower]) is TooHigh.RESEND
    assert too_high(NEVER_SENT, "node-0", [lower]) is TooHigh.RESEND
    assert too_high(answered(None, TOO_HIGH), "node-0", [lower]) is TooHigh.RESEND


def test_while_the_endpoint_lacks_something_lower_a_repetition_only_waits() -> None:
    assert too_high(answered(TOO_HIGH), "node-0", [answered(None), NEVER_SENT]) is TooHigh.WAIT
    assert too_high(answered(TOO_HIGH), "node-0", [answered(Rejection.TX_POOL_FULL)]) is TooHigh.WAIT


def test_an_endpoint_that_has_all_below_and_says_it_again_wants_fewer() -> None:
    assert too_high(answered(TOO_HIGH), "node-0", [answered(None), answered(None)]) is TooHigh.SHRINK


# growing back


@given(st.none() | windows, windows, st.integers(0, 5))
def test_each_block_that_executes_something_of_ours_adds_one_up_to_the_limit(
    learnt: int | None, limit: int, blocks: int
) -> None:
    after = grown(learnt, limit, blocks=blocks)
    before = effective(limit, Pace.PIPELINED, delegated=False, learnt=learnt)
    now = effective(limit, Pace.PIPELINED, delegated=False, learnt=after)
    assert now == min(limit, before + blocks)
    assert after is None or after < limit
