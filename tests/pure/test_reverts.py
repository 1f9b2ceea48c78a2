"""Revert data in words that people read; and data that was made to do harm."""

from __future__ import annotations

import time

import pytest
from eth_abi import encode
from eth_utils import to_checksum_address
from hypothesis import given, settings
from hypothesis import strategies as st

from nonchalant.chain.evm.reverts import LINE_CHARACTERS, TEXT_BYTES, VALUES, explain, parse_abi
from tests.pure.solidity import ALICE, BALANCE, abi, error, selector, word

# what people read


def test_nothing_at_all_is_said_to_be_nothing() -> None:
    assert explain(b"") == "reverted without a reason"


def test_a_reason_is_quoted() -> None:
    assert explain(error("Error(string)", "ERC20: too much")) == 'reverted: "ERC20: too much"'
    assert explain(error("Error(string)", "")) == 'reverted: ""'


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (0x01, "assertion"),
        (0x11, "overflow"),
        (0x12, "division"),
        (0x21, "enum"),
        (0x22, "storage byte array"),
        (0x31, "empty array"),
        (0x32, "out of bounds"),
        (0x41, "memory"),
        (0x51, "internal function"),
        (0x99, "does not know"),
    ],
)
def test_a_panic_is_named_with_its_code(code: int, words: str) -> None:
    told = explain(error("Panic(uint256)", code))
    assert words in told
    assert told.endswith(f"(panic 0x{code:02x})")


def test_a_custom_error_is_read_with_the_abi() -> None:
    data = error("InsufficientBalance(uint256,address)", 5, ALICE)
    assert explain(data, [BALANCE]) == f"reverted: InsufficientBalance(available: 5, {to_checksum_address(ALICE)})"
    assert explain(selector("Closed()"), [{"type": "error", "name": "Closed"}]) == "reverted: Closed()"


def test_an_unknown_error_is_shown_shortened() -> None:
    assert explain(bytes.fromhex("12345678")) == "reverted: unknown error 0x12345678"
    assert explain(bytes.fromhex("12345678ff")) == "reverted: unknown error 0x12345678 with data 0xff"
    long = explain(bytes.fromhex("12345678") + bytes(100), [BALANCE])
    assert long == f"reverted: unknown error 0x12345678 with data 0x{'00' * 32}… (100 bytes)"
    assert explain(b"\x01\x02") == "reverted: unknown data 0x0102"


def test_structures_are_read_in_depth() -> None:
    order = {
        "name": "order",
        "type": "tuple[2]",
        "components": [
            {"name": "id", "type": "uint8"},
            {"name": "lines", "type": "tuple[]", "components": [{"name": "text", "type": "string"}, {"type": "int16"}]},
        ],
    }
    entry = {"type": "error", "name": "Refused", "inputs": [order, {"name": "raw", "type": "bytes"}]}
    types = "(uint8,(string,int16)[])[2]"
    data = selector(f"Refused({types},bytes)") + encode(
        [types, "bytes"], [[(1, [("a", -1), ("b", 2)]), (2, [])], b"\x07"]
    )
    assert explain(data, parse_abi([entry])) == (
        'reverted: Refused(order: [(id: 1, lines: [(text: "a", -1), (text: "b", 2)]), (id: 2, lines: [])], raw: 0x07)'
    )


def test_the_errors_of_solidity_itself_cannot_be_redefined() -> None:
    fake = {"type": "error", "name": "Error", "inputs": [{"name": "code", "type": "string"}]}
    assert explain(error("Error(string)", "x"), [fake]) == 'reverted: "x"'


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('say "x" \\', r"say \"x\" \\"),
        ("a\nb\r\x00\x1b[31m", r"a\x0ab\x0d\x00\x1b[31m"),
        ("\u202eabc\u2028", r"\u202eabc\u2028"),
        ("\U000e0001", r"\U000e0001"),
        ("gültig ✓ 漢", "gültig ✓ 漢"),
    ],
)
def test_what_does_not_print_is_escaped(text: str, shown: str) -> None:
    assert explain(error("Error(string)", text)) == f'reverted: "{shown}"'


def test_bytes_that_are_no_text_are_escaped() -> None:
    data = selector("Error(string)") + encode(["bytes"], [b"ok \xff\xc3"])
    assert explain(data) == r'reverted: "ok \xff\xc3"'


