"""Whatever comes in is a value or a bad request, never a crash."""

import json
from contextlib import suppress
from functools import partial

from hypothesis import given, settings
from hypothesis import strategies as st

from nonchalant.errors import BadRequest
from nonchalant.wire import (
    FILTERS,
    parse_bump,
    parse_fill,
    parse_filter,
    parse_holder,
    parse_reason,
    parse_replacement,
    parse_reserve,
    parse_reset,
    parse_used,
)
from tests.pure.bodies import OTHER, RULES, WORD, body, parse, send

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=70) | st.just(OTHER) | st.just(WORD),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=8,
)
fields = st.sampled_from(
    [
        *("chain_id", "from", "to", "value", "data", "gas", "access_list", "fees", "priority", "metadata", "nonce"),
        *("valid_until", "confirmations", "on_superseded", "simulate", "abi", "reason"),
        *("force", "seconds", "holder", "hash", "raw"),
    ]
)

# Cheap, so many; with the profile of `make test-long` twenty times as many again.
often = settings(max_examples=10 * settings.default.max_examples)
very_often = settings(max_examples=40 * settings.default.max_examples)


@often
@given(st.dictionaries(fields, json_values, max_size=5))
def test_any_json_is_a_wish_or_a_bad_request(changes: dict[str, object]) -> None:
    raw = json.dumps(changes).encode()
    of_transactions = (partial(parse_replacement, rules=RULES), partial(parse_bump, rules=RULES), parse_reason)
    of_lanes = (parse_fill, parse_reset, parse_reserve, parse_used, parse_holder)
    for parse_body in (*of_transactions, *of_lanes):
        with suppress(BadRequest):
            parse_body(raw)


@often
@given(st.dictionaries(fields, json_values, max_size=5))
def test_any_json_is_a_request_or_a_bad_request(changes: dict[str, object]) -> None:
    with suppress(BadRequest):
        parse(body(**changes))


@often
@given(st.dictionaries(fields, json_values | st.binary(max_size=9) | st.builds(object), max_size=5))
def test_any_python_values_are_a_request_or_a_bad_request(changes: dict[str, object]) -> None:
    with suppress(BadRequest):
        send(**changes)


@very_often
@given(st.binary(max_size=300))
def test_any_bytes_are_a_request_or_a_bad_request(raw: bytes) -> None:
    with suppress(BadRequest):
        parse(raw)


@very_often
@given(st.dictionaries(st.sampled_from(FILTERS), st.text()))
def test_any_query_is_a_filter_or_a_bad_request(query: dict[str, str]) -> None:
    with suppress(BadRequest):
        parse_filter(query)
