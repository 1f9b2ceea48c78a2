"""What is committed is what is loaded, whatever the values."""

import asyncio
import string
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nonchalant.model import (
    Attempt,
    Attention,
    BlockRef,
    Change,
    Control,
    Event,
    Fees,
    LaneRecord,
    Payload,
    Receipt,
    Reply,
    Request,
    Reservation,
    Slot,
    Transaction,
)
from nonchalant.ports import Wished
from nonchalant.store.contract import SqlStore
from nonchalant.store.postgres import PostgresStore
from nonchalant.store.sqlite import SqliteStore
from nonchalant.values import replace
from nonchalant.wishes import Act, Bump, Cancel, Fill, Release, Replace, Reserve, Reset, Sync, Use, Wish
from nonchalant.words import AttemptKind, Mode, OnSuperseded, SlotKind, Speed, State, Wanted
from tests.examples import LANE
from tests.postgres import Cluster
from tests.store.acts import LIMITS, Counting, ManualClock, accept, assign, empty, on_postgres, take

# A real file where there is no disk to wait for.
QUICK = "/dev/shm" if Path("/dev/shm").is_dir() else None

NOW = ManualClock().now()

wei = st.integers(0, 2**256 - 1)
numbers = st.integers(0, 2**63 - 1)
ids = st.text(string.ascii_letters, min_size=1, max_size=20)
# Of NUL see the test at the end: not every database keeps it.
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
digits = "0123456789abcdef"
addresses = st.text(digits, min_size=40, max_size=40).map(lambda text: "0x" + text)
hashes = st.text(digits, min_size=64, max_size=64).map(lambda text: "0x" + text)
fees = st.builds(Fees, wei, st.none() | wei)
openings = st.builds(Fees, wei, st.none() | wei, st.just(False))  # only to begin with
json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
json_objects = st.dictionaries(texts, json, max_size=4)
attentions = st.builds(Attention, texts, texts, numbers)
payloads = st.builds(
    Payload,
    to=st.none() | addresses,
    value=wei,
    data=st.binary(max_size=64),
    gas=st.none() | numbers,
    access_list=st.lists(st.tuples(addresses, st.lists(hashes, max_size=3).map(tuple)), max_size=3).map(tuple),
    abi=st.none() | texts,
)
refs = st.builds(BlockRef, numbers, hashes)
receipts = st.builds(
    Receipt,
    hash=hashes,
    block=refs,
    succeeded=st.booleans(),
    gas_used=numbers,
    gas_price=wei,
    contract=st.none() | addresses,
    l1_fee=wei,
)
requests = st.builds(
    Request,
    id=ids,
    lane=st.just(LANE),
    payload=payloads,
    fees=st.sampled_from(Speed) | fees | openings,
    priority=st.integers(0, 9),
    simulate=st.booleans(),
    tenant=texts,
    idempotency_key=st.none() | texts,
    body_hash=texts,
    metadata=st.none() | json_objects,
    valid_until=st.none() | st.integers(NOW + 1, 2**63 - 1),
    confirmations=st.none() | st.integers(1, 2**63 - 1),
    on_superseded=st.none() | st.sampled_from(OnSuperseded),
)
records = st.builds(
    LaneRecord,
    key=st.just(LANE),
    next_nonce=st.just(2**63 - 1) | st.none(),
    settled_below=st.just(0),
    seen_block=numbers,
    seen_hash=st.none() | hashes,
    incarnation=numbers,
    quarantined_below=st.none() | numbers,
    window=st.none() | st.integers(1, 2**63 - 1),
    resets=numbers,
    confirmed_at=st.none() | numbers,
    unhealthy=st.none() | attentions,
    attention=st.none() | attentions,
)
acts: st.SearchStrategy[Act] = st.one_of(
    st.builds(Cancel, st.just("tx")),
    st.builds(Replace, st.just("tx"), payloads, st.none() | st.sampled_from(Speed) | fees | openings),
    st.builds(Bump, st.just("tx"), st.none() | st.sampled_from(Speed) | fees | openings),
    st.builds(Reserve, texts, numbers),
    st.builds(Use, numbers, texts, hashes, st.none() | st.binary(max_size=100)),
    st.builds(Release, numbers, texts),
    st.just(Sync()),
    st.builds(Fill, st.none() | numbers),
    st.builds(Reset, st.booleans()),
)
replies = st.builds(Reply, st.none() | texts, json_objects)