def test_a_long_reason_is_cut_between_characters() -> None:
    told = explain(error("Error(string)", "€" * 10_000))
    assert told == 'reverted: "' + "€" * (TEXT_BYTES // 3) + '…"'
    assert explain(error("Error(string)", "x" * TEXT_BYTES)).endswith('x"')


def test_many_values_are_counted_instead_of_shown() -> None:
    told = explain(error("Bad(uint256[])", list(range(10_000))), abi("uint256[]"))
    assert f"… {10_000 - VALUES + 1} more]" in told
    wide = abi(*["bytes32"] * 200)
    told = explain(error(f"Bad({','.join(['bytes32'] * 200)})", *[bytes(32)] * 200), wide)
    assert told.endswith("…")
    assert len(told) == LINE_CHARACTERS
    flags = abi(*["bool"] * 100)
    assert explain(error(f"Bad({','.join(['bool'] * 100)})", *[True] * 100), flags).endswith("true, …)")


# data made to do harm


def bomb(depth: int, width: int) -> bytes:
    """Arrays of arrays whose items all point to the same place: 6**8 values in 2 kB."""
    body = word(32)
    for _ in range(depth - 1):
        body += word(width) + word(32 * width) * width
    return body + word(0)


@pytest.mark.parametrize(
    "data",
    [
        word(32) + word(2**256 - 1),
        word(2**256 - 1),
        word(2**255),
        word(0),
        word(32) + word(2**32) + bytes(100),
        word(31),
        b"",
        b"\x00" * 31,
        bomb(7, 8),
        bomb(7, 1000),
        word(32) + word(4_000) + word(0) * 4_000,
        bytes(1_000_000),
        b"\xff" * 1_000_000,
    ],
    ids=lambda data: f"{len(data)} bytes {data[:33][-2:].hex()}",
)
@pytest.mark.parametrize(
    "types",
    [["string"], ["bytes"], ["uint256" + "[]" * 7], ["string[]"], ["uint8[999999999]"], ["string" + "[9999]" * 7]],
)
def test_hostile_data_is_answered_shortly_and_soon(data: bytes, types: list[str]) -> None:
    started = time.process_time()
    for signature in (f"Bad({','.join(types)})", "Error(string)", "Panic(uint256)"):
        told = explain(selector(signature) + data, abi(*types))
        assert told.startswith("reverted: ")
        assert told.isprintable()
        assert len(told) <= LINE_CHARACTERS
    assert time.process_time() - started < 0.5


@settings(max_examples=500)
@given(
    st.sampled_from([b"", selector("Error(string)"), selector("Panic(uint256)"), selector("Bad(string,uint256[])")]),
    st.lists(st.one_of(st.integers(0, 200).map(word), st.binary(max_size=40), st.just(b"\xff" * 32)), max_size=8),
)
def test_any_bytes_give_one_printable_line(start: bytes, parts: list[bytes]) -> None:
    told = explain(start + b"".join(parts), abi("string", "uint256[]"))
    assert told.startswith("reverted")
    assert told.isprintable()
    assert len(told) <= LINE_CHARACTERS


def test_arguments_that_do_not_fit_the_abi_are_said_to_be_undecodable() -> None:
    for types, arguments in (
        (["uint8"], word(256)),
        (["int8"], word(128)),
        (["bool"], word(2)),
        (["address"], word(2**160)),
        (["bytes4"], b"\x01" * 32),
        (["uint256"], b"\x01"),
        (["string"], word(32) + word(5) + b"four"),
        (["bytes"], word(32) + word(33) + bytes(32)),
        (["bool[]"], word(32) + word(VALUES + 2) + word(1) * (VALUES + 1)),
    ):
        told = explain(selector(f"Bad({types[0]})") + arguments, abi(*types))
        assert told.startswith("reverted: Bad, whose arguments cannot be decoded: 0x")


def test_an_abi_that_is_none_counts_as_none() -> None:
    for broken in ([{"type": "error", "name": "Bad", "inputs": [{"type": "uint7"}]}], [5], "abc"):
        assert explain(selector("Bad(uint7)"), broken).startswith("reverted: unknown error 0x")  # type: ignore[arg-type]
        assert explain(error("Error(string)", "x"), broken) == 'reverted: "x"'  # type: ignore[arg-type]
