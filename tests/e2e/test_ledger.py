"""The comparison itself: what went wrong on the chain must not pass."""

import pytest

from tests.e2e.ledger import recipient
from tests.e2e.site import ALICE, Site, pay

TRANSFER = {"value": "0x1", "gas": "0x5208"}


async def test_one_that_ran_twice_is_noticed(site: Site) -> None:
    async with site.node(accounts=1) as node:
        await site.settle(await pay(node, "once"))
    await site.audit(["once"])
    again = await site.chain.send_as(ALICE, to=recipient("once"), **TRANSFER)
    await site.chain.mine()
    with pytest.raises(AssertionError, match="ran 2 times"):
        await site.audit(["once"], foreign=[again])


async def test_one_that_was_acknowledged_and_lost_is_noticed(site: Site) -> None:
    async with site.node(accounts=1) as node:
        await site.settle(await pay(node, "kept"))
    with pytest.raises(AssertionError, match="not in the store"):
        await site.audit(["kept", "lost"])


async def test_one_that_nobody_asked_for_is_noticed(site: Site) -> None:
    async with site.node(accounts=1) as node:
        await site.settle(await pay(node, "asked"))
    await site.chain.send_as(ALICE, to=recipient("stranger"), **TRANSFER)
    await site.chain.mine()
    with pytest.raises(AssertionError, match="asked for by nobody"):
        await site.audit(["asked"])


async def test_one_that_never_ran_is_noticed(site: Site) -> None:
    async with site.node(accounts=1) as node:
        await pay(node, "never")
    with pytest.raises(AssertionError, match="ran 0 times"):
        await site.audit(["never"])


async def test_a_nonce_left_in_the_pool_is_noticed(site: Site) -> None:
    async with site.node(accounts=1) as node:
        await site.settle(await pay(node, "done"))
    await site.chain.send_as(ALICE, to=recipient("pooled"), **TRANSFER)
    with pytest.raises(AssertionError, match="at pending"):
        await site.audit(["done"])
