"""What the values say about themselves."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nonchalant.model import Block, BlockRef, Executed, Fees, Payload, Request, Slot, deed_of
from nonchalant.values import replace
from nonchalant.words import LIVE_STATES, AttemptKind, SlotKind, State, Wanted
from tests.examples import (
    ALICE,
    BOB,
    ELABORATE,
    a_hash,
    a_receipt,
    a_request,
    a_slot,
    a_transaction,
    an_attempt,
)


@pytest.mark.parametrize("state", State)
def test_a_transaction_is_live_until_its_end(state: State) -> None:
    assert a_transaction(state=state).live == (state in LIVE_STATES)


def test_a_transaction_has_all_that_was_asked_for_but_the_digest_by_which_a_repetition_is_known() -> None:
    request = a_request(
        "a",
        payload=Payload(to=BOB, value=3, data=b"x", gas=50_000),
        **ELABORATE,
        valid_until=99,
        simulate=True,
        asked_nonce=4,
        batch="b",
    )
    tx = request.accepted(17, 5)
    wanted = set(Request.__struct_fields__) - {"body_hash"}
    assert {name: getattr(tx, name) for name in wanted} == {name: getattr(request, name) for name in wanted}
    assert (tx.place, tx.version, tx.state, tx.created_at, tx.updated_at) == (17, 1, State.QUEUED, 5, 5)
    assert (tx.nonce, tx.hash, tx.held) == (None, None, False)


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


def test_only_the_newest_attempt_of_what_should_run_is_ever_sent() -> None:
    first, bump = an_attempt("0xaa"), an_attempt("0xbb", kind=AttemptKind.BUMP)
    cancel = an_attempt("0xcc", kind=AttemptKind.CANCEL)
    other = an_attempt("0xdd", kind=AttemptKind.REPLACEMENT, payload_version=2)
    slot = a_slot(0, first, bump)
    assert slot.newest == bump
    assert replace(slot, payload_version=2).newest is None
    assert replace(slot, payload_version=2).with_attempt(other).newest == other
    cancelled = replace(slot, wanted=Wanted.CANCEL, payload_version=0)
    assert cancelled.newest is None
    assert cancelled.with_attempt(cancel).newest == cancel
    # A bump of the cancel is a cancel too, and an old payload's attempt is never sent again.
    assert cancelled.with_attempt(cancel).with_attempt(replace(bump, hash="0xee")).newest == cancel


@pytest.mark.parametrize(
    ("fees", "price"),
    [
        ([Fees(100, 10)], Fees(100, 10)),
        ([Fees(100, 10), Fees(90, 20)], Fees(100, 20)),
        ([Fees(100), Fees(120)], Fees(120)),
        ([Fees(100), Fees(90, 5)], Fees(100, 5)),
    ],
)
def test_a_slot_s_price_is_the_most_that_any_of_its_attempts_offers_on_each_field(
    fees: list[Fees], price: Fees
) -> None:
    attempts = [an_attempt(f"0x{number:02x}", fees=offer) for number, offer in enumerate(fees)]
    assert a_slot(0, *attempts).price == price


def test_a_slot_finds_its_attempts_by_hash() -> None:
    first, second = an_attempt("0xaa"), an_attempt("0xbb")
    slot = a_slot(0, first, second)
    assert (slot.attempt("0xaa"), slot.attempt("0xbb"), slot.attempt("0xcc")) == (first, second, None)


def test_a_slot_nobody_signed_for_has_no_floor() -> None:
    assert Slot(nonce=1, kind=SlotKind.RESERVATION, tx_id=None, attempts=()).floor == 0


def test_every_payload_a_transaction_had_is_known_by_its_version() -> None:
    first, second, third = (Payload(to=BOB, value=value) for value in (1, 2, 3))
    tx = a_transaction(payload=third, earlier=(first, second))
    assert tx.payload_version == 3
    assert [tx.payload_of(version) for version in (1, 2, 3)] == [first, second, third]
    assert tx.deeds == {first.deed, second.deed, third.deed}


def test_a_transaction_is_overdue_from_its_deadline_on() -> None:
    assert not a_transaction().is_overdue(10**15)
    tx = a_transaction(valid_until=50)
    assert [tx.is_overdue(now) for now in (49, 50, 51)] == [False, True, True]
