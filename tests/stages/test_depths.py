"""Depths: who asks for confirmations is told of the linked blocks above, and of a fork that replaces them."""

from __future__ import annotations

from typing import Any

import pytest

from nonchalant.model import Transaction
from nonchalant.sim.pool import BESU
from nonchalant.words import State
from tests.lessons import lesson
from tests.stages.rig import Rig, staged


async def mined(rig: Rig, confirmations: int | None, **wish: object) -> Transaction:
    tx = await rig.reaches(await rig.submit("pay", confirmations=confirmations, **wish), State.SENT)
    await rig.mine()
    return await rig.reaches(tx, State.MINED)


def linked(rig: Rig, *numbers: int) -> list[dict[str, Any]]:
    """These blocks of the canonical chain, as an event tells of them."""
    blocks = [rig.chain.head.at(number) for number in numbers]
    return [{"number": block.number, "hash": block.hash} for block in blocks if block is not None]


@staged()
async def test_depth_is_told_once_with_the_blocks_above_when_there_are_as_many_as_asked(rig: Rig) -> None:
    tx = await mined(rig, 2)
    await rig.mine()
    assert await rig.told(tx, "tx.depth") == []
    await rig.mine()
    assert await rig.told(tx, "tx.depth") == [
        {"nonce": 0, "hash": tx.hash, "depth": 2, "confirmations": linked(rig, 2, 3), "fork": False}
    ]
    assert await rig.state(tx) is State.MINED
    await rig.finalise()
    assert len(await rig.told(tx, "tx.depth")) == 1
    assert (await rig.history(tx))[-3:] == ["tx.mined", "tx.depth", "tx.confirmed"]


@staged()
async def test_who_asks_for_no_depth_is_told_of_none(rig: Rig) -> None:
    tx = await mined(rig, None)
    await rig.finalise()
    assert "tx.depth" not in await rig.history(tx)
    assert await rig.state(tx) is State.CONFIRMED


@lesson("receipt-after-reorg")
@staged(finality_lag=8)
async def test_a_fork_above_it_replaces_the_list_and_says_so(rig: Rig) -> None:
    tx = await mined(rig, 2)
    await rig.mine(2)
    [before] = await rig.told(tx, "tx.depth")
    await rig.reorg(1, keep=True)
    await rig.advance(1.0)
    assert await rig.state(tx) is State.MINED
    assert "tx.reorged" not in await rig.history(tx)
    _, after = await rig.told(tx, "tx.depth")
    assert (before["fork"], after["fork"]) == (False, True)
    assert after["confirmations"] == linked(rig, 2, 3)
    assert after["confirmations"] != before["confirmations"]
    await rig.mine(9)
    assert len(await rig.told(tx, "tx.depth")) == 2
    assert await rig.state(tx) is State.CONFIRMED


@staged(finality_lag=8)
async def test_a_fork_before_the_depth_is_reached_is_no_news(rig: Rig) -> None:
    tx = await mined(rig, 3)
    await rig.mine()
    await rig.reorg(1, keep=True)
    await rig.mine(2)
    [told] = await rig.told(tx, "tx.depth")
    assert (told["fork"], told["confirmations"]) == (False, linked(rig, 2, 3, 4))


@staged(finality_lag=8, flavours=(BESU,) * 3)
async def test_after_a_reorg_and_another_inclusion_both_are_said_to_replace_what_was_told(rig: Rig) -> None:
    tx = await mined(rig, 2)
    await rig.mine(2)
    await rig.reorg(3)
    await rig.advance(2.0)
    assert await rig.state(tx) is State.SENT
    await rig.mine()
    again = await rig.reaches(tx, State.MINED)
    assert again.receipt is not None
    number = again.receipt.block.number
    await rig.mine(2)
    assert [told["fork"] for told in await rig.told(tx, "tx.mined")] == [False, True]
    assert [told["fork"] for told in await rig.told(tx, "tx.depth")] == [False, True]
    assert (await rig.told(tx, "tx.depth"))[-1]["confirmations"] == linked(rig, number + 1, number + 2)


@staged(finality_lag=8)
async def test_a_reorg_that_takes_it_along_moves_the_list_with_it(rig: Rig) -> None:
    tx = await mined(rig, 1)
    await rig.mine()
    await rig.reorg(2, keep=True)
    await rig.advance(2.0)
    moved = await rig.reaches(tx, State.MINED)
    assert moved.receipt is not None
    await rig.mine()
    told = (await rig.told(tx, "tx.depth"))[-1]
    assert told["fork"] is True
    assert told["confirmations"] == linked(rig, moved.receipt.block.number + 1)


@staged()
async def test_more_confirmations_than_finality_has_are_told_when_it_is_final(rig: Rig) -> None:
    tx = await mined(rig, 500)
    await rig.finalise()
    [told] = await rig.told(tx, "tx.depth")
    assert told["depth"] == rig.setting.finality_lag
    assert told["confirmations"] == linked(rig, 2, 3, 4, 5)
    assert (await rig.history(tx))[-2:] == ["tx.depth", "tx.confirmed"]


@staged()
async def test_a_new_owner_does_not_tell_the_same_depth_again(rig: Rig) -> None:
    tx = await mined(rig, 1)
    await rig.mine()
    await rig.stop(rig.node)
    await rig.start_node()
    await rig.advance(3.0)
    await rig.mine()
    assert len(await rig.told(tx, "tx.depth")) == 1


@pytest.mark.parametrize("final", [False, True])
@staged()
async def test_a_fork_while_nobody_looked_is_told_by_the_next_owner(rig: Rig, final: bool) -> None:
    tx = await mined(rig, 1)
    await rig.mine()
    assert len(await rig.told(tx, "tx.depth")) == 1
    await rig.stop(rig.node)
    await rig.reorg(1, keep=True)
    if final:
        await rig.mine(rig.setting.finality_lag)
    await rig.start_node()
    await rig.advance(5.0)
    before, after = await rig.told(tx, "tx.depth")
    assert after["fork"] is True
    assert before["confirmations"] not in ([], after["confirmations"])
    assert await rig.state(tx) is (State.CONFIRMED if final else State.MINED)


@staged()
async def test_what_was_cancelled_has_a_depth_too(rig: Rig) -> None:
    tx = await rig.reaches(await rig.submit("pay", confirmations=1), State.SENT)
    await rig.asking.cancel(tx.id)
    await rig.tells(tx, "attempt.bumped")
    await rig.advance(1.0)
    ended = await rig.ends(tx)
    assert ended.state is State.CANCELLED
    [told] = await rig.told(tx, "tx.depth")
    assert told["hash"] == ended.hash
