"""Nothing waits unexplained: one sentence for every live transaction."""

from __future__ import annotations

import pytest

from nonchalant.model import Attention, BlockRef, Control, Fees, LaneRecord, Transaction
from nonchalant.ports import FirstOpen, Standing
from nonchalant.values import replace
from nonchalant.waiting_for import MOST_COUNTED, Situation, why
from nonchalant.words import AttemptKind, Mode, SlotKind, State, Wanted
from tests.examples import LANE, a_receipt, a_transaction, an_attempt

GWEI = 10**9
RECORD = LaneRecord(key=LANE)


def mark(reason: str) -> Attention:
    return Attention("code", reason, 0)


def in_state(state: State, **changes: object) -> Transaction:
    slot = {} if state is State.QUEUED else {"nonce": 7, "hash": "0xa1"}
    ran = {"receipt": a_receipt("0xa1", 12)} if state is State.MINED else {}
    return a_transaction(state=state, **slot | ran | changes)


def queued(**changes: object) -> Transaction:
    return replace(a_transaction(), **changes)


def sent(**changes: object) -> Transaction:
    return replace(a_transaction(state=State.SENT), nonce=7, hash="0xa1", **changes)


def attempts(**changes: object) -> list:
    return [replace(an_attempt("0xa1", 7), fees=Fees(3 * GWEI, GWEI), **changes)]


@pytest.mark.parametrize("state", list(State))
def test_every_live_transaction_has_a_sentence_whatever_is_known_around_it(state: State) -> None:
    tx = in_state(state)
    told = why(tx, ())
    if not tx.live:
        assert told is None
        return
    assert told is not None
    assert told[0].isupper()
    assert told.endswith(".")
    assert "None" not in told


def test_a_lane_without_funds_is_not_stopped_and_its_transactions_say_what_they_wait_for_themselves() -> None:
    broke = Situation(record=replace(RECORD, unhealthy=Attention("insufficient_funds", "it lacks 5 wei", 0)))
    assert why(queued(attention=mark("its price is below the base fee")), (), broke) == (
        "It needs attention: its price is below the base fee."
    )
    assert why(queued(), (), broke) == "Its account is out of funds: it lacks 5 wei."


def test_a_person_s_word_comes_first() -> None:
    halted = Situation(control=Control(Mode.HALTED, "block 5 is gone"))
    assert why(queued(held=True, attention=mark("the invoice is wrong.")), (), halted) == (
        "It is held: the invoice is wrong."
    )
    assert why(queued(held=True), (), halted) == "It is held; release it or cancel it."


@pytest.mark.parametrize("state", [State.QUEUED, State.SENT, State.MINED])
def test_what_stops_the_whole_lane_is_told_for_all_of_it(state: State) -> None:
    tx = in_state(state)
    halted = Situation(control=Control(Mode.HALTED, "block 5 is gone"))
    assert why(tx, (), halted) == "Its lane is halted: block 5 is gone. Nothing is done until it is resumed."
    assert why(tx, (), Situation(configured=False)) == (
        "Its account or its chain is not configured any more; configure it again to let it go on."
    )
    assert why(tx, (), Situation(silent=True)) == "Its chain cannot be followed: no endpoint has answered yet."
    assert why(tx, (), Situation(silent=True, trouble="a is down")) == "Its chain cannot be followed: a is down."


@pytest.mark.parametrize(
    ("around", "told"),
    [
        (
            Situation(control=Control(Mode.PAUSED, "key rotation")),
            "Its lane is paused (key rotation); it gets a nonce once that is resumed.",
        ),
        (Situation(control=Control(Mode.PAUSED)), "Its lane is paused; it gets a nonce once that is resumed."),
        (Situation(control=Control(Mode.DRAINING)), "Its lane is being drained; it gets a nonce once that is resumed."),
        (
            Situation(record=replace(RECORD, quarantined_below=9)),
            "Its lane is in quarantine until every nonce below 9 is final.",
        ),
        (
            Situation(record=replace(RECORD, unhealthy=mark("the balance is low"))),
            "Its lane gives out no nonces: the balance is low.",
        ),
        (
            Situation(record=replace(RECORD, attention=mark("the signer is down"))),
            "Its lane needs attention: the signer is down.",
        ),
        (Situation(record=RECORD), "It waits for a nonce."),
        (Situation(standing=Standing(ahead=0)), "It is the next to get a nonce."),
        (Situation(standing=Standing(ahead=1)), "1 of its account goes before it."),
        (Situation(standing=Standing(ahead=1000)), "1,000 of its account go before it."),
        (Situation(standing=Standing(ahead=MOST_COUNTED + 1)), "More than 1,000 of its account go before it."),
        (
            Situation(standing=Standing(ahead=2), window=16, in_flight=16),
            "2 of its account go before it, and 16 of 16 that may be in flight are.",
        ),
        (Situation(standing=Standing(ahead=0), window=16, in_flight=15), "It is the next to get a nonce."),
    ],
)
def test_what_is_queued_tells_what_keeps_it_there(around: Situation, told: str) -> None:
    assert why(queued(), (), around) == told


def test_its_own_mark_is_told_before_its_place() -> None:
    around = Situation(standing=Standing(ahead=5))
    assert why(queued(attention=mark("it lacks 5 wei")), (), around) == "It needs attention: it lacks 5 wei."


@pytest.mark.parametrize("code", ["hook_failed", "hook_refused"])
def test_a_hook_that_fails_is_no_reason_to_wait(code: str) -> None:
    record = replace(RECORD, attention=Attention(code, "the hook fails", 0))
    line = Situation(standing=Standing(ahead=0), record=record, window=4, in_flight=4)
    assert why(queued(), (), line) == "It is the next to get a nonce, and 4 of 4 that may be in flight are."


