"""What every call has at hand: the node, the waiting room, and how a call is described."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import msgspec

from nonchalant.access import Scope
from nonchalant.asking import Asking
from nonchalant.bodies import Body
from nonchalant.config import AccountSettings, Settings
from nonchalant.keyring import Keyring
from nonchalant.lane_views import LiveLane
from nonchalant.model import Attempt, Market, Recognised, Request, Transaction
from nonchalant.notation import ADDRESS_PATTERN, HASH_EXAMPLE, HASH_PATTERN, MAX_IDEMPOTENCY_KEY, SENDER_EXAMPLE
from nonchalant.observing.observatory import Observatory
from nonchalant.ports import LaneSummary, Store
from nonchalant.service.gate import Gate
from nonchalant.service.http import JSON, Answer, Call, Streaming
from nonchalant.service.lookup import Lookup
from nonchalant.service.problems import Busy
from nonchalant.steering import LaneHandle
from nonchalant.stream import Stream
from nonchalant.waiting_for import Situation
from nonchalant.webhook_desk import WebhookDesk
from nonchalant.words import LaneKey, Millis, TxId

TEXT: Final[Mapping[str, Any]] = {"type": "string"}
TEXTS: Final[Mapping[str, Any]] = {"type": "array", "items": TEXT, "maxItems": 50}
WHOLE: Final[Mapping[str, Any]] = {"type": "integer", "minimum": 0}
ADDRESS: Final[Mapping[str, Any]] = {**TEXT, "pattern": ADDRESS_PATTERN, "examples": [SENDER_EXAMPLE]}
HASH: Final[Mapping[str, Any]] = {**TEXT, "pattern": HASH_PATTERN, "examples": [HASH_EXAMPLE]}
KEY: Final[Mapping[str, Any]] = {
    **TEXT,
    "minLength": 1,
    "maxLength": MAX_IDEMPOTENCY_KEY,
    "pattern": "^[!-~]([ -~]*[!-~])?$",
    "examples": ["invoice-4711"],
}


class Passage(Protocol):
    """The chains and their keys, past the engine: for what JSON-RPC clients ask (`nonchalant.passage`)."""

    async def ask(self, chain_id: int, method: str, params: Sequence[object]) -> bytes:
        """The result as a healthy endpoint gave it; `NodeRefused` as it refused, `Unreachable` if none answers."""

    async def market(self, chain_id: int) -> Market: ...

    def recognise(self, chain_id: int, raw: bytes) -> Recognised:
        """What signed bytes say, and who signed them; `Unencodable` if they are nothing we can read."""

    def show(self, raw: bytes) -> dict[str, object]:
        """Signed bytes as nodes write a transaction, without its block."""

    async def sign_text(self, lane: LaneKey, message: bytes) -> bytes: ...

    async def sign_typed(self, lane: LaneKey, document: Mapping[str, object]) -> bytes:
        """`BadRequest` if it is no typed data."""


class Node(Protocol):
    """The engine's side of the service."""

    @property
    def settings(self) -> Settings: ...
    @property
    def store(self) -> Store: ...
    @property
    def asking(self) -> Asking: ...
    @property
    def observatory(self) -> Observatory: ...
    @property
    def passage(self) -> Passage: ...
    @property
    def keyring(self) -> Keyring: ...
    @property
    def known_lanes(self) -> Mapping[LaneKey, AccountSettings]: ...
    @property
    def stream(self) -> Stream: ...
    @property
    def webhooks(self) -> WebhookDesk: ...

    def new_id(self) -> TxId: ...

    def now(self) -> Millis: ...

    async def submit(self, request: Request) -> tuple[Transaction, bool]:
        """The accepted transaction, and whether it is new (False: the idempotency key was known, same request)."""

    async def submit_together(self, requests: Sequence[Request]) -> tuple[Sequence[Transaction], bool]:
        """All of them, or none; and whether they are new."""

    async def wait_for_change(self, tx_id: TxId, seconds: float, /) -> None:
        """Returns when the transaction may have changed, at the latest after so many seconds."""

    def lane(self, chain_id: int, address: str) -> LaneHandle: ...

    async def live_lane(self, lane: LaneSummary) -> LiveLane:
        """What this node knows of it beside what is stored."""

    async def situations(self, transactions: Sequence[Transaction]) -> Mapping[TxId, Situation]: ...

    async def trouble(self) -> str | None:
        """Why it should get no requests now; None: it is well."""


@dataclass(slots=True)
class Front:
    """What the calls work with. `closing`: waiting calls answer now; `closes` tells those who do not look."""

    node: Node
    gate: Gate
    attempts: Lookup[Sequence[Attempt]]  # of transactions, by their ids
    most_waiting: int
    most_streams: int
    waiting: int = 0
    streams: int = 0
    closing: bool = False
    closes: asyncio.Event = field(default_factory=asyncio.Event)

    def close(self) -> None:
        self.closing = True
        self.closes.set()

    @contextmanager
    def place_to_wait(self) -> Iterator[None]:
        """`Busy` when all are taken."""
        if self.waiting >= self.most_waiting:
            raise Busy("too many calls wait for a change; try again shortly, or ask without wait")
        self.waiting += 1
        try:
            yield
        finally:
            self.waiting -= 1

    @contextmanager
    def place_to_stream(self) -> Iterator[None]:
        """One of those that `check_for_a_stream` found free."""
        self.streams += 1
        try:
            yield
        finally:
            self.streams -= 1

    def check_for_a_stream(self) -> None:
        """`Busy` when all are taken."""
        if self.streams >= self.most_streams:
            raise Busy("too many streams of events are open on this node; try again shortly, or another node")


@dataclass(frozen=True, slots=True)
class Parameter:
    """Something beside the body, of a call or of its answer."""

    name: str
    about: str
    schema: Mapping[str, Any]
    required: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One call. `path` has its variable parts in braces; `scope` is what its caller must have, None: nothing.

    Where the path names a lane, by `{chain_id}/{address}`, only who may use it gets that far. `audited` is what the
    audit log calls it: it is written there before it is done, with its body but for the fields `unwritten`. What
    everybody does with his own, and an admin with anybody's, is `audited_of_admins`.
    """

    method: str
    path: str
    does: str
    handle: Callable[[Front, Call], Awaitable[Answer | Streaming]]
    answers: type[msgspec.Struct] | None  # None: what its `media_type` says, and nothing that has a shape
    scope: Scope | None
    status: int = 200
    media_type: str = JSON  # of the answer
    query: Sequence[Parameter] = ()
    headers: Sequence[Parameter] = ()
    takes: type[Body] | None = None
    may_be_empty: bool = False  # the body
    or_several: bool = False  # of what it takes and answers, in a list
    or_nothing: bool = False  # what it answers, with 204
    answer_headers: Sequence[Parameter] = ()
    problems: Sequence[int] = ()  # statuses, beside those that any call may be answered with
    audited: str | None = None
    audited_of_admins: str | None = None
    unwritten: Sequence[str] = ()
