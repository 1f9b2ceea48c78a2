"""Deadlines that pass before and after a transaction is sent, depths that were asked for, and who decides on a lost nonce."""

from __future__ import annotations

import pytest

from nonchalant.model import Event
from nonchalant.words import Mode, State
from tests.e2e.scenarios.conftest import Interlude
from tests.e2e.scenarios.scene import ALICE, GWEI, LONG_LEASE, Scene


@pytest.mark.parametrize("obstacle", ["paused", "no funds", "no endpoint", "held"])
async def test_a_deadline_that_passes_in_the_queue_spends_no_nonce(
    scene: Scene, interlude: Interlude, obstacle: str
) -> None:
    await scene.start(lease=LONG_LEASE)
    outage = None
    if obstacle == "paused":
        await scene.node.asking.control(scene.lane, Mode.PAUSED)
    elif obstacle == "no funds":
        await scene.chain.set_balance(ALICE, 0)
    elif obstacle == "no endpoint":
        outage = scene.proxy.status(503)
    deadline = scene.soon()
    await scene.pay("late", valid_until=deadline)
    if obstacle == "held":
        await (await scene.handle("late")).hold()
    await interlude()
    scene.pass_by(deadline)
    await scene.become(State.EXPIRED)
    if outage is not None:
        outage.off()
    await scene.node.asking.control(scene.lane, Mode.OPEN)
    await scene.chain.set_balance(ALICE, 10**18)
    await scene.pay("after")
    await scene.settle()
    assert await scene.nonces("late", "after") == [None, 0]
    await scene.audit(expired=["late"])


@pytest.mark.telling
async def test_what_is_sent_and_passes_its_deadline_has_its_nonce_consumed_by_what_does_nothing(
    scene: Scene, interlude: Interlude
) -> None:
    await scene.start(lease=LONG_LEASE)
    deadline = scene.soon()
    await scene.pay("before")
    await scene.pay("late", valid_until=deadline)
    await scene.pay("behind")
    await scene.sent()
    await interlude()
    scene.pass_by(deadline)
    await scene.cancelling("late")
    await scene.settle()
    assert await scene.nonces("before", "late", "behind") == [0, 1, 2]
    assert (await scene.audit(expired=["late"])).cancels == 1


async def test_what_is_mined_before_its_deadline_is_confirmed_after_it(scene: Scene, interlude: Interlude) -> None:
    await scene.start(lease=LONG_LEASE)
    deadline = scene.soon()
    await scene.pay("a", valid_until=deadline)
    await scene.sent()
    await scene.mined("a")
    await interlude()
    scene.pass_by(deadline)
    await scene.settle()
    assert (await scene.audit()).cancels == 0


async def test_what_is_sent_may_still_win_after_its_deadline(scene: Scene, interlude: Interlude) -> None:
    await scene.start(lease=LONG_LEASE)
    deadline = scene.soon()
    await scene.pay("a", valid_until=deadline)
    await scene.sent()
    late = scene.proxy.late_delivery(matching=lambda sent: sent.to == ALICE)
    scene.pass_by(deadline)
    await late.struck()
    await interlude()
    await scene.mined("a")
    late.off()
    await scene.proxy.release()
    await scene.settle()
    assert (await scene.audit()).cancels == 0


async def test_a_deadline_that_passes_while_nobody_works_the_lane_holds_all_the_same(scene: Scene) -> None:
    await scene.start(window=1, lease=LONG_LEASE)
    deadline = scene.soon()
    await scene.pay("flying", "queued", valid_until=deadline)
    await scene.sent("flying")
    await scene.kill()
    scene.pass_by(deadline)
    before = len(scene.proxy.sent)
    await scene.come_back()
    await scene.cancelling("flying")
    await scene.settle()
    assert {each.transaction.to for each in scene.proxy.sent[before:] if each.transaction} == {ALICE}
    assert (await scene.audit(expired=["flying", "queued"])).cancels == 1


