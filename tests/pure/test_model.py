"""What the values say about themselves."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nonchalant.model import (
    LIVE_STATES,
    TERMINAL_STATES,
    AttemptKind,
    Block,
    BlockRef,
    Executed,
    Payload,
    State,
    deed_of,
)
from tests.examples import (
    ALICE,
    BOB,
    LANE,
    a_hash,
    a_receipt,
    a_slot,
    a_transaction,
    an_attempt,
)


def test_a_lane_is_written_as_chain_and_address() -> None:
    assert str(LANE) == f"7:{ALICE}"


def test_every_state_is_either_live_or_an_end() -> None:
    assert frozenset(State) == LIVE_STATES | TERMINAL_STATES
    assert not LIVE_STATES & TERMINAL_STATES


@pytest.mark.parametrize("state", State)
def test_a_transaction_is_live_until_its_end(state: State) -> None:
    assert a_transaction(state=state).live == (state in LIVE_STATES)


def test_doing_nothing_is_a_transfer_of_nothing_to_oneself() -> None:
    assert Payload.nothing(ALICE) == Payload(to=ALICE, value=0, data=b"", gas=None, access_list=())


@pytest.mark.parametrize(
    ("to", "value", "data", "same"),
    [
        (BOB, 5, b"x", True),
        (ALICE, 5, b"x", False),
        (None, 5, b"x", False),
        (BOB, 6, b"x", False),
        (BOB, 5, b"", False),
    ],
)
def test_two_do_the_same_when_target_value_and_data_agree_whatever_they_cost(
    to: str | None, value: int, data: bytes, same: bool
) -> None:
    payload = Payload(to=BOB, value=5, data=b"x", gas=99, access_list=((ALICE, ()),))
    assert (payload.deed == Executed("0xf1", ALICE, 3, to, value, data).deed) is same
    assert (payload.deed == Payload(to=to, value=value, data=data).deed) is same


@given(
    st.sampled_from([None, ALICE, BOB]),
    st.integers(0, 99),
    st.binary(max_size=3),
    st.sampled_from([None, ALICE, BOB]),
    st.integers(0, 99),
    st.binary(max_size=3),
)
def test_deeds_are_equal_only_when_all_parts_are(
    to: str | None, value: int, data: bytes, other_to: str | None, other_value: int, other_data: bytes
) -> None:
    same = (to, value, data) == (other_to, other_value, other_data)
    assert (deed_of(to, value, data) == deed_of(other_to, other_value, other_data)) is same


def test_a_block_is_referred_to_by_number_and_hash() -> None:
    assert Block(4, "0xb4", "0xb3", ()).ref == BlockRef(4, "0xb4")


def test_a_receipt_costs_its_gas_and_what_the_other_layer_charges() -> None:
    assert a_receipt(gas_used=7, gas_price=11, l1_fee=5).cost == 7 * 11 + 5


def test_a_slot_knows_its_newest_attempt_and_the_lowest_floor_of_all() -> None:
    old, new = an_attempt(a_hash("old"), floor=9), an_attempt(a_hash("new"), floor=4)
    slot = a_slot(0, old).with_attempt(new)
    assert slot.attempts == (old, new)
    assert slot.newest == new
    assert slot.floor == 4


@pytest.mark.parametrize(
    ("kind", "carries"),
    [
        (AttemptKind.ORIGINAL, True),
        (AttemptKind.BUMP, True),
        (AttemptKind.CANCEL, False),
        (AttemptKind.FILLER, False),
    ],
)
def test_only_the_original_and_its_bumps_carry_the_payload(kind: AttemptKind, carries: bool) -> None:
    slot = a_slot(0, an_attempt("0xaa", kind=kind), an_attempt("0xbb", kind=AttemptKind.CANCEL))
    assert slot.ran_the_payload("0xaa") is carries
    assert not slot.ran_the_payload("0xcc")
