"""One call to be answered: what was asked, by whom, on which chain, and after whom its turn comes."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from nonchalant.access import Scope
from nonchalant.config import ChainSettings
from nonchalant.errors import BadRequest, Forbidden
from nonchalant.service.front import Front
from nonchalant.service.http import Call
from nonchalant.service.rpc.envelope import Question
from nonchalant.words import Address, LaneKey


class Turn:
    """The place of one call among those of its batch that must be accepted in the order in which they stand there."""

    def __init__(self, before: Turn | None = None) -> None:
        self._before = before
        self._over = asyncio.Event()

    async def comes(self) -> None:
        if self._before is not None:
            await self._before._over.wait()  # noqa: SLF001 - another of its own kind

    def is_over(self) -> None:
        self._over.set()


@dataclass(slots=True)
class Visit:
    """One HTTP call, of which there may be many calls."""

    front: Front
    call: Call
    chain: ChainSettings
    _leaving: asyncio.Task[None] | None = None

    @property
    def has_left(self) -> bool:
        """Whether the client is gone, as far as anybody has looked; the first who asks begins to."""
        if self._leaving is None:
            self._leaving = asyncio.create_task(self.call.left())
        return self._leaving.done()

    def end(self) -> None:
        if self._leaving is not None:
            self._leaving.cancel()


@dataclass(frozen=True, slots=True)
class Asked:
    visit: Visit
    question: Question
    idempotency_key: str | None = None
    turn: Turn = field(default_factory=Turn)

    @property
    def front(self) -> Front:
        return self.visit.front

    @property
    def chain(self) -> ChainSettings:
        return self.visit.chain

    def lane(self, address: Address) -> LaneKey | None:
        """The account, if it is managed here and the caller may use it; None: it is anybody's."""
        lane = LaneKey(self.chain.id, address)
        known = lane in self.front.node.known_lanes and self.visit.call.caller.may_use(lane)
        return lane if known else None

    def must(self, scope: Scope) -> None:
        if not self.visit.call.caller.may(scope):
            raise Forbidden(f"this key lacks the scope {scope}; ask whoever gave it to you")

    def takes(self, least: int, most: int) -> None:
        given = len(self.question.params)
        if not least <= given <= most:
            wanted = str(least) if least == most else f"{least} to {most}"
            raise BadRequest(f"{self.question.method} takes {wanted} params, not {given}")
