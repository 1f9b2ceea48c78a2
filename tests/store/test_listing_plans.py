"""No listing reads the whole table: each filter finds an index, on both databases."""

import json
from typing import Any

import pytest

from nonchalant.ports import Filter, Store
from nonchalant.store import queries, reading
from nonchalant.store.legible import Legible
from nonchalant.store.postgres import PostgresStore
from nonchalant.store.sqlite import SqliteStore
from nonchalant.store.statements import Statements
from nonchalant.store.talk import Ask
from nonchalant.words import State
from tests.examples import ALICE, BOB, LANE, a_hash
from tests.store.acts import accept, assign, sql, take

CROWD = 20_000

# The oldest rows of a large table match: whoever walks it from the newest down reads all of it.
FILTERS = {
    "hash": Filter(hash=a_hash("flying@3")),
    "nonce": Filter(nonce=3),
    "nonce of a lane": Filter(chain_id=7, sender=ALICE, nonce=3),
    "idempotency key": Filter(idempotency_key="k"),
    "batch": Filter(batch="together"),
    "account": Filter(sender=ALICE),
    "lane": Filter(chain_id=7, sender=ALICE),
    "chain": Filter(chain_id=7),
    "live": Filter(live=True),
    "live of a lane": Filter(chain_id=7, sender=ALICE, live=True),
    **{f"{state}": Filter(state=state) for state in State if state is not State.CONFIRMED},
    **{
        f"{state} of a lane": Filter(chain_id=7, sender=ALICE, state=state)
        for state in State
        if state is not State.CONFIRMED
    },
    "hash of a state": Filter(hash=a_hash("flying@3"), state=State.SIGNED),
    "nonce of a state": Filter(nonce=3, state=State.SIGNED),
    "batch of a state": Filter(batch="together", state=State.QUEUED),
}


@pytest.fixture
async def crowded(store: Store) -> Store:
    """A few of one lane, and after them very many of another, on another chain, that are confirmed."""
    await accept(store, "first", "second", batch="together")
    await accept(store, "keyed", idempotency_key="k")
    [flying] = await accept(store, "flying")
    await assign(store, await take(store), (flying, 3))
    await sql(store, "INSERT INTO lanes (chain_id, address) VALUES (8, ?)", BOB)
    await sql(
        store,
        f"""
        WITH RECURSIVE numbers (n) AS (SELECT 100 UNION ALL SELECT n + 1 FROM numbers WHERE n < {100 + CROWD})
        INSERT INTO transactions (
            place, id, chain_id, address, state, priority, tenant, body_hash, payload, fees, nonce, hash, receipt, created_at, updated_at
        )
        SELECT n, 'crowd ' || n, 8, ?, 'confirmed', 5, 'default', '', '', '', n, 'hash ' || n, '', 0, 0 FROM numbers
        """,
        BOB,
    )
    return store


def question(filter: Filter) -> Ask:
    """What a listing asks the database first."""
    asked = next(reading.transactions(filter, Legible()))
    assert isinstance(asked, Ask)
    return asked


async def test_each_filter_finds_its_own_index(crowded: Store) -> None:
    if isinstance(crowded, SqliteStore):
        await _on_sqlite(crowded)
    else:
        assert isinstance(crowded, PostgresStore)
        await _on_postgres(crowded)


async def _on_sqlite(store: SqliteStore) -> None:
    text = queries.load("sqlite")["transactions"]
    for name, filter in FILTERS.items():
        asked = question(filter)
        statement = queries.narrowed(text, asked.columns)
        plan = [
            row["detail"]
            for row in store._writer.execute(f"EXPLAIN QUERY PLAN {statement}", dict(asked.columns)).fetchall()
        ]
        assert not any(step.startswith("SCAN transactions") and "transactions_live" not in step for step in plan), (
            f"{name}: {plan}"
        )


async def _on_postgres(store: PostgresStore) -> None:
    statements = Statements(store.schema)
    async with store._work.pool.lent() as connection:
        await connection.execute(f'ANALYZE "{store.schema}".transactions; ANALYZE "{store.schema}".attempts')
        for name, filter in FILTERS.items():
            asked = question(filter)
            statement = statements.narrowed("transactions", frozenset(asked.columns))
            explained = await connection.fetchval(
                f"EXPLAIN (ANALYZE, FORMAT JSON) {statement.sql}", *statement.values(asked.columns)
            )
            [plan] = json.loads(explained)
            assert _read_in_vain(plan["Plan"]) < 100, f"{name}: {explained}"


def _read_in_vain(plan: dict[str, Any]) -> int:
    """Rows that were read and then left out."""
    here = int(plan.get("Rows Removed by Filter", 0)) + int(plan.get("Rows Removed by Index Recheck", 0))
    return here + sum(_read_in_vain(below) for below in plan.get("Plans", ()))


@pytest.mark.parametrize("name", FILTERS)
async def test_what_it_finds_there_is_right(store: Store, name: str) -> None:
    first, second = await accept(store, "first", "second", batch="together")
    [keyed] = await accept(store, "keyed", idempotency_key="k")
    [flying] = await accept(store, "flying")
    await assign(store, await take(store, lane=LANE), (flying, 3))
    filter = FILTERS[name]
    everything = [await store.transaction(tx.id) for tx in (flying, keyed, second, first)]
    expected = [tx.id for tx in everything if tx is not None and _fits(filter, tx)]
    assert [tx.id for tx in await store.transactions(filter)] == expected


def _fits(filter: Filter, tx: Any) -> bool:
    asked = {
        "chain_id": (filter.chain_id, tx.lane.chain_id),
        "sender": (filter.sender, tx.lane.address),
        "state": (filter.state, tx.state),
        "nonce": (filter.nonce, tx.nonce),
        "hash": (filter.hash, tx.hash),
        "key": (filter.idempotency_key, tx.idempotency_key),
        "batch": (filter.batch, tx.batch),
        "live": (filter.live, tx.live),
    }
    return all(wanted is None or wanted == found for wanted, found in asked.values())
