"""Group commit: requests share commits, nobody waits for nothing, and an unclear commit is repeated safely."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

import pytest

from nonchalant import intake as intake_module
from nonchalant.arrivals import Caller
from nonchalant.errors import (
    BadRequest,
    CommitUnknown,
    KeyReused,
    QueueFull,
    RowMoved,
    ShuttingDown,
    StoreUnavailable,
)
from nonchalant.intake import BATCH, TRIES, Intake
from nonchalant.model import Request, Transaction
from nonchalant.ports import Acceptance, Filter, Store
from nonchalant.words import LaneKey, Mode, State
from tests.examples import LANE, a_request, a_transaction
from tests.store.acts import LIMITS, OTHER_LANE, ManualClock


class Gated:
    """The real store's `accept`, with a gate before it, a note of every batch, and trouble before or after it."""

    def __init__(self, store: Store) -> None:
        self.batches: list[list[str]] = []
        self.entered = asyncio.Event()
        self.open = asyncio.Event()
        self.open.set()
        self.before: list[Exception | None] = []
        self.after: list[Exception] = []
        self._store = store

    async def accept(self, requests: Sequence[Request], *, limits: Mapping[LaneKey, int]) -> Sequence[Acceptance]:
        self.batches.append([request.id for request in requests])
        self.entered.set()
        await self.open.wait()
        if self.before and (error := self.before.pop(0)):
            raise error
        answers = await self._store.accept(requests, limits=limits)
        if self.after:
            raise self.after.pop(0)
        return answers

    async def accept_together(
        self, requests: Sequence[Request], *, limits: Mapping[LaneKey, int]
    ) -> Sequence[Acceptance]:
        return await self._store.accept_together(requests, limits=limits)


@pytest.fixture
def gated(store: Store) -> Gated:
    return Gated(store)


@pytest.fixture
def arrivals() -> list[LaneKey]:
    return []


@pytest.fixture
def intake(gated: Gated, clock: ManualClock, arrivals: list[LaneKey]) -> Intake:
    return Intake(gated, clock, limits=LIMITS, arrived=arrivals.append, offer=lambda _caller: False)  # type: ignore[arg-type]


async def test_an_idle_system_commits_a_request_at_once_and_alone(intake: Intake, gated: Gated) -> None:
    tx, new = await intake.submit(a_request("a"))
    assert (tx.id, new) == ("a", True)
    await intake.submit(a_request("b"))
    assert gated.batches == [["a"], ["b"]]


async def test_requests_that_come_while_a_commit_is_under_way_share_the_next_one(intake: Intake, gated: Gated) -> None:
    gated.open.clear()
    first = asyncio.create_task(intake.submit(a_request("first")))
    await gated.entered.wait()
    ids = [f"tx{number}" for number in range(100)]
    rest = [asyncio.create_task(intake.submit(a_request(id))) for id in ids]
    await asyncio.sleep(0)
    assert len(gated.batches) == 1
    gated.open.set()
    await asyncio.gather(first, *rest)
    assert gated.batches == [["first"], ids]


async def test_a_batch_has_a_limit(intake: Intake, gated: Gated, store: Store) -> None:
    gated.open.clear()
    first = asyncio.create_task(intake.submit(a_request("first")))
    await gated.entered.wait()
    rest = [asyncio.create_task(intake.submit(a_request(f"{number}"))) for number in range(BATCH + 1)]
    await asyncio.sleep(0)
    gated.open.set()
    await asyncio.gather(first, *rest)
    assert [len(batch) for batch in gated.batches] == [1, BATCH, 1]
    assert len(await store.transactions(Filter(limit=10_000))) == BATCH + 2


async def test_a_thousand_retries_at_once_make_one_transaction(intake: Intake, gated: Gated, store: Store) -> None:
    retries = [intake.submit(a_request(f"tx{number}", idempotency_key="invoice-42")) for number in range(1_000)]
    answers = await asyncio.gather(*retries)
    assert len({tx.id for tx, _ in answers}) == 1
    assert sum(new for _, new in answers) == 1
    assert len(await store.transactions(Filter(limit=10))) == 1
    assert len(gated.batches) < 10


