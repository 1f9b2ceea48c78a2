"""Nobody waits at a desk for long, each is told once what becomes of him, and nobody is told before those before him."""

from __future__ import annotations

import pytest

from nonchalant.arrivals import HELD_UP_SECONDS, PATIENCE_SECONDS, Arrivals, may_come
from nonchalant.errors import CommitUnknown
from nonchalant.model import Payload, Request, Transaction
from tests.examples import BOB, a_request, a_transaction
from tests.stages.rig import Rig, staged

PAYLOAD = Payload(to=BOB, gas=50_000)


class Caller:
    """Somebody with a request, who remembers what he was told."""

    def __init__(self, id: str, told: list[str], **fields: object) -> None:
        self.request: Request = a_request(id, **{"payload": PAYLOAD} | fields)
        self._told = told

    def admitted(self, tx: Transaction) -> None:
        self._told.append(f"{tx.id} admitted")

    def sent_away(self, doubt: CommitUnknown | None = None) -> None:
        self._told.append(f"{self.request.id} {'sent away' if doubt is None else 'in doubt'}")


class Door:
    """A lane's arrivals, open, and who comes there."""

    def __init__(self) -> None:
        self.arrivals = Arrivals()
        self.arrivals.is_open = True
        self.told: list[str] = []

    def come(self, *ids: str, **fields: object) -> list[Caller]:
        callers = [Caller(id, self.told, **fields) for id in ids]
        assert all(self.arrivals.take(caller) for caller in callers)
        return callers


@staged()
async def test_a_desk_is_closed_until_its_owner_opens_it(rig: Rig) -> None:
    arrivals = Arrivals()
    assert not arrivals.take(Caller("a", []))
    assert len(arrivals) == 0
    arrivals.is_open = True
    assert arrivals.take(Caller("a", []))
    assert len(arrivals) == 1


@pytest.mark.parametrize(
    "odd", [{"payload": Payload(to=BOB)}, {"simulate": True}, {"asked_nonce": 1}, {"batch": "b"}], ids=str
)
@staged()
async def test_whom_only_the_queue_can_serve_goes_there_unless_somebody_stands_before_him(
    rig: Rig, odd: dict[str, object]
) -> None:
    door = Door()
    assert not may_come(Caller("odd", [], **odd).request)
    assert not door.arrivals.take(Caller("odd", door.told, **odd))
    [first] = door.come("first")
    door.come("odd", **odd)
    door.come("after")
    assert door.arrivals.next(5) == [first]  # who comes after the odd one is not served before him
    with door.arrivals.serving([first]):
        first.admitted(a_transaction("first"))
    assert door.arrivals.next(5) == []
    assert door.told == ["first admitted", "odd sent away", "after sent away"]


@staged()
async def test_who_is_not_served_within_a_moment_is_sent_away_and_the_door_is_closed(rig: Rig) -> None:
    door = Door()
    door.come("first")
    await rig.advance(PATIENCE_SECONDS / 2)
    door.come("second")
    await rig.advance(PATIENCE_SECONDS / 2 - 0.01)
    assert door.told == []
    await rig.advance(0.02)
    assert door.told == ["first sent away", "second sent away"]  # nobody waits longer than the first of them
    assert not door.arrivals.is_open
    assert len(door.arrivals) == 0
    assert not door.arrivals.take(Caller("third", door.told))


@staged()
async def test_each_has_its_moment_anew_once_nobody_waits(rig: Rig) -> None:
    door = Door()
    for _ in range(3):
        callers = door.come("one")
        await rig.advance(PATIENCE_SECONDS - 0.05)
        with door.arrivals.serving(callers):
            pass
    door.come("last")
    await rig.advance(PATIENCE_SECONDS - 0.05)
    assert door.told == []
    await rig.advance(0.1)
    assert door.told == ["last sent away"]


@staged()
async def test_one_that_came_after_it_was_closed_and_opened_again_has_its_moment_too(rig: Rig) -> None:
    door = Door()
    door.come("first")
    door.arrivals.close()
    door.arrivals.is_open = True
    await rig.advance(PATIENCE_SECONDS - 0.05)
    door.come("second")
    await rig.advance(0.1)
    assert door.told == ["first sent away"]
    await rig.advance(PATIENCE_SECONDS)
    assert door.told == ["first sent away", "second sent away"]


