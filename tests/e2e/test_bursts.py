"""Many transactions at once over several accounts."""

import asyncio
import random

from nonchalant.words import State
from tests.e2e.site import Site, kinds, pay


async def test_a_burst_over_five_accounts_executes_each_once_and_leaves_no_gap(site: Site) -> None:
    keys = [f"b{i}" for i in range(300)]
    async with site.node(window=16) as node:
        handles = await asyncio.gather(*(pay(node, key, i % 5) for i, key in enumerate(keys)))
        await site.settle(*handles)
        assert {handle.transaction.state for handle in handles} == {State.CONFIRMED}
    audit = await site.audit(keys)
    assert set(audit.by_account.values()) == {60}
    assert (audit.fillers, audit.bumped) == (0, 0)


async def test_one_account_keeps_the_order_in_which_it_was_asked(site: Site) -> None:
    async with site.node(accounts=1, window=4) as node:
        handles = [await pay(node, f"o{i}") for i in range(20)]
        await site.settle(*handles)
        assert [handle.transaction.nonce for handle in handles] == list(range(20))


async def test_the_same_keys_again_make_no_second_transaction_before_and_after_completion(site: Site) -> None:
    keys = [f"s{i}" for i in range(20)]
    async with site.node() as node:
        first = await asyncio.gather(*(pay(node, key, i % 5) for i, key in enumerate(keys)))
        again = await asyncio.gather(*(pay(node, key, i % 5) for i, key in enumerate(keys)))
        await site.settle(*first)
        later = await asyncio.gather(*(pay(node, key, i % 5) for i, key in enumerate(keys)))
        assert [h.id for h in first] == [h.id for h in again] == [h.id for h in later]
    await site.audit(keys)


async def test_what_the_pool_drops_in_the_middle_of_a_burst_is_sent_again(site: Site, hurried: None) -> None:
    keys = [f"d{i}" for i in range(12)]
    async with site.node(accounts=1) as node:
        handles = [await pay(node, key) for key in keys]
        await site.become(handles, State.SENT, mine=False)
        for handle in handles[3:6]:
            await site.chain.drop(handle.transaction.hash or "")
        await site.settle(*handles)
    audit = await site.audit(keys)
    assert audit.fillers == 0


async def test_a_pool_emptied_at_random_times_loses_nothing(site: Site, hurried: None) -> None:
    chance = random.Random(1)
    keys = [f"e{i}" for i in range(60)]
    async with site.node() as node:
        handles = []
        for i, key in enumerate(keys):
            handles.append(await pay(node, key, i % 5))
            if chance.random() < 0.15:
                await site.chain.drop_all()
            if chance.random() < 0.15:
                await site.chain.mine()
        await site.settle(*handles)
        assert "tx.requeued" not in [kind for handle in handles for kind in await kinds(node, handle)]
    await site.audit(keys)