async def test_a_key_of_another_request_is_refused_and_its_neighbours_are_not(intake: Intake) -> None:
    await intake.submit(a_request("a", idempotency_key="k", body_hash="x"))
    outcomes = await asyncio.gather(
        intake.submit(a_request("b")),
        intake.submit(a_request("c", idempotency_key="k", body_hash="y")),
        intake.submit(a_request("d")),
        return_exceptions=True,
    )
    assert isinstance(outcomes[1], KeyReused)
    assert [outcome[0].id for outcome in (outcomes[0], outcomes[2]) if not isinstance(outcome, BaseException)] == [
        "b",
        "d",
    ]


async def test_a_full_lane_is_told_with_its_limit(gated: Gated, clock: ManualClock) -> None:
    intake = Intake(gated, clock, limits={LANE: 1}, arrived=lambda lane: None, offer=lambda _caller: False)  # type: ignore[arg-type]
    await intake.submit(a_request("a"))
    with pytest.raises(QueueFull, match=r"1 transactions wait in lane 7:0xa1"):
        await intake.submit(a_request("b"))


async def test_one_request_that_cannot_be_stored_fails_alone(intake: Intake, gated: Gated, store: Store) -> None:
    gated.open.clear()
    first = asyncio.create_task(intake.submit(a_request("first")))
    await gated.entered.wait()
    rest = [
        asyncio.create_task(intake.submit(request))
        for request in (a_request("a"), a_request("bad", priority=10), a_request("ugly\ud800"), a_request("b"))
    ]
    await asyncio.sleep(0)
    gated.open.set()
    await first
    good, bad, ugly, also_good = await asyncio.gather(*rest, return_exceptions=True)
    assert isinstance(bad, RowMoved)
    assert isinstance(ugly, ValueError)  # it cannot be encoded
    assert not isinstance(good, BaseException)
    assert not isinstance(also_good, BaseException)
    assert {tx.id for tx in await store.transactions(Filter())} == {"first", "a", "b"}


async def test_a_lane_without_a_limit_fails_its_request_and_nobody_hangs(intake: Intake) -> None:
    with pytest.raises(KeyError):
        await intake.submit(a_request("a", lane=LaneKey(1, "0x00")))
    await intake.submit(a_request("b"))


async def test_a_caller_that_goes_away_leaves_its_request_and_its_neighbours_alone(
    intake: Intake, gated: Gated, store: Store
) -> None:
    gated.open.clear()
    gone = asyncio.create_task(intake.submit(a_request("gone")))
    await gated.entered.wait()
    leaving, staying = (asyncio.create_task(intake.submit(a_request(id))) for id in ("leaving", "staying"))
    await asyncio.sleep(0)
    gone.cancel()
    leaving.cancel()
    gated.open.set()
    tx, _ = await staying
    assert tx.id == "staying"
    assert {found.id for found in await store.transactions(Filter())} == {"gone", "leaving", "staying"}


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_commit_of_unknown_outcome_is_repeated_with_the_same_ids(
    intake: Intake, gated: Gated, store: Store, when: str
) -> None:
    trouble: list[Exception] = [CommitUnknown(), CommitUnknown()]
    setattr(gated, when, trouble)
    answers = await asyncio.gather(
        intake.submit(a_request("a", idempotency_key="k")),
        intake.submit(a_request("b", idempotency_key="k")),
        intake.submit(a_request("c")),
    )
    assert gated.batches == [["a", "b", "c"]] * 3
    assert [(tx.id, new) for tx, new in answers] == [("a", True), ("a", False), ("c", True)]
    assert len(await store.transactions(Filter())) == 2
    assert len(await store.history("a")) == 1


async def test_a_store_that_stays_away_is_told_to_everybody_and_the_next_try_works(
    intake: Intake, gated: Gated, store: Store
) -> None:
    gated.before = [StoreUnavailable() for _ in range(TRIES)]
    outcomes = await asyncio.gather(
        intake.submit(a_request("a")), intake.submit(a_request("b")), return_exceptions=True
    )
    assert [type(outcome) for outcome in outcomes] == [StoreUnavailable, StoreUnavailable]
    assert await store.transactions(Filter()) == []
    await intake.submit(a_request("a"))
    assert [tx.id for tx in await store.transactions(Filter())] == ["a"]


