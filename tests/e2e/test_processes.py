"""Real processes on one store: killed, stopped politely, two at once."""

import sqlite3
import time
from contextlib import closing
from pathlib import Path

from tests.e2e import kills
from tests.e2e.rig import LEASE_SECONDS, Rig, payment, rig, until


def owners(here: Rig) -> list[str]:
    """Who holds a lane now, one entry a lane."""
    with closing(sqlite3.connect(f"file:{here.store}?mode=ro", uri=True, timeout=10)) as connection:
        found = connection.execute("SELECT owner FROM leases WHERE owner IS NOT NULL AND expires_at > ?", [now()])
        return [owner for (owner,) in found]


def leases_told(here: Rig) -> list[tuple[str, str, int]]:
    """Which account's lane was taken, by whom and when."""
    with closing(sqlite3.connect(f"file:{here.store}?mode=ro", uri=True, timeout=10)) as connection:
        found = connection.execute("SELECT address, data ->> 'owner', at FROM events WHERE kind = 'lane.lease'")
        return found.fetchall()


def now() -> int:
    return time.time_ns() // 1_000_000


async def test_150_transactions_while_the_service_is_killed_five_times_execute_once_each(tmp_path: Path) -> None:
    figures = await kills.run(tmp_path, transactions=150, kills=5, block_time=0.5, lives=(0.5, 4.0))
    print(figures)
    assert figures.audit.executed == 150
    assert figures.audit.fillers == 0


async def test_a_node_that_is_told_to_stop_lets_its_lanes_go_and_another_takes_them_at_once(tmp_path: Path) -> None:
    async with rig(tmp_path, accounts=5, lease=120) as here:
        here.ask([payment(f"t{i}", i % 5) for i in range(25)])
        first = await here.start()
        await until(lambda: here.states() == {"sent": 25}, "everything sent")
        assert len(owners(here)) == 5
        took = await first.stop()
        assert owners(here) == []
        second = await here.start()
        opened = await second.ready()
        began = time.monotonic()
        await until(lambda: len(owners(here)) == 5, "all lanes taken over", seconds=100, every=0.01)
        print(f"stopped in {took:.3f} s, opened in {opened:.3f} s, took over in {time.monotonic() - began:.3f} s")
        await here.settle()
        await second.stop()
        await here.audit()


async def test_a_killed_node_s_lanes_are_taken_over_when_its_lease_runs_out_and_not_before(tmp_path: Path) -> None:
    async with rig(tmp_path, accounts=2, lease=4) as here:
        here.ask([payment(f"e{i}", i % 2) for i in range(4)])
        first = await here.start()
        await until(lambda: here.states() == {"sent": 4}, "everything sent")
        await first.kill()
        dead = {owner for _, owner, _ in leases_told(here)}
        second = await here.start()
        await second.ready()

        def taken_over() -> bool:
            return len({lane for lane, owner, _ in leases_told(here) if owner not in dead}) == 2

        await until(taken_over, "taken over", every=0.02)
        told = leases_told(here)
        for lane in {lane for lane, _, _ in told}:
            # A lease that a busy machine lost and took anew is the first node's all the same.
            given = max(at for of, owner, at in told if of == lane and owner in dead)
            taken = min(at for of, owner, at in told if of == lane and owner not in dead)
            assert taken - given >= 4_000
        await here.settle()
        await second.stop()
        await here.audit()


async def test_two_processes_on_one_file_share_the_lanes(tmp_path: Path) -> None:
    async with rig(tmp_path, accounts=4, window=4) as here:
        asked = [payment(f"s{i}", i % 4) for i in range(80)]
        here.ask(asked)
        first = await here.start(requests=[], name="-none")
        await first.ready()
        second = await here.start(requests=[], name="-nobody")
        await second.ready()
        # Both must know of each other before there is work to share.
        await until(lambda: nodes(here) == 2, "two nodes")
        await until(lambda: both_beat(here), "both have counted two nodes")
        left = await here.start(requests=asked[:40], name="-left")
        right = await here.start(requests=asked[40:], name="-right")
        await until(lambda: len(set(owners(here))) > 1, "lanes held by more than one", tick=here.anvil.mine)
        await here.settle()
        for process in (first, second, left, right):
            await process.stop()
        await here.audit()


def nodes(here: Rig) -> int:
    with closing(sqlite3.connect(f"file:{here.store}?mode=ro", uri=True, timeout=10)) as connection:
        [[found]] = connection.execute("SELECT count(*) FROM nodes WHERE expires_at > ?", [now()])
        return int(found)


def both_beat(here: Rig) -> bool:
    with closing(sqlite3.connect(f"file:{here.store}?mode=ro", uri=True, timeout=10)) as connection:
        [[oldest]] = connection.execute("SELECT min(expires_at) FROM nodes")
        return oldest - now() > LEASE_SECONDS * 500


async def test_one_of_two_processes_killed_leaves_everything_to_the_other(tmp_path: Path) -> None:
    async with rig(tmp_path, accounts=4, window=4) as here:
        asked = [payment(f"o{i}", i % 4) for i in range(80)]
        here.ask(asked)
        left = await here.start(requests=asked[:40], name="-left")
        right = await here.start(requests=asked[40:], name="-right")
        await until(lambda: sum(here.states().values()) == 80 and len(here.acks) == 80, "all accepted")
        await until(lambda: here.states().get("confirmed", 0) > 8, "some confirmed", tick=here.anvil.mine, every=0.1)
        await left.kill()
        await here.settle()
        await right.stop()
        await here.audit()
