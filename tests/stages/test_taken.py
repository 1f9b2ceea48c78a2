"""That a node took what was sent: told at once where it is little, and with the block that has it where it is much."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from nonchalant import engine, follow, taken
from nonchalant.model import Answer, Change, Lease, Refused, Transaction, Unknown
from nonchalant.observing.commits import Moments
from nonchalant.ports import Clock
from nonchalant.words import Hash, State
from tests.stages.rig import ALICE, BLOCK_SECONDS, Rig, staged, unreachable
from tests.stages.voices import Voice

MANY = [f"p{number}" for number in range(taken.FEW + 3)]


async def handed_over(rig: Rig) -> list[Transaction]:
    """Many of them, once every endpoint has them all; nothing was told of it yet."""
    txs = await rig.submit_all(MANY)
    deadline = rig.loop.time() + 20.0
    while len(rig.arrivals) < len(MANY) * len(rig.endpoints):
        assert rig.loop.time() < deadline
        await rig.advance(0.05)
    assert await rig.states(txs) == [State.SIGNED] * len(MANY)
    return txs


@staged()
async def test_of_a_few_it_is_told_at_once(rig: Rig) -> None:
    tx = await rig.submit("alone")
    while not rig.arrivals:
        await rig.advance(0.01)
    await rig.reaches(tx, State.SENT, seconds=taken.LONGEST / 2000)


@staged()
async def test_of_the_next_few_it_is_told_a_moment_later(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(taken, "A_MOMENT", 3_000)
    await rig.reaches(await rig.submit("first"), State.SENT)
    second = await rig.submit("second")
    while len(rig.arrivals) < 2 * len(rig.endpoints):
        await rig.advance(0.01)
    await rig.advance(0.5)
    assert await rig.state(second) is State.SIGNED
    await rig.advance(3.0)
    assert await rig.state(second) is State.SENT


@staged()
async def test_of_many_one_write_tells_that_a_node_took_them_and_a_block_has_them(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(taken, "LONGEST", 20_000)  # so that the block comes first, whenever the follower looks
    txs = await handed_over(rig)
    await rig.mine()
    for tx in txs:
        assert await rig.history(tx) == ["tx.accepted", "tx.signed", "tx.sent", "tx.mined"]
        assert (await rig.read(tx)).version == 3  # accepted, signed, mined
        [attempt] = await rig.attempts(tx)
        assert attempt.answer == "accepted"
        [mined] = [event.at for event in await rig.store.history(tx.id) if event.kind == "tx.mined"]
        assert attempt.sent_at is not None
        assert attempt.signed_at <= attempt.sent_at < mined  # when it was, not when it was told


@staged()
async def test_without_a_block_it_is_told_all_the_same(rig: Rig) -> None:
    txs = await handed_over(rig)
    await rig.advance(taken.LONGEST / 1000 + 0.1)
    assert await rig.states(txs) == [State.SENT] * len(MANY)


@staged()
async def test_what_a_node_took_later_waits_for_its_own_time(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(taken, "LONGEST", 4_000)
    early = await handed_over(rig)
    await rig.advance(2.0)
    late = await rig.submit_all([f"late {label}" for label in MANY])
    await rig.advance(1.0)
    assert await rig.states(early + late) == [State.SIGNED] * 2 * len(MANY)
    await rig.advance(1.5)
    assert await rig.states(early) == [State.SENT] * len(MANY)
    assert await rig.states(late) == [State.SIGNED] * len(MANY)
    await rig.advance(2.0)
    assert await rig.states(late) == [State.SENT] * len(MANY)


@staged()
async def test_of_what_only_final_blocks_show_it_is_told_with_its_end(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While its block is young nobody has its receipt, and nobody ever finds it by its hash."""
    monkeypatch.setattr(taken, "LONGEST", 3_600_000)
    monkeypatch.setattr(follow, "RECEIPT_SECONDS", 0.0)  # or it is sent again before the block is taken without it

    async def nothing(hashes: Sequence[Hash]) -> Sequence[None]:
        return [None for _ in hashes]

    txs = await handed_over(rig)
    for voice in rig.endpoints:
        voice.fail("receipts", unreachable())
        voice.answer("find", nothing)
    await rig.mine()
    assert await rig.states(txs) == [State.SIGNED] * len(MANY)
    for voice in rig.endpoints:
        voice.answer("receipts", voice.endpoint.receipts)
    await rig.finalise()
    for tx in txs:
        assert await rig.history(tx) == ["tx.accepted", "tx.signed", "tx.sent", "tx.mined", "tx.confirmed"]
        [attempt] = await rig.attempts(tx)
        assert attempt.answer == "accepted"
        [ended] = [event.at for event in await rig.store.history(tx.id) if event.kind == "tx.confirmed"]
        assert attempt.sent_at is not None
        assert attempt.signed_at <= attempt.sent_at < ended  # when it was, not when it was told


