"""JSON-RPC over HTTP. Calls made together travel together, and what befalls one is not its neighbours' affair.

There are no retries here: they belong to the stages. What is asked again is only what a node refused to look at
because of its company, namely a batch answered by one bare error: it is cut in halves until the node takes it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import aiohttp
import msgspec
from yarl import URL

from nonchalant.errors import BadSettings, NodeRefused, Unreachable

BATCH_ITEMS: Final = 100  # what hosted nodes commonly allow; more gained nothing when measured
BODY_BYTES: Final = 1_000_000  # anvil refuses over 2 MB, some gateways over 1
ANSWER_BYTES: Final = 64 * 1024 * 1024  # a block of 12,500 transactions in full is 12 MB
CONCURRENCY: Final = 8  # requests under way to one endpoint; beyond that, calls collect
REFUSALS: Final = 24  # bare errors borne while one batch is cut: enough to isolate three bad items in a hundred
GROW_AFTER: Final = 100  # full batches answered before a larger one is tried again

TOO_LARGE: Final = b'{"error":{"code":413,"message":"HTTP 413: the batch is too large"}}'  # read as a bare error

UNDECODABLE: Final = (msgspec.DecodeError, RecursionError, ValueError)


class Call(msgspec.Struct, frozen=True, gc=False):
    """One question. `shared`: equal ones in one request are asked once, at the place of the last."""

    method: str
    params: tuple[object, ...] = ()
    shared: bool = False


Reply = bytes | NodeRefused | Unreachable
"""The undecoded result, or why there is none."""


def _parsed(url: str) -> URL:
    try:
        parsed = URL(url)
    except ValueError:  # its text would show the URL
        parsed = URL()
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise BadSettings("an endpoint's url must look like https://host:port/path")
    return parsed


class Rpc:
    """One node's door. `timeout` is in seconds: one for waiting its turn, and one for each request on the wire."""

    def __init__(
        self,
        url: str,
        name: str,
        *,
        timeout: float,
        batch_items: int = BATCH_ITEMS,
        answer_bytes: int = ANSWER_BYTES,
        concurrency: int = CONCURRENCY,
    ) -> None:
        self.name = name
        self._url = _parsed(url)
        self._secrets = _secrets(self._url)
        self._timeout = timeout
        self._batch_items = batch_items
        self._answer_bytes = answer_bytes
        self._concurrency = concurrency
        self._largest = batch_items  # what this node was found to take; 1 where it refuses batches
        self._full_batches = 0
        self._last_id = 0
        self._waiting: deque[_Group] = deque()
        self._requests: set[asyncio.Task[None]] = set()
        self._flushing = False
        self._closed = False
        self._session: aiohttp.ClientSession | None = None

    def __repr__(self) -> str:
        return f"Rpc({self.name})"

    async def call(self, method: str, *params: object) -> bytes:
        """The undecoded result; raises `Unreachable` or `NodeRefused`."""
        [reply] = await self.calls([Call(method, params)])
        if isinstance(reply, NodeRefused | Unreachable):
            raise reply
        return reply

    async def calls(self, calls: Sequence[Call], *, ordered: bool = True) -> list[Reply]:
        """One reply a call. What fits travels in one request. What does not is sent part after part, and no more once
        a part found the node unreachable; or, where the order is of no concern, all parts at once."""
        groups = self._groups(calls)
        replies: list[Reply] = []
        if not ordered:
            for part in await asyncio.gather(*map(self._asked, groups)):
                replies += part
            return replies
        unreachable = None
        for group in groups:
            if unreachable is not None:
                group.fail(unreachable)
                replies += group.answered()
                continue
            part = await self._asked(group)
            replies += part
            if all(isinstance(reply, Unreachable) for reply in part):
                unreachable = str(part[0])
        return replies

    async def close(self) -> None:
        """Let the connections go; who still waits for an answer gets `Unreachable`."""
        self._closed = True
        self._fail_waiting()
        for request in tuple(self._requests):
            request.cancel()
        await asyncio.gather(*self._requests, return_exceptions=True)
        if self._session is not None:
            await self._session.close()

    # gathering calls into requests

    def _groups(self, calls: Sequence[Call]) -> list[_Group]:
        groups: list[_Group] = []
        items: list[_Item] = []
        size = 0
        for call in calls:
            item = self._item(call)
            if items and (len(items) >= self._largest or size + len(item.body) > BODY_BYTES):
                groups.append(_Group(items))
                items, size = [], 0
            items.append(item)
            size += len(item.body) + 1
        if items:
            groups.append(_Group(items))
        return groups

    def _item(self, call: Call) -> _Item:
        self._last_id += 1
        params = msgspec.json.encode(call.params)
        body = b'{"jsonrpc":"2.0","id":%d,"method":"%s","params":%s}' % (self._last_id, call.method.encode(), params)
        return _Item(self._last_id, body, (call.method, params) if call.shared else None)

    async def _asked(self, group: _Group) -> list[Reply]:
        loop = asyncio.get_running_loop()
        group.done = loop.create_future()
        if self._closed:
            group.fail(f"{self.name}: the connection was closed")
            return group.answered()
        self._waiting.append(group)
        if not self._flushing:
            self._flushing = True
            loop.call_soon(self._flush)  # after all that is ready to run now, so that it can join
        expiry = loop.call_later(self._timeout, self._expire, group)
        try:
            await group.done
        finally:
            expiry.cancel()
        return group.answered()

    def _expire(self, group: _Group) -> None:
        if not group.taken:
            group.fail(f"{self.name} was too busy to be asked within {self._timeout:g} s")

    def _flush(self) -> None:
        self._flushing = False
        while len(self._requests) < self._concurrency and (items := self._next_batch()):
            request = asyncio.get_running_loop().create_task(self._run(items))
            self._requests.add(request)
            request.add_done_callback(partial(self._ended, items))

    def _ended(self, items: list[_Item], request: asyncio.Task[None]) -> None:
        self._requests.discard(request)
        bug = None if request.cancelled() else request.exception()
        for item in items:
            if bug is not None:
                item.fail(bug)
            if item.waiters:  # nobody is left of one that was answered
                item.answer(Unreachable(f"{self.name}: the connection was closed"))
        if not self._closed:
            self._flush()

    def _next_batch(self) -> list[_Item]:
        batch: dict[object, _Item] = {}
        size = 0
        while self._waiting:
            group = self._waiting[0]
            if group.done is None or group.done.done():  # its caller gave up
                self._waiting.popleft()
                continue
            if batch and (len(batch) + len(group.items) > self._largest or size + group.size > BODY_BYTES):
                break
            self._waiting.popleft()
            group.taken = True
            size += group.size
            for item in group.items:
                key = item.shared_key or item.id
                if (same := batch.pop(key, None)) is not None:
                    item.waiters += same.waiters
                batch[key] = item
        return list(batch.values())

    def _fail_waiting(self) -> None:
        while self._waiting:
            self._waiting.popleft().fail(f"{self.name}: the connection was closed")

    # one request, and what it takes to get its items answered

    async def _run(self, items: list[_Item]) -> None:
        try:
            await self._exchange(items, _Patience(REFUSALS))
        except Unreachable as problem:
            # New exceptions for the callers: this one's context may know the URL.
            for item in items:
                item.answer(Unreachable(problem.detail))

    async def _exchange(self, items: list[_Item], patience: _Patience) -> bool:
        """Get the items answered; whether the node answered each by its name. `Unreachable`: the rest stays open."""
        named = True
        while len(items) > self._largest:
            part, items = items[: self._largest], items[self._largest :]
            named = await self._exchange(part, patience) and named
        if len(items) == 1:
            return self._take_one(items[0], await self._post(items[0].body)) and named
        refusal = self._take_many(items, await self._post(b"[" + b",".join(item.body for item in items) + b"]"))
        if refusal is None:
            self._grow(len(items))
            return named
        if not patience.bear():
            raise Unreachable(f"{self.name} refuses: {refusal.message}")
        half = len(items) // 2
        left = await self._exchange(items[:half], patience)
        right = await self._exchange(items[half:], patience)
        if left and right:
            # Nothing was wrong but the size: a bad item would have been refused on its own, too.
            self._largest = min(self._largest, half)
            self._full_batches = 0
        return left and right and named

    def _grow(self, answered: int) -> None:
        if answered < self._largest or self._largest >= self._batch_items:
            return
        self._full_batches += 1
        if self._full_batches >= GROW_AFTER:
            self._largest = min(self._largest * 2, self._batch_items)
            self._full_batches = 0

    async def _post(self, body: bytes) -> bytes:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=self._concurrency),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None),
                headers={"Content-Type": "application/json", "User-Agent": "nonchalant"},
            )
        try:
            async with (
                asyncio.timeout(self._timeout),
                self._session.post(self._url, data=body, allow_redirects=False) as response,
            ):
                self._usable(response.status)
                parts, size = [], 0
                async for part in response.content.iter_any():
                    size += len(part)
                    if size > self._answer_bytes:
                        response.close()
                        raise Unreachable(f"{self.name} answered with more than {self._answer_bytes} bytes")
                    parts.append(part)
                answer = b"".join(parts)
        except TimeoutError:
            raise Unreachable(f"{self.name} did not answer within {self._timeout:g} s") from None
        except (aiohttp.ClientError, OSError, EOFError, ValueError) as problem:
            # Not its text: that may hold the URL.
            reason = getattr(problem, "strerror", None) or type(problem).__name__
            raise Unreachable(f"{self.name} cannot be reached: {self._scrubbed(str(reason))}") from None
        if response.status == 413 and body.startswith(b"["):
            return TOO_LARGE
        if response.status >= 400 and not answer.lstrip().startswith((b"{", b"[")):
            raise Unreachable(f"{self.name} answered HTTP {response.status}")
        return answer

    def _usable(self, status: int) -> None:
        """Let pass what may hold an answer: some nodes say 400 or 404 over a proper JSON-RPC error."""
        if status in (401, 403):
            raise Unreachable(f"{self.name} refuses us (HTTP {status}); check the credentials in its url")
        if status == 429 or status >= 500 or 300 <= status < 400:
            raise Unreachable(f"{self.name} answered HTTP {status}")

    # understanding answers

    def _take_one(self, item: _Item, answer: bytes) -> bool:
        response = self._response(answer)
        if response is None:
            raise Unreachable(f"{self.name} did not answer in JSON-RPC")
        named = type(response.id) is int and response.id == item.id
        if not named and not (response.id is None and _given(response.error)):
            raise Unreachable(f"{self.name} answered another question")
        item.answer(self._reply(response))
        return named

    def _take_many(self, items: list[_Item], answer: bytes) -> NodeRefused | None:
        """Answer each item that the node answered; a refusal if it gave one bare error for all."""
        try:
            answers = self._responses(answer)
        except UNDECODABLE:
            bare = self._response(answer)
            if bare is None or not _given(bare.error):
                raise Unreachable(f"{self.name} did not answer in JSON-RPC") from None
            refusal = self._reply(bare)
            if isinstance(refusal, NodeRefused):
                return refusal
            raise Unreachable(refusal.detail if isinstance(refusal, Unreachable) else "") from None
        open_items = {item.id: item for item in items}
        for response in answers:
            if response is not None and type(response.id) is int and response.id in open_items:
                open_items.pop(response.id).answer(self._reply(response))
        for item in open_items.values():
            item.answer(Unreachable(f"{self.name} left a question of a batch unanswered"))
        return None

    def _responses(self, answer: bytes) -> Sequence[_Response | None]:
        """One each, None for one that is none; an error of `UNDECODABLE` if there is no list of them."""
        try:
            return _RESPONSES.decode(answer)  # at once: each by itself takes twice as long
        except UNDECODABLE:
            return [self._response(raw) for raw in msgspec.json.decode(answer, type=list[msgspec.Raw])]

    def _response(self, answer: bytes | msgspec.Raw) -> _Response | None:
        try:
            return _RESPONSE.decode(answer)
        except UNDECODABLE:
            return None

    def _reply(self, response: _Response) -> Reply:
        if _given(response.error):
            return self._refusal(response.error)
        return bytes(response.result) or Unreachable(f"{self.name} answered with neither result nor error")

    def _refusal(self, raw: msgspec.Raw) -> NodeRefused | Unreachable:
        try:
            error = msgspec.json.decode(raw)
        except UNDECODABLE:
            error = None
        if isinstance(error, str):
            error = {"message": error}
        if not isinstance(error, dict):
            return Unreachable(f"{self.name} answered with an error that is none")
        code = error.get("code")
        if type(code) is not int:
            code = None
        message = error.get("message")
        if not isinstance(message, str):
            if code is None:
                return Unreachable(f"{self.name} answered with an error that says nothing")
            message = f"error {code}"
        message = self._scrubbed(message[:2000])
        if code is not None and (code == 429 or 500 <= code <= 599):
            return Unreachable(f"{self.name}: {message} ({code})")  # HTTP's codes: about the gateway, not about us
        data = error.get("data")
        if any(secret in repr(data) for secret in self._secrets):
            data = None
        return NodeRefused(message, code, data)

    def _scrubbed(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "…")
        return text


