"""A row that somebody or something spoilt does not stop its lane, nor hide the others."""

import pytest
from structlog.testing import capture_logs

from nonchalant import fees as prices
from nonchalant.errors import StoreUnavailable
from nonchalant.fees import FeeRules
from nonchalant.lifecycle import Broadcast, Confirmed, Included, Superseded
from nonchalant.model import Change, Fees, Lease, Market, Payload, Receipt, Stranger, Transaction
from nonchalant.ports import Filter, Store
from nonchalant.values import replace
from nonchalant.wishes import Bump, Cancel, Sync, Wish
from nonchalant.words import AttemptKind, Speed, State
from tests.examples import LANE, a_hash, a_receipt, an_attempt
from tests.lessons import lesson
from tests.store.acts import ManualClock, accept, assign, filler, sql, take, work

SPOILT = [
    ("payload", "{"),
    ("payload", "{}"),
    ("payload", ""),
    ("fees", "{"),
    ("fees", ""),
    ("metadata", "{"),
    ("attention", "{"),
    ("attention", "[1]"),
]


async def spoil(store: Store, column: str, text: str, id: str = "bad") -> None:
    assert len(await sql(store, f"UPDATE transactions SET {column} = ? WHERE id = ? RETURNING id", text, id)) == 1


async def spoil_event(store: Store, *positions: int) -> None:
    for position in positions:
        assert len(await sql(store, "UPDATE events SET data = '{' WHERE position = ? RETURNING 1", position)) == 1


async def in_flight(store: Store) -> tuple[Lease, Transaction, Transaction]:
    lease = await take(store)
    bad, good = await accept(store, "bad", "good")
    bad, good = await assign(store, lease, (bad, 0), (good, 1))
    bump = an_attempt(a_hash("bump"), 0, "bad", kind=AttemptKind.BUMP, fees=Fees(120, 12))
    [slot, _] = (await store.load(lease)).slots
    await store.commit(Change(slots=(slot.with_attempt(bump),), attempts=(bump,)), lease)
    return lease, bad, good


async def loaded(store: Store, lease: Lease) -> Transaction:
    [found] = [tx for tx in (await store.load(lease)).transactions if tx.id == "bad"]
    return found


# a row with a slot


@pytest.mark.parametrize(("column", "text"), SPOILT)
async def test_a_row_with_a_slot_is_loaded_as_a_stand_in_among_the_others(store: Store, column: str, text: str) -> None:
    lease, bad, good = await in_flight(store)
    whole = await store.load(lease)
    await spoil(store, column, text)
    with capture_logs() as logs:
        again = await store.load(lease)
        await store.load(lease)
    assert again.slots == whole.slots
    found, other = sorted(again.transactions, key=lambda tx: tx.id)
    assert other == good
    assert (found.id, found.state, found.version, found.nonce, found.hash) == ("bad", State.SIGNED, 2, 0, bad.hash)
    assert found.metadata is None
    assert found.attention is not None
    assert found.attention.code == "undecodable"
    assert [(entry["event"], entry["log_level"], entry["tx"]) for entry in logs] == [
        ("row.undecodable", "warning", "bad")
    ]


@pytest.mark.parametrize(("column", "text"), SPOILT)
async def test_a_stand_in_is_never_repriced(store: Store, column: str, text: str) -> None:
    lease, _, _ = await in_flight(store)
    await spoil(store, column, text)
    found = await loaded(store, lease)
    assert found.fees == Fees(120, 12)
    for base_fee in (None, 0, 10**12):
        market = Market(base_fee=base_fee, gas_price=10**12, priority=dict.fromkeys(Speed, 10**9))
        assert prices.raised(Fees(120, 12), found.fees, market, FeeRules()) is None


async def test_a_payload_that_can_be_read_is_kept_so_that_whoever_did_the_same_is_recognised(
    store: Store,
) -> None:
    lease, bad, _ = await in_flight(store)
    await spoil(store, "attention", "{")
    assert (await loaded(store, lease)).payload == bad.payload
    await spoil(store, "payload", "{")
    assert (await loaded(store, lease)).payload == Payload(to=None)