async def test_once_an_outcome_is_unknown_a_store_that_then_stays_away_does_not_take_that_back(
    intake: Intake, gated: Gated, store: Store
) -> None:
    """It was written the first time: who hears that nothing was pays twice."""
    gated.before, gated.after = [None, *(StoreUnavailable() for _ in range(TRIES - 1))], [CommitUnknown()]
    with pytest.raises(CommitUnknown):
        await intake.submit(a_request("a"))
    assert await store.transaction("a") is not None


async def test_only_what_is_new_wakes_its_lane(intake: Intake, arrivals: list[LaneKey]) -> None:
    await intake.submit(a_request("a", idempotency_key="k"))
    await intake.submit(a_request("b", idempotency_key="k"))
    await intake.submit(a_request("c", lane=OTHER_LANE))
    assert arrivals == [LANE, OTHER_LANE]


async def test_closing_answers_what_was_taken_and_takes_nothing_more(intake: Intake, gated: Gated) -> None:
    gated.open.clear()
    taken = [asyncio.create_task(intake.submit(a_request(id))) for id in ("a", "b")]
    await gated.entered.wait()
    late = asyncio.create_task(intake.submit(a_request("c")))
    await asyncio.sleep(0)
    closing = asyncio.create_task(intake.close())
    await asyncio.sleep(0)
    assert not closing.done()
    with pytest.raises(ShuttingDown):
        await intake.submit(a_request("d"))
    gated.open.set()
    await closing
    assert all(task.done() for task in (*taken, late))
    assert [(await task)[0].id for task in (*taken, late)] == ["a", "b", "c"]


async def test_an_idle_intake_closes_at_once(intake: Intake) -> None:
    await intake.close()
    with pytest.raises(ShuttingDown):
        await intake.submit(a_request("a"))


async def test_too_many_callers_are_told_to_come_back_and_those_before_them_are_served(
    intake: Intake, gated: Gated, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake_module, "MAX_WAITING", 2)
    gated.open.clear()
    first = asyncio.create_task(intake.submit(a_request("first")))
    await gated.entered.wait()
    waiting = [asyncio.create_task(intake.submit(a_request(id))) for id in ("a", "b")]
    await asyncio.sleep(0)
    with pytest.raises(QueueFull, match="try again in a moment"):
        await intake.submit(a_request("c"))
    gated.open.set()
    assert [(await task)[0].id for task in (first, *waiting)] == ["first", "a", "b"]


# what was offered to the lane's own node first


class Desk:
    """A lane's owner, as intake meets it: whoever is offered waits here for what a test says."""

    def __init__(self) -> None:
        self.callers: dict[str, Caller] = {}

    def offer(self, caller: Caller) -> bool:
        self.callers[caller.request.id] = caller
        return True


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def offering(gated: Gated, clock: ManualClock, arrivals: list[LaneKey], desk: Desk) -> Intake:
    limits = {LANE: 1, OTHER_LANE: 1_000}
    return Intake(gated, clock, limits=limits, arrived=arrivals.append, offer=desk.offer)  # type: ignore[arg-type]


async def offered(intake: Intake, desk: Desk, request: Request) -> asyncio.Task[tuple[Transaction, bool]]:
    task = asyncio.create_task(intake.submit(request))
    await asyncio.sleep(0)
    assert request.id in desk.callers
    return task


async def test_what_its_owner_signed_at_once_is_the_answer_and_the_queue_hears_nothing(
    offering: Intake, gated: Gated, desk: Desk, arrivals: list[LaneKey]
) -> None:
    asking = await offered(offering, desk, a_request("a"))
    signed = a_transaction("a", state=State.SIGNED, nonce=0, hash="0xaa")
    desk.callers["a"].admitted(signed)
    assert await asking == (signed, True)
    assert gated.batches == []
    assert arrivals == []


