"""A commit that is refused leaves no trace: the database refuses what the code forgot."""

import asyncio
from collections.abc import Callable

import pytest

from nonchalant import lifecycle
from nonchalant.errors import RowMoved
from nonchalant.lifecycle import Broadcast, Confirmed, Failed, Held, Marked, Outrun, Reverted
from nonchalant.model import Change, LaneRecord, Reservation, Slot, Transaction
from nonchalant.ports import Store
from nonchalant.values import replace
from nonchalant.words import SlotKind, State, Wanted
from tests.examples import LANE, MARK, a_hash, a_receipt, a_slot, an_attempt
from tests.lessons import lesson
from tests.store.acts import OTHER_LANE, ManualClock, accept, assign, assignment, filler, refused, settle, take, work


@lesson("last-writer")
async def test_a_stale_version_is_refused(store: Store) -> None:
    [tx] = await accept(store, "a")
    lease = await take(store)
    making = work(lease)
    making.move(tx, Marked(MARK))
    await store.commit(making.change(), lease)
    await refused(store, assignment(lease, (tx, 0)), lease)


async def test_a_row_held_meanwhile_is_not_assigned(store: Store) -> None:
    tx, other = await accept(store, "a", "b")
    lease = await take(store)
    making = work(lease)
    making.move(tx, Held(MARK))
    await store.commit(making.change(), lease)
    # The whole batch falls, the innocent part too: it is built anew.
    await refused(store, assignment(lease, (other, 0), (tx, 1)), lease)


async def test_what_is_overdue_by_the_store_s_clock_gets_no_nonce(store: Store, clock: ManualClock) -> None:
    """However late the owner's own clock is, and whatever took so long between reading the row and writing it."""
    tx, other = await accept(store, "a", "b", valid_until=clock.now() + 1_000)
    lease = await take(store)
    [sent] = await assign(store, lease, (other, 0))
    clock.pass_seconds(1)
    await refused(store, assignment(lease, (tx, 1)), lease)
    # What has one goes on: its deadline is for the owner to look after.
    making = work(lease)
    making.move(sent, Broadcast())
    await store.commit(making.change(), lease)


async def test_a_transaction_that_does_not_exist_is_refused(store: Store) -> None:
    [tx] = await accept(store, "a")
    lease = await take(store)
    await refused(store, Change(transactions=(replace(tx, id="nobody", version=2),)), lease)


async def test_a_nonce_bound_to_another_transaction_is_refused(store: Store) -> None:
    first, second = await accept(store, "a", "b")
    lease = await take(store)
    await assign(store, lease, (first, 0))
    await refused(store, assignment(lease, (second, 0)), lease)
    await refused(store, Change(slots=(a_slot(0, tx_id="b"),)), lease)


@pytest.mark.parametrize("order", [1, -1])
async def test_a_nonce_is_a_filler_s_or_a_transaction_s_never_both(store: Store, order: int) -> None:
    [tx] = await accept(store, "a")
    lease = await take(store)
    first, second = (assignment(lease, (tx, 0)), filler(lease, 0))[::order]
    await store.commit(first, lease)
    await refused(store, second, lease)


async def test_a_transaction_has_at_most_one_live_slot(store: Store) -> None:
    [tx] = await accept(store, "a")
    lease = await take(store)
    [signed] = await assign(store, lease, (tx, 0))
    second = a_slot(1, an_attempt(a_hash("second"), 1, "a"), tx_id="a")
    await refused(store, Change(slots=(second,), attempts=second.attempts), lease)
    assert signed.nonce == 0


async def test_no_slot_is_made_below_the_settled_bound(store: Store) -> None:
    [tx] = await accept(store, "a")
    lease = await take(store)
    await store.commit(Change(lane=LaneRecord(key=LANE, next_nonce=5, settled_below=5)), lease)
    await refused(store, assignment(lease, (tx, 4)), lease)
    await refused(store, filler(lease, 0), lease)
    await assign(store, lease, (tx, 5))


