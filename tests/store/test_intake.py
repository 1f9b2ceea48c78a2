"""Group commit: requests share commits, nobody waits for nothing, and an unclear commit is repeated safely."""

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from nonchalant import intake as intake_module
from nonchalant.errors import CommitUnknown, KeyReused, QueueFull, RowMoved, ShuttingDown, StoreUnavailable
from nonchalant.intake import BATCH, TRIES, Intake
from nonchalant.model import Request
from nonchalant.ports import Acceptance, Filter, Store
from nonchalant.words import LaneKey
from tests.examples import LANE, a_request
from tests.store.acts import LIMITS, OTHER_LANE, ManualClock


class Gated:
    """The real store's `accept`, with a gate before it, a note of every batch, and trouble before or after it."""

    def __init__(self, store: Store) -> None:
        self.batches: list[list[str]] = []
        self.entered = asyncio.Event()
        self.open = asyncio.Event()
        self.open.set()
        self.before: list[Exception] = []
        self.after: list[Exception] = []
        self._store = store

    async def accept(self, requests: Sequence[Request], *, limits: Mapping[LaneKey, int]) -> Sequence[Acceptance]:
        self.batches.append([request.id for request in requests])
        self.entered.set()
        await self.open.wait()
        if self.before:
            raise self.before.pop(0)
        answers = await self._store.accept(requests, limits=limits)
        if self.after:
            raise self.after.pop(0)
        return answers


@pytest.fixture
def gated(store: Store) -> Gated:
    return Gated(store)


@pytest.fixture
def arrivals() -> list[LaneKey]:
    return []


@pytest.fixture
def intake(gated: Gated, clock: ManualClock, arrivals: list[LaneKey]) -> Intake:
    return Intake(gated, clock, limits=LIMITS, arrived=arrivals.append, offer=lambda _request: None)  # type: ignore[arg-type]


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
    intake = Intake(gated, clock, limits={LANE: 1}, arrived=lambda lane: None, offer=lambda _request: None)  # type: ignore[arg-type]
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