@st.composite
def attempts(draw: st.DrawFn, nonce: int, tx_id: str | None, newest: int = 7) -> list[Attempt]:
    """What was signed for one slot, of payloads up to the newest version."""
    kinds = [kind for kind in AttemptKind if (kind in (AttemptKind.FILLER, AttemptKind.OUTSIDE)) == (tx_id is None)]
    versions = [
        (kind, version)
        for kind in kinds
        for version in {0, 1, newest}
        if (kind in (AttemptKind.CANCEL, AttemptKind.FILLER)) == (version == 0)
    ]
    one = st.builds(
        lambda what, **fields: Attempt(kind=what[0], payload_version=what[1], **fields),
        st.sampled_from(versions),
        hash=hashes,
        nonce=st.just(nonce),
        tx_id=st.just(tx_id),
        fees=fees,
        gas=numbers,
        raw=st.binary(max_size=100),
        epoch=numbers,
        signed_at=numbers,
        floor=numbers,
        sent_at=st.none() | numbers,
        answer=st.none() | texts,
    )
    return draw(st.lists(one, min_size=1, max_size=3, unique_by=lambda attempt: attempt.hash))


@st.composite
def flights(draw: st.DrawFn) -> tuple[Request, dict[str, Any], Slot, list[Attempt]]:
    """A request, what becomes of its transaction, and its slot."""
    request = draw(requests)
    nonce = draw(st.integers(0, 2**63 - 2))
    earlier = draw(st.lists(payloads, max_size=2).map(tuple))
    signed = draw(attempts(nonce, request.id, newest=len(earlier) + 1))
    state = draw(st.sampled_from([State.SIGNED, State.SENT, State.MINED]))
    receipt = draw(receipts) if state is State.MINED else None
    fate: dict[str, Any] = {
        "state": state,
        "nonce": nonce,
        "hash": draw(hashes),
        "receipt": receipt,
        "deep": draw(st.none() | refs) if receipt else None,
        "forked": draw(st.booleans()),
        "attention": draw(st.none() | attentions),
        "updated_at": draw(numbers),
        "payload": draw(payloads),
        "earlier": earlier,
        "fees": draw(st.sampled_from(Speed) | fees | openings),
    }
    wanted = draw(st.sampled_from(Wanted))
    slot = Slot(
        nonce=nonce,
        kind=SlotKind.TRANSACTION,
        tx_id=request.id,
        attempts=tuple(signed),
        wanted=wanted,
        payload_version=draw(st.integers(1, 2**63 - 1)) if wanted is Wanted.PAYLOAD else 0,
        receipt=receipt,
    )
    return request, fate, slot, signed


class Bench:
    """A store that is empty each time."""

    def __init__(self, cluster: Cluster | None) -> None:
        self._cluster = cluster
        self._runner = asyncio.Runner()
        self._open: Any = None

    def run(self, scenario: Callable[[SqlStore], Awaitable[None]]) -> None:
        self._runner.run(self._on_sqlite(scenario) if self._cluster is None else self._on_postgres(scenario))

    async def _on_sqlite(self, scenario: Callable[[SqlStore], Awaitable[None]]) -> None:
        with tempfile.TemporaryDirectory(dir=QUICK) as folder:
            store = SqliteStore.open(Path(folder) / "n.db", clock=ManualClock(), entropy=Counting())
            try:
                await store.declare([LANE])
                await scenario(store)
            finally:
                await store.close()

    async def _on_postgres(self, scenario: Callable[[SqlStore], Awaitable[None]]) -> None:
        """One schema for all, emptied each time: to make one takes longer than the scenario."""
        assert self._cluster is not None
        if self._open is None:
            self._open = on_postgres(self._cluster, ManualClock())
            self._store: PostgresStore = await self._open.__aenter__()
        await empty(self._store)
        await self._store.declare([LANE])
        await scenario(self._store)

    def close(self) -> None:
        if self._open is not None:
            self._runner.run(self._open.__aexit__(None, None, None))
        self._runner.close()


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    bench = Bench(request.getfixturevalue("postgres") if request.param == "postgres" else None)
    yield bench
    bench.close()


@settings(max_examples=60)
@given(requests)
def test_a_request_is_read_as_it_was_accepted(bench: Bench, request: Request) -> None:
    async def scenario(store: SqlStore) -> None:
        [accepted] = await store.accept([request], limits=LIMITS)
        assert isinstance(accepted, Transaction)
        assert accepted.payload == request.payload
        assert (accepted.fees, accepted.metadata, accepted.tenant) == (request.fees, request.metadata, request.tenant)
        assert accepted.simulate == request.simulate
        assert await store.transaction(request.id) == accepted
        assert list(await store.queued(LANE, limit=1)) == [accepted]

    bench.run(scenario)


