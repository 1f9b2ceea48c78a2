"""Traces, from acceptance to finality: one for each transaction, whichever nodes work on it and however often they start.

Its id follows from the transaction's, and so does the id of its root span. So any node adds the spans of what it did, and
the one that sees the end adds the root. Spans are handed to a thread that sends them in batches; when it cannot keep up,
or nobody takes them, they are dropped. Nothing of a payload, no metadata and no words of nodes are in them.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from importlib.metadata import version
from typing import Final

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import (
    INVALID_SPAN,
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)
from opentelemetry.util.types import AttributeValue

from nonchalant.model import Change, Event, Lease, Request, Transaction
from nonchalant.observing.callers import CALLER
from nonchalant.observing.commits import MinedAt, Moments
from nonchalant.ports import Acceptance
from nonchalant.words import TERMINAL_STATES, LaneKey, Millis, State, TxId

# What one export may take, in seconds, and how long the last one is waited for.
EXPORT_SECONDS: Final = 5.0

# Facts without a length, and which of their data may leave the house: classes and kinds, no words of anybody.
FACTS: Final[Mapping[str, tuple[str, ...]]] = {
    "attempt.bumped": ("kind", "nonce", "hash"),
    "attempt.refused": ("reason", "endpoint", "nonce", "hash"),
    "tx.attention": ("code",),
    "tx.held": ("code",),
    "tx.released": (),
    "tx.reorged": ("nonce", "hash"),
    "tx.replaced": ("payload_version",),
    "tx.requeued": (),
    "tx.superseded": (),
}
UNSUCCESSFUL: Final = frozenset({State.FAILED, State.REVERTED})


def trace_of(tx_id: TxId) -> SpanContext:
    """The root span of a transaction's trace, wherever and whenever it is asked for."""
    digest = sha256(tx_id.encode()).digest()
    trace_id, span_id = int.from_bytes(digest[:16], "big"), int.from_bytes(digest[16:24], "big")
    return SpanContext(trace_id or 1, span_id or 1, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))


class _Ids(RandomIdGenerator):
    """Random ones, but for a root span, which has the ids that everybody expects of it."""

    root: SpanContext | None = None

    def generate_trace_id(self) -> int:
        return super().generate_trace_id() if self.root is None else self.root.trace_id

    def generate_span_id(self) -> int:
        return super().generate_span_id() if self.root is None else self.root.span_id


