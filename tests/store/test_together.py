"""What many lanes commit at the same time is written together, and is each lane's own business all the same."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from nonchalant.errors import CommitUnknown, LeaseLost, RowMoved, StoreUnavailable
from nonchalant.model import Change, Event, LaneRecord, Lease, Transaction
from nonchalant.store import together
from nonchalant.store.postgres import PostgresStore
from nonchalant.values import replace
from nonchalant.words import LaneKey, State
from tests.postgres import Cluster
from tests.store.acts import accept, assignment, begun, on_postgres, sql, take

LANES = [LaneKey(7, f"0x{number:040x}") for number in range(6)]
ODD = LANES[2]


@pytest.fixture
async def store(postgres: Cluster) -> AsyncIterator[PostgresStore]:
    async with on_postgres(postgres) as store:
        await store.declare(LANES)
        yield store


async def at_work(store: PostgresStore) -> dict[LaneKey, tuple[Lease, Transaction]]:
    """Each lane has an owner, and one transaction that waits."""
    limits = dict.fromkeys(LANES, 10)
    return {
        lane: (await take(store, lane=lane), (await accept(store, lane.address, limits=limits, lane=lane))[0])
        for lane in LANES
    }


async def all_assign(store: PostgresStore, at_work: dict[LaneKey, tuple[Lease, Transaction]]) -> dict[LaneKey, object]:
    """All lanes at the same moment, each to another nonce; what came of it in each."""
    answers = await asyncio.gather(
        *(commit(store, lease, tx, number) for number, (lease, tx) in enumerate(at_work.values())),
        return_exceptions=True,
    )
    return dict(zip(at_work, answers, strict=True))


async def commit(store: PostgresStore, lease: Lease, tx: Transaction, nonce: int) -> Transaction:
    change = assignment(lease, (tx, nonce))
    await store.commit(replace(change, lane=LaneRecord(key=lease.lane, next_nonce=nonce + 1)), lease)
    return change.transactions[0]


async def states(store: PostgresStore) -> dict[LaneKey, State]:
    found = await sql(store, "SELECT chain_id, address, state FROM transactions")
    return {LaneKey(row["chain_id"], row["address"]): State(row["state"]) for row in found}


@asynccontextmanager
async def meddling(
    store: PostgresStore, postgres: Cluster, statement: str, *values: object
) -> AsyncIterator[asyncpg.Connection]:
    """Somebody else has done this, and not committed yet; at the end he has."""
    other = await asyncpg.connect(postgres.dsn)
    try:
        async with other.transaction():
            await other.execute(f'SET LOCAL search_path = "{store.schema}"')
            await other.execute(statement, *values)
            yield other
    finally:
        await other.close()


async def test_all_of_them_are_written_in_one_commit_each_in_its_own_lane(store: PostgresStore) -> None:
    lanes = await at_work(store)
    [before] = await sql(store, "SELECT count(*) AS n FROM tellings")
    answers = await all_assign(store, lanes)
    [after] = await sql(store, "SELECT count(*) AS n FROM tellings")
    assert after["n"] - before["n"] == 1
    for number, (lane, (lease, tx)) in enumerate(lanes.items()):
        loaded = await store.load(lease)
        assert loaded.transactions == [answers[lane]]
        assert [(slot.nonce, slot.tx_id) for slot in loaded.slots] == [(number, tx.id)]
        assert loaded.slots[0].attempts[0].epoch == lease.epoch
        assert loaded.record.next_nonce == number + 1
        history = await store.history(tx.id)
        assert [(event.kind, event.lane) for event in history] == [("tx.accepted", lane), ("tx.signed", lane)]


async def test_a_lease_that_is_lost_stops_its_own_lane_only(store: PostgresStore) -> None:
    lanes = await at_work(store)
    await sql(store, "UPDATE leases SET epoch = epoch + 1 WHERE address = ?", ODD.address)
    answers = await all_assign(store, lanes)
    assert [lane for lane in LANES if isinstance(answers[lane], LeaseLost)] == [ODD]
    assert f"{ODD} at epoch 1 is not ours" in str(answers[ODD])
    assert await states(store) == dict.fromkeys(LANES, State.SIGNED) | {ODD: State.QUEUED}


async def test_nor_does_a_take_over_under_way_let_a_stale_owner_write(store: PostgresStore, postgres: Cluster) -> None:
    lanes = await at_work(store)
    taken = "UPDATE leases SET owner = 'heir', epoch = epoch + 1 WHERE address = $1"
    async with meddling(store, postgres, taken, ODD.address):
        waiting = await begun(store, all_assign(store, lanes))
        assert not waiting.done()
    answers = await waiting
    assert [lane for lane in LANES if isinstance(answers[lane], LeaseLost)] == [ODD]
    assert await states(store) == dict.fromkeys(LANES, State.SIGNED) | {ODD: State.QUEUED}


async def test_a_row_that_moved_fails_nobody_else(store: PostgresStore) -> None:
    lanes = await at_work(store)
    await sql(store, "UPDATE transactions SET version = version + 1 WHERE address = ?", ODD.address)
    answers = await all_assign(store, lanes)
    assert [lane for lane in LANES if isinstance(answers[lane], RowMoved)] == [ODD]
    assert await states(store) == dict.fromkeys(LANES, State.SIGNED) | {ODD: State.QUEUED}


BROKEN = """
CREATE FUNCTION break() RETURNS TRIGGER LANGUAGE plpgsql AS $$ BEGIN
    RAISE EXCEPTION 'invalid page in block 17' USING ERRCODE = 'data_corrupted';
