"""Accounts that others use too: what they use is skipped, and what they leave open is closed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from nonchalant.model import Answer
from nonchalant.words import State
from tests.lessons import lesson
from tests.stages.rig import ALICE, GWEI, Rig, staged, unreachable

SQUAT = 21 * GWEI  # a price that pools keep and, while blocks are full of better ones, no block takes


def squat(rig: Rig, *ahead: int, price: int = SQUAT) -> None:
    """Somebody else's transactions, so far above the next nonce, in every pool."""
    for distance in ahead:
        assert rig.chain.intrude_pools(ALICE.address, distance, price)


def leave(rig: Rig, *nonces: int) -> None:
    for voice in rig.endpoints:
        for nonce in nonces:
            voice.endpoint.pool.evict(ALICE.address, nonce)


@staged(shared=True)
async def test_numbers_that_pools_show_in_use_are_skipped(rig: Rig) -> None:
    squat(rig, 0, 1)
    txs = await rig.submit_all(["ours", "ours too"])
    await rig.reaches(txs[-1], State.SENT)
    assert await rig.nonces(txs) == [2, 3]
    await rig.advance(40.0)
    assert list(rig.slots()) == [2, 3]  # what others have is not filled
    await rig.mine()
    assert rig.order_of_execution()[2:] == ["ours", "ours too"]
    await rig.finalise()
    assert await rig.states(txs) == [State.CONFIRMED] * 2


@lesson("first-nonce")
@staged(shared=True)
async def test_what_others_leave_open_is_closed_without_traffic(rig: Rig) -> None:
    squat(rig, 0, 1)
    tx = await rig.submit("ours")
    await rig.reaches(tx, State.SENT)
    assert (await rig.read(tx)).nonce == 2
    leave(rig, 1)
    await rig.mine(empty=True)
    assert rig.slots() == {1: "filler", 2: tx.id}
    await rig.mine()
    assert rig.account().count == 3
    assert rig.executions("ours") == 1


@staged(shared=True)
async def test_before_a_hole_is_closed_pools_are_asked_once_more(rig: Rig) -> None:
    """Somebody else takes the number of a payload that nodes refuse, just while they do."""
    voice = rig.endpoints[0]

    async def take(raws: Sequence[bytes]) -> Sequence[Answer]:
        answers = await voice.endpoint.send(raws)
        voice.heal()
        squat(rig, 0)
        return answers

    voice.answer("send", take)
    faulty, sound = await asyncio.gather(rig.submit("faulty", gas=21_000), rig.submit("sound"))
    await rig.reaches(faulty, State.FAILED)
    await rig.advance(5.0)
    assert rig.slots() == {1: sound.id}
    await rig.mine()
    assert rig.order_of_execution()[1:] == ["sound"]


@staged(shared=True)
async def test_each_batch_asks_anew(rig: Rig) -> None:
    first = await rig.submit("first")
    await rig.reaches(first, State.SENT)
    squat(rig, 1)
    second = await rig.submit("second")
    await rig.reaches(second, State.SENT)
    assert await rig.nonces([first, second]) == [0, 2]
    squat(rig, 3, 4)
    third = await rig.submit("third")
    await rig.reaches(third, State.SENT)
    assert (await rig.read(third)).nonce == 5
    await rig.mine()
    assert rig.account().count == 6


@staged(shared=True)
async def test_one_endpoint_that_counts_too_high_leaves_no_gap(rig: Rig) -> None:
    async def wild(_address: str) -> int:
        return 1_000_000

    rig.endpoints[0].answer("pending", wild)
    tx = await rig.submit("ours")
    await rig.reaches(tx, State.SENT)
    assert (await rig.read(tx)).nonce == 0


@staged(shared=True)
async def test_while_too_few_pools_answer_nothing_is_assigned(rig: Rig) -> None:
    for voice in rig.endpoints[:2]:
        voice.fail("pending", unreachable())
    tx = await rig.submit("ours")
    await rig.advance(20.0)
    assert await rig.state(tx) is State.QUEUED
    rig.endpoints[0].heal()
    await rig.reaches(tx, State.SENT, 5.0)


@staged(shared=True)
async def test_foreign_use_while_nobody_worked_the_lane_is_no_reason_for_a_quarantine(rig: Rig) -> None:
    first = await rig.submit("first")
    await rig.reaches(first, State.SENT)
    await rig.mine()
    await rig.finalise()
    rig.kill(rig.node)
    rig.intrude()
    await rig.mine()
    await rig.start_node()
    second = await rig.submit("second")
    await rig.reaches(second, State.SENT)
    assert (await rig.lane()).record.quarantined_below is None
    assert (await rig.read(second)).nonce == 2


@staged(shared=True)
async def test_a_store_that_lost_commits_is_one_and_its_quarantine_ends_though_others_go_on(rig: Rig) -> None:
    copy = rig.database.serialize()
    lost = await rig.submit("lost")
    await rig.reaches(lost, State.SENT)
    await rig.restore_store(copy)
    again = await rig.submit("again")
    await rig.advance(5.0)
    assert (await rig.lane()).record.quarantined_below is not None
    for _ in range(40):
        if (await rig.lane()).record.quarantined_below is None:
            break
        rig.intrude()
        await rig.mine()
    else:
        raise AssertionError("others keep it in quarantine")
    await rig.mine(4)
    await rig.finalise()
    assert await rig.state(again) is State.CONFIRMED


@staged()
async def test_an_account_that_is_not_shared_is_never_led_by_what_pools_show(rig: Rig) -> None:
    squat(rig, 0, 1)
    tx = await rig.submit("ours")
    await rig.advance(5.0)
    assert (await rig.read(tx)).nonce == 0
    assert sum(voice.asked["pending"] for voice in rig.endpoints) == 0
