"""Wishes: what people want of what only the lane's owner may write. Anybody writes them down, the owner answers."""

import pytest

from nonchalant.errors import LeaseLost, RowMoved
from nonchalant.lifecycle import Confirmed, Included
from nonchalant.model import Change, Event, LaneRecord, Lease, Payload, Reply
from nonchalant.ports import LaneWork, Store, Wished
from nonchalant.values import replace
from nonchalant.wishes import Act, Bump, Cancel, Fill, Replace, Sync, Wish
from nonchalant.words import Speed
from tests.examples import LANE, a_receipt
from tests.store.acts import OTHER_LANE, TTL, ManualClock, accept, assign, everything, take, work


async def in_flight(store: Store, *ids: str) -> Lease:
    """These have a slot each."""
    lease = await take(store)
    await assign(store, lease, *((tx, nonce) for nonce, tx in enumerate(await accept(store, *ids))))
    return lease


async def wish(store: Store, id: str, act: Act, *, limit: int = 99) -> Wished:
    return await store.wish(Wish(id, LANE, act), limit=limit)


async def open_wishes(store: Store) -> list[str]:
    return [wish.id for wish in (await store.orders(LANE)).wishes]


async def answer(store: Store, lease: Lease, *ids: str, refused: str | None = None) -> None:
    await store.commit(Change(granted={id: Reply(refused, {"n": 1}) for id in ids}), lease)


# writing them down


async def test_wishes_are_read_in_the_order_in_which_they_were_made(store: Store) -> None:
    await in_flight(store, "a", "b")
    acts = [Cancel("b"), Bump("a", Speed.FAST), Replace("a", Payload(to=None)), Sync(), Cancel("a")]
    for id, act in zip("zcbya", acts, strict=True):
        assert await wish(store, id, act) is Wished.TAKEN
    assert list((await store.orders(LANE)).wishes) == [
        Wish(id, LANE, act) for id, act in zip("zcbya", acts, strict=True)
    ]


async def test_a_wish_is_the_lane_s_it_is_about(store: Store) -> None:
    await wish(store, "w", Sync())
    assert (await store.orders(OTHER_LANE)).wishes == []


@pytest.mark.parametrize("act", [Cancel("a"), Bump("a"), Replace("a", Payload(to=None))], ids=repr)
async def test_a_wish_about_a_transaction_is_taken_only_while_that_has_a_slot(store: Store, act: Act) -> None:
    assert await wish(store, "nobody", act) is Wished.NOT_NOW
    [tx] = await accept(store, "a")
    assert await wish(store, "queued", act) is Wished.NOT_NOW
    lease = await take(store)
    [signed] = await assign(store, lease, (tx, 0))
    assert await wish(store, "signed", act) is Wished.TAKEN
    [slot] = (await store.load(lease)).slots
    mining = work(lease)
    mined = mining.move(signed, Included(a_receipt(signed.hash)))
    await store.commit(mining.change(), lease)
    assert await wish(store, "mined", act) is Wished.TAKEN
    ending = work(lease)
    ending.move(mined, Confirmed())
    ending.settle(slot)
    await store.commit(ending.change(), lease)
    assert await wish(store, "ended", act) is Wished.NOT_NOW
    assert await open_wishes(store) == ["signed", "mined"]


async def test_repeating_a_wish_with_the_same_id_is_one_wish(store: Store) -> None:
    """The caller did not learn whether its commit happened."""
    lease = await in_flight(store, "a")
    assert [await wish(store, "w", Cancel("a")) for _ in range(3)] == [Wished.TAKEN] * 3
    assert await open_wishes(store) == ["w"]
    await answer(store, lease, "w")
    assert await wish(store, "w", Cancel("a")) is Wished.TAKEN
    assert await open_wishes(store) == []
    assert await store.reply("w") == Reply(None, {"n": 1})


async def test_a_lane_has_a_limit_of_open_wishes_and_answered_ones_make_room(store: Store) -> None:
    lease = await take(store)
    assert [await wish(store, f"w{n}", Fill(n), limit=2) for n in range(3)] == [
        Wished.TAKEN,
        Wished.TAKEN,
        Wished.TOO_MANY,
    ]
    # What was taken is known at the limit too; another lane has a limit of its own.
    assert await wish(store, "w1", Fill(1), limit=2) is Wished.TAKEN
    assert await store.wish(Wish("x", OTHER_LANE, Sync()), limit=2) is Wished.TAKEN
    await answer(store, lease, "w0")
    assert await wish(store, "w2", Fill(2), limit=2) is Wished.TAKEN


