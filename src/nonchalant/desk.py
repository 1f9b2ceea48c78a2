"""An owner's desk: one lane, held under one lease, with everything its stages share.

The desk is thrown away as a whole: when the lease is lost, when a commit's outcome is unknown, when a stage fails
unexpectedly. Nothing on it is needed again: running the stages on a new desk is recovery.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

import structlog

from nonchalant import funds, heads, windows
from nonchalant.arrivals import Arrivals
from nonchalant.errors import LeaseLost, Poisoned, SignerFailed, Unreachable
from nonchalant.fees import FeeRules
from nonchalant.funds import Purse
from nonchalant.heads import Head
from nonchalant.health import HealthRules, Pulse
from nonchalant.lanes import Lane, Work
from nonchalant.model import (
    Answer,
    Attempt,
    Attention,
    BlockRef,
    Control,
    Executed,
    Lease,
    Market,
    Payload,
    Receipt,
    Slot,
    Transaction,
)
from nonchalant.poison import Strikes, handling, parts, subject_of
from nonchalant.policy import ACCEPTED, BUMPED_AT_ONCE, NEVER_SENT, Patience, Sending
from nonchalant.ports import Adviser, Chain, Clock, Endpoint, Signer, Store
from nonchalant.windows import Pace
from nonchalant.wishes import OfTransaction
from nonchalant.words import Hash, LaneKey, Millis, Mode, TxId, Wei

if TYPE_CHECKING:
    from nonchalant.proof import Search

log = structlog.get_logger()
T = TypeVar("T")

SIGNER_MARK = "signer_failed"
FILLER_MARK = "filler_refused"
CANNOT_FILL_MARK = "cannot_fill"
RESERVATION_MARK = "reservation_stuck"
RESET_MARK = "reset_needed"
HALTED_MARK = "chain_halted"
BEHIND_MARK = "chain_behind"
TROUBLE_MARK = "chain_trouble"
ASIDE_MARK = "set_aside"
BROKEN_MARK = "lane_broken"
HOOK_FAILED_MARK = "hook_failed"
HOOK_REFUSED_MARK = "hook_refused"
SIGNER_PAUSE: Millis = 5_000

# How long a lane waits before it signs another filler, after nodes refused one or would not estimate it.
FILLER_PAUSE: Millis = 30_000

# How often something may be built anew because somebody else changed a row. Nobody does so that often: it cannot be
# written at all.
MOST_MOVED = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneRules:
    """What an account's settings say about its lanes."""

    window: int = 16  # in flight at once: what geth guarantees an account
    pace: Pace = Pace.PIPELINED
    shared: bool = False  # others use the account too
    unsettled: int = 4096  # signed but not final, however much of it is executed
    batch: int = 100  # assigned in one commit
    largest_window: int = 16  # of any account on the chain: how far a lost commit may have reached
    fees: FeeRules = field(default_factory=FeeRules)
    patience: Patience = field(default_factory=Patience)
    health: HealthRules = field(default_factory=HealthRules)


class Eyes(Protocol):
    """What a lane sees of its chain, through the chain's one follower."""

    @property
    def head(self) -> Head: ...

    async def ask(self, question: Callable[[Endpoint], Awaitable[T]]) -> T:
        """The first usable answer, from endpoints that have our head before others; `Unreachable` if there is none."""

    async def ask_everyone(self, question: Callable[[Endpoint], Awaitable[T]]) -> list[T]:
        """What each endpoint says; those that do not answer, or refuse to, are left out."""

    async def market(self) -> Market: ...

    async def vouch(self, block: BlockRef) -> bool:
        """Whether the block is canonical; False only if another one is in its place. `Unreachable`: nobody can say.

        Asked of the endpoints if it is older than what we hold, or if our chain shows another one there.
        """

    def watch(self, lane: LaneKey, hashes: list[Hash]) -> None: ...

    def forget(self, hashes: list[Hash]) -> None: ...


@dataclass(slots=True)
class Postponement:
    """A queued transaction that could not be sent just now: when to try it again, and how often it was tried."""

    retry_at: Millis
    tries: int
    at: BlockRef | None  # it waits for what blocks bring, so one after this may be its turn
    needed: Wei | None = None  # what it costs, if the account could not pay that

    def is_due(self, now: Millis, head: BlockRef, purse: Purse) -> bool:
        if self.retry_at <= now:
            return True
        can_pay = self.needed is None or purse.lacks(self.needed) == 0
        return self.at is not None and self.at != head and can_pay


