"""What comes to its lane's owner while nothing waits there is accepted with its nonce, in one commit: all of it, or nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from nonchalant.errors import LeaseLost, RowMoved, Unstorable
from nonchalant.lifecycle import Assigned, Cancelled, Held, Released, step
from nonchalant.model import (
    TX_ACCEPTED,
    Admission,
    Change,
    Event,
    LaneRecord,
    Lease,
    Payload,
    Request,
    Transaction,
)
from nonchalant.observing.tallies import Tallies
from nonchalant.observing.vitals import Vitals
from nonchalant.observing.watched import WatchedStore
from nonchalant.ports import Acceptance, Duplicate, KeyTaken, Store
from nonchalant.store.contract import SqlStore
from nonchalant.values import replace
from nonchalant.words import Mode, SlotKind, State
from tests.examples import BOB, ELABORATE, LANE, MARK, a_hash, a_request, an_attempt
from tests.store.acts import (
    LIMITS,
    OTHER_LANE,
    TTL,
    ManualClock,
    accept,
    everything,
    refused,
    settle,
    take,
    work,
)

DAY = 24 * 3600


def admission(lease: Lease, *requests: Request, first: int = 0, at: int = 0, final: int = 0) -> Change:
    """What accepting these at the next nonces commits."""
    making = work(lease, at)
    for nonce, request in enumerate(requests, first):
        attempt = an_attempt(a_hash(f"{request.id}@{nonce}"), nonce, request.id, epoch=lease.epoch)
        making.move(making.accept(request, at), Assigned(nonce, attempt.hash))
        making.bind(nonce, SlotKind.TRANSACTION, attempt)
    making.record(LaneRecord(key=lease.lane, next_nonce=first + len(requests), settled_below=final))
    return making.change()


async def admit(store: Store, lease: Lease, *requests: Request, **where: int) -> list[Transaction]:
    """What their owner takes them for from then on."""
    change = admission(lease, *requests, **where)
    return list(change.entered(await store.commit(change, lease)).transactions)


async def alter(store: Store, tx: Transaction, move: Any) -> None:
    moved, events = step(tx, move, 0)
    await store.alter_queued(moved, events)


# what is written


async def test_it_is_there_with_nonce_and_hash_slot_attempt_and_both_events(store: Store, clock: ManualClock) -> None:
    lease = await take(store)
    change = admission(lease, a_request("a"), first=7, at=clock.now())
    await store.commit(change, lease)
    tx = await store.transaction("a")
    assert tx is not None
    assert (tx.state, tx.version, tx.nonce, tx.hash) == (State.SIGNED, 2, 7, a_hash("a@7"))
    loaded = await store.load(lease)
    assert loaded.transactions == [tx]
    assert [(slot.nonce, slot.tx_id, slot.kind) for slot in loaded.slots] == [(7, "a", SlotKind.TRANSACTION)]
    assert loaded.slots[0].attempts == change.attempts
    assert loaded.record.next_nonce == 8
    assert (await store.attempts(["a"]))["a"] == list(change.attempts)
    assert [event.kind for event in await store.history("a")] == ["tx.accepted", "tx.signed"]
    told = await store.events_after(0, limit=10)
    assert [event.kind for event in told if event.tx_id == "a"] == ["tx.accepted", "tx.signed"]
    assert await store.queued(LANE, limit=10) == []


async def test_it_is_told_where_it_stands_and_since_when_by_the_store_s_clock(store: Store, clock: ManualClock) -> None:
    lease = await take(store)
    ahead = clock.now() + 3_600_000  # so much is the owner's clock
    change = admission(lease, a_request("a"), a_request("b"), at=ahead)
    entries = await store.commit(change, lease)
    stored = {id: await store.transaction(id) for id in ("a", "b")}
    assert entries == {id: Admission(tx.place, clock.now()) for id, tx in stored.items() if tx is not None}
    assert {tx.created_at for tx in stored.values() if tx is not None} == {clock.now()}
    for id in stored:
        accepted, signed = await store.history(id)
        assert (accepted.kind, accepted.at) == ("tx.accepted", clock.now())
        assert (signed.kind, signed.at) == ("tx.signed", ahead)  # that was the owner's doing


class Noting:
    """An observer, who remembers what was accepted when."""

    def __init__(self) -> None:
        self.noted: list[tuple[str, int]] = []

    def accepted(self, _requests: Sequence[Request], answers: Sequence[Acceptance]) -> None:
        self.noted += [(tx.id, tx.created_at) for tx in answers if isinstance(tx, Transaction)]

    def committed(self, change: Change, _lease: Lease) -> None:
        self.noted += [(event.kind, event.at) for event in change.events if event.kind == TX_ACCEPTED]

    def altered(self, _tx: Transaction, _events: Sequence[Event]) -> None: ...


async def test_those_who_count_hear_the_store_s_time_too(store: Store, clock: ManualClock) -> None:
    noting = Noting()
    watched = WatchedStore(
        store, tallies=Tallies(), vitals=Vitals(clock, lease_seconds=TTL), clock=clock, observers=[noting]
    ).watched()
    lease = await take(store)
    await watched.commit(admission(lease, a_request("a"), at=clock.now() + 3_600_000), lease)
    assert noting.noted == [("a", clock.now()), (TX_ACCEPTED, clock.now())]


async def test_the_row_is_what_its_owner_takes_it_for(store: Store, clock: ManualClock) -> None:
    """Whatever was asked for with it."""
    lease = await take(store)
    request = a_request(
        "a",
        payload=Payload(to=BOB, value=2**70, data=b"\x01\x02", gas=50_000),
        **ELABORATE,
        valid_until=clock.now() + 1,
    )
    applied = await admit(store, lease, request, a_request("plain"), at=clock.now() + 5)
    assert [await store.transaction(tx.id) for tx in applied] == applied
    assert sorted((await store.load(lease)).transactions, key=lambda tx: tx.place) == applied
    for field in ("payload", "fees", "priority", "tenant", "idempotency_key", "metadata", "valid_until"):
        assert getattr(applied[0], field) == getattr(request, field)


async def test_places_follow_the_order_of_the_batch_above_all_that_came_before(store: Store) -> None:
    lease = await take(store)
    [before] = await accept(store, "before", lane=OTHER_LANE)
    names = ["z", "a", "y", "b"]
    requests = [a_request(name, idempotency_key=f"key {name}") for name in names]  # keys are locked in their own order
    applied = await admit(store, lease, *requests)
    assert [tx.id for tx in applied] == names
    places = [tx.place for tx in applied]
    assert places == sorted(places)
    assert len(set(places)) == len(places)
    assert places[0] > before.place
    [later] = await accept(store, "later")
    assert later.place > places[-1]


async def test_what_it_is_committed_with_is_written_too(store: Store) -> None:
    lease = await take(store)
    [old] = await admit(store, lease, a_request("old"))
    ended = admission(lease, a_request("new"), first=1)
    making = work(lease)
    making.mark(old, MARK)
    both = replace(ended, transactions=(*ended.transactions, *making.change().transactions))
    entries = await store.commit(both, lease)
    assert list(entries) == ["new"]
    marked, new = await store.transaction("old"), await store.transaction("new")
    assert marked is not None
    assert new is not None
    assert (marked.attention, marked.place) == (MARK, old.place)
    assert new.state is State.SIGNED


async def test_a_commit_that_accepts_nothing_says_nothing(store: Store) -> None:
    assert await store.commit(Change(), await take(store)) == {}


# what is in its way: nothing of the commit is written


async def test_nothing_overtakes_what_is_queued(store: Store) -> None:
    await accept(store, "waits")
    lease = await take(store)
    await refused(store, admission(lease, a_request("a")), lease)
    assert await store.transaction("a") is None


async def test_what_is_queued_in_another_lane_or_held_or_gone_is_in_nobody_s_way(store: Store) -> None:
    await accept(store, "elsewhere", lane=OTHER_LANE)
    held, gone = await accept(store, "held", "gone")
    await alter(store, held, Held(MARK))
    await alter(store, gone, Cancelled())
    lease = await take(store)
    [tx] = await admit(store, lease, a_request("a"))
    assert await store.transaction("a") == tx
    still = await store.transaction("held")
    assert still is not None
    assert still.state is State.QUEUED


async def test_what_is_released_is_in_the_way_again(store: Store) -> None:
    [held] = await accept(store, "held")
    await alter(store, held, Held(MARK))
    again = await store.transaction("held")
    assert again is not None
    await alter(store, again, Released())
    lease = await take(store)
    await refused(store, admission(lease, a_request("a")), lease)


@pytest.mark.parametrize("mode", [Mode.PAUSED, Mode.DRAINING, Mode.HALTED])
async def test_a_lane_that_is_not_open_takes_nothing_with_a_nonce(store: Store, mode: Mode) -> None:
    lease = await take(store)
    theirs = await take(store, lane=OTHER_LANE)
    if mode is Mode.HALTED:
        await store.halt(LANE.chain_id, "its chain is another one")
    else:
        await store.control(LANE, mode, "enough")
        await admit(store, theirs, a_request("next door", lane=OTHER_LANE))
    await refused(store, admission(lease, a_request("a")), lease)
    await store.control(LANE, Mode.OPEN, "")
    await admit(store, lease, a_request("a"))


async def test_what_is_overdue_by_the_store_s_clock_is_not_accepted_whatever_the_owner_s_says(
    store: Store, clock: ManualClock
) -> None:
    lease = await take(store)
    late = a_request("late", valid_until=clock.now() + 1_000)
    clock.pass_seconds(1)
    await refused(store, admission(lease, a_request("timely"), late, at=0), lease)
    await admit(store, lease, replace(late, valid_until=clock.now() + 1))


async def test_an_id_that_is_known_is_not_accepted_again(store: Store) -> None:
    lease = await take(store)
    await admit(store, lease, a_request("a"))
    await refused(store, admission(lease, a_request("b"), a_request("a"), first=1), lease)
    assert await store.transaction("b") is None


async def test_nor_is_a_key_and_its_neighbours_fall_with_it(store: Store) -> None:
    lease = await take(store)
    theirs = await take(store, lane=OTHER_LANE)
    await admit(store, theirs, a_request("first", lane=OTHER_LANE, idempotency_key="k"))
    await refused(store, admission(lease, a_request("b"), a_request("again", idempotency_key="k")), lease)
    # It is another tenant's business.
    await admit(store, lease, a_request("other", idempotency_key="k", tenant="other"))


async def test_one_key_twice_in_one_commit_is_refused(store: Store) -> None:
    lease = await take(store)
    twice = [a_request(id, idempotency_key="k") for id in ("a", "b")]
    await refused(store, admission(lease, *twice), lease)


async def test_a_key_whose_transaction_was_removed_is_never_accepted_again(store: SqlStore, clock: ManualClock) -> None:
    await remove(store, clock, "k")
    lease = await take(store)
    await refused(store, admission(lease, a_request("again", idempotency_key="k"), first=1, final=1), lease)
    await admit(store, lease, a_request("another", idempotency_key="another key"), first=1, final=1)


async def remove(store: SqlStore, clock: ManualClock, key: str) -> None:
    """A transaction with this key ran at nonce 0, ended, and was removed long after that."""
    lease = await take(store)
    await admit(store, lease, a_request("old", idempotency_key=key), at=clock.now())
    await settle(store, lease, "old")
    await store.commit(Change(lane=LaneRecord(key=LANE, next_nonce=1, settled_below=1)), lease)
    clock.pass_seconds(31 * DAY)
    await store.forget_settled(older_than=30 * DAY * 1000, limit=10)
    assert await store.transaction("old") is None


async def _runs_out(store: Store, clock: ManualClock) -> None:
    clock.pass_seconds(TTL)


async def _is_taken_over(store: Store, clock: ManualClock) -> None:
    clock.pass_seconds(TTL)
    await take(store, "heir")


async def _is_retaken(store: Store, clock: ManualClock) -> None:
    await take(store)


@pytest.mark.parametrize("lose", [_runs_out, _is_taken_over, _is_retaken], ids=lambda how: how.__name__.strip("_"))
async def test_who_lost_the_lease_accepts_nothing(
    store: Store, clock: ManualClock, lose: Callable[[Store, ManualClock], Awaitable[None]]
) -> None:
    lease = await take(store)
    await lose(store, clock)
    before = await everything(store)
    with pytest.raises(LeaseLost):
        await store.commit(admission(lease, a_request("a", idempotency_key="k")), lease)
    assert await everything(store) == before
    # Its key is free.
    assert isinstance((await accept(store, "b", idempotency_key="k"))[0], Transaction)


async def test_a_nonce_that_is_another_s_is_not_given_out_again(store: Store) -> None:
    lease = await take(store)
    await admit(store, lease, a_request("a"))
    await refused(store, admission(lease, a_request("b"), first=0), lease)
    assert await store.transaction("b") is None


@pytest.mark.parametrize("odd", [{"idempotency_key": "\ud800"}, {"confirmations": 2**63}, {"priority": 77}], ids=str)
async def test_what_can_never_be_stored_is_known_for_it(store: Store, odd: dict[str, Any]) -> None:
    """Nobody has to doubt whether it was accepted."""
    lease = await take(store)
    before = await everything(store)
    with pytest.raises((Unstorable, RowMoved)):
        await store.commit(admission(lease, a_request("good"), a_request("bad", **odd)), lease)
    assert await everything(store) == before


# after a commit of unknown outcome, the queue is asked for the same ids


async def test_who_asks_again_after_it_took_effect_gets_it_as_it_stands(store: Store) -> None:
    lease = await take(store)
    request = a_request("a", idempotency_key="k")
    [tx] = await admit(store, lease, request)
    before = await everything(store)
    assert await store.accept([request], limits=LIMITS) == [tx]
    assert await everything(store) == before
    # Also where a deadline has passed, the lane is drained, or full meanwhile: it was accepted before.
    await store.control(LANE, Mode.DRAINING, "enough")
    assert await store.accept([request], limits=LIMITS | {LANE: 0}) == [tx]
    again = a_request("another", idempotency_key="k")
    assert await store.accept([again, replace(again, body_hash="other")], limits=LIMITS) == [Duplicate(tx), KeyTaken()]


async def test_one_that_took_effect_too_late_finds_the_queued_one_and_leaves_it(store: Store) -> None:
    lease = await take(store)
    request = a_request("a", idempotency_key="k")
    late = admission(lease, request)
    [queued] = await store.accept([request], limits=LIMITS)
    await refused(store, late, lease)
    assert await store.transaction("a") == queued
    # Nor once somebody held it, so that nothing is in the way but the id itself.
    assert isinstance(queued, Transaction)
    await alter(store, queued, Held(MARK))
    await refused(store, late, lease)
    assert len(await store.history("a")) == 2


async def test_what_is_accepted_twice_at_the_same_moment_is_one_transaction(store: Store) -> None:
    """Whoever comes first: the other finds it."""
    lease = await take(store)
    for number in range(20):
        request = a_request(f"tx{number}", idempotency_key=f"k{number}")
        admitted, answers = await asyncio.gather(
            store.commit(admission(lease, request, first=number), lease),
            store.accept([request], limits=LIMITS),
            return_exceptions=True,
        )
        tx = await store.transaction(request.id)
        assert answers == [tx]
        assert tx is not None
        assert isinstance(admitted, RowMoved) == (tx.state is State.QUEUED)
        if tx.state is State.QUEUED:
            await alter(store, tx, Cancelled())
            [tx] = await admit(store, lease, a_request(f"instead {number}"), first=number)
        assert [slot.nonce for slot in (await store.load(lease)).slots][-1] == number
