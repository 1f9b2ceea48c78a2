"""Transactions are read back from their bytes, by the encoding that wrote them."""

from __future__ import annotations

import random

from coincurve import PrivateKey
from eth_account import Account as EthAccount
from hypothesis import given
from hypothesis import strategies as st

from nonchalant.chain.evm import encoding
from nonchalant.chain.evm.decoding import RawTransaction, decode, unrlp
from nonchalant.model import Draft, Fees, Payload
from nonchalant.words import LaneKey
from tests.anvil import KEYS
from tests.chain.proxied import ALICE, BOB, GWEI, transfer


@given(st.integers(0, 2**32))
def test_what_our_encoder_writes_is_read_back(seed):
    chance = random.Random(seed)
    key = PrivateKey(chance.randbytes(32))
    sender = EthAccount.from_key(key.secret).address.lower()
    max_fee = chance.getrandbits(chance.randrange(1, 90))
    draft = Draft(
        lane=LaneKey(chance.choice([1, 31337, 2**40]), sender),
        nonce=chance.choice([0, 1, 127, 128, chance.getrandbits(60)]),
        payload=Payload(
            to=chance.choice([None, BOB]),
            value=chance.getrandbits(chance.randrange(1, 128)),
            data=chance.randbytes(chance.choice([0, 1, 55, 56, 300])),
            access_list=chance.choice([(), ((BOB, ("0x" + "01" * 32,)),)]),
        ),
        gas=chance.getrandbits(30),
        fees=chance.choice([Fees(max_fee), Fees(max_fee, chance.randrange(max_fee + 1))]),
    )
    sealed = encoding.seal(draft, key.sign_recoverable(encoding.digest(draft), hasher=None))
    assert decode(sealed.raw) == RawTransaction(
        kind=2 if draft.fees.priority is not None else 1 if draft.payload.access_list else 0,
        hash=sealed.hash,
        sender=sender,
        chain_id=draft.lane.chain_id,
        nonce=draft.nonce,
        max_fee=max_fee,
        priority=max_fee if draft.fees.priority is None else draft.fees.priority,
        gas=draft.gas,
        to=draft.payload.to,
        value=draft.payload.value,
        data=draft.payload.data,
    )


def test_a_signature_for_any_chain_is_read_too():
    wanted = {"nonce": 3, "gasPrice": GWEI, "gas": 21_000, "to": "0x" + "11" * 20, "value": 1, "data": b""}
    signed = EthAccount.sign_transaction(wanted, KEYS[0])
    read = decode(bytes(signed.raw_transaction))
    assert (read.sender, read.chain_id, read.nonce) == (ALICE, None, 3)


@given(st.binary(max_size=200) | st.binary(max_size=60).map(lambda tail: transfer().raw[:-60] + tail))
def test_bytes_that_are_no_transaction_are_a_value_error(raw):
    for read in (decode, unrlp):
        try:
            read(raw)
        except ValueError:
            continue
