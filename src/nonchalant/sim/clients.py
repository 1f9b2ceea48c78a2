"""The people of a history: each asks a node for what it wants, and another one when it hears nothing."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Coroutine, Sequence
from typing import Any

from nonchalant.errors import (
    KeyReused,
    LaneDraining,
    NonceTaken,
    NotFound,
    QueueFull,
    ShuttingDown,
    StoreUnavailable,
    TooLate,
    WishPending,
    WishRefused,
)
from nonchalant.model import Transaction
from nonchalant.ports import Entropy
from nonchalant.sim.facts import Facts
from nonchalant.sim.holders import Holders, Want
from nonchalant.sim.loop import SimLoop
from nonchalant.sim.moves import Act, Ask, Move
from nonchalant.sim.node import Life, Node
from nonchalant.sim.obedience import Obedience
from nonchalant.sim.properties import Checker
from nonchalant.sim.traffic import Errand
from nonchalant.sim.violations import Violations
from nonchalant.values import replace
from nonchalant.wishes import Fill, Reset, Sync
from nonchalant.words import LaneKey, Mode, TxId

# How long a client waits for an answer.
PATIENCE_SECONDS = 12.0

# How long somebody waits for a transaction to be accepted before he gives up wanting something of it.
LONGEST_WAIT = 100.0

# How often an operator looks whether everything goes its way again.
ROUND_SECONDS = 10.0


class Clients:
    def __init__(
        self,
        nodes: Sequence[Node],
        loop: SimLoop,
        entropy: Entropy,
        checker: Checker,
        report: Violations,
        moves: Counter[Move],
        holders: Holders,
        facts: Facts,
    ) -> None:
        self.asking = 0  # how many have not got their answer
        self._nodes = nodes
        self._loop = loop
        self._entropy = entropy
        self._checker = checker
        self._report = report
        self._moves = moves
        self._hold = holders
        self._facts = facts
        self._ids: dict[str, TxId] = {}  # by label
        self._tasks: list[asyncio.Task[Any]] = []  # or the collector would close what waits in a dead process

    # sending

    async def ask_for(self, errand: Errand) -> None:
        if errand.led:
            return
        self.asking += 1
        await self._loop.sleep(errand.at)
        await self._ask_until_answered(errand, errand.node)
        if errand.again_at is not None:
            await self._loop.sleep(max(0.0, errand.again_at - self._loop.time()))
            await self._ask_until_answered(errand, errand.node + 1)
        self.asking -= 1

    async def _ask_until_answered(self, errand: Errand, first: int) -> None:
        turn = first
        while True:
            life = self._nodes[turn % len(self._nodes)].life
            turn += 1
            if life is not None and not life.gate.dead and await self._ask(life, errand):
                return
            await self._loop.sleep(self._entropy.uniform(0.5, 3.0))

    async def _ask(self, life: Life, errand: Errand) -> bool:
        """True: answered, or it would not be safe to ask again."""
        asked = await self._call(life, self._submit(life, errand))
        if asked is None:
            return errand.key is None
        match asked.exception():
            case None:
                for one, tx in zip(self._keyed(errand), asked.result(), strict=True):
                    self._checker.answered(one, tx)
                    self._ids[one.label] = tx.id
                return True
            case QueueFull() | ShuttingDown() | LaneDraining() | NonceTaken() | StoreUnavailable():
                return False
            case KeyReused():
                self._report("P2", f"{errand.key} was never used for anything else")
                return True
            case _:
                return errand.key is None

    async def _submit(self, life: Life, errand: Errand) -> Sequence[Transaction]:
        if errand.others:
            requests = errand.requests(iter(self._entropy.token, ""))
            accepted, is_new = await life.intake.submit_together(requests)
            self._moves[Move.TOGETHER] += is_new
            return accepted
        nonce = None if errand.ahead is None else await self._next_nonce(life, errand.lane) + errand.ahead
        tx, _ = await life.intake.submit(errand.request(self._entropy.token(), nonce))
        return [tx]

    async def _next_nonce(self, life: Life, lane: LaneKey) -> int:
        """What a client is told that asks how many transactions the account has sent."""
        return (await life.store.numbering(lane)).next_free(self._facts.consumed(lane, final=False))

    @staticmethod
    def _keyed(errand: Errand) -> list[Errand]:
        """Each with a key that stands for it alone."""
        return [errand, *(replace(one, key=f"{errand.key} {n}") for n, one in enumerate(errand.others))]

    async def _call(self, life: Life, call: Coroutine[Any, Any, Any]) -> asyncio.Task[Any] | None:
        """The call when it has ended; None: nothing is heard of it."""
        asked = self._loop.create_task(call)
        self._tasks.append(asked)
        either: list[asyncio.Future[Any]] = [asked, life.gate.died]
        await asyncio.wait(either, timeout=PATIENCE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        return asked if asked.done() else None

    # wanting something else

    async def act(self, ask: Ask) -> None:
        self.asking += 1
        await self._loop.sleep(ask.at)
        if not ask.label:
            await self._act_on_lane(ask)
        elif (tx_id := await self._accepted(ask.label)) is not None:
            await self._act_on_transaction(ask, tx_id)
        self.asking -= 1

    async def _accepted(self, label: str) -> TxId | None:
        """The transaction, as soon as its client was told its name."""
        for _ in range(int(LONGEST_WAIT)):
            if label in self._ids:
                return self._ids[label]
            await self._loop.sleep(1.0)
        return None

    async def _act_on_transaction(self, ask: Ask, tx_id: TxId) -> None:
        match ask.act:
            case Act.CANCEL:
                self._checker.unwanted(ask.label)
                await self.want(ask.node, lambda asking: asking.cancel(tx_id))
            case Act.BUMP:
                await self.want(ask.node, lambda asking: asking.bump(tx_id, ask.fees))
            case Act.REPLACE:
                payload = ask.payload
                assert payload is not None
                await self.want(ask.node, lambda asking: asking.replace(tx_id, payload, ask.fees))
            case _:
                if await self.want(ask.node, lambda asking: asking.hold(tx_id)):
                    await self._loop.sleep(ask.seconds)
                    # It may be held for another reason by now. They do not look: that must be refused.
                    await self.want(ask.node + 1, _release(tx_id))

    async def _act_on_lane(self, ask: Ask) -> None:
        match ask.act:
            case Act.CANCEL_ALL:
                self._checker.unwanted_lane(ask.lane)
                if await self.want(ask.node, lambda asking: asking.cancel_all(ask.lane)):
                    self._moves[Move.CANCEL_ALL] += 1
            case Act.SYNC:
                await self.hear(ask.node, lambda asking: asking.of_lane(ask.lane, Sync()), once=True)
            case Act.FILL:
                await self.hear(ask.node, lambda asking: asking.of_lane(ask.lane, Fill()), once=True)
            case Act.RESET:
                await self.hear(ask.node, lambda asking: asking.of_lane(ask.lane, Reset(ask.force)), once=True)
            case Act.RESERVE:
                await self._hold.reserve(ask, self)
            case act:
                mode = Mode.DRAINING if act is Act.DRAIN else Mode.PAUSED
                await self.want(ask.node, _control(ask.lane, mode))
                await self._loop.sleep(ask.seconds)
                await self.want(ask.node + 1, _control(ask.lane, Mode.OPEN))

    async def want(self, first: int, want: Want) -> bool:
        """Ask one node after the other until one answers; False if the answer is no."""
        return bool(await self.hear(first, want))

    async def hear(self, first: int, want: Want, *, once: bool = False) -> list[Any]:
        """The answer, or nothing if it is no; with `once` also if a node was asked and does not answer."""
        turn = first
        while True:
            life = self._nodes[turn % len(self._nodes)].life
            turn += 1
            if life is not None and not life.gate.dead:
                asked = await self._call(life, _as_coroutine(want(life.asking)))
                match asked.exception() if asked else asked:
                    case TooLate() | NotFound():
                        self._moves[Move.TOO_LATE] += 1
                        return []
                    case WishRefused() | WishPending():
                        return []
                    case None if asked:
                        return [asked.result()]
                    case _ if once:
                        return []
                    case _:
                        pass
            await self._loop.sleep(self._entropy.uniform(0.5, 3.0))


class Operator:
    """Looks after everything once the faults are over.

    Lanes are opened, what somebody holds is let go, and nonces for which nothing ever came are filled.
    """

    def __init__(self, clients: Clients, facts: Facts, obedience: Obedience, loop: SimLoop) -> None:
        self._clients = clients
        self._facts = facts
        self._obedience = obedience
        self._loop = loop

    async def look_after(self, lanes: Sequence[LaneKey], shut: LaneKey | None) -> None:
        if shut is not None:
            await self._clients.want(0, _control(shut, Mode.PAUSED))
        while True:
            for lane in lanes:
                if lane != shut and not self._obedience.is_open(lane):
                    await self._clients.want(0, _control(lane, Mode.OPEN))
            for tx_id in self._facts.held_by_people():
                await self._clients.want(0, _release(tx_id))
            for lane, nonce in self._facts.used_reservations():
                await self._clients.hear(0, _fill(lane, nonce), once=True)
            await self._loop.sleep(ROUND_SECONDS)


def _control(lane: LaneKey, mode: Mode) -> Want:
    return lambda asking: asking.control(lane, mode)


def _release(tx_id: TxId) -> Want:
    return lambda asking: asking.release(tx_id)


def _fill(lane: LaneKey, nonce: int) -> Want:
    return lambda asking: asking.of_lane(lane, Fill(nonce))


async def _as_coroutine(call: Awaitable[object]) -> object:
    return await call
