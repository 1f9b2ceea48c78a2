"""What is ordinary takes one round trip on PostgreSQL, and comes out as it does in several."""

from __future__ import annotations

from typing import Any, NoReturn

import pytest

from nonchalant.errors import LeaseLost, RowMoved
from nonchalant.model import Change, Event
from nonchalant.ports import Draining, Duplicate
from nonchalant.store import at_once
from nonchalant.store.postgres import PostgresStore
from nonchalant.words import Mode, State
from tests.examples import LANE, a_request
from tests.store.acts import LIMITS, accept, assign, on_a_server, sql, take

store = pytest.fixture(on_a_server)


def forbid(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever takes more than one statement."""

    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise AssertionError("in several steps")

    monkeypatch.setattr(store, "_write", refuse)


async def test_a_request_is_accepted_and_sent_on_its_way_in_one_round_trip_each(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = await take(store)
    await accept(store, "first")  # by which the room is known
    with monkeypatch.context() as patch:
        forbid(store, patch)
        [tx] = await accept(store, "tx")
        together = await store.accept_together([a_request("b"), a_request("c")], limits=LIMITS)
        [signed] = await assign(store, lease, (tx, 0))
    assert await store.transaction("tx") == signed
    assert [await store.transaction(id) for id in ("b", "c")] == list(together)
    assert [(event.kind, event.data) for event in await store.history("b")] == [("tx.accepted", {})]
    assert [event.kind for event in await store.history("tx")] == ["tx.accepted", "tx.signed"]
    places = [tx.place for tx in (tx, *together) if hasattr(tx, "place")]
    assert places == sorted(places)


async def test_what_is_known_already_is_found_and_its_neighbours_are_accepted(store: PostgresStore) -> None:
    await accept(store, "first")
    [known] = await store.accept([a_request("known", idempotency_key="k")], limits=LIMITS)
    again = a_request("again", idempotency_key="k")
    answers = await store.accept([a_request("before"), again, a_request("after")], limits=LIMITS)
    assert [type(answer).__name__ for answer in answers] == ["Transaction", "Duplicate", "Transaction"]
    assert answers[1] == Duplicate(known)  # type: ignore[arg-type]
    assert await store.transaction("again") is None


async def test_a_lane_that_is_drained_takes_nothing_more(store: PostgresStore) -> None:
    await accept(store, "first")
    await store.control(LANE, Mode.DRAINING, "enough")
    assert await store.accept([a_request("late")], limits=LIMITS) == [Draining()]
    assert await store.transaction("late") is None


async def test_room_that_was_counted_long_ago_is_counted_again(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await accept(store, "first")
    store._room._lanes[LANE].at -= 10_000
    with monkeypatch.context() as patch:
        forbid(store, patch)
        with pytest.raises(AssertionError, match="in several steps"):
            await accept(store, "late")
    await accept(store, "late")


async def test_nothing_is_written_for_a_lease_that_is_lost(store: PostgresStore) -> None:
    lease = await take(store)
    [tx] = await accept(store, "tx")
    await sql(store, "UPDATE leases SET epoch = epoch + 1")
    with pytest.raises(LeaseLost, match="not ours any more"):
        await assign(store, lease, (tx, 0))
    assert await store.transaction("tx") == tx
    assert [event.kind for event in await store.history("tx")] == ["tx.accepted"]


@pytest.mark.parametrize("rows", [1, 30])
async def test_one_row_that_moved_undoes_all_of_the_commit(store: PostgresStore, rows: int) -> None:
    lease = await take(store)
    txs = await accept(store, *(f"tx{number}" for number in range(rows)))
    await sql(store, "UPDATE transactions SET version = version + 1 WHERE id = ?", txs[-1].id)
    with pytest.raises(RowMoved, match=r"update_transaction: (one of )?tx"):
        await assign(store, lease, *((tx, number) for number, tx in enumerate(txs)))
    assert {row[0] for row in await sql(store, "SELECT state FROM transactions")} == {"queued"}
    assert await sql(store, "SELECT 1 FROM slots") == []


async def test_many_rows_of_which_most_columns_are_alike_come_out_as_they_went_in(store: PostgresStore) -> None:
    lease = await take(store)
    txs = await accept(store, *(f"tx{number}" for number in range(40)))
    signed = await assign(store, lease, *((tx, number) for number, tx in enumerate(txs)))
    loaded = await store.load(lease)
    assert sorted(loaded.transactions, key=lambda tx: tx.place) == list(signed)
    assert [slot.nonce for slot in loaded.slots] == list(range(40))
    assert [slot.tx_id for slot in loaded.slots] == [tx.id for tx in txs]
    assert {tx.state for tx in loaded.transactions} == {State.SIGNED}


def test_what_is_not_ordinary_is_known_for_it() -> None:
    assert at_once.is_ordinary(Change(events=(Event(kind="lane.filled", lane=LANE, at=0),)))
    assert not at_once.is_ordinary(Change(freed=(1,)))
    assert not at_once.is_ordinary(Change(rewritten=frozenset({"a"})))
    assert not at_once.is_ordinary(Change(unsettled_from=0))
    assert not at_once.are_ordinary([])
    assert not at_once.are_ordinary([a_request("a", asked_nonce=1)])
    assert not at_once.are_ordinary([a_request("a", valid_until=1)])
    assert not at_once.are_ordinary([a_request("a"), a_request("a")])
    assert not at_once.are_ordinary([a_request("a", idempotency_key="k"), a_request("b", idempotency_key="k")])