async def test_what_a_reorg_gives_back_after_its_deadline_is_not_sent_again(scene: Scene, interlude: Interlude) -> None:
    await scene.start(lease=LONG_LEASE)
    await scene.mine(2)
    deadline = scene.soon()
    await scene.pay("a", valid_until=deadline)
    await scene.sent()
    await scene.mined("a")
    scene.pass_by(deadline)
    before = len(scene.proxy.sent)
    await scene.chain.reorg(1)
    await interlude()
    await scene.settle()
    assert {each.transaction.to for each in scene.proxy.sent[before:] if each.transaction} == {ALICE}
    assert (await scene.audit(expired=["a"])).cancels == 1


async def test_what_is_cancelled_before_its_deadline_is_called_cancelled(scene: Scene, interlude: Interlude) -> None:
    await scene.start(lease=LONG_LEASE)
    deadline = scene.soon()
    await scene.pay("a", valid_until=deadline)
    await scene.sent()
    await scene.cancel("a")
    await interlude()
    scene.pass_by(deadline)
    await scene.cancelling("a")
    await scene.settle()
    await scene.audit(cancelled=["a"])


# depth


@pytest.fixture
def slots_in_an_epoch() -> int:
    return 4  # so that a depth comes before finality


async def told(scene: Scene, key: str) -> list[Event]:
    return [event for event in await scene.node.store.history(scene.id(key)) if event.kind == "tx.depth"]


async def test_a_depth_that_was_asked_for_is_told_once_with_the_blocks_above_it(
    scene: Scene, interlude: Interlude
) -> None:
    await scene.start()
    await scene.pay("a", confirmations=3)
    await scene.sent()
    await scene.mined("a")
    await scene.mine(2)
    await interlude()
    assert await told(scene, "a") == []
    await scene.mine()
    await scene.until(lambda: told(scene, "a"), "told")
    assert (await scene.tx("a")).state is State.MINED
    await scene.settle()
    [event] = await told(scene, "a")
    receipt = (await scene.tx("a")).receipt
    assert receipt is not None
    linked = [
        await scene.chain.rpc("eth_getBlockByNumber", hex(receipt.block.number + above), False) for above in (1, 2, 3)
    ]
    assert [block["hash"] for block in linked] == [one["hash"] for one in event.data["confirmations"]]
    assert event.data["fork"] is False
    await scene.audit()


async def test_a_fork_above_it_is_told_as_one_so_that_nobody_splices_two(scene: Scene, interlude: Interlude) -> None:
    await scene.start()
    await scene.pay("a", confirmations=2)
    await scene.sent()
    await scene.mined("a")
    await scene.mine(2)
    await scene.until(lambda: told(scene, "a"), "told")
    await scene.chain.reorg(2)
    await interlude()
    await scene.until(lambda: _told_twice(scene), "told again", tick=scene.tick)
    await scene.settle()
    first, second = await told(scene, "a")
    assert [first.data["fork"], second.data["fork"]] == [False, True]
    assert first.data["confirmations"] != second.data["confirmations"]
    await scene.audit()


async def _told_twice(scene: Scene) -> bool:
    return len(await told(scene, "a")) > 1


# who decides


@pytest.mark.parametrize("wish", ["hold", "requeue"])
async def test_what_lost_its_nonce_waits_for_a_person_if_that_was_asked_for(
    scene: Scene, interlude: Interlude, wish: str
) -> None:
    await scene.start()
    unheard = scene.proxy.timeout_before_acceptance()
    await scene.pay("a", on_superseded=wish)
    await scene.sent()
    foreign = await scene.intrude(nonce=0, price=2 * GWEI)
    await scene.chain.mine()
    unheard.off()  # not before: sent again, ours might take its place in the pool
    await interlude()
    if wish == "hold":
        await scene.marked("a", "superseded", tick=scene.tick)
        assert await scene.count() == 1
        await (await scene.handle("a")).release(mark="superseded")
    await scene.settle()
    assert await scene.nonces("a") == [1]
    await scene.audit(foreign=[foreign])
