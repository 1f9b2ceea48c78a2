"""Delivering for one webhook: in order within a transaction, side by side between them, until another node does.

What is to be delivered is in the store before it is sent, and what came of it is too before the next one of the same
transaction is. So a node may die at any moment: the next one sends again what nobody wrote down, and receivers know it
by its id.
"""

from __future__ import annotations

import asyncio
import heapq
from bisect import insort
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Protocol

import structlog

from nonchalant.errors import DeliveryLost, NonchalantError, RowMoved
from nonchalant.ports import Clock, Entropy, WebhookStore
from nonchalant.stream import PAGE, Stream, Told
from nonchalant.values import replace
from nonchalant.views import show_time
from nonchalant.waiting import nap
from nonchalant.webhooks import Delivery, DeliveryState, Parcel, Said, after, signed_headers
from nonchalant.words import Millis

# So many of a webhook wait at most; further events stay where they are, in the store, until there is room.
BACKLOG: Final = 1_000

# So many are under way to one receiver at once, each of another transaction.
AT_ONCE: Final = 10

# What was looked at and not wanted is written down only now and then: it would be a commit for each event of others.
UNSAVED: Final = 5_000

# A receiver that took nothing so often in a row, and then does, is back: what waits for it need not wait longer.
DOWN_AFTER: Final = 5

REST_SECONDS: Final = 1.0
LONGEST_REST_SECONDS: Final = 60.0
LONGEST_WAIT_SECONDS: Final = 60.0

# How long what is under way may take when this node stops.
FINISH_SECONDS: Final = 3.0

log = structlog.get_logger()


class Post(Protocol):
    """How one webhook's deliveries are sent."""

    async def post(self, url: str, headers: dict[str, str], body: str) -> Said:
        """Never raises: no answer is an answer too."""

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Kit:
    """What every courier of a node works with. `owner` is how the store knows the node."""

    owner: str
    store: WebhookStore
    stream: Stream
    make_post: Callable[[], Post]
    clock: Clock
    entropy: Entropy


class Courier:
    """Works until it is told to stop, or its webhook is another node's, disabled or gone."""

    def __init__(self, webhook_id: str, kit: Kit, held_until: float) -> None:
        self.id = webhook_id
        self.kit = kit
        self.held_until = held_until  # on the local monotonic clock; later it may be another node's
        self.version = 0  # as it was last read
        self.interrupted = asyncio.Event()
        self.failures = 0  # in a row
        self.lines: dict[str, list[Delivery]] = {}  # what waits, by what must stay in order
        self.ahead: Millis = 0  # by how much the store's clock is ahead of our ticks
        self._stopping = False

    def now(self) -> Millis:
        """By the store's clock."""
        return round(self.kit.clock.monotonic() * 1000) + self.ahead

    def backlog(self) -> tuple[int, Millis]:
        """How many deliveries wait, and how old the oldest is; 0: none does."""
        oldest = min((line[0].created_at for line in self.lines.values()), default=None)
        return sum(map(len, self.lines.values())), 0 if oldest is None else max(0, self.now() - oldest)

    def stop(self) -> None:
        self._stopping = True
        self.interrupted.set()

    def reload(self) -> None:
        """Somebody changed the webhook."""
        self.interrupted.set()

    def may_go_on(self) -> bool:
        return not self._stopping and self.is_held()

    def is_held(self) -> bool:
        return self.kit.clock.monotonic() < self.held_until

    async def run(self) -> None:
        rest, post = REST_SECONDS, self.kit.make_post()
        try:
            while self.may_go_on():
                try:
                    if not await _Round(self, post).work():
                        return
                    rest = REST_SECONDS
                    continue
                except DeliveryLost:
                    return
                except RowMoved:
                    continue  # changed meanwhile: it is read anew
                except NonchalantError as error:
                    log.warning("webhook.waits", webhook=self.id, reason=str(error))
                except Exception:  # one webhook must not end the others' deliveries
                    # Nobody expected it, so it is told with all its frames.
                    log.exception("webhook.broke", webhook=self.id)
                await nap(self.kit.clock, self.interrupted, rest)
                rest = min(2 * rest, LONGEST_REST_SECONDS)
        finally:
            await post.close()


