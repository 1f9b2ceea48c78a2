"""Revert data in words, against eth-abi as the oracle; and data that was made to do harm."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from contextlib import suppress
from decimal import Decimal
from typing import Any

import pytest
from eth_abi import decode, encode
from eth_abi.exceptions import DecodingError
from eth_utils import to_checksum_address
from hypothesis import given, settings
from hypothesis import strategies as st

from nonchalant.chain.evm.keccak import keccak
from nonchalant.chain.evm.reverts import (
    DATA_BYTES,
    ENTRIES,
    LINE_CHARACTERS,
    PARAMETERS,
    TEXT_BYTES,
    VALUES,
    explain,
    parse_abi,
    revert_data,
)

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


# against the oracle

_numbers = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 128, 248, 256)]
_fixed = ["fixed128x18", "ufixed8x1", "fixed256x80", "fixed8x80"]
_words = st.sampled_from([*_numbers, *_fixed, "address", "bool", "function", "bytes1", "bytes20", "bytes32"])
Kind = tuple[str, object]  # the ABI's type, and its components or None


def _grown(inner: st.SearchStrategy[Kind]) -> st.SearchStrategy[Kind]:
    tuples = st.lists(inner, min_size=1, max_size=3).map(lambda members: ("tuple", members))
    arrays = st.tuples(inner, st.sampled_from(["[]", "[1]", "[2]"])).map(
        lambda pair: (pair[0][0] + pair[1], pair[0][1])
    )
    return tuples | arrays


_kinds: st.SearchStrategy[Kind] = st.recursive(
    (_words | st.sampled_from(["bytes", "string"])).map(lambda name: (name, None)), _grown, max_leaves=5
)


def canonical(kind: Kind) -> str:
    name, members = kind
    if members is None:
        return name
    assert isinstance(members, list)
    return f"({','.join(map(canonical, members))}){name.removeprefix('tuple')}"


def as_input(kind: Kind, name: str = "") -> dict[str, object]:
    components = {} if kind[1] is None else {"components": [as_input(each) for each in kind[1]]}  # type: ignore[attr-defined]
    return {"name": name, "type": kind[0], **components}


def split(kind: Kind) -> tuple[Kind, int | None] | None:
    """The item and the length of an array; None if it is none."""
    name, members = kind
    if not name.endswith("]"):
        return None
    item, _, length = name[:-1].rpartition("[")
    return (item, members), int(length) if length else None


def value_of(kind: Kind) -> st.SearchStrategy[Any]:
    array = split(kind)
    if array is not None:
        item, length = array
        return st.lists(value_of(item), min_size=length or 0, max_size=2 if length is None else length)
    name, members = kind
    if members is not None:
        return st.tuples(*map(value_of, members))  # type: ignore[arg-type]
    if "fixed" in name:
        bits, decimals = map(int, name.removeprefix("u").removeprefix("fixed").split("x"))
        low, high = (0, 2**bits - 1) if name.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        return st.integers(low, high).map(lambda number: Decimal(number).scaleb(-decimals))
    if "int" in name:
        bits = int(name.removeprefix("u").removeprefix("int"))
        return (
            st.integers(0, 2**bits - 1)
            if name.startswith("u")
            else st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        )
    if name == "function":
        return st.binary(min_size=24, max_size=24)
    if name.startswith("bytes") and name != "bytes":
        size = int(name[5:])
        return st.binary(min_size=size, max_size=size)
    simple: dict[str, st.SearchStrategy[Any]] = {
        "address": st.binary(min_size=20, max_size=20).map(lambda raw: "0x" + raw.hex()),
        "bool": st.booleans(),
        "bytes": st.binary(max_size=36),
        "string": st.text(st.characters(categories=["L", "N", "P"], exclude_characters='"\\'), max_size=20),
    }
    return simple[name]


def shown(kind: Kind, value: Any) -> str:
    """What we should say, from what eth-abi says."""
    array = split(kind)
    if array is not None:
        return f"[{', '.join(shown(array[0], each) for each in value)}]"
    name, members = kind
    if members is not None:
        return f"({', '.join(shown(each, one) for each, one in zip(members, value, strict=True))})"  # type: ignore[call-overload]
    if name == "string":
        return f'"{value}"'
    if isinstance(value, bytes):
        return "0x" + value.hex()
    if isinstance(value, bool):
        return str(value).lower()
    if name == "address":
        return to_checksum_address(value)
    if isinstance(value, Decimal):
        text = f"{value:f}"
        text = text.rstrip("0").rstrip(".") if "." in text else text
        return "0" if text == "-0" else text
    return str(value)


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[Kind], list[Any]]:
    kinds = draw(st.lists(_kinds, max_size=3))
    return kinds, [draw(value_of(kind)) for kind in kinds]


def as_error(kinds: Sequence[Kind]) -> tuple[bytes, list[dict[str, object]]]:
    signature = f"Bad({','.join(map(canonical, kinds))})"
    return selector(signature), [{"type": "error", "name": "Bad", "inputs": [as_input(kind) for kind in kinds]}]


@settings(max_examples=600)
@given(cases())
def test_every_encoded_value_is_read_as_eth_abi_reads_it(case: tuple[list[Kind], list[Any]]) -> None:
    kinds, values = case
    chosen, entries = as_error(kinds)
    data = chosen + encode([canonical(kind) for kind in kinds], values)
    expected = f"reverted: Bad({', '.join(shown(kind, value) for kind, value in zip(kinds, values, strict=True))})"
    told = explain(data, parse_abi(entries))
    assert told == (expected if len(expected) <= LINE_CHARACTERS else expected[: LINE_CHARACTERS - 1] + "…")


@settings(max_examples=600)
@given(cases(), st.data())
def test_spoilt_data_is_read_as_eth_abi_reads_it_or_called_undecodable(
    case: tuple[list[Kind], list[Any]], data: st.DataObject
) -> None:
    kinds, values = case
    types = [canonical(kind) for kind in kinds]
    raw = bytearray(encode(types, values))
    for _ in range(data.draw(st.integers(0, 3))):
        if raw:
            place = data.draw(st.integers(0, len(raw) - 1))
            raw[place] = data.draw(st.sampled_from([0, 1, 31, 32, 64, 255]))
    raw = raw[: data.draw(st.sampled_from([len(raw), len(raw), len(raw) // 2]))]
    chosen, entries = as_error(kinds)
    told = explain(chosen + bytes(raw), entries)
    assert told.isprintable()
    try:
        read = decode(types, bytes(raw))
    except (DecodingError, OverflowError, ValueError):
        return  # eth-abi also insists on the padding of texts, which harms nobody
    expected = f"reverted: Bad({', '.join(shown(kind, value) for kind, value in zip(kinds, read, strict=True))})"
    if expected.isprintable() and '"' not in expected and "…" not in told:
        assert told == expected


def test_the_signature_hashes_are_those_of_the_canonical_types() -> None:
    for written, meant in (("uint", "uint256"), ("int[3]", "int256[3]"), ("fixed", "fixed128x18")):
        assert explain(selector(f"Bad({meant})"), abi(written)).startswith("reverted: Bad, whose arguments")


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


# the ABI that a user gives


def test_only_errors_are_kept_and_only_what_is_needed_of_them() -> None:
    given_abi = [
        {"type": "function", "name": "f", "inputs": "anything"},
        {"type": "event"},
        {"name": "old"},
        BALANCE | {"extra": "x" * 1_000},
        {"type": "error", "name": "Closed"},
    ]
    kept = parse_abi(given_abi)
    assert kept == (BALANCE, {"type": "error", "name": "Closed", "inputs": []})
    assert parse_abi(json.loads(json.dumps(kept))) == kept
    assert parse_abi([]) == ()


def nested(depth: int) -> dict[str, object]:
    parameter: dict[str, object] = {"name": "x", "type": "uint256"}
    for _ in range(depth):
        parameter = {"name": "x", "type": "tuple", "components": [parameter]}
    return {"type": "error", "name": "Deep", "inputs": [parameter]}


def with_input(**fields: object) -> list[object]:
    return [BALANCE, {"type": "error", "name": "Bad", "inputs": [fields]}]


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (None, "expected a list"),
        ({}, "expected a list"),
        ("[]", "expected a list"),
        ([[]], "[0]: expected an object"),
        ([{"type": "error"}], "[0].name: expected a name"),
        ([{"type": "error", "name": "a b"}], "[0].name: expected a name"),
        ([{"type": "error", "name": "x" * 101}], "[0].name: expected a name"),
        ([{"type": "error", "name": "A", "inputs": 5}], "[0].inputs: expected a list"),
        ([{"type": "error", "name": "A", "inputs": "abc"}], "[0].inputs: expected a list"),
        ([{"type": "error", "name": "A", "inputs": None}], "[0].inputs: expected a list"),
        ([BALANCE, {"type": "error", "name": "A", "inputs": [7]}], "[1].inputs[0]: expected an object"),
        (with_input(name="x"), "[1].inputs[0].type: None is no type"),
        (with_input(name=5, type="uint256"), "[1].inputs[0].name: expected a name"),
        (with_input(name="\n", type="uint256"), "[1].inputs[0].name: expected a name"),
        *(
            (with_input(type=name), "[1].inputs[0].type: ")
            for name in (
                *(
                    "",
                    "uint7",
                    "uint264",
                    "uint08",
                    "uint0",
                    "int 8",
                    "bytes0",
                    "bytes33",
                    "bytes01",
                    "string8",
                    "tuple8",
                ),
                *(
                    "bool1",
                    "address20",
                    "uint256x1",
                    "fixed128",
                    "fixed128x0",
                    "fixed128x81",
                    "fixed7x1",
                    "fixed128x01",
                ),
                *(
                    "uint256[0]",
                    "uint256[",
                    "uint256[-1]",
                    "uint256[x]",
                    "uint256[]x",
                    "[]",
                    "mapping",
                    "enum",
                    5,
                    ["uint"],
                ),
                *(
                    "uint256[9999999999]",
                    "uint256" + "[]" * 8,
                    "uint256" + "[]" * 10_000,
                    "x" * 1_000,
                    "uint٣",
                    "uint256\n",
                ),
            )
        ),
        (with_input(type="tuple"), "[1].inputs[0].components: expected a list"),
        (with_input(type="tuple[]", components=[]), "[1].inputs[0].components: a structure has at least one"),
        (with_input(type="tuple", components=[{"type": "x"}]), "[1].inputs[0].components[0].type: 'x' is no type"),
        ([nested(8)], "more than 8 arrays and structures"),
        ([nested(500)], "more than 8 arrays and structures"),
        ([{}] * (ENTRIES + 1), f"more than {ENTRIES} entries"),
        ([BALANCE] * (PARAMETERS // 3 + 1), f"more than {PARAMETERS} parameters"),
    ],
)
def test_what_is_no_abi_is_refused_with_the_field(value: object, named: str) -> None:
    with pytest.raises(ValueError, match=re.escape(named)) as caught:
        parse_abi(value)
    assert len(str(caught.value)) < 300
    assert str(caught.value).isprintable()


def test_what_is_at_the_limits_is_taken() -> None:
    assert parse_abi([nested(7)])
    assert parse_abi(with_input(type="uint256" + "[]" * 7))
    assert parse_abi([{}] * ENTRIES) == ()


_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from(["error", "tuple", "uint256", "tuple[]", "x", "", "a b"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["type", "name", "inputs", "components"]), inner)
    ),
    max_leaves=12,
)


@settings(max_examples=500)
@given(st.lists(_json | st.fixed_dictionaries({"type": st.just("error"), "name": st.just("A"), "inputs": _json})))
def test_any_json_is_an_abi_or_a_value_error(value: object) -> None:
    with suppress(ValueError):
        kept = parse_abi(value)
        assert parse_abi(kept) == kept


# where nodes put it

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
    st.text(max_size=60), _json | st.dictionaries(st.sampled_from(["data", "error", "result", HASH]), _json | st.text())
)
def test_whatever_a_node_says_gives_bytes_or_nothing(message: str, data: object) -> None:
    assert isinstance(revert_data(message, data), bytes | None)
