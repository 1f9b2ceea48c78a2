"""Why a transaction is where it is, in one sentence: a function of values, so that whoever asks gets the same answer.

Nothing waits unexplained. The first reason that holds it up is told: a person's word, the lane's trouble, its own mark,
then its place in the line.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from nonchalant.amounts import format_wei
from nonchalant.health import OUT_OF_FUNDS
from nonchalant.model import Attempt, Attention, BlockRef, Control, Fees, LaneRecord, Receipt, Transaction
from nonchalant.ports import Standing
from nonchalant.words import LESSER_MARKS, Mode, SlotKind, State, Wanted

# A queue is counted so far, and not farther.
MOST_COUNTED = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What there is to know around one live transaction. None, and what is empty: this node does not know it now."""

    standing: Standing | None = None
    control: Control = field(default_factory=Control)
    record: LaneRecord | None = None
    configured: bool = True
    window: int | None = None
    in_flight: int | None = None
    said: Mapping[str, str] = field(default_factory=dict)  # by endpoint, of its newest attempt
    final: BlockRef | None = None
    above: Sequence[BlockRef] | None = None  # the linked blocks on top of its own
    trouble: str | None = None  # why nothing new is final on its chain
    silent: bool = False  # its chain does not answer at all, or is behind what was final here


NOTHING_KNOWN = Situation()


def why(tx: Transaction, attempts: Sequence[Attempt], around: Situation = NOTHING_KNOWN) -> str | None:
    """The sentence; None once it has ended."""
    if not tx.live:
        return None
    if tx.held:
        return f"It is held: {_clause(tx.attention)}." if tx.attention else "It is held; release it or cancel it."
    stopped = _stopped(around)
    if stopped is not None:
        return stopped
    match tx.state:
        case State.QUEUED:
            return _lane_trouble(around) or _marked(tx) or _out_of_funds(around) or _in_line(around)
        case State.MINED:
            return _mined(tx, attempts, around)
        case _:
            return _at_its_nonce(tx, attempts, around)


def _stopped(around: Situation) -> str | None:
    """What keeps everything in the lane where it is."""
    if not around.configured:
        return "Its account or its chain is not configured any more; configure it again to let it go on."
    if around.control.mode is Mode.HALTED:
        return f"Its lane is halted: {around.control.reason}. Nothing is done until it is resumed."
    if around.silent:
        return f"Its chain cannot be followed: {around.trouble or 'no endpoint has answered yet'}."
    return None


def _lane_trouble(around: Situation) -> str | None:
    """What keeps the lane from giving out nonces."""
    said = f" ({around.control.reason})" if around.control.reason else ""
    if around.control.mode is Mode.PAUSED:
        return f"Its lane is paused{said}; it gets a nonce once that is resumed."
    if around.control.mode is Mode.DRAINING:
        return f"Its lane is being drained{said}; it gets a nonce once that is resumed."
    if around.record is None:
        return None
    if around.record.quarantined_below is not None:
        return f"Its lane is in quarantine until every nonce below {around.record.quarantined_below} is final."
    if around.record.unhealthy is not None and around.record.unhealthy.code != OUT_OF_FUNDS:
        return f"Its lane gives out no nonces: {_clause(around.record.unhealthy)}."
    if around.record.attention is not None and around.record.attention.code not in LESSER_MARKS:
        return f"Its lane needs attention: {_clause(around.record.attention)}."
    return None


def _out_of_funds(around: Situation) -> str | None:
    """No stop: whatever the account can pay goes. So its own mark says more, if it has one."""
    unhealthy = None if around.record is None else around.record.unhealthy
    return None if unhealthy is None else f"Its account is out of funds: {_clause(unhealthy)}."


def _marked(tx: Transaction) -> str | None:
    return None if tx.attention is None else f"It needs attention: {_clause(tx.attention)}."


def _in_line(around: Situation) -> str:
    ahead = None if around.standing is None else around.standing.ahead
    full = ""
    if around.window == 0:
        full = ", once enough endpoints tell what its account has executed"
    elif around.window is not None and around.in_flight is not None and around.in_flight >= around.window:
        full = f", and {around.in_flight} of {around.window} that may be in flight are"
    if ahead is None:
        return "It waits for a nonce."
    if ahead == 0:
        return f"It is the next to get a nonce{full}."
    count = f"more than {MOST_COUNTED:,}" if ahead > MOST_COUNTED else f"{ahead:,}"
    return f"{count.capitalize()} of its account {'goes' if ahead == 1 else 'go'} before it{full}."