@staged()
async def test_whoever_leaves_tells_it_first(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(taken, "LONGEST", 3_600_000)
    txs = await handed_over(rig)
    await rig.stop(rig.node)
    assert await rig.states(txs) == [State.SENT] * len(MANY)


@staged()
async def test_what_was_never_told_counts_as_sent_for_whoever_comes_next(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(taken, "LONGEST", 3_600_000)
    txs = await handed_over(rig)
    rig.kill(rig.node)
    await rig.start_node()
    await rig.advance(30.0)
    for tx in txs:
        await rig.ends(tx)
    assert [rig.executions(label) for label in MANY] == [1] * len(MANY)
    assert {len(await rig.attempts(tx)) for tx in txs} == {1}


@staged()
async def test_nobody_looks_for_what_came_with_its_block(rig: Rig) -> None:
    first = await rig.reaches(await rig.submit("first"), State.SENT)
    before = sum(endpoint.asked["find"] for endpoint in rig.endpoints)
    store = rig.node.engine.desks[ALICE].store
    queued = store.queued

    async def meanwhile_a_block_comes(*args: Any, **named: Any) -> Any:
        found = await queued(*args, **named)
        rig.chain.mine()
        await rig.advance(BLOCK_SECONDS)
        assert await rig.state(first) is State.SENT  # its receipt is there, and the lane had no time to read it
        return found

    store.queued = meanwhile_a_block_comes  # type: ignore[method-assign]
    second = await rig.submit("second")
    await rig.advance(BLOCK_SECONDS / 2)
    store.queued = queued  # type: ignore[method-assign]
    await rig.reaches(second, State.SENT)
    assert await rig.state(first) is State.MINED
    assert sum(endpoint.asked["find"] for endpoint in rig.endpoints) == before


def slow(rig: Rig, voice: Voice, seconds: float, answer: Answer | None = None) -> None:
    """It answers later; this, or what it says itself."""

    async def script(raws: Sequence[bytes]) -> Sequence[Answer]:
        await rig.advance(seconds)
        return await voice.endpoint.send(raws) if answer is None else [answer for _ in raws]

    voice.answer("send", script)


@pytest.mark.parametrize("answer", [Unknown("time-out"), Refused("insufficient funds for gas * price + value", -32000)])
@staged()
async def test_that_one_node_has_it_outweighs_those_that_do_not(rig: Rig, answer: Answer) -> None:
    for voice in rig.endpoints[1:]:
        slow(rig, voice, 0.2, answer)
    txs = await rig.submit_all(MANY)
    for tx in txs:
        await rig.reaches(tx, State.SENT)
    await rig.advance(20.0)
    assert [[attempt.answer for attempt in await rig.attempts(tx)] for tx in txs] == [["accepted"]] * len(MANY)
    assert [await rig.mark(tx) for tx in txs] == [None] * len(MANY)


@staged()
async def test_what_was_answered_while_a_node_left_is_told_by_it(rig: Rig) -> None:
    for voice in rig.endpoints:
        slow(rig, voice, 1.0)
    txs = await rig.submit_all(MANY)
    for tx in txs:
        await rig.reaches(tx, State.SIGNED)
    await rig.stop(rig.node)
    assert await rig.states(txs) == [State.SENT] * len(MANY)
    await rig.mine()
    await rig.start_node()
    await rig.ends(txs[-1])
    way = ["tx.accepted", "tx.signed", "tx.sent", "tx.mined", "tx.confirmed"]
    assert [await rig.history(tx) for tx in txs] == [way] * len(MANY)


@staged()
async def test_a_halted_lane_sends_nothing_when_its_node_leaves(rig: Rig) -> None:
    txs = await rig.submit_all(MANY)
    for tx in txs:
        await rig.reaches(tx, State.SENT)
    await rig.store.halt(ALICE.chain_id, "the chain broke its word")
    rig.kill(rig.node)
    await rig.advance(15.0)
    await rig.start_node()
    await rig.advance(15.0)
    before = len(rig.arrivals)
    await rig.node.engine.stop()
    await rig.advance(5.0)
    assert len(rig.arrivals) == before


@staged(finality_lag=1)
async def test_a_commit_that_tells_both_says_when_a_node_took_it(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(taken, "LONGEST", 20_000)
    changes: list[Change] = []
    store = rig.node.store
    commit = store.commit

    async def overheard(change: Change, lease: Lease) -> None:
        await commit(change, lease)
        changes.append(change)

    store.commit = overheard  # type: ignore[method-assign]
    txs = await handed_over(rig)
    await rig.mine()
    both = next(change for change in changes if any(event.kind == "tx.mined" for event in change.events))
    moments = Moments(both)
    for tx in txs:
        [attempt] = await rig.attempts(tx)
        assert moments.sent_at(tx.id) == attempt.sent_at
        assert moments.signed_at(tx.id) == attempt.signed_at


@staged()
async def test_a_halted_lane_sleeps_though_something_is_untold(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    naps: list[float] = []
    nap = engine.nap

    async def counted(clock: Clock, wake: asyncio.Event, seconds: float) -> None:
        naps.append(seconds)
        assert len(naps) < 1_000
        await nap(clock, wake, seconds)

    await handed_over(rig)
    monkeypatch.setattr(engine, "nap", counted)
    await rig.store.halt(ALICE.chain_id, "the chain broke its word")
    for desk in rig.node.engine.desks.values():
        desk.orders_due = True
    await rig.advance(10.0)
    assert rig.node.engine.desks[ALICE].taken
    assert len(naps) < 100


@pytest.mark.parametrize("first", ["a block", "time"])
@staged()
async def test_what_is_taken_while_another_s_refusal_is_written_is_told_all_the_same(rig: Rig, first: str) -> None:
    slow(rig, rig.endpoints[0], 0.05, Refused("insufficient funds for gas * price + value", -32000))
    for voice in rig.endpoints[1:]:
        slow(rig, voice, 0.1)
    store = rig.node.store
    commit = store.commit

    async def slowly(change: Change, lease: Lease) -> None:
        await commit(change, lease)
        if any(event.kind == "attempt.refused" for event in change.events):
            await rig.advance(0.2)  # what the store says is on its way

    store.commit = slowly  # type: ignore[method-assign]
    rig.dice.producer = rig.endpoints[1]
    tx = await rig.submit("pay")
    await rig.advance(1.0 if first == "a block" else 5.0)
    if first == "a block":
        await rig.mine()
    else:
        assert await rig.state(tx) is State.SENT
    assert "tx.sent" in await rig.history(tx)
    assert [attempt.answer for attempt in await rig.attempts(tx)] == ["accepted"]


@staged()
async def test_a_node_that_keeps_us_waiting_does_not_have_its_lanes_look_more_often(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow(rig, rig.endpoints[0], 10.0, Unknown("no answer"))
    tx = await rig.submit("pay")
    await rig.reaches(tx, State.SENT)
    await rig.advance(0.5)
    rounds, real = 0, engine.Engine._round

    async def counted(*given: Any) -> None:
        nonlocal rounds
        rounds += 1
        await real(*given)

    monkeypatch.setattr(engine.Engine, "_round", counted)
    await rig.advance(8.0)
    assert rounds < 16  # once a second, and with each look at the chain


@staged()
async def test_of_one_after_the_other_it_is_told_within_a_moment_each(rig: Rig) -> None:
    for number in range(4):
        tx = await rig.submit(f"number {number}")
        await rig.reaches(tx, State.SENT, seconds=2 * taken.A_MOMENT / 1000)


@pytest.mark.parametrize("refuses_first", [True, False])
@staged()
async def test_one_that_has_it_already_outweighs_one_that_refuses_it(rig: Rig, refuses_first: bool) -> None:
    poor, known = Refused("insufficient funds for gas * price + value", -32000), Refused("already known", -32000)
    answers = (poor, known, known) if refuses_first else (known, poor, poor)
    for voice, answer in zip(rig.endpoints, answers, strict=True):
        slow(rig, voice, 0.05, answer)
    tx = await rig.submit("pay")
    await rig.advance(5.0)
    assert [attempt.answer for attempt in await rig.attempts(tx)] == ["accepted"]
    assert await rig.mark(tx) is None