@dataclass(frozen=True, slots=True)
class Heard:
    """What came of asking the attention hook about one transaction. Nothing set: it works."""

    tx_id: TxId
    failed: str | None = None
    refused: str | None = None
    alert: str | None = None


@dataclass(slots=True)
class Reason:
    """Why something reverted, as far as nodes have told; when it was last asked for, and how often."""

    asked_at: BlockRef
    tries: int = 0
    told: str | None = None

    def is_due(self, head: BlockRef, tries: int) -> bool:
        return self.told is None and self.tries < tries and self.asked_at != head


# A wait that lasts is in the log this often.
TOLD_AGAIN: Millis = 60_000


@dataclass(slots=True)
class ForeignUse:
    """What is known of final nonces that have no slot here, and of the search for who used them."""

    begins: int = 0  # nonces below were used before this lane was
    ours: set[int] = field(default_factory=set)  # they had one
    users: dict[int, Executed | None] = field(default_factory=dict)  # not yet told; None: blocks do not tell
    search: Search | None = None
    sought: frozenset[int] = frozenset()  # by that search
    tries: int = 0
    look_after: Millis = 0  # in ticks: blocks could not be read


@dataclass(slots=True, kw_only=True)
class Desk:
    lane: Lane
    lease: Lease
    incarnation: int  # the store's, when the lane was loaded
    rules: LaneRules
    store: Store
    chain: Chain
    signer: Signer
    eyes: Eyes
    clock: Clock
    final_by_depth: bool = False  # finality is our own guess: what lost its nonce waits for a person
    store_ahead: Millis = 0  # by how much the store's clock was ahead of our ticks when the lane was loaded
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    stage: str = ""  # the one that runs now
    strikes: Strikes = field(default_factory=Strikes)
    tell_after: Millis = 0  # in ticks: what is left aside could not be marked
    # The attention hook, how what it wants is asked for, and what came of it.
    adviser: Adviser | None = None
    carry_out: Callable[[OfTransaction], Awaitable[object]] | None = None
    asking: asyncio.Task[None] | None = None
    asked_at: dict[tuple[TxId, str], Millis] = field(default_factory=dict)  # in ticks, by transaction and mark
    heard: list[Heard] = field(default_factory=list)  # not yet told
    hook_troubles: dict[TxId, Attention] = field(default_factory=dict)  # by whom it was asked about
    marked_queued: list[Transaction] = field(default_factory=list)  # as the queue was last looked at
    marked_after: int = 0  # the place after which it was
    look_after: Millis = 0  # in ticks
    careful_until: Millis = 0  # in ticks: something failed, and nobody knows on whom
    control: Control = field(default_factory=Control)
    orders_due: bool = True  # people may want something
    waiting: dict[str, Millis] = field(default_factory=dict)  # wishes that wait for room, and since when, in ticks
    leaving: bool = False  # what endpoints said is still recorded, and nothing more is sent
    handed_over: bool = False  # it is another node's turn: what is under way is finished, and no more begun
    retired: bool = False  # the chain was begun anew: what is known here counts no more
    inbox: list[Receipt] = field(default_factory=list)  # from the follower, not yet recorded
    answers: list[tuple[Hash, str, Answer]] = field(default_factory=list)  # from endpoints, not yet recorded
    sendings: dict[Hash, Sending] = field(default_factory=dict)
    taken: dict[Hash, Taken] = field(default_factory=dict)  # by a node: not told yet
    told_taken_at: Millis = -1_000_000  # in ticks: when it was last told of any
    outlets: dict[str, Outlet] = field(default_factory=dict)
    gapped: dict[str, int] = field(default_factory=dict)  # endpoints that lack something below this nonce
    postponed: dict[TxId, Postponement] = field(default_factory=dict)
    waits_for_funds: bool = False  # all that is queued was set aside, and some of it for want of funds
    least_cost: Wei = 0  # of anything at all, as prices were when that was found
    pulse: Pulse | None = None
    # Look every live attempt up by hash, and the account with it: blocks may have passed unseen.
    lookup_due: bool = True
    account_due: bool = True
    assign_due: bool = True
    arrivals: Arrivals = field(default_factory=Arrivals)
    admit_after: Millis = 0  # in ticks: somebody could not be admitted, and everybody goes by the queue
    kept_until: Millis | None = None  # in ticks: somebody waits for a nonce that may never be reached
    rows_moved: Counter[str] = field(default_factory=Counter)  # what was built in vain, how often in a row
    search: Search | None = None  # through final blocks, for what a lost commit did
    proof: Search | None = None  # through final blocks, for who used a nonce of ours
    foreign: ForeignUse = field(default_factory=ForeignUse)
    prove_after: Millis = 0  # in ticks: they could not be read
    proofs_failed: int = 0  # in a row
    waits: dict[str, tuple[Millis, str]] = field(default_factory=dict)  # by stage: since when, in ticks, and for what
    tell_wait_after: dict[str, Millis] = field(default_factory=dict)  # in ticks, by what waits
    paused_until: Millis = 0  # in ticks: the signer failed
    signatures: int = 0  # that it gave
    signed_last: bytes | None = None  # the digest of the last one
    # Wishes that it failed on: when to try again, in ticks, and how many signatures there were.
    unsigned_wishes: dict[str, tuple[Millis, int]] = field(default_factory=dict)
    unsigned: dict[TxId, Poisoned] = field(default_factory=dict)  # whom it failed on alone, since it last signed
    asked_from: int = 0  # where in a batch that it refuses the question begins, whom it signs alone
    blamed: Counter[TxId] = field(default_factory=Counter)  # how often it signed another next
    quarantine_top: int | None = None  # the height at which this owner found the lane in quarantine
    fill_after: Millis = 0  # in ticks: nodes refused a filler, so the next one waits
    reasons: dict[tuple[Hash, BlockRef], Reason] = field(default_factory=dict)  # why what is mined reverted
    seen_at: BlockRef | None = None  # the head at which the account was last seen
    seen_final: int = -1
    is_compared: bool = False  # enough endpoints told this owner what the account has executed
    is_outdated: bool = False  # and when they first did, that was more than the store ever gave out
    looked_at: tuple[BlockRef, BlockRef] | None = None  # head and finality when all stages were last run
    look_again_at: Millis = 0  # in ticks: when they are to be run, though nothing happened

    @property
    def key(self) -> LaneKey:
        return self.lane.key

    @property
    def head(self) -> Head:
        return self.eyes.head

    @property
    def window(self) -> int:
        """How many may be in flight now."""
        record, rules = self.lane.record, self.rules
        window = windows.effective(rules.window, rules.pace, delegated=self.lane.delegated, learnt=record.window)
        if window == 1 and not self.lane.is_vouched and self.lane.lost_slots():
            # Where nothing may overtake, one endpoint's word that a nonce is used is not enough for the next one.
            return 0
        return window

    def purse(self) -> Purse:
        """What the account can pay, as it was last seen."""
        lane = self.lane
        lowest = lane.open_slots()[:BUMPED_AT_ONCE]
        kept = (funds.kept_for_slot(slot, lane.transaction_of(slot), self.rules.fees) for slot in lowest)
        return Purse(lane.balance, lane.committed(), kept)

    @property
    def lacks_funds(self) -> bool:
        """Whether something that is postponed waits for funds."""
        return any(one.needed is not None for one in self.postponed.values())

    def look_around(self, good_for: Millis) -> None:
        """All stages are run now; unless something happens, what they see is good for so long."""
        self.looked_at, self.look_again_at = (self.head.top, self.head.final), self.ticks() + good_for

    def was_just_fed(self) -> bool:
        """Whether there is something to assign, and nothing else has happened since all stages were run."""
        return (
            (self.assign_due or len(self.arrivals) > 0)
            and self.looked_at == (self.head.top, self.head.final)
            and self.ticks() < self.look_again_at
            and not (self.orders_due or self.waiting or self.inbox or self.lookup_due or self.account_due or self.heard)
            and not self.is_outdated
        )

    def sending(self, hash: Hash) -> Sending:
        """What happened to an attempt since this owner took the lane."""
        return self.sendings.get(hash, NEVER_SENT)

    @property
    def is_halted(self) -> bool:
        return self.control.mode is Mode.HALTED

    def ticks(self) -> Millis:
        """For intervals: the wall clock may be set while something waits."""
        return int(self.clock.monotonic() * 1000)

    def store_now(self) -> Millis:
        """For deadlines: the store's clock, which all nodes share. Theirs may differ by hours."""
        return self.ticks() + self.store_ahead

    def work(self) -> Work:
        return Work(self.lane, self.clock.now())

    async def commit(self, work: Work) -> bool:
        """Make the work true, in the store first. False: there was nothing in it."""
        if not work:
            return False
        if self.retired:
            raise Unreachable(f"the chain of {self.key} was begun anew; the lane is read again")
        change = work.change()
        self.check_lease()
        accepted = await self.store.commit(change, self.lease)
        if accepted:
            change = change.entered(accepted)
        self.lane.apply(change)
        self.eyes.watch(self.key, [attempt.hash for attempt in change.attempts])
        for attempt in change.answered:
            if attempt.answer == ACCEPTED:  # else a node may have taken it while another's refusal was written
                self.taken.pop(attempt.hash, None)
        settled = [slot for slot in change.slots if slot.settled]
        if settled:
            self.drop([attempt for slot in settled for attempt in slot.attempts])
            self.foreign.ours.update([slot.nonce for slot in settled])
            # Nonces are consumed in order: what is below is final too, though the account was not asked for that.
            self.lane.final_count = max(self.lane.final_count, *[slot.nonce + 1 for slot in settled])
        return True

    @property
    def careful(self) -> bool:
        """Whether to work one at a time."""
        return self.ticks() < self.careful_until

    def is_aside(self, subject: str) -> bool:
        """Whether the stage that runs leaves this one alone, because it broke it."""
        return (self.stage, subject) in self.strikes.aside

    def slot_parts(self, slots: Iterable[Slot]) -> Sequence[Sequence[Slot]]:
        """What a stage handles and commits together, without what it leaves aside."""
        if self.strikes.aside:
            slots = [slot for slot in slots if not self.is_aside(subject_of(slot))]
        return parts(list(slots), careful=self.careful)

    async def commit_part(self, work: Work, part: Sequence[Slot]) -> bool:
        """As `commit`; what the store refuses is the doing of the one slot there is."""
        with handling(subject_of(part[0]) if self.careful and len(part) == 1 else None, commits=True):
            return await self.commit(work)

    def drop(self, attempts: Sequence[Attempt]) -> None:
        """These are final, or were never sent: nobody needs to look for them any more."""
        hashes = [attempt.hash for attempt in attempts]
        self.eyes.forget(hashes)
        for hash in hashes:
            self.sendings.pop(hash, None)
            self.taken.pop(hash, None)
        if self.reasons:
            gone = set(hashes)
            for told in [told for told in self.reasons if told[0] in gone]:
                del self.reasons[told]

    async def see_account(self) -> bool:
        """Ask what the account has executed, at our head and at finality, of endpoints that have those blocks.

        One endpoint that says too much would declare a nonce gone that is not: more than half must say so. Finality,
        and that a nonce is used which is bound to nobody, take the word of at least half of all endpoints; without it, what
        was known stands. Whether finality was told.
        """
        top, final, address = self.head.top, self.head.final, self.key.address
        # One after the other: a node that is just making a block may tell of the next one for its last, and where that is
        # final, it would do so of both.
        at_head = await self.eyes.ask_everyone(lambda endpoint: endpoint.account(address, top))
        at_final = await self.eyes.ask_everyone(lambda endpoint: endpoint.account(address, final))
        lane, enough = self.lane, heads.quorum(len(self.chain.endpoints))
        if not at_head or (lane.record.next_nonce is None and len(at_head) < enough):
            raise Unreachable(f"too few endpoints tell of {address} at block {top.number}")
        count = heads.believed([account.count for account in at_head])
        if len(at_head) < enough:
            count = min(max(count, lane.record.settled_below), lane.first_unbound)
        lane.count, lane.is_vouched = count, len(at_head) >= enough
        lane.balance = heads.believed([account.balance for account in at_head])
        lane.delegated = any(account.delegated for account in at_head)
        told = len(at_final) >= enough
        if told:
            lane.final_count = heads.believed([account.count for account in at_final])
            lane.final_at_most = max(account.count for account in at_final)
        if not self.is_compared:
            # Before anybody else learns of these counts, and takes them for somebody else's use of the key.
            vouched, given_out = (
                max(count if lane.is_vouched else 0, lane.final_count if told else 0),
                lane.record.next_nonce,
            )
            self.is_outdated |= given_out is not None and vouched > given_out and not self.rules.shared
            self.is_compared = lane.is_vouched
        if self.rules.shared:
            lane.pooled = await self._see_pools()
        self.account_due, self.seen_at = False, top
        # A nonce of ours is used, and we do not know by what: look before believing anything. What came with its block
        # only has to be read.
        arrived = {lane.nonce_of(receipt.hash) for receipt in self.inbox}
        self.lookup_due |= any(slot.nonce not in arrived for slot in lane.lost_slots())
        return told

    @property
    def awaits_finality(self) -> bool:
        """Whether nothing of ours is on its way, and the head shows nonces used of which nobody was told yet."""
        return not self.lane.slots and self.lane.record.settled_below < self.lane.count

    async def see_account_at_head(self) -> None:
        """Before a nonce is given out: funds are counted at our head, and nothing of ours shows who else used the key."""
        if self.account_due or self.seen_at != self.head.top or self.rules.shared:
            await self.see_account()

    async def _see_pools(self) -> int:
        """The nonce up to which pools hold everything: what of that is not ours is somebody else's.

        One endpoint that says too much would have us leave a gap as wide as it likes: more than half must say so.
        """
        address = self.key.address
        pending = await self.eyes.ask_everyone(lambda endpoint: endpoint.pending(address))
        if len(pending) < heads.quorum(len(self.chain.endpoints)):
            raise Unreachable(f"too few endpoints tell what their pools hold of {address}")
        return heads.believed(pending)

    @property
    def may_fill(self) -> bool:
        """Whether a quarantined lane has been watched long enough to know how far lost commits have reached.

        Endpoints that lag when we begin would have us believe too little; once what was the head then is final, they
        have caught up. Until then nothing of ours is in the way of what was lost, and the count tells.
        """
        return self.quarantine_top is not None and self.head.final.number >= self.quarantine_top

    async def estimate(self, payload: Payload) -> int:
        """Gas the payload needs on top of our head."""
        top, address = self.head.top, self.key.address
        return await self.eyes.ask(lambda endpoint: endpoint.estimate(address, payload, top))

    def is_worth_telling(self, wait: str) -> bool:
        """Whether the log should have it that this waits: at first, and then once a minute."""
        if self.ticks() < self.tell_wait_after.get(wait, 0):
            return False
        self.tell_wait_after[wait] = self.ticks() + TOLD_AGAIN
        return True

    def lasting_wait(self, longest: Millis) -> str | None:
        """What a stage has waited for longer than that; None: none has."""
        now = self.ticks()
        return next((reason for since, reason in self.waits.values() if now - since >= longest), None)

    async def pause_for_signer(self, failure: SignerFailed) -> bool:
        """The signer's failure is the lane's, not a transaction's: nothing was given a nonce."""
        log.warning("signer.failed", lane=str(self.key), reason=str(failure))
        self.paused_until = self.ticks() + SIGNER_PAUSE
        work = self.work()
        work.mark_lane(
            Attention(
                SIGNER_MARK,
                f"the signer gives no usable signature ({failure}); nothing new is signed until it does, look at the key",
                work.at,
            )
        )
        return await self.commit(work)

    def clear_mark(self, work: Work, *codes: str) -> None:
        """Take the lane's mark away if it is one of these: what it was for is over."""
        if self.is_marked(*codes):
            work.mark_lane(None)

    async def unmark(self, *codes: str) -> bool:
        """As `clear_mark`, in a commit of its own. True: it had one of these."""
        if not self.is_marked(*codes):
            return False
        work = self.work()
        work.mark_lane(None)
        return await self.commit(work)

    def is_marked(self, *codes: str) -> bool:
        """Whether the lane's mark is one of these."""
        mark = self.lane.record.attention
        return mark is not None and mark.code in codes

    def check_lease(self) -> None:
        """Stop by ourselves before the database would stop us."""
        if self.clock.monotonic() >= self.lease.until:
            raise LeaseLost(f"lease of {self.key} ran out here before it was renewed")


class Taken(NamedTuple):
    """That a node took something."""

    at: Millis
    told_after: Millis  # in ticks: such news may wait for a block


@dataclass(slots=True)
class Outlet:
    """One endpoint's queue of bytes to hand over, so that each endpoint gets a lane's nonces in order."""

    endpoint: Endpoint
    waiting: dict[Hash, bytes] = field(default_factory=dict)
    task: asyncio.Task[None] | None = None
    asked_at: Millis = 0  # in ticks: the last time
