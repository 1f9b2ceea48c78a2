"""Owning a lane: leases, what an owner reads, and the one door for what it writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nonchalant.errors import RowMoved
from nonchalant.model import Admission, Attempt, Change, Event, Lease, Receipt, Transaction
from nonchalant.ports import LaneWork, Loaded
from nonchalant.store import at_once, rows
from nonchalant.store.legible import Legible
from nonchalant.store.talk import (
    Ask,
    Columns,
    Procedure,
    ask,
    ask_for_each,
    change,
    change_each,
    expect_each,
    fence,
    holder,
    millis,
    tell,
)
from nonchalant.words import LaneKey, TxId


def lanes_with_work(marked: bool) -> Procedure[Sequence[LaneWork]]:
    found = yield from ask("lanes_with_work", marked=marked)
    return [
        LaneWork(rows.lane_key(row), row["owner"], None if row["ends_in"] is None else row["ends_in"] / 1000)
        for row in found
    ]


def heartbeat(owner: str, ttl: float) -> Procedure[int]:
    yield from change("heartbeat", owner=owner, ttl=millis(ttl))
    yield from change("forget_dead_nodes")
    [counted] = yield from ask("live_nodes")
    return int(counted["n"])


def acquire(lane: LaneKey, owner: str, ttl: float) -> Procedure[int | None]:
    found = yield from ask("acquire_lease", **lane._asdict(), owner=owner, ttl=millis(ttl))
    if not found:
        return None
    epoch, at = int(found[0]["epoch"]), found[0]["now"]
    yield from tell([Event(kind="lane.lease", lane=lane, at=at, data={"owner": owner, "epoch": epoch})])
    return epoch


def renew(leases: Sequence[Lease], ttl: float) -> Procedure[Sequence[LaneKey]]:
    found = yield from ask_for_each("renew_leases", [holder(lease) for lease in leases], ttl=millis(ttl))
    return [rows.lane_key(row) for row in found]


def still_held(leases: Sequence[Lease]) -> Procedure[frozenset[LaneKey]]:
    """Those that are; nothing is prolonged."""
    found = yield from ask_for_each("held_leases", [holder(lease) for lease in leases])
    return frozenset(rows.lane_key(row) for row in found)


def renew_one(lease: Lease, ttl: float) -> Procedure[Sequence[LaneKey]]:
    """One that was locked, in its turn."""
    found = yield from ask("renew_lease", **holder(lease), ttl=millis(ttl))
    return [rows.lane_key(row) for row in found]


def release(leases: Sequence[Lease], owner: str | None) -> Procedure[None]:
    yield from change_each("release_lease", [holder(lease) for lease in leases])
    if owner is not None:
        yield from change("release_node", owner=owner)


def load(lease: Lease, legible: Legible) -> Procedure[Loaded]:
    at = yield from fence(lease)
    lane = lease.lane._asdict()
    attempts: dict[int, list[Attempt]] = {}
    signed: dict[TxId | None, list[Attempt]] = {}
    for row in (yield from ask("load_attempts", **lane)):
        attempt = legible.attempt(row)
        attempts.setdefault(attempt.nonce, []).append(attempt)
        signed.setdefault(attempt.tx_id, []).append(attempt)
    transactions = {
        row["id"]: legible.with_a_slot(row, signed.get(row["id"], ()), at)
        for row in (yield from ask("load_transactions", **lane))
    }
    slots = [
        legible.slot(row, attempts.get(row["nonce"], ()), _receipt_at(row, transactions, legible))
        for row in (yield from ask("load_slots", **lane))
    ]
    [record] = yield from ask("load_lane", **lane)
    strangers = [rows.stranger(row) for row in (yield from ask("load_strangers", **lane))]
    [final] = yield from ask("load_final", **lane)
    final_below = 0 if final["nonce"] is None else final["nonce"] + 1
    return Loaded(rows.lane_record(record), slots, list(transactions.values()), strangers, at, final_below)


def _receipt_at(row: rows.Row, transactions: Mapping[TxId, Transaction], legible: Legible) -> Receipt | None:
    """Where a slot was executed: a transaction's stands in its own row, which may be missing."""
    if row["tx_id"] is None:
        return legible.filler_receipt(row)
    if row["tx_id"] not in transactions:
        legible.warn("tx", row["tx_id"])
        return None  # the owner finds it on the chain again
    return transactions[row["tx_id"]].receipt


def commit(change: Change, lease: Lease) -> Procedure[Mapping[TxId, Admission]]:
    """Where what was accepted with it stands."""
    yield from fence(lease)
    lane = lease.lane._asdict()
    accepted = yield from _take_in(change, lane)
    change = change.entered(accepted) if accepted else change
    freed = [{"nonce": nonce} for nonce in change.freed]
    yield from expect_each("free_slot", freed, **lane)
    yield from change_each("give_attempts_back", freed, **lane)
    moved = [rows.transaction_columns(tx) for tx in change.transactions if tx.id not in accepted]
    yield from expect_each("update_transaction", moved, **lane)
    rewritten = [rows.wish_columns(tx) for tx in change.transactions if tx.id in change.rewritten]
    yield from expect_each("rewrite_transaction", rewritten)
    record = [] if change.lane is None else [rows.lane_columns(change.lane) | lane]
    if change.unsettled_from is not None:
        final = {**lane, "nonce": change.unsettled_from}
        yield Ask("give_final_attempts_back", final)
        yield Ask("unsettle_slots", final)
        yield Ask("forget_asked_nonces", final)
        # Before the slots: they may be bound below what was final until now.
        yield from expect_each("update_lane", record)
    yield from expect_each("put_slot", [rows.slot_columns(slot) for slot in change.slots if not slot.settled], **lane)
    yield from expect_each("settle_slot", [rows.slot_columns(slot) for slot in change.slots if slot.settled], **lane)
    yield from expect_each("insert_attempt", [rows.attempt_columns(one) for one in change.attempts], **lane)
    yield from expect_each("answer_attempt", [rows.answer_columns(one) for one in change.answered], **lane)
    # After the slots: what this change settles is still above the bound that it may raise.
    yield from expect_each("update_lane", record)
    strangers = [rows.stranger_columns(stranger, lease.lane) for stranger in change.strangers]
    yield from change_each("put_stranger", strangers)
    granted = [{"id": wish_id, "reply": rows.reply_text(reply)} for wish_id, reply in change.granted.items()]
    yield from expect_each("reply_to_wish", granted, **lane)
    yield from tell(change.events)
    return accepted


def _take_in(change: Change, lane: Columns) -> Procedure[Mapping[TxId, Admission]]:
    """Accept what comes with a commit: all of it, or nothing of that commit happens. No key can be removed meanwhile: where
    there is more than one writer, this is done at once (see `at_once`)."""
    signed = at_once.signed_rows(change)
    inserted = yield from ask_for_each("insert_signed", signed, **lane)
    if len(inserted) != len(signed):
        raise RowMoved("insert_signed: one of them cannot be accepted with its nonce")
    return {row["id"]: Admission(row["place"], row["created_at"]) for row in inserted}
