"""Requests become values at the edge, or an error that names the field."""

import pytest

from nonchalant.amounts import LIMIT
from nonchalant.errors import BadRequest, FeeAboveCap, UnknownAccount, UnknownChain
from nonchalant.model import Fees, Payload
from nonchalant.scalars import MAX_DATA, parse_idempotency_key
from nonchalant.values import replace
from nonchalant.wire import (
    parse_request,
)
from nonchalant.words import LaneKey, OnSuperseded, Speed
from tests.lessons import lesson
from tests.pure.bodies import CHECKSUMMED, LANES, OTHER, SENDER, SETTINGS, WORD, body, parse, send

FUNCTIONS = [{"type": "function", "name": "pay", "inputs": [], "outputs": [], "stateMutability": "payable"}]


def refusal(given: object) -> BadRequest:
    with pytest.raises(BadRequest) as caught:
        parse(given)
    return caught.value


def test_the_smallest_request_gets_the_defaults() -> None:
    request = parse(body())
    assert request.lane == LaneKey(31337, SENDER)
    assert request.payload == Payload(to=OTHER)
    assert (request.fees, request.priority, request.tenant) == (Speed.SLOW, 5, "default")
    assert (request.idempotency_key, request.metadata, request.simulate) == (None, None, False)


def test_every_field_is_read() -> None:
    request = parse(
        body(
            value="1000000000000000000",
            data="0xDEADbeef",
            gas="0x7530",
            access_list=[{"address": OTHER, "storage_keys": [WORD]}, {"address": SENDER}],
            fees={"max_fee_per_gas": "20000000000", "max_priority_fee_per_gas": 1},
            priority=9,
            valid_until="2030-01-31T13:00:00.123456+01:00",
            confirmations=10_000,
            on_superseded="hold",
            simulate=True,
            abi=[*FUNCTIONS, {"type": "error", "name": "Broke", "inputs": [{"name": "by", "type": "uint", "x": 1}]}],
            metadata={"invoice": 42, "lines": [1.5, None, True]},
        ),
        "invoice-42",
    )
    assert request.payload == Payload(
        to=OTHER,
        value=10**18,
        data=b"\xde\xad\xbe\xef",
        gas=30_000,
        access_list=((OTHER, (WORD,)), (SENDER, ())),
        abi='[{"type":"error","name":"Broke","inputs":[{"name":"by","type":"uint"}]}]',
    )
    assert request.simulate
    assert request.fees == Fees(20 * 10**9, 1)
    assert (request.priority, request.idempotency_key) == (9, "invoice-42")
    assert request.metadata == {"invoice": 42, "lines": [1.5, None, True]}
    assert (request.valid_until, request.confirmations) == (1_896_091_200_123, 10_000)
    assert request.on_superseded is OnSuperseded.HOLD


@pytest.mark.parametrize(
    "value",
    [1_896_091_200, "1896091200", "2030-01-31T12:00:00Z", "2030-01-31t12:00:00.000z", "2030-01-31 07:00:00-05:00"],
)
def test_a_deadline_is_a_time_or_seconds_since_1970(value: object) -> None:
    request = parse(body(valid_until=value))
    assert request.valid_until == 1_896_091_200_000
    assert request.body_hash == parse(body(valid_until=1_896_091_200)).body_hash


def test_a_field_that_is_absent_leaves_the_hash_alone() -> None:
    """A client that repeats an old request after an upgrade must get its transaction, not `idempotency_key_reused`."""
    assert parse(body()).body_hash == "5081312c13fdf484ad689a9bcfb43786e39741c4c80cda759c4bce8a531dddfa"
    assert parse(body(valid_until=None, confirmations=None, on_superseded=None)).body_hash == parse(body()).body_hash


def test_the_library_gives_plain_values() -> None:
    request = send(value=5, data=b"\x01", fees={"speed": Speed.FAST}, metadata={"a": 1})
    assert request.payload == Payload(to=OTHER, value=5, data=b"\x01")
    assert request.fees is Speed.FAST
    assert send(to=None, data=bytearray(b"\x60")).payload == Payload(to=None, data=b"\x60")
    assert send(fees={"gas_price": "7"}).fees == Fees(7)


