"""Decisions about what does not move, as functions of values. Acting on them is one line in a stage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto

from msgspec import Struct
from msgspec.structs import replace

from nonchalant import fees as prices
from nonchalant.errors import NodeRefused
from nonchalant.fees import FeeRules
from nonchalant.model import Accepted, Answer, Attempt, Attention, Executed, Fees, Market, Refused, Slot, Transaction
from nonchalant.rejections import Fate, Rejection, Remedy, classify
from nonchalant.words import AttemptKind, Millis, OnSuperseded, SlotKind, Speed, Wanted

# How many of a lane's lowest slots are repriced: what is behind them cannot be mined before them anyway.
BUMPED_AT_ONCE = 4

# A price is too low only if blocks pass it by, however long that takes.
BLOCKS_BEFORE_A_BUMP = 2

# How long a nonce that its holder used may wait for the chain before somebody should look.
RESERVATION_PATIENCE: Millis = 600_000

# How often bytes that some endpoints refuse, and others do not answer to, are handed over before they are given up; and
# how often if the answer may be about the call, by a gateway that is out of order for minutes.
ROUNDS_BEFORE_GIVING_UP = 8
ROUNDS_IF_VAGUE = 40

# Refusals that may speak of something else than the transaction, though sending it again does not help.
VAGUE = frozenset({Rejection.INVALID_REQUEST, Rejection.BLOB_RELATED, Rejection.EIP155_REQUIRED})


@dataclass(frozen=True, slots=True)
class Blocks:
    """A wait that blocks end, not a clock."""

    count: int


DEFAULT_BUMP_AFTER: Mapping[Speed, Millis | Blocks] = {
    Speed.SLOW: 180_000,
    Speed.STANDARD: 60_000,
    Speed.FAST: 20_000,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long a slot may wait before something is done about it."""

    resend_after: Millis = 15_000
    mark_after: Millis = 600_000  # what waits for longer says so
    bump_after: Mapping[Speed, Millis | Blocks] = field(default_factory=lambda: DEFAULT_BUMP_AFTER)

    @property
    def fewest_blocks(self) -> int:
        """With fewer blocks than this since it was handed over, no price is too low."""
        return min(one.count if isinstance(one, Blocks) else BLOCKS_BEFORE_A_BUMP for one in self.bump_after.values())

    @property
    def shortest(self) -> Millis:
        """Before it no price is too low either, however many blocks passed; 0: there blocks decide alone."""
        return min(0 if isinstance(one, Blocks) else one for one in self.bump_after.values())

    def is_over(self, speed: Speed, *, waited: Millis, blocks: int) -> bool:
        """Whether a price had its chance: in the time of its speed, or in the blocks."""
        match self.bump_after[speed]:
            case Blocks(count):
                return blocks >= count
            case millis:
                return waited >= millis and blocks >= BLOCKS_BEFORE_A_BUMP


class Sending(Struct, frozen=True, gc=False):
    """What happened to one attempt since its owner took the lane. Not stored: an earlier epoch's sending is unknown."""

    # Both on the owner's monotonic clock: the wall clock may be set while it waits, and differs between nodes.
    at: Millis | None = None  # when it was last handed to the endpoints; None: it is due
    since: Millis = 0  # when it was first handed to them
    under_way: int = 0
    handed: int = 0
    refused_bytes: int = 0  # endpoints that refused the bytes themselves
    accepted: bool = False
    uncertain: bool = False  # an answer was missing, or proved nothing
    block: int = 0  # the height we saw when it was first handed over
    rounds: int = 0  # how often it was handed over
    refused_by: frozenset[str] = frozenset()  # endpoints that refused the bytes themselves
    said: Mapping[str, str] = {}  # by endpoint: `ACCEPTED`, or the class of its last refusal

    @property
    def is_hopeless(self) -> bool:
        """Whether every endpoint that answers says of it what sending it again, at whatever price, does not mend."""
        return not self.accepted and bool(self.said) and all(map(_is_lasting, self.said.values()))

    def started(self, at: Millis, block: int) -> Sending:
        first = self.handed == 0
        return replace(
            self,
            at=at,
            since=at if first else self.since,
            block=block if first else self.block,
            rounds=self.rounds + (self.at is None),
            under_way=self.under_way + 1,
            handed=self.handed + 1,
        )

    def finished(self, fate: Fate, endpoint: str, rejection: Rejection | None = None) -> Sending:
        if fate is Fate.ACCEPTED:
            accepted = {**self.said, endpoint: ACCEPTED}
            return replace(self, under_way=self.under_way - 1, accepted=True, said=accepted)
        refused, said = fate is Fate.BYTES_REFUSED, self.said
        if rejection is not None and (
            fate is not Fate.POSSIBLY_SENT
            # One that had taken it may have executed it.
            or (rejection is Rejection.NONCE_TOO_LOW and said.get(endpoint) != ACCEPTED)
        ):
            said = {**said, endpoint: rejection.value}
        return replace(
            self,
            under_way=self.under_way - 1,
            refused_bytes=self.refused_bytes + refused,
            refused_by=self.refused_by | {endpoint} if refused else self.refused_by,
            uncertain=self.uncertain or fate is Fate.POSSIBLY_SENT,
            said=said,
        )


