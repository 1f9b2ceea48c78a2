"""The stub believes who pays whom, so that it costs next to nothing, and only where it was told so."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nonchalant.chain.evm.decoding import decode
from nonchalant.chain.evm.encoding import rlp
from nonchalant.model import Fees
from nonchalant.testing.stub import Ledger, Refusal
from tests.anvil import ADDRESSES, CHAIN_ID
from tests.chain.proxied import ALICE, BOB, GWEI, transfer

CAROL = ADDRESSES[2]
PAYEE = bytes.fromhex(BOB[2:])


def believer() -> Ledger:
    """It was told that whatever BOB gets is CAROL's."""
    return Ledger(CHAIN_ID, payers={BOB: CAROL})


def test_whoever_is_known_to_pay_is_believed_to_have_signed() -> None:
    ledger, sent = believer(), transfer(nonce=3)
    assert ledger.send(sent.raw, 0) == sent.hash
    assert ledger.pooled[sent.hash] == replace(decode(sent.raw), sender=CAROL)


@pytest.mark.parametrize(
    ("payers", "fees"),
    [
        pytest.param({BOB: CAROL}, Fees(20 * GWEI), id="another type"),
        pytest.param({ALICE: CAROL}, Fees(20 * GWEI, GWEI), id="another payee"),
        pytest.param(None, Fees(20 * GWEI, GWEI), id="nothing is known"),
    ],
)
def test_of_anything_else_the_sender_is_who_signed(payers: dict[str, str] | None, fees: Fees) -> None:
    ledger, sent = Ledger(CHAIN_ID, payers=payers), transfer(fees=fees)
    ledger.send(sent.raw, 0)
    assert ledger.pooled[sent.hash].sender == ALICE


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param([CHAIN_ID, [1], GWEI, GWEI, 21_000, PAYEE, 5, b"", [], 0, 1, 1], id="a list for a nonce"),
        pytest.param([CHAIN_ID, 1, GWEI, GWEI, 21_000, [PAYEE], 5, b"", [], 0, 1, 1], id="a list for a payee"),
        pytest.param([CHAIN_ID, 1, GWEI, GWEI, 21_000, PAYEE, 5, b""], id="no signature"),
        pytest.param(b"twelve bytes", id="no list"),
    ],
)
def test_what_pays_and_is_no_transaction_is_refused(fields: list[object] | bytes) -> None:
    with pytest.raises(Refusal, match="invalid transaction"):
        believer().send(b"\x02" + rlp(fields), 0)


@given(st.binary(max_size=200) | st.binary(max_size=80).map(lambda tail: transfer().raw[:-80] + tail))
def test_whatever_bytes_come_are_taken_or_refused(raw: bytes) -> None:
    ledger = believer()
    try:
        hash = ledger.send(raw, 0)
    except Refusal:
        return
    assert list(ledger.pooled) == [hash]
