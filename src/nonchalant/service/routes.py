"""The table of calls: what each takes, does and answers. The OpenAPI document is written from it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Protocol

import msgspec

from nonchalant.config import AccountSettings, Settings
from nonchalant.errors import BadRequest, NotFound
from nonchalant.model import LaneKey, Request, Transaction, TxId, Wei
from nonchalant.ports import LaneSummary, Store
from nonchalant.service.http import Answer, Call, Gone
from nonchalant.service.problems import Busy, NotReady
from nonchalant.views import (
    EventsView,
    LanesView,
    LaneView,
    TransactionsView,
    TransactionView,
    show_event,
    show_lane,
    show_transaction,
)
from nonchalant.wire import FILTERS, TransactionBody, parse_filter, parse_lane, parse_number, parse_request

LONGEST_WAIT: Final = 60.0
# Another node may have made the change: look again, whether or not somebody here was told.
LOOK_AGAIN: Final = 1.0
# A lane is shown without its balance when its chain does not answer by then.
LANE_PATIENCE: Final = 2.0


class LiveLane(Protocol):
    """What a node knows of a lane beside the store; None: not now."""

    @property
    def balance(self) -> Wei | None: ...
    @property
    def in_flight(self) -> int | None: ...
    @property
    def window(self) -> int: ...
    @property
    def head(self) -> int | None: ...


class Node(Protocol):
    """The engine's side of the service."""

    @property
    def settings(self) -> Settings: ...
    @property
    def store(self) -> Store: ...
    @property
    def known_lanes(self) -> Mapping[LaneKey, AccountSettings]: ...

    def new_id(self) -> TxId: ...

    async def submit(self, request: Request) -> tuple[Transaction, bool]:
        """The accepted transaction, and whether it is new (False: the idempotency key was known, same request)."""

    async def wait_for_change(self, tx_id: TxId, seconds: float, /) -> None:
        """Returns when the transaction may have changed, at the latest after so many seconds."""

    async def lane_view(self, key: LaneKey) -> LiveLane: ...

    def ready(self) -> tuple[bool, str]: ...


