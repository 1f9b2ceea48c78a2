"""What a node's own commits tell: each is counted once, by the node that made it, so the nodes' counts add up.

Everything is read from what is committed anyway. Stages know nothing of it.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from typing import Protocol

from nonchalant.model import Attempt, Change, Event, Lease, Request, Slot, Transaction
from nonchalant.observing import catalogue as c
from nonchalant.observing.tallies import Tallies
from nonchalant.ports import Acceptance, Draining, Duplicate, Illegible, KeyTaken, NonceTaken, NoRoom, Overdue, Removed
from nonchalant.words import TERMINAL_STATES, Millis, TxId

# Of how many transactions it is remembered when they were mined: more than a node has between mined and final.
REMEMBERED = 100_000


class Observer(Protocol):
    """Who is told of what was committed, once it is. It must not fail, and nobody waits for it."""

    def accepted(self, requests: Sequence[Request], answers: Sequence[Acceptance]) -> None: ...

    def committed(self, change: Change, lease: Lease) -> None: ...

    def altered(self, tx: Transaction, events: Sequence[Event]) -> None:
        """A queued transaction was changed, from any node."""


class Moments:
    """When what a commit tells of had happened before, as far as the commit itself says."""

    def __init__(self, change: Change) -> None:
        self.moved = {tx.id: tx for tx in change.transactions}
        self._answered: dict[TxId | None, Attempt] = {one.tx_id: one for one in reversed(change.answered)}
        self._slots: dict[TxId | None, Slot] = {slot.tx_id: slot for slot in (*change.slots, *change.shown)}

    def signed_at(self, tx_id: TxId) -> Millis | None:
        """When what a node took was signed; None: it does not tell."""
        attempt = self._answered.get(tx_id)
        return None if attempt is None else attempt.signed_at

    def sent_at(self, tx_id: TxId) -> Millis | None:
        """When a node first got it; None: nobody recorded that."""
        slot, answered = self._slots.get(tx_id), self._answered.get(tx_id)
        attempts = () if slot is None else slot.attempts
        if answered is not None:
            attempts = (*attempts, answered)
        moments = [attempt.sent_at for attempt in attempts if attempt.sent_at is not None]
        return min(moments) if moments else None


class MinedAt:
    """When transactions were mined, as this node saw it. The store keeps only where."""

    def __init__(self) -> None:
        self._at: OrderedDict[TxId, Millis] = OrderedDict()

    def note(self, tx_id: TxId, at: Millis) -> None:
        self._at[tx_id] = at
        if len(self._at) > REMEMBERED:
            self._at.popitem(last=False)

    def forget(self, tx_id: TxId) -> Millis | None:
        """When it was; None: another node saw it, or it was before a restart."""
        return self._at.pop(tx_id, None)


class Counting:
    """An observer that counts."""

    def __init__(self, tallies: Tallies) -> None:
        self._tallies = tallies
        self._mined = MinedAt()
        # By kind: most events are of few kinds, and all of them come by here.
        self._facts: dict[str, Callable[[Event, str], None]] = {
            "attempt.refused": self._refused,
            "tx.reorged": lambda _, chain: tallies.count(c.REORGED, chain),
            "tx.superseded": lambda _, chain: tallies.count(c.SUPERSEDED, chain),
            "tx.attention": self._marked,
            "tx.held": self._marked,
            "lane.attention": self._lane_marked,
            "lane.paused": self._lane_marked,
        }
        self._steps: dict[str, Callable[[Event, Transaction, Moments, str], None]] = {
            "tx.signed": self._signed,
            "tx.sent": self._sent,
            "tx.mined": self._included,
            "tx.reorged": self._displaced,
            "tx.superseded": self._displaced,
            **{f"tx.{state}": self._ended for state in TERMINAL_STATES},
        }

    def accepted(self, requests: Sequence[Request], answers: Sequence[Acceptance]) -> None:
        tallies = self._tallies
        tallies.see(c.INTAKE_BATCH, len(requests))
        # A batch is known whole, or not at all.
        named = [(_name_of(answer), request.lane.chain_id) for request, answer in zip(requests, answers, strict=False)]
        for (name, chain_id), count in Counter(named).items():
            tallies.count(c.INTAKE_ANSWERS, name, by=count)
            if name == "accepted":
                tallies.count(c.ACCEPTED, str(chain_id), by=count)

    def committed(self, change: Change, lease: Lease) -> None:
        chain, moments = str(lease.lane.chain_id), Moments(change)
        for attempt in change.attempts:
            self._tallies.count(c.ATTEMPTS, chain, attempt.kind)
        for event in change.events:
            fact, step = self._facts.get(event.kind), self._steps.get(event.kind)
            if fact is not None:
                fact(event, chain)
            if step is not None and (tx := moments.moved.get(event.tx_id or "")) is not None:
                step(event, tx, moments, chain)

    def altered(self, tx: Transaction, events: Sequence[Event]) -> None:
        chain = str(tx.lane.chain_id)
        for event in events:
            fact = self._facts.get(event.kind)
            if fact is not None:
                fact(event, chain)
        if tx.state in TERMINAL_STATES:
            self._tallies.count(c.ENDED, chain, tx.state)

    # facts

    def _refused(self, event: Event, chain: str) -> None:
        self._tallies.count(c.REFUSALS, chain, str(event.data["reason"]))

    def _marked(self, event: Event, _: str) -> None:
        self._tallies.count(c.ATTENTION, "transaction", str(event.data["code"]))

    def _lane_marked(self, event: Event, _: str) -> None:
        if "code" in event.data:  # else somebody paused it
            self._tallies.count(c.ATTENTION, "lane", str(event.data["code"]))

    # steps on the way

    def _signed(self, event: Event, tx: Transaction, _: Moments, chain: str) -> None:
        self._see(chain, "accepted_signed", tx.created_at, event.at)

    def _sent(self, event: Event, tx: Transaction, moments: Moments, chain: str) -> None:
        # It may be told with the block that has it; when a node took it, it says itself.
        self._see(chain, "signed_sent", moments.signed_at(tx.id), moments.sent_at(tx.id) or event.at)

    def _included(self, event: Event, tx: Transaction, moments: Moments, chain: str) -> None:
        self._mined.note(tx.id, event.at)
        self._see(chain, "sent_mined", moments.sent_at(tx.id), event.at)

    def _displaced(self, _: Event, tx: Transaction, __: Moments, ___: str) -> None:
        self._mined.forget(tx.id)

    def _ended(self, event: Event, tx: Transaction, _: Moments, chain: str) -> None:
        self._tallies.count(c.ENDED, chain, tx.state)
        self._see(chain, "mined_final", self._mined.forget(tx.id), event.at)
        if tx.receipt is not None:
            self._see(chain, "accepted_final", tx.created_at, event.at)

    def _see(self, chain: str, part: str, since: Millis | None, until: Millis) -> None:
        if since is not None:
            self._tallies.see(c.WAY, (until - since) / 1000, chain, part)


def _name_of(answer: Acceptance) -> str:
    match answer:
        case Transaction():
            return "accepted"
        case Duplicate():
            return "repeated"
        case KeyTaken():
            return "key_reused"
        case NonceTaken():
            return "nonce_taken"
        case Removed():
            return "transaction_removed"
        case Illegible():
            return "unreadable"
        case NoRoom():
            return "queue_full"
        case Draining():
            return "lane_draining"
        case Overdue():
            return "overdue"