@pytest.mark.parametrize(("column", "text"), SPOILT)
async def test_a_stand_in_goes_its_way_to_the_end(store: Store, column: str, text: str) -> None:
    lease, bad, _ = await in_flight(store)
    await spoil(store, column, text)
    sending = work(lease)
    sending.move(await loaded(store, lease), Broadcast())
    await store.commit(sending.change(), lease)
    mining = work(lease)
    mining.move(await loaded(store, lease), Included(a_receipt(str(bad.hash))))
    await store.commit(mining.change(), lease)
    found = await loaded(store, lease)
    assert found.receipt == a_receipt(str(bad.hash))
    settling = work(lease)
    settling.move(found, Confirmed())
    settling.settle((await store.load(lease)).slots[0])
    await store.commit(settling.change(), lease)
    assert [slot.nonce for slot in (await store.load(lease)).slots] == [1]
    [row] = await sql(store, f"SELECT state, {column} FROM transactions WHERE id = 'bad'")
    assert row["state"] == "confirmed"
    # What a stand-in says in its place is never written.
    assert column == "attention" or row[column] == text


async def test_a_stand_in_that_lost_its_nonce_is_held_and_not_sent_as_something_else(store: Store) -> None:
    lease, _, _ = await in_flight(store)
    await spoil(store, "payload", "{")
    found = await store.load(lease)
    making = work(lease)
    making.move(await loaded(store, lease), Superseded(a_hash("somebody")))
    making.settle(found.slots[0])
    await store.commit(making.change(), lease)
    assert await store.queued(LANE, limit=9) == []
    [row] = await sql(store, "SELECT held FROM transactions WHERE id = 'bad'")
    assert row["held"]


async def test_a_mined_row_without_a_readable_receipt_waits_for_it_again(store: Store) -> None:
    """It stood in the way of its whole lane once."""
    lease, bad, good = await in_flight(store)
    mining = work(lease)
    [mined] = [mining.move(bad, Included(a_receipt(str(bad.hash))))]
    await store.commit(mining.change(), lease)
    await spoil(store, "receipt", "{")
    found = await store.load(lease)
    again = await loaded(store, lease)
    assert (again.state, again.receipt, again.attention and again.attention.code) == (State.SENT, None, "undecodable")
    assert [slot.receipt for slot in found.slots] == [None, None]
    assert good in found.transactions
    # The chain shows it once more, and the row is whole again.
    making = work(lease)
    making.move(again, Included(a_receipt(str(bad.hash))))
    making.move(again, Confirmed())
    making.settle(found.slots[0])
    await store.commit(making.change(), lease)
    ended = await store.transaction("bad")
    assert ended is not None
    assert (ended.state, ended.receipt) == (State.CONFIRMED, mined.receipt)


async def test_a_filler_whose_receipt_cannot_be_read_waits_for_it_again(store: Store) -> None:
    lease = await take(store)
    await store.commit(filler(lease, 0), lease)
    [slot] = (await store.load(lease)).slots
    receipt: Receipt = a_receipt(slot.newest.hash)
    making = work(lease)
    making.include(slot, receipt)
    await store.commit(making.change(), lease)
    await sql(store, "UPDATE slots SET receipt = '{'")
    assert (await store.load(lease)).slots == [slot]


# readers


@pytest.mark.parametrize(("column", "text"), SPOILT)
async def test_a_listing_leaves_out_what_cannot_be_read_and_says_so_once(store: Store, column: str, text: str) -> None:
    await accept(store, "a", "bad", "c")
    await spoil(store, column, text)
    with capture_logs() as logs:
        for _ in range(2):
            assert [tx.id for tx in await store.transactions(Filter())] == ["c", "a"]
    assert [(entry["event"], entry["tx"]) for entry in logs] == [("row.undecodable", "bad")]


