from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys

import pytest

from nonchalant.sim.loop import Deadlock, SimLoop, StepLimit, forgetting
from nonchalant.sim.trace import Trace


def make_loop(seed: int = 1, **limits: int) -> SimLoop:
    return SimLoop(random.Random(seed), **limits)


def test_an_hour_passes_at_once() -> None:
    loop = make_loop()
    loop.run(loop.sleep(3600.0))
    assert loop.time() == 3600.0


def test_callbacks_keep_their_order_and_simultaneous_timers_do_not() -> None:
    def order_of_timers(seed: int) -> list[int]:
        loop = make_loop(seed)
        seen: list[int] = []

        async def main() -> None:
            for number in range(8):
                loop.call_at(5.0, seen.append, number)
            await loop.sleep(6.0)
            for number in range(8):
                loop.call_soon(seen.append, number)
            await loop.sleep(0.0)

        loop.run(main())
        assert seen[8:] == list(range(8))
        return seen[:8]

    assert order_of_timers(1) == order_of_timers(1)
    assert len({tuple(order_of_timers(seed)) for seed in range(5)}) > 1


def test_nothing_left_to_wait_for_is_a_deadlock() -> None:
    loop = make_loop()

    async def main() -> None:
        await loop.create_future()

    with forgetting(), pytest.raises(Deadlock):
        loop.run(main())


def test_a_run_that_spins_is_stopped() -> None:
    loop = make_loop(step_limit=1000)

    async def main() -> None:
        while True:
            await loop.sleep(0.0)

    with forgetting(), pytest.raises(StepLimit):
        loop.run(main())


def test_blocking_calls_run_in_place_and_hand_on_their_errors() -> None:
    loop = make_loop()

    async def main() -> None:
        assert await asyncio.to_thread(lambda: 42) == 42
        with pytest.raises(ZeroDivisionError):
            await loop.run_in_executor(None, lambda: 1 // 0)

    loop.run(main())


def test_time_outs_and_cancelling_work_as_in_asyncio() -> None:
    loop = make_loop()

    async def main() -> list[str]:
        log: list[str] = []
        try:
            async with asyncio.timeout(2.0):
                await loop.sleep(10.0)
        except TimeoutError:
            log.append(f"time-out at {loop.time()}")
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(1.0))
            group.create_task(asyncio.sleep(3.0))
        log.append(f"group at {loop.time()}")
        done, waiting = await asyncio.wait([loop.create_task(asyncio.sleep(n)) for n in (1.0, 9.0)], timeout=5.0)
        log.append(f"{len(done)} done, {len(waiting)} waiting at {loop.time()}")
        return log

    with forgetting():
        assert loop.run(main()) == ["time-out at 2.0", "group at 5.0", "1 done, 1 waiting at 10.0"]


def test_what_a_dead_node_left_behind_is_dropped_in_silence(capfd: pytest.CaptureFixture[str]) -> None:
    loop = make_loop()

    async def stubborn() -> None:
        try:
            await loop.create_future()
        finally:
            await loop.sleep(1.0)

    async def main() -> None:
        tasks = [loop.create_task(stubborn()) for _ in range(3)]
        await asyncio.wait(tasks, timeout=1.0)

    with forgetting():
        loop.run(main())
    assert capfd.readouterr() == ("", "")


PROGRAM = """
import asyncio, random
from nonchalant.sim.loop import SimLoop
from nonchalant.sim.trace import Trace
loop = SimLoop(random.Random(5))
trace = Trace(loop)
async def walk(name):
    for _ in range(20):
        await loop.sleep(random.Random(name).random())
        trace(name, "steps")
async def main():
    waiting = {loop.create_task(walk(f"walker-{n}")) for n in range(9)}
    while waiting:
        done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            trace("main", str(len(waiting)))
loop.run(main())
print(trace.digest())
"""


def test_a_run_is_the_same_in_every_process() -> None:
    def digest(hash_seed: str) -> str:
        env = {**os.environ, "PYTHONHASHSEED": hash_seed}
        return subprocess.run(
            [sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, check=True
        ).stdout

    assert digest("1") == digest("2") != ""


def test_two_traces_that_differ_in_one_line_differ_in_their_digest() -> None:
    def digest(word: str) -> str:
        trace = Trace(make_loop())
        trace("node", word)
        return trace.digest()

    assert digest("a") == digest("a") != digest("b")
