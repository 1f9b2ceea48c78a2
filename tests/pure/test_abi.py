"""The ABI that a user gives: its errors are kept, and what is no ABI is refused with the field."""

from __future__ import annotations

import json
import re
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nonchalant.chain.evm.reverts import ENTRIES, PARAMETERS, parse_abi
from tests.pure.solidity import BALANCE, json_values


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


@settings(max_examples=500)
@given(
    st.lists(
        json_values | st.fixed_dictionaries({"type": st.just("error"), "name": st.just("A"), "inputs": json_values})
    )
)
def test_anyjson_values_is_an_abi_or_a_value_error(value: object) -> None:
    with suppress(ValueError):
        kept = parse_abi(value)
        assert parse_abi(kept) == kept
