"""Lanes that pause by themselves and go on; accounts that others use too; what a lane's view tells of it."""

from __future__ import annotations

import pytest

from nonchalant import follow
from nonchalant.lane_views import LiveLane
from nonchalant.model import Fees
from nonchalant.windows import Pace
from nonchalant.words import State
from tests import anvil
from tests.e2e.ledger import recipient
from tests.e2e.scenarios.conftest import Interlude
from tests.e2e.scenarios.scene import ALICE, ETHER, GWEI, Scene
from tests.lessons import lesson


async def _pauses(scene: Scene, *told: tuple[str, str]) -> None:
    """Wait until the lane has told just this of itself: kinds and codes."""

    def there() -> bool:
        rows = scene.ask(
            "SELECT kind, data ->> 'code' FROM events WHERE kind IN ('lane.paused', 'lane.resumed') ORDER BY position"
        )
        return [tuple(row) for row in rows] == list(told)

    await scene.until(there, f"{told}")


PAUSED, RESUMED = ("lane.paused", "insufficient_funds"), ("lane.resumed", "insufficient_funds")


@pytest.mark.telling
async def test_a_lane_without_funds_says_how_much_it_lacks_and_goes_on_by_itself(
    scene: Scene, interlude: Interlude
) -> None:
    await scene.chain.set_balance(ALICE, 0)
    await scene.start()
    await scene.send("a", to=recipient("a"), value=1, gas=21_000, fees=Fees(10 * GWEI))
    await _pauses(scene, PAUSED)
    summary = await scene.node.store.lane(scene.lane)
    assert summary is not None
    assert summary.record.unhealthy is not None
    assert f"lacks {21_000 * 10 * GWEI + 1} wei" in summary.record.unhealthy.reason
    await interlude()
    await scene.chain.set_balance(ALICE, 21_000 * 10 * GWEI + 1)
    await scene.settle()
    await _pauses(scene, PAUSED, RESUMED)
    assert (await scene.tx("a")).state is State.CONFIRMED
    await scene.audit()


async def test_a_balance_below_the_minimum_stops_what_waits_and_nothing_else(
    scene: Scene, interlude: Interlude
) -> None:
    await scene.chain.set_balance(ALICE, 3 * ETHER)
    await scene.start(account='health = { min_balance = "2 ether" }')
    await scene.pay("a", value=3 * ETHER // 2)
    await scene.sent("a")
    await scene.mined("a")
    await scene.pay("b")
    await _pauses(scene, ("lane.paused", "balance_below_minimum"))
    await interlude()
    await scene.settle("a")
    assert (await scene.tx("b")).state is State.QUEUED
    await scene.chain.set_balance(ALICE, 3 * ETHER)
    await scene.settle()
    await _pauses(scene, ("lane.paused", "balance_below_minimum"), ("lane.resumed", "balance_below_minimum"))
    await scene.audit()


async def test_numbers_that_others_have_in_the_pool_are_skipped_and_not_filled(
    scene: Scene, interlude: Interlude
) -> None:
    await scene.start(account="shared = true")
    for nonce in (0, 1):
        await scene.intrude(f"theirs-{nonce}", nonce=nonce)
    await scene.pay("a", "b")
    await scene.sent("a", "b")
    await interlude()
    assert await scene.nonces("a", "b") == [2, 3]
    assert await scene.pool() == [0, 1, 2, 3]
    await scene.settle()
    assert await scene.paid("theirs-0", "theirs-1", "a", "b") == [1, 1, 1, 1]
    assert scene.ask("SELECT count(*) FROM slots") == [(2,)]


async def test_a_shared_account_that_others_used_meanwhile_is_not_put_in_quarantine(scene: Scene) -> None:
    await scene.start(account="shared = true")
    await scene.pay("a")
    await scene.settle()
    await scene.stop()
    await scene.intrude()
    await scene.chain.mine()
    await scene.come_back()
    await scene.pay("b")
    await scene.settle()
    assert await scene.nonces("b") == [2]
    assert await scene.lane_mark() is None


@lesson("slow-neighbour")
async def test_a_chain_that_is_another_one_is_told_on_its_lanes(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "TROUBLE_SECONDS", 0.3)
    await scene.start()
    await scene.pay("a")
    await scene.sent("a")
    await scene.chain.rpc("anvil_setChainId", anvil.CHAIN_ID + 1)

    async def told() -> bool:
        return await scene.lane_mark() == "chain_trouble"

    await scene.until(told, "told")
    summary = await scene.node.store.lane(scene.lane)
    assert summary is not None
    assert summary.record.attention is not None
    assert f"answers for chain {anvil.CHAIN_ID + 1}" in summary.record.attention.reason
    await scene.chain.rpc("anvil_setChainId", anvil.CHAIN_ID)

    async def over() -> bool:
        return await scene.lane_mark() is None

    await scene.until(over, "over")
    await scene.settle()


async def live_lane(scene: Scene) -> LiveLane:
    summary = await scene.node.store.lane(scene.lane)
    assert summary is not None
    return await scene.node.live_lane(summary)


async def test_a_lane_s_view_tells_what_counts_of_window_and_funds(scene: Scene) -> None:
    await scene.start(window=8)
    await scene.pay("a", "b")
    await scene.sent("a", "b")
    view = await live_lane(scene)
    assert (view.window, view.window_limit, view.mode, view.shared, view.delegated) == (
        8,
        8,
        Pace.PIPELINED,
        False,
        False,
    )
    assert view.in_flight == 2
    assert view.balance is not None
    assert view.committed is not None
    assert view.reserve is not None
    assert 0 < view.reserve < view.committed < view.balance
    await scene.settle()
    await scene.authorise(nonce=2, code=recipient("wallet"))
    await scene.seen()
    view = await live_lane(scene)
    assert (view.window, view.window_limit, view.delegated) == (1, 8, True)
    scene.alter("UPDATE lanes SET window = 3")
    await scene.authorise(nonce=3)
    await scene.seen()
    assert (await live_lane(scene)).window == 3
