"""What a node's own commits tell: each is counted once, by the node that made it, so the nodes' counts add up.

Everything is read from what is committed anyway. Stages know nothing of it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Protocol

from nonchalant.model import TERMINAL_STATES, Change, Event, Lease, Millis, Request, Transaction, TxId
from nonchalant.observing import catalogue as c
from nonchalant.observing.tallies import Tallies
from nonchalant.ports import Acceptance, Draining, Duplicate, Illegible, KeyTaken, NonceTaken, NoRoom, Overdue, Removed

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
        self._signed = {attempt.tx_id: attempt for attempt in reversed(change.answered)}
        self._slots = {slot.tx_id: slot for slot in change.slots}

    def signed_at(self, tx_id: TxId) -> Millis | None:
        """When what a node took was signed; None: it does not tell."""
        attempt = self._signed.get(tx_id)
        return None if attempt is None else attempt.signed_at

    def sent_at(self, tx_id: TxId) -> Millis | None:
        """When a node first got it; None: nobody recorded that."""
        slot = self._slots.get(tx_id)
        attempts = () if slot is None else slot.attempts
        return min((attempt.sent_at for attempt in attempts if attempt.sent_at is not None), default=None)


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

    def accepted(self, requests: Sequence[Request], answers: Sequence[Acceptance]) -> None:
        tallies = self._tallies
        tallies.see(c.INTAKE_BATCH, len(requests))
        for request, answer in zip(requests, answers, strict=False):  # a batch is known whole, or not at all
            name = _name_of(answer)
            tallies.count(c.INTAKE_ANSWERS, name)
            if name == "accepted":
                tallies.count(c.ACCEPTED, str(request.lane.chain_id))

    def committed(self, change: Change, lease: Lease) -> None:
        tallies, chain = self._tallies, str(lease.lane.chain_id)
        for attempt in change.attempts:
            tallies.count(c.ATTEMPTS, chain, attempt.kind)
        moments = Moments(change)
        for event in change.events:
            self._tell(event, chain)
            tx = moments.moved.get(event.tx_id or "")
            if tx is not None:
                self._measure(event, tx, moments, chain)

    def altered(self, tx: Transaction, events: Sequence[Event]) -> None:
        chain = str(tx.lane.chain_id)
        for event in events:
            self._tell(event, chain)
        if tx.state in TERMINAL_STATES:
            self._tallies.count(c.ENDED, chain, tx.state)

    def _tell(self, event: Event, chain: str) -> None:
        match event.kind:
            case "attempt.refused":
                self._tallies.count(c.REFUSALS, chain, str(event.data["reason"]))
            case "tx.reorged":
                self._tallies.count(c.REORGED, chain)
            case "tx.superseded":
                self._tallies.count(c.SUPERSEDED, chain)
            case "tx.attention" | "tx.held":
                self._tallies.count(c.ATTENTION, "transaction", str(event.data["code"]))
            case "lane.attention" | "lane.paused" if "code" in event.data:
                self._tallies.count(c.ATTENTION, "lane", str(event.data["code"]))
            case _:
                pass

    def _measure(self, event: Event, tx: Transaction, moments: Moments, chain: str) -> None:
        tallies = self._tallies
        match event.kind:
            case "tx.signed":
                tallies.see(c.WAY, _seconds(tx.created_at, event.at), chain, "accepted_signed")
            case "tx.sent":
                signed_at = moments.signed_at(tx.id)
                if signed_at is not None:
                    tallies.see(c.WAY, _seconds(signed_at, event.at), chain, "signed_sent")
            case "tx.mined":
                self._mined.note(tx.id, event.at)
                sent_at = moments.sent_at(tx.id)
                if sent_at is not None:
                    tallies.see(c.WAY, _seconds(sent_at, event.at), chain, "sent_mined")
            case "tx.reorged" | "tx.superseded":
                self._mined.forget(tx.id)
            case "tx.confirmed" | "tx.reverted" | "tx.failed" | "tx.cancelled" | "tx.expired":
                tallies.count(c.ENDED, chain, tx.state)
                mined_at = self._mined.forget(tx.id)
                if mined_at is not None:
                    tallies.see(c.WAY, _seconds(mined_at, event.at), chain, "mined_final")
                if tx.receipt is not None:
                    tallies.see(c.WAY, _seconds(tx.created_at, event.at), chain, "accepted_final")
            case _:
                pass


def _seconds(since: Millis, until: Millis) -> float:
    return (until - since) / 1000


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
