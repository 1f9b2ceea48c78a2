"""Lanes that ask at the same moment who goes next ask together, and each gets its own answer."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from nonchalant.errors import StoreUnavailable
from nonchalant.store.lines import MOST_LANES, MOST_ROWS, Lines
from nonchalant.store.postgres import PostgresStore
from nonchalant.store.wishing import Found, Line
from nonchalant.words import LaneKey
from tests.examples import LANE
from tests.store.acts import OTHER_LANE, accept, on_a_server

store = pytest.fixture(on_a_server)


class Reader:
    def __init__(self) -> None:
        self.asked: list[list[LaneKey]] = []
        self.error: Exception | None = None
        self.only: LaneKey | None = None  # whose error it is; None: everybody's
        self.gate = asyncio.Event()
        self.gate.set()

    async def read(self, lines: Sequence[Line]) -> Mapping[LaneKey, Found]:
        self.asked.append([line.lane for line in lines])
        await self.gate.wait()
        if self.error is not None and (self.only is None or self.only in self.asked[-1]):
            raise self.error
        return {line.lane: Found([], [str(line.limit)]) for line in lines}


async def find(lines: Lines, lane: LaneKey, limit: int) -> list[str]:
    return (await lines.find(Line(lane, limit, ()))).broken


async def test_who_asks_at_the_same_moment_asks_together_and_gets_its_own_answer() -> None:
    reader = Reader()
    lines = Lines(reader.read)
    assert await asyncio.gather(find(lines, LANE, 1), find(lines, OTHER_LANE, 2)) == [["1"], ["2"]]
    assert reader.asked == [[LANE, OTHER_LANE]]
    assert await find(lines, LANE, 3) == ["3"]


async def test_who_asks_while_others_are_answered_does_not_wait_for_them() -> None:
    reader = Reader()
    lines = Lines(reader.read)
    reader.gate.clear()
    first = asyncio.create_task(find(lines, LANE, 1))
    await asyncio.sleep(0.01)
    second = asyncio.create_task(find(lines, OTHER_LANE, 2))
    await asyncio.sleep(0.01)
    assert reader.asked == [[LANE], [OTHER_LANE]]
    reader.gate.set()
    assert (await first, await second) == (["1"], ["2"])


async def test_a_lane_that_asks_twice_at_once_has_two_answers() -> None:
    reader = Reader()
    lines = Lines(reader.read)
    assert await asyncio.gather(find(lines, LANE, 1), find(lines, LANE, 2)) == [["1"], ["2"]]
    assert sorted(reader.asked) == [[LANE], [LANE]]


async def test_what_goes_wrong_all_of_them_hear_of_and_whoever_left_keeps_nobody_waiting() -> None:
    reader = Reader()
    lines = Lines(reader.read)
    reader.error = StoreUnavailable("away")
    left = asyncio.create_task(find(lines, LANE, 1))
    stays = asyncio.create_task(find(lines, OTHER_LANE, 2))
    await asyncio.sleep(0)
    left.cancel()
    with pytest.raises(StoreUnavailable, match="away"):
        await stays
    reader.error = None
    assert await find(lines, LANE, 3) == ["3"]


async def test_what_goes_wrong_with_one_is_not_its_neighbours_affair() -> None:
    reader = Reader()
    lines = Lines(reader.read)
    reader.error, reader.only = StoreUnavailable("of this one"), LANE
    mine, others = await asyncio.gather(find(lines, LANE, 1), find(lines, OTHER_LANE, 2), return_exceptions=True)
    assert isinstance(mine, StoreUnavailable)
    assert others == ["2"]


async def test_no_question_is_about_more_than_can_be_read_in_a_moment() -> None:
    reader = Reader()
    lines = Lines(reader.read)
    await asyncio.gather(*(find(lines, LaneKey(7, f"0x{n:040x}"), 1) for n in range(MOST_LANES + 1)))
    assert [len(asked) for asked in reader.asked] == [MOST_LANES, 1]
    reader.asked.clear()
    await asyncio.gather(*(find(lines, LaneKey(7, f"0x{n:040x}"), MOST_ROWS // 2) for n in range(3)))
    assert [len(asked) for asked in reader.asked] == [2, 1]


async def test_on_the_server_each_lane_finds_its_own_up_to_its_own_limit_and_without_what_it_skips(
    store: PostgresStore,
) -> None:
    await accept(store, "a1", "a2", "a3")
    await accept(store, "b1", "b2", "b3", lane=OTHER_LANE)
    mine, others = await asyncio.gather(
        store.queued(LANE, limit=2, skip=["a1"]), store.queued(OTHER_LANE, limit=1, skip=["b2"])
    )
    assert ([tx.id for tx in mine], [tx.id for tx in others]) == (["a2", "a3"], ["b1"])