async def test_the_settled_bound_never_falls(store: Store) -> None:
    lease = await take(store)
    await store.commit(Change(lane=LaneRecord(key=LANE, next_nonce=5, settled_below=5)), lease)
    await refused(store, Change(lane=LaneRecord(key=LANE, next_nonce=5, settled_below=4)), lease)


async def test_the_settled_bound_never_passes_a_live_slot(store: Store) -> None:
    [tx] = await accept(store, "a")
    lease = await take(store)
    await assign(store, lease, (tx, 3))
    passing = LaneRecord(key=LANE, next_nonce=4, settled_below=4)
    await refused(store, Change(lane=passing), lease)
    await store.commit(Change(lane=replace(passing, settled_below=3)), lease)
    # In the commit that settles the slot it may.
    [slot] = (await store.load(lease)).slots
    await store.commit(Change(slots=(replace(slot, settled=True),), lane=passing), lease)


async def test_the_next_nonce_is_never_below_the_settled_bound(store: Store) -> None:
    lease = await take(store)
    await refused(store, Change(lane=LaneRecord(key=LANE, next_nonce=4, settled_below=5)), lease)


@pytest.mark.parametrize("end", [Confirmed(), Reverted(), Reverted("too late"), Outrun("late")], ids=repr)
async def test_an_end_never_changes(store: Store, end: object) -> None:
    [tx] = await accept(store, "a")
    lease = await take(store)
    await assign(store, lease, (tx, 0))
    ended = await settle(store, lease, "a", end)
    again = replace(ended, version=ended.version + 1, updated_at=9)
    await refused(store, Change(transactions=(again,)), lease)
    await refused(store, Change(transactions=(replace(again, state=State.SENT, receipt=None, failure=None),)), lease)


async def test_a_failed_transaction_never_changes(store: Store) -> None:
    [tx] = await accept(store, "a")
    lease = await take(store)
    making = work(lease)
    failed = making.move(tx, Failed("never"))
    await store.commit(making.change(), lease)
    await refused(store, Change(transactions=(replace(failed, version=3, state=State.QUEUED, failure=None),)), lease)


async def test_a_settled_slot_never_changes(store: Store) -> None:
    [tx] = await accept(store, "a")
    lease = await take(store)
    await assign(store, lease, (tx, 0))
    [slot] = (await store.load(lease)).slots
    await settle(store, lease, "a")
    await refused(store, Change(slots=(slot,)), lease)
    await refused(store, Change(freed=(0,)), lease)
    late = an_attempt(a_hash("late"), 0, "a")
    await refused(store, Change(attempts=(late,)), lease)


async def test_a_slot_that_is_not_there_cannot_be_freed(store: Store) -> None:
    await refused(store, Change(freed=(7,)), await take(store))


async def test_an_attempt_is_never_written_over(store: Store) -> None:
    [tx] = await accept(store, "a")
    lease = await take(store)
    await assign(store, lease, (tx, 0))
    [attempt] = (await store.attempts(["a"]))["a"]
    await refused(store, Change(attempts=(replace(attempt, raw=b"other"),)), lease)
    await store.commit(Change(attempts=(replace(attempt, gas=1, epoch=9),)), lease)
    assert (await store.attempts(["a"]))["a"] == [attempt]