NEVER_SENT = Sending()

BY_NAME: Mapping[str | None, Rejection] = {rejection.value: rejection for rejection in Rejection}

# What an attempt's `answer` says beside the classes of refusal.
ACCEPTED = "accepted"
UNKNOWN = "unknown"


def _is_lasting(said: str) -> bool:
    rejection = BY_NAME.get(said)
    return rejection is not None and rejection.remedy is Remedy.FIX_PAYLOAD


def fate_of(answer: Answer) -> tuple[Fate, Rejection | None]:
    """What an answer proves about the bytes, and the class of the refusal if it was one."""
    match answer:
        case Accepted():
            return Fate.ACCEPTED, None
        case Refused(message, code, data):
            rejection = classify(message, code, data)
            return rejection.fate, rejection
        case _:
            return Fate.POSSIBLY_SENT, None


def has_left(attempt: Attempt, epoch: int, sending: Sending) -> bool:
    """Whether any node may hold these bytes, now or later.

    Only the owner that signed them can know that none does: nobody got them, or everybody who did refused the bytes
    themselves and no send is under way. What was signed outside is sent from there too.
    """
    if attempt.epoch != epoch or attempt.kind is AttemptKind.OUTSIDE:
        return True
    return sending.under_way > 0 or sending.handed > sending.refused_bytes


def is_unsendable(slot: Slot, epoch: int, sendings: Mapping[str, Sending]) -> bool:
    """Whether every node refused the bytes of every attempt, so that the slot can be given back.

    Never where a nonce was reserved: its holder may have signed something that we do not know.
    """
    return slot.reservation is None and all(
        sendings.get(attempt.hash, NEVER_SENT).refused_bytes > 0
        and not has_left(attempt, epoch, sendings.get(attempt.hash, NEVER_SENT))
        for attempt in slot.attempts
    )


class Wait(Enum):
    """Nothing to do yet."""

    WAIT = auto()


@dataclass(frozen=True, slots=True)
class Resend:
    """Hand the newest attempt to every endpoint again; `mark` says what a person could do about it."""

    mark: tuple[str, str] | None = None  # code and reason


