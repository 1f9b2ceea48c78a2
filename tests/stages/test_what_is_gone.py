"""What is evidence that a block is gone: others name another one at its height. A chain that is not that high is none."""

from __future__ import annotations

import pytest

from nonchalant.model import Transaction
from nonchalant.words import State
from tests.lessons import lesson
from tests.stages.rig import BLOCK_SECONDS, Rig, staged


async def _mined(rig: Rig) -> Transaction:
    """Mined in a block that the last endpoint alone has heard of."""
    tx = await rig.submit("pay")
    await rig.reaches(tx, State.SENT)
    for voice in rig.endpoints[:-1]:
        voice.lag()
    rig.dice.producer = rig.endpoints[-1]
    await rig.mine()
    return await rig.reaches(tx, State.MINED)


@lesson("lower-count")
@pytest.mark.parametrize("above", [0, 2])
@staged()
async def test_a_new_owner_that_hears_only_lagging_endpoints_takes_nothing_mined_back(rig: Rig, above: int) -> None:
    tx = await _mined(rig)
    await rig.mine(above)
    rig.kill(rig.node)
    rig.endpoints[-1].down()
    sends = len(rig.sent("pay"))
    await rig.start_node()
    await rig.advance(60.0)
    assert "tx.reorged" not in await rig.history(tx)
    assert await rig.read(tx) == tx
    assert len(rig.sent("pay")) == sends
    for voice in rig.endpoints:
        voice.heal()
    assert (await rig.ends(tx)).receipt == tx.receipt
    assert "tx.reorged" not in await rig.history(tx)


@staged()
async def test_one_endpoint_on_a_longer_branch_of_its_own_takes_nothing_back(rig: Rig) -> None:
    tx = await rig.submit("pay")
    await rig.reaches(tx, State.SENT)
    await rig.mine()
    before = await rig.reaches(tx, State.MINED)
    rig.endpoints[0].forget_pool()
    rig.chain.fork(rig.endpoints[0].endpoint, 1)  # one block ahead of all, without what they executed
    await rig.advance(30.0)
    assert await rig.read(tx) == before
    await rig.mine(2)
    rig.endpoints[0].heal()
    assert (await rig.ends(tx)).receipt == before.receipt
    assert "tx.reorged" not in await rig.history(tx)


@staged()
async def test_the_blocks_of_a_branch_are_not_told_as_confirmations_of_what_it_lacks(rig: Rig) -> None:
    tx = await rig.submit("pay", confirmations=2)
    await rig.reaches(tx, State.SENT)
    await rig.mine()
    await rig.reaches(tx, State.MINED)
    rig.endpoints[0].forget_pool()
    rig.chain.fork(rig.endpoints[0].endpoint, 1)
    for _ in range(3):
        branch = rig.endpoints[0].endpoint
        branch.adopt(rig.chain._build(branch.head, (), ()))
        await rig.advance(BLOCK_SECONDS)
    assert "tx.depth" not in await rig.history(tx)
    rig.endpoints[0].heal()
    await rig.mine(2)
    assert "tx.depth" in await rig.history(tx)


@staged()
async def test_a_new_owner_takes_back_what_a_chain_of_another_block_denies(rig: Rig) -> None:
    """Also while the one endpoint that has not heard of it yet still shows the old block."""
    tx = await rig.submit("pay")
    await rig.reaches(tx, State.SENT)
    await rig.mine()
    await rig.reaches(tx, State.MINED)
    rig.kill(rig.node)
    rig.endpoints[0].lag()
    await rig.reorg(1)
    await rig.start_node()
    await rig.tells(tx, "tx.reorged")
    assert await rig.state(tx) is State.SENT
    rig.endpoints[0].heal()
    await rig.mine()
    assert (await rig.ends(tx)).state is State.CONFIRMED
