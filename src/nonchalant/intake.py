"""Intake: many requests share one commit. While one commit is under way the next batch collects; an idle system does
not wait, and one bad request never fails its neighbours."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Never, Protocol

import structlog

from nonchalant import errors
from nonchalant.arrivals import Caller
from nonchalant.errors import (
    BadRequest,
    CommitUnknown,
    KeyReused,
    LaneDraining,
    QueueFull,
    ShuttingDown,
    StoreUnavailable,
    TransactionRemoved,
)
from nonchalant.model import Request, Transaction
from nonchalant.ports import (
    Acceptance,
    Clock,
    Draining,
    Duplicate,
    Illegible,
    KeyTaken,
    NonceTaken,
    NoRoom,
    Overdue,
    Removed,
    Store,
)
from nonchalant.words import LaneKey

log = structlog.get_logger()

BATCH = 500

# A commit of unknown outcome is repeated with the same ids: whichever one took effect, the answer is the same.
TRIES = 5
RETRY_SECONDS = 0.2

# How often whoever closes looks whether those that are stored together are.
CLOSING_LOOK = 0.05

# Of something that an earlier try may have accepted, these say nothing.
REFUSALS = NoRoom | Draining | Overdue

# Callers waiting for a commit; more are told to come back.
MAX_WAITING = 20_000
TOO_MANY_WAIT = "too many requests wait to be stored; try again in a moment"


class Accept(Protocol):
    def __call__(
        self, requests: Sequence[Request], /, *, limits: Mapping[LaneKey, int]
    ) -> Awaitable[Sequence[Acceptance]]: ...


Offer = Callable[[Caller], bool]


class Waiting:
    """Somebody who waits for his request to be stored: at the desk of its lane, or in the queue, which is the same to him."""

    __slots__ = ("_doubt", "_intake", "answer", "request")

    def __init__(self, intake: Intake, request: Request) -> None:
        self.request = request
        self.answer: asyncio.Future[Acceptance] = asyncio.get_running_loop().create_future()
        self._intake = intake
        self._doubt: CommitUnknown | None = None  # the desk may have accepted it

    def admitted(self, tx: Transaction) -> None:
        self._intake.left_the_desk()
        self.answered(tx)

    def sent_away(self, doubt: CommitUnknown | None = None) -> None:
        self._doubt = doubt
        self._intake.left_the_desk()
        if self.answer.get_loop().is_running():  # else the desk is thrown away with everything, and nobody waits
            self._intake.queue(self)

    def answered(self, answer: Acceptance) -> None:
        if self._doubt is not None and isinstance(answer, REFUSALS):
            self.refused(self._doubt)
        elif not self.answer.done():  # a caller that went away is no reason to forget what it asked for
            self.answer.set_result(answer)

    def refused(self, error: Exception) -> None:
        """Whatever the queue says: what the desk may have accepted is not known to have failed."""
        if not self.answer.done():
            self.answer.set_exception(self._doubt or error)


class Intake:
    """`offer` has a lane's own node accept and sign something at once, where it can."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        limits: Mapping[LaneKey, int],
        arrived: Callable[[LaneKey], None],
        offer: Offer,
    ) -> None:
        self._store = store
        self._clock = clock
        self._limits = limits
        self._arrived = arrived
        self._offer = offer
        self._waiting: list[Waiting] = []
        self._queued: Counter[LaneKey] = Counter()  # of each lane, until they are answered
        self._committer: asyncio.Task[None] | None = None
        self._together = 0  # requests that wait to be stored together with others
        self._offered = 0  # requests that wait to be signed at once
        self._closed = False

    async def submit(self, request: Request) -> tuple[Transaction, bool]:
        """The accepted transaction, on disk; False if the idempotency key had made it before.

        Those of one lane are accepted in the order of these calls, also where some of them are signed at once.
        """
        if self._closed:
            raise ShuttingDown
        if self.waiting >= MAX_WAITING:
            raise QueueFull(TOO_MANY_WAIT)
        caller = Waiting(self, request)
        if self._queued[request.lane] == 0 and self._offer(caller):
            self._offered += 1
        else:
            self.queue(caller)
        return self._accepted(request, await caller.answer)

    def queue(self, caller: Waiting) -> None:
        self._waiting.append(caller)
        self._queued[caller.request.lane] += 1
        if self._committer is None:
            self._committer = asyncio.create_task(self._commit_all())

    def left_the_desk(self) -> None:
        self._offered -= 1

    async def submit_together(self, requests: Sequence[Request]) -> tuple[Sequence[Transaction], bool]:
        """All of them, accepted in one commit, or none: then the first that could not be is told, by its number.

        False: the idempotency key, which the first one carries, had made them before.
        """
        if self._closed:
            raise ShuttingDown
        if len(self._waiting) + self._together >= MAX_WAITING:
            raise QueueFull(TOO_MANY_WAIT)
        self._together += len(requests)
        try:
            answers = await self._accept(requests, self._store.accept_together)
        finally:
            self._together -= len(requests)
        if isinstance(answers[0], Duplicate):
            known = [answer.transaction for answer in answers if isinstance(answer, Duplicate)]
            if len(known) < len(requests):
                raise TransactionRemoved(
                    f"of the {len(requests)} transactions that had this key, {len(known)} are kept; the others have ended",
                    known[0].id,
                )
            return known, False
        for number, (request, answer) in enumerate(zip(requests, answers, strict=True)):
            if isinstance(answer, CommitUnknown):
                raise answer
            if not isinstance(answer, Transaction):
                self._refuse_together(number, request, answer)
        for lane in {request.lane: None for request in requests}:
            self._arrived(lane)
        return [answer for answer in answers if isinstance(answer, Transaction)], True

    def _refuse_together(self, number: int, request: Request, answer: Acceptance) -> Never:
        try:
            self._accepted(request, answer)
        except BadRequest as problem:
            raise BadRequest(problem.bare, field=f"transactions[{number}].{problem.field}") from None
        raise AssertionError(f"{answer} is no refusal")

    def _accepted(self, request: Request, answer: Acceptance) -> tuple[Transaction, bool]:
        """What the store says of it, or the error that its caller gets."""
        match answer:
            case Transaction() as tx:
                return tx, True
            case Duplicate(tx):
                return tx, False
            case NonceTaken(tx_id):
                raise errors.NonceTaken(
                    f"nonce {request.asked_nonce} of {request.lane} is that of {tx_id or 'another'}"
                )
            case KeyTaken():
                raise KeyReused(f"idempotency key {request.idempotency_key!r} was used for another request")
            case Removed(tx_id):
                raise TransactionRemoved(f"transaction {tx_id} had this key; it has ended, and is kept no more", tx_id)
            case Illegible(tx_id):
                raise StoreUnavailable(f"the row of transaction {tx_id} cannot be read; restore it")
            case Draining():
                raise LaneDraining(f"lane {request.lane} is being drained; use another account, or resume it")
            case Overdue():
                raise BadRequest("has passed already; nothing was accepted", field="valid_until")
            case NoRoom():
                raise QueueFull(
                    f"{self._limits[request.lane]} transactions wait in lane {request.lane}; try again later"
                )

    @property
    def waiting(self) -> int:
        """How many requests wait for their commit."""
        return len(self._waiting) + self._together + self._offered

    async def close(self) -> None:
        """Take nothing more; what was taken is answered first."""
        self._closed = True
        while self._committer is not None or self._together or self._offered:
            if self._committer is not None:
                await asyncio.wait([self._committer])
            else:
                await self._clock.sleep(CLOSING_LOOK)

    async def _commit_all(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[:BATCH], self._waiting[BATCH:]
                await self._commit(batch)
                self._queued -= Counter(caller.request.lane for caller in batch)
        finally:
            self._committer = None

    async def _commit(self, batch: list[Waiting]) -> None:
        try:
            answers = await self._accept([caller.request for caller in batch], self._store.accept)
        except (CommitUnknown, StoreUnavailable) as error:
            for caller in batch:
                caller.refused(error)
            return
        except Exception as error:  # whatever it is, callers wait for an answer
            # One of them cannot be stored: each on its own, so that it fails alone.
            if len(batch) > 1:
                for one in batch:
                    await self._commit([one])
                return
            [caller] = batch
            log.exception("request.unstorable", tx=caller.request.id, lane=str(caller.request.lane))
            caller.refused(error)
            return
        told = set[LaneKey]()
        for caller, answer in zip(batch, answers, strict=True):
            lane = caller.request.lane
            if isinstance(answer, CommitUnknown):
                caller.refused(answer)
            else:
                caller.answered(answer)
            if isinstance(answer, Transaction) and lane not in told:
                told.add(lane)
                self._arrived(lane)

    async def _accept(self, requests: Sequence[Request], accept: Accept) -> list[Acceptance | CommitUnknown]:
        trouble: CommitUnknown | StoreUnavailable = StoreUnavailable()
        for _ in range(TRIES):
            try:
                answers = await accept(requests, limits=self._limits)
            except (CommitUnknown, StoreUnavailable) as error:
                trouble = trouble if isinstance(trouble, CommitUnknown) else error
                await self._clock.sleep(RETRY_SECONDS)
            else:
                # An earlier try may still take effect: no room now does not mean that nothing was taken.
                doubt = trouble if isinstance(trouble, CommitUnknown) else None
                return [doubt if doubt and isinstance(answer, REFUSALS) else answer for answer in answers]
        raise trouble
