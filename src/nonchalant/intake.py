"""Intake: many requests share one commit. While one commit is under way the next batch collects; an idle system does
not wait, and one bad request never fails its neighbours."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Never, Protocol

import structlog

from nonchalant import errors
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


Offer = Callable[[Request], "asyncio.Future[Transaction | None] | None"]
Waiting = tuple[Request, "asyncio.Future[Acceptance]"]


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
        self._committer: asyncio.Task[None] | None = None
        self._together = 0  # requests that wait to be stored together with others
        self._offered = 0  # requests that wait to be signed at once
        self._closed = False

    async def submit(self, request: Request) -> tuple[Transaction, bool]:
        """The accepted transaction, on disk; False if the idempotency key had made it before."""
        if self._closed:
            raise ShuttingDown
        served = self._offer(request)
        if served is None:
            return self._accepted(request, await self.queue(request))
        self._offered += 1
        doubt: CommitUnknown | None = None
        try:
            tx = await served
            if tx is not None:
                return tx, True
        except CommitUnknown as unknown:
            doubt = unknown
        finally:
            self._offered -= 1
        answer = await self.queue(request)
        if doubt is not None and isinstance(answer, REFUSALS):
            raise doubt  # it may still turn out to be accepted
        return self._accepted(request, answer)

    async def queue(self, request: Request) -> Acceptance:
        """What the store says of it, once it is on disk."""
        if len(self._waiting) >= MAX_WAITING:
            raise QueueFull(TOO_MANY_WAIT)
        future: asyncio.Future[Acceptance] = asyncio.get_running_loop().create_future()
        self._waiting.append((request, future))
        if self._committer is None:
            self._committer = asyncio.create_task(self._commit_all())
        return await future

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
        finally:
            self._committer = None

    async def _commit(self, batch: list[Waiting]) -> None:
        try:
            answers = await self._accept([request for request, _ in batch], self._store.accept)
        except (CommitUnknown, StoreUnavailable) as error:
            _refuse(batch, error)
            return
        except Exception as error:  # whatever it is, callers wait for an answer
            # One of them cannot be stored: each on its own, so that it fails alone.
            if len(batch) > 1:
                for one in batch:
                    await self._commit([one])
                return
            log.exception("request.unstorable", tx=batch[0][0].id, lane=str(batch[0][0].lane))
            _refuse(batch, error)
            return
        told = set[LaneKey]()
        for (request, future), answer in zip(batch, answers, strict=True):
            if isinstance(answer, CommitUnknown):
                _refuse([(request, future)], answer)
            elif not future.done():  # a caller that went away is no reason to forget what it asked for
                future.set_result(answer)
            if isinstance(answer, Transaction) and request.lane not in told:
                told.add(request.lane)
                self._arrived(request.lane)

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


def _refuse(batch: list[Waiting], error: Exception) -> None:
    for _, future in batch:
        if not future.done():
            future.set_exception(error)
