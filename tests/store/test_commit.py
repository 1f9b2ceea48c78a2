"""One commit: what goes in comes out."""

from nonchalant.lifecycle import Failed, Included, Superseded
from nonchalant.model import Change, LaneRecord, Stranger
from nonchalant.ports import Store
from nonchalant.values import replace
from nonchalant.words import AttemptKind, SlotKind
from tests.examples import LANE, MARK, a_hash, a_receipt, a_slot, an_attempt
from tests.lessons import lesson
from tests.store.acts import OTHER_LANE, accept, assign, assignment, filler, refused, settle, take, work


async def test_assignment_is_one_commit_of_transaction_slot_attempt_and_event(store: Store) -> None:
    [tx] = await accept(store, "a")
    lease = await take(store)
    change = assignment(lease, (tx, 5))
    await store.commit(change, lease)
    loaded = await store.load(lease)
    assert tuple(loaded.transactions) == change.transactions
    assert tuple(loaded.slots) == change.slots
    assert (await store.attempts(["a"]))["a"] == list(change.attempts)
    assert [event.kind for event in await store.history("a")] == ["tx.accepted", "tx.signed"]
    assert await store.transaction("a") == change.transactions[0]


async def test_a_filler_has_a_slot_an_attempt_and_a_receipt_of_its_own(store: Store) -> None:
    lease = await take(store)
    await store.commit(filler(lease, 3), lease)
    [slot] = (await store.load(lease)).slots
    included = replace(slot, receipt=a_receipt(slot.newest.hash))
    await store.commit(Change(slots=(included,)), lease)
    assert list((await store.load(lease)).slots) == [included]


async def test_a_transaction_s_slot_has_its_transaction_s_receipt(store: Store) -> None:
    [tx] = await accept(store, "a")
    lease = await take(store)
    [signed] = await assign(store, lease, (tx, 0))
    [slot] = (await store.load(lease)).slots
    making = work(lease)
    making.move(signed, Included(a_receipt(signed.hash)))
    making.include(slot, a_receipt(signed.hash))
    await store.commit(making.change(), lease)
    assert (await store.load(lease)).slots[0].receipt == a_receipt(signed.hash)


async def test_attempts_are_loaded_in_the_order_in_which_they_were_signed(store: Store) -> None:
    [tx] = await accept(store, "a")
    lease = await take(store)
    await assign(store, lease, (tx, 0))
    [slot] = (await store.load(lease)).slots
    # Hashes that sort the other way round.
    bumps = [an_attempt(a_hash(text), 0, "a", kind=AttemptKind.BUMP) for text in ("zz", "mm", "00")]
    for bump in bumps:
        slot = slot.with_attempt(bump)
        await store.commit(Change(slots=(slot,), attempts=(bump,)), lease)
    [loaded] = (await store.load(lease)).slots
    assert loaded == slot
    assert loaded.newest == bumps[-1]


async def test_what_nodes_said_about_an_attempt_is_kept(store: Store) -> None:
    [tx] = await accept(store, "a")
    lease = await take(store)
    await assign(store, lease, (tx, 0))
    [attempt] = (await store.attempts(["a"]))["a"]
    answered = replace(attempt, sent_at=77, answer="accepted")
    await store.commit(Change(answered=(answered,)), lease)
    assert (await store.load(lease)).slots[0].attempts == (answered,)


async def test_the_lane_s_record_is_kept(store: Store) -> None:
    lease = await take(store)
    record = LaneRecord(
        key=LANE,
        next_nonce=9,
        settled_below=4,
        seen_block=100,
        incarnation=2,
        quarantined_below=30,
        attention=MARK,
    )
    await store.commit(Change(lane=record), lease)
    assert (await store.load(lease)).record == record
    summary = await store.lane(LANE)
    assert summary is not None
    assert summary.record == record


async def test_what_is_final_above_something_that_is_not_is_known_when_the_lane_is_loaded(store: Store) -> None:
    lease = await take(store)
    txs = await accept(store, "a", "b")
    assert (await store.load(lease)).final_below == 0
    await assign(store, lease, *((tx, nonce) for nonce, tx in enumerate(txs)))
    [_, upper] = (await store.load(lease)).slots
    await store.commit(Change(slots=(replace(upper, settled=True),)), lease)
    loaded = await store.load(lease)
    assert ([slot.nonce for slot in loaded.slots], loaded.final_below) == ([0], 2)


