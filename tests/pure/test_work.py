"""A change in the making: nothing of it is true before it is committed."""

from collections.abc import Callable

import pytest

from nonchalant.errors import IllegalMove
from nonchalant.lanes import RENEWED_AFTER, Lane, Work
from nonchalant.lifecycle import Assigned, Broadcast, Failed, Included, Marked, Replaced, Repriced, Valued
from nonchalant.model import Admission, Attention, Change, Fees, Payload, Reply, Slot, Stranger, Transaction
from nonchalant.values import replace
from nonchalant.words import SlotKind, Speed, State
from tests.examples import LANE, MARK, a_hash, a_lane, a_receipt, a_record, a_request, a_slot, a_transaction, an_attempt


def test_nothing_is_true_before_it_is_committed() -> None:
    tx = a_transaction("a")
    lane = Lane(a_record())
    work = Work(lane, 5)
    work.move(tx, Assigned(0, "0x1"))
    work.bind(0, SlotKind.TRANSACTION, an_attempt(a_hash(1), 0, "a"))
    work.mark_lane(MARK)
    assert (lane.slots, lane.transactions, lane.record) == ({}, {}, a_record())
    lane.apply(work.change())
    assert lane.slots[0].newest.hash == a_hash(1)
    assert lane.transactions["a"].state is State.SIGNED
    assert lane.record.attention == MARK


def test_two_moves_in_one_change_write_the_row_once_one_version_on() -> None:
    work = Work(a_lane(), 5)
    tx = a_transaction("a", version=4, state=State.SIGNED, nonce=0, hash="0x1")
    work.move(tx, Broadcast())
    work.move(tx, Included(a_receipt("0x1")))
    [written] = work.change().transactions
    assert (written.state, written.version) == (State.MINED, 5)
    assert [event.kind for event in work.change().events] == ["tx.sent", "tx.mined"]


def test_what_is_accepted_with_its_nonce_is_one_row_and_two_events_in_their_order() -> None:
    work = Work(a_lane(), 5)
    request = a_request("a")
    work.move(work.accept(request, 4), Assigned(3, "0x1"))
    change = work.change()
    assert change.accepted == (request,)
    [written] = change.transactions
    assert (written.state, written.version, written.nonce, written.hash) == (State.SIGNED, 2, 3, "0x1")
    told = [(event.kind, event.tx_id, event.at) for event in change.events]
    assert told == [("tx.accepted", "a", 4), ("tx.signed", "a", 5)]


def test_where_it_stands_is_known_once_it_is_stored_and_what_was_there_before_stays_where_it_is() -> None:
    old = a_transaction("old", place=2, state=State.SIGNED, nonce=0, hash="0x1")
    lane = Lane(a_record(), [a_slot(0, tx_id="old")], [old])
    work = Work(lane, 5)
    work.mark(old, MARK)
    for nonce, id in enumerate("ab", 1):
        work.move(work.accept(a_request(id), 4), Assigned(nonce, a_hash(id)))
    lane.apply(
        work.change().entered({"a": Admission(7, 90), "b": Admission(8, 91), "of another lane": Admission(9, 92)})
    )
    found = {id: (tx.place, tx.created_at, tx.updated_at) for id, tx in lane.transactions.items()}
    assert found == {"old": (2, 0, 5), "a": (7, 90, 5), "b": (8, 91, 5)}


def test_an_illegal_move_leaves_no_trace_in_the_change() -> None:
    work = Work(a_lane(), 5)
    with pytest.raises(IllegalMove):
        work.move(a_transaction(state=State.CONFIRMED), Failed("late"))
    assert not work


@pytest.mark.parametrize(
    "fill",
    [
        lambda work: work.move(a_transaction("a"), Assigned(3, "0x1")),
        lambda work: work.slot(a_slot(0)),
        lambda work: work.free(a_slot(0)),
        lambda work: work.answered(an_attempt("0xaa")),
        lambda work: work.record(a_record(next_nonce=4)),
        lambda work: work.stranger(Stranger("0xf1", 3, "deed")),
        lambda work: work.event("lane.filled"),
    ],
)
def test_a_work_is_worth_a_commit_as_soon_as_anything_is_in_it(fill: Callable[[Work], object]) -> None:
    work = Work(a_lane(), 5)
    assert not work
    fill(work)
    assert work
    assert work.change() != Change()


def test_binding_makes_a_slot_with_its_first_attempt() -> None:
    work = Work(a_lane(), 5)
    attempt = an_attempt(a_hash(1), 3, None)
    work.bind(3, SlotKind.FILLER, attempt)
    slot = Slot(nonce=3, kind=SlotKind.FILLER, tx_id=None, attempts=(attempt,), payload_version=0)
    assert work.change() == Change(slots=(slot,), attempts=(attempt,))