END $$
"""


async def test_nor_does_what_the_server_cannot_do_for_one_of_them(store: PostgresStore) -> None:
    """A damaged page, a time-out of the role's, a deadlock with somebody else."""
    lanes = await at_work(store)
    await sql(store, BROKEN.replace("break()", "nonchalant.break()"))
    await sql(
        store,
        "CREATE TRIGGER breaks BEFORE UPDATE ON transactions FOR EACH ROW"
        f" WHEN (OLD.address = '{ODD.address}') EXECUTE FUNCTION nonchalant.break()",
    )
    answers = await all_assign(store, lanes)
    assert [lane for lane in LANES if isinstance(answers[lane], StoreUnavailable)] == [ODD]
    assert await states(store) == dict.fromkeys(LANES, State.SIGNED) | {ODD: State.QUEUED}


async def test_one_that_waits_for_somebody_keeps_nobody_else_waiting(store: PostgresStore, postgres: Cluster) -> None:
    lanes = await at_work(store)
    locked = "SELECT 1 FROM transactions WHERE address = $1 FOR UPDATE"
    async with meddling(store, postgres, locked, ODD.address):
        waiting = await begun(store, commit(store, *lanes[ODD], 0))
        for lane in LANES:
            if lane != ODD:
                await commit(store, *lanes[lane], 0)
        assert not waiting.done()
        assert await states(store) == dict.fromkeys(LANES, State.SIGNED) | {ODD: State.QUEUED}
    await waiting


async def test_what_was_built_on_lost_commits_is_not_tried_by_itself(store: PostgresStore) -> None:
    """Also if another node noticed the loss first, and the leases are still there."""
    lanes = await at_work(store)
    await sql(store, "UPDATE meta SET incarnation = incarnation + 1")
    assert store._seen is not None
    store._seen = replace(store._seen, wal=store._seen.wal + 10**12)
    answers = await all_assign(store, lanes)
    assert {type(answer) for answer in answers.values()} == {together.CommitsLost}
    assert await states(store) == dict.fromkeys(LANES, State.QUEUED)


