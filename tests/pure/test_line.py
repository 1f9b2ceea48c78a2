"""Who goes next when some clients name their nonce: that one or none, and nothing above a number that nobody has."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nonchalant.line import KEPT_FOR, MOST_KEPT, Line, form, in_turn
from nonchalant.model import Transaction
from tests.examples import a_transaction

NEXT = 5


def plain(place: int, created_at: int = 0) -> Transaction:
    return a_transaction(f"p{place}", place=place, created_at=created_at)


def asks(nonce: int, place: int, created_at: int = 0) -> Transaction:
    return a_transaction(f"a{nonce}", place=place, asked_nonce=nonce, created_at=created_at)


def formed(
    *queued: Transaction, room: int = 10, complete: bool = True, now: int = 0, holes: tuple[int, ...] = ()
) -> Line:
    def free() -> object:
        yield from holes
        yield from count(NEXT)

    return form(
        queued,
        free,
        lambda nonce: nonce >= NEXT or nonce in holes,
        room=room,
        complete=complete,
        now=now,  # type: ignore[arg-type]
    )


def names(transactions: tuple[Transaction, ...]) -> list[str]:
    return [tx.id for tx in transactions]


def test_without_such_clients_the_queue_goes_in_its_order_as_far_as_there_is_room() -> None:
    assert names(formed(plain(1), plain(2), plain(3), room=2).going) == ["p1", "p2"]


def test_who_names_the_next_nonce_goes_at_once_and_others_behind_it() -> None:
    assert names(formed(asks(5, place=2), plain(1), plain(3)).going) == ["a5", "p1", "p3"]


def test_several_that_arrive_out_of_order_go_in_the_order_of_their_nonces() -> None:
    assert names(formed(asks(7, place=1), asks(5, place=2), asks(6, place=3)).going) == ["a5", "a6", "a7"]


def test_a_nonce_that_was_given_out_is_too_low() -> None:
    line = formed(asks(4, place=1), plain(2))
    assert names(line.too_low) == names(line.refused) == ["a4"]
    assert names(line.going) == ["p2"]


def test_a_hole_can_be_asked_for() -> None:
    line = formed(asks(3, place=1), holes=(3,))
    assert (names(line.going), line.refused) == (["a3"], ())


def test_missing_numbers_are_kept_from_whoever_came_later() -> None:
    line = formed(asks(6, place=1), plain(2))
    assert (names(line.going), names(line.waiting), line.missing) == ([], ["a6"], 5)


def test_those_who_came_before_take_the_numbers_that_it_counted_with() -> None:
    line = formed(asks(7, place=3), plain(1), plain(2), plain(4))
    assert names(line.going) == ["p1", "p2", "a7", "p4"]


def test_who_waited_too_long_for_a_number_is_refused_and_keeps_nobody_waiting() -> None:
    line = formed(asks(6, place=1), plain(2), now=KEPT_FOR)
    assert (names(line.too_high), names(line.going), line.missing) == (["a6"], ["p2"], 5)
    line = formed(asks(6, place=1), asks(8, place=2, created_at=1), plain(3), now=KEPT_FOR)
    assert (names(line.too_high), names(line.waiting), line.going) == (["a6"], ["a8"], ())


def test_a_nonce_far_ahead_is_refused_at_once() -> None:
    assert names(formed(asks(NEXT + MOST_KEPT, place=1)).waiting) == [f"a{NEXT + MOST_KEPT}"]
    assert names(formed(asks(NEXT + MOST_KEPT + 1, place=1)).too_high) == [f"a{NEXT + MOST_KEPT + 1}"]


@pytest.mark.parametrize(("room", "complete"), [(1, True), (10, False)])
def test_nobody_is_refused_while_there_is_no_room_or_others_are_not_seen(room: int, complete: bool) -> None:
    line = formed(asks(6, place=2), plain(1), room=room, complete=complete, now=2 * KEPT_FOR)
    assert line.refused == ()


def test_who_has_waited_too_long_keeps_nobody_waiting_whoever_else_is_queued() -> None:
    line = formed(asks(6, place=1), plain(2), room=1, complete=False, now=KEPT_FOR)
    assert (names(line.going), line.refused, line.kept_until()) == (["p2"], (), None)


def test_when_to_look_again_is_when_the_first_has_waited_too_long() -> None:
    assert formed(asks(6, place=1, created_at=3), asks(8, place=2, created_at=1)).kept_until() == 1 + KEPT_FOR
    assert formed(plain(1)).kept_until() is None


def test_the_first_of_a_line_is_one_alone() -> None:
    low, high, one, two = asks(1, 1), asks(9, 2), plain(3), plain(4)
    line = Line(going=(one, two), too_low=(low, low), too_high=(high, high))
    assert (line.first().going, line.first().refused) == ((one,), ())
    assert Line(too_low=(low, low), too_high=(high,)).first().refused == (low,)
    assert Line(too_high=(high, high)).first().refused == (high,)


@given(
    st.lists(st.tuples(st.integers(0, 12) | st.none(), st.integers(0, 20_000)), max_size=12),
    st.integers(0, 8),
    st.booleans(),
    st.sets(st.integers(0, NEXT - 1)),
)
def test_whatever_is_queued_nothing_goes_above_a_missing_number(
    wishes: list[tuple[int | None, int]], room: int, complete: bool, holes: set[int]
) -> None:
    seen: set[int] = set()
    queued = []
    for place, (nonce, age) in enumerate(wishes):
        if nonce is None:
            queued.append(plain(place, created_at=-age))
        elif nonce not in seen:
            seen.add(nonce)
            queued.append(asks(nonce, place, created_at=-age))
    line = formed(*queued, room=room, complete=complete, holes=tuple(sorted(holes)))
    numbers = [*sorted(holes), *range(NEXT, NEXT + 40)]
    turns = in_turn(numbers, line.going)
    assert [tx for _, tx in turns] == list(line.going)
    assert [nonce for nonce, _ in turns] == numbers[: len(turns)]
    assert all(tx.asked_nonce in (None, nonce) for nonce, tx in turns)
    fates = [*line.going, *line.waiting, *line.refused]
    assert len({tx.id for tx in fates}) == len(fates) <= len(queued)
    assert len(line.going) <= room
