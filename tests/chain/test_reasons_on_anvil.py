"""Why a payload reverts, and what a layer 2 charges for its bytes, asked of a real node."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

from nonchalant.chain.evm import encoding, publishing
from nonchalant.chain.evm.endpoints import EvmEndpoint
from nonchalant.chain.evm.reverts import parse_abi
from nonchalant.errors import NodeRefused, Unreachable
from nonchalant.model import BlockRef, Draft, Fees, Payload
from nonchalant.values import replace
from nonchalant.words import LaneKey
from tests.anvil import ADDRESSES, CHAIN_ID, Anvil

ALICE, BOB = ADDRESSES[0], ADDRESSES[1]
TARGET = "0x" + "ee" * 20
GAS = 100_000


def words(*numbers: int) -> bytes:
    return b"".join(number.to_bytes(32, "big") for number in numbers)


def reverting(data: bytes) -> bytes:
    """Code that copies what stands behind it, and reverts with that."""
    size = len(data).to_bytes(2, "big").hex()
    return bytes.fromhex(f"61{size}600e60003961{size}6000fd") + data


SHORT = bytes.fromhex("cf479181") + words(7, 9)  # InsufficientBalance(7, 9)
REASON = bytes.fromhex("08c379a0") + words(32, 9) + b"not yours".ljust(32, b"\0")  # Error("not yours")
PANIC = bytes.fromhex("4e487b71") + words(0x12)
# Runs once: reverts with nothing if storage slot 0 is set, else sets it.
ONCE = bytes.fromhex("600054600b576001600055005b60006000fd")
LOOPS = bytes.fromhex("5b600056")
ABI = json.dumps(
    parse_abi(
        [
            {
                "type": "error",
                "name": "InsufficientBalance",
                "inputs": [{"name": "available", "type": "uint256"}, {"name": "required", "type": "uint256"}],
            }
        ]
    )
)
IN_WORDS = "execution reverted: InsufficientBalance(available: 7, required: 9)"


@pytest.fixture
async def endpoint(node: Anvil) -> AsyncIterator[EvmEndpoint]:
    made = EvmEndpoint(CHAIN_ID, node.url, "anvil", timeout=10, finality_tag=True, charges_for_data=True)
    yield made
    await made.close()


async def execute(node: Anvil, *senders: str, gas: int = GAS) -> None:
    """One call of the target from each, all in one block."""
    for sender in senders:
        await node.send_as(sender, to=TARGET, gas=hex(gas))
    await node.mine()


# why


async def test_an_estimate_tells_a_custom_error_in_the_words_of_the_abi(node, endpoint):
    await node.set_code(TARGET, reverting(SHORT))
    head = (await endpoint.view()).head
    with pytest.raises(NodeRefused) as told:
        await endpoint.estimate(ALICE, Payload(to=TARGET, abi=ABI), head)
    assert told.value.message == IN_WORDS
    with pytest.raises(NodeRefused, match="unknown error 0xcf479181 with data 0x"):
        await endpoint.estimate(ALICE, Payload(to=TARGET), head)


@pytest.mark.parametrize(
    ("data", "abi", "told"),
    [
        (REASON, None, 'execution reverted: "not yours"'),
        (PANIC, None, "execution reverted: division or modulo by zero (panic 0x12)"),
        (SHORT, ABI, IN_WORDS),
        (b"\x01\x02\x03\x04", ABI, "execution reverted: unknown error 0x01020304"),
    ],
)
async def test_a_replay_says_why_a_mined_payload_reverted(node, endpoint, data, abi, told):
    await node.set_code(TARGET, reverting(data))
    await execute(node, ALICE)
    head = (await endpoint.view()).head
    assert await endpoint.replay(ALICE, Payload(to=TARGET, abi=abi), GAS, head) == told


async def test_a_replay_of_a_revert_without_a_reason_says_that_it_reverted(node, endpoint):
    await node.set_code(TARGET, reverting(b""))
    await execute(node, ALICE)
    told = await endpoint.replay(ALICE, Payload(to=TARGET), GAS, (await endpoint.view()).head)
    assert told is not None
    assert "revert" in told


async def test_a_replay_runs_with_the_gas_that_was_signed(node, endpoint):
    await node.set_code(TARGET, LOOPS)
    await execute(node, ALICE, gas=40_000)
    head = (await endpoint.view()).head
    told = await endpoint.replay(ALICE, Payload(to=TARGET), 40_000, head)
    assert told is not None
    assert "gas" in told.lower()


@pytest.mark.parametrize("gas", [40_000, None])
async def test_an_estimate_that_takes_all_gas_there_is_would_revert(node, endpoint, gas):
    await node.set_code(TARGET, LOOPS)
    head = (await endpoint.view()).head
    with pytest.raises(NodeRefused, match=r"execution reverted: out of gas, (40000|30000000) are not enough"):
        await endpoint.estimate(ALICE, Payload(to=TARGET, gas=gas), head)


async def test_a_replay_runs_on_the_block_before_and_says_nothing_where_it_succeeds(node, endpoint):
    await node.set_code(TARGET, ONCE)
    await node.mine()
    await execute(node, ALICE, BOB)
    head = (await endpoint.view()).head
    # Whoever came second reverted in its block; on the block before, nothing had run yet.
    assert await endpoint.replay(BOB, Payload(to=TARGET), GAS, head) is None
    await execute(node, BOB)
    later = (await endpoint.view()).head
    assert await endpoint.replay(BOB, Payload(to=TARGET), GAS, later) is not None


async def test_a_replay_is_believed_only_from_who_has_the_block(node, endpoint):
    await node.set_code(TARGET, reverting(REASON))
    await execute(node, ALICE)
    await node.mine()
    old = (await endpoint.view()).head
    await node.reorg(1)
    for block in (old, BlockRef(50, old.hash)):
        with pytest.raises(Unreachable):
            await endpoint.replay(ALICE, Payload(to=TARGET), GAS, block)


# the fee for data

# Code of getL1Fee(bytes): 1000 wei for each byte, and the first byte itself; it reverts for any other call.
ORACLE = bytes.fromhex("5f3560e01c6349948e0e14601157 5f5ffd 5b 602435 6103e8 02 604435 60f81c 01 5f52 60205ff3")
DRAFT = Draft(
    lane=LaneKey(CHAIN_ID, ALICE), nonce=7, payload=Payload(to=BOB, value=5), gas=21_000, fees=Fees(10**10, 10**9)
)


async def test_the_fee_for_data_is_the_oracles_for_the_transaction_without_its_signature(node, endpoint):
    await node.set_code(publishing.ORACLE, ORACLE)
    drafts = [
        DRAFT,
        replace(DRAFT, fees=Fees(10**10)),
        replace(DRAFT, payload=Payload(to=BOB, data=bytes(range(256)) * 8)),
        replace(DRAFT, payload=Payload(to=BOB, value=2**256)),  # never published: it cannot be encoded
    ]
    encoded = [encoding.unsigned(draft) for draft in drafts[:3]]
    assert [raw[0] for raw in encoded] == [2, 0xE6, 2]
    assert await endpoint.data_fees(drafts) == [*(1_000 * len(raw) + raw[0] for raw in encoded), 0]
    assert await endpoint.data_fees([]) == []


async def test_a_chain_without_the_oracle_is_an_error_that_names_the_remedy(endpoint):
    with pytest.raises(Unreachable, match="take data_fee out of its settings"):
        await endpoint.data_fees([DRAFT])


async def test_an_endpoint_of_a_chain_that_does_not_charge_is_not_asked(node):
    plain = EvmEndpoint(CHAIN_ID, "http://127.0.0.1:1", "nowhere", timeout=1, finality_tag=True)
    assert await plain.data_fees([DRAFT, DRAFT]) == [0, 0]
    await plain.close()
