"""The simulated endpoints as our nodes hear them: a test may script what each one says."""

from __future__ import annotations

import inspect
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

from nonchalant.model import Answer, Draft, Recognised, Refused, Sealed
from nonchalant.ports import Endpoint
from nonchalant.sim.chain import SimChain
from nonchalant.sim.endpoint import Ailment, SimEndpoint
from nonchalant.sim.gate import Gate, gated_endpoint
from nonchalant.sim.trouble import Trouble
from nonchalant.sim.wire import SimTx
from nonchalant.words import LaneKey

FOR_EVER = 1e9


class Voice:
    """One endpoint as our nodes hear it. A test may script what it says to any question; every question is counted."""

    def __init__(self, endpoint: SimEndpoint, chain: SimChain) -> None:
        self.name = endpoint.name
        self.endpoint = endpoint
        self.asked: Counter[str] = Counter()
        self._chain = chain
        self._scripts: dict[str, Callable[..., Awaitable[Any]]] = {}

    def __getattr__(self, name: str) -> Any:
        if not inspect.iscoroutinefunction(getattr(self.endpoint, name)):
            raise AttributeError(name)

        async def call(*args: Any) -> Any:
            self.asked[name] += 1
            script = self._scripts.get(name)
            return await (script or getattr(self.endpoint, name))(*args)

        return call

    # what it says

    def answer(self, question: str, script: Callable[..., Awaitable[Any]]) -> None:
        self._scripts[question] = script

    def fail(self, question: str, error: Exception) -> None:
        async def script(*_: Any) -> Any:
            raise error

        self.answer(question, script)

    def refuse(self, message: str, code: int | None = -32000, *, only: Callable[[SimTx], bool] | None = None) -> None:
        """Say this to every send, or to those that `only` picks, and keep nothing of them."""

        async def script(raws: Sequence[bytes]) -> Sequence[Answer]:
            answers: list[Answer] = []
            for raw in raws:
                if only is None or only(self._chain._decode(raw)):
                    answers.append(Refused(message, code))
                else:
                    answers += await self.endpoint.send([raw])
            return answers

        self.answer("send", script)

    def ail(self, ailment: Ailment) -> None:
        self.endpoint.troubles.lay(Trouble(ailment, FOR_EVER, 1.0, lambda: None))

    def down(self) -> None:
        """Nothing answers; callers wait for their time-out."""
        self.ail(Ailment.DOWN)

    def time_out_before(self) -> None:
        self.ail(Ailment.SEND_LOST)

    def time_out_after(self) -> None:
        self.ail(Ailment.SEND_UNANSWERED)

    def lie_about_finality(self) -> None:
        """Its head is what it calls final."""
        self.ail(Ailment.LYING)

    def lag(self) -> None:
        """It hears of no more blocks."""
        self.endpoint.frozen = True

    def forget_pool(self) -> None:
        self.endpoint.pool.clear()

    def heal(self) -> None:
        self._scripts.clear()
        self.endpoint.troubles.end()
        self._chain.rejoin(self.endpoint)

    # what it holds

    def pooled(self, lane: LaneKey) -> list[int]:
        return sorted(tx.nonce for tx in self.endpoint.pool.held() if tx.sender == lane.address)


class HeardChain:
    """The chain as one process reaches it."""

    def __init__(self, chain: SimChain, voices: Sequence[Voice], gate: Gate) -> None:
        self.chain_id = chain.chain_id
        self.charges_for_data = chain.charges_for_data
        self.endpoints: Sequence[Endpoint] = [gated_endpoint(cast("Endpoint", voice), gate) for voice in voices]
        self._chain = chain

    def digest(self, draft: Draft) -> bytes:
        return self._chain.digest(draft)

    def seal(self, draft: Draft, signature: bytes, *, check: bool = True) -> Sealed:
        return self._chain.seal(draft, signature, check=check)

    def recognise(self, raw: bytes) -> Recognised:
        return self._chain.recognise(raw)


class Dice(random.Random):
    """Chance, but for who makes the next block when a test says so."""

    producer: Voice | None = None

    def choice(self, seq: Sequence[Any]) -> Any:
        if self.producer is not None and self.producer.endpoint in seq:
            return self.producer.endpoint
        return super().choice(seq)
