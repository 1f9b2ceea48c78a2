"""The promises P1–P8, checked on what changed, at every commit and every block, against the simulated chain's truth.

Our own tables are believed only as far as the chain, the bytes that reached its nodes, and the order of commits bear
them out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

from nonchalant.desk import Desk
from nonchalant.engine import Engine
from nonchalant.fees import is_within_caps, replacement_floor
from nonchalant.heads import REMEMBERED
from nonchalant.lifecycle import (
    TABLE,
    Assigned,
    Broadcast,
    Cancelled,
    Confirmed,
    Expired,
    Failed,
    Included,
    Move,
    Outrun,
    Recalled,
    Reorged,
    Reverted,
    Superseded,
)
from nonchalant.model import Change, Event, Fees, Lease, Request, Transaction
from nonchalant.ports import Acceptance
from nonchalant.sim.blocks import SimBlock
from nonchalant.sim.endpoint import SimEndpoint
from nonchalant.sim.facts import Facts, Known, short
from nonchalant.sim.moves import Move as Deed
from nonchalant.sim.obedience import Obedience
from nonchalant.sim.pool import No
from nonchalant.sim.trace import Trace
from nonchalant.sim.traffic import Errand, is_sound
from nonchalant.sim.violations import Violations
from nonchalant.sim.wire import Effect, Order, SimTx, read_order
from nonchalant.wishes import Wish
from nonchalant.words import TERMINAL_STATES, AttemptKind, Hash, LaneKey, Millis, Mode, State, TxId

# A follower keeps this many block hashes above what it remembers below finality, at the very most.
MOST_UNFINAL = 600


@dataclass(frozen=True, slots=True)
class Edge:
    """One state-changing move of the lifecycle's table."""

    source: State
    move: type[Move]
    target: State

    def __str__(self) -> str:
        return f"{self.source} --{self.move.__name__.lower()}--> {self.target}"


EDGES = tuple(Edge(state, move, target) for (state, move), target in TABLE.items() if state is not target)
# Which move an event tells of; where several tell it alike, the first one that leads on from the state.
_TOLD: Mapping[str, Sequence[type[Move]]] = {
    "tx.signed": [Assigned],
    "tx.sent": [Broadcast],
    "tx.mined": [Included],
    "tx.reorged": [Reorged],
    "tx.superseded": [Superseded],
    "tx.requeued": [Recalled],
    "tx.confirmed": [Confirmed],
    "tx.reverted": [Reverted],
    "tx.failed": [Failed, Outrun],
    "tx.cancelled": [Cancelled],
    "tx.expired": [Expired],
}


