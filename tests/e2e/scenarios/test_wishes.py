"""Replacing, bumping by hand, holding and releasing; pausing, draining and resuming a lane."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from nonchalant.errors import FeeAboveCap, LaneDraining, TooLate, WishRefused
from nonchalant.model import Fees
from nonchalant.testing.rules import ReplacementStep
from nonchalant.words import AttemptKind, Mode, State
from tests.e2e.ledger import recipient
from tests.e2e.scenarios.conftest import Interlude
from tests.e2e.scenarios.scene import ALICE, GWEI, Scene
from tests.e2e.site import REVERT
from tests.lessons import lesson

KEYS = [f"k{n}" for n in range(5)]


@asynccontextmanager
async def refused(code: str) -> AsyncIterator[None]:
    """By the lane's owner, or before anybody had to be asked."""
    with pytest.raises((WishRefused, FeeAboveCap)) as refusal:
        yield
    assert getattr(refusal.value, "why", refusal.value.code) == code


# replacing


async def test_what_is_queued_is_replaced_before_it_has_a_nonce(scene: Scene, interlude: Interlude) -> None:
    await scene.start(window=1)
    await scene.pay("first", "second")
    await scene.sent("first")
    await scene.replace("second", by="other")
    await interlude()
    await scene.settle()
    assert await scene.paid("second", "other") == [0, 1]
    await scene.audit()


@lesson("replace-for-real")
@pytest.mark.parametrize("position", [0, 2, 4], ids=["head", "middle", "tail"])
async def test_what_is_in_flight_is_replaced_at_its_nonce_and_keeps_its_id_and_history(
    scene: Scene, interlude: Interlude, position: int
) -> None:
    await scene.start()
    scene.proxy.enforce(ReplacementStep())
    await scene.pay(*KEYS)
    await scene.sent()
    await scene.replace(KEYS[position], by="other")
    await interlude()
    await scene.until(lambda: _taken(scene, KEYS[position]), "the replacement is taken")
    await scene.settle()
    assert await scene.nonces(*KEYS) == list(range(5))
    assert await scene.paid(KEYS[position], "other") == [0, 1]
    assert "tx.replaced" in await scene.history(KEYS[position])
    assert [each for each in scene.proxy.sent if "underpriced" in each.message] == []
    assert (await scene.audit()).replacements == 1


async def _taken(scene: Scene, key: str) -> bool:
    newest = (await scene.attempts(key))[-1]
    return any(each.hash == newest.hash and each.taken for each in scene.proxy.sent)


async def test_a_replacement_that_loses_the_race_is_confirmed_with_the_payload_that_ran(
    scene: Scene, interlude: Interlude
) -> None:
    await scene.start()
    await scene.pay("a")
    await scene.sent()
    original = (await scene.tx("a")).hash
    late = scene.proxy.late_delivery()
    await scene.replace("a", by="other")
    await late.struck()
    await interlude()
    await scene.mined("a")
    late.off()
    await scene.proxy.release()
    await scene.settle()
    assert (await scene.tx("a")).hash == original
    assert await scene.paid("a", "other") == [1, 0]
    await scene.audit()


async def test_of_several_replacements_the_last_one_accepted_is_sent(scene: Scene, interlude: Interlude) -> None:
    await scene.start()
    await scene.pay("a", "b")
    await scene.sent()
    for by in ("one", "two", "three"):
        await scene.replace("a", by=by)
    await interlude()
    await scene.until(lambda: _taken(scene, "a"), "the last is taken")
    await scene.settle()
    assert await scene.paid("a", "one", "two", "three") == [0, 0, 0, 1]
    await scene.audit()


async def test_after_a_reorg_the_replacement_is_sent_again_and_never_the_original(
    scene: Scene, interlude: Interlude
) -> None:
    await scene.start()
    await scene.mine(2)
    await scene.pay("a")
    await scene.sent()
    original = (await scene.tx("a")).hash
    await scene.replace("a", by="other")
    await scene.until(lambda: _taken(scene, "a"), "taken")
    await scene.mined("a")
    before = len(scene.proxy.sent)
    await scene.chain.reorg(1)
    await interlude()
    await scene.settle()
    assert original not in [each.hash for each in scene.proxy.sent[before:]]
    assert await scene.paid("a", "other") == [0, 1]
    await scene.audit()


@lesson("policy-on-replacement")
async def test_a_replacement_that_would_revert_is_refused_and_the_original_goes_on(
    scene: Scene, interlude: Interlude
) -> None:
    await scene.chain.set_code(recipient("reverts"), REVERT)
    await scene.start()
    await scene.pay("a")
    await scene.sent()
    async with refused("would_revert"):
        await scene.replace("a", by="reverts")
    await interlude()
    await scene.settle()
    assert (await scene.audit()).replacements == 0


async def test_what_is_being_cancelled_is_not_replaced(scene: Scene, interlude: Interlude) -> None:
    await scene.start()
    await scene.pay("a")
    await scene.sent()
    await scene.cancel("a")
    async with refused("already_cancelled"):
        await scene.replace("a", by="other")
    await interlude()
    await scene.cancelling("a")
    await scene.settle()
    assert await scene.paid("a", "other") == [0, 0]
    await scene.audit(cancelled=["a"])


