"""Bytes that somebody else signed are read back, and believed only for what they are."""

from __future__ import annotations

import pytest
from eth_account import Account as EthAccount
from hypothesis import given
from hypothesis import strategies as st

from nonchalant.chain.evm.decoding import unrlp
from nonchalant.chain.evm.encoding import CURVE_ORDER, rlp
from nonchalant.chain.evm.endpoints import EvmChain
from nonchalant.errors import Unencodable
from nonchalant.model import Draft, Fees, Payload
from nonchalant.sim import wire
from nonchalant.words import LaneKey
from tests.anvil import ADDRESSES, KEYS

GWEI = 10**9
ALICE, BOB = ADDRESSES[:2]
CHAIN = EvmChain(5, [])
COMMON = {"nonce": 3, "gas": 60_000, "to": "0x" + "11" * 20, "value": 7, "data": b"\x01\x02", "chainId": 5}
PRICES = {"maxFeePerGas": 30 * GWEI, "maxPriorityFeePerGas": 2 * GWEI}
ACCESS = {"accessList": [{"address": "0x" + "22" * 20, "storageKeys": ["0x" + "03" * 32]}]}


@pytest.mark.parametrize(
    ("fields", "fees"),
    [
        ({"gasPrice": 20 * GWEI}, Fees(20 * GWEI)),
        ({"type": 1, "gasPrice": 20 * GWEI, **ACCESS}, Fees(20 * GWEI)),
        ({"type": 2, **PRICES}, Fees(30 * GWEI, 2 * GWEI)),
        ({"type": 2, **PRICES, **ACCESS}, Fees(30 * GWEI, 2 * GWEI)),
    ],
)
def test_who_signed_and_for_which_nonce_is_read_from_every_type_that_we_send(fields, fees):
    signed = EthAccount.sign_transaction({**COMMON, **fields}, KEYS[0])
    read = CHAIN.recognise(bytes(signed.raw_transaction))
    assert (read.sender, read.chain_id, read.nonce, read.gas) == (ALICE, 5, 3, 60_000)
    assert read.hash == "0x" + signed.hash.hex().removeprefix("0x")
    assert read.fees == fees


def test_a_signature_for_any_chain_names_none():
    wanted = {name: value for name, value in COMMON.items() if name != "chainId"} | {"gasPrice": GWEI}
    assert CHAIN.recognise(bytes(EthAccount.sign_transaction(wanted, KEYS[0]).raw_transaction)).chain_id is None


def test_another_nonce_under_the_same_signature_is_another_signer():
    raw = bytes(EthAccount.sign_transaction({**COMMON, "type": 2, **PRICES}, KEYS[0]).raw_transaction)
    fields = unrlp(raw[1:])
    assert isinstance(fields, list)
    fields[1] = b"\x04"
    read = CHAIN.recognise(raw[:1] + rlp(fields))
    assert read.nonce == 4
    assert read.sender != ALICE


def test_the_other_half_of_the_curve_is_refused():
    raw = bytes(EthAccount.sign_transaction({**COMMON, "type": 2, **PRICES}, KEYS[0]).raw_transaction)
    fields = unrlp(raw[1:])
    assert isinstance(fields, list)
    parity, s = fields[-3], fields[-1]
    assert isinstance(s, bytes)
    fields[-3] = b"" if parity else b"\x01"
    fields[-1] = (CURVE_ORDER - int.from_bytes(s, "big")).to_bytes(32, "big")
    with pytest.raises(Unencodable, match="high s"):
        CHAIN.recognise(raw[:1] + rlp(fields))


@given(st.binary(max_size=300))
def test_bytes_that_are_no_transaction_are_refused_in_words(raw):
    for chain in (CHAIN.recognise, wire.recognise):
        with pytest.raises(Unencodable):
            chain(raw)


def test_lists_in_lists_do_not_exhaust_the_stack():
    nested: object = []
    for _ in range(200):
        nested = [nested]
    with pytest.raises(Unencodable, match="deeper"):
        CHAIN.recognise(rlp(nested))


def test_the_simulated_chain_reads_its_own_bytes_and_believes_nobody():
    lane = LaneKey(7, ALICE)
    draft = Draft(lane=lane, nonce=4, payload=Payload(to=BOB), gas=21_000, fees=Fees(9, 1))
    sealed = wire.seal(draft, wire.signature(ALICE, wire.digest(draft)))
    read = wire.recognise(sealed.raw)
    assert (read.hash, read.sender, read.chain_id, read.nonce, read.fees) == (sealed.hash, ALICE, 7, 4, Fees(9, 1))
    with pytest.raises(Unencodable, match="signature"):
        wire.recognise(sealed.raw[:-1] + b"\x01")
