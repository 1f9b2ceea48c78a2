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
    Confirmed,
    Failed,
    Held,
    Included,
    Marked,
    Move,
    Outrun,
    Reorged,
    Repriced,
    Reverted,
    Superseded,
    diagram,
    step,
)
from nonchalant.model import LIVE_STATES, TERMINAL_STATES, Fees, State, Transaction
from tests.examples import LANE, MARK, a_receipt, a_transaction

RECEIPT = a_receipt("0xee")
MOVES: tuple[Move, ...] = (
    Assigned(3, "0xaa"),
    Broadcast(),
    Repriced("0xbb", Fees(110, 11)),
    Included(RECEIPT),
    Reorged(),
    Confirmed(),
    Reverted(),
    Superseded("0xff"),
    Superseded(None, MARK),
    Failed("never"),
    Outrun("late"),
    Held(MARK),
    Marked(MARK),
)
IN_STATE = {
    State.QUEUED: a_transaction(),
    State.SIGNED: a_transaction(state=State.SIGNED, nonce=3, hash="0xaa"),
    State.SENT: a_transaction(state=State.SENT, nonce=3, hash="0xaa"),
    State.MINED: a_transaction(state=State.MINED, nonce=3, hash="0xee", receipt=RECEIPT),
    State.CONFIRMED: a_transaction(state=State.CONFIRMED, nonce=3, hash="0xee", receipt=RECEIPT),
    State.REVERTED: a_transaction(state=State.REVERTED, nonce=3, hash="0xee", receipt=RECEIPT),
    State.FAILED: a_transaction(state=State.FAILED, failure="never"),
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
        assert events
        # What the schema's CHECKs demand of a row, whatever way led to it.
        assert tx.state is State.FAILED or (tx.state is State.QUEUED) == (tx.nonce is None)
        assert (tx.nonce is None) == (tx.hash is None)
        in_block = tx.state in (State.MINED, State.CONFIRMED, State.REVERTED)
        assert tx.state is State.FAILED or in_block == (tx.receipt is not None)
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


@pytest.mark.parametrize(("fees", "priority"), [(Fees(110, 11), "11"), (Fees(110), None)])
def test_repricing_shows_the_newest_hash_and_its_price_as_text(fees: Fees, priority: str | None) -> None:
    assert moved(State.SENT, Repriced("0xbb", fees)).hash == "0xbb"
    assert facts(State.SENT, Repriced("0xbb", fees)) == [
        ("attempt.bumped", {"nonce": 3, "hash": "0xbb", "max_fee": "110", "priority": priority})
    ]


def test_inclusion_shows_the_hash_that_ran_and_clears_the_mark() -> None:
    marked, _ = step(IN_STATE[State.SENT], Marked(MARK), 1)
    tx, _ = step(marked, Included(RECEIPT), 2)
    assert (tx.hash, tx.receipt, tx.attention) == ("0xee", RECEIPT, None)
    assert facts(State.SENT, Included(RECEIPT)) == [
        ("tx.mined", {"nonce": 3, "hash": "0xee", "block": 10, "block_hash": RECEIPT.block.hash})
    ]


def test_reorg_puts_a_mined_transaction_back_in_flight() -> None:
    tx = moved(State.MINED, Reorged())
    assert (tx.state, tx.receipt, tx.nonce) == (State.SENT, None, 3)
    assert facts(State.MINED, Reorged()) == [("tx.reorged", {"nonce": 3, "hash": "0xee"})]


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


def test_the_diagram_shows_every_edge_of_the_table_but_the_marks_and_nothing_else() -> None:
    edges = re.findall(r"^    (\w+) --> (\w+): (\w+)$", diagram(), re.MULTILINE)
    assert sorted(edges) == sorted(
        (state.value, target.value, move.__name__.lower())
        for (state, move), target in TABLE.items()
        if move is not Marked
    )


def test_the_diagram_begins_at_the_queue_and_ends_at_every_end() -> None:
    lines = diagram().splitlines()
    assert lines[:2] == ["stateDiagram-v2", "    [*] --> queued: accepted"]
    assert {line.split()[0] for line in lines if line.endswith("--> [*]")} == TERMINAL_STATES