class Tracing:
    """An observer that tells an OpenTelemetry collector, over OTLP on HTTP. `node` is set once it is known."""

    def __init__(self, endpoint: str) -> None:
        self.node = ""
        self._ids = _Ids()
        self._mined = MinedAt()
        exporter = OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces", timeout=EXPORT_SECONDS)
        resource = Resource.create({"service.name": "nonchalant", "service.version": version("nonchalant")})
        self._provider = TracerProvider(resource=resource, id_generator=self._ids, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("nonchalant", version("nonchalant"))

    async def close(self) -> None:
        """Hand over what is left. In a thread that nobody waits for: a collector that hangs keeps no node from stopping."""
        loop, done = asyncio.get_running_loop(), asyncio.Event()

        def shut_down() -> None:
            self._provider.shutdown()
            with suppress(RuntimeError):  # nobody waits any more
                loop.call_soon_threadsafe(done.set)

        threading.Thread(target=shut_down, daemon=True).start()
        await done.wait()

    # what is told

    def submitted(self, transactions: Sequence[Transaction], began: Millis, ended: Millis) -> None:
        """These were accepted, for a caller who waited so long; his trace and theirs name each other."""
        caller = CALLER.get()
        theirs = None
        if caller is not None:
            theirs = SpanContext(caller.trace_id, caller.span_id, is_remote=True, trace_flags=TraceFlags(caller.flags))
            roots = [Link(trace_of(tx.id)) for tx in transactions]
            self._span("nonchalant.accept", theirs, began, ended, {}, links=roots, kind=SpanKind.SERVER)
        for tx in transactions:
            links = [Link(theirs)] if theirs is not None else []
            self._span("accept", trace_of(tx.id), began, ended, self._of(tx.id, tx.lane), links=links)

    def accepted(self, requests: Sequence[Request], answers: Sequence[Acceptance]) -> None:
        """Whoever submitted it tells more."""

    def committed(self, change: Change, lease: Lease) -> None:
        moments = Moments(change)
        for event in change.events:
            tx = moments.moved.get(event.tx_id or "")
            if event.tx_id is not None:
                self._tell(event, {"nonchalant.epoch": lease.epoch})
            if tx is not None:
                self._measure(event, tx, moments, lease.epoch)

    def altered(self, tx: Transaction, events: Sequence[Event]) -> None:
        for event in events:
            self._tell(event, {})
        if tx.state in TERMINAL_STATES:
            self._end(tx, tx.updated_at, {})

    def _tell(self, event: Event, more: Mapping[str, AttributeValue]) -> None:
        names = FACTS.get(event.kind)
        if names is None or event.tx_id is None:
            return
        found = {
            f"nonchalant.{name}": _plain(event.data.get(name)) for name in names if event.data.get(name) is not None
        }
        attributes = {**self._of(event.tx_id, event.lane), **found, **more}
        self._span(event.kind, trace_of(event.tx_id), event.at, event.at, attributes)

    def _measure(self, event: Event, tx: Transaction, moments: Moments, epoch: int) -> None:
        since: Millis | None
        until = event.at
        match event.kind:
            case "tx.signed":
                name, since = "assign", tx.created_at
            case "tx.sent":
                name, since, until = "broadcast", moments.signed_at(tx.id), moments.sent_at(tx.id) or event.at
            case "tx.mined":
                name, since = "include", moments.sent_at(tx.id)
                self._mined.note(tx.id, event.at)
            case "tx.confirmed" | "tx.reverted" | "tx.failed" | "tx.cancelled" | "tx.expired":
                name, since = "finalise", self._mined.forget(tx.id)
            case _:
                return
        more: dict[str, AttributeValue] = {"nonchalant.epoch": epoch}
        if tx.nonce is not None and tx.hash is not None:
            more |= {"nonchalant.nonce": tx.nonce, "nonchalant.hash": tx.hash}
        # Where nothing tells when it began, the span has no length.
        began = until if since is None else since
        self._span(name, trace_of(tx.id), began, until, {**self._of(tx.id, tx.lane), **more})
        if tx.state in TERMINAL_STATES:
            self._end(tx, event.at, more)

    def _end(self, tx: Transaction, at: Millis, more: Mapping[str, AttributeValue]) -> None:
        """The root: all of it, told by whoever saw the end."""
        attributes = {**self._of(tx.id, tx.lane), **more, "nonchalant.state": tx.state.value}
        self._ids.root = trace_of(tx.id)
        try:
            self._span("transaction", None, tx.created_at, at, attributes, failed=tx.state in UNSUCCESSFUL)
        finally:
            self._ids.root = None

    def _of(self, tx_id: TxId, lane: LaneKey) -> dict[str, AttributeValue]:
        return {
            "nonchalant.tx": tx_id,
            "nonchalant.chain": lane.chain_id,
            "nonchalant.lane": str(lane),
            "nonchalant.node": self.node,
        }

    def _span(
        self,
        name: str,
        parent: SpanContext | None,
        began: Millis,
        ended: Millis,
        attributes: Mapping[str, AttributeValue],
        *,
        links: Sequence[Link] = (),
        kind: SpanKind = SpanKind.INTERNAL,
        failed: bool = False,
    ) -> None:
        # A root has no parent, whatever span the program that embeds us is in.
        context = set_span_in_context(INVALID_SPAN if parent is None else NonRecordingSpan(parent))
        span = self._tracer.start_span(
            name, context=context, kind=kind, attributes=attributes, links=links, start_time=began * 1_000_000
        )
        if failed:
            span.set_status(Status(StatusCode.ERROR))
        span.end(end_time=max(began, ended) * 1_000_000)


def _plain(value: object) -> AttributeValue:
    return value if isinstance(value, str | int) else str(value)
