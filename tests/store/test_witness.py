"""A store that lost commits is noticed, and one that lost nothing is left in peace."""

import shutil
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from nonchalant.model import LaneRecord
from nonchalant.ports import Filter, Loaded
from nonchalant.store.sqlite import SqliteStore, connect
from nonchalant.store.talk import change
from nonchalant.store.witness import FileWitness, notice_restore
from tests.examples import LANE
from tests.store.acts import Counting, ManualClock, accept, take


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "nonchalant.db"


async def opened(path: Path, token: str = "1") -> SqliteStore:
    class Named(Counting):
        def token(self) -> str:
            return token.rjust(32, "0")

    store = SqliteStore.open(path, clock=ManualClock(), entropy=Named())
    await store.declare([LANE])
    return store


async def incarnation(path: Path, token: str = "1") -> int:
    store = await opened(path, token)
    try:
        return await store.incarnation()
    finally:
        await store.close()


async def add(path: Path, *ids: str) -> None:
    store = await opened(path)
    await accept(store, *ids)
    await store.close()


async def test_a_file_opened_again_and_again_has_lost_nothing(path: Path) -> None:
    await add(path, "a")
    await add(path, "b")
    assert await incarnation(path) == 0


async def test_an_older_copy_put_back_is_noticed_once(path: Path, tmp_path: Path) -> None:
    await add(path, "a")
    shutil.copy(path, tmp_path / "copy.db")
    await add(path, "b")
    shutil.copy(tmp_path / "copy.db", path)
    assert await incarnation(path) == 1
    assert await incarnation(path) == 1


async def test_an_older_copy_is_noticed_each_time_it_is_put_back(path: Path, tmp_path: Path) -> None:
    await add(path, "a")
    shutil.copy(path, tmp_path / "copy.db")
    for _ in range(2):
        await add(path, "b")
        shutil.copy(tmp_path / "copy.db", path)
        assert await incarnation(path) == 1


async def test_a_copy_of_the_very_same_state_is_not_older(path: Path, tmp_path: Path) -> None:
    await add(path, "a")
    shutil.copy(path, tmp_path / "copy.db")
    shutil.copy(tmp_path / "copy.db", path)
    assert await incarnation(path) == 0


async def test_a_store_made_anew_in_the_place_of_another_is_noticed(path: Path) -> None:
    await add(path, "a")
    path.unlink()
    assert await incarnation(path, token="2") == 1


async def test_a_lane_of_a_store_that_lost_commits_knows_that_it_must_be_reconciled(path: Path) -> None:
    await add(path, "a")
    path.unlink()
    store = await opened(path, token="2")
    loaded: Loaded = await store.load(await take(store))
    assert loaded.record == LaneRecord(key=LANE, incarnation=0)
    assert await store.incarnation() == 1
    await store.close()


@pytest.mark.parametrize("text", [None, "", "garbage", "one two three", "id notanumber", "long" * 99])
async def test_without_a_readable_witness_nothing_is_noticed_and_a_new_one_begins(path: Path, text: str | None) -> None:
    await add(path, "a")
    witness = Path(f"{path}-witness")
    if text is None:
        witness.unlink()
    else:
        witness.write_text(text)
    assert await incarnation(path) == 0
    # Declared, accepted, declared.
    assert FileWitness(witness).seen() == ("1".rjust(32, "0"), 3)


async def test_the_witness_sees_every_commit(path: Path) -> None:
    store = await opened(path)
    before = FileWitness(Path(f"{path}-witness")).seen()
    await accept(store, "a")
    after = FileWitness(Path(f"{path}-witness")).seen()
    assert before is not None
    assert after == (before[0], before[1] + 1)
    await store.close()


async def test_what_is_on_disk_is_acknowledged_although_the_witness_cannot_be_written(path: Path) -> None:
    store = await opened(path)
    real = store._witness

    class Full:
        def seen(self) -> tuple[str, int] | None:
            return real.seen()

        def saw(self, store_id: str, commits: int) -> None:
            raise OSError(28, "No space left on device")

    store._witness = Full()
    with capture_logs() as logs:
        await accept(store, "a")
        await accept(store, "b")
    assert [tx.id for tx in await store.transactions(Filter())] == ["b", "a"]
    assert [(entry["event"], entry["log_level"]) for entry in logs] == [("witness.unwritable", "warning")]
    # It catches up, and what fails anew is said anew.
    store._witness = real
    await accept(store, "c")
    [commits] = store._writer.execute("SELECT commits FROM meta").fetchone()
    assert real.seen() == ("1".rjust(32, "0"), commits)
    store._witness = Full()
    with capture_logs() as logs:
        await accept(store, "d")
    assert len(logs) == 1
    await store.close()


async def test_the_witness_is_for_its_owner_s_eyes(path: Path) -> None:
    await add(path, "a")
    assert Path(f"{path}-witness").stat().st_mode & 0o777 == 0o600


async def test_a_commit_of_another_process_while_we_open_is_not_taken_for_a_loss(path: Path) -> None:
    """The other one commits between our two looks: at the witness and at the store."""
    other = await opened(path)

    class Interrupted:
        """Looks, and then the other process commits and tells the witness."""

        def __init__(self) -> None:
            self.file = FileWitness(Path(f"{path}-witness"))

        def seen(self) -> tuple[str, int] | None:
            found = self.file.seen()
            self.commit()
            return found

        def saw(self, store_id: str, commits: int) -> None:
            self.file.saw(store_id, commits)

        def commit(self) -> None:
            other._transact(change("forget_dead_nodes"))

    witness = Interrupted()
    connection = connect(path)
    assert notice_restore(connection, witness) is False
    seen, [commits] = witness.file.seen(), connection.execute("SELECT commits FROM meta").fetchone()
    # And what the other one told the witness was not lowered.
    assert seen is not None
    assert seen[1] == commits
    connection.close()
    await other.close()


async def test_positions_that_an_older_copy_has_lost_are_not_given_again(path: Path, tmp_path: Path) -> None:
    """Whoever has read up to one of them goes on from there, and must not miss what comes."""
    for before in ([], ["a"]):
        await add(path, *before)
        shutil.copy(path, tmp_path / "copy.db")
        await add(path, f"lost{len(before)}")
        store = await opened(path)
        read_upto = await store.last_position()
        await store.close()
        shutil.copy(tmp_path / "copy.db", path)
        await add(path, f"next{len(before)}")
        store = await opened(path)
        assert [event.tx_id for event in await store.events_after(read_upto, limit=10)] == [f"next{len(before)}"]
        await store.close()