@pytest.mark.parametrize("how", ["patience", "closed"])
@staged()
async def test_while_some_are_served_nobody_else_is_told_anything(rig: Rig, how: str) -> None:
    """He would be in the queue before them, if that is where they are sent in the end."""
    door = Door()
    served = door.come("a", "b")
    door.come("behind")
    with door.arrivals.serving(served):
        if how == "patience":
            await rig.advance(PATIENCE_SECONDS * 2)
        else:
            door.arrivals.close()
        assert door.arrivals.take(Caller("later", door.told))  # and whoever comes stands behind them
        assert not door.arrivals.is_open
        assert door.told == []
        for caller in served:
            caller.sent_away()
    assert door.told == ["a sent away", "b sent away", "behind sent away", "later sent away"]
    assert len(door.arrivals) == 0
    assert not door.arrivals.take(Caller("too late", door.told))


@staged()
async def test_those_behind_are_served_next_if_nobody_has_closed_the_door(rig: Rig) -> None:
    door = Door()
    served = door.come("a")
    behind = door.come("b", "c")
    with door.arrivals.serving(served):
        pass
    assert door.told == []
    assert door.arrivals.next(1) == behind[:1]
    assert door.arrivals.next(5) == behind


@staged()
async def test_what_goes_wrong_while_they_are_served_opens_the_way_for_the_others(rig: Rig) -> None:
    door = Door()
    served = door.come("a")
    door.come("behind")
    with pytest.raises(ZeroDivisionError), door.arrivals.serving(served):
        raise ZeroDivisionError
    assert door.told == []
    door.arrivals.close()
    assert door.told == ["behind sent away"]


@staged()
async def test_whoever_was_sent_away_meanwhile_is_here_no_more(rig: Rig) -> None:
    door = Door()
    some = door.come("a", "b")
    assert door.arrivals.are_here(some)
    door.come("c")
    assert door.arrivals.are_here(some)
    door.arrivals.close()
    assert not door.arrivals.are_here(some)
    door.arrivals.is_open = True
    door.come("d", "e")
    assert not door.arrivals.are_here(some)


@staged()
async def test_where_there_is_no_room_everybody_is_sent_away_in_their_order(rig: Rig) -> None:
    door = Door()
    door.come("a", "b", "c")
    assert door.arrivals.next(0) == []
    assert door.told == ["a sent away", "b sent away", "c sent away"]
    assert door.arrivals.is_open


@staged()
async def test_who_comes_while_somebody_is_served_stands_behind_him_though_the_door_is_closed(rig: Rig) -> None:
    door = Door()
    with door.arrivals.serving(door.come("a")):
        door.arrivals.close()
        door.come("later")
        assert door.told == []
    assert door.told == ["later sent away"]


@staged()
async def test_behind_those_that_are_served_for_too_long_nobody_stands(rig: Rig) -> None:
    door = Door()
    served = door.come("a")
    with door.arrivals.serving(served):
        door.come("behind")
        await rig.advance(PATIENCE_SECONDS + HELD_UP_SECONDS - 0.05)
        door.come("just now")
        assert door.told == []
        await rig.advance(0.1)
        assert door.told == ["behind sent away", "just now sent away"]
        assert not door.arrivals.take(Caller("late", door.told))
        await rig.advance(60.0)
        served[0].sent_away()
    assert door.told[2:] == ["a sent away"]
    assert not door.arrivals.is_open
    door.arrivals.is_open = True  # then everything is as ever
    with door.arrivals.serving(door.come("b")):
        door.come("behind b")
    assert door.arrivals.is_open
    assert door.told[3:] == []
    with door.arrivals.serving(door.arrivals.next(1)):
        door.arrivals.close()
        door.come("at the end")


@staged()
async def test_those_behind_have_a_moment_of_their_own_once_it_is_their_turn(rig: Rig) -> None:
    """Else whoever comes to a busy desk would be sent away for the time that others waited."""
    door = Door()
    served = door.come("0")
    for n in range(1, 8):
        with door.arrivals.serving(served):
            await rig.advance(PATIENCE_SECONDS / 3)
            served = door.come(str(n))
    assert door.arrivals.is_open
    assert door.told == []
    await rig.advance(PATIENCE_SECONDS - 0.01)
    assert door.told == []
    await rig.advance(0.02)
    assert door.told == ["7 sent away"]
