"""Somebody signs for our account by himself, with a real wallet, beside us."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from eth_account import Account as EthAccount

from nonchalant import BadRequest, UnknownAccount, WishRefused
from nonchalant.app import Nonchalant
from nonchalant.steering import LaneHandle
from nonchalant.words import State
from tests import anvil
from tests.e2e import ledger
from tests.e2e.ledger import recipient
from tests.e2e.rig import until
from tests.e2e.site import ALICE, GWEI, Site, pay

PRICES: list[dict[str, Any]] = [
    {"gasPrice": 20 * GWEI},
    {"type": 1, "gasPrice": 20 * GWEI, "accessList": []},
    {"type": 2, "maxFeePerGas": 20 * GWEI, "maxPriorityFeePerGas": GWEI},
]


def lane_of(node: Nonchalant) -> LaneHandle:
    return node.lane(anvil.CHAIN_ID, ALICE)


def sign(nonce: int, key: str, *, wallet: str = anvil.KEYS[0], **prices: Any) -> Any:
    wanted = {
        "chainId": anvil.CHAIN_ID,
        "nonce": nonce,
        "to": bytes.fromhex(recipient(key)[2:]),
        "value": 1,
        "gas": 21_000,
    }
    return EthAccount.sign_transaction({**wanted, **(prices or PRICES[2])}, wallet)


async def final(site: Site, below: int) -> None:
    """Until every nonce below is final here."""

    def there() -> bool:
        return ledger.ask(site.store, "SELECT settled_below FROM lanes") == [(below,)]

    await until(there, f"{below} nonces final", tick=site.chain.mine, every=0.1)


@pytest.mark.parametrize("prices", PRICES, ids=["legacy", "2930", "1559"])
async def test_bytes_of_a_real_wallet_are_sent_and_mined_among_ours(site: Site, prices: dict[str, Any]) -> None:
    async with site.node(accounts=1) as node:
        before = await pay(node, "before")
        await site.become([before], State.SENT, mine=False)
        async with lane_of(node).reserve() as slot:
            assert slot.nonce == 1
            after = await pay(node, "after")
            await site.become([after], State.SENT, mine=False)
            signed = sign(slot.nonce, "outside", **prices)
            await slot.used(signed.hash, raw=signed.raw_transaction)
        await site.settle(before, after)
        await final(site, 3)
        assert [handle.transaction.nonce for handle in (before, after)] == [0, 2]
        assert await site.paid("outside") == 1
        kinds = [event.kind for event in await node.store.events_after(0, limit=1000)]
        assert "lane.foreign" not in kinds
        assert "lane.filled" not in kinds


async def test_bytes_that_the_node_forgot_are_sent_again(site: Site, hurried: None) -> None:
    async with site.node(accounts=1) as node:
        async with lane_of(node).reserve() as slot:
            signed = sign(slot.nonce, "outside")
            await slot.used(signed.hash, raw=signed.raw_transaction)
        outside = "0x" + bytes(signed.hash).hex()
        await until(lambda: site.chain.rpc("eth_getTransactionByHash", outside), "the node has it")
        await site.chain.drop_all()
        await until(lambda: site.chain.rpc("eth_getTransactionByHash", outside), "the node has it again")
        await final(site, 1)
    assert await site.paid("outside") == 1


async def test_a_holder_who_sends_it_himself_need_only_name_the_hash_or_nothing_at_all(site: Site) -> None:
    async with site.node(accounts=1) as node:
        async with lane_of(node).reserve() as slot:
            signed = sign(slot.nonce, "named")
            await slot.used("0x" + bytes(signed.hash).hex())
            await site.chain.rpc("eth_sendRawTransaction", "0x" + bytes(signed.raw_transaction).hex())
        await final(site, 1)
        async with lane_of(node).reserve() as slot:
            signed = sign(slot.nonce, "untold")
            await site.chain.rpc("eth_sendRawTransaction", "0x" + bytes(signed.raw_transaction).hex())
            await site.chain.mine()
            await site.seen(node)
        await final(site, 2)
        ours = await pay(node, "ours")
        await site.settle(ours)
        assert ours.transaction.nonce == 2
        kinds = [event.kind for event in await node.store.events_after(0, limit=1000)]
        assert "lane.foreign" not in kinds
    assert [await site.paid(key) for key in ("named", "untold", "ours")] == [1, 1, 1]


async def fail_inside(node: Nonchalant, *, after: str) -> Any:
    """Something goes wrong after it was `used`, or after it was `signed` and before anybody was told."""
    async with lane_of(node).reserve() as slot:
        assert slot.nonce == 0
        signed = sign(slot.nonce, "outside")
        if after == "used":
            await slot.used(signed.hash, signed.raw_transaction)
        error = ZeroDivisionError()
        error.add_note("0x" + bytes(signed.raw_transaction).hex())
        raise error


async def test_leaving_without_a_word_gives_the_nonce_back(site: Site) -> None:
    async with site.node(accounts=1) as node:
        async with lane_of(node).reserve() as slot:
            assert slot.nonce == 0
        async with lane_of(node).reserve() as slot:
            await slot.release()
            with pytest.raises(WishRefused) as caught:
                await slot.release()
            assert caught.value.code == "not_reserved"
        handle = await pay(node, "ours")
        await site.settle(handle)
        assert handle.transaction.nonce == 0


@pytest.mark.parametrize("after", ["used", "signed"])
async def test_an_error_gives_nothing_back_because_something_may_be_signed(site: Site, after: str) -> None:
    async with site.node(accounts=1) as node:
        with pytest.raises(ZeroDivisionError) as failed:
            await fail_inside(node, after=after)
        handle = await pay(node, "ours")
        await site.become([handle], State.SENT, mine=False)
        assert handle.transaction.nonce == 1
        if after == "signed":
            # Whoever has the bytes may still send them: the nonce was kept for that.
            await site.chain.rpc("eth_sendRawTransaction", failed.value.__notes__[0])
        await site.settle(handle)
    assert await site.paid("outside") == 1


async def test_a_late_holder_loses_to_a_filler_and_no_payment_has_his_nonce(site: Site) -> None:
    async with site.node(accounts=1) as node:
        async with lane_of(node).reserve(seconds=1) as slot:
            handle = await pay(node, "ours")
            await site.become([handle], State.SENT, mine=False)
            await asyncio.sleep(1.5)
            signed = sign(slot.nonce, "late")
            with pytest.raises(WishRefused) as caught:
                await slot.used(signed.hash, signed.raw_transaction)
            assert caught.value.code == "reservation_expired"
        await site.settle(handle)
        assert handle.transaction.nonce == 1
        deeds = {deed.nonce: deed for deed in await ledger.deeds(site.chain) if deed.sender == ALICE}
        assert deeds[0].does_nothing
    assert await site.paid("late") == 0


async def test_bytes_of_another_wallet_nonce_or_chain_are_refused(site: Site) -> None:
    async with site.node(accounts=1) as node, lane_of(node).reserve() as slot:
        theirs = sign(slot.nonce, "x", wallet=anvil.KEYS[1])
        later = sign(slot.nonce + 1, "x")
        anywhere = EthAccount.sign_transaction(
            {"nonce": slot.nonce, "to": b"x" * 20, "value": 1, "gas": 21_000, "gasPrice": GWEI}, anvil.KEYS[0]
        )
        good = sign(slot.nonce, "x")
        for signed in (theirs, later, anywhere):
            with pytest.raises(WishRefused) as caught:
                await slot.used(signed.hash, signed.raw_transaction)
            assert caught.value.code == "wrong_bytes"
        with pytest.raises(WishRefused) as caught:
            await slot.used(good.hash, b"no transaction")
        assert caught.value.code == "cannot_be_sent"
        with pytest.raises(BadRequest, match="hash"):
            await slot.used("0x12")
        await slot.used(good.hash, good.raw_transaction)
        await final(site, 1)


async def test_a_lane_is_one_of_the_settings(site: Site) -> None:
    async with site.node(accounts=1) as node:
        with pytest.raises(UnknownAccount):
            node.lane(anvil.CHAIN_ID, anvil.ADDRESSES[3])
        with pytest.raises(BadRequest, match="seconds"):
            async with lane_of(node).reserve(seconds=601):
                pass
        assert (await lane_of(node).show()).record.key.address == ALICE
