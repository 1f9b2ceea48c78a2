"""A node is ready if its store answers it, and asking costs next to nothing."""

from __future__ import annotations

import asyncio

from nonchalant.errors import StoreUnavailable
from nonchalant.observing.vitals import Vitals
from tests.store.acts import ManualClock


class Asked:
    """A question to a store that answers, fails or hangs."""

    def __init__(self, vitals: Vitals, clock: ManualClock) -> None:
        self.times = 0
        self.fails = False
        self.hangs: asyncio.Event | None = None
        self._vitals, self._clock = vitals, clock

    async def __call__(self) -> None:
        self.times += 1
        if self.hangs is not None:
            await self.hangs.wait()
        if self.fails:
            raise StoreUnavailable
        self._vitals.answered(self._clock.monotonic())


def a_node() -> tuple[Vitals, ManualClock, Asked]:
    clock = ManualClock()
    vitals = Vitals(clock, lease_seconds=10)
    vitals.answered(clock.monotonic())
    vitals.beat(clock.monotonic(), 1)
    return vitals, clock, Asked(vitals, clock)


async def test_while_the_engine_is_answered_nobody_asks() -> None:
    vitals, clock, ask = a_node()
    for _ in range(100):
        clock.pass_seconds(0.01)
        assert await vitals.trouble(ask) is None
    assert ask.times == 0


async def test_a_store_that_has_not_answered_for_a_while_is_asked_once_for_all_probes() -> None:
    vitals, clock, ask = a_node()
    clock.pass_seconds(5)
    assert await asyncio.gather(*(vitals.trouble(ask) for _ in range(50))) == [None] * 50
    assert ask.times == 1


async def test_a_store_that_fails_makes_the_node_unready_until_it_answers() -> None:
    vitals, clock, ask = a_node()
    clock.pass_seconds(5)
    ask.fails = True
    assert await vitals.trouble(ask) == "the store does not answer"
    ask.fails = False
    assert await vitals.trouble(ask) is None


async def test_a_store_that_hangs_is_noticed_and_not_asked_beside_itself() -> None:
    vitals, clock, ask = a_node()
    clock.pass_seconds(5)
    ask.hangs = asyncio.Event()
    for _ in range(3):
        assert await vitals.trouble(ask) == "the store does not answer"
    assert ask.times == 1
    ask.hangs.set()
    await asyncio.sleep(0)
    assert await vitals.trouble(ask) is None


async def test_a_store_that_is_read_but_takes_no_heartbeat_makes_the_node_unready() -> None:
    vitals, clock, ask = a_node()
    clock.pass_seconds(11)
    assert "takes no writes" in (await vitals.trouble(ask) or "")
