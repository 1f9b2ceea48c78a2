"""Where all that is watched comes together: the page that Prometheus reads, and whether this node is well."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from nonchalant.engine import Engine
from nonchalant.intake import Intake
from nonchalant.model import Transaction
from nonchalant.observing import catalogue as c
from nonchalant.observing import readings
from nonchalant.observing.callers import CALLER, parse
from nonchalant.observing.commits import Counting, Observer
from nonchalant.observing.tallies import Readings, Tallies
from nonchalant.observing.vitals import Vitals
from nonchalant.observing.watched import EndpointHealth, WatchedStore, watch_endpoint, watch_signer
from nonchalant.ports import Clock, Endpoint, Signer, Store, WebhookStore
from nonchalant.words import Millis

if TYPE_CHECKING:
    from nonchalant.observing.traces import Tracing  # which an installation need not have


class Observatory:
    """Watches one node. The ports go through it; the engine and the intake are looked at when somebody asks."""

    def __init__(self, clock: Clock, *, lease_seconds: float, tracing: Tracing | None = None) -> None:
        self.tallies = Tallies()
        self.vitals = Vitals(clock, lease_seconds=lease_seconds)
        self.under_way: Callable[[], int] = lambda: 0  # calls; whoever serves them says
        self._clock = clock
        self._tracing = tracing
        self._observers: list[Observer] = [Counting(self.tallies)]
        if tracing is not None:
            self._observers.append(tracing)
        self._endpoints: list[EndpointHealth] = []
        self._engine: Engine | None = None
        self._intake: Intake | None = None
        self._webhooks: Callable[[], Mapping[str, tuple[int, Millis]]] = dict
        self._store: Store | None = None
        self._store_kind = ""
        self._wakes: Callable[[], tuple[int, bool]] | None = None
        self._backlog: readings.Backlog | None = None

    # the ports

    def store(self, store: Store) -> Store:
        self._watched = WatchedStore(
            store, tallies=self.tallies, vitals=self.vitals, clock=self._clock, observers=self._observers
        )
        self._store = self._watched.watched()
        self._backlog = readings.Backlog(self._store, self._clock)
        return self._store

    def webhook_store(self, store: WebhookStore) -> WebhookStore:
        return self._watched.for_webhooks(store)

    def endpoint(self, chain_id: int, endpoint: Endpoint) -> Endpoint:
        health = EndpointHealth(chain_id, endpoint.name)
        self._endpoints.append(health)
        return watch_endpoint(endpoint, health, self.tallies, self._clock)

    def signer(self, signer: Signer) -> Signer:
        return watch_signer(signer, self.tallies, self._clock)

    def look_at(
        self,
        engine: Engine,
        intake: Intake,
        *,
        webhooks: Callable[[], Mapping[str, tuple[int, Millis]]],
        store_kind: str,
        wakes: Callable[[], tuple[int, bool]] | None,
    ) -> None:
        """The parts that are asked when somebody looks. `webhooks`: how much waits for each, and how old it is; `wakes`: how
        often wake-ups were lost, and if they are heard."""
        self._engine, self._intake, self._store_kind, self._wakes = engine, intake, store_kind, wakes
        self._webhooks = webhooks
        self.tallies.begin(engine.followers)
        if self._tracing is not None:
            self._tracing.node = engine.cluster.owner

    @property
    def node(self) -> str:
        """What this node is called, in logs and leases; it changes with every start."""
        return "" if self._engine is None else self._engine.cluster.owner

    # the engine's meter

    def worked(self, stage: str, seconds: float) -> None:
        self.tallies.see(c.STAGE, seconds, stage)

    def restarted(self, why: str) -> None:
        self.tallies.count(c.LANE_RESTARTS, why)

    # calls

    def seconds(self) -> float:
        """For intervals."""
        return self._clock.monotonic()

    def submitted(self, transactions: Sequence[Transaction], since: Millis, seconds: float) -> None:
        """A caller's request was answered after so long; these of it are new."""
        self.tallies.see(c.STAGE, seconds, "accept")
        if self._tracing is not None and transactions:
            self._tracing.submitted(transactions, since, since + round(seconds * 1000))

    def hear_caller(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """What the call that begins now does, it does for this trace."""
        if self._tracing is not None:
            found = next((value for name, value in headers if name == b"traceparent"), None)
            CALLER.set(parse(None if found is None else found.decode("latin-1")))

    def called(self, method: str, route: str, status: int, seconds: float | None) -> None:
        """`seconds` None: it waited by its own wish."""
        self.tallies.count(c.CALLS, method, route, str(status))
        if seconds is not None:
            self.tallies.see(c.CALL_SECONDS, seconds, route)

    # who looks

    async def trouble(self) -> str | None:
        """Why this node should get no requests now; None: it is well."""
        if self._engine is None or self._store is None or not self._engine.is_running:
            return "starting or stopping"
        return await self.vitals.trouble(self._store.incarnation)

    async def page(self, accept: str) -> tuple[bytes, str]:
        """Everything, and in which of Prometheus' formats, as the caller's `Accept` header allows."""
        registry = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=registry)
        registry.register(_Page(list(self.tallies.families(await self._read()))))
        encode, media_type = choose_encoder(accept)
        return encode(registry), media_type

    async def _read(self) -> Readings:
        found: Readings = readings.of_build(self._store_kind)
        found[c.CALLS_UNDER_WAY] = {(): self.under_way()}
        found[c.NODES] = {(): self.vitals.live_nodes}
        found |= readings.of_endpoints(self._endpoints)
        if self._wakes is not None:
            lost, connected = self._wakes()
            found |= {c.WAKES_LOST: {(): lost}, c.WAKES_CONNECTED: {(): float(connected)}}
        found |= readings.of_webhooks(self._webhooks())
        if self._intake is not None:
            found[c.INTAKE_WAITING] = {(): self._intake.waiting}
        if self._engine is not None and self._backlog is not None:
            found[c.LEASES] = {(): len(self._engine.cluster.leases)}
            found |= readings.of_chains(self._engine)
            found |= await readings.of_lanes(self._engine.desks.values(), self._clock.now(), self._clock)
            found |= readings.of_store(await self._backlog.look(), self._engine.followers)
        return found


class _Page(Collector):
    def __init__(self, families: Sequence[Family]) -> None:
        self._families = families

    def collect(self) -> Iterator[Family]:
        yield from self._families