def test_signing_once_more_keeps_the_earlier_attempts() -> None:
    slot, bump = a_slot(3), an_attempt(a_hash("bump"), 3)
    work = Work(a_lane(), 5)
    work.add_attempt(slot, bump)
    assert work.change() == Change(slots=(slot.with_attempt(bump),), attempts=(bump,))


def test_including_settling_freeing_and_answering_are_each_recorded() -> None:
    slot, receipt = a_slot(3), a_receipt()
    work = Work(a_lane(), 5)
    assert work.include(slot, receipt).receipt == receipt
    work.settle(a_slot(4))
    work.slot(a_slot(5))
    work.free(a_slot(6))
    assert work.as_answered(slot.newest).answer is None
    work.answered(replace(slot.newest, answer="unknown"))
    assert work.as_answered(slot.newest).answer == "unknown"
    work.answered(replace(slot.newest, answer="accepted"))
    assert work.change() == Change(
        slots=(replace(slot, receipt=receipt), replace(a_slot(4), settled=True), a_slot(5)),
        freed=(6,),
        answered=(replace(slot.newest, answer="accepted"),),
    )


def test_of_a_slot_only_what_its_own_row_has_is_written() -> None:
    lane = Lane(a_record(next_nonce=2), [a_slot(0), a_slot(1, tx_id=None)], [a_transaction(state=State.SENT, nonce=0)])
    work = Work(lane, 5)
    work.include(lane.slots[0], a_receipt(a_hash(0)))  # stands in the row of its transaction
    work.include(lane.slots[1], a_receipt(a_hash(1)))  # a filler has no other row
    change = work.change()
    assert [slot.nonce for slot in change.slots] == [1]
    assert [slot.nonce for slot in change.shown] == [0]
    lane.apply(change)
    assert all(slot.receipt is not None for slot in lane.slots.values())


def test_a_nonce_that_is_freed_and_bound_again_in_one_change_is_written() -> None:
    lane = Lane(a_record(next_nonce=1), [a_slot(0)])
    work = Work(lane, 5)
    work.free(lane.slots[0])
    work.slot(lane.slots[0])
    assert [slot.nonce for slot in work.change().slots] == [0]


def test_a_record_that_says_nothing_new_is_not_written() -> None:
    lane = a_lane(next_nonce=3)
    work = Work(lane, 5)
    work.record(a_record(next_nonce=3))
    assert not work
    work.record(a_record(next_nonce=4))
    assert work.change().lane == a_record(next_nonce=4)


def test_a_lane_s_mark_is_news_once_and_goes_without_a_word() -> None:
    lane = a_lane()
    work = Work(lane, 5)
    work.mark_lane(MARK)
    work.mark_lane(Attention(MARK.code, "said otherwise", 9))
    [event] = work.change().events
    assert (event.kind, dict(event.data)) == ("lane.attention", {"code": "look", "reason": "please look"})
    lane.apply(work.change())

    again = Work(lane, 6)
    again.mark_lane(MARK)
    assert not again
    again.mark_lane(None)
    assert again.change() == Change(lane=a_record())


def test_a_transaction_s_mark_is_news_when_its_reason_is_another_one() -> None:
    work, marked = Work(a_lane(), 5), a_transaction("a", attention=MARK)
    work.mark(marked, replace(MARK, reason="in other words"))
    assert not work
    work.mark(a_transaction("b"), MARK)
    work.mark(marked, Attention("other", "something else", 5))
    assert [tx.attention and tx.attention.code for tx in work.change().transactions] == [MARK.code, "other"]


def test_a_lane_without_a_mark_has_none_to_lose() -> None:
    work = Work(a_lane(), 5)
    work.mark_lane(None)
    assert not work


def test_a_mark_whose_words_have_changed_is_renewed_in_silence_and_not_often() -> None:
    newer, marked = Attention(MARK.code, "it lacks 5 wei", 9), a_transaction("a", attention=MARK)
    soon = Work(a_lane(), marked.updated_at + RENEWED_AFTER - 1)
    soon.mark(marked, newer)
    assert not soon
    later = Work(a_lane(), marked.updated_at + RENEWED_AFTER)
    later.mark(marked, MARK)
    assert not later  # the same words
    later.mark(marked, newer)
    change = later.change()
    assert [tx.attention for tx in change.transactions] == [Attention(MARK.code, "it lacks 5 wei", MARK.since)]
    assert change.events == ()