class _Round:
    """From reading the webhook to reading it anew."""

    def __init__(self, courier: Courier, post: Post) -> None:
        self._courier = courier
        self._post = post
        self._is_full = False
        self._lines = courier.lines = dict[str, list[Delivery]]()
        self._due: list[tuple[Millis, str]] = []  # a heap: when the first of each line is to be sent
        self._under_way: dict[asyncio.Task[Said], Delivery] = {}

    async def work(self) -> bool:
        """True: the webhook is to be read anew. False: there is nothing more to do for it here."""
        courier = self._courier
        courier.interrupted.clear()
        loaded = await courier.kit.store.load_webhook(courier.id, courier.kit.owner, limit=2 * BACKLOG)
        self._hook = loaded.webhook
        courier.ahead = loaded.at - round(courier.kit.clock.monotonic() * 1000)
        courier.version = self._hook.version
        if self._hook.disabled_at is not None:
            return False
        await self._tell_what_is_missing()
        self._scanned = self._hook.position
        is_cut_short = len(loaded.pending) == 2 * BACKLOG
        self._enqueue(loaded.pending)
        try:
            with courier.kit.stream.heard():
                while courier.may_go_on() and not courier.interrupted.is_set():
                    news = courier.kit.stream.news
                    has_more = await self._fan_out()
                    self._send_what_is_due()
                    if is_cut_short and not self._lines:
                        return True
                    await self._wait(news, at_once=has_more)
                    if not await self._record():
                        return False
        finally:
            await self._finish()
        return courier.may_go_on()

    async def _tell_what_is_missing(self) -> None:
        kept = await self._courier.kit.store.event_range()
        if self._hook.position < kept.forgotten:
            log.warning("webhook.events_removed", webhook=self._hook.id, after=self._hook.position, upto=kept.forgotten)

    # what is to be sent

    async def _fan_out(self) -> bool:
        """Make deliveries of new events, as far as there is room. True: there may be more at once."""
        room = BACKLOG - sum(map(len, self._lines.values()))
        self._is_full = room <= 0
        if self._is_full:
            return False
        page = await self._courier.kit.stream.page(self._scanned, min(PAGE, room))
        wanted = await self._courier.kit.stream.seen_by(self._hook.interest, page.told)
        self._scanned = page.upto
        if wanted or self._scanned - self._hook.position >= UNSAVED:
            parcels = [pack(told) for told in wanted]
            made = await self._courier.kit.store.fan_out(self._hook, self._courier.kit.owner, self._scanned, parcels)
            self._hook = replace(self._hook, position=self._scanned)
            self._enqueue(made)
        return bool(page.told)

    def _enqueue(self, deliveries: Iterable[Delivery]) -> None:
        for delivery in deliveries:
            line = self._lines.setdefault(delivery.stream, [])
            insort(line, delivery, key=lambda one: one.position)
            if line[0] is delivery:
                heapq.heappush(self._due, (delivery.next_at, delivery.stream))

    # sending

    def _send_what_is_due(self) -> None:
        busy = {delivery.stream for delivery in self._under_way.values()}
        while self._due and self._due[0][0] <= self._now() and len(self._under_way) < AT_ONCE:
            next_at, stream = heapq.heappop(self._due)
            line = self._lines.get(stream)
            if line and stream not in busy and line[0].next_at == next_at:
                busy.add(stream)
                self._under_way[asyncio.create_task(self._send(line[0]))] = line[0]

    async def _send(self, delivery: Delivery) -> Said:
        now = self._now()
        headers = signed_headers(self._hook.live_secrets(now), delivery.id, now, delivery.body)
        return await self._post.post(self._hook.url, headers, delivery.body)

    async def _wait(self, news: asyncio.Event, *, at_once: bool) -> None:
        """For an answer, for news if there is room for them, for the next try, or for somebody who wants us to stop."""
        if at_once:
            await asyncio.sleep(0)  # noqa: TID251 - only to let others have their turn
            return
        waiting = [asyncio.ensure_future(self._courier.interrupted.wait())]
        if not self._is_full:
            waiting.append(asyncio.ensure_future(news.wait()))
        try:
            await asyncio.wait(
                [*self._under_way, *waiting], timeout=self._patience(), return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            for one in waiting:
                one.cancel()

    def _patience(self) -> float:
        held = self._courier.held_until - self._courier.kit.clock.monotonic()
        due = (self._due[0][0] - self._now()) / 1000 if self._due and len(self._under_way) < AT_ONCE else held
        return max(0.0, min(held, due, LONGEST_WAIT_SECONDS))

    # what came of it

    async def _record(self) -> bool:
        """Write down what receivers said. False: this one wants nothing more."""
        done = [task for task in self._under_way if task.done()]
        if not done:
            return True
        said = [(self._under_way[task], task.result()) for task in done]
        tried = [after(delivery, one, self._now(), self._courier.kit.entropy.uniform(0, 1)) for delivery, one in said]
        gone = any(one.gone for _, one in said)
        is_back = self._count_failures(one for _, one in said)
        await self._courier.kit.store.record_deliveries(
            self._hook.id,
            self._courier.kit.owner,
            tried,
            disable="the receiver answered 410 (Gone)" if gone else None,
            hurry=is_back,
        )
        for task in done:  # those alone: others may have ended while this was written down
            del self._under_way[task]
        for delivery in tried:
            self._advance(delivery)
        if is_back:
            self._hurry()
        if gone:
            log.warning("webhook.disabled", webhook=self._hook.id, reason="the receiver answered 410 (Gone)")
        return not gone

    def _count_failures(self, said: Iterable[Said]) -> bool:
        """Whether the receiver is back after it was down."""
        was_down, delivered = self._courier.failures >= DOWN_AFTER, False
        for one in said:
            self._courier.failures = 0 if one.delivered else self._courier.failures + 1
            delivered |= one.delivered
            if self._courier.failures == DOWN_AFTER:
                log.warning("webhook.down", webhook=self._hook.id, status=one.status, reason=one.error)
        if was_down and delivered:
            log.info("webhook.back", webhook=self._hook.id)
        return was_down and delivered

    def _advance(self, tried: Delivery) -> None:
        line = self._lines[tried.stream]
        place = next(n for n, one in enumerate(line) if one.position == tried.position)
        if tried.ended_at is None:
            line[place] = tried
        else:
            del line[place]
            if tried.state is DeliveryState.FAILED:
                log.warning("webhook.given_up", webhook=self._hook.id, delivery=tried.id, tries=tried.tries)
        if line:
            heapq.heappush(self._due, (line[0].next_at, tried.stream))
        else:
            del self._lines[tried.stream]

    def _hurry(self) -> None:
        now = self._now()
        busy = {delivery.stream for delivery in self._under_way.values()}
        for stream, line in self._lines.items():
            line[:] = [replace(one, next_at=min(one.next_at, now)) for one in line]
            if stream not in busy:
                heapq.heappush(self._due, (line[0].next_at, stream))

    async def _finish(self) -> None:
        """What is under way ends, and is written down, if it does so soon; else it is sent again by whoever is next."""
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=FINISH_SECONDS)
            for task in self._under_way:
                task.cancel()
            await asyncio.wait(self._under_way)
            done = [task for task in self._under_way if task.done() and not task.cancelled()]
            self._under_way = {task: self._under_way[task] for task in done}
            if self._under_way and self._courier.is_held():
                await self._record()

    def _now(self) -> Millis:
        """By the store's clock."""
        return self._courier.now()


def pack(told: Told) -> Parcel:
    """As the specification wants it: its type, its time, and the event as everybody sees it."""
    event = told.event
    return Parcel(
        position=event.position,
        stream=event.tx_id or f"{event.lane.chain_id}:{event.lane.address}",
        kind=event.kind,
        body=envelope(event.kind, event.at, told.text.decode()),
    )


def envelope(kind: str, at: Millis, data: str) -> str:
    """`data` is JSON already. Kinds and times need no escapes."""
    return f'{{"type":"{kind}","timestamp":"{show_time(at)}","data":{data}}}'