@dataclass(frozen=True, slots=True)
class Bump:
    """Sign it once more at this price; `mark` as in `Resend`."""

    fees: Fees
    mark: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Its payload must not run any more, but a node may hold it: have the nonce consumed by what does nothing."""

    why: Wanted


@dataclass(frozen=True, slots=True)
class Close:
    """Nobody used the nonce that was reserved in time: have it consumed by a filler, and by nothing else of ours."""


@dataclass(frozen=True, slots=True)
class Outbid:
    """What should run here is not signed yet: sign it at a price that replaces everything else."""

    fees: Fees


Move = Wait | Resend | Bump | GiveUp | Close | Outbid


def is_at_ease(
    tx: Transaction | None,
    sending: Sending,
    *,
    now: Millis,
    ticks: Millis,
    last_block: int,
    bump_after: Millis,
    resend_after: Millis,
) -> bool:
    """Whether `next_move` surely says to wait of what is signed: it is due to be sent; or a node took it, or is just
    being asked to, and it was first handed over after `last_block` or less than `bump_after` ago."""
    if tx is not None and tx.is_overdue(now):
        return False
    return sending.at is None or (
        (sending.accepted or sending.under_way > 0)
        and ticks - sending.at < resend_after
        and (sending.block > last_block or ticks - sending.since < bump_after)
    )


def next_move(
    slot: Slot,
    tx: Transaction | None,
    sending: Sending,
    *,
    lowest: bool,
    market: Market | None,
    rules: FeeRules,
    patience: Patience,
    now: Millis,
    ticks: Millis,
    head: int,
    endpoints: int,
    in_window: bool = True,
) -> Move:
    """What to do about a slot that the chain has not consumed.

    `market` None: prices are not known now. `now` is for deadlines, `ticks` for intervals, `sending` is the newest
    attempt's, `head` the height we see, `endpoints` how many the chain has. Beyond the window nothing is sent.
    """
    newest = slot.newest
    if has_expired(slot, tx, now):
        return GiveUp(Wanted.EXPIRY)
    if slot.kind is SlotKind.RESERVATION and not slot.attempts:
        # Until then it is its holder's business.
        return Close() if is_forfeited(slot, now) else Wait.WAIT
    if newest is None:
        return Wait.WAIT if market is None else Outbid(prices.outbid(slot.price, market, rules))
    if sending.at is None:
        return Wait.WAIT
    if is_refused_for_good(slot, sending, endpoints):
        return GiveUp(Wanted.NOTHING)
    if not in_window:
        return Wait.WAIT
    wish = wish_of(slot, tx)
    speed = wish if isinstance(wish, Speed) else rules.speed
    mark = _refusal_mark(newest)
    # A better price needs more funds, not less: what lacks them is only sent again.
    can_bump = lowest and newest.answer != Rejection.INSUFFICIENT_FUNDS.value
    # Its payload is not ours to sign.
    can_bump &= newest.kind is not AttemptKind.OUTSIDE
    # Nor does a price mend bytes that nodes refuse for what they are; each new attempt would only be refused anew.
    can_bump &= sending.accepted or not (sending.refused_by or sending.is_hopeless)
    moved = head > sending.block or ticks - sending.since < patience.mark_after
    overdue = _overdue_mark(slot, patience, now=now, lowest=lowest, moved=moved)
    is_over = patience.is_over(speed, waited=ticks - sending.since, blocks=head - sending.block)
    if can_bump and market is not None and slot.price is not None and is_over:
        offer = prices.raised(slot.price, wish, market, rules)
        if offer is not None:
            return Bump(offer, overdue)
        reason = f"its price of {newest.fees.max_fee} wei is at the cap, and it is re-sent until it is taken"
        mark = ("price_at_cap", f"{reason}; to hurry, raise the cap, or bump it at a price of your own")
    mark = mark or overdue
    # Resend even when we cannot bump: a pool may have dropped it silently.
    if ticks - sending.at >= patience.resend_after:
        return Resend(mark)
    return Wait.WAIT


def _overdue_mark(slot: Slot, patience: Patience, *, now: Millis, lowest: bool, moved: bool) -> tuple[str, str] | None:
    """What to tell about a slot that no block takes, however often it was repriced, and whoever owned it."""
    mark = None
    # What its holder sent has a mark of its own.
    if slot.kind is not SlotKind.RESERVATION and now - slot.attempts[0].signed_at >= patience.mark_after:
        minutes, why = patience.mark_after // 60_000, _why_not_mined(lowest=lowest, moved=moved)
        # Without the time that passed: the mark says since when, and a sentence that counts is soon wrong.
        mark = ("not_mined", f"no block has it, {minutes} minutes and more after it was signed; {why}")
    return mark


def _why_not_mined(*, lowest: bool, moved: bool) -> str:
    if not moved:
        return "the chain makes no blocks that we can see: look at the endpoints"
    if not lowest:
        return "lower nonces of the account wait too: look at the lowest one"
    return "it is sent again, and repriced as far as the caps allow: bump it, or cancel it"


def has_expired(slot: Slot, tx: Transaction | None, now: Millis) -> bool:
    """Whether the slot's payload should have run by now: it is neither sent nor repriced any more."""
    return tx is not None and slot.wanted is Wanted.PAYLOAD and tx.is_overdue(now)


def is_forfeited(slot: Slot, now: Millis) -> bool:
    """Whether the time is over in which the holder of a reserved nonce may say what becomes of it."""
    return slot.reservation is not None and not slot.attempts and slot.reservation.deadline <= now


def is_overlong(slot: Slot, now: Millis) -> bool:
    """Whether a reserved nonce was used long ago, as its holder says, and still waits for the chain."""
    used = slot.kind is SlotKind.RESERVATION and slot.attempts
    return bool(used) and now - slot.attempts[-1].signed_at >= RESERVATION_PATIENCE


def wish_of(slot: Slot, tx: Transaction | None) -> Speed | Fees:
    """What may be paid at a slot. What does nothing is in nobody's request: it hurries, because others wait behind it."""
    return Speed.FAST if tx is None or slot.payload_version == 0 else tx.fees


def _refusal_mark(attempt: Attempt) -> tuple[str, str] | None:
    """What to tell about an attempt that no node has taken so far; None if one has, or may have."""
    if attempt.answer in (None, ACCEPTED, UNKNOWN):
        return None
    rejection = BY_NAME.get(attempt.answer, Rejection.INTERNAL_UNKNOWN)  # another version may have other words
    return rejection.value, f"nodes refuse it ({rejection.value}). {rejection.remedy.value}"


