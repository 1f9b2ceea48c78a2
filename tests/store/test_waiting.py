"""What waits has a table of its own on PostgreSQL, so that a transaction on its way touches no index. Triggers keep it."""

from __future__ import annotations

import json

import pytest

from nonchalant.lifecycle import (
    Assigned,
    Broadcast,
    Cancelled,
    Confirmed,
    Expired,
    Held,
    Included,
    Move,
    Released,
    Superseded,
    step,
)
from nonchalant.model import Attention, Transaction
from nonchalant.store import retention, rows
from nonchalant.store.postgres import PostgresStore
from nonchalant.store.talk import now
from tests.examples import LANE, a_hash, a_receipt, a_transaction
from tests.postgres import Cluster
from tests.store.acts import OTHER_LANE, REFUSED, ManualClock, accept, assign, on_postgres, sql, take, work

QUEUED = """
SELECT chain_id, address, held, priority, place, asked_nonce, valid_until, attention IS NOT NULL AS marked
FROM transactions WHERE state = 'queued' ORDER BY place
"""
INDEXED = """
SELECT DISTINCT i.relname, a.attname FROM pg_index AS x
JOIN pg_class AS i ON i.oid = x.indexrelid
JOIN pg_depend AS d ON d.objid = i.oid AND d.refobjid = x.indrelid AND d.refobjsubid > 0
JOIN pg_attribute AS a ON a.attrelid = x.indrelid AND a.attnum = d.refobjsubid
WHERE x.indrelid = 'transactions'::REGCLASS
"""


async def moved(store: PostgresStore, tx: Transaction, event: Move) -> Transaction:
    """From any node, as long as it is queued."""
    after, told = step(tx, event, await store._read(now()))
    await store.alter_queued(after, told)
    return after


async def who_waits(store: PostgresStore) -> list[int]:
    """The places of those that wait; what is kept of them is what their own rows say."""
    kept = [tuple(row) for row in await sql(store, "SELECT * FROM waiting ORDER BY place")]
    assert kept == [tuple(row) for row in await sql(store, QUEUED)]
    return [row[4] for row in kept]


async def test_whoever_is_queued_waits_and_nobody_else(postgres: Cluster) -> None:
    async with on_postgres(postgres) as store:
        await store.declare([LANE, OTHER_LANE])
        first, second = await accept(store, "first", "second", priority=7)
        third, fourth, fifth = await accept(store, "third", "fourth", "fifth", valid_until=2**52)
        [other] = await accept(store, "other", lane=OTHER_LANE, asked_nonce=4)
        everybody = [tx.place for tx in (first, second, third, fourth, fifth, other)]
        assert await who_waits(store) == everybody
        held = await moved(store, third, Held(Attention("held", "by hand", 1)))
        assert await who_waits(store) == everybody
        await moved(store, held, Released())
        await moved(store, second, Cancelled())
        await moved(store, fourth, Expired())
        left = [tx.place for tx in (first, third, fifth, other)]
        assert await who_waits(store) == left
        lease = await take(store)
        making = work(lease)
        making.mark(fifth, Attention("no_funds", "it waits", 1))
        await store.commit(making.change(), lease)
        assert await who_waits(store) == left
        [first] = await assign(store, lease, (first, 0))
        assert await who_waits(store) == left[1:]
        slot = (await store.load(lease)).slots[0]
        making = work(lease, next_nonce=1)
        making.move(first, Superseded(None))
        making.settle(slot)
        await store.commit(making.change(), lease)
        assert await who_waits(store) == left  # queued again, at the place it had


async def test_no_move_of_a_transaction_changes_what_an_index_knows(postgres: Cluster) -> None:
    """Else every one of them is written anew. Only an end that is not the usual one is found by an index."""
    async with on_postgres(postgres) as store:
        indexed = {(row["relname"], row["attname"]) for row in await sql(store, INDEXED)}
    assert ("transactions_of_an_account", "address") in indexed
    changes = {*rows.transaction_columns(a_transaction())} - {"id", "place"} | {"ended_at", "other_end"}
    assert {found for found in indexed if found[1] in changes} == {("transactions_ended_otherwise", "other_end")}


