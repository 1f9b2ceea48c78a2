"""A node of ours: one process after the other under one name, each behind a gate of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from nonchalant.asking import Asking
from nonchalant.engine import Engine
from nonchalant.errors import NonchalantError
from nonchalant.intake import Intake
from nonchalant.model import Draft, Recognised, Sealed
from nonchalant.ports import Endpoint, Store
from nonchalant.sim.chain import SimChain
from nonchalant.sim.chance import Chance
from nonchalant.sim.gate import Gate, HandedOver, gated_endpoint
from nonchalant.sim.loop import SimLoop
from nonchalant.sim.poisons import Poisons, choking
from nonchalant.sim.schedule import Kind
from nonchalant.sim.trace import Trace
from nonchalant.words import LaneKey

# What an orchestrator grants a process after it asked it to stop.
GRACE_SECONDS = 30.0

# In whose name the code that runs now was started; log lines carry it.
whose: ContextVar[str] = ContextVar("whose", default="")


class NodeChain:
    """The chain as one process reaches it: through its gate."""

    def __init__(self, chain: SimChain, gate: Gate, handed_over: HandedOver, poisons: Poisons) -> None:
        self.chain_id = chain.chain_id
        self.charges_for_data = chain.charges_for_data
        self.endpoints: Sequence[Endpoint] = [
            gated_endpoint(choking(endpoint, poisons), gate, handed_over) for endpoint in chain.endpoints
        ]
        self._poisons = poisons
        self.truth = chain

    def digest(self, draft: Draft) -> bytes:
        self._poisons.encode(draft)
        return self.truth.digest(draft)

    def seal(self, draft: Draft, signature: bytes, *, check: bool = True) -> Sealed:
        self._poisons.seal(draft)
        return self.truth.seal(draft, signature, check=check)

    def recognise(self, raw: bytes) -> Recognised:
        return self.truth.recognise(raw)


class NodeClock:
    """One process's clocks: the wall clock can be off, the monotonic one began at some time of its own."""

    def __init__(self, loop: SimLoop, gate: Gate, now: Callable[[], int], began: float) -> None:
        self.skew_millis = 0
        self._loop = loop
        self._gate = gate
        self._now = now
        self._began = began

    def now(self) -> int:
        return self._now() + self.skew_millis

    def monotonic(self) -> float:
        return self._loop.time() + self._began

    def sleep(self, seconds: float) -> Coroutine[Any, Any, None]:
        return self._gate.sleep(seconds)


@dataclass(slots=True)
class Life:
    """One process, from its start until it is dead."""

    name: str
    gate: Gate
    clock: NodeClock
    engine: Engine
    store: Store
    intake: Intake
    asking: Asking


class Doorbell:
    """Wakes the engine when something was accepted or asked for. It may be broken, or slow."""

    def __init__(self, gate: Gate, loop: SimLoop, chance: Chance) -> None:
        self.ring: Callable[[LaneKey], None] = lambda _lane: None
        self._gate = gate
        self._loop = loop
        self._chance = chance

    def __call__(self, lane: LaneKey) -> None:
        trouble = self._gate.wake_troubles.strike(self._loop.time(), (Kind.WAKE_LOST, Kind.WAKE_DELAYED))
        if trouble is None:
            self.ring(lane)
        elif trouble.kind is Kind.WAKE_DELAYED:
            self._loop.call_later(self._chance.uniform(1.0, 20.0), self.ring, lane)


class Node:
    """Keeps a process running: when one is dead, the next begins after a while."""

    def __init__(self, name: str, loop: SimLoop, chance: Chance, trace: Trace, begin: Callable[[str], Life]) -> None:
        self.name = name
        self.life: Life | None = None
        self.hurry = False  # faults are over: restart at once
        self._loop = loop
        self._chance = chance
        self._trace = trace
        self._begin = begin
        self._lives = 0
        self._tasks: list[asyncio.Task[None]] = []  # or the collector would close what waits in a dead process

    @property
    def gate(self) -> Gate | None:
        return self.life.gate if self.life and not self.life.gate.dead else None

    async def run(self, may_start: asyncio.Event) -> None:
        while True:
            await may_start.wait()
            self._lives += 1
            name = f"{self.name}.{self._lives}"
            whose.set(name)
            self.life = life = self._begin(name)
            self._trace(name, "starts")
            self._tasks.append(self._loop.create_task(self._start(life)))
            await life.gate.died
            self._trace(name, "is dead")
            await self._loop.sleep(0.2 if self.hurry else self._chance.uniform(0.2, 25.0))

    async def _start(self, life: Life) -> None:
        try:
            await life.engine.start()
        except NonchalantError as error:
            self._trace(life.name, f"cannot start: {error}")
            life.gate.kill()

    def stop(self, life: Life) -> None:
        """Ask the process to stop; it is gone when it has, or when the grace is over."""
        self._trace(life.name, "is asked to stop")
        self._tasks.append(self._loop.create_task(self._stop(life)))

    async def _stop(self, life: Life) -> None:
        stopping = self._loop.create_task(self._drain(life))
        await asyncio.wait([stopping, life.gate.died], timeout=GRACE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        life.gate.kill()

    async def _drain(self, life: Life) -> None:
        with suppress(NonchalantError):  # a store that is away at the end: the lease runs out by itself
            await life.intake.close()
            await life.engine.stop()
