"""A queued transaction belongs to every node: what is wanted of it is one guarded write, under no lease."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from nonchalant import lifecycle
from nonchalant.errors import RowMoved
from nonchalant.lifecycle import Cancelled, Expired, Held, Move, Released, Replaced, Valued
from nonchalant.model import Event, Fees, Payload, Transaction
from nonchalant.ports import Store
from nonchalant.words import State
from tests.examples import BOB, MARK
from tests.store.acts import accept, assign, everything, take

OTHER = Payload(to=BOB, value=7)


def stepped(tx: Transaction, *moves: Move) -> tuple[Transaction, list[Event]]:
    moved, events = tx, list[Event]()
    for move in moves:
        moved, told = lifecycle.step(moved, move, 5)
        events += told
    return lifecycle.one_version_on(moved, tx), events


@pytest.mark.parametrize(
    ("moves", "state"),
    [
        ([Cancelled()], State.CANCELLED),
        ([Expired()], State.EXPIRED),
        ([Held(MARK), Cancelled()], State.CANCELLED),
        ([Held(MARK)], State.QUEUED),
        ([Held(MARK), Released()], State.QUEUED),
        ([Replaced(OTHER), Valued(Fees(9, 1))], State.QUEUED),
    ],
    ids=["cancelled", "expired", "cancelled while held", "held", "released", "replaced and priced"],
)
async def test_what_is_wanted_of_it_is_written_with_its_events(
    store: Store, moves: Sequence[Move], state: State
) -> None:
    [tx] = await accept(store, "a")
    moved, events = stepped(tx, *moves)
    await store.alter_queued(moved, events)
    assert await store.transaction("a") == moved
    assert moved.state is state
    told = [event.kind for event in await store.history("a")]
    assert told == ["tx.accepted", *(event.kind for event in events)]


async def test_as_it_was_read_or_not_at_all(store: Store) -> None:
    [tx] = await accept(store, "a")
    await store.alter_queued(*stepped(tx, Held(MARK)))
    before = await everything(store)
    with pytest.raises(RowMoved):
        await store.alter_queued(*stepped(tx, Cancelled()))
    assert await everything(store) == before


async def test_what_has_a_slot_is_not_queued_any_more(store: Store) -> None:
    [tx] = await accept(store, "a")
    await assign(store, await take(store), (tx, 0))
    before = await everything(store)
    with pytest.raises(RowMoved):
        await store.alter_queued(*stepped(tx, Cancelled()))
    assert await everything(store) == before
