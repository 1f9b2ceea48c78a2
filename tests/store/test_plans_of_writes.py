"""What is written finds its rows by their whole key, also in tables that nobody has analysed yet.

Left to itself, PostgreSQL takes a lane for the best index there is, and reads all that the lane has for each row.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from nonchalant.store import rows
from nonchalant.store.postgres import PostgresStore
from nonchalant.store.talk import Columns
from tests.examples import LANE, a_hash, a_slot, a_transaction, an_attempt
from tests.postgres import Cluster
from tests.store.acts import accept, on_postgres, sql

ATTEMPT = an_attempt(a_hash(1))


@pytest.mark.parametrize(
    ("query", "each", "by"),
    [
        ("update_transaction", rows.transaction_columns(a_transaction()), r"\bplace = \(?new\.place"),
        ("answer_attempt", rows.answer_columns(ATTEMPT), r"\bhash = \(?new\.hash"),
        ("insert_attempt", rows.attempt_columns(ATTEMPT), r"\bnonce = \(?(new|given)\.nonce"),
        ("settle_slot", rows.slot_columns(a_slot(0)), r"\bnonce = \(?(new|given)\.nonce"),
    ],
)
@pytest.mark.parametrize("rows_before", [0, 300])
async def test_a_row_is_found_by_its_whole_key(
    postgres: Cluster, query: str, each: Columns, by: str, rows_before: int
) -> None:
    async with on_postgres(postgres) as store:
        await store.declare([LANE])
        if rows_before:
            await accept(store, *(f"t{number}" for number in range(rows_before)))
        plan = await planned(store, query, [each] * 100, LANE._asdict())
    assert "Seq Scan on" not in plan
    conditions = [line.replace("::text", "") for line in plan.splitlines() if "Index Cond" in line]
    assert any(re.search(by, line) for line in conditions), plan


@pytest.mark.parametrize(
    ("query", "each"),
    [("insert_attempt", rows.attempt_columns(ATTEMPT)), ("settle_slot", rows.slot_columns(a_slot(0)))],
)
async def test_so_it_is_where_all_was_final_when_the_table_was_analysed(
    postgres: Cluster, query: str, each: Columns
) -> None:
    """The index of what is not final was empty then, and would be read whole for each row."""
    async with on_postgres(postgres) as store:
        await store.declare([LANE])
        await sql(
            store,
            "INSERT INTO slots (chain_id, address, nonce, kind, wanted, payload_version, settled, settled_at)"
            " SELECT ?::BIGINT, ?::TEXT, n, 'filler', 'nothing', 0, TRUE, 1 FROM generate_series(1, 1000) AS n",
            *LANE,
        )
        await sql(store, "ANALYZE slots")
        plan = await planned(store, query, [each] * 100, LANE._asdict())
    assert "slots_unsettled" not in plan
    conditions = [line.replace("::text", "") for line in plan.splitlines() if "Index Cond" in line]
    assert any(re.search(r"\bnonce = \(?(new|given)\.nonce", line) for line in conditions), plan


async def planned(store: PostgresStore, query: str, each: Sequence[Columns], common: Columns) -> str:
    """As one of the store's own transactions would carry it out."""
    statement, values = store._sql.for_each(query, each, common)
    async with store._work.transaction() as connection:
        return "\n".join(row[0] for row in await connection.fetch(f"EXPLAIN {statement.sql}", *values))


async def test_positions_are_given_to_what_is_told_at_once(postgres: Cluster) -> None:
    async with on_postgres(postgres) as store:
        await store.declare([LANE])
        await accept(store, "a")
        statement = store._sql["number_events"]
        async with store._work.transaction() as connection:
            found = await connection.fetch(f"EXPLAIN {statement.sql}", *statement.values({"last": 0, "limit": 99}))
    plan = "\n".join(row[0] for row in found)
    assert "Index Scan using tellings_pkey on tellings t" in plan
    assert "using tellings_without_a_position" in plan
    assert "events" not in plan
