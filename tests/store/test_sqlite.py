"""SQLite itself: on disk before it is acknowledged, safe for several processes, and quick however long the history."""

import asyncio
import re
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from nonchalant.errors import BadSettings, CommitUnknown, StoreUnavailable
from nonchalant.ports import Filter
from nonchalant.store import migrations, queries
from nonchalant.store.sqlite import SqliteStore, connect
from nonchalant.words import AttemptKind, Mode, OnSuperseded, SlotKind, State, Wanted
from tests.conftest import ROOT
from tests.examples import LANE, a_request
from tests.lessons import lesson
from tests.store.acts import LIMITS, OTHER_LANE, Counting, ManualClock, accept, filler, take
from tests.store.child import OWN_LANES, ROUNDS, TURNS, WRITES


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "nonchalant.db"


def opened(path: Path, clock: ManualClock | None = None) -> SqliteStore:
    return SqliteStore.open(path, clock=clock or ManualClock(), entropy=Counting())


def start(what: str, path: Path, owner: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.store.child", what, str(path), owner],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )


# durability


@pytest.mark.parametrize("connection", ["_writer", "_reader"])
async def test_every_commit_is_on_disk_before_it_is_acknowledged(path: Path, connection: str) -> None:
    store = opened(path)
    found = {
        pragma: getattr(store, connection).execute(f"PRAGMA {pragma}").fetchone()[0]
        for pragma in ("journal_mode", "synchronous", "fullfsync", "foreign_keys")
    }
    # 2 is FULL: the log is synchronised at each commit; on macOS it takes fullfsync.
    assert found == {"journal_mode": "wal", "synchronous": 2, "fullfsync": 1, "foreign_keys": 1}
    await store.close()


@pytest.mark.parametrize("acknowledged", [1, 7, 40])
async def test_what_was_acknowledged_survives_kill_9(path: Path, acknowledged: int) -> None:
    with start("accept", path, "k") as child:
        assert child.stdout is not None
        said = [child.stdout.readline().strip() for _ in range(acknowledged + 1)]
        child.send_signal(signal.SIGKILL)
        said += [line.strip() for line in child.stdout]
    store = opened(path)
    there = {tx.id for tx in await store.transactions(Filter(limit=10_000))}
    # The last line may have been cut short.
    assert set(said[1:-1]) <= there
    assert len(said) > acknowledged
    for id in said[1:-1]:
        assert [event.kind for event in await store.history(id)] == ["tx.accepted"]
    assert await store.incarnation() == 0
    await store.close()


# several processes


@pytest.mark.parametrize("round_", range(3))
async def test_processes_that_open_a_new_file_at_once_make_one_store(path: Path, round_: int) -> None:
    children = [start("open", path, owner) for owner in "abcd"]
    assert [child.communicate()[0] for child in children] == ["open\n"] * 4
    assert [child.returncode for child in children] == [0] * 4
    store = opened(path)
    assert len(await store.lanes()) == 5
    assert await store.incarnation() == 0
    await store.close()


async def test_a_file_that_another_process_is_making_is_waited_for(path: Path) -> None:
    """SQLite itself does not wait to switch a file to its log while another process writes there."""
    with start("write slowly", path, "") as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "writes\n"
        store = opened(path)
        assert store._writer.execute("SELECT count(*) FROM t").fetchone()[0] == 0  # it was waited for
        await store.close()


@pytest.mark.parametrize("round_", range(3))
async def test_processes_that_migrate_and_open_a_new_file_at_once_make_one_store(path: Path, round_: int) -> None:
    acts = ["migrate", "open", "migrate", "open", "migrate", "open"]
    children = [start(what, path, "a") for what in acts]
    said = [child.communicate()[0] for child in children]
    assert said == [f"{migrations.known()[-1].version}\n" if what == "migrate" else "open\n" for what in acts]
    store = opened(path)
    assert store._writer.execute("SELECT count(*) FROM meta").fetchone()[0] == 1
    assert await store.incarnation() == 0
    await store.close()


async def test_processes_on_one_file_work_their_own_lanes_and_fence_each_other_off_a_common_one(path: Path) -> None:
    children = [start("hammer", path, owner) for owner in "abc"]
    said = Counter(line for child in children for line in child.communicate()[0].splitlines())
    assert [child.returncode for child in children] == [0] * 3
    store = opened(path)
    for owner in "abc":
        lane = await store.lane(OWN_LANES[owner])
        assert lane is not None
        assert lane.states == {State.SIGNED: ROUNDS}
        assert lane.slots == {"transaction": ROUNDS}
    # Fenced: whatever was committed in the name of an epoch lies before the next one begins.
    current, epochs, writes = 0, [], 0
    for event in await store.events_after(0, limit=100_000):
        if event.lane == LANE and event.kind == "lane.lease":
            current = int(str(event.data["epoch"]))
            epochs.append(current)
        elif event.kind == "lane.filled":
            assert event.data["epoch"] == current
            writes += 1
    assert epochs == list(range(1, len(epochs) + 1))
    assert len(epochs) == said["kept"] + said["lost"]
    assert writes >= WRITES * said["kept"]
    assert said["kept"] >= 3 * len(TURNS)
    assert await store.incarnation() == 0
    await store.close()


# trouble


async def test_a_file_that_cannot_be_opened_is_a_bad_setting(tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match="check that the folder exists and is writable"):
        opened(tmp_path / "nowhere" / "nonchalant.db")


async def test_a_file_that_is_no_database_is_a_bad_setting(path: Path) -> None:
    path.write_bytes(b"this is not a database, it is a letter to a friend" * 99)
    with pytest.raises(BadSettings, match="not a database"):
        opened(path)


async def test_a_locked_file_is_unavailable_and_works_again_afterwards(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(path)
    await store.declare([LANE])
    store._writer.execute("PRAGMA busy_timeout = 1")
    other = connect(path)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match="locked"):
        await store.accept([a_request("a")], limits=LIMITS)
    other.execute("ROLLBACK")
    other.close()
    await accept(store, "a")
    await store.close()


async def test_a_full_disk_is_unavailable_writes_nothing_and_heals(path: Path) -> None:
    store = opened(path)
    await store.declare([LANE])
    [pages] = store._writer.execute("PRAGMA page_count").fetchone()
    store._writer.execute(f"PRAGMA max_page_count = {pages}")
    big = {"note": "x" * 100_000}
    with pytest.raises(StoreUnavailable, match="full"):
        await store.accept([a_request("a"), a_request("b", metadata=big)], limits=LIMITS)
    assert await store.transactions(Filter()) == []
    store._writer.execute(f"PRAGMA max_page_count = {pages + 1000}")
    await accept(store, "a", metadata=big)
    await store.close()


class _LosesTheCommit:
    """A connection whose COMMIT reports an error, before or after it happened."""

    def __init__(self, connection: sqlite3.Connection, happens: bool) -> None:
        self._connection = connection
        self._happens = happens

    def executemany(self, sql: str, parameters: object) -> sqlite3.Cursor:
        return self._connection.executemany(sql, parameters)  # type: ignore[arg-type]

    def execute(self, sql: str, *parameters: object) -> sqlite3.Cursor:
        if sql == "COMMIT":
            if self._happens:
                self._connection.execute(sql)
            raise sqlite3.OperationalError("disk I/O error")
        return self._connection.execute(sql, *parameters)  # type: ignore[arg-type]

    @property
    def in_transaction(self) -> bool:
        return self._connection.in_transaction


@pytest.mark.parametrize("happened", [False, True])
async def test_a_commit_that_does_not_report_back_is_unknown_and_the_store_goes_on(path: Path, happened: bool) -> None:
    store = opened(path)
    await store.declare([LANE])
    real = store._writer
    store._writer = _LosesTheCommit(real, happened)  # type: ignore[assignment]
    with pytest.raises(CommitUnknown):
        await store.accept([a_request("a")], limits=LIMITS)
    store._writer = real
    assert (await store.transaction("a") is not None) is happened
    await accept(store, "a")
    assert len(await store.history("a")) == 1
    await store.close()


async def test_readers_do_not_wait_for_a_writer(path: Path) -> None:
    store = opened(path)
    await store.declare([LANE])
    [tx] = await accept(store, "a")
    other = connect(path)
    other.execute("BEGIN IMMEDIATE")
    assert await asyncio.wait_for(store.transaction("a"), 1) == tx
    other.execute("ROLLBACK")
    other.close()
    await store.close()


async def test_another_process_s_commit_is_seen_at_once(path: Path) -> None:
    one, two = opened(path), opened(path)
    await one.declare([LANE])
    [tx] = await accept(one, "a")
    assert await two.transaction("a") == tx
    await one.close()
    await two.close()


# the schema repeats the promises


@pytest.fixture
def schema(path: Path) -> Iterator[sqlite3.Connection]:
    connection = connect(path)
    migrations.create(connection, "x")
    yield connection
    connection.close()


@pytest.mark.parametrize(
    ("table", "column", "values"),
    [
        ("transactions", "state", State),
        ("slots", "kind", SlotKind),
        ("slots", "wanted", Wanted),
        ("attempts", "kind", AttemptKind),
        ("controls", "mode", Mode),
        ("transactions", "on_superseded", OnSuperseded),
    ],
)
def test_the_checks_know_exactly_the_values_the_model_knows(
    schema: sqlite3.Connection, table: str, column: str, values: type[State]
) -> None:
    [text] = schema.execute("SELECT sql FROM sqlite_master WHERE name = ?", (table,)).fetchone()
    [checked] = re.findall(rf"CHECK \({column} IN \(([^)]*)\)\)", text)
    assert [word.strip(" '\n") for word in checked.split(",")] == [value.value for value in values]


def words(text: str) -> set[str]:
    return set(re.findall(r"'(\w+)'", text))


def test_the_trigger_on_ends_knows_every_end(schema: sqlite3.Connection) -> None:
    [text] = schema.execute("SELECT sql FROM sqlite_master WHERE name = 'ends_are_final'").fetchone()
    ends = {state.value for state in State} - {"queued", "signed", "sent", "mined"}
    assert words(text.split("BEGIN")[0]) == ends


async def test_leases_cannot_be_deleted_nor_their_epochs_lowered(path: Path) -> None:
    store = opened(path)
    await store.declare([LANE])
    await take(store)
    with pytest.raises(sqlite3.IntegrityError, match="never deleted"):
        store._writer.execute("DELETE FROM leases")
    with pytest.raises(sqlite3.IntegrityError, match="never decreases"):
        store._writer.execute("UPDATE leases SET epoch = 0")
    await store.close()


async def test_an_attempt_of_a_live_slot_cannot_be_changed_nor_deleted(path: Path) -> None:
    store = opened(path)
    await store.declare([LANE])
    lease = await take(store)
    await store.commit(filler(lease, 0), lease)
    with pytest.raises(sqlite3.IntegrityError, match="never changes"):
        store._writer.execute("UPDATE attempts SET raw = x'00'")
    with pytest.raises(sqlite3.IntegrityError, match="until its slot is final"):
        store._writer.execute("DELETE FROM attempts")
    await store.close()


@lesson("address-spelling")
async def test_a_mixed_case_address_does_not_slip_past_the_keys(path: Path) -> None:
    store = opened(path)
    with pytest.raises(sqlite3.IntegrityError):
        store._writer.execute("INSERT INTO lanes (chain_id, address) VALUES (7, '0xAB')")
    await store.close()


# plans: what is done often must not grow with what is done


ONE_ROW = {"count_commit", "position", "raise_incarnation", "raise_forgotten"}  # of the table `meta`
ALL_NODES = {"forget_dead_nodes", "live_nodes"}
ALLOWED: dict[str, str | tuple[str, ...]] = {
    # From one busy lane to the next, and what is open or ill.
    "lanes_with_work": (
        *("SCAN chains", "SCAN live", "SCAN bound", "SCAN busy", "SCAN meta"),
        *("SCAN wishes USING INDEX wishes_open", "SCAN lanes USING INDEX lanes_unhealthy"),
    ),
    "overdue": "SCAN meta",
    "lanes": ("SCAN lanes", "SCAN may VIRTUAL TABLE"),
    "lane_conditions": "SCAN lanes",
    # What is live, and no more of it than the caller says.
    "backlog": "SCAN transactions USING INDEX transactions_live",
    # The row that is to be written.
    "insert_transaction": "SCAN CONSTANT ROW",
    "insert_signed": "SCAN CONSTANT ROW",
    # Lane by lane, and in each by index.
    "ended_before": "SCAN lanes",
    "final_fillers": "SCAN lanes",
    "remove_loose_attempts": "SCAN lanes",
    # The list that the caller gives.
    "queued": ("SCAN json_each", "SCAN asking", "SCAN others"),  # and what was found of each kind
    "may_have_run": ("SCAN json_each", "SCAN meta"),
    "twin": "SCAN json_each",
    "insert_wish": "SCAN CONSTANT ROW",
    "room": "SCAN CONSTANT ROW",
    # SQLite's own count of positions, a row a table.
    "begin_positions": ("SCAN CONSTANT ROW", "SCAN sqlite_sequence"),
    "skip_positions": "SCAN sqlite_sequence",
    "event_range": ("SCAN meta", "SCAN sqlite_sequence"),
    # A hundred webhooks at most, and the nodes.
    "insert_webhook": ("SCAN CONSTANT ROW", "SCAN webhooks"),
    "release_webhooks": "SCAN webhooks",
    "webhook_owners": ("SCAN webhooks", "SCAN nodes"),
    # Whether there is any.
    "some_key": "SCAN keys",
    # From the oldest to the first that is young enough, when a person has something delivered again.
    "position_since": "SCAN events",
    # Nothing at all.
    "lock_lane": "SCAN CONSTANT ROW",
}


def plan(connection: sqlite3.Connection, sql: str) -> list[str]:
    parameters = dict.fromkeys(re.findall(r":(\w+)", sql))
    return [row["detail"] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", parameters)]


QUERIES = queries.load("sqlite")


@pytest.mark.parametrize("name", sorted(set(QUERIES) - ONE_ROW - ALL_NODES - {"transactions"}))
def test_no_query_scans_a_table_that_grows(schema: sqlite3.Connection, name: str) -> None:
    scans = [step for step in plan(schema, QUERIES[name]) if step.startswith("SCAN") and "subquery" not in step]
    assert [step for step in scans if not (name in ALLOWED and step.startswith(ALLOWED[name]))] == []


def test_the_queue_is_read_in_the_order_of_its_index_whatever_is_skipped(schema: sqlite3.Connection) -> None:
    steps = plan(schema, QUERIES["queued"])
    assert [step for step in steps if " transactions " in step] == [
        "SEARCH transactions USING INDEX transactions_asking (chain_id=? AND address=? AND asked_nonce>?)",
        "SEARCH transactions USING INDEX transactions_to_assign (chain_id=? AND address=?)",
    ]
    assert not any("ORDER BY" in step for step in steps)


@pytest.mark.parametrize("name", ["load_slots", "load_attempts", "load_transactions", "live_slots", "lanes_with_work"])
def test_what_is_final_is_not_read_to_find_what_is_not(schema: sqlite3.Connection, name: str) -> None:
    steps = [step for step in plan(schema, QUERIES[name]) if " slots " in step]
    assert steps
    assert all("slots_unsettled" in step for step in steps)


@pytest.mark.parametrize(
    ("given", "index"),
    [
        ({"limit"}, ""),
        ({"limit", "before"}, "INTEGER PRIMARY KEY (rowid<?)"),
        ({"limit", "hash"}, "sqlite_autoindex_transactions_1 (id=?)"),
        ({"limit", "idempotency_key"}, "one_transaction_a_key (idempotency_key=?)"),
        ({"limit", "chain_id", "address", "nonce"}, "transactions_by_nonce (nonce=? AND address=? AND chain_id=?)"),
    ],
)
def test_each_listing_finds_its_own_index(schema: sqlite3.Connection, given: set[str], index: str) -> None:
    steps = plan(schema, queries.narrowed(QUERIES["transactions"], given))
    assert any(index in step for step in steps)
    assert not index or not any(step.startswith("SCAN transactions") for step in steps)
    # Without a filter, the newest come first without sorting.
    assert index or steps == ["SCAN transactions"]


async def test_unsettled_work_is_found_by_index_among_a_long_history(path: Path) -> None:
    """The steps of SQLite's own machine, counted: they depend on what is live, not on what was."""
    store = opened(path)
    await store.declare([LANE, OTHER_LANE])
    counts = []
    for history in (0, 2_000):
        store._writer.execute("BEGIN")
        for number in range(history):
            store._writer.execute(
                "INSERT INTO transactions (id, chain_id, address, state, priority, tenant, body_hash, payload, fees,"
                " nonce, hash, receipt, created_at, updated_at)"
                " VALUES (?, ?, ?, 'confirmed', 5, 't', '', '', '', ?, 'h', 'r', 0, 0)",
                (f"old{number}", *LANE, number),
            )
            store._writer.execute(
                "INSERT INTO slots (chain_id, address, nonce, kind, tx_id, wanted, payload_version, settled,"
                " settled_at) VALUES (?, ?, ?, 'transaction', ?, 'payload', 1, 1, 0)",
                (*LANE, number, f"old{number}"),
            )
        store._writer.execute("COMMIT")
        steps = 0

        def count() -> int:
            nonlocal steps
            steps += 1
            return 0

        for connection in (store._writer, store._reader):
            connection.set_progress_handler(count, 1)
        lease = await take(store)
        await store.load(lease)
        await store.queued(LANE, limit=9)
        await store.lanes_with_work()
        await store.lane(LANE)
        await store.accept([a_request(f"new{history}", lane=OTHER_LANE)], limits=LIMITS)
        for connection in (store._writer, store._reader):
            connection.set_progress_handler(None, 1)
        counts.append(steps)
    assert counts[1] < counts[0] * 1.5
    await store.close()
