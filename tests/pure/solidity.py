"""Errors as contracts raise them, and the ABI that tells of them."""

from __future__ import annotations

from eth_abi import encode
from hypothesis import strategies as st

from nonchalant.chain.evm.keccak import keccak

ALICE = "0xf39fd6e51aad88f6f4ce6ab8827279cfffb92266"
BALANCE = {
    "type": "error",
    "name": "InsufficientBalance",
    "inputs": [{"name": "available", "type": "uint256"}, {"name": "", "type": "address"}],
}


def selector(signature: str) -> bytes:
    return keccak(signature.encode())[:4]


def error(signature: str, *values: object) -> bytes:
    types = signature[signature.index("(") + 1 : -1]
    return selector(signature) + encode(types.split(",") if types else [], values)


def word(number: int) -> bytes:
    return number.to_bytes(32, "big")


def abi(*types: str, name: str = "Bad") -> list[dict[str, object]]:
    return [{"type": "error", "name": name, "inputs": [{"name": "", "type": each} for each in types]}]


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from(["error", "tuple", "uint256", "tuple[]", "x", "", "a b"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["type", "name", "inputs", "components"]), inner)
    ),
    max_leaves=12,
)