def test_a_mark_is_renewed_with_what_is_written_anyway() -> None:
    marked = a_transaction("a", state=State.SENT, nonce=0, hash="0xaa", attention=MARK)
    work = Work(a_lane(), marked.updated_at)
    work.move(marked, Repriced("0xbb", Fees(2, 1)))
    work.mark(marked, replace(MARK, reason="in other words"))
    [tx] = work.change().transactions
    assert tx.attention == replace(MARK, reason="in other words")
    assert [event.kind for event in work.change().events] == ["attempt.bumped"]


def test_a_lane_s_mark_whose_words_have_changed_is_renewed_in_silence_and_not_often() -> None:
    lane = a_lane()
    first = Work(lane, RENEWED_AFTER)
    first.note_lane(MARK)
    lane.apply(first.change())
    newer = Attention(MARK.code, "nonce 6 now", 9)
    for at, renewed in ((2 * RENEWED_AFTER - 1, False), (2 * RENEWED_AFTER, True)):
        work = Work(lane, at)
        work.note_lane(newer)
        assert bool(work) is renewed
    assert work.change() == Change(lane=a_record(attention=replace(newer, since=MARK.since)))


def test_a_mark_that_keeps_nothing_waiting_gives_way_and_others_do_not() -> None:
    for known, told in ((None, "look"), ("hook_failed", "look"), ("quarantine", "quarantine")):
        mark = None if known is None else Attention(known, "so it is", 1)
        work = Work(a_lane(attention=mark), 5)
        work.note_lane(MARK)
        assert work.lane_record.attention is not None
        assert work.lane_record.attention.code == told


def test_a_lane_that_pauses_and_goes_on_says_so_once() -> None:
    lane = a_lane()
    work = Work(lane, 5)
    work.judge(None)
    assert not work
    work.judge(MARK)
    [event] = work.change().events
    assert (event.kind, dict(event.data)) == ("lane.paused", {"code": "look", "reason": "please look"})
    lane.apply(work.change())
    assert lane.record.unhealthy == MARK

    again = Work(lane, 6)
    again.judge(Attention(MARK.code, "it is worse now", 6))
    assert again.change().events == ()
    assert again.change().lane == a_record(unhealthy=replace(MARK, reason="it is worse now"))

    other = Work(lane, 7)
    other.judge(Attention("other", "another cause", 7))
    assert [event.kind for event in other.change().events] == ["lane.paused"]

    over = Work(lane, 8)
    over.judge(None)
    assert [(event.kind, dict(event.data)) for event in over.change().events] == [("lane.resumed", {"code": "look"})]
    assert over.change().lane == a_record()


def test_a_mark_keeps_what_the_same_change_says_of_the_lane() -> None:
    work = Work(a_lane(), 5)
    work.record(a_record(next_nonce=4))
    work.mark_lane(MARK)
    assert work.change().lane == a_record(next_nonce=4, attention=MARK)


def test_an_event_names_its_lane_its_time_and_what_it_is_about() -> None:
    work = Work(a_lane(), 5)
    work.event("lane.filled", nonce=3)
    work.event("attempt.refused", tx_id="a", reason="x")
    filled, refused = work.change().events
    assert (filled.kind, filled.lane, filled.at, filled.tx_id, filled.data) == (
        "lane.filled",
        LANE,
        5,
        None,
        {"nonce": 3},
    )
    assert (refused.tx_id, refused.data) == ("a", {"reason": "x"})


def test_moving_answers_the_transaction_as_the_work_has_made_it() -> None:
    moved: Transaction = Work(a_lane(), 5).move(a_transaction("a"), Assigned(3, "0x1"))
    assert (moved.state, moved.nonce, moved.version) == (State.SIGNED, 3, 2)


def test_the_latest_of_a_transaction_is_what_the_work_makes_of_it() -> None:
    tx, other, work = a_transaction("a"), a_transaction("b"), Work(a_lane(), 5)
    moved = work.move(tx, Assigned(3, "0x1"))
    assert (work.latest(tx), work.latest(other)) == (moved, other)


def test_what_the_user_changed_is_written_with_its_payload_and_price() -> None:
    work = Work(a_lane(), 5)
    for id, move in (("a", Replaced(Payload(to=None))), ("b", Valued(Speed.FAST)), ("c", Marked(MARK))):
        work.move(a_transaction(id), move)
    assert work.change().rewritten == {"a", "b"}


def test_a_wish_is_answered_in_the_change_that_grants_it() -> None:
    work = Work(a_lane(), 5)
    work.reply("w1")
    work.reply("w2", "underpriced", reason="too little")
    assert work.change().granted == {"w1": Reply(), "w2": Reply("underpriced", {"reason": "too little"})}


def test_a_reset_says_from_where_nonces_are_not_final_any_more() -> None:
    work = Work(a_lane(), 5)
    work.unsettle_from(7)
    assert work.change().unsettled_from == 7