async def test_the_same_bytes_are_signed_again_for_whoever_has_the_nonce_then(store: Store) -> None:
    """A transaction is recalled and comes back to the same nonce, or its chain was reset and another does the same."""
    tx, other = await accept(store, "a", "b")
    lease = await take(store)
    await assign(store, lease, (tx, 0))
    [attempt] = (await store.attempts(["a"]))["a"]
    [signed] = (await store.load(lease)).transactions
    queued, _ = lifecycle.step(signed, lifecycle.Recalled(), 1)
    await store.commit(Change(transactions=(queued,), freed=(0,)), lease)
    again, _ = lifecycle.step(queued, lifecycle.Assigned(0, attempt.hash), 2)
    slot = a_slot(0, attempt, tx_id="a")
    await store.commit(Change(transactions=(again,), slots=(slot,), attempts=(attempt,)), lease)
    assert (await store.load(lease)).slots[0].attempts == (attempt,)
    back, _ = lifecycle.step(again, lifecycle.Recalled(), 3)
    await store.commit(Change(transactions=(back,), freed=(0,)), lease)
    twin = replace(attempt, tx_id="b")
    bound, _ = lifecycle.step(other, lifecycle.Assigned(0, twin.hash), 4)
    slot = a_slot(0, twin, tx_id="b")
    await store.commit(Change(transactions=(bound,), slots=(slot,), attempts=(twin,)), lease)
    assert (await store.load(lease)).slots[0].attempts == (twin,)
    assert (await store.attempts(["a", "b"])) == {"a": [attempt], "b": [twin]}
    await store.commit(Change(answered=(replace(twin, answer="accepted"),)), lease)
    assert [one.answer for one in (await store.attempts(["a"]))["a"]] == [attempt.answer]


async def test_an_answer_cannot_change_what_was_signed(store: Store) -> None:
    [tx] = await accept(store, "a")
    lease = await take(store)
    await assign(store, lease, (tx, 0))
    [attempt] = (await store.attempts(["a"]))["a"]
    await store.commit(Change(answered=(replace(attempt, raw=b"other", nonce=9, answer="accepted"),)), lease)
    assert (await store.attempts(["a"]))["a"] == [replace(attempt, answer="accepted")]


async def test_an_attempt_without_its_slot_is_refused(store: Store) -> None:
    tx, other = await accept(store, "a", "b")
    lease = await take(store)
    await assign(store, lease, (tx, 0))
    await refused(store, Change(attempts=(an_attempt(a_hash("x"), 1, "a"),)), lease)
    await refused(store, Change(attempts=(an_attempt(a_hash("x"), 0, other.id),)), lease)
    await refused(store, Change(attempts=(an_attempt(a_hash("x"), 0, None),)), lease)


async def test_an_answer_about_an_unknown_attempt_is_refused(store: Store) -> None:
    await refused(store, Change(answered=(an_attempt("0xaa"),)), await take(store))


async def test_a_slot_of_an_unknown_transaction_is_refused(store: Store) -> None:
    lease = await take(store)
    slot = a_slot(0, tx_id="nobody")
    await refused(store, Change(slots=(slot,), attempts=slot.attempts), lease)


@pytest.mark.parametrize(
    "contradict",
    [
        lambda tx: replace(tx, state=State.SIGNED),
        lambda tx: replace(tx, nonce=4, hash="0xaa"),
        lambda tx: replace(tx, state=State.SENT, nonce=4),
        lambda tx: replace(tx, state=State.MINED, nonce=4, hash="0xaa"),
        lambda tx: replace(tx, state=State.CONFIRMED, nonce=4, hash="0xaa"),
        lambda tx: replace(tx, state=State.SENT, nonce=4, hash="0xaa", receipt=a_receipt()),
        lambda tx: replace(tx, state=State.FAILED),
        lambda tx: replace(tx, failure="but it is queued"),
        lambda tx: replace(tx, state=State.SIGNED, nonce=4, hash="0xaa", held=True),
    ],
)
async def test_a_row_that_contradicts_itself_is_refused(
    store: Store, contradict: Callable[[Transaction], Transaction]
) -> None:
    [tx] = await accept(store, "a")
    await refused(store, Change(transactions=(contradict(replace(tx, version=2)),)), await take(store))


