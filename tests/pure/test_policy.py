"""Decisions about what does not move."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nonchalant.errors import NodeRefused
from nonchalant.fees import FeeRules, outbid, raised
from nonchalant.model import Attempt, Fees, Market, Reservation, Slot, Transaction
from nonchalant.policy import (
    NEVER_SENT,
    RESERVATION_PATIENCE,
    ROUNDS_BEFORE_GIVING_UP,
    Blocks,
    Bump,
    Close,
    GiveUp,
    Outbid,
    Patience,
    Resend,
    Sending,
    Wait,
    has_left,
    is_at_ease,
    is_overlong,
    is_refused_for_good,
    is_unsendable,
    may_be_its_own_fault,
    next_move,
    wish_of,
)
from nonchalant.rejections import Fate, Rejection
from nonchalant.values import replace
from nonchalant.words import AttemptKind, SlotKind, Speed, State, Wanted
from tests.examples import a_slot, a_transaction, an_attempt
from tests.lessons import lesson

MARKET = Market(base_fee=20, gas_price=22, priority=dict.fromkeys(Speed, 2))
PATIENCE = Patience()
HOUR = 3_600_000
SOON = 300_000  # past every patience but the one after which it is marked
UNDER_WAY = NEVER_SENT.started(0, 0)
SENT = UNDER_WAY.finished(Fate.ACCEPTED, "geth")
REFUSED = UNDER_WAY.finished(Fate.BYTES_REFUSED, "geth", Rejection.OVERSIZED_DATA)


# what to do about a slot


def decide(
    slot: Slot | None = None,
    sending: Sending = SENT,
    *,
    ticks: int,
    wish: Speed | Fees = Speed.STANDARD,
    tx: Transaction | None = None,
    **given: Any,
) -> Wait | Resend | Bump | GiveUp | Close | Outbid:
    slot = slot or a_slot(0)
    defaults: dict[str, Any] = {
        "now": 0,
        "lowest": True,
        "market": MARKET,
        "rules": FeeRules(),
        "patience": PATIENCE,
        "head": 2,
        "endpoints": 2,
    }
    owner = None if slot.tx_id is None else tx or a_transaction(state=State.SENT, nonce=0, hash="0xaa", fees=wish)
    return next_move(slot, owner, sending, ticks=ticks, **defaults | given)


def answered(answer: str) -> Slot:
    return a_slot(0, replace(a_slot(0).newest, answer=answer))


def test_what_is_due_is_left_alone_however_long_it_takes() -> None:
    assert decide(sending=NEVER_SENT, ticks=HOUR) is Wait.WAIT


def test_an_endpoint_that_does_not_answer_holds_nothing_up() -> None:
    waiting = SENT.started(0, 0)
    assert decide(sending=waiting, lowest=False, ticks=PATIENCE.resend_after) == Resend(None)
    assert isinstance(decide(sending=waiting, ticks=HOUR), Bump)


def test_while_no_blocks_come_no_price_is_too_low() -> None:
    assert decide(head=1, ticks=SOON) == Resend(None)
    assert isinstance(decide(head=2, ticks=HOUR), Bump)


def test_a_slot_waits_before_it_is_sent_again() -> None:
    assert decide(ticks=PATIENCE.resend_after - 1) is Wait.WAIT
    assert decide(ticks=PATIENCE.resend_after) == Resend(None)


@pytest.mark.parametrize("speed", Speed)
def test_a_slot_is_bumped_once_its_speed_s_patience_is_over(speed: Speed) -> None:
    due = PATIENCE.bump_after[speed]
    just_sent = replace(SENT, at=due - 1)
    assert decide(sending=just_sent, wish=speed, ticks=due - 1) is Wait.WAIT
    assert decide(sending=just_sent, wish=speed, ticks=due) == Bump(
        raised(Fees(100, 10), speed, MARKET, FeeRules())  # type: ignore[arg-type]
    )


def test_a_patience_in_blocks_is_over_with_the_blocks_however_long_they_take() -> None:
    patience = Patience(bump_after={Speed.STANDARD: Blocks(5)})
    assert not isinstance(decide(patience=patience, head=4, ticks=HOUR), Bump)
    assert isinstance(decide(patience=patience, head=5, ticks=0), Bump)


def test_beyond_the_window_nothing_is_sent_again() -> None:
    assert decide(in_window=False, ticks=HOUR) is Wait.WAIT


def test_fees_named_by_the_user_wait_at_the_chain_s_own_speed() -> None:
    wish, fast = Fees(1000, 10), FeeRules(speed=Speed.FAST)
    assert isinstance(decide(wish=wish, rules=fast, ticks=PATIENCE.bump_after[Speed.FAST]), Bump)
    assert not isinstance(decide(wish=wish, ticks=PATIENCE.bump_after[Speed.FAST]), Bump)


def test_only_the_lowest_slots_are_bumped() -> None:
    assert decide(lowest=False, ticks=SOON) == Resend(None)


def test_without_prices_a_slot_is_sent_again_as_it_is() -> None:
    assert decide(market=None, ticks=SOON) == Resend(None)


@lesson("price-cap")
def test_at_the_cap_a_slot_is_sent_again_and_marked_and_never_frozen() -> None:
    move = decide(rules=FeeRules(max_fee=105), ticks=HOUR)
    assert isinstance(move, Resend)
    assert move.mark is not None
    assert move.mark[0] == "price_at_cap"
    assert "100 wei" in move.mark[1]


def test_what_lacks_funds_is_sent_again_and_not_made_dearer() -> None:
    move = decide(answered("insufficient_funds"), ticks=HOUR)
    assert isinstance(move, Resend)
    assert move.mark is not None
    assert move.mark[0] == "insufficient_funds"


def test_a_refusal_is_told_with_its_remedy_when_the_slot_is_sent_again() -> None:
    move = decide(answered("nonce_too_high"), lowest=False, ticks=HOUR)
    assert move == Resend(
        ("nonce_too_high", f"nodes refuse it (nonce_too_high). {Rejection.NONCE_TOO_HIGH.remedy.value}")
    )


@pytest.mark.parametrize("answer", ["accepted", "unknown"])
def test_what_a_node_took_or_may_have_taken_is_sent_again_without_a_mark(answer: str) -> None:
    assert decide(answered(answer), lowest=False, ticks=SOON) == Resend(None)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"lowest": False}, "look at the lowest one"),
        ({"head": 0}, "the chain makes no blocks"),
        ({"market": None}, "bump it, or cancel it"),
    ],
)
def test_what_nodes_took_and_no_block_says_so_after_a_while(given: dict[str, Any], why: str) -> None:
    assert decide(**given, now=PATIENCE.mark_after - 1, ticks=PATIENCE.mark_after - 1) == Resend(None)
    move = decide(**given, now=PATIENCE.mark_after, ticks=PATIENCE.mark_after)
    assert isinstance(move, Resend)
    assert move.mark is not None
    assert move.mark[0] == "not_mined"
    assert "10 minutes" in move.mark[1]
    assert why in move.mark[1]


def test_a_better_price_or_a_new_owner_does_not_make_it_younger() -> None:
    bumped = a_slot(0, an_attempt("0xaa", signed_at=0), an_attempt("0xbb", kind=AttemptKind.BUMP, signed_at=HOUR - 1))
    again = decide(bumped, lowest=False, now=HOUR, ticks=SOON)  # the newest was sent a moment ago
    assert isinstance(again, Resend)
    assert again.mark is not None
    assert (again.mark[0], "look at the lowest one" in again.mark[1]) == ("not_mined", True)
    dearer = decide(bumped, now=HOUR, ticks=HOUR)
    assert isinstance(dearer, Bump)
    assert dearer.mark is not None
    assert dearer.mark[0] == "not_mined"


def test_an_answer_in_words_of_another_version_is_told_as_not_understood() -> None:
    move = decide(answered("from_the_future"), lowest=False, ticks=HOUR)
    assert isinstance(move, Resend)
    assert move.mark is not None
    assert move.mark[0] == "internal_unknown"


@pytest.mark.parametrize("rejection", Rejection)
def test_every_remedy_speaks_to_whoever_runs_the_node(rejection: Rejection) -> None:
    """It says what is done, or what he can do; not what the program should do."""
    text = rejection.remedy.value
    assert text.endswith(".")
    assert not re.search(r"\b(slot|lane|operator|attempt|mark it)\b", text, re.IGNORECASE)


def test_a_node_that_cannot_estimate_may_speak_of_itself_or_of_the_transaction() -> None:
    assert may_be_its_own_fault(NodeRefused("opcode 0xef not defined"))
    assert not may_be_its_own_fault(NodeRefused("too many requests", 429))
    assert not may_be_its_own_fault(NodeRefused("the method eth_estimateGas does not exist", -32601))


def refused_by(*endpoints: str, rounds: int = 2) -> Sending:
    """Handed to these in each round, and refused by each of them for the bytes."""
    sending = NEVER_SENT
    for _ in range(rounds):
        for endpoint in endpoints:
            sending = sending.started(0, 0).finished(Fate.BYTES_REFUSED, endpoint)
        sending = replace(sending, at=None)
    return replace(sending, at=0)


def test_bytes_that_every_endpoint_refused_for_good_are_given_up() -> None:
    assert decide(sending=refused_by("geth", "reth"), ticks=0) == GiveUp(Wanted.NOTHING)


def test_bytes_that_some_refuse_and_nobody_took_get_no_better_price() -> None:
    """Each price is another attempt, refused anew: the rounds after which they are given up would never come."""
    assert isinstance(decide(sending=refused_by("geth"), ticks=HOUR), Resend)
    assert isinstance(decide(sending=replace(refused_by("geth"), accepted=True), ticks=HOUR), Bump)


@pytest.mark.parametrize(
    ("slot", "sending", "refused"),
    [
        (a_slot(0), refused_by("geth", "reth"), True),
        (a_slot(0), refused_by("geth", "reth", rounds=1), False),
        (a_slot(0), refused_by("geth", rounds=ROUNDS_BEFORE_GIVING_UP), True),
        (a_slot(0), refused_by("geth", rounds=ROUNDS_BEFORE_GIVING_UP - 1), False),
        (a_slot(0), Sending(rounds=ROUNDS_BEFORE_GIVING_UP), False),
        (a_slot(0), replace(refused_by("geth", "reth"), accepted=True), False),
        (a_slot(0), refused_by("geth", "reth").started(0, 0), False),
        (a_slot(0, wanted=Wanted.NOTHING), refused_by("geth", "reth"), False),
        (a_slot(0, tx_id=None), refused_by("geth", "reth"), False),
    ],
)
def test_only_a_payload_that_everybody_refuses_and_nobody_took_is_refused_for_good(
    slot: Slot, sending: Sending, refused: bool
) -> None:
    assert is_refused_for_good(slot, sending, 2) is refused


def told(*answers: Rejection, rounds: int) -> Sending:
    """Each endpoint said one of these in each round, in this order."""
    sending = NEVER_SENT
    for _ in range(rounds):
        for place, rejection in enumerate(answers):
            sending = sending.started(0, 0).finished(rejection.fate, f"node {place}", rejection)
        sending = replace(sending, at=None)
    return replace(sending, at=0)


TOO_GREEDY, STUCK, VAGUE = Rejection.GAS_LIMIT_EXCEEDS_BLOCK, Rejection.TERMINALLY_STUCK, Rejection.INVALID_REQUEST
FAULTY, FULL = Rejection.INTRINSIC_GAS_TOO_LOW, Rejection.TX_POOL_FULL


def test_what_one_refuses_is_not_given_up_while_another_says_that_its_nonce_is_used() -> None:
    assert is_refused_for_good(a_slot(0), told(FAULTY, FULL, rounds=8), 3)
    assert not is_refused_for_good(a_slot(0), told(FAULTY, Rejection.NONCE_TOO_LOW, rounds=40), 3)
    assert not is_refused_for_good(a_slot(0), told(FAULTY, Rejection.REPLACEMENT_UNDERPRICED, rounds=40), 3)


@pytest.mark.parametrize(
    ("sending", "refused"),
    [
        (told(TOO_GREEDY, STUCK, rounds=8), True),
        (told(TOO_GREEDY, STUCK, rounds=7), False),
        (told(TOO_GREEDY, Rejection.INTERNAL_UNKNOWN, rounds=8), True),  # of those that answer, all say so
        (told(TOO_GREEDY, FULL, rounds=40), False),
        (told(TOO_GREEDY, Rejection.ALREADY_KNOWN, rounds=40), False),
        (told(VAGUE, TOO_GREEDY, rounds=8), False),  # a gateway may speak of the call
        (told(VAGUE, TOO_GREEDY, rounds=39), False),
        (told(VAGUE, TOO_GREEDY, rounds=40), True),
        (told(VAGUE, FAULTY, rounds=8), True),
    ],
)
def test_what_all_that_answer_call_hopeless_is_given_up_in_time_and_not_repriced(
    sending: Sending, refused: bool
) -> None:
    assert is_refused_for_good(a_slot(0), sending, 3) is refused
    move = decide(sending=sending, endpoints=3, ticks=HOUR)
    assert (move == GiveUp(Wanted.NOTHING)) is refused
    assert isinstance(move, Bump) is (FULL.value in sending.said.values() or sending.accepted)


@given(
    ticks=st.integers(0, HOUR),
    sent_at=st.integers(0, HOUR),
    answers=st.lists(st.sampled_from(Fate), max_size=3),
    lowest=st.booleans(),
    max_fee=st.none() | st.integers(0, 300),
    answer=st.sampled_from([None, "accepted", "unknown", *(rejection.value for rejection in Rejection)]),
)
def test_nothing_that_was_answered_waits_longer_than_the_time_to_send_again(
    ticks: int, sent_at: int, answers: list[Fate], lowest: bool, max_fee: int | None, answer: str | None
) -> None:
    sending = NEVER_SENT
    for fate in (Fate.REFUSED, *answers):
        sending = sending.started(sent_at, 0).finished(fate, "geth")
    slot = a_slot(0, an_attempt("0xaa", kind=AttemptKind.BUMP, answer=answer))
    move = decide(slot, sending, lowest=lowest, rules=FeeRules(max_fee=max_fee), ticks=ticks)
    if ticks - sent_at >= PATIENCE.resend_after:
        assert move is not Wait.WAIT
    if isinstance(move, Bump):
        assert lowest
        assert move.fees.max_fee >= 110


# what should not run any more


OVERDUE = a_transaction(state=State.SENT, nonce=0, hash="0xaa", valid_until=1_000)
CANCELLED = a_slot(0, an_attempt("0xaa"), wanted=Wanted.CANCEL)
CANCEL = an_attempt("0xcc", kind=AttemptKind.CANCEL, fees=Fees(130, 13))


@given(
    ticks=st.integers(0, 30_000),
    resend_after=st.sampled_from([1, 10_000, 15_000, 40_000]),
    head=st.integers(0, 4),
    patience_in_blocks=st.integers(1, 3) | st.none(),
    wish=st.sampled_from(Speed),
    sending=st.sampled_from(
        [
            SENT,
            NEVER_SENT,
            UNDER_WAY,
            UNDER_WAY.finished(Fate.POSSIBLY_SENT, "geth"),
            REFUSED,
            REFUSED.started(0, 0),
            replace(SENT, at=None),
            replace(REFUSED, at=None),
            replace(REFUSED, rounds=2),
        ]
    ),
    valid_until=st.none() | st.integers(0, 2),
)
def test_whoever_is_at_ease_would_only_be_told_to_wait(
    ticks: int,
    resend_after: int,
    head: int,
    patience_in_blocks: int | None,
    wish: Speed,
    sending: Sending,
    valid_until: int | None,
) -> None:
    patience = Patience(resend_after=resend_after)
    if patience_in_blocks is not None:
        patience = replace(patience, bump_after={**PATIENCE.bump_after, wish: Blocks(patience_in_blocks)})
    tx = a_transaction(state=State.SENT, nonce=0, hash="0xaa", fees=wish, valid_until=valid_until)
    at_ease = is_at_ease(
        tx,
        sending,
        now=1,
        ticks=ticks,
        last_block=head - patience.fewest_blocks,
        bump_after=patience.shortest,
        resend_after=resend_after,
    )
    if at_ease:
        assert decide(sending=sending, tx=tx, now=1, ticks=ticks, head=head, patience=patience) is Wait.WAIT


@pytest.mark.parametrize("sending", [SENT, UNDER_WAY])
def test_what_a_node_took_since_the_last_blocks_or_may_take_is_at_ease_until_it_is_sent_again_or_overdue(
    sending: Sending,
) -> None:
    given: dict[str, Any] = {"now": 1, "ticks": 9, "last_block": -1, "bump_after": 9, "resend_after": 10}
    assert is_at_ease(None, sending, **given)
    assert not is_at_ease(None, sending, **given | {"ticks": 10})
    assert not is_at_ease(None, sending, **given | {"last_block": 0})
    assert is_at_ease(None, sending, **given | {"last_block": 0, "bump_after": 10})
    assert not is_at_ease(a_transaction(valid_until=1), sending, **given)
    assert is_at_ease(a_transaction(valid_until=2), sending, **given)


@pytest.mark.parametrize("sending", [NEVER_SENT, replace(SENT, at=None)])
def test_what_is_due_to_be_sent_is_at_ease_until_it_is_overdue(sending: Sending) -> None:
    given: dict[str, Any] = {"now": 1, "ticks": 99, "last_block": 9, "bump_after": 10, "resend_after": 10}
    assert is_at_ease(None, sending, **given)
    assert not is_at_ease(a_transaction(valid_until=1), sending, **given)


def test_what_no_node_is_known_to_have_taken_is_not_at_ease_once_all_have_answered() -> None:
    for fate in (Fate.POSSIBLY_SENT, Fate.BYTES_REFUSED):
        answered = UNDER_WAY.finished(fate, "geth")
        assert not is_at_ease(None, answered, now=1, ticks=9, last_block=-1, bump_after=9, resend_after=10)


def test_a_payload_past_its_deadline_is_given_up_whatever_became_of_its_sending() -> None:
    for sending in (NEVER_SENT, SENT):
        assert decide(tx=OVERDUE, sending=sending, now=1_000, ticks=0) == GiveUp(Wanted.EXPIRY)
        assert decide(tx=OVERDUE, sending=sending, now=999, ticks=0) is Wait.WAIT


@pytest.mark.parametrize("wanted", [Wanted.NOTHING, Wanted.CANCEL, Wanted.EXPIRY])
def test_what_is_given_up_already_keeps_the_reason_it_was_given_up_for(wanted: Wanted) -> None:
    slot = a_slot(0, an_attempt("0xaa"), wanted=wanted)
    assert isinstance(decide(slot, tx=OVERDUE, now=2_000, ticks=0), Outbid)


def test_what_cancels_is_signed_at_once_at_a_price_that_replaces_everything() -> None:
    dear = a_slot(
        0, an_attempt("0xaa", fees=Fees(100, 10)), an_attempt("0xbb", fees=Fees(90, 20)), wanted=Wanted.CANCEL
    )
    assert decide(dear, NEVER_SENT, lowest=False, ticks=0) == Outbid(outbid(Fees(100, 20), MARKET, FeeRules()))


def test_without_prices_what_cancels_is_signed_later() -> None:
    assert decide(CANCELLED, NEVER_SENT, market=None, ticks=HOUR) is Wait.WAIT


def reserved(*attempts: Attempt, **fields: Any) -> Slot:
    held = Slot(nonce=0, kind=SlotKind.RESERVATION, tx_id=None, attempts=attempts, reservation=Reservation("h", 1000))
    return replace(held, **fields)


def outside(raw: bytes = b"signed elsewhere", **fields: Any) -> Attempt:
    return an_attempt("0xbb", 0, None, kind=AttemptKind.OUTSIDE, payload_version=1, raw=raw, **fields)


def test_a_reservation_is_closed_when_its_time_is_over_and_nothing_was_said() -> None:
    assert decide(reserved(), NEVER_SENT, ticks=HOUR, now=999) is Wait.WAIT
    assert decide(reserved(), NEVER_SENT, ticks=HOUR, now=1000) == Close()
    assert decide(reserved(), NEVER_SENT, ticks=HOUR, now=1000, market=None) == Close()
    assert decide(reserved(outside()), NEVER_SENT, ticks=HOUR, now=1000) is Wait.WAIT


def test_what_closes_a_reservation_is_signed_at_once_and_replaces_what_is_known_to_be_there() -> None:
    closed = reserved(kind=SlotKind.FILLER, payload_version=0)
    assert decide(closed, NEVER_SENT, ticks=0) == Outbid(outbid(None, MARKET, FeeRules()))
    assert decide(closed, NEVER_SENT, ticks=0, market=None) is Wait.WAIT
    used = outside(fees=Fees(77, 7))
    priced = replace(closed, attempts=(used,))
    assert decide(priced, NEVER_SENT, ticks=0) == Outbid(outbid(used.fees, MARKET, FeeRules()))
    hearsay = replace(closed, attempts=(outside(raw=b"", fees=Fees(0)),))
    assert decide(hearsay, NEVER_SENT, ticks=0) == Outbid(outbid(None, MARKET, FeeRules()))


def test_bytes_of_an_outside_signer_are_sent_again_and_never_repriced() -> None:
    assert decide(reserved(outside()), ticks=HOUR) == Resend()


def test_bytes_of_an_outside_signer_have_always_left() -> None:
    assert has_left(outside(epoch=1), 1, NEVER_SENT)


def test_a_nonce_that_was_reserved_is_never_given_back() -> None:
    filler = an_attempt("0xcc", 0, None, kind=AttemptKind.FILLER, payload_version=0, epoch=1)
    refused = {filler.hash: Sending(handed=1, refused_bytes=1)}
    assert is_unsendable(a_slot(0, filler, tx_id=None), 1, refused)
    assert not is_unsendable(a_slot(0, filler, tx_id=None, reservation=Reservation("h", 1000)), 1, refused)


@pytest.mark.parametrize(
    ("slot", "now", "overlong"),
    [
        (reserved(outside(signed_at=50)), 50 + RESERVATION_PATIENCE, True),
        (reserved(outside(signed_at=50)), 49 + RESERVATION_PATIENCE, False),
        (reserved(outside(signed_at=0), outside(signed_at=50)), 49 + RESERVATION_PATIENCE, False),
        (reserved(), 10 * RESERVATION_PATIENCE, False),
        (reserved(outside(), kind=SlotKind.FILLER), 10 * RESERVATION_PATIENCE, False),
    ],
)
def test_a_nonce_that_was_used_is_looked_at_when_the_chain_does_not_take_it(
    slot: Slot, now: int, overlong: bool
) -> None:
    assert is_overlong(slot, now) is overlong


def test_what_cancels_is_sent_again_and_bumped_from_the_dearest_of_all_and_hurries() -> None:
    slot = CANCELLED.with_attempt(CANCEL)
    assert decide(slot, wish=Speed.SLOW, lowest=False, ticks=PATIENCE.resend_after) == Resend(None)
    assert decide(slot, wish=Speed.SLOW, ticks=PATIENCE.bump_after[Speed.FAST]) == Bump(
        raised(Fees(130, 13), Speed.FAST, MARKET, FeeRules())  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("wish", [Speed.SLOW, Fees(100, 10)])
def test_what_does_nothing_is_in_nobody_s_request_and_hurries(wish: Speed | Fees) -> None:
    tx = a_transaction(fees=wish)
    assert wish_of(a_slot(0), tx) == wish
    assert wish_of(CANCELLED, tx) is Speed.FAST
    assert wish_of(a_slot(0, tx_id=None), None) is Speed.FAST
