"""What can be asked for: every transaction type, contracts, and what reverts."""

from typing import Any

import pytest

from nonchalant.chain.evm.keccak import keccak
from nonchalant.errors import BadRequest
from nonchalant.model import Fees
from nonchalant.words import State
from tests.anvil import CHAIN_ID
from tests.e2e.ledger import recipient
from tests.e2e.site import ALICE, ETHER, GWEI, REVERT, Site, pay

ANSWERS_42 = bytes.fromhex("602a60005260206000f3")
DEPLOYS_IT = bytes.fromhex("600a600c600039600a6000f3") + ANSWERS_42
# CALLVALUE JUMPI(13) SELFBALANCE JUMPI(13) REVERT; 13: STOP
NEEDS_A_BALANCE = bytes.fromhex("34600d5747600d5760006000fd5b00")
# Reverts with Closed(66): MSTORE(0, selector << 224), MSTORE(4, 66), REVERT(0, 36)
CLOSED = bytes.fromhex("63") + keccak(b"Closed(uint64)")[:4] + bytes.fromhex("60e01b5f52604260045260245ffd")
FOR_EVER = bytes.fromhex("5b5f56")  # JUMPDEST PUSH0 JUMP
ABI = [{"type": "error", "name": "Closed", "inputs": [{"name": "until", "type": "uint64"}]}]
ENTRY = {"address": "0x" + "22" * 20, "storage_keys": ["0x" + "00" * 32]}


@pytest.mark.parametrize(
    ("wish", "kind"),
    [
        ({}, "0x2"),
        ({"fees": "fast"}, "0x2"),
        ({"fees": Fees(40 * GWEI, GWEI)}, "0x2"),
        ({"access_list": [ENTRY]}, "0x2"),
        ({"fees": Fees(40 * GWEI)}, "0x0"),
        ({"fees": Fees(40 * GWEI), "access_list": [ENTRY]}, "0x1"),
    ],
    ids=["priced by us", "fast", "priced by the user", "access list", "legacy", "legacy with access list"],
)
async def test_every_transaction_type_is_executed_as_asked(site: Site, wish: dict[str, object], kind: str) -> None:
    async with site.node(accounts=1) as node:
        handle = await pay(node, "typed", data="0x1234", **wish)
        await site.settle(handle)
        assert handle.transaction.state is State.CONFIRMED
        found = await site.chain.rpc("eth_getTransactionByHash", handle.transaction.hash)
    assert found["type"] == kind
    assert found["input"] == "0x1234"
    listed = [(entry["address"], entry["storageKeys"]) for entry in found.get("accessList", [])]
    assert listed == ([(ENTRY["address"], ENTRY["storage_keys"])] if "access_list" in wish else [])
    await site.audit(["typed"])


async def test_a_contract_is_deployed_and_its_address_told(site: Site) -> None:
    async with site.node(accounts=1) as node:
        handle = await node.send(chain_id=CHAIN_ID, sender=ALICE, data=DEPLOYS_IT)
        await site.settle(handle)
        receipt = handle.transaction.receipt
        assert handle.transaction.state is State.CONFIRMED
        assert receipt is not None
        assert await site.chain.rpc("eth_getCode", receipt.contract, "latest") == "0x" + ANSWERS_42.hex()


@pytest.mark.parametrize(
    ("wish", "least"),
    [
        ({}, 21_000),
        ({"data": "0x" + "ff00" * 500}, 46_000),
        ({"access_list": [ENTRY]}, 25_300),
        ({"to": None, "data": "0x" + "00" * 33}, 53_136),
    ],
    ids=["transfer", "data", "access list", "contract"],
)
async def test_with_the_least_gas_it_is_executed_and_with_less_it_is_refused(
    site: Site, wish: dict[str, Any], least: int
) -> None:
    """Anvil takes what has less, and never executes it: everything behind it would wait."""
    wish = {"chain_id": CHAIN_ID, "sender": ALICE, "to": recipient("least")} | wish
    async with site.node(accounts=1) as node:
        with pytest.raises(BadRequest, match=f"gas.* {least}"):
            await node.send(**wish, gas=least - 1)
        handle, after = await node.send(**wish, gas=least), await pay(node, "after")
        await site.settle(handle, after)
    assert (handle.transaction.state, after.transaction.state) == (State.CONFIRMED, State.CONFIRMED)


async def test_what_would_revert_fails_and_spends_no_nonce(site: Site) -> None:
    await site.chain.set_code(recipient("reverts"), REVERT)
    async with site.node(accounts=1) as node:
        handle = await pay(node, "reverts")
        await site.settle(handle)
        assert handle.transaction.state is State.FAILED
        assert "revert" in (handle.transaction.failure or "")
        assert handle.transaction.nonce is None
        after = await pay(node, "after")
        await site.settle(after)
        assert (after.transaction.state, after.transaction.nonce) == (State.CONFIRMED, 0)
    assert await site.count(tag="pending") == 1