@lesson("address-spelling")
def test_an_address_is_normalised_once() -> None:
    assert parse(body(**{"from": CHECKSUMMED})).lane.address == SENDER
    assert parse(body(to="0x" + CHECKSUMMED[2:].upper())).payload.to == SENDER


@pytest.mark.parametrize("value", [0, "0", "0x0", LIMIT - 1, str(LIMIT - 1), hex(LIMIT - 1)])
def test_an_amount_is_a_number_a_decimal_or_hex(value: int | str) -> None:
    assert parse(body(value=value)).payload.value in (0, LIMIT - 1)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"value": LIMIT}, "value"),
        ({"value": hex(LIMIT)}, "value"),
        ({"value": "9" * 5000}, "value"),
        ({"value": -1}, "value"),
        ({"value": "-1"}, "value"),
        ({"value": "1.5"}, "value"),
        ({"value": "1_0"}, "value"),
        ({"value": " 1"}, "value"),
        ({"value": "0x"}, "value"),
        ({"value": ""}, "value"),
        ({"value": "٣"}, "value"),
        ({"value": 1.0}, "value"),
        ({"value": True}, "value"),
        ({"value": None}, "value"),
        ({"value": []}, "value"),
        ({"gas": 2**64}, "gas"),
        ({"gas": 20_999}, "gas"),
        ({"gas": "lots"}, "gas"),
        ({"chain_id": "x"}, "chain_id"),
        ({"chain_id": 2**63}, "chain_id"),
        ({"to": "0x12"}, "to"),
        ({"to": OTHER[2:] + "00"}, "to"),
        ({"to": CHECKSUMMED.replace("F", "f", 1)}, "to"),
        ({"to": None}, "to"),
        ({"to": 5}, "to"),
        ({"from": "me"}, "from"),
        ({"from": None}, "from"),
        ({"data": "deadbeef"}, "data"),
        ({"data": "0xabc"}, "data"),
        ({"data": "0xzz"}, "data"),
        ({"data": "0x ab "}, "data"),
        ({"data": "0x" + "00" * (MAX_DATA + 1)}, "data"),
        ({"access_list": {}}, "access_list"),
        ({"access_list": [{}]}, "access_list[0].address"),
        ({"access_list": [{"address": OTHER}, {"address": "0x"}]}, "access_list[1].address"),
        ({"access_list": [{"address": OTHER, "storage_keys": ["0x1"]}]}, "access_list[0].storage_keys[0]"),
        ({"access_list": [{"address": OTHER, "storage_keys": [WORD] * 1000}]}, "access_list"),
        ({"access_list": [{"address": OTHER, "storageKeys": []}]}, "access_list[0].storageKeys"),
        ({"fees": {}}, "fees"),
        ({"fees": "fast"}, "fees"),
        ({"fees": {"speed": "warp"}}, "fees.speed"),
        ({"fees": {"speed": "fast", "gas_price": 1}}, "fees"),
        ({"fees": {"max_fee_per_gas": 1}}, "fees"),
        ({"fees": {"max_fee_per_gas": 1, "max_priority_fee_per_gas": 2}}, "fees.max_priority_fee_per_gas"),
        ({"fees": {"max_fee_per_gas": "x", "max_priority_fee_per_gas": 2}}, "fees.max_fee_per_gas"),
        ({"fees": {"gas_price": LIMIT}}, "fees.gas_price"),
        ({"fees": {"tip": 1}}, "fees.tip"),
        ({"priority": 10}, "priority"),
        ({"priority": -1}, "priority"),
        ({"priority": "5"}, "priority"),
        ({"metadata": []}, "metadata"),
        ({"metadata": "x"}, "metadata"),
        ({"metadata": {"x": "y" * 4096}}, "metadata"),
        ({"nonce": 5}, "nonce"),
        ({"valid_until": "tomorrow"}, "valid_until"),
        ({"valid_until": "2030-01-31"}, "valid_until"),
        ({"valid_until": "2030-01-31T12:00:00"}, "valid_until"),  # in which time zone?
        ({"valid_until": "2030-01-31T24:00:00Z"}, "valid_until"),
        ({"valid_until": "2030-01-31T12:00:00+99:00"}, "valid_until"),
        ({"valid_until": "1969-12-31T23:59:59Z"}, "valid_until"),
        ({"valid_until": "9999-12-31T23:59:59-23:59"}, "valid_until"),
        ({"valid_until": "٢٠٣٠-01-31T12:00:00Z"}, "valid_until"),
        ({"valid_until": -1}, "valid_until"),
        ({"valid_until": 1.5}, "valid_until"),
        ({"valid_until": 253_402_300_800}, "valid_until"),
        ({"valid_until": ""}, "valid_until"),
        ({"valid_until": []}, "valid_until"),
        ({"confirmations": 0}, "confirmations"),
        ({"confirmations": 10_001}, "confirmations"),
        ({"confirmations": "5"}, "confirmations"),
        ({"confirmations": True}, "confirmations"),
        ({"on_superseded": "retry"}, "on_superseded"),
        ({"on_superseded": 1}, "on_superseded"),
        ({"simulate": 1}, "simulate"),
        ({"a.b`$": 5}, "a.b`$"),
    ],
)
def test_a_field_that_does_not_fit_is_named(changes: dict[str, object], field: str) -> None:
    error = refusal(body(**changes))
    assert error.field == field
    assert str(error).startswith(f"{field}: ")


