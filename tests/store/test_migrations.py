"""Versions of the schema: a new file and an old one end alike, and no step is half done."""

import sqlite3
import threading
from pathlib import Path

import pytest

from nonchalant.errors import BadSettings, StoreUnavailable
from nonchalant.store import migrations
from nonchalant.store.migrations import Migration, Status, known, migrate, status
from nonchalant.store.sqlite import SqliteStore, connect
from tests.examples import LANE
from tests.store.acts import Counting, ManualClock, accept
from tests.store.child import RealClock

LATEST = known()[-1].version


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "nonchalant.db"


@pytest.fixture
def url(path: Path) -> str:
    return f"sqlite:{path}"


def later(*scripts: str) -> list[Migration]:
    """What exists, and steps to come."""
    return [*known(), *(Migration(LATEST + n, f"step {n}", script) for n, script in enumerate(scripts, 1))]


def opened(path: Path) -> SqliteStore:
    return SqliteStore.open(path, clock=ManualClock(), entropy=Counting())


def schema_of(path: Path) -> list[tuple[str, str]]:
    connection = sqlite3.connect(path)
    try:
        return connection.execute("SELECT name, sql FROM sqlite_master ORDER BY name").fetchall()
    finally:
        connection.close()


# status


def test_the_status_of_a_missing_file_makes_none(url: str, path: Path) -> None:
    assert status(url) == Status(path, 0, LATEST)
    assert not status(url).is_current
    assert not path.exists()


async def test_a_store_that_was_just_opened_is_current(url: str, path: Path) -> None:
    await opened(path).close()
    assert status(url) == Status(path, LATEST, LATEST)
    assert status(url).is_current


def test_a_file_that_is_no_database_is_told(url: str, path: Path) -> None:
    path.write_text("a letter to a friend" * 99)
    with pytest.raises(BadSettings, match="is it a database of Nonchalant"):
        status(url)


def test_a_folder_that_is_missing_is_told(tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match="check that the folder exists"):
        migrate(f"sqlite:{tmp_path / 'nowhere' / 'n.db'}")


@pytest.mark.parametrize("url", ["postgresql://user@host/db", "sqlite:", "nonchalant.db"])
def test_another_kind_of_store_is_refused(url: str) -> None:
    with pytest.raises(BadSettings, match="sqlite:PATH"):
        status(url)


# opening


async def test_a_newer_file_is_refused_with_the_remedy(url: str, path: Path) -> None:
    migrate(url, later("CREATE TABLE more (x)"))
    with pytest.raises(BadSettings, match=f"has schema version {LATEST + 1}.*upgrade Nonchalant"):
        opened(path)
    with pytest.raises(BadSettings, match="upgrade Nonchalant"):
        migrate(url)