async def test_an_owner_reads_the_oldest_wishes_first_and_not_all_at_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nonchalant.store.wishing.WISHES_AT_ONCE", 2)
    lease = await take(store)
    for number in range(3):
        await wish(store, f"w{number}", Fill(number))
    assert await open_wishes(store) == ["w0", "w1"]
    await answer(store, lease, "w0", "w1")
    assert await open_wishes(store) == ["w2"]


async def test_an_open_wish_is_work_and_an_answered_one_is_not(store: Store) -> None:
    assert await store.lanes_with_work() == []
    await wish(store, "w", Sync())
    assert await store.lanes_with_work() == [LaneWork(LANE, None)]
    lease = await take(store)
    await answer(store, lease, "w")
    assert await store.lanes_with_work() == []


# answering


async def test_nothing_is_answered_before_the_owner_does(store: Store) -> None:
    await wish(store, "w", Sync())
    assert await store.reply("w") is None
    assert await store.reply("unknown") is None


@pytest.mark.parametrize("refused", [None, "underpriced"])
async def test_the_answer_is_true_with_the_commit_that_grants_it(store: Store, refused: str | None) -> None:
    lease = await take(store)
    await wish(store, "w", Sync())
    await answer(store, lease, "w", refused=refused)
    assert await store.reply("w") == Reply(refused, {"n": 1})


async def test_an_answer_is_given_once(store: Store) -> None:
    lease = await take(store)
    await wish(store, "w", Sync())
    await answer(store, lease, "w")
    before = await everything(store)
    told = Event(kind="lane.filled", lane=LANE, at=1)
    with pytest.raises(RowMoved):
        await store.commit(
            Change(granted={"w": Reply("no")}, lane=LaneRecord(key=LANE, resets=9), events=(told,)), lease
        )
    assert await everything(store) == before
    assert await store.reply("w") == Reply(None, {"n": 1})


async def test_the_owner_of_one_lane_answers_no_wish_of_another(store: Store) -> None:
    await wish(store, "w", Sync())
    with pytest.raises(RowMoved):
        await answer(store, await take(store, lane=OTHER_LANE), "w")
    assert await store.reply("w") is None


async def test_an_owner_that_lost_its_lease_answers_nothing(store: Store, clock: ManualClock) -> None:
    lease = await take(store)
    await wish(store, "w", Sync())
    clock.pass_seconds(TTL)
    with pytest.raises(LeaseLost):
        await answer(store, lease, "w")
    assert await open_wishes(store) == ["w"]


async def test_a_wish_that_was_taken_back_is_not_granted_and_a_granted_one_not_taken_back(store: Store) -> None:
    lease = await take(store)
    for id in ("kept", "taken back"):
        await wish(store, id, Sync())
    assert await store.withdraw("taken back")
    assert await store.withdraw("taken back")  # whoever did not hear that it is done asks again
    with pytest.raises(RowMoved):
        await answer(store, lease, "taken back")
    await answer(store, lease, "kept")
    assert not await store.withdraw("kept")
    assert await store.reply("kept") is not None


async def test_answers_are_dropped_after_a_time_and_open_wishes_never(store: Store, clock: ManualClock) -> None:
    lease = await take(store)
    for id in ("open", "old"):
        await wish(store, id, Sync())
    await answer(store, lease, "old")
    clock.pass_seconds(5)
    await wish(store, "young", Sync())
    await answer(store, lease, "young")
    assert await store.forget_replies(older_than=5_001) == 0
    assert await store.forget_replies(older_than=4_999) == 1
    assert (await store.reply("old"), await store.reply("young")) == (None, Reply(None, {"n": 1}))
    assert await open_wishes(store) == ["open"]


# what the owner writes when it grants one


async def test_a_replaced_payload_is_written_only_where_the_change_says_so(store: Store) -> None:
    lease = await in_flight(store, "a")
    [tx] = (await store.load(lease)).transactions
    other = Payload(to=None, value=9)
    changed = replace(tx, version=tx.version + 1, payload=other, earlier=(tx.payload,), fees=Speed.FAST)
    await store.commit(Change(transactions=(changed,)), lease)
    assert (await store.load(lease)).transactions == [replace(tx, version=tx.version + 1)]
    again = replace(changed, version=tx.version + 2)
    await store.commit(Change(transactions=(again,), rewritten=frozenset({"a"})), lease)
    assert (await store.load(lease)).transactions == [again]
    assert await store.transaction("a") == again