@pytest.mark.parametrize("field", ["chain_id", "from"])
def test_a_missing_field_is_named(field: str) -> None:
    given = body()
    del given[field]
    assert str(refusal(given)) == f"{field}: missing"


def test_an_unknown_field_is_refused_with_the_known_ones() -> None:
    assert "known here: chain_id, from, to, value, data" in str(refusal(body(colour="red")))
    assert "known here: speed, max_fee_per_gas" in str(refusal(body(fees={"max_fee": 1})))


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"null",
        b"[]",
        b"5",
        b"{",
        b"\xff\xfe",
        b'{"from":"\xff"}',
        b'{"chain_id":NaN}',
        b'{"chain_id":1e999}',
        b'{"metadata":{"x":"\\ud800"}}',
        b"[" * 100_000,
        b'{"metadata":' + b'{"x":' * 5_000 + b"1" + b"}" * 5_001,
        b'{"value":' + b"9" * 10_000 + b"}",
    ],
)
def test_a_body_that_is_no_request_is_refused(raw: bytes) -> None:
    assert refusal(raw).code == "bad_request"


def test_metadata_is_not_nested_deeply() -> None:
    nested: dict[str, object] = {}
    for _ in range(20):
        nested = {"x": nested}
    assert "nested deeper" in str(refusal(body(metadata=nested)))
    assert "nested deeper" in str(refusal(body(metadata={"x": [[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]})))


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), b"bytes", {1, 2}, object(), "\ud800", {5: 1}, ("a",)],
    ids=lambda value: type(value).__name__,
)
def test_metadata_of_the_library_must_be_json(value: object) -> None:
    with pytest.raises(BadRequest) as caught:
        send(metadata={"x": value})
    assert caught.value.field == "metadata"


@pytest.mark.parametrize("changes", [{"value": 1.5}, {"data": "\ud800"}, {"data": 5}, {5: 1}, {"to": "\ud800" * 42}])
def test_odd_values_of_the_library_are_refused(changes: dict[object, object]) -> None:
    with pytest.raises(BadRequest):
        parse_request(body() | changes, tx_id="tx", settings=SETTINGS, lanes=LANES)  # type: ignore[operator]


def test_an_abi_without_errors_is_none() -> None:
    assert parse(body(abi=FUNCTIONS)).payload.abi is None
    assert parse(body(abi=[])).payload.abi is None
    assert send(abi=None).payload.abi is None


@pytest.mark.parametrize(
    ("abi", "field", "what"),
    [
        ("[]", "abi", "expected"),
        ([7], "abi[0]", "expected an object"),
        ([*FUNCTIONS, {"type": "error"}], "abi[1].name", "expected a name"),
        ([{"type": "error", "name": "A", "inputs": [{"type": "x: y"}]}], "abi[0].inputs[0].type", "'x: y' is no type"),
        ([{}] * 5_001, "abi", "more than 5000 entries"),
        (
            [
                {"type": "error", "name": f"E{n}", "inputs": [{"name": "x" * 100, "type": "uint256"}]}
                for n in range(600)
            ],
            "abi",
            "the most is 65536",
        ),
    ],
)
def test_a_bad_abi_is_refused_with_the_place_in_it(abi: object, field: str, what: str) -> None:
    error = refusal(body(abi=abi))
    assert error.field == field
    assert what in str(error)


