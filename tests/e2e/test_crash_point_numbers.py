"""The crash points themselves: counted in order, and deadly at the one that was chosen."""

import pytest

from nonchalant.errors import BadSettings
from nonchalant.testing.crashpoints import CrashPoints, Point, Side


class Dead(Exception):
    """What stands for the end of the process here."""


def end() -> None:
    raise Dead


class Signs:
    address = "0x00"
    in_process = False

    def __init__(self) -> None:
        self.calls = 0

    async def sign(self, digests: list[bytes]) -> list[bytes]:
        self.calls += 1
        return digests


async def test_steps_are_numbered_and_named() -> None:
    reached: list[tuple[int, str]] = []
    signer = CrashPoints(reached=lambda number, point: reached.append((number, str(point)))).signer(Signs())
    assert signer.address == "0x00"
    assert await signer.sign([b"a"]) == [b"a"]
    await signer.sign([])
    assert reached == [
        (1, "signer.sign:before:1"),
        (2, "signer.sign:after:1"),
        (3, "signer.sign:before:2"),
        (4, "signer.sign:after:2"),
    ]


@pytest.mark.parametrize(
    ("at", "calls"),
    [(1, 0), (2, 1), (3, 1), (Point("signer.sign", Side.BEFORE, 2), 1), (Point("signer.sign", Side.AFTER, 2), 2)],
)
async def test_the_process_ends_at_the_chosen_step(at: Point | int, calls: int) -> None:
    inner = Signs()
    signer = CrashPoints(at, end=end).signer(inner)

    async def thrice() -> None:
        for _ in range(3):
            await signer.sign([])

    with pytest.raises(Dead):
        await thrice()
    assert inner.calls == calls


def test_points_are_read_as_they_are_written() -> None:
    point = Point("store.commit", Side.AFTER, 3)
    assert Point.parse(str(point)) == point
    assert Point.parse("17") == 17
    with pytest.raises(BadSettings, match="no crash point"):
        Point.parse("store.commit")
