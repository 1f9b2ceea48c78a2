"""How much of an account may be on its way at once, and what nodes' answers say about that.

The window bounds broadcasting: what is signed beyond it stays bound to its nonce, and is sent in order as room comes.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, StrEnum, auto

from nonchalant.policy import ACCEPTED, Sending
from nonchalant.rejections import Rejection


class Pace(StrEnum):
    """Whether the next transaction waits until the one before it was consumed."""

    PIPELINED = "pipelined"
    STRICT = "strict"


def effective(limit: int, pace: Pace, *, delegated: bool, learnt: int | None) -> int:
    """How many may be in flight now. Pools hold one transaction of an account with delegated code."""
    if pace is Pace.STRICT or delegated:
        return 1
    return limit if learnt is None else max(1, min(limit, learnt))


def after_answers(window: int, sending: Sending, before: int) -> int:
    """The window once every endpoint has answered to the slot that so many open ones are `before`.

    It shrinks if nodes have no room for it: one of them said so when it last answered, and none took it.
    """
    said = sending.said.values()
    if sending.under_way or ACCEPTED in said:
        return window
    if Rejection.IN_FLIGHT_LIMIT_DELEGATED.value in said:
        return 1
    return shrunk(window, before) if Rejection.ACCOUNT_LIMIT_EXCEEDED.value in said else window


class TooHigh(Enum):
    """What to do about an endpoint that calls a nonce too high."""

    RESEND = auto()  # it has a hole: send it everything from the lowest slot on
    WAIT = auto()  # it still has, and gets those again in their turn
    SHRINK = auto()  # it has none: it wants fewer at once


def too_high(sending: Sending, endpoint: str, before: Iterable[Sending]) -> TooHigh:
    """By what the endpoint said of it the last time, and of what is `before` it."""
    if sending.said.get(endpoint) != Rejection.NONCE_TOO_HIGH.value:
        return TooHigh.RESEND
    return TooHigh.SHRINK if all(lower.said.get(endpoint) == ACCEPTED for lower in before) else TooHigh.WAIT


def shrunk(window: int, before: int) -> int:
    """The window once nodes took no more than the slots `before` one; there is always room for one."""
    return max(1, min(window, before))


def grown(learnt: int | None, limit: int, *, blocks: int) -> int | None:
    """What to remember after so many blocks executed something of ours. None: nothing, it is as configured."""
    if learnt is None or learnt + blocks >= limit:
        return None
    return learnt + blocks