async def test_a_replacement_that_is_cancelled_never_runs(scene: Scene, interlude: Interlude) -> None:
    await scene.start()
    await scene.pay("a")
    await scene.sent()
    await scene.replace("a", by="other")
    await scene.cancel("a")
    await interlude()
    await scene.cancelling("a")
    await scene.settle()
    assert await scene.paid("a", "other") == [0, 0]
    await scene.audit(cancelled=["a"])


# bumping


async def test_a_bump_at_a_stated_price_is_signed_and_taken_at_that_price(scene: Scene, interlude: Interlude) -> None:
    await scene.start()
    scene.proxy.enforce(ReplacementStep())
    await scene.pay("a", "b")
    await scene.sent()
    stated = Fees(50 * GWEI, 5 * GWEI)
    await scene.bump("b", stated)
    await interlude()
    await scene.until(lambda: _taken(scene, "b"), "taken")
    await scene.settle()
    assert [one.fees for one in await scene.attempts("b") if one.kind is AttemptKind.BUMP] == [stated]
    assert (await scene.audit()).bumps == 1


@pytest.mark.parametrize(
    ("fees", "code"),
    [
        (Fees(3 * GWEI + 1, 2 * GWEI), "underpriced"),
        (Fees(30 * GWEI, GWEI + 1), "underpriced"),
        (Fees(900 * GWEI, 2 * GWEI), "fee_above_cap"),
        (Fees(30 * GWEI), "wrong_fee_type"),
    ],
    ids=["too little", "too small a tip", "above the cap", "of another type"],
)
async def test_a_stated_price_that_will_not_do_is_refused_and_nothing_changes(
    scene: Scene, fees: Fees, code: str
) -> None:
    await scene.start(fees=f"max_fee_per_gas = {500 * GWEI}")
    await scene.pay("a")
    await scene.sent()
    async with refused(code):
        await scene.bump("a", fees)
    assert len(await scene.attempts("a")) == 1
    await scene.settle()
    assert (await scene.audit()).bumps == 0


async def test_a_bump_of_what_is_queued_changes_what_will_be_offered(scene: Scene, interlude: Interlude) -> None:
    await scene.start(window=1)
    await scene.pay("first", "second")
    await scene.sent("first")
    await scene.bump("second", Fees(77 * GWEI, 7 * GWEI))
    await interlude()
    await scene.settle()
    assert [one.fees for one in await scene.attempts("second")] == [Fees(77 * GWEI, 7 * GWEI)]
    await scene.audit()


async def test_a_bump_of_what_is_mined_is_too_late(scene: Scene) -> None:
    await scene.start()
    await scene.pay("a")
    await scene.sent()
    await scene.mined("a")
    with pytest.raises(TooLate):
        await scene.bump("a")
    await scene.settle()
    await scene.audit()


# holding


@lesson("requeued-place")
async def test_what_is_held_lets_others_pass_and_keeps_its_place_when_it_is_released(
    scene: Scene, interlude: Interlude
) -> None:
    await scene.start(window=1)
    await scene.pay("first", "held", "next")
    await scene.sent("first")
    await (await scene.handle("held")).hold("somebody must look")
    assert (await scene.marked("held", "held")) == "somebody must look"
    await scene.settle("next")
    await interlude()
    await scene.pay("late", "later")
    await scene.sent("late")
    await (await scene.handle("held")).release()
    await scene.settle()
    assert await scene.nonces("first", "next", "late", "held", "later") == [0, 1, 2, 3, 4]
    await scene.audit()


async def test_what_is_in_flight_cannot_be_held(scene: Scene) -> None:
    await scene.start()
    await scene.pay("a")
    await scene.sent()
    with pytest.raises(TooLate):
        await (await scene.handle("a")).hold()
    await scene.settle()
    await scene.audit()


# lanes


@pytest.mark.parametrize("mode", [Mode.PAUSED, Mode.DRAINING])
async def test_a_lane_that_is_stopped_by_hand_finishes_what_it_has_sent_and_signs_nothing_more(
    scene: Scene, interlude: Interlude, mode: Mode
) -> None:
    await scene.start(window=2)
    await scene.pay(*KEYS)
    await scene.sent(*KEYS[:2])
    await scene.node.asking.control(scene.lane, mode, "maintenance")
    await interlude()
    if mode is Mode.DRAINING:
        with pytest.raises(LaneDraining):
            await scene.pay("refused")
    await scene.proxy.forget_mempool()
    await scene.settle(*KEYS[:2])
    if mode is Mode.PAUSED:
        for _ in range(3):
            await scene.tick()
        assert {tx.state for tx in await scene.txs(KEYS[2:])} == {State.QUEUED}
        assert await scene.count(ALICE, "pending") == 2
    await scene.node.asking.control(scene.lane, Mode.OPEN)
    await scene.settle()
    assert await scene.nonces(*KEYS) == list(range(5))
    await scene.audit()