async def test_a_settled_slot_is_not_loaded_any_more_and_its_attempts_stay_known(store: Store) -> None:
    [tx] = await accept(store, "a")
    lease = await take(store)
    await assign(store, lease, (tx, 0))
    await settle(store, lease, "a")
    loaded = await store.load(lease)
    assert (list(loaded.slots), list(loaded.transactions)) == ([], [])
    assert len((await store.attempts(["a"]))["a"]) == 1


async def test_a_freed_nonce_can_be_bound_again(store: Store) -> None:
    first, second = await accept(store, "a", "b")
    lease = await take(store)
    [signed] = await assign(store, lease, (first, 0))
    making = work(lease)
    making.move(signed, Failed("nobody wants it"))
    making.free(a_slot(0))
    await store.commit(making.change(), lease)
    await assign(store, lease, (second, 0))
    [slot] = (await store.load(lease)).slots
    # What was signed for the first one is not the second one's.
    assert [attempt.tx_id for attempt in slot.attempts] == ["b"]


async def test_a_freed_filler_can_be_signed_again_with_the_very_same_bytes(store: Store) -> None:
    lease = await take(store)
    await store.commit(filler(lease, 0), lease)
    [slot] = (await store.load(lease)).slots
    await store.commit(Change(freed=(0,), answered=(replace(slot.newest, sent_at=1, answer="oversized_data"),)), lease)
    again = filler(lease, 0)
    forged = replace(again.attempts[0], raw=b"other bytes under the same hash")
    await refused(store, replace(again, attempts=(forged,)), lease)
    await store.commit(again, lease)
    [bound] = (await store.load(lease)).slots
    assert [attempt.hash for attempt in bound.attempts] == [slot.newest.hash]


@lesson("requeued-place")
async def test_a_requeued_transaction_keeps_its_place_and_gets_another_slot(store: Store) -> None:
    first, second = await accept(store, "a", "b")
    lease = await take(store)
    [signed] = await assign(store, lease, (first, 0))
    [slot] = (await store.load(lease)).slots
    making = work(lease)
    requeued = making.move(signed, Superseded("0xff"))
    making.settle(slot)
    await store.commit(making.change(), lease)
    assert list(await store.queued(LANE, limit=9)) == [requeued, second]
    await assign(store, lease, (requeued, 1))
    assert [(slot.nonce, slot.tx_id) for slot in (await store.load(lease)).slots] == [(1, "a")]


# strangers


async def test_a_stranger_is_kept_until_somebody_was_held_for_it_and_never_forgotten(store: Store) -> None:
    await accept(store, "a", "b")
    lease = await take(store)
    stranger = Stranger("0xf1", 3, "deed")
    await store.commit(Change(strangers=(stranger,)), lease)
    assert list((await store.load(lease)).strangers) == [stranger]
    await store.commit(Change(strangers=(replace(stranger, tx_id="a"),)), lease)
    assert list((await store.load(lease)).strangers) == []
    # Found once more by a later reconciliation: it has held its one.
    for again in (stranger, replace(stranger, tx_id="b")):
        await store.commit(Change(strangers=(again,)), lease)
        assert list((await store.load(lease)).strangers) == []


async def test_strangers_belong_to_their_lane(store: Store) -> None:
    ours, theirs = await take(store), await take(store, lane=OTHER_LANE)
    await store.commit(Change(strangers=(Stranger("0xf2", 4, "d"), Stranger("0xf1", 3, "d"))), ours)
    assert [stranger.nonce for stranger in (await store.load(ours)).strangers] == [3, 4]
    assert list((await store.load(theirs)).strangers) == []


async def test_who_has_a_nonce_next_has_nothing_of_what_was_signed_before_it_was_given_back(store: Store) -> None:
    lease = await take(store)
    first, second = (an_attempt(a_hash(name), 0, None, epoch=lease.epoch) for name in ("first", "second"))
    for attempt in (first, second):
        making = work(lease)
        making.bind(0, SlotKind.FILLER, attempt)
        await store.commit(making.change(), lease)
        [slot] = (await store.load(lease)).slots
        assert slot.attempts == (attempt,)
        await store.commit(Change(freed=(0,)), lease)
    # It stays known all the same: nobody else's bytes have this hash.
    assert await store.known_attempts([first.hash, second.hash]) == {first.hash, second.hash}
    # The same bytes, signed once more, are the slot's again.
    making = work(lease)
    making.bind(0, SlotKind.FILLER, first)
    await store.commit(making.change(), lease)
    [slot] = (await store.load(lease)).slots
    assert slot.attempts == (first,)