async def test_whom_its_owner_sends_away_is_queued_under_the_same_id(
    offering: Intake, gated: Gated, desk: Desk, arrivals: list[LaneKey]
) -> None:
    asking = await offered(offering, desk, a_request("a"))
    desk.callers["a"].sent_away()
    tx, is_new = await asking
    assert (tx.id, tx.state, is_new) == ("a", State.QUEUED, True)
    assert gated.batches == [["a"]]
    assert arrivals == [LANE]


async def test_without_a_doubt_a_refusal_of_the_queue_is_told_as_it_is(
    offering: Intake, desk: Desk, store: Store, clock: ManualClock
) -> None:
    await store.accept([a_request("waits")], limits=LIMITS)
    full = await offered(offering, desk, a_request("a"))
    desk.callers["a"].sent_away()
    with pytest.raises(QueueFull):
        await full
    late = await offered(offering, desk, a_request("late", lane=OTHER_LANE, valid_until=clock.now() - 1))
    desk.callers["late"].sent_away()
    with pytest.raises(BadRequest):
        await late


async def _fill(store: Store, _: ManualClock) -> None:
    await store.accept([a_request("waits")], limits=LIMITS)


async def _drain(store: Store, _: ManualClock) -> None:
    await store.control(LANE, Mode.DRAINING, "enough")


async def _pass_the_deadline(_: Store, clock: ManualClock) -> None:
    clock.pass_seconds(10)


@pytest.mark.parametrize("refuse", [_fill, _drain, _pass_the_deadline], ids=lambda how: how.__name__)
async def test_after_a_doubt_a_refusal_says_nothing_and_the_doubt_is_told(
    offering: Intake,
    desk: Desk,
    store: Store,
    clock: ManualClock,
    refuse: Callable[[Store, ManualClock], Awaitable[None]],
) -> None:
    asking = await offered(offering, desk, a_request("a", valid_until=clock.now() + 5_000))
    await refuse(store, clock)
    doubt = CommitUnknown("it was cut short")
    desk.callers["a"].sent_away(doubt)
    with pytest.raises(CommitUnknown) as told:
        await asking
    assert told.value is doubt


async def test_after_a_doubt_a_store_that_stays_away_does_not_take_it_back(
    offering: Intake, gated: Gated, desk: Desk
) -> None:
    """That nothing was written this time does not say that nothing was written before."""
    gated.before = [StoreUnavailable() for _ in range(TRIES)]
    asking = await offered(offering, desk, a_request("a"))
    desk.callers["a"].sent_away(CommitUnknown("it was cut short"))
    with pytest.raises(CommitUnknown):
        await asking


