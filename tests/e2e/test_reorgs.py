"""Reorgs above finality, with and without re-inclusion: mined goes back to sent, is sent again, and confirmed once."""

import pytest

from nonchalant.app import Handle, Nonchalant
from nonchalant.words import State
from tests.e2e import ledger
from tests.e2e.site import Site, kinds, pay

FINALITY = 6


async def raw_of(node: Nonchalant, handle: Handle) -> str:
    attempts = (await node.store.attempts([handle.id]))[handle.id]
    return "0x" + attempts[-1].raw.hex()


@pytest.mark.parametrize("depth", [1, 2, 3])
async def test_what_a_reorg_forgets_is_sent_again_and_confirmed_once(site: Site, depth: int) -> None:
    keys = [f"r{i}" for i in range(4)]
    async with site.node(accounts=2, finality=FINALITY) as node:
        await site.chain.mine(FINALITY)
        handles = [await pay(node, key, i % 2) for i, key in enumerate(keys)]
        await site.become(handles, State.SENT, mine=False)
        await site.chain.mine(depth)
        await site.become(handles, State.MINED, mine=False)
        await site.chain.reorg(depth)
        await site.become(handles, State.SENT, mine=False)
        for handle in handles:
            assert await site.pooled(handle), "anvil forgot it, and nobody brought it back"
            assert (await kinds(node, handle))[-1] == "tx.reorged"
        await site.settle(*handles)
        for handle in handles:
            assert (await kinds(node, handle)).count("tx.confirmed") == 1
    await site.audit(keys)


@pytest.mark.parametrize("depth", [1, 2, 3])
async def test_what_a_reorg_moves_to_another_block_is_confirmed_there(site: Site, depth: int) -> None:
    keys = [f"m{i}" for i in range(2)]
    async with site.node(accounts=2, finality=FINALITY) as node:
        await site.chain.mine(FINALITY)
        handles = [await pay(node, key, i) for i, key in enumerate(keys)]
        await site.become(handles, State.SENT, mine=False)
        await site.chain.mine(depth)
        await site.become(handles, State.MINED, mine=False)
        before = [handle.transaction.receipt for handle in handles]
        await site.chain.reorg(depth, [(await raw_of(node, handle), depth - 1) for handle in handles])
        await site.settle(*handles)
        for handle, old in zip(handles, before, strict=True):
            new = handle.transaction.receipt
            assert old is not None
            assert new is not None
            assert new.block != old.block
            assert (await kinds(node, handle)).count("tx.confirmed") == 1
    await site.audit(keys)


async def test_many_reorgs_while_a_burst_goes_through_execute_each_once(site: Site, hurried: None) -> None:
    keys = [f"w{i}" for i in range(40)]
    async with site.node(finality=FINALITY, window=4) as node:
        await site.chain.mine(FINALITY)
        handles = [await pay(node, key, i % 5) for i, key in enumerate(keys)]
        for depth in (1, 2, 3, 1, 3, 2, 1, 2):
            await site.chain.mine(depth)
            await site.become(handles[:5], State.SENT, State.MINED, mine=False)
            await site.chain.reorg(depth)
        await site.settle(*handles)
    await site.audit(keys)


async def test_a_reorg_that_gives_the_nonce_to_somebody_else_holds_ours_where_finality_is_a_depth(site: Site) -> None:
    async with site.node(accounts=1, finality=FINALITY) as node:
        await site.chain.mine(FINALITY)
        handle = await pay(node, "ours")
        await site.become([handle], State.SENT, mine=False)
        await site.chain.mine()
        await site.become([handle], State.MINED, mine=False)
        sender = handle.transaction.lane.address
        foreign = {"from": sender, "to": ledger.recipient("theirs"), "value": "0x1", "nonce": "0x0", "gas": "0x5208"}
        await site.chain.rpc("anvil_impersonateAccount", sender)
        await site.chain.reorg(1, [(foreign, 0)])
        await site.marked(handle, "superseded", tick=site.chain.mine)
        assert (handle.transaction.state, handle.transaction.held) == (State.QUEUED, True)
        assert "tx.superseded" in await kinds(node, handle)
        after = await pay(node, "after")
        await site.settle(after)
        assert (after.transaction.state, after.transaction.nonce) == (State.CONFIRMED, 1)
    assert [await site.paid(key) for key in ("ours", "theirs", "after")] == [0, 1, 1]
