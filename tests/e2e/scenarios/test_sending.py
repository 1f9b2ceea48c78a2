"""Sends that nobody answers, that arrive late, or that a gateway answers with a page for people."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from nonchalant.testing import FaultProxy
from nonchalant.testing.faults import SEND, Rule
from nonchalant.words import State
from tests.e2e.scenarios.conftest import Interlude
from tests.e2e.scenarios.scene import GWEI, Scene
from tests.lessons import lesson

KEYS = [f"k{n}" for n in range(4)]


@lesson("send-timeout")
async def test_a_time_out_before_acceptance_is_sent_again_with_the_same_bytes(
    scene: Scene, interlude: Interlude
) -> None:
    await scene.start()
    silence = scene.proxy.timeout_before_acceptance()
    await scene.pay(*KEYS)
    await silence.struck()
    await scene.become(State.SENT)
    await interlude()
    assert await scene.pool() == []
    silence.off()
    await scene.until(lambda: scene.pools(4), "all in the pool")
    assert len({each.hash for each in scene.proxy.sent}) == 4
    await scene.settle()
    assert await scene.nonces(*KEYS) == [0, 1, 2, 3]
    await scene.audit()


@pytest.mark.telling
@lesson("send-timeout")
async def test_a_time_out_after_acceptance_keeps_hash_and_nonce(scene: Scene, interlude: Interlude) -> None:
    await scene.start()
    silence = scene.proxy.timeout_after_acceptance()
    await scene.pay(*KEYS)
    await silence.struck()
    await scene.become(State.SENT)
    await interlude()
    await scene.mined(*KEYS)
    silence.off()
    await scene.pay("next")
    await scene.settle()
    assert [len(await scene.attempts(key)) for key in KEYS] == [1] * 4
    assert await scene.nonces(*KEYS, "next") == [0, 1, 2, 3, 4]
    await scene.audit()


async def test_of_a_batch_some_unheard_some_unanswered_and_some_refused_end_once_each(
    scene: Scene, interlude: Interlude
) -> None:
    await scene.start()
    faults = [
        scene.proxy.timeout_before_acceptance(matching=lambda sent: sent.nonce == 0),
        scene.proxy.timeout_after_acceptance(matching=lambda sent: sent.nonce == 1),
        scene.proxy.refuse(SEND, "insufficient funds for gas * price + value", matching=lambda sent: sent.nonce == 2),
    ]
    await scene.pay(*KEYS)
    for fault in faults:
        await fault.struck()
    await interlude()
    for fault in faults:
        fault.off()
    await scene.settle()
    assert await scene.nonces(*KEYS) == [0, 1, 2, 3]
    await scene.audit()


Storm = Callable[[FaultProxy], Rule]

STORMS: dict[str, Storm] = {
    "429": lambda proxy: proxy.status(429, method=SEND),
    "429 after delivery": lambda proxy: proxy.status(429, delivered=True, method=SEND),
    "500": lambda proxy: proxy.status(500, method=SEND),
    "502 after delivery": lambda proxy: proxy.status(502, delivered=True, method=SEND),
    "503": lambda proxy: proxy.status(503, method=SEND),
    "garbage": lambda proxy: proxy.garbage(method=SEND),
    "garbage after delivery": lambda proxy: proxy.garbage(delivered=True, method=SEND),
    "reset": lambda proxy: proxy.reset(method=SEND),
    "reset after delivery": lambda proxy: proxy.reset(delivered=True, method=SEND),
}


@lesson("try-later")
@pytest.mark.parametrize(
    "storm", [pytest.param(name, marks=[pytest.mark.telling] * (name == "429")) for name in STORMS]
)
async def test_a_storm_of_gateway_errors_on_send_is_no_verdict(scene: Scene, interlude: Interlude, storm: str) -> None:
    await scene.start()
    rule = STORMS[storm](scene.proxy)
    await scene.pay(*KEYS)
    await rule.struck(3)
    await interlude()
    assert {tx.state for tx in await scene.txs(KEYS)} <= {State.SIGNED, State.SENT}
    rule.off()
    await scene.settle()
    assert await scene.nonces(*KEYS) == [0, 1, 2, 3]
    assert (await scene.audit()).fillers == 0


@lesson("try-later")
@pytest.mark.parametrize("status", [429, 503])
async def test_a_storm_on_every_call_is_waited_out(scene: Scene, interlude: Interlude, status: int) -> None:
    await scene.start()
    await scene.pay(*KEYS[:2])
    await scene.sent()
    storm = scene.proxy.status(status)
    await scene.pay(*KEYS[2:])
    await scene.chain.mine()
    await storm.struck(10)
    await interlude()
    assert {tx.state for tx in await scene.txs(KEYS[:2])} == {State.SENT}
    storm.off()
    await scene.settle()
    await scene.audit()


@pytest.mark.telling
@lesson("died-after-resend")
async def test_late_delivery_of_an_old_owner_s_bytes_does_no_harm(scene: Scene) -> None:
    """The old owner's bytes are on their way when it dies; the next one sends them too, dearer, and is mined."""
    await scene.start()
    late = scene.proxy.late_delivery(answered=False)
    await scene.pay(*KEYS)
    await late.struck()
    await scene.kill()
    late.off()
    old = list(scene.proxy.held)
    assert old
    await scene.come_back()
    await scene.sent()
    await scene.mined(*KEYS)
    await scene.proxy.release(*old)
    assert not any(each.taken for each in old)
    await scene.settle()
    await scene.audit()


@lesson("older-attempt-mined")
async def test_an_old_owner_s_bytes_that_arrive_first_settle_what_the_new_owner_has_bumped(scene: Scene) -> None:
    await scene.start()
    late = scene.proxy.late_delivery(answered=False)
    await scene.pay("a")
    await late.struck()
    await scene.kill()
    [*old] = scene.proxy.held
    await scene.come_back()
    await scene.until(lambda: _bumped(scene, "a"), "the new owner bumps", tick=lambda: scene.base_fee(30 * GWEI))
    await scene.base_fee(GWEI // 10)
    await scene.proxy.release(old[0])
    await scene.chain.mine()
    await scene.become(State.MINED)
    original, *bumps = await scene.attempts("a")
    assert bumps
    assert (await scene.tx("a")).hash == original.hash
    late.off()
    await scene.settle()
    await scene.proxy.release()
    assert (await scene.audit()).bumps == 0


async def _bumped(scene: Scene, key: str) -> bool:
    return len(await scene.attempts(key)) > 1


async def test_bytes_that_arrive_late_and_in_the_wrong_order_run_in_the_right_one(
    scene: Scene, interlude: Interlude
) -> None:
    await scene.start()
    late = scene.proxy.late_delivery()
    await scene.pay(*KEYS)
    await scene.sent()
    await late.struck(4)
    late.off()
    await interlude()
    await scene.proxy.release(*reversed(scene.proxy.held))
    await scene.settle()
    assert await scene.nonces(*KEYS) == [0, 1, 2, 3]
    await scene.audit()


async def test_an_endpoint_that_is_slow_to_answer_slows_nothing_that_another_can_do(
    scene: Scene, interlude: Interlude
) -> None:
    await scene.start(endpoints=2, timeout=5)
    scene.proxies[0].slow(2.0, method=SEND)
    await scene.pay(*KEYS)
    await scene.become(State.SENT)
    assert scene.proxies[1].delivered
    await scene.mined(*KEYS)
    await interlude()
    await scene.settle()
    await scene.audit()