def _at_its_nonce(tx: Transaction, attempts: Sequence[Attempt], around: Situation) -> str:
    wanted = Wanted.PAYLOAD if around.standing is None else around.standing.wanted
    before = {
        Wanted.CANCEL: "It is being cancelled: ",
        Wanted.EXPIRY: "Its deadline has passed, and what does nothing is to take its nonce: ",
        Wanted.NOTHING: "No node takes its bytes, and what does nothing is to take its nonce: ",
    }.get(wanted, "")
    return _sentence(before + (_behind(tx, around) or _clause_of_mark(tx) or _offered(tx, attempts, around)))


def _behind(tx: Transaction, around: Situation) -> str | None:
    """Whom it waits for, if a lower nonce is not executed."""
    first = None if around.standing is None else around.standing.first
    if first is None or tx.nonce is None or first.nonce >= tx.nonce:
        return None
    whose = {
        SlotKind.TRANSACTION: f"of transaction {first.tx_id}",
        SlotKind.FILLER: "which a transfer of nothing is to fill",
        SlotKind.RESERVATION: "which is reserved for somebody else",
    }
    verb = "is signed and waits" if tx.state is State.SIGNED else "waits"
    return f"nonce {tx.nonce} {verb} for nonce {first.nonce} {whose[first.kind]}"


def _offered(tx: Transaction, attempts: Sequence[Attempt], around: Situation) -> str:
    """At which price it is out, and what was answered to that."""
    newest = _newest(tx, attempts, around)
    if newest is None:
        return f"what is wanted at nonce {tx.nonce} is being signed"
    if newest.sent_at is None and not around.said:
        return f"nonce {tx.nonce} is signed at {price(newest.fees)} and is being sent"
    return f"nonce {tx.nonce} was sent at {price(newest.fees)}{_answers(newest, around)}, and waits for a block"


def _newest(tx: Transaction, attempts: Sequence[Attempt], around: Situation) -> Attempt | None:
    """The attempt that is sent now: the newest of what is wanted."""
    version = tx.payload_version
    if around.standing is not None and around.standing.payload_version is not None:
        version = around.standing.payload_version
    here = (one for one in reversed(attempts) if one.nonce == tx.nonce and one.payload_version == version)
    return next(here, None)


def _answers(attempt: Attempt, around: Situation) -> str:
    if around.said:
        counted = Counter(around.said.values())
        told = ", ".join(f"{count} answered {answer}" for answer, count in sorted(counted.items()))
        return f" to {len(around.said)} endpoint{'s' * (len(around.said) > 1)} ({told})"
    return "" if attempt.answer is None else f" (nodes answered {attempt.answer})"


def _mined(tx: Transaction, attempts: Sequence[Attempt], around: Situation) -> str:
    receipt = tx.receipt
    assert receipt is not None
    ran = _ran(tx, attempts, receipt, around)
    if around.trouble is not None:
        return f"Block {receipt.block.number} executed {ran}; nothing becomes final, because {around.trouble}."
    if around.final is None:
        return f"Block {receipt.block.number} executed {ran}; it ends when that is final."
    left = receipt.block.number - around.final.number
    if left <= 0:
        return f"Block {receipt.block.number} executed {ran} and is final; it ends as soon as that is recorded."
    return (
        f"Block {receipt.block.number} executed {ran}; "
        f"finality is {left} block{'s' * (left > 1)} below it, at {around.final.number}."
    )


def _ran(tx: Transaction, attempts: Sequence[Attempt], receipt: Receipt, around: Situation) -> str:
    version = next((one.payload_version for one in attempts if one.hash == receipt.hash), tx.payload_version)
    if version == 0:
        return "what does nothing in its place"
    wanted = Wanted.PAYLOAD if around.standing is None else around.standing.wanted
    late = {Wanted.CANCEL: " before it could be cancelled", Wanted.EXPIRY: " before it could expire"}.get(wanted, "")
    return ("it" if tx.payload_version == 1 else f"its payload {version} of {tx.payload_version}") + late


def price(fees: Fees) -> str:
    if fees.priority is None:
        return f"{format_wei(fees.max_fee)} a gas"
    return f"up to {format_wei(fees.max_fee)} a gas"


def _clause_of_mark(tx: Transaction) -> str | None:
    return None if tx.attention is None else f"it needs attention: {_clause(tx.attention)}"


def _clause(attention: Attention) -> str:
    return attention.reason.rstrip(".")


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:] + "."
