"""The endpoints of one chain, heard together: who answers, who keeps up with the others, and on what they agree."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import structlog

from nonchalant import heads, policy
from nonchalant.errors import NodeRefused, NonchalantError, Unreachable
from nonchalant.model import BlockRef, View
from nonchalant.ports import Chain, Clock, Endpoint
from nonchalant.words import Hash

log = structlog.get_logger()
T = TypeVar("T")

# An endpoint whose head stands still this long while the chain moves does not count for finality.
STALLED_SECONDS = 90.0

# How long one look at the endpoints waits for the slower ones.
LOOK_SECONDS = 1.0

# How long an endpoint is waited for before the next one is asked the same.
HEDGE_SECONDS = 1.0


class Panel:
    """What each endpoint last said, and asking them: one after the other, or all at once."""

    def __init__(self, chain: Chain, clock: Clock) -> None:
        self.chain = chain
        self.views: dict[str, View] = {}  # of those that answered the last look
        self._clock = clock
        self._asked: dict[str, asyncio.Task[View | None]] = {}  # those that have not answered yet
        self._silence: dict[str, str] = {}  # why one did not answer when it last did not
        self._progress: dict[str, tuple[int, float]] = {}  # an endpoint's head, and when it got there
        self._broken: set[tuple[str, type[Exception]]] = set()  # adapters that broke, and how: told once

    @property
    def quorum(self) -> int:
        return heads.quorum(len(self.chain.endpoints))

    async def look(self) -> dict[str, View]:
        """What each endpoint that answers now sees of the chain."""
        for endpoint in self.chain.endpoints:
            if endpoint.name not in self._asked:
                self._asked[endpoint.name] = asyncio.create_task(self._view(endpoint))
        # A slow endpoint is not waited for: its answer counts in the round in which it comes.
        await asyncio.wait(self._asked.values(), timeout=LOOK_SECONDS)
        done = {name: task for name, task in self._asked.items() if task.done()}
        for name in done:
            del self._asked[name]
        views = ((name, task.result()) for name, task in done.items())
        self.views = {name: view for name, view in views if view is not None}
        now = self._clock.monotonic()
        for name, view in self.views.items():
            height, _ = self._progress.get(name, (-1, now))
            if view.head.number != height:
                self._progress[name] = (view.head.number, now)
        return self.views

    async def _view(self, endpoint: Endpoint) -> View | None:
        try:
            return await endpoint.view()
        except (Unreachable, NodeRefused) as error:
            log.debug("endpoint.silent", endpoint=endpoint.name, reason=str(error))
            self._silence[endpoint.name] = str(error)
        except Exception:  # one endpoint's adapter that breaks must not blind us to the others
            log.exception("endpoint.broke", endpoint=endpoint.name)
            self._silence[endpoint.name] = f"{endpoint.name} cannot be read"
        return None

    async def ask(self, question: Callable[[Endpoint], Awaitable[T]], *, top: int) -> T:
        """Endpoint after endpoint; one that keeps us waiting has the next one asked beside it."""
        to_ask, asked = self._by_trust(top), list[asyncio.Future[T]]()
        trouble: NonchalantError | None = None
        try:
            while to_ask or asked:
                if to_ask:
                    asked.append(asyncio.ensure_future(self.ask_one(question, to_ask.pop(0))))
                patience = HEDGE_SECONDS if to_ask else None
                answered, _ = await asyncio.wait(asked, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
                for answer in [one for one in asked if one in answered]:
                    asked.remove(answer)
                    try:
                        return answer.result()
                    except Unreachable as error:
                        trouble = error
                    except NodeRefused as refusal:
                        # A full queue, a missing method or a lost state is this endpoint's own; another may answer.
                        if policy.is_verdict(refusal):
                            raise
                        trouble = refusal
        finally:
            for late in asked:
                late.cancel()
        raise trouble or Unreachable(f"no endpoint of chain {self.chain.chain_id} answers")

    async def ask_everyone(self, question: Callable[[Endpoint], Awaitable[T]], *, top: int) -> list[T]:
        """Waits a moment for all of them, and longer only for as many as finality takes."""
        asked = [asyncio.ensure_future(self.ask_one(question, endpoint)) for endpoint in self._by_trust(top)]
        waiting = set(asked)
        patience: float | None = LOOK_SECONDS
        try:
            while waiting:
                how = asyncio.ALL_COMPLETED if patience else asyncio.FIRST_COMPLETED
                _, waiting = await asyncio.wait(waiting, timeout=patience, return_when=how)
                patience = None
                if len(self._usable(asked)) >= self.quorum:
                    break
            return self._usable(asked)
        finally:
            for late in asked:
                late.cancel()

    async def ask_one(self, question: Callable[[Endpoint], Awaitable[T]], endpoint: Endpoint) -> T:
        """Ask one endpoint. If its adapter breaks on the answer, that is no answer, and the others go on."""
        try:
            return await question(endpoint)
        except NonchalantError:
            raise
        except Exception as error:  # an adapter that breaks on an answer must not stop the question
            if (endpoint.name, type(error)) not in self._broken:
                self._broken.add((endpoint.name, type(error)))
                log.exception("endpoint.broke", endpoint=endpoint.name)
            raise Unreachable(f"{endpoint.name} answered what cannot be read: {error!r}") from error

    @staticmethod
    def _usable(asked: Sequence[asyncio.Future[T]]) -> list[T]:
        """The answers that came and are answers; what nobody expects is raised."""
        answers = []
        for answer in asked:
            if not answer.done() or isinstance(answer.exception(), Unreachable | NodeRefused):
                continue
            answers.append(answer.result())
        return answers

    def _by_trust(self, top: int) -> list[Endpoint]:
        """Endpoints that answered the last poll, those that have our head first."""
        answering = [endpoint for endpoint in self.chain.endpoints if endpoint.name in self.views]
        return sorted(answering, key=lambda endpoint: self.views[endpoint.name].head.number < top)

    async def hash_at(self, endpoint: Endpoint, height: int) -> Hash | None:
        """None: it does not say."""
        try:
            block = await self.ask_one(lambda one: one.block(height), endpoint)
        except (Unreachable, NodeRefused):
            return None
        return None if block is None else block.hash

    async def agreed(self, height: int, names: list[str]) -> BlockRef | None:
        """The block at this height on which all of these endpoints agree; None also when too few of them answer."""
        return heads.agreed(height, await self.hashes_at(height, names), least=self.quorum)

    async def hashes_at(self, height: int, names: list[str]) -> list[Hash]:
        """What these endpoints call the block at this height: those of them that say."""
        endpoints = [endpoint for endpoint in self.chain.endpoints if endpoint.name in names]
        answers = await asyncio.gather(*(self.hash_at(endpoint, height) for endpoint in endpoints))
        return [answer for answer in answers if answer is not None]

    def keeping_up(self, views: dict[str, View], *, within: int) -> dict[str, View]:
        """Those that neither stand still while others move nor are further behind, if that leaves enough of them."""
        heights = [view.head.number for view in views.values()]
        now, usual = self._clock.monotonic(), heads.believed(heights)
        keeping_up = {}
        for name, view in views.items():
            height, since = self._progress[name]
            stalled = height < max(heights) and now - since > STALLED_SECONDS
            if not stalled and usual - view.head.number <= within:
                keeping_up[name] = view
        return keeping_up if len(keeping_up) >= self.quorum else views

    def with_reasons(self, trouble: str) -> str:
        """The trouble, and what the endpoints that do not answer last said."""
        silent = [reason for name, reason in self._silence.items() if name not in self.views]
        return f"{trouble}: {'; '.join(silent)}" if silent else trouble
