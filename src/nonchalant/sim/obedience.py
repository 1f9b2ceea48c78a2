"""That what people want is done, and nothing else: holds, pauses, deadlines, cancels and replacements.

Judged by the order of commits, the true time and the bytes that are handed over; what our tables say is wanted counts
only from when it was first said.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from nonchalant.desk import ASIDE_MARK, HOOK_FAILED_MARK, HOOK_REFUSED_MARK
from nonchalant.fees import FeeRules, is_within_caps
from nonchalant.judging import WAITS_FOR_EARLIER
from nonchalant.model import Attempt, Change, Lease, Reply, Slot, Transaction
from nonchalant.sim import wire
from nonchalant.sim.facts import Facts, Known, short
from nonchalant.sim.loop import SimLoop
from nonchalant.sim.moves import Move
from nonchalant.sim.traffic import TOO_MUCH_GAS, is_sound
from nonchalant.sim.violations import Violations
from nonchalant.sim.wire import Effect
from nonchalant.wishes import Bump, Fill, Release, Replace, Reserve, Reset, Sync, Use, Wish
from nonchalant.words import AttemptKind, LaneKey, Millis, Mode, SlotKind, State, TxId, Wanted

# Seconds until every owner has heard that its lane is closed, whatever wake-up was lost.
HEARD = 15.0

# Seconds in which bytes that wait at an endpoint that hangs may still be sent, though they are not wanted any more.
UNDER_WAY = 12.0


GRANTED: Mapping[type, Move] = {
    Bump: Move.BUMP,
    Replace: Move.REPLACE_IN_FLIGHT,
    Sync: Move.SYNC,
    Fill: Move.FILL,
    Reserve: Move.RESERVE,
    Release: Move.RESERVATION_RELEASED,
}

# Marks, and what in an event tells of one.
MARKED: Mapping[str, Move] = {
    "hook_alert": Move.ADVICE_ALERT,
    HOOK_FAILED_MARK: Move.HOOK_FAILED,
    HOOK_REFUSED_MARK: Move.HOOK_REFUSED,
}


@dataclass(frozen=True, slots=True)
class Wants:
    """The payload that should run at a slot, and since when it is that one. Nothing wanted (0) is never taken back."""

    version: int
    since: float


class Obedience:
    def __init__(self, facts: Facts, report: Violations, loop: SimLoop) -> None:
        self.moves: Counter[Move] = Counter()
        self.now: Callable[[], Millis] = lambda: 0
        self.strict: frozenset[LaneKey] = frozenset()
        self.shared: frozenset[LaneKey] = frozenset()
        self.prices: Mapping[LaneKey, FeeRules] = {}
        self.is_poisonous: Callable[[str], bool] = lambda _label: False
        self._facts = facts
        self._report = report
        self._loop = loop
        self._held: set[TxId] = set()
        self._deadlines: dict[TxId, Millis] = {}
        self._closed: dict[LaneKey, float] = {}  # lanes that should give out nothing, and since when
        self._wants: dict[tuple[LaneKey, int], Wants] = {}
        self._wishes: dict[str, Wish] = {}
        self._reserved: set[tuple[LaneKey, int]] = set()  # nonces for which somebody else may have signed
        self._expired: set[tuple[LaneKey, int]] = set()
        self._waited: set[TxId] = set()
        self._aside: set[TxId] = set()

    # what is asked for

    def accepted(self, tx: Transaction) -> None:
        if tx.valid_until is not None:
            self._deadlines[tx.id] = tx.valid_until
        order = wire.read_order(tx.payload.data)
        if order.effect is Effect.REVERTS:
            self.moves[Move.REVERTING] += 1
        if order.effect is Effect.NEVER:
            self.moves[Move.HOPELESS] += 1
        if not is_sound(tx.payload):
            self.moves[Move.GREEDY if tx.payload.gas == TOO_MUCH_GAS else Move.FAULTY] += 1

    def wished(self, wish: Wish) -> None:
        self._wishes[wish.id] = wish

    def controlled(self, lane: LaneKey, mode: Mode) -> None:
        self.moves[{Mode.OPEN: Move.RESUME, Mode.DRAINING: Move.DRAIN}.get(mode, Move.PAUSE)] += 1
        if mode is Mode.OPEN:
            self._closed.pop(lane, None)
        else:
            self._closed.setdefault(lane, self._loop.time())

    def is_open(self, lane: LaneKey) -> bool:
        return lane not in self._closed

    def restored(self) -> None:
        """Another, older store from here on: what was asked for since is lost with it."""
        self._wants.clear()
        self._reserved.clear()
        self._held = {row["id"] for row in self._facts.rows("SELECT id FROM transactions WHERE held = 1")}
        found = self._facts.rows("SELECT chain_id, address FROM controls WHERE mode <> 'open'")
        closed = [LaneKey(row["chain_id"], row["address"]) for row in found]
        self._closed = {lane: self._closed.get(lane, self._loop.time()) for lane in closed}

    # what is done

    def altered(self, before: State, tx: Transaction, events: Sequence[str]) -> None:
        """A queued transaction was changed, by any node."""
        self._follow_hold(tx)
        name = self._facts.name(tx)
        if before is not State.QUEUED:
            self._report("P6", f"{name} is {before}, and was changed as if it were queued")
        for kind, move in (("tx.held", Move.HOLD), ("tx.released", Move.RELEASE), ("tx.replaced", Move.REPLACE_QUEUED)):
            self.moves[move] += kind in events
        if tx.state is State.CANCELLED:
            self.moves[Move.CANCEL_QUEUED] += 1
        if tx.state is State.EXPIRED:
            self.moves[Move.DEADLINE_QUEUED] += 1

    def committed(self, change: Change, lease: Lease) -> None:
        self.moves[Move.ADMITTED] += len(change.accepted)
        self.moves[Move.ADMITTED_TOGETHER] += len(change.accepted) > 1
        for attempt in change.attempts:
            if attempt.kind is AttemptKind.ORIGINAL:
                self._check_assigned(attempt, lease.lane)
            if attempt.kind is not AttemptKind.OUTSIDE:
                self._check_price(attempt, lease.lane)
        for tx in change.transactions:
            self._follow_hold(tx)
            self._count_waiting(tx)
            self._check_aside(tx)
        for nonce in change.freed:
            self._wants.pop((lease.lane, nonce), None)
            self._check_freed(lease.lane, nonce, change)
        for slot in change.slots:
            if slot.tx_id is not None:
                self._follow_wants(slot, lease.lane)
            self._follow_reservation(slot, lease.lane)
        for wish_id, reply in change.granted.items():
            self._count_reply(wish_id, reply)
        for event in change.events:
            self.moves[Move.DEPTH] += event.kind == "tx.depth"
            if event.kind in ("tx.attention", "lane.attention") and (move := MARKED.get(str(event.data.get("code")))):
                self.moves[move] += 1

    def _check_assigned(self, attempt: Attempt, lane: LaneKey) -> None:
        """Nothing that is held, overdue, or in a closed lane gets a nonce."""
        tx_id = attempt.tx_id
        assert tx_id is not None
        label = f"{tx_id[:4]} at nonce {attempt.nonce} of {short(lane)}"
        self.moves[Move.SHARED] += lane in self.shared
        if (lane, attempt.nonce) in self._reserved:
            self._report("P1", f"{label} was signed, and somebody else may have signed for that nonce")
        if tx_id in self._held:
            self._report("P7", f"{label} was signed while it was held")
        if self._deadlines.get(tx_id, self.now() + 1) <= self.now():
            self._report("P7", f"{label} was signed after its deadline")
        since = self._closed.get(lane)
        if since is not None and self._loop.time() - since > HEARD:
            self._report("P7", f"{label} was signed {self._loop.time() - since:.0f} s after its lane was closed")

    def _check_aside(self, tx: Transaction) -> None:
        """Nobody is left aside for what another one does."""
        if tx.attention is None or tx.attention.code != ASIDE_MARK or tx.id in self._aside:
            return
        self._aside.add(tx.id)
        self.moves[Move.SET_ASIDE] += 1
        if not self.is_poisonous(self._facts.errand_of(tx).label):
            self._report("P2", f"{self._facts.name(tx)} is left aside, and nothing is wrong with it: {tx.attention}")

    def _check_price(self, attempt: Attempt, lane: LaneKey) -> None:
        """Whoever asked for it, nothing is signed above the caps, nor at a price that no node can take."""
        fees, what = attempt.fees, f"{attempt.kind} {attempt.hash[2:8]} at nonce {attempt.nonce} of {short(lane)}"
        if not is_within_caps(fees, self.prices[lane]):
            self._report("P7", f"{what} offers {fees}, which is above the cap")
        if fees.priority is not None and fees.priority > fees.max_fee:
            self._report("P7", f"{what} offers {fees}, and no node takes a tip above the price")

    def check_ended(self, tx: Transaction) -> None:
        """What is cancelled was to be cancelled, what is expired is overdue, and neither has run or can still run."""
        name = self._facts.name(tx)
        if tx.state is State.CANCELLED and self._facts.errand_of(tx).label not in self._facts.unwanted:
            self._report("P7", f"{name} is cancelled, and nobody asked for that")
        if tx.state is State.EXPIRED and self._deadlines.get(tx.id, self.now() + 1) > self.now():
            self._report("P7", f"{name} is expired before its deadline")
        mine = [known for known in self._facts.attempts_of(tx) if not self._facts.is_torn(known)]
        # Who calls off what is held for doubt cannot know what a lost commit did; the record keeps the doubt.
        hashes = {known.hash for known in mine if known.version and (not tx.is_in_doubt or self._facts.is_known(known))}
        ran = [one.hash for _, one in self._facts.canonical(tx.lane) if one.hash in hashes]
        if ran:
            self._report("P7", f"{name} is {tx.state}, and {ran[0][2:8]} was executed")
        consumed = self._facts.consumed(tx.lane, final=True)
        for known in mine:
            left = tx.id in self._facts.left.get((known.lane, known.nonce), {})
            if left and known.nonce >= consumed and self._facts.is_known(known):
                self._report("P7", f"{name} is {tx.state}, and {known.hash[2:8]} at nonce {known.nonce} may still run")

    def handed_over(self, who: str, raws: Sequence[bytes]) -> None:
        """Only what is wanted is sent by who knows that it is; an owner that has lost its lane may not know."""
        for raw in raws:
            known = self._facts.attempts.get(wire.hash_of(raw))
            if known is not None and known.lane in self.strict:
                self._check_strict(who, known)
            wants = self._wants.get((known.lane, known.nonce)) if known else None
            if known is None or wants is None or known.version == wants.version or known.tx_id is None:
                continue
            late = self._loop.time() - wants.since
            if late > UNDER_WAY and self._facts.owner(known.lane) == who:
                wanted = f"payload {wants.version}" if wants.version else "nothing"
                slot = f"nonce {known.nonce} of {short(known.lane)}"
                self._report(
                    "P3", f"{who} sends payload {known.version} at {slot}, where {wanted} is wanted for {late:.0f} s"
                )

    def _check_freed(self, lane: LaneKey, nonce: int, change: Change) -> None:
        """Only its holder gives a reserved nonce back."""
        if (lane, nonce) not in self._reserved:
            return
        self._reserved.discard((lane, nonce))
        granted = [self._wishes[wish_id].act for wish_id in change.granted if wish_id in self._wishes]
        if not any(isinstance(act, Release) and act.nonce == nonce for act in granted):
            self._report("P1", f"nonce {nonce} of {short(lane)} was reserved, and is free though nobody released it")

    def _check_strict(self, who: str, known: Known) -> None:
        """One in flight: the next only after the one before was consumed, as far as any endpoint ever showed."""
        self.moves[Move.STRICT] += 1
        before = set(range(self._facts.reached(known.lane), known.nonce))
        if known.lane in self.shared:  # what others have in pools is theirs
            before &= self._facts.slots(known.lane)
        if before:
            slot = f"nonce {known.nonce} of {short(known.lane)}"
            self._report("P5", f"{who} sends {slot}, where nothing may overtake, before the one below was consumed")

    # how it goes on

    def _follow_hold(self, tx: Transaction) -> None:
        if tx.held:
            self._held.add(tx.id)
        else:
            self._held.discard(tx.id)

    def _follow_wants(self, slot: Slot, lane: LaneKey) -> None:
        key, now = (lane, slot.nonce), self._loop.time()
        before = self._wants.get(key)
        version = slot.payload_version if slot.wanted is Wanted.PAYLOAD else 0
        if before is None:
            self._wants[key] = Wants(version, now)
        elif before.version and (version == 0 or version > before.version):
            self._wants[key] = Wants(version, now)
            if slot.wanted is Wanted.CANCEL:
                self.moves[Move.CANCEL_IN_FLIGHT if slot.receipt is None else Move.CANCEL_MINED] += 1
            if slot.wanted is Wanted.EXPIRY:
                self.moves[Move.DEADLINE_IN_FLIGHT] += 1
                assert slot.tx_id is not None
                if self._deadlines.get(slot.tx_id, self.now() + 1) > self.now():
                    self._report("P7", f"{slot.tx_id[:4]} is called off before its deadline")

    def _follow_reservation(self, slot: Slot, lane: LaneKey) -> None:
        key = lane, slot.nonce
        if slot.kind is SlotKind.RESERVATION:
            self._reserved.add(key)
        elif key in self._reserved and not slot.attempts and key not in self._expired:
            self._expired.add(key)
            self.moves[Move.RESERVATION_EXPIRED] += 1

    def _count_waiting(self, tx: Transaction) -> None:
        waits = tx.attention is not None and tx.attention.code == WAITS_FOR_EARLIER
        if waits and tx.id not in self._waited:
            self._waited.add(tx.id)
            self.moves[Move.DEPENDENT] += 1

    def _count_reply(self, wish_id: str, reply: Reply) -> None:
        wish = self._wishes.get(wish_id)
        if reply.refused is not None:
            self.moves[Move.RESET_REFUSED if wish and isinstance(wish.act, Reset) else Move.REFUSED] += 1
            return
        match wish.act if wish else None:
            case Reset(force):
                self.moves[Move.RESET_FORCED if force else Move.RESET] += 1
            case Use(raw=raw):
                self.moves[Move.USED_HASH if raw is None else Move.USED_RAW] += 1
            case Bump() | Replace() | Sync() | Fill() | Reserve() | Release() as act:
                self.moves[GRANTED[type(act)]] += 1
            case _:
                pass
