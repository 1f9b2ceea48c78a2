"""What an adversary broke in signing the same bytes twice, and in signing what does nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from nonchalant.fees import FeeRules
from nonchalant.model import Payload
from nonchalant.words import Speed, State
from tests.stages.rig import ALICE, GWEI, Rig, refused, staged


@staged(fees=FeeRules(max_fee=30 * GWEI))
async def test_what_does_nothing_already_can_be_cancelled_at_the_price_cap(rig: Rig) -> None:
    """What cancels it is then, byte for byte, what it is itself."""
    tx = await rig.submit("", to=ALICE.address, data=b"", fees=Speed.FAST)
    other = await rig.submit("other")
    await rig.reaches(other, State.SENT)
    await rig.node.asking.cancel(tx.id)
    await rig.advance(5.0)
    for voice in rig.endpoints:
        voice.forget_pool()
    await rig.advance(30.0)
    await rig.mine(2)
    await rig.finalise()
    assert await rig.states([tx, other]) == [State.CANCELLED, State.CONFIRMED]


def _no_calls_to(address: str, voice: Any) -> Callable[..., Awaitable[int]]:
    """The account has code that reverts when somebody sends it nothing."""

    async def estimate(sender: str, payload: Payload, at: Any) -> int:
        if payload.to == address:
            raise refused("execution reverted", 3)
        return int(await voice.endpoint.estimate(sender, payload, at))

    return estimate


@staged()
async def test_an_account_whose_code_refuses_calls_can_cancel_all_the_same(rig: Rig) -> None:
    for voice in rig.endpoints:
        voice.answer("estimate", _no_calls_to(ALICE.address, voice))
    rig.delegate()
    await rig.mine()
    tx = await rig.submit("pay")
    await rig.reaches(tx, State.SENT)
    await rig.node.asking.cancel(tx.id)
    await rig.advance(5.0)
    await rig.mine(2)
    await rig.finalise()
    assert await rig.state(tx) is State.CANCELLED
    assert rig.executions("pay") == 0


@staged()
async def test_the_same_request_again_after_every_node_refused_its_bytes_ends_as_well(rig: Rig) -> None:
    for voice in rig.endpoints:
        voice.refuse("intrinsic gas too low", only=lambda tx: tx.order.label == "poor")
    first = await rig.submit("poor", gas=22_000)
    await rig.reaches(first, State.FAILED)
    second = await rig.submit("poor", gas=22_000)
    behind = await rig.submit("behind")
    await rig.advance(10.0)
    await rig.mine(2)
    await rig.finalise()
    assert await rig.state(behind) is State.CONFIRMED
    assert await rig.state(second) is State.FAILED
