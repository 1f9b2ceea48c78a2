"""Mempools: what they forget, refuse, limit and only pretend to keep; and the hole that nobody's traffic closes."""

from __future__ import annotations

import pytest

from nonchalant.testing import Told
from nonchalant.testing.faults import SEND
from nonchalant.testing.rules import ARBITRUM, GETH, RETH, AccountLimit, NoGaps, PoolLimit, Words
from nonchalant.words import State
from tests.e2e.scenarios.conftest import Interlude
from tests.e2e.scenarios.scene import Scene
from tests.lessons import lesson

KEYS = [f"k{n}" for n in range(6)]
INTRINSIC_GAS = "intrinsic gas too low: gas 21040, minimum needed 21056"


def refuse_faulty(scene: Scene) -> None:
    """As nodes other than anvil do: bytes that cannot run are refused for what they are."""
    scene.proxy.refuse(SEND, INTRINSIC_GAS, matching=lambda sent: bool(sent.data))


@pytest.mark.telling
async def test_what_a_pool_drops_from_the_middle_is_sent_again_in_its_place(scene: Scene, interlude: Interlude) -> None:
    await scene.start()
    await scene.pay(*KEYS)
    await scene.sent()
    await scene.chain.drop((await scene.tx(KEYS[2])).hash or "")
    assert await scene.pool() == [0, 1]  # anvil drops what waits behind it, too
    await interlude()
    await scene.until(lambda: scene.pools(6), "all in the pool again")
    await scene.settle()
    assert await scene.nonces(*KEYS) == list(range(6))
    audit = await scene.audit()
    assert (audit.fillers, audit.bumps) == (0, 0)


async def test_a_pool_that_forgets_everything_gets_it_again(scene: Scene, interlude: Interlude) -> None:
    await scene.start(accounts=2)
    await scene.pay(*KEYS[:3])
    await scene.pay(*KEYS[3:], account=1)
    await scene.sent()
    await scene.proxy.forget_mempool()
    await interlude()
    await scene.settle()
    await scene.audit()


@pytest.mark.telling
@lesson("gap-without-traffic")
async def test_a_hole_is_closed_within_two_blocks_though_no_traffic_comes(scene: Scene) -> None:
    await scene.start()
    refuse_faulty(scene)
    await scene.pay("faulty", data="0x11", gas=21_040)
    await scene.pay("behind", "last")
    await scene.become(State.FAILED, keys=["faulty"])
    await scene.become(State.SENT, keys=["behind", "last"])
    height = await scene.chain.height()
    await scene.until(lambda: scene.pools(3), "the hole is closed")
    await scene.mined("behind", "last")
    assert await scene.chain.height() <= height + 2
    await scene.settle()
    assert await scene.nonces("behind", "last") == [1, 2]
    assert (await scene.audit(failed=["faulty"])).fillers == 1


@lesson("gap-without-traffic")
async def test_a_hole_is_closed_by_what_is_queued_before_anything_is_made_for_it(
    scene: Scene, interlude: Interlude
) -> None:
    await scene.start(window=2)
    refuse_faulty(scene)
    await scene.pay("faulty", data="0x11", gas=21_040)
    await scene.pay("behind", "waiting")
    await scene.become(State.FAILED, keys=["faulty"])
    await interlude()
    await scene.settle()
    assert await scene.nonces("waiting", "behind") == [0, 1]
    assert (await scene.audit(failed=["faulty"])).fillers == 0


async def test_a_nonce_that_a_killed_node_could_not_place_is_placed_by_the_next(scene: Scene) -> None:
    await scene.start()
    refusal = scene.proxy.refuse(SEND, "txpool is full", matching=lambda sent: sent.nonce == 0)
    await scene.pay("lowest", "behind")
    await refusal.struck()
    await scene.kill()
    refusal.off()
    await scene.come_back()
    await scene.settle()
    assert await scene.nonces("lowest", "behind") == [0, 1]
    assert (await scene.audit()).fillers == 0


@lesson("account-limit")
@pytest.mark.parametrize(
    "words", [pytest.param(GETH, id="geth", marks=pytest.mark.telling), pytest.param(RETH, id="reth")]
)
async def test_a_node_that_holds_fewer_of_an_account_than_our_window_slows_it_and_stops_nothing(
    scene: Scene, interlude: Interlude, words: Words
) -> None:
    await scene.start(window=6)
    limit = scene.proxy.enforce(AccountLimit(2, words))
    await scene.pay(*KEYS)
    await limit.struck()
    assert await scene.pool() == [0, 1]
    await interlude()
    await scene.settle()
    assert await scene.nonces(*KEYS) == list(range(6))
    await scene.audit()


