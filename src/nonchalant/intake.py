"""Intake: many requests share one commit. While one commit is under way the next batch collects; an idle system does
not wait, and one bad request never fails its neighbours."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import structlog

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
from nonchalant.model import LaneKey, Request, Transaction
from nonchalant.ports import (
    Acceptance,
    Clock,
    Draining,
    Duplicate,
    Illegible,
    KeyTaken,
    NoRoom,
    Overdue,
    Removed,
    Store,
)

log = structlog.get_logger()

BATCH = 500

# A commit of unknown outcome is repeated with the same ids: whichever one took effect, the answer is the same.
TRIES = 5
RETRY_SECONDS = 0.2

# Callers waiting for a commit; more are told to come back.
MAX_WAITING = 20_000

Waiting = tuple[Request, "asyncio.Future[Acceptance]"]


class Intake:
    def __init__(
        self, store: Store, clock: Clock, *, limits: Mapping[LaneKey, int], arrived: Callable[[LaneKey], None]
    ) -> None:
        self._store = store
        self._clock = clock
        self._limits = limits
        self._arrived = arrived
        self._waiting: list[Waiting] = []
        self._committer: asyncio.Task[None] | None = None
        self._closed = False

    async def submit(self, request: Request) -> tuple[Transaction, bool]:
        """The accepted transaction, on disk; False if the idempotency key had made it before."""
        if self._closed:
            raise ShuttingDown
        if len(self._waiting) >= MAX_WAITING:
            raise QueueFull("too many requests wait to be stored; try again in a moment")
        future: asyncio.Future[Acceptance] = asyncio.get_running_loop().create_future()
        self._waiting.append((request, future))
        if self._committer is None:
            self._committer = asyncio.create_task(self._commit_all())
        match await future:
            case Transaction() as tx:
                return tx, True
            case Duplicate(tx):
                return tx, False
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

    async def close(self) -> None:
        """Take nothing more; what was taken is answered first."""
        self._closed = True
        while self._committer is not None:
            await asyncio.wait([self._committer])

    async def _commit_all(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[:BATCH], self._waiting[BATCH:]
                await self._commit(batch)
        finally:
            self._committer = None

    async def _commit(self, batch: list[Waiting]) -> None:
        try:
            answers = await self._accept([request for request, _ in batch])
        except (CommitUnknown, StoreUnavailable) as error:
            _refuse(batch, error)
            return
        except Exception as error:  # whatever it is, callers wait for an answer
            # One of them cannot be stored: each on its own, so that it fails alone.
            if len(batch) > 1:
                for one in batch:
                    await self._commit([one])
                return
            log.exception("request.unstorable", tx=batch[0][0].id)
            _refuse(batch, error)
            return
        for (request, future), answer in zip(batch, answers, strict=True):
            if isinstance(answer, CommitUnknown):
                _refuse([(request, future)], answer)
            elif not future.done():  # a caller that went away is no reason to forget what it asked for
                future.set_result(answer)
            if isinstance(answer, Transaction):
                self._arrived(request.lane)

    async def _accept(self, requests: list[Request]) -> list[Acceptance | CommitUnknown]:
        trouble: CommitUnknown | StoreUnavailable = StoreUnavailable()
        for _ in range(TRIES):
            try:
                answers = await self._store.accept(requests, limits=self._limits)
            except (CommitUnknown, StoreUnavailable) as error:
                trouble = trouble if isinstance(trouble, CommitUnknown) else error
                await self._clock.sleep(RETRY_SECONDS)
            else:
                # An earlier try may still take effect: no room now does not mean that nothing was taken.
                doubt = trouble if isinstance(trouble, CommitUnknown) else None
                refusals = NoRoom | Draining | Overdue
                return [doubt if doubt and isinstance(answer, refusals) else answer for answer in answers]
        raise trouble


def _refuse(batch: list[Waiting], error: Exception) -> None:
    for _, future in batch:
        if not future.done():
            future.set_exception(error)