async def test_whatever_is_written_counts(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(together, "MOST_ROWS", 10)
    leases = [lease for lease, _ in (await at_work(store)).values()]
    [before] = await sql(store, "SELECT count(*) AS n FROM tellings")
    told = [Change(events=(Event(kind="lane.filled", lane=lease.lane, at=0),) * 4) for lease in leases]
    await asyncio.gather(*(store.commit(change, lease) for change, lease in zip(told, leases, strict=True)))
    [after] = await sql(store, "SELECT count(*) AS n FROM tellings")
    assert after["n"] - before["n"] == len(LANES) / 2  # two have ten rows: four events each, and themselves


async def test_an_outcome_that_nobody_knows_is_told_to_all_of_them(store: PostgresStore, postgres: Cluster) -> None:
    lanes = await at_work(store)
    async with meddling(store, postgres, "SELECT 1 FROM leases WHERE address = $1 FOR UPDATE", ODD.address) as other:
        waiting = await begun(store, all_assign(store, lanes))
        await other.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
    answers = await waiting
    assert [lane for lane in LANES if isinstance(answers[lane], CommitUnknown)] == LANES
    assert await states(store) == dict.fromkeys(LANES, State.QUEUED)


@pytest.mark.parametrize(("worth_another", "under_way"), [(1, together.AT_ONCE), (1_000, 1)])
async def test_while_as_many_are_under_way_as_pays_the_others_gather(
    store: PostgresStore, postgres: Cluster, monkeypatch: pytest.MonkeyPatch, worth_another: int, under_way: int
) -> None:
    monkeypatch.setattr(together, "WORTH_ANOTHER", worth_another)
    monkeypatch.setattr(together, "LATE_SECONDS", 60.0)
    lanes = await at_work(store)
    [before] = await sql(store, "SELECT count(*) AS n FROM tellings")
    with monkeypatch.context() as patch:
        patch.setattr(together, "MOST_ROWS", 1)
        locked = "SELECT 1 FROM leases WHERE address = ANY ($1) FOR UPDATE"
        async with meddling(store, postgres, locked, [lane.address for lane in LANES[:under_way]]):
            waiting = await begun(store, all_assign(store, lanes))
            assert await states(store) == dict.fromkeys(LANES, State.QUEUED)
            patch.undo()
    await waiting
    [after] = await sql(store, "SELECT count(*) AS n FROM tellings")
    assert after["n"] - before["n"] == under_way + 1
    assert await states(store) == dict.fromkeys(LANES, State.SIGNED)


async def test_whoever_gave_up_waiting_is_left_out(store: PostgresStore) -> None:
    lanes = await at_work(store)
    tasks = [asyncio.create_task(commit(store, lease, tx, 0)) for lease, tx in lanes.values()]
    await asyncio.sleep(0)
    tasks[LANES.index(ODD)].cancel()
    await asyncio.wait(tasks)
    assert await states(store) == dict.fromkeys(LANES, State.SIGNED) | {ODD: State.QUEUED}


async def test_a_store_that_closes_leaves_nobody_waiting(
    store: PostgresStore, postgres: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(together, "MOST_ROWS", 1)
    monkeypatch.setattr(together, "LATE_SECONDS", 60.0)
    lanes = await at_work(store)
    async with meddling(store, postgres, "SELECT 1 FROM leases WHERE address = $1 FOR UPDATE", LANES[0].address):
        waiting = await begun(store, all_assign(store, lanes))
        await store.close()
        answers = await waiting
    kinds = [type(answer) for answer in answers.values()]
    assert kinds == [CommitUnknown, *[StoreUnavailable] * (len(LANES) - 1)]


async def test_nor_one_whose_commit_was_only_just_begun(store: PostgresStore) -> None:
    (lease, tx), *_ = (await at_work(store)).values()
    waiting = asyncio.create_task(commit(store, lease, tx, 0))
    while not store._together._under_way:  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0)
    await store.close()
    with pytest.raises(CommitUnknown, match="closed"):
        await waiting


async def test_a_loss_that_cannot_be_recorded_now_is_told_to_all_of_them_once(
    store: PostgresStore, postgres: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    lanes = await at_work(store)
    assert store._seen is not None
    store._seen = replace(store._seen, wal=store._seen.wal + 10**12)
    tries, real = 0, store._raise_incarnation

    async def counted(*given: Any) -> None:
        nonlocal tries
        tries += 1
        await real(*given)

    monkeypatch.setattr(store, "_raise_incarnation", counted)
    async with meddling(store, postgres, "SELECT 1 FROM meta FOR UPDATE"):
        monkeypatch.setattr(store._leases, "_begin", store._leases._begin.replace("60000ms", "300ms"))
        answers = await all_assign(store, lanes)
    assert {type(answer) for answer in answers.values()} == {StoreUnavailable}
    assert tries == 1
    assert await states(store) == dict.fromkeys(LANES, State.QUEUED)