def test_where_nothing_may_overtake_too_few_endpoints_are_told_as_the_reason() -> None:
    line = Situation(standing=Standing(ahead=0), window=0, in_flight=0)
    told = "It is the next to get a nonce, once enough endpoints tell what its account has executed."
    assert why(queued(), (), line) == told


def test_a_pause_does_not_hold_up_what_has_a_nonce() -> None:
    around = Situation(control=Control(Mode.PAUSED), record=replace(RECORD, unhealthy=mark("poor")))
    assert why(sent(), attempts(sent_at=1), around) == "Nonce 7 was sent at up to 3 gwei a gas, and waits for a block."


@pytest.mark.parametrize(
    ("first", "whose"),
    [
        (FirstOpen(5, SlotKind.TRANSACTION, "tx_low"), "5 of transaction tx_low"),
        (FirstOpen(6, SlotKind.FILLER, None), "6 which a transfer of nothing is to fill"),
        (FirstOpen(6, SlotKind.RESERVATION, None), "6 which is reserved for somebody else"),
    ],
)
def test_a_nonce_that_is_not_the_lowest_tells_whom_it_waits_for(first: FirstOpen, whose: str) -> None:
    around = Situation(standing=Standing(first=first))
    assert why(sent(), attempts(sent_at=1), around) == f"Nonce 7 waits for nonce {whose}."
    assert why(replace(sent(), state=State.SIGNED), attempts(), around) == (
        f"Nonce 7 is signed and waits for nonce {whose}."
    )


def test_the_lowest_nonce_tells_its_price_and_what_was_answered() -> None:
    own = Standing(payload_version=1, first=FirstOpen(7, SlotKind.TRANSACTION, "tx"))
    said = {"a": "accepted", "b": "accepted", "c": "underpriced"}
    assert why(sent(), attempts(sent_at=1), Situation(standing=own, said=said)) == (
        "Nonce 7 was sent at up to 3 gwei a gas to 3 endpoints (2 answered accepted, 1 answered underpriced), "
        "and waits for a block."
    )
    assert why(sent(), attempts(sent_at=1), Situation(standing=own, said={"a": "accepted"})) == (
        "Nonce 7 was sent at up to 3 gwei a gas to 1 endpoint (1 answered accepted), and waits for a block."
    )
    assert why(sent(), attempts(sent_at=1, answer="underpriced"), Situation(standing=own)) == (
        "Nonce 7 was sent at up to 3 gwei a gas (nodes answered underpriced), and waits for a block."
    )
    legacy = [replace(attempts()[0], fees=Fees(2 * GWEI))]
    assert why(sent(), legacy, Situation(standing=own)) == "Nonce 7 is signed at 2 gwei a gas and is being sent."
    assert why(sent(attention=mark("at the cap")), attempts(), Situation(standing=own)) == (
        "It needs attention: at the cap."
    )


def test_what_should_not_run_any_more_says_so_and_how_far_that_is() -> None:
    cancelling = Standing(wanted=Wanted.CANCEL, payload_version=0)
    assert why(sent(), attempts(sent_at=1), Situation(standing=cancelling)) == (
        "It is being cancelled: what is wanted at nonce 7 is being signed."
    )
    cancel = replace(
        an_attempt("0xc1", 7), kind=AttemptKind.CANCEL, payload_version=0, sent_at=2, fees=Fees(4 * GWEI, GWEI)
    )
    assert why(sent(), [*attempts(), cancel], Situation(standing=cancelling)) == (
        "It is being cancelled: nonce 7 was sent at up to 4 gwei a gas, and waits for a block."
    )
    expiring = Standing(wanted=Wanted.EXPIRY, payload_version=0)
    told = why(sent(), attempts(), Situation(standing=expiring))
    assert told is not None
    assert told.startswith("Its deadline has passed, and what does nothing is to take its nonce: ")
    given_up = Standing(wanted=Wanted.NOTHING, payload_version=0)
    told = why(sent(), attempts(), Situation(standing=given_up))
    assert told is not None
    assert told.startswith("No node takes its bytes")


def test_what_is_mined_tells_how_far_finality_is() -> None:
    mined = in_state(State.MINED, receipt=a_receipt("0xa1", 12))
    ran = attempts()
    assert why(mined, ran) == "Block 12 executed it; it ends when that is final."
    assert why(mined, ran, Situation(final=BlockRef(11, "0x"))) == (
        "Block 12 executed it; finality is 1 block below it, at 11."
    )
    assert why(mined, ran, Situation(final=BlockRef(2, "0x"))) == (
        "Block 12 executed it; finality is 10 blocks below it, at 2."
    )
    assert why(mined, ran, Situation(final=BlockRef(12, "0x"))) == (
        "Block 12 executed it and is final; it ends as soon as that is recorded."
    )
    assert why(mined, ran, Situation(final=BlockRef(2, "0x"), trouble="they disagree")) == (
        "Block 12 executed it; nothing becomes final, because they disagree."
    )
    nothing = [replace(ran[0], kind=AttemptKind.CANCEL, payload_version=0)]
    assert why(mined, nothing) == "Block 12 executed what does nothing in its place; it ends when that is final."
    late = Situation(standing=Standing(wanted=Wanted.CANCEL, payload_version=0))
    assert why(mined, ran, late) == "Block 12 executed it before it could be cancelled; it ends when that is final."
    assert why(mined, nothing, late) == "Block 12 executed what does nothing in its place; it ends when that is final."
    twice = replace(mined, earlier=(mined.payload,))
    assert why(twice, ran) == "Block 12 executed its payload 1 of 2; it ends when that is final."
