"""Clients that name their nonce get that one or none; numbers that are missing are kept for a while, and never signed over."""

from __future__ import annotations

import pytest

from nonchalant.errors import NonceTaken
from nonchalant.model import Transaction
from nonchalant.sim.wire import Effect
from nonchalant.windows import Pace
from nonchalant.words import State
from tests.stages.acts import reserve
from tests.stages.rig import ALICE, Rig, staged


async def sent(rig: Rig, *transactions: Transaction) -> list[int | None]:
    return [(await rig.reaches(tx, State.SENT)).nonce for tx in transactions]


async def failure(rig: Rig, tx: Transaction) -> str | None:
    return (await rig.reaches(tx, State.FAILED)).failure


@staged()
async def test_the_next_nonce_can_be_asked_for(rig: Rig) -> None:
    first = await rig.submit("first")
    second = await rig.submit("second", asked_nonce=1)
    assert await sent(rig, first, second) == [0, 1]


@staged()
async def test_three_that_arrive_out_of_order_run_in_the_order_of_their_nonces(rig: Rig) -> None:
    last = await rig.submit("last", asked_nonce=2)
    await rig.advance(1.0)
    middle = await rig.submit("middle", asked_nonce=1)
    await rig.advance(1.0)
    assert {(await rig.read(tx)).state for tx in (last, middle)} == {State.QUEUED}
    first = await rig.submit("first", asked_nonce=0)
    assert await sent(rig, first, middle, last) == [0, 1, 2]
    await rig.mine(3)
    assert rig.order_of_execution() == ["first", "middle", "last"]


@staged()
async def test_a_missing_number_is_kept_from_those_who_came_later(rig: Rig) -> None:
    second = await rig.submit("second", asked_nonce=1)
    other = await rig.submit("other")
    await rig.advance(5.0)
    assert rig.slots() == {}
    first = await rig.submit("first", asked_nonce=0)
    assert await sent(rig, first, second, other) == [0, 1, 2]


@staged()
async def test_a_number_that_never_comes_is_kept_for_ten_seconds(rig: Rig) -> None:
    second = await rig.submit("second", asked_nonce=1)
    other = await rig.submit("other")
    await rig.advance(9.0)
    assert (await rig.read(second)).state is State.QUEUED
    assert "nonce too high" in str(await failure(rig, second))
    assert await sent(rig, other) == [0]
    assert (await rig.read(second)).nonce is None


@staged()
async def test_a_nonce_far_ahead_keeps_nobody_waiting(rig: Rig) -> None:
    far = await rig.submit("far", asked_nonce=1_000)
    other = await rig.submit("other")
    assert await sent(rig, other) == [0]
    assert "nonce too high" in str(await failure(rig, far))


@staged()
async def test_a_nonce_that_somebody_has_is_too_low(rig: Rig) -> None:
    first = await rig.submit("first")
    await rig.reaches(first, State.SENT)
    late = await rig.submit("late", asked_nonce=0)
    assert str(await failure(rig, late)) == "nonce too low: next nonce 1, tx nonce 0"
    assert rig.executions("late") == 0


@staged()
async def test_the_same_payload_is_the_same_transaction_and_another_is_refused(rig: Rig) -> None:
    first = await rig.submit("first", asked_nonce=0)
    assert (await rig.submit("first", asked_nonce=0)).id == first.id
    with pytest.raises(NonceTaken, match=f"nonce 0 of {ALICE} is that of {first.id}"):
        await rig.submit("second", asked_nonce=0)


@staged()
async def test_one_that_fails_before_it_leaves_those_behind_it_their_numbers_for_a_while(rig: Rig) -> None:
    """An estimate that reverts takes no nonce; who counted on it is told, and nothing runs elsewhere."""
    broken = await rig.submit("broken", effect=Effect.NEVER, asked_nonce=0)
    behind = await rig.submit("behind", asked_nonce=1)
    await failure(rig, broken)
    assert "nonce too high" in str(await failure(rig, behind))
    again = await rig.submit("again", asked_nonce=0)
    assert await sent(rig, again) == [0]


@staged(window=2)
async def test_one_that_waits_for_room_is_not_refused(rig: Rig) -> None:
    others = await rig.submit_all(["a", "b", "c"])
    asked = await rig.submit("asked", asked_nonce=3)
    await rig.advance(15.0)
    assert (await rig.read(asked)).state is State.QUEUED
    await rig.mine(6)
    assert (await rig.read(asked)).nonce == 3
    assert [(await rig.read(tx)).nonce for tx in others] == [0, 1, 2]


@staged()
async def test_one_whose_nonce_a_stranger_used_runs_at_no_other(rig: Rig) -> None:
    tx = await rig.submit("mine", asked_nonce=0)
    await rig.reaches(tx, State.SENT)
    rig.intrude()
    await rig.mine(10)
    assert "nonce too low" in str(await failure(rig, tx))
    assert rig.executions("mine") == 0


@staged(pace=Pace.STRICT)
async def test_a_number_that_never_comes_does_not_stop_a_lane_where_one_goes_at_a_time(rig: Rig) -> None:
    asked = await rig.submit("asked", asked_nonce=2)
    others = await rig.submit_all(["a", "b", "c", "d"])
    await rig.advance(11.0)
    for _ in range(10):
        await rig.mine()
    # While others are queued nobody can say that its number never comes; and here it does.
    assert [(await rig.read(tx)).nonce for tx in (*others, asked)] == [0, 1, 3, 4, 2]


@staged()
async def test_what_cannot_go_now_is_not_counted_among_those_that_take_the_next_nonces(rig: Rig) -> None:
    """Else whoever names the next free one waits for a number that nobody takes, for as long as funds are missing."""
    dear = await rig.submit("dear", value=10**30)
    await rig.advance(5.0)
    assert await rig.mark(dear) == "insufficient_funds"
    counted = (await rig.node.store.numbering(ALICE)).next_free(0)
    named = await rig.submit("named", asked_nonce=counted)
    assert await sent(rig, named) == [0]


@staged()
async def test_a_number_that_is_kept_is_not_reserved_by_somebody_else(rig: Rig) -> None:
    second = await rig.submit("second", asked_nonce=1)
    await rig.advance(1.0)
    reserving = rig.spawn(reserve(rig))
    await rig.advance(2.0)
    first = await rig.submit("first", asked_nonce=0)
    assert await sent(rig, first, second) == [0, 1]
    await rig.advance(3.0)
    assert reserving.result() == 2