async def test_a_page_is_short_only_at_the_end_of_a_listing(store: Store) -> None:
    ids = [f"tx{number}" for number in range(9)]
    await accept(store, *ids)
    for number in (0, 2, 3, 4, 5, 8):
        await spoil(store, "payload", "{", f"tx{number}")
    assert [tx.id for tx in await store.transactions(Filter(limit=2))] == ["tx7", "tx6"]
    assert [tx.id for tx in await store.transactions(Filter(limit=2, before=7))] == ["tx1"]
    assert [tx.id for tx in await store.transactions(Filter(limit=1, before=7, sender=LANE.address))] == ["tx1"]
    assert await store.transactions(Filter(limit=2, before=2)) == []


async def test_a_row_asked_for_by_name_is_said_to_be_unreadable(store: Store) -> None:
    await accept(store, "bad")
    await spoil(store, "metadata", "{")
    with pytest.raises(StoreUnavailable, match="the row of transaction bad cannot be read; restore it"):
        await store.transaction("bad")


async def test_a_history_leaves_out_an_event_that_cannot_be_read(store: Store) -> None:
    await in_flight(store)
    first, *others = await store.history("bad")
    await spoil_event(store, first.position)
    with capture_logs() as logs:
        assert await store.history("bad") == others
    assert [(entry["event"], entry["position"]) for entry in logs] == [("row.undecodable", first.position)]


async def test_readers_of_events_get_past_a_whole_batch_that_cannot_be_read(store: Store) -> None:
    await accept(store, *(f"tx{number}" for number in range(6)))
    events = list(await store.events_after(0, limit=99))
    await spoil_event(store, *(event.position for event in events[1:4]), events[5].position)
    assert await store.events_after(0, limit=1) == events[:1]
    assert await store.events_after(events[0].position, limit=2) == [events[4]]
    assert await store.events_after(events[4].position, limit=2) == []


# wishes


@lesson("poisonous-row")
@pytest.mark.parametrize(
    ("column", "text"), [("body", "{"), ("body", "[]"), ("body", "{}"), ("kind", "fly"), ("body", '{"fees": "x"}')]
)
async def test_a_wish_that_cannot_be_read_is_refused_and_does_not_stay_for_ever(
    store: Store, column: str, text: str
) -> None:
    await in_flight(store)
    for id, act in (("w1", Cancel("good")), ("w2", Bump("bad")), ("w3", Sync())):
        await store.wish(Wish(id, LANE, act), limit=9)
    await sql(store, f"UPDATE wishes SET {column} = ? WHERE id = 'w2'", text)
    with capture_logs() as logs:
        for _ in range(2):
            assert [wish.id for wish in (await store.orders(LANE)).wishes] == ["w1", "w3"]
    assert [(entry["event"], entry["wish"]) for entry in logs] == [("row.undecodable", "w2")]
    refused = await store.reply("w2")
    assert refused is not None
    assert refused.refused == "undecodable"
    [left] = await sql(store, "SELECT count(*) AS n FROM wishes WHERE reply IS NULL")
    assert left["n"] == 2


async def test_a_spoilt_row_past_its_deadline_ends_unless_it_may_have_run(store: Store, clock: ManualClock) -> None:
    """Nobody can compare it with what a lost commit may have done: a person has to look."""
    [bad] = await accept(store, "bad", valid_until=clock.now() + 1_000)
    stranger = Stranger("0xf1", 3, "something else, for all that can be read")
    await store.commit(Change(strangers=(stranger,)), await take(store))
    await spoil(store, "payload", "{")
    clock.pass_seconds(1)
    assert await store.overdue(limit=9) == []
    [row] = await sql(store, "SELECT state FROM transactions WHERE id = ?", bad.id)
    assert row["state"] == "queued"
    await store.commit(Change(strangers=(replace(stranger, tx_id="somebody"),)), await take(store))
    assert await store.overdue(limit=9) == []
    [row] = await sql(store, "SELECT state FROM transactions WHERE id = ?", bad.id)
    assert row["state"] == "expired"
