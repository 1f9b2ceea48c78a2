"""A dev chain is started again under our feet: the same id, and nothing of what was final."""

from __future__ import annotations

import pytest

from nonchalant import WishRefused, follow
from nonchalant.app import Nonchalant
from nonchalant.model import Fees
from nonchalant.words import Mode, State
from tests import anvil
from tests.e2e.ledger import recipient
from tests.e2e.rig import until
from tests.e2e.site import ALICE, GWEI, Site, pay

PRICE = Fees(50 * GWEI, GWEI)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "BEHIND_SECONDS", 0.5)


async def marked(node: Nonchalant, code: str) -> None:
    async def there() -> bool:
        mark = (await node.lane(anvil.CHAIN_ID, ALICE).show()).record.attention
        return mark is not None and mark.code == code

    await until(there, f"lane marked {code}", every=0.1)


async def start_again(node: Nonchalant) -> None:
    """Resume and reset, as the manual says."""
    lane = node.lane(anvil.CHAIN_ID, ALICE)
    await lane.resume("the chain was started again")
    await marked(node, "reset_needed")
    with pytest.raises(WishRefused) as caught:
        await lane.reset()
    assert caught.value.code in ("was_final", "attempts_live")
    told = await lane.reset(force=True)
    assert (told["settled_below"], told["settled_below_before"]) == (0, 2)


async def paid(chain: anvil.Anvil, key: str) -> int:
    return int(await chain.rpc("eth_getBalance", recipient(key), "latest"), 16)


async def test_a_node_that_lives_through_it_waits_is_reset_and_sends_again(site: Site, impatient: None) -> None:
    port = site.chain.port
    async with site.node(accounts=1) as node:
        done = [await pay(node, "first", fees=PRICE, gas=21_000), await pay(node, "second")]
        await site.settle(*done)
        await site.chain.mine(10)
        await site.seen(node)
        await site.chain.stop()
        async with anvil.running(port=port) as other:
            again = Site(other, site.folder)
            # The very payment that was confirmed before: to the same address, at the same nonce and price.
            twin = await pay(node, "first again", to=recipient("first"), fees=PRICE, gas=21_000)
            await marked(node, "chain_behind")
            assert (await twin.refresh()).state is State.QUEUED
            why = await twin.why()
            assert why is not None
            assert "is behind block" in why
            await start_again(node)
            third = await pay(node, "third")
            await again.settle(twin, third)
            assert [handle.transaction.nonce for handle in (twin, third)] == [0, 1]
            assert twin.transaction.hash == done[0].transaction.hash
            assert [await paid(other, key) for key in ("first", "second", "third")] == [1, 0, 1]
            assert {(await handle.refresh()).state for handle in done} == {State.CONFIRMED}


async def test_a_node_that_starts_on_the_new_chain_does_the_same(site: Site) -> None:
    port = site.chain.port
    async with site.node(accounts=1) as node:
        await site.settle(await pay(node, "first"), await pay(node, "second"))
    await site.chain.stop()
    async with anvil.running(port=port) as other:
        again = Site(other, site.folder)
        async with again.node(accounts=1) as node:
            waiting = await pay(node, "third")
            await marked(node, "chain_behind")
            await node.lane(anvil.CHAIN_ID, ALICE).resume()
            await marked(node, "reset_needed")
        async with again.node(accounts=1) as node:  # a restart changes nothing about that
            waiting = await node.transaction(waiting.id)
            await marked(node, "reset_needed")
            await node.lane(anvil.CHAIN_ID, ALICE).reset(force=True)
            await again.settle(waiting)
            assert (waiting.transaction.state, waiting.transaction.nonce) == (State.CONFIRMED, 0)


async def test_one_that_has_grown_past_what_was_final_halts_the_lane_over_restarts(site: Site) -> None:
    port = site.chain.port
    async with site.node(accounts=1) as node:
        await site.settle(await pay(node, "first"), await pay(node, "second"))
        flying = await pay(node, "flying")
        await site.become([flying], State.SENT, mine=False)
        height = await site.chain.height()
        await site.chain.stop()
        async with anvil.running(port=port) as other:
            await other.mine(height + 10)
            again = Site(other, site.folder)
            await marked(node, "chain_halted")
            lane = node.lane(anvil.CHAIN_ID, ALICE)
            with pytest.raises(WishRefused, match="resume"):
                await lane.pause()
            assert (await lane.show()).control.mode is Mode.HALTED
            await node.engine.stop()
            async with again.node(accounts=1) as heir:
                await other.mine(3)
                await again.seen(heir)
                assert (await heir.lane(anvil.CHAIN_ID, ALICE).show()).control.mode is Mode.HALTED
                await start_again(heir)
                kept = await heir.transaction(flying.id)
                assert kept.transaction.attention is not None
                assert kept.transaction.attention.code == "reset"
                await again.settle(kept)
                assert (kept.transaction.state, kept.transaction.nonce) == (State.CONFIRMED, 2)
                assert await paid(other, "flying") == 1