async def test_what_reverts_with_gas_named_is_called_reverted(site: Site) -> None:
    await site.chain.set_code(recipient("reverts"), REVERT)
    async with site.node(accounts=1) as node:
        handle = await pay(node, "reverts", gas=100_000)
        await site.settle(handle)
        receipt = handle.transaction.receipt
        assert handle.transaction.state is State.REVERTED
        assert receipt is not None
        assert not receipt.succeeded
        assert receipt.cost > 0
    assert (await site.count(), await site.paid("reverts")) == (1, 0)


async def test_a_custom_error_is_told_in_the_words_of_the_abi(site: Site) -> None:
    await site.chain.set_code(recipient("closed"), CLOSED)
    async with site.node(accounts=1) as node:
        handles = [await pay(node, "closed", gas=100_000, abi=ABI)]
        handles.append(await node.send(chain_id=CHAIN_ID, sender=ALICE, to=recipient("closed"), abi=ABI))
        handles.append(await node.send(chain_id=CHAIN_ID, sender=ALICE, to=recipient("closed"), gas=100_000))
        await site.settle(*handles)
        events = [event for event in await node.store.history(handles[0].id) if event.kind == "tx.reverted"]
    mined, estimated, without = (handle.transaction for handle in handles)
    told = "execution reverted: Closed(until: 66)"
    assert (mined.state, mined.failure) == (State.REVERTED, told)
    assert [event.data["reason"] for event in events] == [told]
    assert (estimated.state, estimated.failure) == (State.FAILED, f"it would revert: {told}")
    assert without.failure is not None
    assert without.failure.startswith("execution reverted: unknown error 0x")


async def test_what_must_be_simulated_and_would_revert_spends_no_nonce(site: Site) -> None:
    await site.chain.set_code(recipient("closed"), CLOSED)
    await site.chain.set_code(recipient("short"), FOR_EVER)
    async with site.node(accounts=1) as node:
        handle = await pay(node, "closed", gas=100_000, simulate=True, abi=ABI)
        short = await pay(node, "short", gas=30_000, simulate=True)
        fits = await pay(node, "fits", gas=50_000, simulate=True)
        await site.settle(handle, short, fits)
        attempts = (await node.store.attempts([fits.id]))[fits.id]
    assert (handle.transaction.state, handle.transaction.nonce) == (State.FAILED, None)
    assert "Closed(until: 66)" in (handle.transaction.failure or "")
    assert (short.transaction.state, short.transaction.nonce) == (State.FAILED, None)
    assert short.transaction.failure == "it would revert: execution reverted: out of gas, 30000 are not enough"
    assert (fits.transaction.state, fits.transaction.nonce) == (State.CONFIRMED, 0)
    assert [attempt.gas for attempt in attempts] == [50_000]


async def test_more_gas_than_a_block_has_spends_no_nonce(site: Site) -> None:
    async with site.node(accounts=1) as node:
        handle = await pay(node, "huge", gas=30_000_001)
        await site.settle(handle)
    assert (handle.transaction.state, handle.transaction.nonce) == (State.FAILED, None)
    assert handle.transaction.failure == "it takes 30000001 gas, and a block of this chain has room for 30000000"
    assert await site.count(tag="pending") == 0


async def test_what_reverts_only_until_an_earlier_one_has_run_waits_for_it(site: Site) -> None:
    """As an approval and what rests on it: the contract reverts while it holds nothing, and is paid first."""
    await site.chain.set_code(recipient("vault"), NEEDS_A_BALANCE)
    async with site.node(accounts=1) as node:
        first = await pay(node, "vault", value=5, gas=60_000)
        call = await node.send(chain_id=CHAIN_ID, sender=ALICE, to=recipient("vault"))
        await site.settle(first, call)
        assert [first.transaction.state, call.transaction.state] == [State.CONFIRMED, State.CONFIRMED]


async def test_ether_and_data_arrive_exactly(site: Site) -> None:
    async with site.node(accounts=1) as node:
        handle = await pay(node, "much", value=str(3 * ETHER + 7), data=b"\x00\xff")
        await site.settle(handle)
        found = await site.chain.rpc("eth_getTransactionByHash", handle.transaction.hash)
    assert (int(found["value"], 16), found["input"]) == (3 * ETHER + 7, "0x00ff")
    assert await site.paid("much") == 3 * ETHER + 7