class Checker:
    """Watches one history: an `Auditor` of the store, an `Observer` of the chains."""

    def __init__(self, facts: Facts, report: Violations, trace: Trace, obedience: Obedience) -> None:
        self.edges: Counter[Edge] = Counter()
        self.now: Callable[[], Millis] = lambda: 0
        self.engine_of: Callable[[str], Engine | None] = lambda _who: None
        self.told_of_work: Callable[[LaneKey], None] = lambda _lane: None  # called when something was accepted
        self._facts = facts
        self._report = report
        self._trace = trace
        self._obedience = obedience
        self._held: tuple[str | None, int, Millis] = (None, 0, 0)  # the lease, just before the commit
        self._inexact: str | None = None
        self._loads: dict[tuple[LaneKey, int], int] = {}  # how often an epoch's owner has read its lane
        self._asked: dict[int, tuple[Change, int]] = {}  # changes handed over, and how often it was read until then
        self._keys: dict[str, tuple[TxId, int]] = {}
        self._given: list[int] = []  # nonces, by the commit that is looked at

    # the store

    def accepted(self, requests: Sequence[Request], answers: Sequence[Acceptance]) -> None:
        for request, answer in zip(requests, answers, strict=True):
            if isinstance(answer, Transaction) and request.id not in self._facts.states:
                self._facts.states[answer.id] = State.QUEUED
                self._facts.accepted.add(answer.id)
                self._obedience.accepted(answer)
                self._trace("store", f"accepts {self._facts.name(answer)} on {short(answer.lane)}")
                self.told_of_work(answer.lane)

    def acquired(self, who: str, lane: LaneKey, epoch: int) -> None:
        self._trace(who, f"takes {short(lane)} with epoch {epoch}")
        other = self._facts.acquire(who, lane, epoch)
        if other != who:
            self._report("P6", f"epoch {epoch} of {short(lane)} was given to {other} and to {who}")

    def committing(self, who: str, lease: Lease) -> None:
        sql = "SELECT owner, epoch, expires_at FROM leases WHERE chain_id = ? AND address = ?"
        [row] = self._facts.rows(sql, *lease.lane)
        self._held = row["owner"], row["epoch"], row["expires_at"]
        engine = self.engine_of(who)
        desk = engine.desks.get(lease.lane) if engine else None
        self._inexact = self._compare(desk) if desk and desk.lease.epoch == lease.epoch else None

    def _compare(self, desk: Desk) -> str | None:
        """How the owner's copy of the lane differs from the store; None if it does not."""
        found = self._facts.rows(
            "SELECT attempts.hash, transactions.version FROM slots JOIN attempts USING (chain_id, address, nonce)"
            " LEFT JOIN transactions ON transactions.id = slots.tx_id"
            " WHERE slots.chain_id = ? AND slots.address = ? AND slots.settled = 0 AND attempts.tx_id IS slots.tx_id"
            " AND attempts.given_back = 0",
            *desk.key,
        )
        stored = {(row["hash"], row["version"]) for row in found}
        copy = set[tuple[Hash, int | None]]()
        for slot in desk.lane.slots.values():
            tx = desk.lane.transaction_of(slot)
            copy |= {(attempt.hash, tx.version if tx else None) for attempt in slot.attempts}
        if stored == copy:
            return None
        return f"the store has {_some(stored - copy)}, its owner {_some(copy - stored)}"

    def loaded(self, lease: Lease) -> None:
        self._loads[lease.lane, lease.epoch] = self._loads.get((lease.lane, lease.epoch), 0) + 1

    def asked(self, change: Change, lease: Lease) -> None:
        self._asked[id(change)] = change, self._loads.get((lease.lane, lease.epoch), 0)

    def committed(self, who: str, change: Change, lease: Lease) -> None:
        self._check_fence(who, lease)
        _, loads = self._asked.pop(id(change))
        if loads != self._loads.get((lease.lane, lease.epoch), 0):
            self._report("P6", f"{who} read {short(lease.lane)} anew while a commit of its epoch was still on its way")
        for attempt in change.attempts:
            self._facts.commit(attempt, lease.lane)
        for nonce in change.freed:
            if self._facts.left.get((lease.lane, nonce)):
                self._report("P1", f"nonce {nonce} of {short(lease.lane)} was freed, and bytes for it had left")
        self._given = [attempt.nonce for attempt in change.attempts if attempt.kind is AttemptKind.ORIGINAL]
        for tx in change.transactions:
            self._check_move(tx, change.events, change.freed)
            self._check_nonce(tx)
        self._obedience.committed(change, lease)
        self._note(who, change, lease)

    def altered(self, who: str, tx: Transaction, events: Sequence[Event]) -> None:
        told = ", ".join(event.kind for event in events) or "repriced"
        self._trace(who, f"{self._facts.name(tx)} {tx.state}: {told}")
        before = self._facts.states.get(tx.id, State.QUEUED)
        self._check_move(tx, events)
        self._obedience.altered(before, tx, [event.kind for event in events])

    def wished(self, who: str, wish: Wish) -> None:
        self._trace(who, f"{short(wish.lane)}: somebody wants {_in_words(wish)}")
        self._obedience.wished(wish)

    def controlled(self, who: str, lane: LaneKey, mode: Mode) -> None:
        self._trace(who, f"{short(lane)} is to be {mode}")
        self._obedience.controlled(lane, mode)

    def _check_fence(self, who: str, lease: Lease) -> None:
        """P6: whoever writes holds the lease now, took it itself, and knows the lane as the store does."""
        owner, epoch, expires_at = self._held
        wrote = f"{who} wrote to {short(lease.lane)}"
        if (owner, epoch) != (lease.owner, lease.epoch) or expires_at <= self.now():
            self._report("P6", f"{wrote} with epoch {lease.epoch}, but it was held with {epoch}")
        holder = self._facts.holders.get((lease.lane, lease.epoch))
        if holder != who:
            self._report("P6", f"{wrote} with the lease that {holder} took")
        if self._inexact is not None:
            self._report("P6", f"{wrote} from a copy that is not exact: {self._inexact}")

    def _note(self, who: str, change: Change, lease: Lease) -> None:
        parts = [f"{self._facts.name(tx)} {tx.state}" for tx in change.transactions]
        parts += [f"{attempt.kind} {attempt.hash[2:8]} at {attempt.nonce}" for attempt in change.attempts]
        parts += [f"frees {nonce}" for nonce in change.freed]
        parts += [f"settles {slot.nonce}" for slot in change.slots if slot.settled]
        parts += [f"{attempt.hash[2:8]} {attempt.answer}" for attempt in change.answered]
        if change.lane is not None:
            quarantine = change.lane.quarantined_below
            parts.append(f"next {change.lane.next_nonce}" + (f" quarantine {quarantine}" if quarantine else ""))
        self._trace(who, f"{short(lease.lane)} e{lease.epoch}: {', '.join(parts)}")

    def halted(self, who: str, chain_id: int, reason: str) -> None:
        """P2: finality holds in every history, so nobody has reason to stop a chain."""
        self._report("P2", f"{who} halts chain {chain_id} without need: {reason}")

    # what becomes of a transaction

    def _check_move(self, tx: Transaction, events: Sequence[Event], freed: Collection[int] = ()) -> None:
        before = self._facts.states.get(tx.id, State.QUEUED)
        name = self._facts.name(tx)
        if before in TERMINAL_STATES:
            self._report("P7", f"{name} was {before} for good, and is {tx.state} now")
        told = self._follow_events(tx, before, events)
        if told is not tx.state:
            self._report("P7", f"{name} is {tx.state}, and its events say that it is {told}")
        self._facts.states[tx.id] = tx.state
        match tx.state:
            case State.CONFIRMED | State.REVERTED:
                self.check_outcome(tx)
            case State.FAILED:
                self._check_failed(tx)
            case State.CANCELLED | State.EXPIRED:
                self._obedience.check_ended(tx)
                self._check_spent(tx)
            case State.QUEUED if before is not State.QUEUED:
                self._check_requeued(tx, freed)
            case _:
                pass

    def _follow_events(self, tx: Transaction, state: State, events: Sequence[Event]) -> State:
        """Where the commit's events lead; the edges they take are counted."""
        for event in events:
            for move in _TOLD.get(event.kind, ()) if event.tx_id == tx.id else ():
                target = TABLE.get((state, move))
                if target is not None:
                    self.edges[Edge(state, move, target)] += 1
                    state = target
                    break
        return state

    def check_outcome(self, tx: Transaction) -> None:
        """P7: executed on the canonical chain at finality, by one of its own attempts, just as the receipt says."""
        told, name = tx.receipt, self._facts.name(tx)
        assert told is not None
        block = self._facts.chains[tx.lane.chain_id].final.at(told.block.number)
        if block is None or block.hash != told.block.hash:
            self._report("P7", f"{name} is {tx.state} by block {told.block.number}, which is not final")
            return
        truth = block.receipts.get(told.hash)
        if truth != told or truth.succeeded != (tx.state is State.CONFIRMED):
            self._report("P7", f"{name} is {tx.state} by {told}, but the chain says {truth}")
        label = next((one.order.label for one in block.transactions if one.hash == told.hash), None)
        known = self._facts.attempts.get(told.hash)
        version = known.version if known else 0
        named = read_order(tx.payload_of(version).data).label if version else None
        if label is None or label != named:
            self._report("P7", f"{name} is {tx.state} by the receipt of {label!r}, and names {named!r}")

    def _check_spent(self, tx: Transaction) -> None:
        """P7: what was called off in flight is over because something that does nothing took its nonce for good."""
        if tx.receipt is None:
            return
        name, block = self._facts.name(tx), self._facts.chains[tx.lane.chain_id].final.at(tx.receipt.block.number)
        known = self._facts.attempts.get(tx.receipt.hash)
        if block is None or tx.receipt != block.receipts.get(tx.receipt.hash):
            self._report("P7", f"{name} is {tx.state}, and what took its nonce is not final")
        elif known is None or known.version or known.tx_id != tx.id:
            self._report("P7", f"{name} is {tx.state} by {tx.receipt.hash[2:8]}, which is not what cancels it")

    def _check_failed(self, tx: Transaction) -> None:
        """P7: no attempt left; or what was executed in its stead is final."""
        errand, name = self._facts.errand_of(tx), self._facts.name(tx)
        if self._facts.executions(tx.lane.chain_id, errand.label):
            self._report("P7", f"{name} is failed, and the chain has executed it: {tx.failure}")
        if tx.receipt is not None:
            block = self._facts.chains[tx.lane.chain_id].final.at(tx.receipt.block.number)
            if block is None or tx.receipt.hash not in block.receipts:
                self._report("P7", f"{name} is failed, and what took its nonce is not final")
            return
        consumed = self._facts.consumed(tx.lane, final=True)
        for known in self._facts.attempts_of(tx):
            if known.nonce >= consumed and tx.id in self._facts.left.get((known.lane, known.nonce), {}):
                self._report("P7", f"{name} is failed, and {known.hash[2:8]} left: {tx.failure}")
        if tx.failure is not None and tx.failure.startswith("nonce too "):
            self._check_refused_nonce(tx)
        elif is_sound(tx.payload):
            self._check_unestimable(tx, read_order(tx.payload.data))

    def _check_nonce(self, tx: Transaction) -> None:
        """P1: who named a nonce has that one or none."""
        if tx.asked_nonce is None or tx.nonce is None:
            return
        if tx.nonce != tx.asked_nonce:
            self._report("P1", f"{self._facts.name(tx)} asked for nonce {tx.asked_nonce}, and has {tx.nonce}")
        self._obedience.moves[Deed.ASKED_NONCE] += tx.state is State.SIGNED

    def _check_refused_nonce(self, tx: Transaction) -> None:
        """P7: who named a nonce fails for it only if another has that one, or a lower one is still to come."""
        self._obedience.moves[Deed.ASKED_NONCE_REFUSED] += 1
        asked, consumed = tx.asked_nonce, self._facts.consumed(tx.lane, final=False)
        sql = "SELECT next_nonce, settled_below FROM lanes WHERE chain_id = ? AND address = ?"
        [row] = self._facts.rows(sql, *tx.lane)
        # In the same commit, others may have got the numbers that were kept; and its owner may not know yet what ran.
        slots = self._facts.rows("SELECT nonce FROM slots WHERE chain_id = ? AND address = ?", *tx.lane)
        bound = {slot["nonce"] for slot in slots} - set(self._given)
        lowest = next(nonce for nonce in count(row["settled_below"]) if nonce not in bound)
        too_low = "too low" in str(tx.failure)
        if asked is None or (asked > max(row["next_nonce"] or 0, consumed) if too_low else asked == lowest >= consumed):
            self._report(
                "P7", f"{self._facts.name(tx)} asked for {asked}, {lowest} was next, and it failed: {tx.failure}"
            )

    def _check_unestimable(self, tx: Transaction, order: Order) -> None:
        """P7: a sound payload fails only if it reverts in the estimate, and nothing ahead of it can change that."""
        name = self._facts.name(tx)
        match order.effect:
            case Effect.NEVER:
                pass
            case Effect.AFTER:
                ahead = [one for one in self._facts.live(tx.lane) if one.place < tx.place]
                needed = [one for one in ahead if read_order(one.payload.data).label == order.after]
                if any(one.state is not State.MINED for one in needed):
                    self._report("P7", f"{name} is failed, and {order.after}, on which it waits, is still to run")
            case _:
                self._report("P7", f"{name} is failed, and nothing is wrong with it: {tx.failure}")

    def _check_requeued(self, tx: Transaction, freed: Collection[int]) -> None:
        """P3: it may have a second slot only if the first was consumed, at finality, by none of its attempts.

        Or if it was given back, because none of them had left: whether that is so is checked where it is freed.
        """
        name = self._facts.name(tx)
        mine = [known for known in self._facts.attempts_of(tx) if not self._facts.is_torn(known)]
        consumed = self._facts.consumed(tx.lane, final=True)
        for known in mine:
            if known.nonce >= consumed and known.nonce not in freed and self._facts.is_known(known):
                self._report("P3", f"{name} is queued again, and its nonce {known.nonce} is not consumed at finality")
        # What did nothing, and went with the commits that were lost, is no execution of it.
        hashes = {known.hash for known in mine if known.version or self._facts.is_known(known)}
        ran = [one.hash for _, one in self._facts.canonical(tx.lane) if one.hash in hashes]
        if ran and not tx.held:
            self._report("P3", f"{name} is queued again, and {ran[0][2:8]} was executed")

    # the chains

    def arrived(self, endpoint: SimEndpoint, tx: SimTx, verdict: No | None) -> None:
        lane = LaneKey(tx.chain_id, tx.sender)
        slot = f"nonce {tx.nonce} of {short(lane)}"
        self._trace(endpoint.name, f"{tx.hash[2:8]} at {slot}: {verdict or 'taken'}")
        known = self._facts.attempts.get(tx.hash)
        if known is None:
            self._report("P4", f"{tx.hash[2:8]} at {slot} reached {endpoint.name} unrecorded")
            return
        if not self._facts.is_known(known):
            return  # from before commits were lost
        if verdict is not No.FAULTY:
            bound = self._facts.left.setdefault((lane, tx.nonce), {})
            bound.setdefault(known.tx_id, tx.hash)
            if len(bound) > 1:
                self._report("P1", f"{slot} was broadcast for {len(bound)} different things")
        if verdict is No.REPLACEMENT:
            self._check_step(endpoint, tx, known)

    def _check_step(self, endpoint: SimEndpoint, tx: SimTx, known: Known) -> None:
        """P5: a new price that a pool does not take instead of the old one closes no gap."""
        held = endpoint.pool.at(tx.sender, tx.nonce)
        other = self._facts.attempts.get(held.hash) if held else None
        if AttemptKind.OUTSIDE in (known.kind, other.kind if other else None):
            return  # what somebody else signed may have any price
        rules = self._obedience.prices[known.lane]
        does_nothing = known.kind in (AttemptKind.CANCEL, AttemptKind.FILLER)
        if held and does_nothing and not is_within_caps(replacement_floor(Fees(held.max_fee), rules), rules):
            return  # held at the cap: what takes its place is signed at the cap too, for pools that have dropped it
        if other and self._facts.is_known(other) and other.tx_id == known.tx_id and other.rank < known.rank:
            self._report(
                "P5", f"{endpoint.name} refuses {tx.hash[2:8]} as too cheap to replace our own earlier attempt"
            )

    def grown(self, head: SimBlock, dropped: Sequence[SimBlock]) -> None:
        chain = next(chain for chain in self._facts.chains.values() if chain.head is head)
        for block in self._facts.grow(chain, head, dropped):
            ran = "".join(f" {tx.order.label or 'filler'}@{tx.nonce}" for tx in block.transactions)
            happened = "".join(f" {one.deed}" for one in block.happenings)
            self._trace(f"chain-{chain.chain_id}", f"block {block.number} {block.hash[2:8]}{ran}{happened}")
            for label in {tx.order.root: None for tx in block.transactions if tx.order.label}:
                times = self._facts.executions(chain.chain_id, label)
                if times > 1:
                    self._report("P3", f"{label} was executed {times} times")
            for tx in block.transactions:
                self._check_ran(tx)

    def _check_ran(self, tx: SimTx) -> None:
        """P7: what was said never to run does not."""
        known = self._facts.attempts.get(tx.hash)
        if known is None or known.tx_id is None or not known.version or not self._facts.is_known(known):
            return
        state = self._facts.states.get(known.tx_id)
        if state in (State.CANCELLED, State.EXPIRED, State.FAILED):
            self._report("P7", f"{tx.order.label} is {state}, and was executed all the same")

    # the clients

    def answered(self, errand: Errand, tx: Transaction) -> None:
        """P2, P3: a key stands for one transaction, for as long as the store remembers."""
        if (tx.payload_of(1), tx.lane) != (errand.payload, errand.lane):
            self._report("P2", f"{errand.label} was answered with another transaction")
        if errand.key is not None:
            first, store = self._keys.get(errand.key, (tx.id, self._facts.stores))
            if store == self._facts.stores and first != tx.id:
                self._report("P3", f"{errand.key} stands for {first[:4]} and for {tx.id[:4]}")
            self._keys[errand.key] = tx.id, self._facts.stores
        self._facts.acknowledged.setdefault(tx.id, errand.label)

    def unwanted(self, label: str) -> None:
        """Somebody is about to ask that it be cancelled."""
        self._facts.unwanted.add(label)

    def unwanted_lane(self, lane: LaneKey) -> None:
        self._facts.unwanted |= {errand.label for errand in self._facts.errands.values() if errand.lane == lane}

    # what a node holds in memory

    def check_sizes(self, engine: Engine, queue_limits: Mapping[LaneKey, int]) -> None:
        """P8: it is bounded by what is live."""
        for lane, desk in engine.desks.items():
            sizes = {
                "sendings": (len(desk.sendings), len(desk.lane.attempt_hashes())),
                "outlets": (len(desk.outlets), len(desk.chain.endpoints)),
                "postponed": (len(desk.postponed), queue_limits[lane] + len(self._facts.errands)),
                "transactions": (len(desk.lane.transactions), len(desk.lane.slots)),
                "slots": (len(desk.lane.slots), desk.rules.unsettled + 4 * desk.rules.largest_window),
            }
            for what, (size, most) in sizes.items():
                if size > most:
                    self._report("P8", f"{size} {what} at {short(lane)}, {most} at most")
        for follower in engine.followers.values():
            if follower.remembered > REMEMBERED + MOST_UNFINAL:
                self._report("P8", f"a follower remembers {follower.remembered} blocks")


def _some(attempts: set[tuple[Hash, int | None]]) -> str:
    return " ".join(f"{hash[2:8]} of version {version}" for hash, version in sorted(attempts)) or "nothing more"


def _in_words(wish: Wish) -> str:
    what = type(wish.act).__name__.lower()
    return f"to {what} {wish.tx_id[:4]}" if wish.tx_id else f"a {what}"
