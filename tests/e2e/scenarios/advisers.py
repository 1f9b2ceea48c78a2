"""Attention hooks for scenarios, found by their names as an operator's would be."""

from __future__ import annotations

import time

from nonchalant import Fees, Transaction
from nonchalant.hooks import Answer, Bump, Cancel, HeadSnapshot, LaneSnapshot, Replace, Wait
from nonchalant.model import Market
from nonchalant.words import Millis

GWEI = 10**9
ENOUGH = Fees(90 * GWEI, 2 * GWEI)
TOO_MUCH = Fees(900 * GWEI, 2 * GWEI)

INSTEAD = "0x" + "1d" * 20


def _code(transaction: Transaction) -> str | None:
    return transaction.attention and transaction.attention.code


def pays_more(
    transaction: Transaction, _lane: LaneSnapshot, _head: HeadSnapshot, _fees: Market, _now: Millis
) -> Answer:
    return Bump(ENOUGH) if _code(transaction) == "price_at_cap" else Wait()


def pays_too_much(
    transaction: Transaction, _lane: LaneSnapshot, _head: HeadSnapshot, _fees: Market, _now: Millis
) -> Answer:
    return Bump(TOO_MUCH) if _code(transaction) == "price_at_cap" else Wait()


def gives_up(transaction: Transaction, _lane: LaneSnapshot, _head: HeadSnapshot, _fees: Market, _now: Millis) -> Answer:
    return Cancel() if _code(transaction) == "insufficient_funds" else Wait()


def pays_somebody_else(
    transaction: Transaction, _lane: LaneSnapshot, _head: HeadSnapshot, _fees: Market, _now: Millis
) -> Answer:
    return Replace({"to": INSTEAD, "value": 1}) if _code(transaction) == "insufficient_funds" else Wait()


def raises(_tx: Transaction, _lane: LaneSnapshot, _head: HeadSnapshot, _fees: Market, _now: Millis) -> Answer:
    raise LookupError("a bug in the hook")


def sleeps(_tx: Transaction, _lane: LaneSnapshot, _head: HeadSnapshot, _fees: Market, _now: Millis) -> Answer:
    time.sleep(1.5)
    return Cancel()
