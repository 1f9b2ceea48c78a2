"""What people do while transactions are on their way: drawn from the seed before a history begins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from nonchalant.model import Fees, Payload
from nonchalant.sim.chain import Terrain
from nonchalant.sim.chance import Chance
from nonchalant.sim.traffic import TOO_LITTLE_GAS, Errand
from nonchalant.sim.wire import AGAIN, Effect, Order
from nonchalant.values import replace
from nonchalant.words import LaneKey, Speed


class Move(StrEnum):
    """What is counted: it did something, or was answered as it should be."""

    DEPENDENT = "dependent_request"  # its estimate reverts until an earlier one of the lane has run
    REVERTING = "reverting_request"
    HOPELESS = "hopeless_request"  # it reverts in the estimate already
    FAULTY = "faulty_request"  # no node takes its bytes
    GREEDY = "greedy_request"  # no node takes it, and that proves nothing
    TOGETHER = "accepted_together"
    ADMITTED = "accepted_and_signed_at_once"
    ADMITTED_TOGETHER = "several_accepted_and_signed_at_once"
    ASKED_NONCE = "sent_at_the_nonce_it_asked_for"
    ASKED_NONCE_REFUSED = "asked_nonce_too_low_or_too_high"
    DEPTH = "depth_told"
    DEADLINE_QUEUED = "deadline_while_queued"
    DEADLINE_IN_FLIGHT = "deadline_in_flight"
    CANCEL_QUEUED = "cancel_while_queued"
    CANCEL_IN_FLIGHT = "cancel_in_flight"
    CANCEL_MINED = "cancel_after_block"
    BUMP = "bump"
    REPLACE_QUEUED = "replace_while_queued"
    REPLACE_IN_FLIGHT = "replace_in_flight"
    HOLD = "hold"
    RELEASE = "release"
    STRICT = "sent_in_strict_lane"
    SHARED = "sent_in_shared_lane"
    PAUSE = "pause_lane"
    DRAIN = "drain_lane"
    RESUME = "resume_lane"
    CANCEL_ALL = "cancel_all"
    SYNC = "sync_lane"
    FILL = "fill_lane"
    RESET = "reset_lane"
    RESET_FORCED = "reset_lane_by_force"
    RESET_REFUSED = "reset_refused"
    RESERVE = "reserve_nonce"
    USED_RAW = "reservation_used_with_bytes"
    USED_HASH = "reservation_used_by_hash"
    RESERVATION_RELEASED = "reservation_released"
    RESERVATION_EXPIRED = "reservation_expired"
    OUTSIDE_LATE = "outside_bytes_after_deadline"
    REFUSED = "wish_refused"
    TOO_LATE = "wish_too_late"
    ADVICE_WAIT = "hook_says_wait"
    ADVICE_BUMP = "hook_says_bump"
    ADVICE_CANCEL = "hook_says_cancel"
    ADVICE_REPLACE = "hook_says_replace"
    ADVICE_ALERT = "hook_alert_told"
    ADVICE_ERROR = "hook_raises"
    ADVICE_NONSENSE = "hook_says_nonsense"
    ADVICE_SLOW = "hook_too_slow"
    HOOK_FAILED = "hook_failure_marked"
    HOOK_REFUSED = "hook_refusal_marked"
    POISON_ENCODER = "poison_for_the_encoder"
    POISON_SEAL = "poison_for_the_seal"
    POISON_ESTIMATE = "poison_in_an_estimate"
    POISON_ASSIGNED = "poison_in_a_row_when_signed"
    POISON_BUMPED = "poison_in_a_row_when_bumped"
    POISON_MINED = "poison_in_a_row_when_mined"
    POISON_FINAL = "poison_in_a_row_when_final"
    SET_ASIDE = "poison_set_aside"


class Act(StrEnum):
    """What somebody asks a node for."""

    CANCEL = "cancel"
    BUMP = "bump"
    REPLACE = "replace"
    HOLD = "hold"  # and release it after a while
    PAUSE = "pause"  # and resume after a while
    DRAIN = "drain"
    CANCEL_ALL = "cancel_all"
    SYNC = "sync"
    FILL = "fill"
    RESET = "reset"
    RESERVE = "reserve"


class Way(StrEnum):
    """What the holder of a reserved nonce does with it."""

    BYTES = "bytes"  # he gives us what he signed
    HASH = "hash"  # he sends it, and tells us its hash
    UNSENT = "unsent"  # he tells us a hash, and nothing ever comes
    SILENT = "silent"  # he sends it, and tells us nothing
    LATE = "late"  # so too, after his time is over
    RELEASED = "released"
    FORGOTTEN = "forgotten"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One thing somebody asks for; of a transaction as soon as it was accepted, or of a lane."""

    at: float
    act: Act
    lane: LaneKey
    node: int  # whom it asks first
    label: str = ""  # of the transaction
    payload: Payload | None = None
    fees: Speed | Fees | None = None
    seconds: float = 0.0  # until it is undone, or until a reservation ends
    way: Way = Way.FORGOTTEN
    force: bool = False


