"""A store put back from an older copy while transactions were in flight: nothing is paid twice."""

import shutil
from pathlib import Path

from nonchalant.testing.crashpoints import Point
from tests.e2e import ledger
from tests.e2e.crashes import die
from tests.e2e.rig import Rig, payment, rig, until

FILES = ("nonchalant.db", "nonchalant.db-wal", "nonchalant.db-shm")
LATE = [f"late{i}" for i in range(6)]


def copy_store(here: Rig, to: str, *, witness: bool = False) -> None:
    """As a backup would: of a store that nobody has open."""
    (here.folder / to).mkdir()
    for name in (*FILES, "nonchalant.db-witness") if witness else FILES:
        if (here.folder / name).exists():
            shutil.copy2(here.folder / name, here.folder / to / name)


def put_back(here: Rig, copy: str) -> None:
    for name in FILES:
        (here.folder / name).unlink(missing_ok=True)
    for found in (here.folder / copy).iterdir():
        shutil.copy2(found, here.folder / found.name)


def executed(here: Rig) -> int:
    states = here.states()
    return states.get("mined", 0) + states.get("confirmed", 0)


async def settle_first(here: Rig) -> None:
    """The lanes are known before anything is copied."""
    here.ask([payment(f"first{i}", i) for i in range(2)])
    process = await here.start()
    await process.ready()
    await here.settle()
    await process.stop()


async def executed_once(here: Rig, keys: list[str]) -> None:
    deeds = await ledger.deeds(here.anvil)
    for key in keys:
        ran = [deed for deed in deeds if deed.to == ledger.recipient(key)]
        assert len(ran) == 1, f"{key} ran {len(ran)} times"


async def restored_while_queued(here: Rig, *, witness: bool) -> None:
    """In the copy the late ones are queued; on the chain they have run."""
    await settle_first(here)
    here.ask([payment(key, i % 2) for i, key in enumerate(LATE)])
    await die(here, Point.parse("signer.sign:before:1"))
    assert here.states() == {"confirmed": 2, "queued": 6}
    copy_store(here, "copy", witness=witness)
    process = await here.start()
    await until(lambda: executed(here) > 5, "most of them executed", tick=here.anvil.mine, every=0.1)
    await process.kill()
    put_back(here, "copy")
    assert here.states() == {"confirmed": 2, "queued": 6}
    process = await here.start()
    await process.ready()

    def told() -> bool:
        rows = [row for row in ledger.rows(here.store) if row.key in LATE]
        return all(row.state == "confirmed" or row.held for row in rows)

    await until(
        told, lambda: f"{ledger.rows(here.store)} {process.log.read_text()[-3000:]}", tick=here.anvil.mine, every=0.1
    )
    held = [row for row in ledger.rows(here.store) if row.held]
    assert len(held) > 3
    assert {row.attention for row in held} == {"same_payload_executed"}
    after = payment("after", 0)
    here.ask([after])
    client = await here.start(requests=[after], name="-after")
    await until(
        lambda: any((row.key, row.state) == ("after", "confirmed") for row in ledger.rows(here.store)),
        "the lane goes on",
        tick=here.anvil.mine,
        every=0.1,
    )
    await client.stop()
    await process.stop()
    await executed_once(here, [*LATE, "first0", "first1"])


async def test_a_store_put_back_in_place_of_a_newer_one_pays_nothing_twice(tmp_path: Path) -> None:
    async with rig(tmp_path, accounts=2, window=4) as here:
        await restored_while_queued(here, witness=False)


async def test_a_whole_folder_put_back_pays_nothing_twice(tmp_path: Path) -> None:
    """Even what remembers how far the store had come is old: the chain's own count gives it away."""
    async with rig(tmp_path, accounts=2, window=4) as here:
        await restored_while_queued(here, witness=True)


async def test_a_store_put_back_that_knows_the_bytes_finds_them_on_the_chain(tmp_path: Path) -> None:
    async with rig(tmp_path, accounts=2, window=4) as here:
        await settle_first(here)
        here.ask([payment(key, i % 2) for i, key in enumerate(LATE)])
        process = await here.start()
        await until(lambda: here.states().get("sent", 0) == 6, "all sent")
        await process.kill()
        copy_store(here, "copy")
        process = await here.start()
        await until(lambda: here.states() == {"confirmed": 8}, "all confirmed", tick=here.anvil.mine, every=0.1)
        await process.kill()
        put_back(here, "copy")
        assert here.states()["sent"] == 6
        process = await here.start()
        await process.ready()
        await here.settle()
        await process.stop()
        await here.audit()