async def test_after_a_doubt_it_is_not_refused_for_too_many_callers(
    offering: Intake, gated: Gated, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever was taken keeps his place, at the desk and in the queue."""
    asking = await offered(offering, desk, a_request("a"))
    monkeypatch.setattr(intake_module, "MAX_WAITING", 1)
    with pytest.raises(QueueFull, match="try again in a moment"):
        await offering.submit(a_request("b", lane=OTHER_LANE))
    monkeypatch.setattr(intake_module, "MAX_WAITING", 0)
    desk.callers["a"].sent_away(CommitUnknown("it was cut short"))
    assert (await asking)[0].id == "a"
    assert gated.batches == [["a"]]


async def test_while_one_is_in_the_queue_the_next_of_its_lane_stands_behind_it(
    offering: Intake, gated: Gated, desk: Desk
) -> None:
    """He is not even offered, or he would overtake it."""
    gated.open.clear()
    first = await offered(offering, desk, a_request("first", lane=OTHER_LANE))
    desk.callers["first"].sent_away()
    await gated.entered.wait()
    second = asyncio.create_task(offering.submit(a_request("second", lane=OTHER_LANE)))
    elsewhere = await offered(offering, desk, a_request("elsewhere"))  # it is nothing to another lane
    assert "second" not in desk.callers
    gated.open.set()
    places = [(await task)[0].place for task in (first, second)]
    assert places == sorted(places)
    desk.callers["elsewhere"].sent_away()
    await elsewhere
    third = await offered(offering, desk, a_request("third", lane=OTHER_LANE))  # once they are answered he is
    desk.callers["third"].sent_away()
    assert (await third)[0].place > places[-1]


async def test_also_while_it_waits_for_the_commit_of_others(
    offering: Intake, gated: Gated, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake_module, "BATCH", 1)
    gated.open.clear()
    asked = [await offered(offering, desk, a_request(id, lane=OTHER_LANE)) for id in ("first", "second", "third")]
    for id in ("first", "second", "third"):
        desk.callers[id].sent_away()
    gated.open.set()
    await asked[0]
    gated.open.clear()
    late = asyncio.create_task(offering.submit(a_request("late", lane=OTHER_LANE)))
    await asyncio.sleep(0)
    assert "late" not in desk.callers
    gated.open.set()
    places = [(await task)[0].place for task in (*asked, late)]
    assert places == sorted(places)


async def test_after_a_doubt_what_the_queue_knows_is_told(
    offering: Intake, desk: Desk, store: Store, arrivals: list[LaneKey]
) -> None:
    """It took effect; or it did not, and is queued now; or another had its key before."""
    took_effect = a_request("a", lane=OTHER_LANE)
    [known] = await store.accept([took_effect], limits=LIMITS)
    [first] = await store.accept([a_request("first", lane=OTHER_LANE, idempotency_key="k")], limits=LIMITS)
    answers = {}
    for request in (
        took_effect,
        a_request("b", lane=OTHER_LANE),
        a_request("again", lane=OTHER_LANE, idempotency_key="k"),
    ):
        asking = await offered(offering, desk, request)
        desk.callers[request.id].sent_away(CommitUnknown("it was cut short"))
        answers[request.id] = await asking
    assert answers["a"] == (known, True)
    assert (answers["b"][0].id, answers["b"][1]) == ("b", True)
    assert answers["again"] == (first, False)
    assert arrivals[-1] == OTHER_LANE
    other = await offered(offering, desk, a_request("c", lane=OTHER_LANE, idempotency_key="k", body_hash="another"))
    desk.callers["c"].sent_away(CommitUnknown("it was cut short"))
    with pytest.raises(KeyReused):
        await other


async def test_those_at_a_desk_are_counted_and_waited_for(offering: Intake, gated: Gated, desk: Desk) -> None:
    signed, sent_away = [
        await offered(offering, desk, a_request(id, lane=OTHER_LANE)) for id in ("signed", "sent away")
    ]
    assert offering.waiting == 2
    closing = asyncio.create_task(offering.close())
    for _ in range(10):
        await asyncio.sleep(0)
    assert not closing.done()
    desk.callers["signed"].admitted(a_transaction("signed"))
    await signed
    assert offering.waiting == 1
    assert not closing.done()
    gated.open.clear()
    desk.callers["sent away"].sent_away()
    await gated.entered.wait()
    for _ in range(10):
        await asyncio.sleep(0)
    assert not closing.done()  # it is in the queue, and not on disk yet
    gated.open.set()
    await closing
    assert sent_away.done()
    assert sent_away.result()[0].id == "sent away"
    assert offering.waiting == 0
    with pytest.raises(ShuttingDown):
        await offering.submit(a_request("late"))
    assert "late" not in desk.callers


async def test_a_caller_that_leaves_a_desk_leaves_its_request_there_and_nobody_trips_over_it(
    offering: Intake, desk: Desk, store: Store
) -> None:
    gone = [await offered(offering, desk, a_request(id, lane=OTHER_LANE)) for id in ("signed", "queued", "doubted")]
    for one in gone:
        one.cancel()
    await asyncio.wait(gone)
    assert offering.waiting == 3
    desk.callers["signed"].admitted(a_transaction("signed"))
    desk.callers["queued"].sent_away()
    desk.callers["doubted"].sent_away(CommitUnknown("it was cut short"))
    await offering.close()
    assert offering.waiting == 0
    assert {tx.id for tx in await store.transactions(Filter())} == {"queued", "doubted"}


async def test_those_that_come_together_are_offered_to_nobody(offering: Intake, desk: Desk) -> None:
    txs, _ = await offering.submit_together([a_request(id, lane=OTHER_LANE) for id in ("a", "b")])
    assert [tx.id for tx in txs] == ["a", "b"]
    assert desk.callers == {}
