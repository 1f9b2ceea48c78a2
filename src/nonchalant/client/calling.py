"""The asynchronous client: every call of the service, typed."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterable
from contextlib import aclosing
from pathlib import Path
from types import TracebackType
from typing import Final, Self, Unpack
from urllib.parse import quote

from nonchalant.client.asks import Ask, NewPayload, body_of, fees_written
from nonchalant.client.events import follow
from nonchalant.client.keys import Keys
from nonchalant.client.lanes import ClientLane
from nonchalant.client.refusals import ServiceUnreachable
from nonchalant.client.service import FIRST_PAUSE, Service
from nonchalant.client.webhooks import Webhooks
from nonchalant.errors import BadSettings
from nonchalant.lane_views import LanesView, LaneView
from nonchalant.model import Fees
from nonchalant.reaching import DEFAULT_URL, find_key, read_key, read_url
from nonchalant.system import SystemClock, SystemEntropy
from nonchalant.views import BatchView, EventsView, EventView, TransactionsView, TransactionView
from nonchalant.words import HELD_MARK, LIVE_STATES, Speed, State

DEFAULT_TIMEOUT: Final = 30.0
DEFAULT_RETRIES: Final = 4

# How long the service is asked to wait for a change, at most, before it is asked again.
LONG_POLL: Final = 30.0
PAGE: Final = 100


class Client:
    """One service. Use it in one event loop, as `async with Client() as client`, or close it when done.

    `url` and `key` default to NONCHALANT_URL and NONCHALANT_KEY; `key_file` names a file that only its owner can read.
    `timeout` is how many seconds one answer may take, beside what a call is asked to wait. A call that was not heard, or
    that may be carried out twice without harm, is made up to `retries` times more.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        key: str | None = None,
        key_file: str | os.PathLike[str] | None = None,
        timeout: float = DEFAULT_TIMEOUT,
        retries: int = DEFAULT_RETRIES,
    ) -> None:
        if key is not None and key_file is not None:
            raise BadSettings("give a key or a key_file, not both")
        if key is None:
            found = find_key(None if key_file is None else Path(key_file), where="key_file")
        else:
            found = read_key(key, "key")
        where = url or os.environ.get("NONCHALANT_URL") or DEFAULT_URL
        read_url(where)
        self._service = Service(
            where, found, timeout=timeout, retries=retries, clock=SystemClock(), entropy=SystemEntropy()
        )

    @property
    def url(self) -> str:
        return self._service.url

    async def close(self) -> None:
        """Give its connections back; a later call opens new ones."""
        await self._service.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.url}>"

    # sending

    async def send(self, *, idempotency_key: str | None = None, **ask: Unpack[Ask]) -> TransactionView:
        """Hand a transaction over; it is kept when this returns. The same key and request again give the same one.

        Without a key this call makes one, so that its own retries send nothing twice; the transaction names it, and so
        does `ServiceUnreachable` if no answer came.
        """
        key = idempotency_key or self._service.entropy.token()
        return await self._service.post("/v1/transactions", TransactionView, body_of(ask), idempotency_key=key)

    async def send_many(self, asks: Iterable[Ask], *, idempotency_key: str | None = None) -> BatchView:
        """Hand over up to 500 transactions: all are accepted, or none is. One key is for the whole; as with `send`, one
        is made where none is given."""
        key = idempotency_key or self._service.entropy.token()
        body = {"transactions": [body_of(ask) for ask in asks]}
        return await self._service.post("/v1/transactions/batch", BatchView, body, idempotency_key=key)

    # looking

    async def get(self, tx: str | TransactionView, *, wait: float = 0.0, after: int | None = None) -> TransactionView:
        """A transaction as it is. `wait` lets the service answer when it has ended, or has moved beyond version `after`,
        at the latest after so many seconds (60 at most)."""
        query = {"wait": f"{wait:.3f}", "after": after} if wait else {}
        return await self._service.get(_path(tx), TransactionView, query, waits=wait)

    async def settled(
        self,
        tx: str | TransactionView,
        timeout: float | None = None,  # noqa: ASYNC109 - a plain name for callers
    ) -> TransactionView:
        """The outcome, once it is final; `TimeoutError` if it is not by then. It never raises for what the chain did.

        A service that is away is waited for: what it accepted goes on when it is back. Without a `timeout` that is at
        most as long as its retries last.
        """
        clock = self._service.clock
        deadline = None if timeout is None else clock.monotonic() + timeout
        while True:
            left = LONG_POLL if deadline is None else min(LONG_POLL, deadline - clock.monotonic())
            if left <= 0:
                raise TimeoutError(f"transaction {_id(tx)} has not ended after {timeout:g} s")
            try:
                now = await self.get(tx, wait=left)
            except ServiceUnreachable:
                if deadline is None:
                    raise
                await clock.sleep(min(FIRST_PAUSE, left))
                continue
            if now.state not in LIVE_STATES:
                return now

    async def transactions(
        self,
        *,
        state: State | str | None = None,
        chain_id: int | None = None,
        sender: str | None = None,
        nonce: int | None = None,
        hash: str | bytes | None = None,
        idempotency_key: str | None = None,
        batch: str | None = None,
    ) -> AsyncIterator[TransactionView]:
        """Those that fit, newest first, page after page."""
        query: dict[str, object] = {
            "state": state,
            "chain_id": chain_id,
            "from": sender,
            "nonce": nonce,
            "hash": "0x" + hash.hex().removeprefix("0x") if isinstance(hash, bytes) else hash,
            "idempotency_key": idempotency_key,
            "batch": batch,
            "limit": PAGE,
        }
        while True:
            page = await self._service.get("/v1/transactions", TransactionsView, query)
            for tx in page.transactions:
                yield tx
            if page.next_cursor is None:
                return
            query["cursor"] = page.next_cursor

    async def history(self, tx: str | TransactionView) -> list[EventView]:
        """All that happened to a transaction, in order."""
        return (await self._service.get(f"{_path(tx)}/events", EventsView)).events

    async def events(
        self,
        *,
        after: int | None = None,
        lanes: Iterable[tuple[int, str]] = (),
        transactions: Iterable[str | TransactionView] = (),
        kinds: Iterable[str] = (),
    ) -> AsyncIterator[EventView]:
        """What happens, as it happens, in the order of its positions: after this one, or from now on.

        It goes on over lost connections, on whichever node answers, without missing any. To go on after a restart of your
        own, keep the `position` of the last one that you are done with. `kinds` are kinds or families such as `tx.*`.
        """
        query = [
            *(("lane", f"{chain_id}:{address}") for chain_id, address in lanes),
            *(("tx", _id(tx)) for tx in transactions),
            *(("kind", kind) for kind in kinds),
        ]
        stream = follow(self._service, query, after)
        async with aclosing(stream):
            async for event in stream:
                yield event

    # changing one's mind: each gives the transaction as it is then

    async def cancel(self, tx: str | TransactionView) -> TransactionView:
        """It will not run, if that can still be helped; the outcome tells."""
        return await self._wish(tx, "cancel")

    async def bump(self, tx: str | TransactionView, fees: Speed | Fees | str | None = None) -> TransactionView:
        """Offer more for it: so much, or what the market asks."""
        return await self._wish(tx, "bump", fees=fees_written(fees))

    async def replace(self, tx: str | TransactionView, **payload: Unpack[NewPayload]) -> TransactionView:
        """Let something else run in its place, under its id; nothing of the old payload is kept."""
        return await self._wish(tx, "replace", **body_of(payload))

    async def hold(self, tx: str | TransactionView, reason: str = "") -> TransactionView:
        """Keep it queued until it is released; `TooLate` once it has a nonce."""
        return await self._wish(tx, "hold", reason=reason)

    async def release(self, tx: str | TransactionView, mark: str = HELD_MARK) -> TransactionView:
        """Let it go on, at the place it had. What somebody else than a person holds goes only if its `mark` is named:
        it may have run already."""
        return await self._wish(tx, "release", mark=mark)

    async def _wish(self, tx: str | TransactionView, verb: str, **body: object) -> TransactionView:
        said = {name: value for name, value in body.items() if value is not None}
        return await self._service.post(f"{_path(tx)}/{verb}", TransactionView, said)

    # lanes

    async def lanes(self) -> list[LaneView]:
        """Every account on every chain."""
        return (await self._service.get("/v1/lanes", LanesView)).lanes

    @property
    def keys(self) -> Keys:
        """API keys and the audit log, for those who may see them."""
        return Keys(self._service)

    @property
    def webhooks(self) -> Webhooks:
        """Where events are delivered to, for those who may say so."""
        return Webhooks(self._service)

    def lane(self, chain_id: int, address: str) -> ClientLane:
        """One account on one chain: to look at, to steer, or to reserve its nonces."""
        return ClientLane(self._service, chain_id, address)


def _id(tx: str | TransactionView) -> str:
    return tx if isinstance(tx, str) else tx.id


def _path(tx: str | TransactionView) -> str:
    return f"/v1/transactions/{quote(_id(tx), safe='')}"
