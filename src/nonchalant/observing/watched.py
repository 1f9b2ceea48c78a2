"""The ports, watched: every call goes through unchanged, and is timed, counted and told of."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeVar, cast

from nonchalant import policy
from nonchalant.errors import (
    CommitUnknown,
    LeaseLost,
    NodeRefused,
    NonchalantError,
    RowMoved,
    StoreUnavailable,
    Unreadable,
)
from nonchalant.model import Admission, Answer, Transaction, View
from nonchalant.observing import catalogue as c
from nonchalant.observing.commits import Observer
from nonchalant.observing.tallies import Tallies
from nonchalant.observing.vitals import Vitals
from nonchalant.ports import Acceptance, Clock, Endpoint, Signer, Store, WebhookStore
from nonchalant.rejections import Fate
from nonchalant.webhooks import Delivery, DeliveryState
from nonchalant.words import TxId

P = TypeVar("P")
Act = Callable[..., Awaitable[Any]]
Tell = Callable[[Any, tuple[Any, ...], dict[str, Any]], None]  # the answer, and what was asked

# What the store is asked that is worth a series of its own: what callers and owners wait for.
TIMED: Final = frozenset(
    {
        "accept",
        "accept_together",
        "acquire",
        "commit",
        "events_after",
        "heartbeat",
        "lanes_with_work",
        "load",
        "queued",
        "renew",
    }
)

_FATES: Final = {Fate.ACCEPTED: "accepted", Fate.POSSIBLY_SENT: "unknown"}

_TRIES: Final = {
    DeliveryState.DELIVERED: "delivered",
    DeliveryState.PENDING: "failed",
    DeliveryState.FAILED: "given_up",
}


class WatchedStore:
    """Tells what a store is asked, and what comes of it."""

    def __init__(
        self, store: Store, *, tallies: Tallies, vitals: Vitals, clock: Clock, observers: Sequence[Observer]
    ) -> None:
        self._tallies = tallies
        self._vitals = vitals
        self._clock = clock
        self._observers = observers
        self._store = store

    def for_webhooks(self, store: WebhookStore) -> WebhookStore:
        told: dict[str, Tell] = {"record_deliveries": self._delivered}
        return around(store, WebhookStore, lambda name, act: self._timed(name, act, told.get(name)))

    def _delivered(self, _: Any, args: tuple[Any, ...], __: dict[str, Any]) -> None:
        tried: Sequence[Delivery] = args[2]
        for one in tried:
            self._tallies.count(c.WEBHOOK_TRIES, _TRIES[one.state])
            if one.state is DeliveryState.DELIVERED and one.ended_at is not None:
                self._tallies.see(c.WEBHOOK_SECONDS, (one.ended_at - one.created_at) / 1000)

    def watched(self) -> Store:
        told: dict[str, Tell] = {
            "accept": self._accepted,
            "accept_together": self._accepted_together,
            "commit": self._committed,
            "alter_queued": self._altered,
            "acquire": self._acquired,
            "renew": self._renewed,
            "release": self._released,
            "heartbeat": self._beat,
        }
        return around(self._store, Store, lambda name, act: self._timed(name, act, told.get(name)))

    def _timed(self, name: str, act: Act, tell: Tell | None) -> Act:
        operation = name if name in TIMED else c.OTHER
        tallies, clock, vitals = self._tallies, self._clock, self._vitals

        async def call(*args: Any, **kwargs: Any) -> Any:
            began = clock.monotonic()
            try:
                answer = await act(*args, **kwargs)
            except Exception as error:  # it is only counted here: whoever asked decides
                self._failed(error)
                raise
            ended = clock.monotonic()
            vitals.answered(ended)
            tallies.see(c.STORE, ended - began, operation)
            if tell is not None:
                tell(answer, args, kwargs)
            return answer

        return call

    def _failed(self, error: Exception) -> None:
        match error:
            case LeaseLost():
                self._tallies.count(c.FENCED)
            case RowMoved():
                self._tallies.count(c.ROWS_MOVED)
            case StoreUnavailable():
                self._tallies.count(c.STORE_ERRORS, "unavailable")
            case CommitUnknown():
                self._tallies.count(c.STORE_ERRORS, "commit_unknown")
            case Unreadable():
                self._tallies.count(c.STORE_ERRORS, "unreadable")
            case NonchalantError():
                pass  # an answer: it is not there, it is another's, it may have run
            case _:
                self._tallies.count(c.STORE_ERRORS, "unexpected")

    # what is told of, by call

    def _accepted(self, answer: Any, args: tuple[Any, ...], _: dict[str, Any]) -> None:
        for observer in self._observers:
            observer.accepted(args[0], answer)

    def _accepted_together(self, answers: Sequence[Acceptance], args: tuple[Any, ...], _: dict[str, Any]) -> None:
        """If one of them is refused, none was accepted: only what is refused is told then."""
        if not all(isinstance(answer, Transaction) for answer in answers):
            answers = [answer for answer in answers if not isinstance(answer, Transaction)]
        for observer in self._observers:
            observer.accepted(args[0], answers)

    def _committed(self, entries: Mapping[TxId, Admission], args: tuple[Any, ...], _: dict[str, Any]) -> None:
        change, lease = args
        if entries:
            change = change.entered(entries)
        became = {tx.id: tx for tx in change.transactions} if change.accepted else {}
        for observer in self._observers:
            if change.accepted:
                observer.accepted(change.accepted, [became[request.id] for request in change.accepted])
            observer.committed(change, lease)

    def _altered(self, _: Any, args: tuple[Any, ...], __: dict[str, Any]) -> None:
        for observer in self._observers:
            observer.altered(args[0], args[1])

    def _acquired(self, epoch: int | None, _: tuple[Any, ...], __: dict[str, Any]) -> None:
        self._tallies.count(c.LEASE_CHANGES, "refused" if epoch is None else "taken")

    def _renewed(self, renewed: Sequence[Any], args: tuple[Any, ...], _: dict[str, Any]) -> None:
        lost = len(args[0]) - len(renewed)
        if lost > 0:
            self._tallies.count(c.LEASE_CHANGES, "lost", by=lost)

    def _released(self, _: Any, args: tuple[Any, ...], __: dict[str, Any]) -> None:
        if args[0]:
            self._tallies.count(c.LEASE_CHANGES, "released", by=len(args[0]))

    def _beat(self, live_nodes: int, _: tuple[Any, ...], __: dict[str, Any]) -> None:
        self._vitals.beat(self._clock.monotonic(), live_nodes)


class EndpointHealth:
    """How one endpoint stands. `up` None: it was not asked yet."""

    def __init__(self, chain_id: int, name: str) -> None:
        self.chain = str(chain_id)
        self.name = name
        self.up: bool | None = None
        self.head: int | None = None


def watch_endpoint(endpoint: Endpoint, health: EndpointHealth, tallies: Tallies, clock: Clock) -> Endpoint:
    chain, name = health.chain, health.name

    def timed(call: str, act: Act) -> Act:
        async def asked(*args: Any, **kwargs: Any) -> Any:
            began = clock.monotonic()
            try:
                answer = await act(*args, **kwargs)
            except Exception as error:  # it is only counted here: whoever asked decides
                # One that refuses has answered.
                refused = isinstance(error, NodeRefused)
                tallies.count(c.ENDPOINT_CALLS, chain, name, call, "refused" if refused else "unreachable")
                if call == "view":
                    health.up = False
                raise
            tallies.see(c.ENDPOINT_SECONDS, clock.monotonic() - began, chain, name)
            tallies.count(c.ENDPOINT_CALLS, chain, name, call, "ok")
            if isinstance(answer, View):
                health.up, health.head = True, answer.head.number
            elif call == "send":
                _count_sends(answer)
            return answer

        return asked

    def _count_sends(answers: Sequence[Answer]) -> None:
        # One that has it already has accepted it.
        for fate, count in Counter([policy.fate_of(answer)[0] for answer in answers]).items():
            tallies.count(c.SENDS, chain, name, _FATES.get(fate, "refused"), by=count)

    return around(endpoint, Endpoint, timed)


def watch_signer(signer: Signer, tallies: Tallies, clock: Clock) -> Signer:
    def timed(_: str, act: Act) -> Act:
        async def asked(*args: Any, **kwargs: Any) -> Any:
            began = clock.monotonic()
            answer = await act(*args, **kwargs)
            tallies.see(c.STAGE, clock.monotonic() - began, "sign")
            return answer

        return asked

    return around(signer, Signer, timed)


def around(inner: P, port: type, watch: Callable[[str, Act], Act]) -> P:
    """The same port with each of its calls watched; all else that the adapter has is passed on."""
    calls = [name for name, member in inspect.getmembers(port) if inspect.iscoroutinefunction(member)]
    watched = {name: staticmethod(watch(name, getattr(inner, name))) for name in calls}

    def passed_on(_: object, name: str) -> Any:
        return getattr(inner, name)

    kind = type(f"Watched{port.__name__}", (), {**watched, "__getattr__": passed_on})
    return cast("P", kind())