def draw(
    chance: Chance, errands: Sequence[Errand], lanes: Sequence[LaneKey], terrains: Mapping[int, Terrain], span: float
) -> list[Ask]:
    asks = [ask for errand in errands for ask in _about(chance, errand, terrains[errand.lane.chain_id])]
    for lane in lanes:
        for _ in range(chance.choice([0, 0, 1, 2])):
            act = chance.choice([Act.PAUSE, Act.PAUSE, Act.DRAIN, Act.CANCEL_ALL])
            asks.append(_of_lane(chance, act, lane, span))
        for _ in range(chance.choice([0, 1, 3, 5])):
            act = chance.choice([Act.SYNC, Act.FILL, Act.RESET, Act.RESET, Act.RESERVE, Act.RESERVE, Act.RESERVE])
            asks.append(_of_lane(chance, act, lane, span))
    return asks


def _of_lane(chance: Chance, act: Act, lane: LaneKey, span: float) -> Ask:
    return Ask(
        at=chance.uniform(0.05, 0.95) * span,
        act=act,
        lane=lane,
        node=chance.randint(0, 99),
        seconds=chance.uniform(3.0, 60.0),
        way=chance.choice([*Way, Way.LATE, Way.LATE]),
        force=chance.random() < 0.6,
    )


def _about(chance: Chance, errand: Errand, terrain: Terrain) -> Iterator[Ask]:
    """Nothing for most; for some one thing after the other, soon after it was asked for or much later."""
    times = chance.choice([0, 0, 0, 0, 1, 1, 2])
    for number in range(times):
        act = chance.choice([Act.CANCEL, Act.CANCEL, Act.BUMP, Act.BUMP, Act.REPLACE, Act.REPLACE, Act.HOLD])
        ask = Ask(
            at=errand.at + _delay(chance),
            act=act,
            lane=errand.lane,
            node=chance.randint(0, 99),
            label=errand.label,
            seconds=chance.uniform(1.0, 60.0),
        )
        match act:
            case Act.BUMP:
                yield replace(ask, fees=_price(chance, terrain))
            case Act.REPLACE:
                fees = _price(chance, terrain) if chance.random() < 0.5 else None
                yield replace(ask, payload=_other(chance, errand, number), fees=fees)
            case _:
                yield ask


def _delay(chance: Chance) -> float:
    dice = chance.random()
    if dice < 0.4:
        return chance.uniform(0.0, 1.0)
    return chance.uniform(1.0, 12.0) if dice < 0.7 else chance.uniform(12.0, 90.0)


def _price(chance: Chance, terrain: Terrain) -> Speed | Fees | None:
    """Whatever the market asks, or a price that any market takes."""
    dice = chance.random()
    if dice < 0.3:
        return None
    if dice < 0.6:
        return chance.choice(list(Speed))
    cap = int(terrain.base_fee * chance.uniform(6.5, 13.0))
    return Fees(cap, None if terrain.legacy else int(terrain.base_fee * chance.uniform(0.1, 2.0)))


def _other(chance: Chance, errand: Errand, number: int) -> Payload:
    """Something else, which may be as wrong as what it replaces."""
    effect = chance.choice([Effect.RUNS] * 8 + [Effect.REVERTS, Effect.NEVER])
    order = Order(f"{errand.label}{AGAIN}{number + 1}", effect)
    gas = TOO_LITTLE_GAS if chance.random() < 0.05 else None
    return Payload(to=errand.payload.to, value=chance.randint(0, 10**12), data=order.data(), gas=gas)
