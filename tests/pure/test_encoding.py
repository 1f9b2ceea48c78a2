"""Transactions as bytes, against eth-account as the oracle."""

from __future__ import annotations

import random

import pytest
from coincurve import PrivateKey
from eth_account import Account
from eth_utils import to_checksum_address
from hypothesis import given
from hypothesis import strategies as st

from nonchalant.chain.evm.addresses import address_of, checksum, normalise_address
from nonchalant.chain.evm.encoding import CURVE_ORDER, HIGHEST_CHAIN_ID, digest, rlp, seal
from nonchalant.chain.evm.endpoints import EvmChain
from nonchalant.errors import SignerFailed, Unencodable
from nonchalant.model import Draft, Fees, Payload
from nonchalant.values import replace
from nonchalant.words import LaneKey

CASES = 3_000
KEY = PrivateKey(bytes.fromhex("ac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80"))
OWNER = "0xf39fd6e51aad88f6f4ce6ab8827279cfffb92266"
SAMPLE = Draft(
    lane=LaneKey(31337, OWNER),
    nonce=7,
    payload=Payload(to="0x70997970c51812dc3a010c7d01b50e0d17dc79c8", value=10**18),
    gas=21_000,
    fees=Fees(2 * 10**9, 10**9),
)


def signed(draft: Draft, key: PrivateKey = KEY) -> bytes:
    return key.sign_recoverable(digest(draft), hasher=None)


def amount(chance: random.Random, bits: int) -> int:
    """Any size is as likely as any other, the edges more so."""
    return chance.choice([0, 1, 0x7F, 0x80, 2**bits - 1, *(chance.getrandbits(chance.randrange(1, bits + 1)),) * 5])


def address(chance: random.Random) -> str:
    return "0x" + chance.choice([chance.randbytes(20), bytes(19) + b"\x01", bytes(20)]).hex()


def draft(chance: random.Random, sender: str) -> Draft:
    access_list = tuple(
        (address(chance), tuple("0x" + chance.randbytes(32).hex() for _ in range(chance.randrange(4))))
        for _ in range(chance.choice([0, 0, 1, 3]))
    )
    max_fee = amount(chance, 256)
    fees = Fees(max_fee) if chance.random() < 0.5 else Fees(max_fee, min(max_fee, amount(chance, 256)))
    return Draft(
        lane=LaneKey(chance.choice([1, 10, 31337, 2**32, amount(chance, 53) or 1]), sender),
        nonce=min(amount(chance, 64), 2**64 - 2),
        payload=Payload(
            to=chance.choice([None, address(chance), address(chance)]),
            value=amount(chance, 256),
            data=chance.randbytes(
                chance.choice([0, 0, 1, 4, 55, 56, 68, 255, 256, 70_000 if chance.random() < 0.02 else 300])
            ),
            access_list=access_list,
        ),
        gas=amount(chance, 64),
        fees=fees,
    )


def as_eth_account_wants_it(draft: Draft) -> dict[str, object]:
    payload, fees = draft.payload, draft.fees
    wanted: dict[str, object] = {
        "chainId": draft.lane.chain_id,
        "nonce": draft.nonce,
        "gas": draft.gas,
        "to": "" if payload.to is None else checksum(payload.to),
        "value": payload.value,
        "data": payload.data,
    }
    access_list = [{"address": checksum(each), "storageKeys": keys} for each, keys in payload.access_list]
    if fees.priority is not None:
        prices = {"maxFeePerGas": fees.max_fee, "maxPriorityFeePerGas": fees.priority}
        return wanted | prices | {"type": 2, "accessList": access_list}
    if access_list:
        return wanted | {"type": 1, "gasPrice": fees.max_fee, "accessList": access_list}
    return wanted | {"gasPrice": fees.max_fee}


def test_bytes_and_hashes_equal_those_of_eth_account():
    chance = random.Random(1559)
    keys = [PrivateKey(chance.randbytes(32)) for _ in range(20)]
    types = set()
    for case in range(CASES):
        key = keys[case % len(keys)]
        sample = draft(chance, address_of(key.public_key.format(compressed=False)))
        ours = seal(sample, signed(sample, key))
        theirs = Account.sign_transaction(as_eth_account_wants_it(sample), key.secret)
        assert ours.raw == bytes(theirs.raw_transaction), sample
        assert ours.hash == "0x" + bytes(theirs.hash).hex(), sample
        types.add(ours.raw[0] if ours.raw[0] < 3 else 0)
    assert types == {0, 1, 2}


