"""What the outside sees: exact amounts, UTC, checksums."""

import msgspec
import pytest

from nonchalant.lane_views import LiveLane, show_lane
from nonchalant.model import (
    Attempt,
    Attention,
    BlockRef,
    Control,
    Event,
    Fees,
    LaneRecord,
    Payload,
    Receipt,
    Transaction,
)
from nonchalant.ports import LaneSummary, OpenWish, Reserved, Standing
from nonchalant.values import replace
from nonchalant.views import show_event, show_time, show_transaction
from nonchalant.waiting_for import Situation
from nonchalant.windows import Pace
from nonchalant.words import AttemptKind, LaneKey, Mode, OnSuperseded, Speed, State, Wanted

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
        "confirmations": None, "fork": False,
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


def test_earlier_payloads_and_limits_are_shown() -> None:
    tx = transaction(
        earlier=(Payload(to=SENDER, value=5, access_list=((SENDER, ()),)), Payload(to=None, data=b"\x01", gas=30_000)),
        valid_until=1_700_000_000_001, confirmations=6, on_superseded=OnSuperseded.HOLD,
    )  # fmt: skip
    shown = as_json(show_transaction(tx, ()))
    assert shown["payload_version"] == 3
    assert shown["earlier"] == [
        {
            "version": 1, "to": CHECKSUMMED, "value": "5", "data": "0x", "gas": None,
            "access_list": [{"address": CHECKSUMMED, "storage_keys": []}],
        },
        {"version": 2, "to": None, "value": "0", "data": "0x01", "gas": 30_000, "access_list": []},
    ]  # fmt: skip
    assert (shown["valid_until"], shown["confirmations"], shown["on_superseded"]) == (
        "2023-11-14T22:13:20.001Z", 6, "hold",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("state", "version", "ran"),
    [
        (State.CONFIRMED, 1, {"ran": "payload", "payload_version": 1, "hash": WORD}),
        (State.REVERTED, 2, {"ran": "payload", "payload_version": 2, "hash": WORD}),
        (State.CANCELLED, 0, {"ran": "cancel", "payload_version": None, "hash": WORD}),
        (State.EXPIRED, 0, {"ran": "expiry", "payload_version": None, "hash": WORD}),
        (State.FAILED, 0, {"ran": "nothing", "payload_version": None, "hash": WORD}),
        (State.MINED, 1, None),
        (State.CANCELLED, None, {"ran": None, "payload_version": None, "hash": None}),
    ],
)
def test_the_outcome_names_what_ran(state: State, version: int | None, ran: object) -> None:
    tx = transaction(state=state) if version is not None else transaction(state=state, receipt=None)
    attempts = [
        replace(attempt(Fees(1), None), hash="0x12"),
        replace(attempt(Fees(1), None), payload_version=version or 0),
    ]
    assert as_json(show_transaction(tx, attempts))["outcome"] == ran


def test_what_is_live_tells_what_is_wanted_and_why_it_waits() -> None:
    around = Situation(
        standing=Standing(wanted=Wanted.CANCEL, payload_version=0), final=BlockRef(1, WORD), above=[BlockRef(10, "0xa")]
    )
    sent = as_json(show_transaction(transaction(state=State.SENT, receipt=None, attention=None), (), around))
    assert sent["wanted"] == "cancel"
    assert sent["waiting"].startswith("It is being cancelled")
    mined = as_json(show_transaction(transaction(state=State.MINED, forked=True), (), around))
    assert mined["receipt"]["confirmations"] == [{"number": 10, "hash": "0xa"}]
    assert mined["receipt"]["fork"] is True
    queued = as_json(show_transaction(transaction(state=State.QUEUED, nonce=None, receipt=None), (), around))
    assert queued["wanted"] is None
    ended = as_json(show_transaction(transaction(), (), around))
    assert (ended["wanted"], ended["waiting"]) == (None, None)


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
    now = LiveLane(window=3, window_limit=16, mode=Pace.PIPELINED, balance=HUGE, head=9, committed=HUGE)
    shown = as_json(show_lane(summary, now))
    assert (shown["balance"], shown["committed"], shown["reserve"]) == (str(HUGE), str(HUGE), None)
    assert (shown["window"], shown["window_limit"], shown["pace"]) == (3, 16, "pipelined")
    assert shown["in_flight"] is None
    assert shown["control"] == {"mode": "open", "reason": "", "since": None}
    assert shown["health"] == {"ok": True, "trouble": None, "confirmed_at": None, "resets": 0}
    assert (shown["transactions"], shown["slots"]) == ({"queued": 2}, {"filler": 1})
    expires = None if owner is None else "1970-01-01T00:00:00.000Z"
    assert shown["lease"] == {"owner": owner, "epoch": 4, "expires_at": expires}


def test_a_lane_shows_what_people_said_and_what_is_wrong() -> None:
    record = LaneRecord(key=LANE, unhealthy=Attention("poor", "fund it", 0), confirmed_at=1, resets=2)
    summary = LaneSummary(
        record=record, control=Control(Mode.PAUSED, "rotation", 1), states={}, slots={}, owner=None, epoch=0,
        expires_at=0, reservations=[Reserved(5, 2, WORD)], wishes=[OpenWish("cancel", "tx", 3)],
    )  # fmt: skip
    shown = as_json(show_lane(summary, None))
    assert shown["control"] == {"mode": "paused", "reason": "rotation", "since": "1970-01-01T00:00:00.001Z"}
    assert shown["health"] == {
        "ok": False, "trouble": {"code": "poor", "reason": "fund it", "since": "1970-01-01T00:00:00.000Z"},
        "confirmed_at": "1970-01-01T00:00:00.001Z", "resets": 2,
    }  # fmt: skip
    assert shown["reservations"] == [{"nonce": 5, "expires_at": "1970-01-01T00:00:00.002Z", "hash": WORD}]
    assert shown["wishes"] == [{"kind": "cancel", "tx": "tx", "since": "1970-01-01T00:00:00.003Z"}]
    assert (shown["window"], shown["pace"], shown["in_flight"]) == (None, None, 0)


def test_times_are_exact_to_the_millisecond() -> None:
    assert show_time(1_699_999_999_999) == "2023-11-14T22:13:19.999Z"
