"""Lanes that commit together, whoever uses or removes the same keys meanwhile, and an admission: on PostgreSQL."""

from __future__ import annotations

import asyncio

import pytest

from nonchalant.errors import RowMoved, StoreUnavailable
from nonchalant.model import (
    Change,
    LaneRecord,
    Lease,
    Request,
)
from nonchalant.values import replace
from nonchalant.words import LaneKey
from tests.examples import LANE, a_request
from tests.postgres import Cluster
from tests.store.acts import (
    ManualClock,
    begun,
    on_postgres,
    settle,
    sql,
    take,
)
from tests.store.test_admission import DAY, admission, admit
from tests.store.test_together import meddling

LANES = [LaneKey(7, f"0x{number:040x}") for number in range(4)]
REMOVING = """
    SELECT pg_advisory_xact_lock(hashtextextended('"' || current_schema() || '".keys', 0));
    SET LOCAL session_replication_role = replica;
    INSERT INTO removed (tenant, idempotency_key, id, body_hash, removed_at)
    SELECT tenant, idempotency_key, id, body_hash, 1 FROM transactions WHERE id = 'known';
    DELETE FROM transactions WHERE id = 'known'
"""


async def test_of_lanes_that_commit_together_one_with_a_known_key_fails_alone(postgres: Cluster) -> None:
    async with on_postgres(postgres) as store:
        await store.declare([LANE, *LANES])
        ours = await take(store)
        await admit(store, ours, a_request("first", idempotency_key="k"))
        leases = [await take(store, lane=lane) for lane in LANES]
        keys = ["a", "k", "b", "c"]
        requests = [
            a_request(f"new {key}", lane=lane, idempotency_key=key) for lane, key in zip(LANES, keys, strict=True)
        ]
        changes = [admission(lease, request) for lease, request in zip(leases, requests, strict=True)]
        commits = [store.commit(change, lease) for change, lease in zip(changes, leases, strict=True)]
        said = await asyncio.gather(*commits, return_exceptions=True)
        assert [isinstance(one, RowMoved) for one in said] == [False, True, False, False]
        assert await store.transaction("new k") is None
        assert (await store.load(leases[1])).slots == []
        for change, lease, entries in zip(changes, leases, said, strict=True):
            if not isinstance(entries, BaseException):
                assert (await store.load(lease)).transactions == list(change.entered(entries).transactions)


async def test_lanes_that_commit_together_are_told_of_their_own(postgres: Cluster) -> None:
    async with on_postgres(postgres) as store:
        await store.declare(LANES)
        leases = [await take(store, lane=lane) for lane in LANES]
        [before] = await sql(store, "SELECT count(*) AS n FROM tellings")
        applied = await asyncio.gather(
            *(admit(store, lease, a_request(lease.lane.address, lane=lease.lane)) for lease in leases)
        )
        [after] = await sql(store, "SELECT count(*) AS n FROM tellings")
        assert after["n"] - before["n"] == 1
        for lease, txs in zip(leases, applied, strict=True):
            assert [tx.id for tx in txs] == [lease.lane.address]
            assert (await store.load(lease)).transactions == txs


async def test_two_lanes_that_want_the_same_key_at_the_same_moment_have_one_transaction(postgres: Cluster) -> None:
    async with on_postgres(postgres) as store:
        await store.declare(LANES)
        leases = [await take(store, lane=lane) for lane in LANES]
        said = await asyncio.gather(
            *(
                store.commit(
                    admission(lease, a_request(lease.lane.address, lane=lease.lane, idempotency_key="k")), lease
                )
                for lease in leases
            ),
            return_exceptions=True,
        )
        assert sorted(type(one).__name__ for one in said) == ["RowMoved"] * 3 + ["dict"]
        assert len(await sql(store, "SELECT 1 FROM transactions")) == 1


