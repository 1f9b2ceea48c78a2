"""What is ordinary takes one round trip on PostgreSQL, and comes out as it does in several."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Any, NoReturn

import asyncpg
import pytest

from nonchalant.errors import LeaseLost, RowMoved
from nonchalant.installation import Installation
from nonchalant.model import Change, Event
from nonchalant.ports import Draining, Duplicate, Removed
from nonchalant.store import at_once, postgres_schema, queries
from nonchalant.store.migrations import Migration
from nonchalant.store.postgres import PostgresStore
from nonchalant.values import replace
from nonchalant.words import Mode, State
from tests.examples import LANE, a_request
from tests.postgres import Cluster
from tests.store.acts import LIMITS, accept, assign, begun, on_a_server, on_postgres, sql, take

store = pytest.fixture(on_a_server)

DIGEST = "264cf5bb61f80d9ce6dd82a96fea96097b55d7a101ab85f0cd0b95e54228a93f"


def forbid(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever takes more than one statement."""

    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise AssertionError("in several steps")

    monkeypatch.setattr(store, "_write", refuse)


async def test_a_request_is_accepted_and_sent_on_its_way_in_one_round_trip_each(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = await take(store)
    await accept(store, "first")  # by which the room is known
    with monkeypatch.context() as patch:
        forbid(store, patch)
        [tx] = await accept(store, "tx")
        together = await store.accept_together([a_request("b"), a_request("c")], limits=LIMITS)
        [signed] = await assign(store, lease, (tx, 0))
    assert await store.transaction("tx") == signed
    assert [await store.transaction(id) for id in ("b", "c")] == list(together)
    assert [(event.kind, event.data) for event in await store.history("b")] == [("tx.accepted", {})]
    assert [event.kind for event in await store.history("tx")] == ["tx.accepted", "tx.signed"]
    places = [tx.place for tx in (tx, *together) if hasattr(tx, "place")]
    assert places == sorted(places)


async def test_what_is_known_already_is_found_and_its_neighbours_are_accepted(store: PostgresStore) -> None:
    await accept(store, "first")
    [known] = await store.accept([a_request("known", idempotency_key="k")], limits=LIMITS)
    again = a_request("again", idempotency_key="k")
    answers = await store.accept([a_request("before"), again, a_request("after")], limits=LIMITS)
    assert [type(answer).__name__ for answer in answers] == ["Transaction", "Duplicate", "Transaction"]
    assert answers[1] == Duplicate(known)  # type: ignore[arg-type]
    assert await store.transaction("again") is None


async def test_a_lane_that_is_drained_takes_nothing_more(store: PostgresStore) -> None:
    await accept(store, "first")
    await store.control(LANE, Mode.DRAINING, "enough")
    assert await store.accept([a_request("late")], limits=LIMITS) == [Draining()]
    assert await store.transaction("late") is None


async def test_room_that_was_counted_long_ago_is_counted_again(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await accept(store, "first")
    store._room._lanes[LANE].at -= 10_000
    with monkeypatch.context() as patch:
        forbid(store, patch)
        with pytest.raises(AssertionError, match="in several steps"):
            await accept(store, "late")
    await accept(store, "late")


async def test_nothing_is_written_for_a_lease_that_is_lost(store: PostgresStore) -> None:
    lease = await take(store)
    [tx] = await accept(store, "tx")
    await sql(store, "UPDATE leases SET epoch = epoch + 1")
    with pytest.raises(LeaseLost, match="not ours any more"):
        await assign(store, lease, (tx, 0))
    assert await store.transaction("tx") == tx
    assert [event.kind for event in await store.history("tx")] == ["tx.accepted"]


@pytest.mark.parametrize("rows", [1, 30])
async def test_one_row_that_moved_undoes_all_of_the_commit(store: PostgresStore, rows: int) -> None:
    lease = await take(store)
    txs = await accept(store, *(f"tx{number}" for number in range(rows)))
    await sql(store, "UPDATE transactions SET version = version + 1 WHERE id = ?", txs[-1].id)
    with pytest.raises(RowMoved, match=r"update_transaction: (one of )?tx"):
        await assign(store, lease, *((tx, number) for number, tx in enumerate(txs)))
    assert {row[0] for row in await sql(store, "SELECT state FROM transactions")} == {"queued"}
    assert await sql(store, "SELECT 1 FROM slots") == []


async def test_many_rows_of_which_most_columns_are_alike_come_out_as_they_went_in(store: PostgresStore) -> None:
    lease = await take(store)
    txs = await accept(store, *(f"tx{number}" for number in range(40)))
    signed = await assign(store, lease, *((tx, number) for number, tx in enumerate(txs)))
    loaded = await store.load(lease)
    assert sorted(loaded.transactions, key=lambda tx: tx.place) == list(signed)
    assert [slot.nonce for slot in loaded.slots] == list(range(40))
    assert [slot.tx_id for slot in loaded.slots] == [tx.id for tx in txs]
    assert {tx.state for tx in loaded.transactions} == {State.SIGNED}


def test_what_is_not_ordinary_is_known_for_it() -> None:
    assert at_once.is_ordinary(Change(events=(Event(kind="lane.filled", lane=LANE, at=0),)))
    assert not at_once.is_ordinary(Change(freed=(1,)))
    assert not at_once.is_ordinary(Change(rewritten=frozenset({"a"})))
    assert not at_once.is_ordinary(Change(unsettled_from=0))
    assert not at_once.are_ordinary([])
    assert not at_once.are_ordinary([a_request("a", asked_nonce=1)])
    assert not at_once.are_ordinary([a_request("a", valid_until=1)])
    assert not at_once.are_ordinary([a_request("a"), a_request("a")])
    assert not at_once.are_ordinary([a_request("a", idempotency_key="k"), a_request("b", idempotency_key="k")])


# what the server or the driver refuses


UNSTORABLE: list[dict[str, Any]] = [{"idempotency_key": "\ud800"}, {"confirmations": 2**63}]


@pytest.mark.parametrize("fields", UNSTORABLE)
async def test_a_value_that_cannot_even_be_sent_is_no_unknown_outcome(
    store: PostgresStore, fields: dict[str, Any]
) -> None:
    await accept(store, "first")  # by which the room is known
    with pytest.raises(ValueError, match="cannot keep this"):
        await store.accept([a_request("good"), a_request("bad", **fields)], limits=LIMITS)
    assert await store.transaction("good") is None


async def test_nor_is_it_one_of_an_owner(store: PostgresStore) -> None:
    lease = await take(store)
    [tx] = await accept(store, "tx")
    with pytest.raises(ValueError, match="cannot keep this"):
        await store.commit(Change(transactions=(replace(tx, version=2, failure="\ud800"),)), lease)
    assert await store.transaction("tx") == tx


@asynccontextmanager
async def ruled(postgres: Cluster, rule: str) -> AsyncIterator[asyncpg.Connection]:
    """A server whose database has this rule for whoever says nothing else, and somebody else who uses it."""
    keeper = await asyncpg.connect(postgres.dsn)
    await keeper.execute(f"ALTER DATABASE postgres SET {rule}")
    try:
        yield keeper
    finally:
        await keeper.execute(f"ALTER DATABASE postgres RESET {rule.partition(' ')[0]}")
        await keeper.close()


async def test_a_key_that_is_removed_meanwhile_is_not_accepted_again_whatever_the_server_s_rules(
    postgres: Cluster,
) -> None:
    """Each step must see what was committed before it: where one statement would not, several do it."""
    async with (
        ruled(postgres, "default_transaction_isolation = 'repeatable read'") as keeper,
        on_postgres(postgres) as store,
    ):
        await store.declare([LANE])
        await accept(store, "first")
        await store.accept([a_request("known", idempotency_key="k")], limits=LIMITS)
        moving = keeper.transaction(isolation="read_committed")
        await moving.start()
        await keeper.execute(f"""
            SELECT pg_advisory_xact_lock(hashtextextended('"{store.schema}".keys', 0));
            SET LOCAL session_replication_role = replica;
            INSERT INTO "{store.schema}".removed (tenant, idempotency_key, id, body_hash, removed_at)
            SELECT tenant, idempotency_key, id, body_hash, 1 FROM "{store.schema}".transactions WHERE id = 'known';
            DELETE FROM "{store.schema}".transactions WHERE id = 'known'
        """)
        again = store.accept([a_request("again", idempotency_key="k")], limits=LIMITS)
        answering = await begun(store, again)
        assert not answering.done()
        await moving.commit()
        assert await answering == [Removed("known")]
        lease = await take(store)
        [tx] = await accept(store, "last")
        await assign(store, lease, (tx, 0))


async def test_a_server_that_acknowledges_early_does_not_do_so_for_what_is_done_at_once(postgres: Cluster) -> None:
    """Asked within the very transaction that the function is."""
    async with ruled(postgres, "synchronous_commit = off"), on_postgres(postgres) as store:
        await store.declare([LANE])
        await sql(store, "CREATE TABLE said (setting TEXT)")
        await sql(
            store,
            "CREATE FUNCTION nonchalant.say() RETURNS TRIGGER LANGUAGE plpgsql AS $$ BEGIN"
            " INSERT INTO nonchalant.said VALUES (current_setting('synchronous_commit')); RETURN NULL; END $$",
        )
        await sql(
            store,
            "CREATE CONSTRAINT TRIGGER says AFTER INSERT ON nonchalant.tellings"
            " DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION nonchalant.say()",
        )
        await accept(store, "first")
        [tx] = await accept(store, "at once")
        await assign(store, await take(store), (tx, 0))
        assert {row[0] for row in await sql(store, "SELECT setting FROM said")} == {"local"}


# the functions


async def test_a_later_migration_may_make_them_anew(postgres: Cluster) -> None:
    known = postgres_schema.known()
    anew = at_once.functions(queries.load("postgres")).replace("stall_for TEXT", "stall_for TEXT, more TEXT")
    installation = Installation.parse(f"{postgres.dsn}?schema=made_anew")
    steps = [*known, Migration(known[-1].version + 1, "functions", anew)]
    await postgres_schema.migrate(installation, "x", steps)
    keeper = await asyncpg.connect(postgres.dsn)
    try:
        found = await keeper.fetch("SELECT proname FROM pg_proc WHERE pronamespace = 'made_anew'::REGNAMESPACE")
        assert sorted(row["proname"] for row in found if row["proname"].endswith("at_once")) == [
            at_once.ACCEPT,
            at_once.COMMIT,
        ]
    finally:
        await keeper.close()


def test_who_changes_a_statement_of_theirs_writes_a_migration() -> None:
    """They are made when the schema is: an installation that has it would keep the old ones. Until the first release, the
    digest may be renewed instead."""
    made = sha256(at_once.functions(queries.load("postgres")).encode()).hexdigest()
    assert made == DIGEST