async def test_an_older_file_is_refused_with_the_remedy(url: str, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    migrate(url)
    monkeypatch.setattr(migrations, "known", lambda: later("CREATE TABLE more (x)"))
    with pytest.raises(BadSettings, match=f"needs {LATEST + 1}; run `nonchalant db migrate`"):
        opened(path)
    migrations.migrate(url)
    await opened(path).close()


# migrating


async def test_migrating_a_missing_file_makes_the_store_that_opening_makes(
    url: str, path: Path, tmp_path: Path
) -> None:
    assert migrate(url) == Status(path, LATEST, LATEST)
    other = tmp_path / "other.db"
    await opened(other).close()
    assert schema_of(path) == schema_of(other)
    store = opened(path)
    await store.declare([LANE])
    await accept(store, "a")
    await store.close()


def test_two_stores_made_by_migrating_have_names_of_their_own(tmp_path: Path) -> None:
    names = set()
    for name in ("one.db", "two.db"):
        migrate(f"sqlite:{tmp_path / name}")
        connection = sqlite3.connect(tmp_path / name)
        names |= set(connection.execute("SELECT store_id FROM meta").fetchall())
        connection.close()
    assert len(names) == 2


def test_migrating_what_is_current_changes_nothing(url: str, path: Path) -> None:
    migrate(url)
    before = path.read_bytes()
    assert migrate(url).is_current
    assert path.read_bytes() == before


async def test_later_steps_are_taken_in_order_and_keep_what_is_there(url: str, path: Path) -> None:
    store = opened(path)
    await store.declare([LANE])
    await accept(store, "a")
    await store.close()
    steps = later("CREATE TABLE more (x);\nINSERT INTO more VALUES (1);", "UPDATE more SET x = x + 1")
    assert status(url, steps) == Status(path, LATEST, LATEST + 2)
    assert migrate(url, steps) == Status(path, LATEST + 2, LATEST + 2)
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT x FROM more").fetchall() == [(2,)]
    assert connection.execute("SELECT id FROM transactions").fetchall() == [("a",)]
    connection.close()


def test_a_step_that_fails_leaves_the_version_before_it_whole(url: str, path: Path) -> None:
    migrate(url)
    steps = later("CREATE TABLE good (x)", "CREATE TABLE bad (x);\nINSERT INTO nowhere VALUES (1);")
    with pytest.raises(StoreUnavailable, match="no such table: nowhere"):
        migrate(url, steps)
    assert status(url, steps).version == LATEST + 1
    names = {name for name, _ in schema_of(path)}
    assert "good" in names
    assert "bad" not in names


async def test_a_step_that_orphans_rows_is_refused(url: str, path: Path) -> None:
    store = opened(path)
    await store.declare([LANE])
    await accept(store, "a")
    await store.close()
    with pytest.raises(StoreUnavailable, match="leaves rows of transactions that refer to nothing"):
        migrate(url, later("DELETE FROM lanes"))
    assert status(url).version == LATEST


async def test_a_table_can_be_rebuilt_though_others_refer_to_it(url: str, path: Path) -> None:
    store = opened(path)
    await store.declare([LANE])
    await accept(store, "a")
    await store.close()
    rebuild = """
    CREATE TABLE new_nodes (owner TEXT PRIMARY KEY, expires_at INTEGER NOT NULL, host TEXT) STRICT;
    INSERT INTO new_nodes (owner, expires_at) SELECT owner, expires_at FROM nodes;
    DROP TABLE nodes;
    ALTER TABLE new_nodes RENAME TO nodes;
    CREATE TABLE lanes_copy AS SELECT * FROM lanes;
    DELETE FROM lanes;
    INSERT INTO lanes SELECT * FROM lanes_copy;
    """
    assert migrate(url, later(rebuild)).version == LATEST + 1


async def test_a_step_is_not_taken_while_a_node_works_on_the_file(url: str, path: Path) -> None:
    store = SqliteStore.open(path, clock=RealClock(), entropy=Counting())
    await store.heartbeat("a", 60)
    with pytest.raises(StoreUnavailable, match=r"1 node\(s\) work on this store; stop them"):
        migrate(url, later("CREATE TABLE more (x)"))
    await store.release([], "a")
    await store.close()
    assert migrate(url, later("CREATE TABLE more (x)")).version == LATEST + 1


def test_two_who_migrate_at_once_take_each_step_once(url: str, path: Path) -> None:
    migrate(url)
    steps = later("CREATE TABLE more (x)", "INSERT INTO more VALUES (1)")
    threads = [threading.Thread(target=migrate, args=(url, steps)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT count(*) FROM more").fetchone() == (1,)
    connection.close()


def test_a_step_waits_for_the_write_lock(url: str, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    migrate(url)
    monkeypatch.setattr(migrations, "BUSY_SECONDS", 0.01)
    writer = connect(path)
    writer.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match="locked"):
        migrate(url, later("CREATE TABLE more (x)"))
    writer.execute("ROLLBACK")
    writer.close()


# the files


def folder(tmp_path: Path, *names: str) -> Path:
    (tmp_path / "schema.sql").write_text("CREATE TABLE first (x);")
    (tmp_path / "migrations").mkdir()
    for name in names:
        (tmp_path / "migrations" / name).write_text(f"-- {name}")
    return tmp_path


def test_steps_are_the_numbered_files_after_the_schema(tmp_path: Path) -> None:
    found = known(folder(tmp_path, "0003_third.sql", "0002_second.sql"))
    assert [(step.version, step.name) for step in found] == [
        (1, "schema"),
        (2, "0002_second.sql"),
        (3, "0003_third.sql"),
    ]
    assert found[1].script == "-- 0002_second.sql"


@pytest.mark.parametrize(
    "names",
    [("0003_hole.sql",), ("0001_again.sql",), ("0002_a.sql", "0002_b.sql"), ("0002 spaces.sql",), ("readme.txt",)],
)
def test_a_hole_or_a_number_used_twice_is_refused(tmp_path: Path, names: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="the next migration is"):
        known(folder(tmp_path, *names))


def test_every_migration_in_the_package_is_numbered() -> None:
    assert [step.version for step in known()] == list(range(1, LATEST + 1))
