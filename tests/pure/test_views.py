"""What the outside sees: exact amounts, UTC, checksums."""

import msgspec
import pytest

from nonchalant.model import (
    Attempt,
    AttemptKind,
    Attention,
    BlockRef,
    Control,
    Event,
    Fees,
    LaneKey,
    LaneRecord,
    Payload,
    Receipt,
    Speed,
    State,
    Transaction,
)
from nonchalant.ports import LaneSummary
from nonchalant.views import show_event, show_lane, show_time, show_transaction

SENDER = "0xf39fd6e51aad88f6f4ce6ab8827279cfffb92266"
CHECKSUMMED = "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266"
LANE = LaneKey(31337, SENDER)
WORD = "0x" + "ab" * 32
HUGE = 2**256 - 1


def as_json(view: msgspec.Struct) -> dict:
    return msgspec.json.decode(msgspec.json.encode(view))


def transaction(**changes: object) -> Transaction:
    fields = {
        "id": "tx", "lane": LANE, "place": 1, "version": 3, "state": State.CONFIRMED,
        "payload": Payload(to=None, value=HUGE, data=b"\x60", gas=50_000, access_list=((SENDER, (WORD,)),)),
        "fees": Speed.FAST, "priority": 5, "tenant": "default", "created_at": 0, "updated_at": 1_700_000_000_001,
        "metadata": {"a": [1]}, "nonce": 7, "hash": WORD,
        "receipt": Receipt(
            hash=WORD, block=BlockRef(9, WORD), succeeded=True, gas_used=21_000, gas_price=10**20, contract=SENDER, l1_fee=5
        ),
        "attention": Attention("stuck", "look", 0),
    }  # fmt: skip
    return Transaction(**(fields | changes))  # type: ignore[arg-type]


def attempt(fees: Fees, sent_at: int | None) -> Attempt:
    return Attempt(
        hash=WORD, nonce=7, tx_id="tx", kind=AttemptKind.ORIGINAL, fees=fees, gas=21_000, raw=b"secret?", epoch=1,
        signed_at=0, floor=0, sent_at=sent_at, answer="accepted",
    )  # fmt: skip


def test_a_transaction_is_shown_whole_and_exact() -> None:
    shown = as_json(show_transaction(transaction(), [attempt(Fees(HUGE, 1), 1), attempt(Fees(3), None)]))
    assert (shown["from"], shown["to"], shown["value"], shown["data"]) == (CHECKSUMMED, None, str(HUGE), "0x60")
    assert (shown["created_at"], shown["updated_at"]) == ("1970-01-01T00:00:00.000Z", "2023-11-14T22:13:20.001Z")
    assert shown["access_list"] == [{"address": CHECKSUMMED, "storage_keys": [WORD]}]
    assert shown["fees"] == {"speed": "fast"}
    assert shown["receipt"] == {
        "hash": WORD, "block_number": 9, "block_hash": WORD, "succeeded": True, "gas_used": 21_000,
        "gas_price": str(10**20), "l1_fee": "5", "cost": str(21_000 * 10**20 + 5), "contract": CHECKSUMMED,
    }  # fmt: skip
    assert shown["attention"] == {"code": "stuck", "reason": "look", "since": "1970-01-01T00:00:00.000Z"}
    first, second = shown["attempts"]
    assert first["fees"] == {"max_fee_per_gas": str(HUGE), "max_priority_fee_per_gas": "1"}
    assert second["fees"] == {"gas_price": "3"}
    assert (first["sent_at"], second["sent_at"]) == ("1970-01-01T00:00:00.001Z", None)
    assert "raw" not in first


def test_what_is_not_there_is_null() -> None:
    shown = as_json(
        show_transaction(
            transaction(state=State.QUEUED, nonce=None, hash=None, receipt=None, attention=None, metadata=None), ()
        )
    )
    for field in ("nonce", "hash", "receipt", "attention", "metadata", "failure", "idempotency_key"):
        assert shown[field] is None, field
    assert shown["attempts"] == []


def test_amounts_in_events_stay_exact() -> None:
    event = Event(
        kind="tx.mined", lane=LANE, at=5, tx_id="tx", position=2,
        data={"cost": HUGE, "small": 7, "yes": True, "nested": {"list": (2**53, -(2**53), 1.5, None)}},
    )  # fmt: skip
    shown = as_json(show_event(event))
    assert shown["lane"] == {"chain_id": 31337, "address": CHECKSUMMED}
    assert shown["data"] == {
        "cost": str(HUGE), "small": 7, "yes": True, "nested": {"list": [str(2**53), str(-(2**53)), 1.5, None]},
    }  # fmt: skip


@pytest.mark.parametrize("owner", [None, "node"])
def test_a_lane_shows_its_lease_only_while_somebody_holds_it(owner: str | None) -> None:
    summary = LaneSummary(
        record=LaneRecord(key=LANE, next_nonce=3), control=Control(), states={State.QUEUED: 2}, slots={"filler": 1}, owner=owner, epoch=4,
        expires_at=0,
    )  # fmt: skip
    shown = as_json(show_lane(summary, window=16, in_flight=None, balance=HUGE, head=9))
    assert shown["balance"] == str(HUGE)
    assert (shown["transactions"], shown["slots"]) == ({"queued": 2}, {"filler": 1})
    expires = None if owner is None else "1970-01-01T00:00:00.000Z"
    assert shown["lease"] == {"owner": owner, "epoch": 4, "expires_at": expires}


def test_times_are_exact_to_the_millisecond() -> None:
    assert show_time(1_699_999_999_999) == "2023-11-14T22:13:19.999Z"
