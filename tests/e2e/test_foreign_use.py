"""Somebody else sends with our key."""

from nonchalant.words import State
from tests.e2e.ledger import recipient
from tests.e2e.site import ALICE, GWEI, Site, kinds, pay

DEAR = hex(500 * GWEI)
TRANSFER = {"value": "0x1", "gas": "0x5208"}


async def test_a_foreign_transaction_while_we_idle_moves_our_next_nonce(site: Site) -> None:
    async with site.node(accounts=1) as node:
        first = await pay(node, "first")
        await site.settle(first)
        theirs = await site.chain.send_as(ALICE, to=recipient("theirs"), **TRANSFER)
        await site.chain.mine()
        await site.seen(node)
        second = await pay(node, "second")
        await site.settle(second)
        assert (second.transaction.state, second.transaction.nonce) == (State.CONFIRMED, 2)
        assert "tx.superseded" not in await kinds(node, second)
    await site.audit(["first", "second"], foreign=[theirs])


async def test_a_foreign_transaction_that_takes_a_nonce_in_flight_sends_ours_back_to_the_queue(site: Site) -> None:
    keys = [f"f{i}" for i in range(5)]
    async with site.node(accounts=1) as node:
        handles = [await pay(node, key) for key in keys]
        await site.become(handles, State.SENT, mine=False)
        # The lowest one: anvil orders a block by price, and drops what it then finds before its turn.
        theirs = await site.chain.send_as(ALICE, to=recipient("theirs"), **TRANSFER, nonce="0x0", gasPrice=DEAR)
        await site.settle(*handles)
        assert {handle.transaction.state for handle in handles} == {State.CONFIRMED}
        assert [handle.transaction.nonce for handle in handles] == [5, 1, 2, 3, 4]
        assert "tx.requeued" in await kinds(node, handles[0])
    await site.audit(keys, foreign=[theirs])


async def test_a_foreign_transaction_before_the_first_start_is_counted(site: Site) -> None:
    theirs = await site.chain.send_as(ALICE, to=recipient("theirs"), **TRANSFER)
    await site.chain.mine(3)
    async with site.node(accounts=1) as node:
        handle = await pay(node, "ours")
        await site.settle(handle)
        assert handle.transaction.nonce == 1
    await site.audit(["ours"], foreign=[theirs])


async def test_a_foreign_transaction_while_we_are_down_is_noticed_and_nothing_is_sent_twice(site: Site) -> None:
    async with site.node(accounts=1, window=2) as node:
        first = await pay(node, "first")
        await site.settle(first)
    theirs = await site.chain.send_as(ALICE, to=recipient("theirs"), **TRANSFER)
    await site.chain.mine()
    async with site.node(accounts=1, window=2) as node:
        second = await pay(node, "second")
        await site.settle(second)
        assert second.transaction.state is State.CONFIRMED
    await site.audit(["first", "second"], foreign=[theirs])
