"""The least gas that anything can be executed with; the figures are those of the EIPs, worked out by hand."""

import pytest

from nonchalant.chain.evm.intrinsic import least_gas
from nonchalant.errors import BadRequest
from nonchalant.fees import FeeRules
from nonchalant.model import Payload
from nonchalant.wire import parse_replacement
from nonchalant.words import AccessList
from tests.pure.bodies import OTHER, RULES, parse, send
from tests.pure.bodies import body as request_body

KEY = "0x" + "00" * 32
LIST: AccessList = ((OTHER, (KEY, KEY)), (OTHER, ()))


@pytest.mark.parametrize(
    ("payload", "least", "without_floor"),
    [
        (Payload(to=OTHER), 21_000, 21_000),
        (Payload(to=OTHER, data=b"\0" * 10), 21_100, 21_040),
        (Payload(to=OTHER, data=b"\xff" * 1_000), 61_000, 37_000),
        (Payload(to=OTHER, data=b"\0\xff"), 21_050, 21_020),
        # A contract's code costs 2 for each word that was begun, and the floor knows nothing of that.
        (Payload(to=None, data=b"\xff"), 53_018, 53_018),
        (Payload(to=None, data=b"\xff" * 33), 53_000 + 33 * 16 + 4, 53_000 + 33 * 16 + 4),
        (Payload(to=None, data=b"\xff" * 2_000), 101_000, 53_000 + 32_000 + 126),
        (Payload(to=OTHER, access_list=LIST), 21_000 + 2 * 2_400 + 2 * 1_900, 21_000 + 2 * 2_400 + 2 * 1_900),
    ],
)
def test_the_least_gas_is_that_of_the_rules(payload: Payload, least: int, without_floor: int) -> None:
    assert least_gas(payload) == least
    assert least_gas(payload, calldata_floor=False) == without_floor


def test_a_request_with_too_little_gas_is_refused_and_told_how_much_it_takes() -> None:
    data = "0x" + "ff" * 1_000
    for gas in (21_000, 40_000, 60_999):
        with pytest.raises(BadRequest, match="61000") as caught:
            parse(request_body(data=data, gas=gas))
        assert caught.value.field == "gas"
    assert parse(request_body(data=data, gas=61_000)).payload.gas == 61_000
    assert parse(request_body(data=data)).payload.gas is None  # it is estimated


def test_a_contract_or_an_access_list_takes_more() -> None:
    with pytest.raises(BadRequest, match="53018"):
        send(to=None, data=b"\xff", gas=30_000)
    with pytest.raises(BadRequest, match="23400"):
        send(access_list=[{"address": OTHER}], gas=21_000)


def test_a_replacement_is_held_to_the_same() -> None:
    too_little: dict[str, object] = {"to": OTHER, "data": "0x" + "ff" * 1_000, "gas": 40_000}
    with pytest.raises(BadRequest, match="61000") as caught:
        parse_replacement(too_little, RULES)
    assert caught.value.field == "gas"
    payload, _ = parse_replacement(too_little, FeeRules(calldata_floor=False))  # such as Arbitrum
    assert payload.gas == 40_000
