"""Nonces that somebody outside signs for: used, released, expired, late, forgotten."""

from __future__ import annotations

import pytest

from nonchalant.errors import WishRefused
from tests.e2e.scenarios.conftest import Interlude
from tests.e2e.scenarios.scene import ALICE, GWEI, LONG_LEASE, SOON, Scene
from tests.lessons import lesson


async def test_bytes_that_were_given_are_sent_again_whatever_becomes_of_our_node_and_its_pool(
    scene: Scene, interlude: Interlude
) -> None:
    await scene.start()
    await scene.pay("before")
    await scene.sent("before")
    nonce = await scene.reserve()
    await scene.pay("after")
    await scene.used(nonce, scene.sign(nonce, "outside"))
    await scene.sent()
    await interlude()
    await scene.proxy.forget_mempool()
    await scene.settle()
    await scene.all_final(3)
    assert await scene.nonces("before", "after") == [0, 2]
    assert await scene.paid("outside") == [1]
    await scene.audit()


async def test_a_holder_who_sends_by_himself_needs_to_say_only_the_hash(scene: Scene, interlude: Interlude) -> None:
    await scene.start()
    nonce = await scene.reserve()
    await scene.pay("behind")
    await scene.sent()
    signed = scene.sign(nonce, "outside")
    await scene.used(nonce, signed, with_bytes=False)
    await interlude()
    await scene.chain.rpc("eth_sendRawTransaction", "0x" + bytes(signed.raw_transaction).hex())
    await scene.settle()
    await scene.all_final(2)
    assert await scene.paid("outside") == [1]
    assert (await scene.audit()).fillers == 0


async def test_a_nonce_that_is_given_back_is_the_next_transaction_s(scene: Scene, interlude: Interlude) -> None:
    await scene.start()
    nonce = await scene.reserve()
    await interlude()
    await scene.release(nonce)
    await scene.pay("a", "b")
    await scene.settle()
    assert await scene.nonces("a", "b") == [0, 1]
    assert (await scene.audit()).fillers == 0


@lesson("gap-without-traffic")
async def test_a_nonce_given_back_below_what_is_sent_is_filled_without_traffic(
    scene: Scene, interlude: Interlude
) -> None:
    await scene.start()
    nonce = await scene.reserve()
    await scene.pay("behind")
    await scene.sent()
    await scene.release(nonce)
    await interlude()
    await scene.settle()
    assert await scene.nonces("behind") == [1]
    assert (await scene.audit()).fillers == 1


@lesson("reservation-reused")
async def test_a_reservation_past_its_time_is_closed_by_a_filler_and_never_by_a_payment(
    scene: Scene, interlude: Interlude
) -> None:
    await scene.start(lease=LONG_LEASE)
    nonce = await scene.reserve(SOON)
    over = scene.soon()
    await scene.pay("behind")
    await scene.sent()
    await interlude()
    scene.pass_by(over)
    await scene.pay("later")
    with pytest.raises(WishRefused):
        await scene.used(nonce, scene.sign(nonce, "outside"))
    await scene.settle()
    assert await scene.nonces("behind", "later") == [1, 2]
    assert await scene.paid("outside") == [0]
    assert (await scene.audit()).fillers == 1


@lesson("reservation-reused")
@pytest.mark.telling
async def test_a_late_holder_s_bytes_that_win_against_the_filler_settle_the_nonce(
    scene: Scene, interlude: Interlude
) -> None:
    """He never said what he signed, and his time was over: nobody else's payment was ever at his nonce."""
    await scene.start(lease=LONG_LEASE)
    fillers = scene.proxy.late_delivery(matching=lambda sent: sent.to == ALICE)
    nonce = await scene.reserve(SOON)
    over = scene.soon()
    await scene.pay("behind")
    await scene.sent()
    scene.pass_by(over)
    await fillers.struck()
    await interlude()
    signed = scene.sign(nonce, "outside", price=90 * GWEI)
    await scene.chain.rpc("eth_sendRawTransaction", "0x" + bytes(signed.raw_transaction).hex())
    await scene.mined("behind")
    fillers.off()
    await scene.proxy.release()
    await scene.settle()
    await scene.all_final(2)
    assert await scene.paid("outside") == [1]
    audit = await scene.audit(foreign=["0x" + bytes(signed.hash).hex()])
    assert audit.fillers == 0


async def test_a_reorg_takes_a_used_nonce_back_and_it_is_sent_again(scene: Scene, interlude: Interlude) -> None:
    await scene.start()
    await scene.mine(2)
    nonce = await scene.reserve()
    await scene.pay("behind")
    await scene.used(nonce, scene.sign(nonce, "outside"))
    await scene.sent()
    await scene.until(lambda: scene.pools(2), "both in the pool")
    await scene.mined("behind")
    await scene.chain.reorg(1)
    await interlude()
    await scene.settle()
    await scene.all_final(2)
    assert await scene.paid("outside") == [1]
    await scene.audit()


async def test_a_stranger_at_a_reserved_nonce_leaves_the_holder_with_none(scene: Scene, interlude: Interlude) -> None:
    await scene.start()
    nonce = await scene.reserve()
    await scene.pay("behind")
    await scene.sent()
    foreign = await scene.intrude(nonce=nonce, price=2 * GWEI)
    await interlude()
    await scene.mined("behind")
    with pytest.raises(WishRefused):
        await scene.release(nonce)
    await scene.settle()
    await scene.all_final(2)
    await scene.audit(foreign=[foreign])


async def test_holders_and_payments_share_one_line_without_gaps(scene: Scene, interlude: Interlude) -> None:
    await scene.start(window=12)
    outside: list[str] = []
    for number in range(4):
        nonce = await scene.reserve()
        await scene.pay(f"ours{number}")
        if number % 2:
            await scene.used(nonce, scene.sign(nonce, f"theirs{number}"))
            outside.append(f"theirs{number}")
        else:
            await scene.release(nonce)
    await interlude()
    await scene.settle()
    assert await scene.paid(*outside) == [1] * len(outside)
    await scene.audit()