async def test_who_removes_keys_is_not_waited_for_and_the_lease_is_nobody_s_to_wait_for(postgres: Cluster) -> None:
    async with on_postgres(postgres) as store:
        await store.declare([LANE])
        lease = await take(store)
        await admit(store, lease, a_request("known", idempotency_key="k"))
        again = admission(lease, a_request("again", idempotency_key="k"), first=1)
        async with meddling(store, postgres, REMOVING):
            admitting = await begun(store, store.commit(again, lease))
            assert admitting.done()
            with pytest.raises(RowMoved):
                await admitting
            async with asyncio.timeout(10):
                assert await store.renew([lease], 60.0) == [LANE]
            # Who accepts nothing has nothing to do with keys.
            await store.commit(Change(lane=LaneRecord(key=LANE, next_nonce=1)), lease)
        # It is found where it went.
        with pytest.raises(RowMoved):
            await store.commit(again, lease)
        assert await store.transaction("again") is None


ACCEPTING_ELSEWHERE = """
    SET LOCAL session_replication_role = replica;
    INSERT INTO transactions (
        place, id, chain_id, address, state, priority, tenant, idempotency_key, body_hash, payload, fees, created_at, updated_at
    ) VALUES (nextval('places'), 'theirs', 1, 'x', 'queued', 5, 'default', 'k', '', '{}', '"standard"', 1, 1)
"""


async def test_who_is_about_to_use_the_key_is_not_waited_for_while_leases_are_locked(postgres: Cluster) -> None:
    """He may be frozen there. Neighbours in the same commit are written."""
    async with on_postgres(postgres) as store:
        await store.declare(LANES)
        first, *others = [await take(store, lane=lane) for lane in LANES]
        mine = admission(first, a_request("mine", lane=first.lane, idempotency_key="k"))
        changes = [admission(lease, a_request(f"of {lease.lane}", lane=lease.lane)) for lease in others]
        async with meddling(store, postgres, ACCEPTING_ELSEWHERE), asyncio.timeout(20):
            said, *entries = await asyncio.gather(
                store.commit(mine, first),
                *(store.commit(change, lease) for change, lease in zip(changes, others, strict=True)),
                return_exceptions=True,
            )
            assert isinstance(said, StoreUnavailable)
            assert [list(one) for one in entries] == [[f"of {lease.lane}"] for lease in others]
            assert sorted(await store.renew([first, *others], 60.0)) == sorted(LANES)
        assert await store.transaction("mine") is None


async def test_keys_are_removed_while_others_are_admitted_and_nobody_waits_for_ever(postgres: Cluster) -> None:
    clock = ManualClock()
    async with on_postgres(postgres, clock) as store:
        await store.declare(LANES)
        leases = [await take(store, lane=lane) for lane in LANES]
        for lease in leases:
            ids = [f"{lease.lane} {nonce}" for nonce in range(8)]
            await admit(store, lease, *(keyed(lease, id) for id in ids), at=clock.now())
            for id in ids:
                await settle(store, lease, id)
            await store.commit(Change(lane=LaneRecord(key=lease.lane, next_nonce=8, settled_below=8)), lease)
        clock.pass_seconds(31 * DAY)
        leases = [await take(store, lane=lane) for lane in LANES]

        async def own(lease: Lease) -> None:
            for nonce in range(8, 28):
                change = admission(lease, keyed(lease, f"{lease.lane} {nonce}"), first=nonce, at=clock.now(), final=8)
                while True:
                    try:
                        await store.commit(change, lease)
                        break
                    except RowMoved:  # somebody removes keys just now
                        await asyncio.sleep(0)

        async def remove_all() -> None:
            while await store.forget_settled(older_than=30 * DAY * 1000, limit=1):
                pass

        async with asyncio.timeout(60):
            await asyncio.gather(remove_all(), *map(own, leases))
        assert len(await sql(store, "SELECT 1 FROM removed")) == 8 * len(LANES)
        assert len(await sql(store, "SELECT 1 FROM transactions")) == 20 * len(LANES)


def keyed(lease: Lease, id: str) -> Request:
    return a_request(id, lane=lease.lane, idempotency_key=id)


async def test_where_it_cannot_be_done_at_once_nothing_is_written(postgres: Cluster) -> None:
    """Step by step, keys and leases would be locked in another order than elsewhere."""
    async with on_postgres(postgres) as store:
        await store.declare([LANE])
        lease = await take(store)
        unusual = replace(admission(lease, a_request("a"), first=1), rewritten=frozenset({"a"}))
        with pytest.raises(RowMoved, match="at once, or not at all"):
            await store.commit(unusual, lease)
        assert await sql(store, "SELECT 1 FROM transactions") == []