async def test_the_usual_way_writes_no_index_of_the_transactions(postgres: Cluster) -> None:
    async with on_postgres(postgres) as store:
        await store.declare([LANE])
        [tx] = await accept(store, "tx")
        receipt = a_receipt(a_hash(1))
        async with store._work.transaction() as connection:
            for move in (Assigned(0, a_hash(1)), Broadcast(), Included(receipt), Confirmed()):
                tx, _ = step(tx, move, 1)
                statement, values = store._sql.for_each(
                    "update_transaction", [rows.transaction_columns(tx)], LANE._asdict()
                )
                await connection.execute(statement.sql, *values)
            table = f"'{store.schema}.transactions'::REGCLASS"
            found = await connection.fetchrow(
                f"SELECT pg_stat_get_xact_tuples_updated({table}), pg_stat_get_xact_tuples_hot_updated({table})"
            )
        assert tuple(found) == (4, 4)


A_TRANSACTION = """
INSERT INTO transactions (place, id, chain_id, address, state, priority, tenant, body_hash, payload, fees, created_at, updated_at)
VALUES (1, 'x', 99, '0x', 'queued', 5, '', '', '', '', 0, 0)
"""


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO slots (chain_id, address, nonce, kind, wanted, payload_version) VALUES (99, '0x', 1, 'filler', 'nothing', 0)",
        A_TRANSACTION,
        "DELETE FROM lanes",
        "UPDATE lanes SET chain_id = chain_id + 1",
    ],
)
async def test_what_belongs_to_a_lane_has_one(postgres: Cluster, statement: str) -> None:
    async with on_postgres(postgres) as store:
        await store.declare([LANE])
        with pytest.raises(REFUSED):
            await sql(store, statement)


async def test_retention_reads_from_the_oldest_on_and_no_further_than_it_must(postgres: Cluster) -> None:
    """What lives is passed over; where the young begin, nobody reads on."""
    clock = ManualClock()
    async with on_postgres(postgres, clock) as store:
        await store.declare([LANE, OTHER_LANE])
        await accept(store, "waits", lane=OTHER_LANE)
        [old] = await accept(store, "old")
        await moved(store, old, Cancelled())
        clock.pass_seconds(100)
        young = await accept(store, *(f"young {number}" for number in range(3_000)), limits={LANE: 10_000})
        for tx in young[:20]:
            await moved(store, tx, Cancelled())
        asked = f'SELECT * FROM "{store.schema}".ended_before($1, 0, 10, 0, 100)'
        async with store._work.pool.lent() as connection:
            # The first time a session also reads the catalogue.
            found = await connection.fetch(asked, clock.millis - 50_000)
            assert [row["id"] for row in found] == ["old", None]
            assert found[-1]["walked"] == young[97].place  # there was something old among the first hundred
            [plan] = json.loads(
                await connection.fetchval(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {asked}", clock.millis - 50_000)
            )
        [size] = await sql(store, "SELECT pg_relation_size('transactions') / 8192 AS pages")
        assert plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"] < size["pages"] - 100


async def test_retention_goes_on_where_it_stopped_whatever_stands_in_its_way(
    postgres: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither what is old and lives, nor a row that is dated later than now, keeps what is behind it for ever."""
    monkeypatch.setattr(retention, "LOOKS", 10)
    clock = ManualClock()
    async with on_postgres(postgres, clock) as store:
        await store.declare([LANE, OTHER_LANE])
        clock.pass_seconds(3_600)
        await accept(store, *(f"from a clock ahead {number}" for number in range(15)), lane=OTHER_LANE)
        clock.pass_seconds(-3_600)
        await accept(store, *(f"waits {number}" for number in range(15)), lane=OTHER_LANE)
        for tx in await accept(store, *(f"old {number}" for number in range(15))):
            await moved(store, tx, Cancelled())
        clock.pass_seconds(100)
        await accept(store, *(f"young {number}" for number in range(15)))
        rounds = 0
        while await store.forget_settled(older_than=50_000, limit=4):
            rounds += 1
            assert rounds < 30
        left = {row["id"] for row in await sql(store, "SELECT id FROM transactions")}
        assert not {name for name in left if name.startswith("old")}
        assert len(left) == 45
        assert rounds >= 4  # a little at a time
