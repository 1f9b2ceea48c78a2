"""The table of moves: what it allows, what each move says, and that the diagram is the table."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nonchalant.errors import IllegalMove
from nonchalant.lifecycle import (
    TABLE,
    Assigned,
    Broadcast,
    Cancelled,
    Confirmed,
    Deepened,
    Expired,
    Failed,
    Forked,
    Held,
    Included,
    Marked,
    Move,
    Outrun,
    Recalled,
    Released,
    Reorged,
    Replaced,
    Repriced,
    Reverted,
    Superseded,
    Valued,
    diagram,
    one_version_on,
    step,
)
from nonchalant.model import BlockRef, Fees, Payload, Transaction
from nonchalant.values import replace
from nonchalant.words import LIVE_STATES, TERMINAL_STATES, AttemptKind, Speed, State
from tests.examples import ALICE, LANE, MARK, a_receipt, a_transaction

RECEIPT = a_receipt("0xee")
ABOVE = (BlockRef(11, "0xb11"), BlockRef(12, "0xb12"))
OTHER = Payload(to=ALICE, value=2)
MOVES: tuple[Move, ...] = (
    Assigned(3, "0xaa"),
    Broadcast(),
    Repriced("0xbb", Fees(110, 11)),
    Valued(Speed.FAST),
    Replaced(OTHER),
    Included(RECEIPT),
    Reorged(),
    Deepened(ABOVE),
    Forked(),
    Confirmed(),
    Reverted(),
    Superseded("0xff"),
    Superseded(None, MARK),
    Superseded("0xff", ends=True),
    Recalled(),
    Failed("never"),
    Outrun("late"),
    Cancelled(),
    Expired(),
    Held(MARK),
    Released(),
    Marked(MARK),
)
# What changes no state and is told by what follows from it.
UNTOLD = (Valued, Forked)
IN_STATE = {
    State.QUEUED: a_transaction(),
    State.SIGNED: a_transaction(state=State.SIGNED, nonce=3, hash="0xaa"),
    State.SENT: a_transaction(state=State.SENT, nonce=3, hash="0xaa"),
    State.MINED: a_transaction(state=State.MINED, nonce=3, hash="0xee", receipt=RECEIPT),
    State.CONFIRMED: a_transaction(state=State.CONFIRMED, nonce=3, hash="0xee", receipt=RECEIPT),
    State.REVERTED: a_transaction(state=State.REVERTED, nonce=3, hash="0xee", receipt=RECEIPT),
    State.FAILED: a_transaction(state=State.FAILED, failure="never"),
    State.CANCELLED: a_transaction(state=State.CANCELLED),
    State.EXPIRED: a_transaction(state=State.EXPIRED),
}


def moved(state: State, move: Move) -> Transaction:
    return step(IN_STATE[state], move, 77)[0]


def facts(state: State, move: Move) -> list[tuple[str, dict[str, object]]]:
    return [(event.kind, dict(event.data)) for event in step(IN_STATE[state], move, 77)[1]]


def test_every_move_is_in_the_table() -> None:
    assert {type(move) for move in MOVES} == {move for _, move in TABLE}
    assert set(IN_STATE) == set(State)


@pytest.mark.parametrize("move", MOVES, ids=repr)
@pytest.mark.parametrize("state", State)
def test_a_move_leads_where_the_table_says_or_is_refused(state: State, move: Move) -> None:
    target = TABLE.get((state, type(move)))
    if target is None:
        with pytest.raises(IllegalMove, match=f"tx is {state}: {type(move).__name__}"):
            step(IN_STATE[state], move, 77)
    else:
        assert moved(state, move).state is target


@pytest.mark.parametrize(("state", "move"), [(s, m) for s in State for m in MOVES if (s, type(m)) in TABLE], ids=repr)
def test_each_move_raises_the_version_by_one_and_notes_the_time(state: State, move: Move) -> None:
    tx = moved(state, move)
    assert tx.version == IN_STATE[state].version + 1
    assert tx.updated_at == 77
    assert all((event.at, event.tx_id, event.lane) == (77, "tx", LANE) for event in step(IN_STATE[state], move, 77)[1])


def test_nothing_leads_out_of_an_end_and_every_end_is_reached() -> None:
    assert {state for state, _ in TABLE} == LIVE_STATES
    assert set(TABLE.values()) >= TERMINAL_STATES


@given(st.lists(st.sampled_from(MOVES), max_size=40))
def test_no_sequence_of_moves_leaves_an_end_or_changes_anything_by_an_illegal_one(moves: list[Move]) -> None:
    tx, ended = a_transaction(), None
    for at, move in enumerate(moves):
        before = tx
        try:
            tx, events = step(tx, move, at)
        except IllegalMove:
            assert tx is before
            continue
        assert ended is None
        assert tx.version == before.version + 1
        assert isinstance(move, UNTOLD) or events
        # What the schema's CHECKs demand of a row, whatever way led to it.
        either_way = tx.state in (State.FAILED, State.CANCELLED, State.EXPIRED)
        assert either_way or (tx.state is State.QUEUED) == (tx.nonce is None)
        assert (tx.nonce is None) == (tx.hash is None)
        in_block = tx.state in (State.MINED, State.CONFIRMED, State.REVERTED)
        assert either_way or in_block == (tx.receipt is not None)
        assert tx.deep is None or tx.receipt is not None
        assert tx.state is State.REVERTED or (tx.state is State.FAILED) == (tx.failure is not None)
        assert not tx.held or tx.state is State.QUEUED
        ended = None if tx.live else tx


def test_assigning_gives_a_nonce_and_a_hash_and_clears_the_mark() -> None:
    marked, _ = step(IN_STATE[State.QUEUED], Marked(MARK), 1)
    tx, _ = step(marked, Assigned(3, "0xaa"), 2)
    assert (tx.nonce, tx.hash, tx.attention) == (3, "0xaa", None)
    assert facts(State.QUEUED, Assigned(3, "0xaa")) == [("tx.signed", {"nonce": 3, "hash": "0xaa"})]


def test_broadcasting_tells_of_nonce_and_hash() -> None:
    assert facts(State.SIGNED, Broadcast()) == [("tx.sent", {"nonce": 3, "hash": "0xaa"})]


@pytest.mark.parametrize("kind", [AttemptKind.BUMP, AttemptKind.CANCEL, AttemptKind.REPLACEMENT])
@pytest.mark.parametrize(("fees", "priority"), [(Fees(110, 11), "11"), (Fees(110), None)])
def test_repricing_shows_the_newest_hash_its_kind_and_its_price_as_text(
    fees: Fees, priority: str | None, kind: AttemptKind
) -> None:
    move = Repriced("0xbb", fees, kind)
    assert moved(State.SENT, move).hash == "0xbb"
    price = {"max_fee": "110", "priority": priority}
    assert facts(State.SENT, move) == [("attempt.bumped", {"nonce": 3, "hash": "0xbb", "kind": kind.value, **price})]


@pytest.mark.parametrize("state", sorted(LIVE_STATES))
def test_another_price_changes_what_may_be_offered_and_nothing_else(state: State) -> None:
    tx = moved(state, Valued(Fees(7)))
    assert (tx.fees, tx.state, tx.hash) == (Fees(7), state, IN_STATE[state].hash)


@pytest.mark.parametrize(
    ("fees", "told"),
    [
        (Fees(7, 2), {"max_fee": "7", "priority": "2"}),
        (Fees(7), {"max_fee": "7", "priority": None}),
        (Speed.FAST, {"speed": "fast"}),
    ],
)
def test_another_price_is_told_where_no_attempt_tells_of_it(fees: Speed | Fees, told: dict[str, object]) -> None:
    bumped = {"nonce": None, "hash": None, "kind": "bump"} | told
    assert facts(State.QUEUED, Valued(fees)) == [("attempt.bumped", bumped)]
    assert facts(State.SENT, Valued(fees)) == []


@pytest.mark.parametrize("state", sorted(LIVE_STATES))
def test_a_replaced_payload_is_kept_and_the_new_one_has_a_version_of_its_own(state: State) -> None:
    tx = moved(state, Replaced(OTHER))
    assert (tx.payload, tx.earlier, tx.payload_version) == (OTHER, (IN_STATE[state].payload,), 2)
    assert facts(state, Replaced(OTHER)) == [("tx.replaced", {"payload_version": 2})]
    again, _ = step(tx, Replaced(Payload(to=None)), 78)
    assert again.earlier == (IN_STATE[state].payload, OTHER)


def test_a_mark_is_about_the_payload_it_was_set_for_unless_it_holds_the_transaction() -> None:
    marked, _ = step(IN_STATE[State.QUEUED], Marked(MARK), 1)
    assert step(marked, Replaced(OTHER), 2)[0].attention is None
    held, _ = step(IN_STATE[State.QUEUED], Held(MARK), 1)
    assert step(held, Replaced(OTHER), 2)[0].attention == MARK


def test_inclusion_shows_the_hash_that_ran_and_clears_the_mark() -> None:
    marked, _ = step(IN_STATE[State.SENT], Marked(MARK), 1)
    tx, _ = step(marked, Included(RECEIPT), 2)
    assert (tx.hash, tx.receipt, tx.attention) == ("0xee", RECEIPT, None)
    where = {"nonce": 3, "hash": "0xee", "block": 10, "block_hash": RECEIPT.block.hash}
    assert facts(State.SENT, Included(RECEIPT)) == [("tx.mined", {**where, "fork": False})]


def test_reorg_puts_a_mined_transaction_back_in_flight() -> None:
    tx = moved(State.MINED, Reorged())
    assert (tx.state, tx.receipt, tx.nonce) == (State.SENT, None, 3)
    assert facts(State.MINED, Reorged()) == [("tx.reorged", {"nonce": 3, "hash": "0xee"})]


def test_what_is_told_after_a_fork_says_that_it_replaces_what_was_told_before() -> None:
    taken_back = moved(State.MINED, Reorged())
    assert (taken_back.forked, taken_back.deep) == (True, None)
    again, [mined] = step(taken_back, Included(RECEIPT), 78)
    assert mined.data["fork"] is True
    deep, [told] = step(again, Deepened(ABOVE), 79)
    assert told.data["fork"] is True
    # The consumer knows now: what comes later is news of the same fork.
    assert not deep.forked


def test_depth_is_told_with_the_blocks_that_make_it() -> None:
    assert moved(State.MINED, Deepened(ABOVE)).deep == ABOVE[-1]
    assert facts(State.MINED, Deepened(ABOVE)) == [
        (
            "tx.depth",
            {
                "nonce": 3,
                "hash": "0xee",
                "depth": 2,
                "confirmations": [{"number": 11, "hash": "0xb11"}, {"number": 12, "hash": "0xb12"}],
                "fork": False,
            },
        )
    ]


def test_a_depth_of_no_blocks_at_all_stands_on_the_block_itself() -> None:
    assert moved(State.MINED, Deepened(())).deep == RECEIPT.block


def test_a_fork_above_a_mined_transaction_takes_back_how_deep_it_was() -> None:
    deep, _ = step(IN_STATE[State.MINED], Deepened(ABOVE), 1)
    forked, events = step(deep, Forked(), 2)
    assert (forked.state, forked.receipt, forked.deep, forked.forked) == (State.MINED, RECEIPT, None, True)
    assert events == ()
    _, [told] = step(forked, Deepened(ABOVE), 3)
    assert told.data["fork"] is True


@pytest.mark.parametrize(
    ("move", "kind", "more"),
    [
        (Confirmed(), "tx.confirmed", {}),
        (Reverted(), "tx.reverted", {"reason": None}),
        (Reverted("too late"), "tx.reverted", {"reason": "too late"}),
    ],
)
def test_an_outcome_names_its_block_and_its_cost(move: Move, kind: str, more: dict[str, object]) -> None:
    where = {"nonce": 3, "hash": "0xee", "block": 10, "block_hash": RECEIPT.block.hash}
    assert facts(State.MINED, move) == [(kind, {**where, "cost": str(RECEIPT.cost), **more})]


def test_a_reverted_transaction_says_why_as_far_as_it_is_known() -> None:
    assert moved(State.MINED, Reverted("too late")).failure == "too late"
    assert moved(State.MINED, Reverted()).failure is None


def test_a_superseded_transaction_waits_again_without_nonce_or_hash() -> None:
    tx = moved(State.SENT, Superseded("0xff"))
    assert (tx.state, tx.nonce, tx.hash, tx.held, tx.attention) == (State.QUEUED, None, None, False, None)
    assert facts(State.SENT, Superseded("0xff")) == [("tx.superseded", {"by": "0xff"}), ("tx.requeued", {})]


def test_a_superseded_transaction_that_may_have_run_is_held_with_the_reason() -> None:
    tx = moved(State.SENT, Superseded(None, MARK))
    assert (tx.state, tx.held, tx.attention) == (State.QUEUED, True, MARK)
    assert facts(State.SENT, Superseded(None, MARK)) == [
        ("tx.superseded", {"by": None}),
        ("tx.held", {"code": "look", "reason": "please look"}),
    ]


def test_a_superseded_transaction_that_nobody_wants_is_not_said_to_wait() -> None:
    assert facts(State.SENT, Superseded("0xff", ends=True)) == [("tx.superseded", {"by": "0xff"})]


def test_a_recalled_transaction_waits_again_without_nonce_hash_or_mark() -> None:
    marked, _ = step(IN_STATE[State.SIGNED], Marked(MARK), 1)
    tx, [told] = step(marked, Recalled(), 2)
    assert (tx.state, tx.nonce, tx.hash, tx.attention) == (State.QUEUED, None, None, None)
    assert told.kind == "tx.requeued"


def test_a_failed_transaction_says_why_and_has_no_nonce() -> None:
    tx = moved(State.SIGNED, Failed("never"))
    assert (tx.failure, tx.nonce, tx.hash, tx.attention) == ("never", None, None, None)
    assert facts(State.SIGNED, Failed("never")) == [("tx.failed", {"reason": "never"})]


def test_an_outrun_transaction_keeps_the_nonce_that_was_consumed_for_it() -> None:
    tx = moved(State.MINED, Outrun("late"))
    assert (tx.state, tx.failure, tx.nonce, tx.receipt) == (State.FAILED, "late", 3, RECEIPT)
    assert facts(State.MINED, Outrun("late")) == [("tx.failed", {"reason": "late"})]


def test_a_held_transaction_stays_queued_with_the_reason() -> None:
    tx = moved(State.QUEUED, Held(MARK))
    assert (tx.state, tx.held, tx.attention) == (State.QUEUED, True, MARK)
    assert facts(State.QUEUED, Held(MARK)) == [("tx.held", {"code": "look", "reason": "please look"})]


@pytest.mark.parametrize(("move", "end"), [(Cancelled(), State.CANCELLED), (Expired(), State.EXPIRED)], ids=repr)
def test_what_is_not_wanted_any_more_ends_with_the_slot_it_had_or_with_none(move: Move, end: State) -> None:
    waiting, [told] = step(IN_STATE[State.QUEUED], move, 1)
    assert (waiting.state, waiting.nonce, waiting.receipt, waiting.failure) == (end, None, None, None)
    assert (told.kind, told.data) == (f"tx.{end}", {"nonce": None, "hash": None})
    consumed, [told] = step(IN_STATE[State.MINED], move, 1)
    assert (consumed.state, consumed.nonce, consumed.receipt) == (end, 3, RECEIPT)
    assert (told.kind, told.data) == (f"tx.{end}", {"nonce": 3, "hash": "0xee"})


@pytest.mark.parametrize("move", [Cancelled(), Expired()], ids=repr)
def test_a_held_transaction_can_end_and_is_not_held_any_more(move: Move) -> None:
    tx, _ = step(moved(State.QUEUED, Held(MARK)), move, 78)
    assert (tx.live, tx.held, tx.attention) == (False, False, None)


def test_a_released_transaction_goes_on_without_the_mark() -> None:
    tx, [told] = step(moved(State.QUEUED, Held(MARK)), Released(), 78)
    assert (tx.state, tx.held, tx.attention) == (State.QUEUED, False, None)
    assert told.kind == "tx.released"
    step(tx, Assigned(3, "0xaa"), 79)


@pytest.mark.parametrize("move", [Assigned(3, "0xaa"), Failed("never")], ids=repr)
def test_a_held_transaction_goes_nowhere(move: Move) -> None:
    with pytest.raises(IllegalMove, match="tx is held"):
        step(moved(State.QUEUED, Held(MARK)), move, 78)


def test_a_mark_changes_nothing_else() -> None:
    marked, events = step(IN_STATE[State.SENT], Marked(MARK), 1)
    assert (marked.state, marked.attention) == (State.SENT, MARK)
    assert [(event.kind, dict(event.data)) for event in events] == [
        ("tx.attention", {"code": "look", "reason": "please look"})
    ]


def test_however_many_steps_one_commit_takes_the_row_is_one_version_on() -> None:
    read = IN_STATE[State.SENT]
    twice, _ = step(step(read, Included(RECEIPT), 1)[0], Confirmed(), 1)
    assert twice.version == read.version + 2
    assert one_version_on(twice, read) == replace(twice, version=read.version + 1)


def test_the_diagram_shows_every_edge_of_the_table_but_marks_and_prices_and_nothing_else() -> None:
    edges = re.findall(r"^    (\w+) --> (\w+): (\w+)$", diagram(), re.MULTILINE)
    assert sorted(edges) == sorted(
        (state.value, target.value, move.__name__.lower())
        for (state, move), target in TABLE.items()
        if move not in (Marked, Valued)
    )


def test_the_diagram_begins_at_the_queue_and_ends_at_every_end() -> None:
    lines = diagram().splitlines()
    assert lines[:2] == ["stateDiagram-v2", "    [*] --> queued: accepted"]
    assert {line.split()[0] for line in lines if line.endswith("--> [*]")} == TERMINAL_STATES