# What says nothing of the bytes, but that the nonce is used, or that a pool has something else there.
ABOUT_THE_NONCE = frozenset({Rejection.NONCE_TOO_LOW.value, Rejection.REPLACEMENT_UNDERPRICED.value})


def is_refused_for_good(slot: Slot, sending: Sending, endpoints: int) -> bool:
    """Whether every endpoint has refused the payload's bytes themselves, or some did, time and again, and none took them;
    or whether all that answer say, time and again, what no further sending mends, such as too much gas.

    One that did not answer may hold them all the same, and what is no refusal of the bytes proves nothing, so the slot
    itself cannot be given back.
    """
    if slot.wanted is not Wanted.PAYLOAD or slot.tx_id is None or sending.accepted or sending.under_way:
        return False
    if not ABOUT_THE_NONCE.isdisjoint(sending.said.values()):
        return False  # somebody else has its nonce: what that means for it, the chain tells
    if len(sending.refused_by) >= endpoints:
        return sending.rounds > 1
    vague = any(BY_NAME.get(said) in VAGUE for said in sending.said.values())
    enough = ROUNDS_IF_VAGUE if vague and not sending.refused_by else ROUNDS_BEFORE_GIVING_UP
    return bool(sending.refused_by or sending.is_hopeless) and sending.rounds >= enough


class Estimate(Enum):
    """What a node's refusal to estimate means for the transaction."""

    REVERTS = auto()  # it would run and fail, on this state
    NO_FUNDS = auto()
    ASK_AGAIN = auto()  # it says nothing about the transaction


def estimate_verdict(rejection: Rejection) -> Estimate:
    match rejection:
        case Rejection.EXECUTION_REVERTED | Rejection.GAS_LIMIT_EXCEEDS_BLOCK | Rejection.OVERSIZED_DATA:
            return Estimate.REVERTS
        case Rejection.INSUFFICIENT_FUNDS:
            return Estimate.NO_FUNDS
        case _:
            return Estimate.ASK_AGAIN


# Refusals to estimate that may be the transaction's own fault, though they are no revert and not about funds.
_ABOUT_ITSELF = frozenset(
    {
        Rejection.INTERNAL_UNKNOWN,
        Rejection.INVALID_REQUEST,
        Rejection.INTRINSIC_GAS_TOO_LOW,
        Rejection.UNSUPPORTED_TX_TYPE,
        Rejection.TIP_ABOVE_FEE_CAP,
        Rejection.BLOB_RELATED,
        Rejection.TERMINALLY_STUCK,
    }
)


def may_be_its_own_fault(refusal: NodeRefused) -> bool:
    """Whether a node that will not estimate may speak of the transaction, and not only of itself."""
    return classify(refusal.message, refusal.node_code, refusal.data) in _ABOUT_ITSELF


def is_verdict(refusal: NodeRefused) -> bool:
    """Whether a node's error says something about the question, and not only about the node."""
    return refusal_verdict(refusal) is not Estimate.ASK_AGAIN


def refusal_verdict(refusal: NodeRefused) -> Estimate:
    return estimate_verdict(classify(refusal.message, refusal.node_code, refusal.data))


def supersede_hold(
    tx: Transaction, consumer: Executed | None, *, quarantined: bool, by_depth: bool, now: Millis
) -> Attention | None:
    """Why a transaction whose slot somebody else consumed must not simply go again; None: it may."""
    doubt = supersede_doubt(tx, consumer, quarantined=quarantined, now=now)
    if doubt is not None:
        return doubt
    default = OnSuperseded.HOLD if by_depth else OnSuperseded.REQUEUE
    if (tx.on_superseded or default) is OnSuperseded.HOLD:
        return Attention(
            "superseded",
            "its nonce was used by another transaction of this key; check the chain, then release it or cancel it",
            now,
        )
    return None


def supersede_doubt(tx: Transaction, consumer: Executed | None, *, quarantined: bool, now: Millis) -> Attention | None:
    """Why its payload may have run although none of its known attempts did; None: it did not."""
    if consumer is not None and consumer.deed in tx.deeds:
        return Attention(
            "same_payload_executed",
            f"{consumer.hash} did the same from this account; release it if it should happen twice, else cancel it",
            now,
        )
    if quarantined or not all(payload.is_known for payload in (*tx.earlier, tx.payload)):
        return Attention(
            "store_lost_commits",
            "its slot was consumed by an attempt this store does not know; check the chain, then release it or cancel it",
            now,
        )
    return None
