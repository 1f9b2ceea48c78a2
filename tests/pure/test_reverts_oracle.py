"""Revert data is read as eth-abi reads it, whatever its types."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from eth_abi import decode, encode
from eth_abi.exceptions import DecodingError
from eth_utils import to_checksum_address
from hypothesis import given, settings
from hypothesis import strategies as st

from nonchalant.chain.evm.reverts import LINE_CHARACTERS, explain, parse_abi
from tests.pure.solidity import abi, selector

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
