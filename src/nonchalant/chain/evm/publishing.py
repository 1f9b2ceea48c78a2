"""What an OP-stack chain charges beside gas: publishing a transaction on the chain below, priced by its bytes."""

from __future__ import annotations

from typing import Final

from nonchalant.chain.evm import encoding, wire
from nonchalant.chain.evm.rpc import Call
from nonchalant.model import Draft
from nonchalant.words import Wei

ORACLE: Final = (
    "0x420000000000000000000000000000000000000f"  # the GasPriceOracle, at the same place on every such chain
)
GET_L1_FEE: Final = bytes.fromhex("49948e0e")  # getL1Fee(bytes), of the transaction without its signature


def question(draft: Draft) -> Call:
    """The call whose answer `fee` reads; `Unencodable` if the draft does not fit the chain's format."""
    transaction = encoding.unsigned(draft)
    words = (32).to_bytes(32, "big") + len(transaction).to_bytes(32, "big")
    padding = bytes(-len(transaction) % 32)
    data = GET_L1_FEE + words + transaction + padding
    return Call("eth_call", ({"to": ORACLE, "data": "0x" + data.hex()}, "latest"))


def fee(raw: bytes) -> Wei:
    """ValueError unless it is one number; a chain without the oracle answers with nothing."""
    return wire.word(raw)