@dataclass(slots=True)
class Front:
    """What the calls work with. `closing`: waiting calls answer now."""

    node: Node
    most_waiting: int
    waiting: int = 0
    closing: bool = False

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


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    about: str
    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One call. `path` has its variable parts in braces."""

    method: str
    path: str
    does: str
    handle: Callable[[Front, Call], Awaitable[Answer]]
    answers: type[msgspec.Struct]
    status: int = 200
    query: Sequence[Parameter] = ()
    headers: Sequence[Parameter] = ()
    takes: type[msgspec.Struct] | None = None
    problems: Sequence[int] = (400, 503)


async def post_transaction(front: Front, call: Call) -> Answer:
    call.only(())
    node = front.node
    request = parse_request(
        await call.json_body(),
        tx_id=node.new_id(),
        settings=node.settings,
        lanes=node.known_lanes,
        idempotency_key=call.header("Idempotency-Key"),
    )
    tx, created = await node.submit(request)
    headers = {"Location": f"/v1/transactions/{tx.id}"}
    if not created:
        headers["Idempotency-Replayed"] = "true"
    return Answer(show_transaction(tx, ()) if created else await _shown(front, tx), 202, headers)


async def get_transaction(front: Front, call: Call) -> Answer:
    given = call.only(("wait", "after"))
    (tx_id,) = call.parts
    patience = _seconds(given.get("wait", "0"))
    after = parse_number(given["after"], "after", 2**63 - 1) if "after" in given else None
    tx = await _find(front, tx_id)
    if patience > 0 and not _has_moved(tx, after):
        with front.place_to_wait():
            tx = await _moved(front, call, tx, after, patience)
    return Answer(await _shown(front, tx))


async def list_transactions(front: Front, call: Call) -> Answer:
    wanted = parse_filter(call.query())
    store = front.node.store
    found = await store.transactions(wanted)
    attempts = await store.attempts([tx.id for tx in found])
    return Answer(
        TransactionsView(
            transactions=[show_transaction(tx, attempts.get(tx.id, ())) for tx in found],
            next_cursor=str(found[-1].place) if len(found) == wanted.limit else None,
        )
    )


async def get_history(front: Front, call: Call) -> Answer:
    call.only(())
    (tx_id,) = call.parts
    events = await front.node.store.history(tx_id)
    if not events and await front.node.store.transaction(tx_id) is None:
        raise NotFound(f"there is no transaction {tx_id[:100]!r}")
    return Answer(EventsView(events=[show_event(event) for event in events]))


async def list_lanes(front: Front, call: Call) -> Answer:
    call.only(())
    places = {key: place for place, key in enumerate(front.node.known_lanes)}
    lanes = sorted(
        await front.node.store.lanes(),
        key=lambda lane: (places.get(lane.record.key, len(places)), lane.record.key),
    )
    return Answer(LanesView(lanes=await asyncio.gather(*(_lane(front, lane) for lane in lanes))))


async def get_lane(front: Front, call: Call) -> Answer:
    call.only(())
    chain_id, address = call.parts
    summary = await front.node.store.lane(parse_lane(chain_id, address))
    if summary is None:
        raise NotFound(f"there is no lane of {address} on chain {chain_id}; GET /v1/lanes lists them")
    return Answer(await _lane(front, summary))


class Health(msgspec.Struct, frozen=True):
    status: str


async def live(_front: Front, call: Call) -> Answer:
    call.only(())
    return Answer(Health("alive"))


async def ready(front: Front, call: Call) -> Answer:
    call.only(())
    is_ready, reason = (False, "this node is stopping") if front.closing else front.node.ready()
    if not is_ready:
        raise NotReady(reason)
    return Answer(Health("ready"))


async def _find(front: Front, tx_id: TxId) -> Transaction:
    tx = await front.node.store.transaction(tx_id)
    if tx is None:
        raise NotFound(f"there is no transaction {tx_id[:100]!r}")
    return tx


def _has_moved(tx: Transaction, after: int | None) -> bool:
    return not tx.live or (after is not None and tx.version > after)


async def _moved(front: Front, call: Call, tx: Transaction, after: int | None, patience: float) -> Transaction:
    """The transaction once it has moved, or as it is when the time is over or the service closes."""
    clock = asyncio.get_running_loop().time
    deadline = clock() + patience
    # A client that gave up gives its place back.
    leaving = asyncio.create_task(call.left())
    try:
        while not _has_moved(tx, after) and (left := deadline - clock()) > 0 and not front.closing:
            await front.node.wait_for_change(tx.id, min(left, LOOK_AGAIN))
            if leaving.done():
                raise Gone
            tx = await _find(front, tx.id)
    finally:
        leaving.cancel()
    return tx


async def _shown(front: Front, tx: Transaction) -> TransactionView:
    attempts = await front.node.store.attempts([tx.id])
    return show_transaction(tx, attempts.get(tx.id, ()))


async def _lane(front: Front, summary: LaneSummary) -> LaneView:
    key = summary.record.key
    nothing_open = None if summary.slots else 0
    account = front.node.known_lanes.get(key)
    if account is None:  # it was configured once
        return show_lane(summary, window=None, in_flight=nothing_open, balance=None, head=None)
    try:
        async with asyncio.timeout(LANE_PATIENCE):
            now = await front.node.lane_view(key)
    except TimeoutError:
        return show_lane(summary, window=account.window, in_flight=nothing_open, balance=None, head=None)
    in_flight = nothing_open if now.in_flight is None else now.in_flight
    return show_lane(summary, window=now.window, in_flight=in_flight, balance=now.balance, head=now.head)


def _seconds(text: str) -> float:
    try:
        seconds = float(text) if text.isascii() and len(text) <= 10 else -1.0
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= LONGEST_WAIT:
        raise BadRequest(f"expected seconds from 0 to {LONGEST_WAIT:g}", field="wait")
    return seconds


_TEXT: Final[Mapping[str, Any]] = {"type": "string"}
_WHOLE: Final[Mapping[str, Any]] = {"type": "integer", "minimum": 0}
_ABOUT_FILTERS: Final[Mapping[str, tuple[str, Mapping[str, Any]]]] = {
    "state": ("in this state", {"$ref": "#/components/schemas/State"}),
    "chain_id": ("on this chain", _WHOLE),
    "from": ("of this account", _TEXT),
    "nonce": ("at this nonce", _WHOLE),
    "hash": ("with an attempt of this hash", _TEXT),
    "idempotency_key": ("accepted under this key", _TEXT),
    "cursor": ("`next_cursor` of the page before", _TEXT),
    "limit": ("at most this many", {"type": "integer", "minimum": 1, "maximum": 500, "default": 50}),
}

ROUTES: Final = (
    Route(
        method="POST",
        path="/v1/transactions",
        does="Hand over a transaction. Repeating a call with the same Idempotency-Key answers the same transaction.",
        handle=post_transaction,
        takes=TransactionBody,
        answers=TransactionView,
        status=202,
        headers=(Parameter("Idempotency-Key", "1 to 255 printable ASCII characters", {**_TEXT, "maxLength": 255}),),
        problems=(400, 408, 413, 415, 422, 429, 503),
    ),
    Route(
        method="GET",
        path="/v1/transactions",
        does="List transactions, newest first.",
        handle=list_transactions,
        answers=TransactionsView,
        query=[Parameter(name, *_ABOUT_FILTERS[name]) for name in FILTERS],
    ),
    Route(
        method="GET",
        path="/v1/transactions/{id}",
        does="One transaction, now or once it has changed.",
        handle=get_transaction,
        answers=TransactionView,
        query=(
            Parameter(
                "wait",
                "answer when it has ended, at the latest after this many seconds",
                {"type": "number", "minimum": 0, "maximum": LONGEST_WAIT},
            ),
            Parameter("after", "with `wait`: answer as soon as its `version` is above this", _WHOLE),
        ),
        problems=(400, 404, 503),
    ),
    Route(
        method="GET",
        path="/v1/transactions/{id}/events",
        does="Its history, oldest first.",
        handle=get_history,
        answers=EventsView,
        problems=(400, 404, 503),
    ),
    Route(method="GET", path="/v1/lanes", does="All lanes.", handle=list_lanes, answers=LanesView),
    Route(
        method="GET",
        path="/v1/lanes/{chain_id}/{address}",
        does="One account on one chain.",
        handle=get_lane,
        answers=LaneView,
        problems=(400, 404, 503),
    ),
    Route(
        method="GET", path="/livez", does="Whether the process answers.", handle=live, answers=Health, problems=(400,)
    ),
    Route(method="GET", path="/readyz", does="Whether this node takes work.", handle=ready, answers=Health),
)