def test_an_unknown_chain_or_account_is_told_with_the_remedy() -> None:
    error = refusal(body(chain_id=5))
    assert isinstance(error, UnknownChain)
    assert "31337" in str(error)
    assert "[[chains]]" in str(error)
    error = refusal(body(**{"from": OTHER}))
    assert isinstance(error, UnknownAccount)
    assert "[[accounts]]" in str(error)


def test_a_price_above_the_cap_is_refused() -> None:
    gwei = 10**9
    for fees, field in (
        ({"gas_price": 100 * gwei + 1}, "fees.gas_price"),
        ({"max_fee_per_gas": 100 * gwei + 1, "max_priority_fee_per_gas": 0}, "fees.max_fee_per_gas"),
        ({"max_fee_per_gas": 50 * gwei, "max_priority_fee_per_gas": 11 * gwei}, "fees.max_priority_fee_per_gas"),
    ):
        error = refusal(body(fees=fees))
        assert isinstance(error, FeeAboveCap)
        assert error.field == field
    assert parse(body(fees={"gas_price": 100 * gwei})).fees == Fees(100 * gwei)


def test_a_price_above_the_account_s_own_cap_is_refused() -> None:
    lanes = {lane: replace(account, max_fee=7, max_priority=2) for lane, account in LANES.items()}
    for price, field in ((Fees(8), "fees.gas_price"), (Fees(7, 3), "fees.max_priority_fee_per_gas")):
        fees = {"gas_price": price.max_fee} if price.priority is None else {}
        fees = fees or {"max_fee_per_gas": price.max_fee, "max_priority_fee_per_gas": price.priority}
        with pytest.raises(FeeAboveCap) as caught:
            parse_request(body(fees=fees), tx_id="tx", settings=SETTINGS, lanes=lanes)  # type: ignore[arg-type]
        assert caught.value.field == field
    given = body(fees={"gas_price": 7})
    assert parse_request(given, tx_id="tx", settings=SETTINGS, lanes=lanes).fees == Fees(7)  # type: ignore[arg-type]


def test_requests_that_mean_the_same_have_one_hash() -> None:
    one = parse(body(value="0x10", data="0xAB", priority=5, metadata={"a": 1, "b": 2}))
    same = parse(body(value=16, data="0xab", to=OTHER.upper().replace("X", "x"), metadata={"b": 2, "a": 1}))
    assert one.body_hash == same.body_hash
    assert one.body_hash == send(value=16, data=b"\xab", metadata={"a": 1, "b": 2}).body_hash


def test_requests_that_mean_different_things_have_different_hashes() -> None:
    bodies = [
        body(),
        body(value=1),
        body(data="0x01"),
        body(gas=21000),
        body(to=SENDER),
        body(to=None, data="0x01"),
        body(priority=6),
        body(metadata={}),
        body(metadata={"a": 1}),
        body(simulate=True),
        body(valid_until=5),
        body(confirmations=5),
        body(on_superseded="hold"),
        body(on_superseded="requeue"),
        body(abi=[{"type": "error", "name": "Broke"}]),
        body(abi=[{"type": "error", "name": "Shut"}]),
        body(fees={"speed": "slow"}),
        body(fees={"gas_price": 5}),
        body(fees={"max_fee_per_gas": 5, "max_priority_fee_per_gas": 5}),
        body(access_list=[{"address": OTHER}]),
        body(access_list=[{"address": OTHER, "storage_keys": [WORD]}]),
    ]
    assert len({parse(given).body_hash for given in bodies}) == len(bodies)


@pytest.mark.parametrize("key", ["", "x" * 256, "a\nb", "ключ", " a", "a ", "\x7f"])
def test_an_idempotency_key_is_short_and_printable(key: str) -> None:
    with pytest.raises(BadRequest, match="Idempotency-Key"):
        parse(body(), key)
    assert parse_idempotency_key("x" * 255)
