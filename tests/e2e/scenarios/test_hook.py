"""An attention hook: it decides within the rules, and one that fails loses nothing."""

from __future__ import annotations

import pytest

from nonchalant.model import Fees
from nonchalant.words import AttemptKind, State
from tests.e2e.scenarios import advisers
from tests.e2e.scenarios.conftest import Interlude
from tests.e2e.scenarios.scene import ALICE, ETHER, GWEI, Scene

CAP = f"max_fee_per_gas = {100 * GWEI}"
CHEAP = Fees(4 * GWEI, GWEI)
KEYS = ["a", "b"]


def named(hook: str) -> str:
    return f'attention_hook = "tests.e2e.scenarios.advisers:{hook}"'


async def spike(scene: Scene) -> None:
    await scene.base_fee(40 * GWEI)


@pytest.mark.telling
async def test_what_is_at_its_price_cap_is_bumped_by_a_hook_within_the_account_s(
    scene: Scene, interlude: Interlude
) -> None:
    """The market stays dear: without the hook it would wait."""
    await scene.start(fees=CAP, top=named("pays_more"))
    await scene.pay(*KEYS, fees=CHEAP)
    await scene.sent()

    async def bumped() -> bool:
        return all([(await scene.attempts(key))[-1].fees == advisers.ENOUGH for key in KEYS])

    await scene.until(bumped, "both are bumped", tick=lambda: spike(scene))
    await interlude()
    await scene.become(State.CONFIRMED, tick=lambda: spike(scene))
    kinds = [[attempt.kind for attempt in await scene.attempts(key)] for key in KEYS]
    assert kinds == [[AttemptKind.ORIGINAL, AttemptKind.BUMP]] * 2
    await scene.audit()


async def test_what_a_hook_offers_above_the_cap_is_not_done_and_said(scene: Scene, interlude: Interlude) -> None:
    await scene.start(fees=CAP, top=named("pays_too_much"))
    await scene.pay(*KEYS, fees=CHEAP)
    await scene.sent()

    async def said() -> bool:
        return await scene.lane_mark() == "hook_refused"

    await scene.until(said, "the lane is marked", tick=lambda: spike(scene))
    await interlude()
    await scene.until(said, "the lane is marked", tick=lambda: spike(scene))
    await scene.base_fee(GWEI)
    await scene.settle()
    for key in KEYS:
        assert [attempt.fees for attempt in await scene.attempts(key)] == [CHEAP]
    await scene.audit()


@pytest.mark.telling
async def test_a_hook_cancels_what_the_account_cannot_pay_and_the_others_pass(
    scene: Scene, interlude: Interlude
) -> None:
    await scene.chain.set_balance(ALICE, ETHER)
    await scene.start(top=named("gives_up"))
    await scene.pay("dear", value=5 * ETHER)
    await scene.pay(*KEYS)
    await interlude()
    await scene.become(State.CANCELLED, keys=["dear"])
    assert await scene.nonces("dear") == [None]
    await scene.settle()
    assert await scene.nonces(*KEYS) == [0, 1]
    await scene.audit(cancelled=["dear"])


async def test_a_hook_cancels_what_lost_its_funds_in_flight_and_the_nonce_is_used_when_they_are_back(
    scene: Scene, interlude: Interlude
) -> None:
    await scene.start(top=named("gives_up"))
    await scene.pay(*KEYS)
    await scene.sent()
    await scene.proxy.forget_mempool()
    await scene.chain.set_balance(ALICE, 0)
    await scene.chain.mine()

    def called_off() -> bool:
        return scene.ask("SELECT wanted FROM slots ORDER BY nonce") == [("cancel",)] * 2

    await scene.until(called_off, "both are to be cancelled", tick=scene.tick)
    await interlude()
    await scene.chain.set_balance(ALICE, ETHER)
    await scene.settle()
    assert (await scene.paid(*KEYS), await scene.count()) == ([0, 0], 2)
    await scene.audit(cancelled=KEYS)


async def test_a_hook_replaces_what_the_account_cannot_pay_by_what_it_can(scene: Scene, interlude: Interlude) -> None:
    await scene.chain.set_balance(ALICE, ETHER)
    await scene.start(top=named("pays_somebody_else"))
    await scene.pay("dear", value=5 * ETHER)
    await interlude()
    await scene.settle()
    assert await scene.paid("dear") == [0]
    assert int(await scene.chain.rpc("eth_getBalance", advisers.INSTEAD, "latest"), 16) == 1
    assert "tx.replaced" in await scene.history("dear")
    await scene.audit()


@pytest.mark.parametrize("hook", ["raises", "sleeps"])
async def test_a_hook_that_fails_marks_the_lane_and_loses_nothing(
    scene: Scene, interlude: Interlude, hook: str
) -> None:
    await scene.start(fees=CAP, top=named(hook))
    await scene.pay(*KEYS, fees=CHEAP)
    await scene.sent()

    async def said() -> bool:
        return await scene.lane_mark() == "hook_failed"

    await scene.until(said, "the lane is marked", tick=lambda: spike(scene))
    await interlude()
    await scene.pay("after")
    await scene.base_fee(GWEI)
    await scene.settle()
    for key in KEYS:
        assert [attempt.fees for attempt in await scene.attempts(key)] == [CHEAP]
    await scene.audit()
