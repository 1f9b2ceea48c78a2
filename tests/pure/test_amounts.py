"""Amounts as people write them."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nonchalant.amounts import LIMIT, format_wei, parse_wei


@pytest.mark.parametrize(
    ("text", "wei"),
    [
        ("0", 0),
        ("1000", 1000),
        ("0x3e8", 1000),
        ("0X3E8", 1000),
        ("7wei", 7),
        ("5gwei", 5 * 10**9),
        ("5 gwei", 5 * 10**9),
        (" 1.5 GWEI ", 1_500_000_000),
        ("0.01ether", 10**16),
        ("1.000000000000000000 ether", 10**18),
        ("1.0", 1),
        (str(LIMIT - 1), LIMIT - 1),
    ],
)
def test_amounts_are_read_in_every_unit(text: str, wei: int) -> None:
    assert parse_wei(text) == wei


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-1",
        "+1",
        "1_000",
        "1e18",
        "ether",
        ".5ether",
        "5 dollars",
        "0x",
        "0xg",
        "0.5wei",
        "0.5",
        "1.1234567891gwei",
    ],
)
def test_what_is_not_an_amount_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected|unknown unit|decimals|fraction"):
        parse_wei(text)


@pytest.mark.parametrize("text", [str(LIMIT), "9" * 78, "9" * 70 + "ether"])
def test_an_amount_beyond_256_bits_does_not_fit(text: str) -> None:
    with pytest.raises(ValueError, match="256 bits"):
        parse_wei(text)


def test_an_amount_is_shown_in_the_unit_that_reads_best() -> None:
    assert [format_wei(n) for n in (0, 7, 10**6, 5 * 10**9, 10**12, 10**18, 15 * 10**17)] == [
        "0 wei", "7 wei", "0.001 gwei", "5 gwei", "0.000001 ether", "1 ether", "1.5 ether",
    ]  # fmt: skip


@given(st.integers(0, LIMIT - 1))
def test_what_is_shown_reads_back_exactly(amount: int) -> None:
    assert parse_wei(format_wei(amount)) == amount


@given(st.text(max_size=100))
def test_any_text_is_an_amount_or_a_value_error(text: str) -> None:
    with suppress(ValueError):
        assert 0 <= parse_wei(text) < LIMIT