class _Response(msgspec.Struct):
    id: object = None
    result: msgspec.Raw = msgspec.Raw()
    error: msgspec.Raw = msgspec.Raw()


_RESPONSE = msgspec.json.Decoder(_Response)
_RESPONSES = msgspec.json.Decoder(list[_Response])


def _given(raw: msgspec.Raw) -> bool:
    return bytes(raw) not in (b"", b"null")


@dataclass(slots=True, eq=False)
class _Item:
    id: int
    body: bytes
    shared_key: tuple[str, bytes] | None
    waiters: list[tuple[_Group, int]] = field(default_factory=list)

    def answer(self, reply: Reply) -> None:
        for group, index in self.waiters:
            group.answer(index, reply)
        self.waiters.clear()

    def fail(self, bug: BaseException) -> None:
        for group, _ in self.waiters:
            if group.done is not None and not group.done.done():
                group.done.set_exception(bug)
        self.waiters.clear()


class _Group:
    """The calls of one caller, which travel together."""

    __slots__ = ("done", "items", "missing", "replies", "size", "taken")

    def __init__(self, items: list[_Item]) -> None:
        self.items = items
        self.size = sum(len(item.body) + 1 for item in items)
        self.replies: list[Reply | None] = [None] * len(items)
        self.missing = len(items)
        self.taken = False
        self.done: asyncio.Future[None] | None = None
        for index, item in enumerate(items):
            item.waiters.append((self, index))

    def answer(self, index: int, reply: Reply) -> None:
        if self.replies[index] is None:
            self.replies[index] = reply
            self.missing -= 1
        if not self.missing and self.done is not None and not self.done.done():
            self.done.set_result(None)

    def fail(self, reason: str) -> None:
        for index in range(len(self.replies)):
            self.answer(index, Unreachable(reason))

    def answered(self) -> list[Reply]:
        return [reply for reply in self.replies if reply is not None]


@dataclass(slots=True)
class _Patience:
    left: int

    def bear(self) -> bool:
        self.left -= 1
        return self.left >= 0


def _secrets(url: URL) -> tuple[str, ...]:
    """What of a URL could be a credential: all of it but host, port and what reads like an ordinary path."""
    parts = {url.user, url.password, url.raw_user, url.raw_password, url.raw_query_string, url.fragment}
    parts |= set(url.query.values())
    parts |= {segment for segment in (*url.parts, *url.raw_parts) if _looks_random(segment)}
    return tuple(sorted((part for part in parts if part and len(part) > 3), key=len, reverse=True))


def _looks_random(segment: str) -> bool:
    return len(segment) >= 16 or (len(segment) >= 8 and any(character.isdigit() for character in segment))
