"""Somebody else has our key, and uses it before, between and behind what we have in flight."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from nonchalant.testing.faults import SEND
from nonchalant.words import State
from tests.e2e import ledger
from tests.e2e.scenarios.conftest import Interlude
from tests.e2e.scenarios.scene import ALICE, DEAR, GWEI, TRANSFER, Scene

KEYS = [f"k{n}" for n in range(5)]


async def displaced(scene: Scene, nonce: int, keys: Sequence[str] = KEYS) -> str:
    """Theirs was executed at this nonce instead of ours, which did not arrive before; ours are sent. The hash."""
    await scene.start()
    unheard = scene.proxy.timeout_before_acceptance(matching=lambda sent: sent.nonce == nonce)
    await scene.pay(*keys)
    await scene.sent()
    foreign = await scene.intrude(nonce=nonce, price=2 * GWEI)
    # What waits behind was held back by the gap.
    await scene.until(lambda: scene.pools(len(keys)), "all in the pool")
    await scene.chain.mine()
    unheard.off()  # not before: sent again, ours might take its place in the pool
    return foreign


@pytest.mark.parametrize("position", ["head", pytest.param("middle", marks=pytest.mark.telling), "tail"])
async def test_a_foreign_transaction_among_what_is_in_flight_moves_only_the_one_it_displaced(
    scene: Scene, interlude: Interlude, position: str
) -> None:
    nonce = {"head": 0, "middle": 2, "tail": 4}[position]
    foreign = await displaced(scene, nonce)
    others = [key for key in KEYS if key != KEYS[nonce]]
    await scene.become(State.MINED, keys=others)
    await interlude()
    await scene.settle()
    expected = list(range(5))
    expected[nonce] = 5
    assert await scene.nonces(*KEYS) == expected
    assert {"tx.superseded", "tx.requeued"} <= set(await scene.history(KEYS[nonce]))
    assert (await scene.audit(foreign=[foreign])).fillers == 0


async def test_what_lost_its_nonce_is_not_queued_again_before_finality(scene: Scene, interlude: Interlude) -> None:
    foreign = await displaced(scene, 0)
    await scene.become(State.MINED, keys=KEYS[1:])
    await interlude()
    await scene.seen()
    assert (await scene.tx(KEYS[0])).state is State.SENT
    assert await scene.nonces(KEYS[0]) == [0]
    await scene.settle()
    await scene.audit(foreign=[foreign])


async def test_a_foreign_transaction_that_a_reorg_takes_back_costs_nothing(scene: Scene, interlude: Interlude) -> None:
    await displaced(scene, 0)
    await scene.become(State.MINED, keys=KEYS[1:])
    await interlude()
    await scene.chain.reorg(1)
    await scene.settle()
    assert await scene.nonces(*KEYS) == list(range(5))
    assert "tx.superseded" not in await scene.history(KEYS[0])
    await scene.audit()


async def test_a_foreign_transaction_in_the_pool_that_loses_the_race_changes_nothing(
    scene: Scene, interlude: Interlude
) -> None:
    await scene.start()
    await scene.intrude(nonce=0, price=2 * GWEI)
    await scene.pay(*KEYS)
    await scene.sent()
    await interlude()
    await scene.settle()
    assert await scene.nonces(*KEYS) == list(range(5))
    await scene.audit()


async def test_a_foreign_transaction_behind_what_is_in_flight_is_reported_and_stepped_over(
    scene: Scene, interlude: Interlude
) -> None:
    await scene.start()
    await scene.pay("a", "b")
    await scene.sent()
    foreign = await scene.intrude(nonce=2, price=2 * GWEI)
    await interlude()
    await scene.mined("a", "b")
    await scene.pay("c")
    await scene.settle()
    assert await scene.nonces("a", "b") == [0, 1]

    async def told() -> bool:
        events = await scene.node.store.events_after(0, limit=1000)
        # A new owner that finds a nonce used which its store never gave out suspects lost commits, and closes more than that.
        reported = [event.data.get("hash") for event in events if event.kind == "lane.foreign"]
        return reported == [foreign] or "lane.reset" in [event.kind for event in events]

    await scene.until(told, "who used the nonce is told")
    await scene.audit(foreign=[foreign])


async def test_the_same_deed_done_by_somebody_else_is_held_and_not_done_again(
    scene: Scene, interlude: Interlude
) -> None:
    await scene.start()
    unheard = scene.proxy.timeout_before_acceptance()
    await scene.pay("once")
    await scene.sent()
    foreign = await scene.intrude("once", nonce=0)
    await scene.chain.mine()
    unheard.off()
    await interlude()
    await scene.marked("once", "same_payload_executed", tick=scene.tick)
    await scene.pay("after")
    await scene.settle("after")
    assert await scene.nonces("after") == [1]
    await scene.audit(foreign=[foreign], held=["once"])


async def test_a_nonce_that_an_authorisation_consumed_is_proved_and_the_transaction_runs_at_another(
    scene: Scene, interlude: Interlude
) -> None:
    """EIP-7702: somebody's transaction carries an authorisation that Alice's key signed for her next nonce."""
    await scene.start()
    unheard = scene.proxy.refuse(SEND, "txpool is full")
    await scene.pay("a", "b")
    await unheard.struck(2)
    await scene.authorise(nonce=0)
    unheard.off()
    assert await scene.count() == 1
    await interlude()
    await scene.settle()
    assert sorted(nonce or 0 for nonce in await scene.nonces("a", "b")) == [1, 2]
    await scene.audit()


@pytest.mark.parametrize("ours", [0, 2], ids=["idle", "in flight"])
async def test_a_key_used_while_we_are_away_is_noticed_and_nothing_runs_twice(scene: Scene, ours: int) -> None:
    await scene.start(window=2)
    await scene.pay("first")
    await scene.settle()
    flying = [f"f{n}" for n in range(ours)]
    await scene.pay(*flying)
    if flying:
        await scene.sent(*flying)
    await scene.kill()
    foreign = [await scene.intrude(f"theirs{n}", nonce=1 + ours + n, price=2 * GWEI) for n in range(2)]
    await scene.chain.mine()
    await scene.come_back()
    await scene.pay("second")
    await scene.settle()
    assert await scene.count() > 3 + ours
    await scene.audit(foreign=foreign)


async def test_two_strangers_at_two_nonces_displace_two(scene: Scene, interlude: Interlude) -> None:
    await scene.start()
    unheard = scene.proxy.timeout_before_acceptance(matching=lambda sent: sent.nonce in (1, 3))
    await scene.pay(*KEYS)
    await scene.sent()
    foreign = [await scene.intrude(f"theirs{nonce}", nonce=nonce, price=2 * GWEI) for nonce in (1, 3)]
    await scene.until(lambda: scene.pools(5), "all in the pool")
    await scene.chain.mine()
    unheard.off()
    await interlude()
    await scene.settle()
    moved = await scene.nonces(KEYS[1], KEYS[3])
    assert sorted(nonce or 0 for nonce in moved) == [5, 6]
    assert await scene.nonces(KEYS[0], KEYS[2], KEYS[4]) == [0, 2, 4]
    await scene.audit(foreign=foreign)


async def test_a_dearer_stranger_that_takes_the_place_of_a_mined_one_by_a_reorg_is_told_apart(scene: Scene) -> None:
    await scene.start()
    await scene.pay("a")
    await scene.sent()
    await scene.mined("a")
    theirs = {"from": ALICE, "to": ledger.recipient("theirs"), **TRANSFER, "nonce": "0x0", "gasPrice": hex(DEAR)}
    await scene.chain.rpc("anvil_impersonateAccount", ALICE)
    await scene.chain.reorg(1, [(theirs, 0)])
    [foreign] = (await scene.chain.rpc("eth_getBlockByNumber", "latest", False))["transactions"]
    await scene.settle()
    assert await scene.nonces("a") == [1]
    await scene.audit(foreign=[foreign])
