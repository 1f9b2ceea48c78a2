"""What is said of transactions and lanes that are there: which to list, what to change, which nonce to keep."""

import json
from typing import Any

import pytest

from nonchalant.errors import BadRequest, FeeAboveCap
from nonchalant.model import Fees, Payload
from nonchalant.ports import Filter
from nonchalant.scalars import MAX_DATA
from nonchalant.wire import (
    parse_bump,
    parse_fill,
    parse_filter,
    parse_holder,
    parse_lane,
    parse_nothing,
    parse_reason,
    parse_replacement,
    parse_reserve,
    parse_reset,
    parse_used,
)
from nonchalant.words import LaneKey, Speed, State
from tests.pure.bodies import CHECKSUMMED, OTHER, RULES, SENDER, WORD


def test_a_listing_is_filtered() -> None:
    given = {
        "state": "mined", "chain_id": "31337", "from": CHECKSUMMED, "nonce": "0x5", "hash": WORD.upper().replace("X", "x"),
        "idempotency_key": "k", "cursor": "7", "limit": "2",
    }  # fmt: skip
    assert parse_filter(given) == Filter(
        state=State.MINED, chain_id=31337, sender=SENDER, nonce=5, hash=WORD, idempotency_key="k", before=7, limit=2
    )
    assert parse_filter({}) == Filter()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("state", "gone"),
        ("chain_id", "x"),
        ("from", "x"),
        ("nonce", str(2**63)),
        ("hash", "0x1"),
        ("idempotency_key", ""),
        ("cursor", "-1"),
        ("limit", "0"),
        ("limit", "501"),
    ],
)
def test_a_wrong_filter_is_named(name: str, value: str) -> None:
    with pytest.raises(BadRequest) as caught:
        parse_filter({name: value})
    assert caught.value.field == name


def test_a_lane_is_named_by_chain_and_address() -> None:
    assert parse_lane("31337", CHECKSUMMED) == LaneKey(31337, SENDER)
    with pytest.raises(BadRequest, match="chain_id"):
        parse_lane("main", SENDER)
    with pytest.raises(BadRequest, match="address"):
        parse_lane("1", "0x")


def test_a_replacement_is_a_whole_payload_held_to_the_same_checks() -> None:
    payload, fees = parse_replacement({"to": CHECKSUMMED, "value": "0x5", "data": b"\x01", "gas": 30_000}, RULES)
    assert (payload, fees) == (Payload(to=SENDER, value=5, data=b"\x01", gas=30_000), None)
    assert parse_replacement(json.dumps({"to": OTHER, "fees": {"speed": "fast"}}).encode(), RULES)[1] is Speed.FAST
    gwei = 10**9
    with pytest.raises(FeeAboveCap, match=r"fees.max_fee_per_gas"):
        parse_replacement({"to": OTHER, "fees": {"max_fee_per_gas": 101 * gwei, "max_priority_fee_per_gas": 1}}, RULES)
    for wrong, field in (
        ({}, "to"),
        ({"to": "0x"}, "to"),
        ({"to": OTHER, "gas": 1}, "gas"),
        ({"to": OTHER, "chain_id": 31337}, "chain_id"),
        ({"to": OTHER, "priority": 1}, "priority"),
    ):
        with pytest.raises(BadRequest) as caught:
            parse_replacement(wrong, RULES)
        assert caught.value.field == field


def test_a_bump_names_a_price_or_leaves_it_to_the_market() -> None:
    assert parse_bump({}, RULES) is None
    assert parse_bump(b'{"fees": {"gas_price": "7"}}', RULES) == Fees(7)
    with pytest.raises(FeeAboveCap, match=r"fees.gas_price"):
        parse_bump({"fees": {"gas_price": 10**12}}, RULES)
    with pytest.raises(BadRequest, match="unknown field; known here: fees"):
        parse_bump({"speed": "fast"}, RULES)


def test_a_reason_is_one_short_line() -> None:
    assert (parse_reason({}), parse_reason({"reason": " rotating keys "})) == ("", "rotating keys")
    for reason in ("x" * 501, "a\nb", "a\x1b[31m", "\ud800", 5, None):
        with pytest.raises(BadRequest) as caught:
            parse_reason({"reason": reason})
        assert caught.value.field == "reason"


def test_what_is_said_of_a_reserved_nonce_is_read() -> None:
    holder = "0a" * 16
    assert parse_used({"holder": holder, "hash": WORD.upper().replace("X", "x"), "raw": "0xAB"}) == (
        holder,
        WORD,
        b"\xab",
    )
    assert parse_used({"holder": holder, "hash": WORD}) == (holder, WORD, None)
    assert parse_holder({"holder": holder}) == holder
    assert (parse_reserve({}), parse_reserve(b'{"seconds": 5}'), parse_reserve({"seconds": 0.5})) == (60, 5, 0.5)
    assert (parse_fill({}), parse_fill({"nonce": "0x10"}), parse_reset({}), parse_reset({"force": True})) == (
        None, 16, False, True,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("parse_body", "wrong", "field"),
    [
        (parse_reserve, {"seconds": 0}, "seconds"),
        (parse_reserve, {"seconds": 601}, "seconds"),
        (parse_reserve, {"seconds": "60"}, "seconds"),
        (parse_reserve, {"seconds": float("nan")}, "seconds"),
        (parse_used, {"hash": WORD}, "holder"),
        (parse_used, {"holder": "x", "hash": WORD}, "holder"),
        (parse_used, {"holder": "0a" * 16, "hash": "0x12"}, "hash"),
        (parse_used, {"holder": "0a" * 16, "hash": WORD, "raw": "ab"}, "raw"),
        (parse_used, {"holder": "0a" * 16, "hash": WORD, "raw": "0x" + "00" * (MAX_DATA + 1)}, "raw"),
        (parse_holder, {}, "holder"),
        (parse_holder, {"holder": None}, "holder"),
        (parse_fill, {"nonce": -1}, "nonce"),
        (parse_fill, {"nonce": 2**63}, "nonce"),
        (parse_fill, {"nonces": 1}, "nonces"),
        (parse_reset, {"force": 1}, "force"),
        (parse_reset, {"force": "yes"}, "force"),
    ],
)
def test_a_bad_word_about_a_lane_names_the_field(parse_body: Any, wrong: dict[str, object], field: str) -> None:
    with pytest.raises(BadRequest) as caught:
        parse_body(wrong)
    assert caught.value.field == field


def test_what_takes_nothing_takes_only_nothing() -> None:
    parse_nothing(b"{}")
    for wrong in ({"force": True}, b"[]", b"null", b""):
        with pytest.raises(BadRequest):
            parse_nothing(wrong)