@settings(max_examples=60)
@given(flights(), records, json_objects, numbers)
def test_a_change_is_loaded_as_it_was_committed(
    bench: Bench,
    flight: tuple[Request, dict[str, Any], Slot, list[Attempt]],
    record: LaneRecord,
    data: dict[str, object],
    at: int,
) -> None:
    async def scenario(store: SqlStore) -> None:
        request, fate, slot, signed = flight
        [accepted] = await store.accept([request], limits=LIMITS)
        assert isinstance(accepted, Transaction)
        flying = replace(accepted, version=2, **fate)
        event = Event(kind="tx.sent", lane=LANE, at=at, tx_id=request.id, data=data)
        lease = await take(store)
        await store.commit(
            Change(
                transactions=(flying,),
                rewritten=frozenset({request.id}),
                slots=(slot,),
                attempts=tuple(signed),
                lane=record,
                events=(event,),
            ),
            lease,
        )
        loaded = await store.load(lease)
        assert loaded.record == record
        assert list(loaded.transactions) == [flying]
        assert list(loaded.slots) == [slot]
        assert (await store.attempts([request.id]))[request.id] == signed
        assert replace((await store.history(request.id))[-1], position=0) == event

    bench.run(scenario)


@settings(max_examples=60)
@given(attempts(3, None), st.none() | receipts, st.builds(Reservation, texts, numbers), st.booleans(), st.booleans())
def test_a_slot_without_a_transaction_is_loaded_as_it_was_committed(
    bench: Bench,
    signed: list[Attempt],
    receipt: Receipt | None,
    reservation: Reservation,
    is_filler: bool,
    was_reserved: bool,
) -> None:
    async def scenario(store: SqlStore) -> None:
        lease = await take(store)
        bound = tuple(one for one in signed if is_filler or one.kind is AttemptKind.OUTSIDE)
        before = tuple(one for one in signed if one not in bound)
        if before:  # a filler that had the nonce, and gave it back
            filler = Slot(nonce=3, kind=SlotKind.FILLER, tx_id=None, attempts=before, payload_version=0)
            await store.commit(Change(slots=(filler,), attempts=before), lease)
            await store.commit(Change(freed=(3,)), lease)
        slot = Slot(
            nonce=3,
            kind=SlotKind.FILLER if is_filler else SlotKind.RESERVATION,
            tx_id=None,
            attempts=bound,
            payload_version=0 if is_filler else 1,
            reservation=None if is_filler and not was_reserved else reservation,
            receipt=receipt,
        )
        await store.commit(Change(slots=(slot,), attempts=bound), lease)
        assert list((await store.load(lease)).slots) == [slot]

    bench.run(scenario)


@settings(max_examples=60)
@given(st.lists(st.tuples(ids, acts), max_size=4, unique_by=lambda one: one[0]), replies)
def test_wishes_are_read_and_answered_as_they_were_written(
    bench: Bench, wished: list[tuple[str, Act]], reply: Reply
) -> None:
    async def scenario(store: SqlStore) -> None:
        [tx] = await accept(store, "tx")
        lease = await take(store)
        await assign(store, lease, (tx, 0))
        wishes = [Wish(id, LANE, act) for id, act in wished]
        for wish in wishes:
            assert await store.wish(wish, limit=99) is Wished.TAKEN
        assert list((await store.orders(LANE)).wishes) == wishes
        await store.commit(Change(granted={wish.id: reply for wish in wishes}), lease)
        assert [await store.reply(wish.id) for wish in wishes] == [reply for _ in wishes]
        assert list((await store.orders(LANE)).wishes) == []

    bench.run(scenario)


@settings(max_examples=60)
@given(st.sampled_from(Mode), texts)
def test_a_control_is_read_as_it_was_said(bench: Bench, mode: Mode, reason: str) -> None:
    async def scenario(store: SqlStore) -> None:
        await store.control(LANE, mode, reason)
        assert (await store.orders(LANE)).control == Control(mode, reason, NOW)

    bench.run(scenario)


def test_a_nul_in_what_somebody_says_stops_nothing(bench: Bench) -> None:
    async def scenario(store: SqlStore) -> None:
        await store.control(LANE, Mode.PAUSED, "so\0what")
        assert (await store.orders(LANE)).control.reason in ("so\0what", "so\ufffdwhat")

    bench.run(scenario)
