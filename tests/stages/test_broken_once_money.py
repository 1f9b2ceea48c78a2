"""Prices and funds."""

from __future__ import annotations

from nonchalant.words import Speed, State
from tests.stages.rig import ETHER, GWEI, Rig, staged


@staged()
async def test_a_chain_that_makes_no_blocks_does_not_drive_the_price_up(rig: Rig) -> None:
    """No block came, so no price was too low; default settings have no cap."""
    tx = await rig.submit("pay", fees=Speed.FAST)
    await rig.reaches(tx, State.SENT)
    await rig.advance(1800.0)  # half an hour without a block
    newest = (await rig.attempts(tx))[-1]
    await rig.mine(3)
    assert newest.fees.priority is not None
    assert newest.fees.priority < 100 * GWEI


@staged(balance=ETHER // 100)
async def test_a_bump_the_account_cannot_pay_does_not_take_the_place_of_what_it_can(rig: Rig) -> None:
    """The original is affordable; the bump is not, and from then on only the bump is re-sent."""
    tx = await rig.submit("pay", value=0)
    await rig.reaches(tx, State.SENT)
    [first] = await rig.attempts(tx)
    # The account keeps what the original costs at most, and a little more.
    rig.drain(leave=first.gas * first.fees.max_fee * 105 // 100)
    await rig.mine(empty=True)
    for _ in range(40):  # full blocks for two minutes
        await rig.mine(empty=True)
    for voice in rig.endpoints:
        voice.forget_pool()  # a restart of the nodes
    await rig.advance(60.0)
    await rig.mine(30)
    assert await rig.state(tx) is State.CONFIRMED