@given(st.recursive(st.binary(max_size=300), lambda inner: st.lists(inner, max_size=5), max_leaves=12))
def test_rlp_equals_the_reference(item):
    import rlp as reference

    assert rlp(item) == reference.encode(item)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"nonce": 2**64 - 1}, "nonce"),
        ({"nonce": -1}, "nonce"),
        ({"gas": 2**64}, "gas"),
        ({"fees": Fees(2**256)}, "fee"),
        ({"fees": Fees(2**256, 1)}, "fee"),
        ({"fees": Fees(5, 2**256)}, "priority fee"),
        ({"fees": Fees(5, -1)}, "priority fee"),
        ({"fees": Fees(5, 6)}, "above the maximum"),
        ({"payload": Payload(to=None, value=2**256)}, "value"),
        ({"payload": Payload(to=None, value=-1)}, "value"),
        ({"payload": Payload(to="0x1234")}, "to"),
        ({"payload": Payload(to="0x" + "zz" * 20)}, "to"),
        ({"payload": Payload(to=None, access_list=(("0x12", ()),))}, "access list address"),
        ({"payload": Payload(to=None, access_list=((OWNER, ("0x12",)),))}, "storage key"),
        ({"lane": LaneKey(HIGHEST_CHAIN_ID + 1, OWNER)}, "chain id"),
    ],
)
def test_what_does_not_fit_cannot_be_encoded_and_says_why(change, named):
    with pytest.raises(Unencodable, match=named):
        digest(replace(SAMPLE, **change))


def test_the_largest_amounts_that_fit_are_encoded():
    largest = replace(
        SAMPLE,
        lane=LaneKey(HIGHEST_CHAIN_ID, OWNER),
        nonce=2**64 - 2,
        gas=2**64 - 1,
        fees=Fees(2**256 - 1),
        payload=Payload(to=None, value=2**256 - 1),
    )
    assert seal(largest, signed(largest)).raw


def test_a_signature_of_another_key_is_refused():
    other = PrivateKey(b"\x01" * 32)
    with pytest.raises(SignerFailed, match="signed as"):
        seal(SAMPLE, signed(SAMPLE, other))


def test_a_signature_of_another_draft_is_refused():
    with pytest.raises(SignerFailed):
        seal(replace(SAMPLE, nonce=8), signed(SAMPLE))


def test_a_high_s_is_refused_although_it_verifies():
    signature = signed(SAMPLE)
    high_s = CURVE_ORDER - int.from_bytes(signature[32:64], "big")
    with pytest.raises(SignerFailed, match="high s"):
        seal(SAMPLE, signature[:32] + high_s.to_bytes(32, "big") + bytes([signature[64] ^ 1]))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda good: b"",
        lambda good: good[:64],
        lambda good: good + b"\0",
        lambda good: good[:64] + bytes([good[64] + 27]),
        lambda good: good[:64] + bytes([good[64] ^ 1]),
        lambda good: bytes(32) + good[32:],
        lambda good: good[:32] + bytes(32) + good[64:],
        lambda good: b"\xff" * 32 + good[32:],
        lambda good: bytes(65),
    ],
)
def test_what_is_no_signature_of_the_account_is_refused(spoil):
    with pytest.raises(SignerFailed):
        seal(SAMPLE, spoil(signed(SAMPLE)))


def test_what_is_not_checked_is_the_same_bytes_and_must_still_be_canonical():
    assert seal(SAMPLE, signed(SAMPLE), check=False) == seal(SAMPLE, signed(SAMPLE))
    with pytest.raises(SignerFailed, match="65 bytes"):
        seal(SAMPLE, b"", check=False)


def test_a_chain_signs_nothing_for_another_chain():
    chain = EvmChain(1, [])
    with pytest.raises(Unencodable, match="chain 31337"):
        chain.digest(SAMPLE)
    with pytest.raises(Unencodable, match="chain 31337"):
        chain.seal(SAMPLE, signed(SAMPLE))


# addresses

CHECKSUMMED = [  # the examples of EIP-55
    "0x52908400098527886E0F7030069857D2E4169EE7",
    "0x8617E340B3D01FA5F11F306F4090FD50E238070D",
    "0xde709f2102306220921060314715629080e2fb77",
    "0x27b1fdb04752bbc536007a920d24acb045561c26",
    "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed",
    "0xfB6916095ca1df60bB79Ce92cE3Ea74c37c5d359",
    "0xdbF03B407c01E7cD3CBea99509d93f8DDDC8C6FB",
    "0xD1220A0cf47c7B9Be7A2E6BA89F429762e7b9aDb",
]


@pytest.mark.parametrize("text", CHECKSUMMED)
def test_the_examples_of_eip_55_are_understood(text):
    assert checksum(text.lower()) == text
    assert normalise_address(text) == text.lower()
    assert normalise_address("0x" + text[2:].upper()) == text.lower()
    assert normalise_address(text.lower()) == text.lower()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAeD", "checksum"),
        ("5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed", "0x"),
        ("0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAe", "40 hex digits"),
        ("0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAedd", "40 hex digits"),
        ("0xzzAeb6053F3E94C9b9A09f33669435E7Ef1BeAed", "hex digits only"),
        ("0x" + " " * 40, "hex digits only"),
        ("0x" + "٣" * 40, "hex digits only"),
        ("", "0x"),
    ],
)
def test_what_is_no_address_is_refused_with_the_reason(text, complaint):
    with pytest.raises(ValueError, match=complaint):
        normalise_address(text)


@given(st.binary(min_size=20, max_size=20))
def test_a_checksummed_address_is_what_others_make_of_it_and_comes_back(raw):
    assert checksum("0x" + raw.hex()) == to_checksum_address(raw)
    assert normalise_address(checksum("0x" + raw.hex())) == "0x" + raw.hex()
