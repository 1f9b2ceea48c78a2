"""What must hold once nothing goes wrong any more: holes are closed, everything settles, and the ends are true."""

from __future__ import annotations

from collections.abc import Sequence

from nonchalant.desk import ASIDE_MARK
from nonchalant.model import Transaction
from nonchalant.sim.facts import Facts, short
from nonchalant.sim.loop import SimLoop
from nonchalant.sim.obedience import Obedience
from nonchalant.sim.properties import Checker
from nonchalant.sim.violations import Violations
from nonchalant.words import LaneKey, OnSuperseded, State

# Seconds: how long a hole may stay open, and how long `sent` may be said of what was executed.
LONGEST_HOLE = 60.0
LONGEST_SILENCE = 20.0


class Endings:
    def __init__(self, facts: Facts, report: Violations, checker: Checker, obedience: Obedience, loop: SimLoop) -> None:
        self._facts = facts
        self._report = report
        self._checker = checker
        self._obedience = obedience
        self._loop = loop
        self._holes: dict[tuple[LaneKey, int], float] = {}

    def check_quiet(self) -> None:
        self._check_holes()
        self._check_told()

    def _check_holes(self) -> None:
        """P5: below a nonce that was broadcast, every other one is used or bound."""
        now = self._loop.time()
        still: dict[tuple[LaneKey, int], float] = {}
        for lane, highest in self._facts.highest().items():
            bound = self._facts.slots(lane)
            for nonce in range(self._facts.consumed(lane, final=False), highest):
                if nonce not in bound:
                    still[lane, nonce] = since = self._holes.get((lane, nonce), now)
                    if now - since > LONGEST_HOLE:
                        self._report("P5", f"nonce {nonce} of {short(lane)} is a hole that nobody closes")
        self._holes = still

    def _check_told(self) -> None:
        """P7: nobody is told that something is on its way long after it was executed.

        Unless a restored store has forgotten the attempt that ran: then only finality can tell.
        """
        on_its_way = {
            self._facts.errand_of(tx).label: tx for tx in self._facts.live() if tx.state in (State.SIGNED, State.SENT)
        }
        for lane in {tx.lane: None for tx in on_its_way.values()}:
            for block, ran in self._facts.canonical(lane):
                tx = on_its_way.get(ran.order.label)
                late = self._loop.time() - self._facts.born[block.hash] > LONGEST_SILENCE
                if tx is not None and late and self._facts.is_stored(ran.hash):
                    self._report("P7", f"{self._facts.name(tx)} is {tx.state}, long after block {block.number} ran it")

    def check_dear_market(self, lanes: Sequence[LaneKey]) -> None:
        """P2: who names no price, or a high one, need not wait for better times."""
        for lane in filter(self._obedience.is_open, lanes):
            waiting = self._facts.live(lane)
            if waiting and not any(self._facts.errand_of(tx).thrifty for tx in waiting):
                self._report("P2", f"{len(waiting)} transactions of {short(lane)} never settle in a dear market")

    def check_end(self) -> None:
        for lane, highest in self._facts.highest().items():
            if self._facts.consumed(lane, final=True) <= highest:
                self._report("P5", f"nonce {highest} of {short(lane)} was broadcast, and is never used")
            if slots := self._facts.slots(lane):
                self._report("P2", f"slots {sorted(slots)} of {short(lane)} never settle")
        for tx in self._facts.transactions():
            self._check_ending(tx)
        kept = self._facts.ids() | self._facts.lost
        for tx_id, label in self._facts.acknowledged.items():
            if tx_id not in kept:
                self._report("P2", f"{label} was accepted, and is gone")

    def _check_ending(self, tx: Transaction) -> None:
        """P2, P7: one end, and it is what the chain says."""
        name, ran = self._facts.name(tx), self._facts.executions(tx.lane.chain_id, self._facts.errand_of(tx).label)
        match tx.state:
            case State.CONFIRMED | State.REVERTED:
                self._checker.check_outcome(tx)
            case State.FAILED if ran:
                self._report("P7", f"{name} is failed, and was executed")
            case State.FAILED:
                pass
            case State.CANCELLED | State.EXPIRED:
                self._obedience.check_ended(tx)
            case State.QUEUED if not self._obedience.is_open(tx.lane):
                pass
            case State.QUEUED if tx.held:
                if not self._may_be_held(tx, bool(ran)):
                    self._report("P2", f"{name} is held without need: {tx.attention}")
            case _:
                self._report("P2", f"{name} is {tx.state} in the end: {tx.attention}")

    def _may_be_held(self, tx: Transaction, ran: bool) -> bool:
        """Only because commits were lost, or may have been, or finality is a mere depth, is anything left to a person."""
        match tx.attention.code if tx.attention else None:
            case "same_payload_executed":
                return ran
            case "store_lost_commits":
                return self._facts.stores > 0 or self._facts.is_used_by_others(tx.lane)
            case "superseded":
                by_depth = not self._facts.chains[tx.lane.chain_id].terrain.tagged
                default = OnSuperseded.HOLD if by_depth else OnSuperseded.REQUEUE
                asked = self._facts.errand_of(tx).on_superseded or default
                return asked is OnSuperseded.HOLD and self._facts.is_used_by_others(tx.lane)
            case _ if tx.attention is not None and tx.attention.code == ASIDE_MARK:
                return self._obedience.is_poisonous(self._facts.errand_of(tx).label)
            case _:
                return False
