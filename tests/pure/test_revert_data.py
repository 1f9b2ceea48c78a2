"""Revert data is found wherever nodes put it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nonchalant.chain.evm.reverts import DATA_BYTES, revert_data
from tests.pure.solidity import error, json_values

DATA = error("Error(string)", "no")
HEX = "0x" + DATA.hex()
HASH = "0x" + "ab" * 32


@pytest.mark.parametrize(
    ("message", "data", "found"),
    [
        ("execution reverted: no", HEX, DATA),  # geth, erigon, nethermind, besu, anvil
        ("execution reverted", "0x", b""),
        ("execution reverted", HEX.upper().replace("0X", "0x"), DATA),
        ("VM execution error.", f"Reverted {HEX}", DATA),  # parity, openethereum
        ("VM execution error.", "Reverted 0x", b""),
        ("Internal JSON-RPC error.", {"code": 3, "message": "execution reverted", "data": HEX}, DATA),  # wallets
        ("reverted", {"data": {"data": HEX}}, DATA),
        ("Error: VM Exception", {"message": "no", "txHash": HASH, "data": HEX}, DATA),  # hardhat
        ("VM Exception", {"hash": HASH, "programCounter": 1, "result": HEX, "reason": "no"}, DATA),  # ganache 7
        ("VM Exception", {HASH: {"error": "revert", "return": HEX}, "stack": "…", "name": "RuntimeError"}, DATA),
        ("failed", {"originalError": {"code": 3, "data": HEX}}, DATA),
        (f"Reverted {HEX}", None, DATA),
        (f"execution reverted: {HEX}", None, DATA),
        (f"reverted with an unrecognized custom error (return data: {HEX})", None, DATA),
        (f'upstream: {{"code":3,"message":"execution reverted","data":"{HEX}"}}', None, DATA),
        (f'upstream: {{\\"code\\":3,\\"data\\": \\"{HEX}\\"}}', {"status": 500}, DATA),
        ("execution reverted: custom error 0x12345678", None, bytes.fromhex("12345678")),
        ("execution reverted: 0xdeadbeef is not the owner", None, None),
        ("execution reverted", None, None),
        ("execution reverted: no", "no", None),
        ("execution reverted", "0x123", None),
        ("execution reverted", "0xzz", None),
        ("execution reverted", "0x12 34", None),
        ("execution reverted", {"txHash": HASH}, None),
        ("execution reverted", [HEX], None),
        ("execution reverted", 5, None),
        ("", {"data": None}, None),
    ],
)
def test_revert_data_is_found_where_nodes_put_it(message: str, data: object, found: bytes | None) -> None:
    assert revert_data(message, data) == found


def test_endless_nesting_and_endless_data_are_cut() -> None:
    deep: dict[str, object] = {"data": HEX}
    for _ in range(10_000):
        deep = {"data": deep}
    assert revert_data("reverted", deep) is None
    kept = revert_data("reverted", "0x" + "00" * 10_000_000)
    assert kept is not None
    assert len(kept) == DATA_BYTES


@given(
    st.text(max_size=60),
    json_values | st.dictionaries(st.sampled_from(["data", "error", "result", HASH]), json_values | st.text()),
)
def test_whatever_a_node_says_gives_bytes_or_nothing(message: str, data: object) -> None:
    assert isinstance(revert_data(message, data), bytes | None)
