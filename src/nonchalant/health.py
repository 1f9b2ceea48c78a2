"""Whether a lane is fit to give out nonces. Everything else goes on whatever this says: watching, rescuing, settling.

No check may lock a lane out: what only sending could mend fails only while something is on its way.
"""

from __future__ import annotations

from dataclasses import dataclass

from nonchalant.model import Attention
from nonchalant.words import LaneKey, Millis, Wei

OUT_OF_FUNDS = "insufficient_funds"


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthRules:
    """What a lane must show; None: that is not looked at. Times are in seconds."""

    min_balance: Wei | None = None
    movement_within: float | None = 3600.0
    confirmation_within: float | None = None
    max_resets: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Signs:
    """How a lane does. Each time runs only while something is on its way."""

    balance: Wei
    lacks: Wei = 0  # to pay what is in flight, or anything of what waits
    in_flight: int = 0
    unsettled: int = 0
    since_movement: Millis = 0  # its nonce moved on the chain
    since_confirmation: Millis = 0  # something of it became final
    resets: int = 0  # since something of it became final


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulse:
    """What is known of a lane's progress, and when it was last seen to change, in ticks of its owner's clock."""

    count: int
    moved_at: Millis
    confirmed: Millis | None
    confirmed_at: Millis


def feel(
    before: Pulse | None, *, count: int, confirmed: Millis | None, in_flight: int, unsettled: int, ticks: Millis
) -> Pulse:
    """The pulse now. `confirmed` is the lane's own record of it; `before` None: it is felt for the first time."""
    moved = before is None or not in_flight or count != before.count
    became_final = before is None or not unsettled or confirmed != before.confirmed
    return Pulse(
        count=count,
        moved_at=ticks if before is None or moved else before.moved_at,
        confirmed=confirmed,
        confirmed_at=ticks if before is None or became_final else before.confirmed_at,
    )


def ailment(lane: LaneKey, signs: Signs, rules: HealthRules, now: Millis) -> Attention | None:
    """Why the lane should give out no nonces now; None: it may. The reason stays the same while the cause does."""
    return _want_of_funds(lane, signs, rules, now) or _want_of_progress(signs, rules, now)


def _want_of_funds(lane: LaneKey, signs: Signs, rules: HealthRules, now: Millis) -> Attention | None:
    if signs.lacks:
        reason = (
            f"{lane.address} lacks {signs.lacks} wei on chain {lane.chain_id}; it goes on as soon as they are there"
        )
        return Attention(OUT_OF_FUNDS, reason, now)
    if rules.min_balance is not None and signs.balance < rules.min_balance:
        reason = f"{lane.address} has {signs.balance} wei on chain {lane.chain_id}, and should have {rules.min_balance}"
        return Attention("balance_below_minimum", reason, now)
    return None


def _want_of_progress(signs: Signs, rules: HealthRules, now: Millis) -> Attention | None:
    if signs.in_flight and _is_over(rules.movement_within, signs.since_movement):
        reason = f"none of what is in flight was executed for {rules.movement_within:g} s"
        return Attention("no_movement", reason, now)
    if signs.unsettled and _is_over(rules.confirmation_within, signs.since_confirmation):
        reason = f"none of what was sent became final for {rules.confirmation_within:g} s"
        return Attention("no_confirmation", reason, now)
    if signs.unsettled and rules.max_resets is not None and signs.resets > rules.max_resets:
        reason = f"it was reset {signs.resets} times since something of it became final"
        return Attention("too_many_resets", reason, now)
    return None


def _is_over(within: float | None, waited: Millis) -> bool:
    return within is not None and waited > within * 1000
