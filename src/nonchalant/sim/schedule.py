"""What will go wrong in a history, and when: drawn from the seed before it begins."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from nonchalant.sim.chance import Chance
from nonchalant.sim.endpoint import Ailment
from nonchalant.sim.gate import StoreAilment


class Kind(StrEnum):
    CRASH = "crash"
    STOP = "graceful_stop"
    PAUSE = "pause"
    CLOCK_SKEW = "clock_skew"
    WAKE_LOST = "wake_up_lost"
    WAKE_DELAYED = "wake_up_delayed"
    STORE_REFUSED = StoreAilment.REFUSED.value
    COMMIT_UNSAID = StoreAilment.DONE_UNSAID.value
    COMMIT_LOST = StoreAilment.LOST_UNSAID.value
    COMMIT_LATE = StoreAilment.DONE_LATE.value
    STORE_RESTORED = "store_restored"
    KEY_MISSING = "node_without_key"
    SIGNER_DOWN = "signer_down"
    SIGNER_WRONG = "signer_wrong"
    ENDPOINT_DOWN = Ailment.DOWN.value
    RATE_LIMITED = Ailment.RATE_LIMITED.value
    SEND_LOST = Ailment.SEND_LOST.value
    SEND_UNANSWERED = Ailment.SEND_UNANSWERED.value
    SEND_LATE = Ailment.SEND_LATE.value
    SEND_REFUSED = Ailment.SEND_REFUSED.value
    FINALIZED_LIE = Ailment.LYING.value
    HEAD_ONLY = Ailment.HEAD_ONLY.value
    COUNT_HIGH = Ailment.COUNT_HIGH.value
    COUNT_LOW = Ailment.COUNT_LOW.value
    BALANCE_HIGH = Ailment.BALANCE_HIGH.value
    BALANCE_LOW = Ailment.BALANCE_LOW.value
    BLOCKS_PRUNED = Ailment.BLOCKS_PRUNED.value
    RECEIPTS_PRUNED = Ailment.RECEIPTS_PRUNED.value
    STAYS_SICK = "endpoint_stays_sick"
    LAGGING = "endpoint_lagging"
    DISAGREEING = "endpoint_disagreeing"
    FINALITY_STALLED = "finality_stalled"
    POOL_EVICTION = "pool_eviction"
    POOL_RESTART = "pool_restart"
    ACCOUNT_LIMIT = "account_limit"
    GAP_SWALLOWED = Ailment.GAP_SWALLOWED.value
    GAP_DROPPED = Ailment.GAP_DROPPED.value
    FEE_SPIKE = "fee_spike"
    CONGESTION = "congestion"
    NO_BLOCKS = "no_blocks"
    GOSSIP_CUT = "gossip_cut"
    REORG_KEPT = "reorg_reincluded"
    REORG_DROPPED = "reorg_dropped"
    REORG_FOREIGN = "reorg_foreign"
    FOREIGN = "foreign_transaction"
    FOREIGN_POOLED = "foreign_in_pools"
    AUTHORISED = "foreign_authorisation"
    DELEGATED = "account_delegated"
    OUT_OF_FUNDS = "out_of_funds"


@dataclass(frozen=True, slots=True)
class Fault:
    """One entry of the schedule. `much` in [0, 1) says how bad; what that means is the kind's affair."""

    at: float
    kind: Kind
    seconds: float
    who: int
    much: float


# A restored store stops every node; more than one in a history would leave little else to see.
RARE = {Kind.STORE_RESTORED: 0.15, Kind.STAYS_SICK: 0.5}


def draw(chance: Chance, span: float) -> list[Fault]:
    """A schedule over `span` seconds. Each history has some kinds often rather than all kinds rarely."""
    kinds = [kind for kind in Kind if kind not in RARE]
    favourites = chance.sample(kinds, chance.randint(6, 12))
    faults = [
        Fault(
            at=chance.uniform(0.02, 1.0) * span,
            kind=chance.choice(favourites if chance.random() < 0.8 else kinds),
            seconds=chance.uniform(3.0, 90.0),
            who=chance.randint(0, 999),
            much=chance.random(),
        )
        for _ in range(chance.randint(24, 46))
    ]
    for kind, odds in RARE.items():
        if chance.random() < odds:
            faults.append(Fault(chance.uniform(0.2, 0.9) * span, kind, 0.0, 0, chance.random()))
    # Somebody must take over when everything else is well again, and find out what happened meanwhile.
    faults += [
        Fault(span - chance.uniform(0.0, 10.0), Kind.CRASH, 0.0, chance.randint(0, 999), 0.0)
        for _ in range(chance.randint(0, 2))
    ]
    # A lie does harm only if what was called final then goes away.
    for lie in [fault for fault in faults if fault.kind is Kind.FINALIZED_LIE]:
        soon = lie.at + chance.uniform(0.2, 1.0) * lie.seconds
        faults.append(Fault(soon, Kind.REORG_DROPPED, 0.0, lie.who, chance.uniform(0.5, 1.0)))
    return sorted(faults, key=lambda fault: fault.at)
