"""Funds and prices that are not right just now: what waits, says why, and goes as soon as it can."""

from itertools import pairwise

from nonchalant.chain.evm import publishing
from nonchalant.model import Fees
from nonchalant.words import State
from tests.e2e.site import ALICE, ETHER, GWEI, Site, pay

RETURN_IT = bytes.fromhex("60005260206000f3")  # what is on the stack, as one word


async def test_an_account_without_funds_waits_with_a_mark_and_goes_when_funded(site: Site) -> None:
    await site.chain.set_balance(ALICE, 0)
    async with site.node(accounts=1) as node:
        handle = await pay(node, "poor")
        mark = await site.marked(handle, "insufficient_funds")
        assert ALICE in mark.reason
        assert (await handle.refresh()).state is State.QUEUED
        assert await site.count(tag="pending") == 0
        await site.chain.set_balance(ALICE, ETHER)
        await site.settle(handle)
        assert (handle.transaction.state, handle.transaction.attention) == (State.CONFIRMED, None)
    await site.audit(["poor"])


async def test_one_that_is_too_dear_is_passed_by_one_that_is_not(site: Site) -> None:
    await site.chain.set_balance(ALICE, ETHER)
    async with site.node(accounts=1) as node:
        dear = await pay(node, "dear", value=5 * ETHER)
        cheap = await pay(node, "cheap")
        await site.marked(dear, "insufficient_funds")
        await site.settle(cheap)
        assert cheap.transaction.state is State.CONFIRMED
        await site.chain.set_balance(ALICE, 10 * ETHER)
        await site.settle(dear)
        assert dear.transaction.state is State.CONFIRMED
    assert (await site.paid("dear"), await site.paid("cheap")) == (5 * ETHER, 1)


async def test_funds_are_counted_with_the_fee_for_data(site: Site) -> None:
    """The contract that tells the fee is there; the chain itself takes none, so that only our count can show."""
    fee, price = 10**15, Fees(10 * GWEI, GWEI)
    await site.chain.set_code(publishing.ORACLE, bytes.fromhex("67") + fee.to_bytes(8, "big") + RETURN_IT)
    gas = 21_000 * price.max_fee + 1
    await site.chain.set_balance(ALICE, gas + fee - 1)
    async with site.node(accounts=1, data_fee="op-stack") as node:
        handle = await pay(node, "dear", fees=price)
        mark = await site.marked(handle, "insufficient_funds")
        assert " lacks 1 wei " in mark.reason
        assert await site.count(tag="pending") == 0
        await site.chain.set_balance(ALICE, gas + fee)
        await site.settle(handle)
        assert handle.transaction.state is State.CONFIRMED


async def test_a_fee_for_data_that_nobody_tells_is_waited_for_with_a_mark(site: Site) -> None:
    async with site.node(accounts=1, data_fee="op-stack") as node:
        handle = await pay(node, "unknown")
        mark = await site.marked(handle, "data_fee_unknown")
        assert "take data_fee out of its settings" in mark.reason
        assert (await handle.refresh()).state is State.QUEUED
        await site.chain.set_code(publishing.ORACLE, bytes.fromhex("5f") + RETURN_IT)
        await site.settle(handle)
        assert handle.transaction.state is State.CONFIRMED


async def test_a_price_below_the_base_fee_waits_with_a_mark_until_that_falls(site: Site) -> None:
    await site.chain.set_next_base_fee(100 * GWEI)
    await site.chain.mine()
    async with site.node(accounts=1) as node:
        handle = await pay(node, "patient", fees=Fees(50 * GWEI, GWEI))
        mark = await site.marked(handle, "price_below_base_fee")
        assert "base fee" in mark.reason
        assert await site.count(tag="pending") == 0
        await site.chain.set_next_base_fee(GWEI)
        await site.settle(handle)
        assert handle.transaction.state is State.CONFIRMED
    await site.audit(["patient"])


async def test_a_base_fee_above_the_cap_is_waited_out_without_paying_more_than_the_cap(
    site: Site, hurried: None
) -> None:
    cap = 10 * GWEI
    async with site.node(accounts=1, fees=f"max_fee_per_gas = {cap}") as node:
        handles = [await pay(node, f"capped{i}") for i in range(3)]
        await site.become(handles, State.SENT, mine=False)

        async def spike() -> None:
            await site.chain.set_next_base_fee(80 * GWEI)
            await site.chain.mine()

        await spike()
        for handle in handles:
            await site.marked(handle, "price_at_cap", tick=spike)
        assert await site.count() == 0
        waiting = await pay(node, "late")
        await site.marked(waiting, "price_below_base_fee", tick=spike)
        await site.chain.set_next_base_fee(GWEI)
        await site.settle(*handles, waiting)
        assert {handle.transaction.state for handle in (*handles, waiting)} == {State.CONFIRMED}
        attempts = await node.store.attempts([handle.id for handle in handles])
        assert max(attempt.fees.max_fee for tried in attempts.values() for attempt in tried) <= cap
    await site.audit(["capped0", "capped1", "capped2", "late"])


async def test_a_rising_base_fee_is_followed_by_bumps_of_at_least_a_tenth(site: Site, hurried: None) -> None:
    async with site.node(accounts=1) as node:
        handle = await pay(node, "chased")
        await site.become([handle], State.SENT, mine=False)
        await site.chain.set_next_base_fee(30 * GWEI)
        await site.chain.mine()
        await site.settle(handle)
        assert handle.transaction.state is State.CONFIRMED
        tried = (await node.store.attempts([handle.id]))[handle.id]
    assert len(tried) > 1
    for old, new in pairwise(tried):
        assert new.fees.max_fee * 10 >= old.fees.max_fee * 11
        assert (new.fees.priority or 0) * 10 >= (old.fees.priority or 0) * 11
    await site.audit(["chased"])