@pytest.mark.parametrize(
    "slot",
    [
        replace(a_slot(0, tx_id="a"), kind=SlotKind.FILLER, payload_version=0),
        replace(a_slot(0, tx_id="a"), kind=SlotKind.RESERVATION),
        replace(a_slot(0, tx_id="a"), tx_id=None),
        # Nothing should run exactly where the payload is not wanted.
        replace(a_slot(0, tx_id="a"), wanted=Wanted.CANCEL),
        replace(a_slot(0, tx_id="a"), payload_version=0),
        replace(a_slot(0, tx_id=None), payload_version=1),
        # A reservation has a holder, and a transaction has none.
        replace(a_slot(0, tx_id="a"), reservation=Reservation("h", 5)),
        replace(a_slot(0, tx_id=None), kind=SlotKind.RESERVATION, payload_version=1),
    ],
)
async def test_a_slot_that_contradicts_itself_is_refused(store: Store, slot: Slot) -> None:
    await accept(store, "a")
    await refused(store, Change(slots=(slot,)), await take(store))


async def test_the_lease_of_one_lane_writes_nothing_of_another(store: Store) -> None:
    [tx] = await accept(store, "a", lane=OTHER_LANE)
    theirs = await take(store, "node-b", OTHER_LANE)
    await assign(store, theirs, (tx, 0))
    [attempt] = (await store.attempts(["a"]))["a"]
    [signed] = (await store.load(theirs)).transactions
    ours = await take(store, "node-a")
    making = work(ours)
    making.move(signed, Broadcast())
    await refused(store, making.change(), ours)
    await refused(store, Change(answered=(replace(attempt, answer="accepted"),)), ours)
    await refused(store, Change(freed=(0,)), ours)
    # A record that names another lane is taken for the leased one's.
    await store.commit(Change(lane=LaneRecord(key=OTHER_LANE, next_nonce=99)), ours)
    assert (await store.load(theirs)).record.next_nonce is None


@lesson("shared-connection")
@lesson("last-writer")
async def test_of_many_commits_at_once_on_one_connection_each_is_whole_or_nothing(store: Store) -> None:
    """Two want each nonce, all at the same time; every second one names a row that has moved since it was read."""
    ours, theirs = await take(store), await take(store, lane=OTHER_LANE)
    txs = await accept(store, *(f"t{n}" for n in range(20)))
    changes = [assignment(ours, (txs[2 * n], 2 * n), (txs[2 * n + 1], 2 * n + 1)) for n in range(10)]
    stale = [
        replace(one, transactions=(one.transactions[0], replace(one.transactions[1], version=7))) for one in changes
    ]
    fillers = [filler(theirs, nonce) for nonce in range(10)]
    commits = [
        commit
        for broken, sound, other in zip(stale, changes, fillers, strict=True)
        for commit in (store.commit(broken, ours), store.commit(sound, ours), store.commit(other, theirs))
    ]
    said = await asyncio.gather(*commits, return_exceptions=True)
    assert [type(one) for one in said] == [RowMoved, dict, dict] * 10
    found = await store.load(ours)
    assert [(slot.nonce, slot.tx_id) for slot in found.slots] == [(n, txs[n].id) for n in range(20)]
    assert [slot.nonce for slot in (await store.load(theirs)).slots] == list(range(10))


async def test_one_missing_row_rolls_the_whole_commit_back(store: Store) -> None:
    first, second = await accept(store, "a", "b")
    lease = await take(store)
    change = assignment(lease, (first, 0), (second, 1))
    broken = replace(change, transactions=(change.transactions[0], replace(change.transactions[1], version=7)))
    await refused(store, broken, lease)
    await store.commit(change, lease)
    assert [slot.nonce for slot in (await store.load(lease)).slots] == [0, 1]


async def test_what_a_slot_wants_is_kept(store: Store) -> None:
    [tx] = await accept(store, "a")
    lease = await take(store)
    await assign(store, lease, (tx, 0))
    [slot] = (await store.load(lease)).slots
    for wanted in (Wanted.NOTHING, Wanted.CANCEL, Wanted.EXPIRY):
        unwanted = replace(slot, wanted=wanted, payload_version=0)
        await store.commit(Change(slots=(unwanted,)), lease)
        assert (await store.load(lease)).slots == [unwanted]