async def test_a_pool_that_is_full_is_asked_again_until_it_has_room(scene: Scene, interlude: Interlude) -> None:
    await scene.start()
    full = scene.proxy.enforce(PoolLimit(0))
    await scene.pay(*KEYS[:3])
    await full.struck(6)
    await scene.marked(KEYS[0], "tx_pool_full")
    await interlude()
    full.off()
    await scene.settle()
    assert await scene.nonces(*KEYS[:3]) == [0, 1, 2]
    await scene.audit()


@lesson("gap-refused-late")
@pytest.mark.parametrize("words", [GETH, ARBITRUM], ids=["geth", "arbitrum"])
async def test_nonce_too_high_means_a_hole_at_that_node_and_everything_goes_once_it_is_closed(
    scene: Scene, interlude: Interlude, words: Words
) -> None:
    await scene.start()
    gaps = scene.proxy.enforce(NoGaps(words=words))
    lowest = scene.proxy.refuse(SEND, "txpool is full", matching=lambda sent: sent.nonce == 0)
    await scene.pay(*KEYS)
    await gaps.struck(5)
    assert await scene.pool() == []
    await interlude()
    lowest.off()
    await scene.until(lambda: scene.pools(6), "all in the pool")
    await scene.settle()
    assert await scene.nonces(*KEYS) == list(range(6))
    await scene.audit()


@lesson("swallowed-gap")
async def test_a_gateway_that_says_yes_to_a_nonce_after_a_hole_and_keeps_nothing_gets_it_again(
    scene: Scene, interlude: Interlude
) -> None:
    await scene.start()
    scene.proxy.enforce(NoGaps(silently=True))
    lowest = scene.proxy.refuse(SEND, "txpool is full", matching=lambda sent: sent.nonce == 0)
    await scene.pay(*KEYS)
    await scene.until(lambda: _accepted(scene) >= {1, 2, 3, 4, 5}, "the others are accepted")
    assert await scene.pool() == []
    await interlude()
    lowest.off()
    await scene.settle()
    await scene.audit()


def _accepted(scene: Scene) -> set[int]:
    return {each.transaction.nonce for each in scene.proxy.sent if each.transaction and each.told is Told.ACCEPTED}


async def test_success_for_nothing_kept_is_found_out_and_sent_again(scene: Scene, interlude: Interlude) -> None:
    await scene.start()
    swallowed = scene.proxy.swallow(times=4)
    await scene.pay(*KEYS[:4])
    await swallowed.struck(4)
    await scene.sent()
    await interlude()
    await scene.settle()
    assert len(scene.proxy.delivered) >= 4
    await scene.audit()


@lesson("errors-that-accept")
async def test_already_known_is_accepted(scene: Scene) -> None:
    """Killed between the send and its record: the next node sends the same bytes again."""
    await scene.start()
    unheard = scene.proxy.timeout_after_acceptance()
    await scene.pay("a", "b")
    await unheard.struck()
    await scene.until(lambda: scene.pools(2), "the node has them")
    await scene.kill()
    unheard.off()
    await scene.come_back()
    await scene.sent()
    assert {each.message for each in scene.proxy.sent if each.told is Told.REFUSED} == {"transaction already imported"}
    assert [attempt.answer for key in ("a", "b") for attempt in await scene.attempts(key)] == ["accepted"] * 2
    await scene.settle()
    assert (await scene.audit()).bumps == 0


@pytest.mark.telling
@lesson("nonce-too-low-is-ours")
async def test_nonce_too_low_for_what_we_mined_ourselves_is_looked_up_and_takes_no_other_nonce(
    scene: Scene, interlude: Interlude
) -> None:
    """The endpoint shows an old head, while its pool knows that the block came."""
    await scene.start()
    await scene.pay("a")
    await scene.sent()
    photograph = await scene.proxy.freeze()
    await scene.chain.mine()
    await scene.until(lambda: "nonce too low" in {each.message for each in scene.proxy.sent}, "nonce too low")
    await interlude()
    assert await scene.nonces("a") == [0]
    photograph.off()
    await scene.become(State.MINED)
    await scene.settle()
    assert "tx.superseded" not in await scene.history("a")
    assert (await scene.audit()).bumps == 0
