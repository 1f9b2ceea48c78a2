"""The clients of a history: each asks a node for what it wants, and another one when it hears nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from nonchalant.errors import KeyReused, QueueFull, ShuttingDown
from nonchalant.ports import Entropy
from nonchalant.sim.loop import SimLoop
from nonchalant.sim.node import Life, Node
from nonchalant.sim.properties import Checker
from nonchalant.sim.traffic import Wish
from nonchalant.sim.violations import Violations

# How long a client waits for an answer.
PATIENCE_SECONDS = 12.0


class Clients:
    def __init__(
        self, nodes: Sequence[Node], loop: SimLoop, entropy: Entropy, checker: Checker, report: Violations
    ) -> None:
        self.asking = 0  # how many have not got their answer
        self._nodes = nodes
        self._loop = loop
        self._entropy = entropy
        self._checker = checker
        self._report = report
        self._tasks: list[asyncio.Task[Any]] = []  # or the collector would close what waits in a dead process

    async def ask_for(self, wish: Wish) -> None:
        self.asking += 1
        await self._loop.sleep(wish.at)
        await self._ask_until_answered(wish, wish.node)
        if wish.again_at is not None:
            await self._loop.sleep(max(0.0, wish.again_at - self._loop.time()))
            await self._ask_until_answered(wish, wish.node + 1)
        self.asking -= 1

    async def _ask_until_answered(self, wish: Wish, first: int) -> None:
        turn = first
        while True:
            life = self._nodes[turn % len(self._nodes)].life
            turn += 1
            if life is not None and not life.gate.dead and await self._ask(life, wish):
                return
            await self._loop.sleep(self._entropy.uniform(0.5, 3.0))

    async def _ask(self, life: Life, wish: Wish) -> bool:
        """True: answered, or it would not be safe to ask again."""
        asked = self._loop.create_task(life.intake.submit(wish.request(self._entropy.token())))
        self._tasks.append(asked)
        either: list[asyncio.Future[Any]] = [asked, life.gate.died]
        await asyncio.wait(either, timeout=PATIENCE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if not asked.done():
            return wish.key is None
        match asked.exception():
            case None:
                tx, _ = asked.result()
                self._checker.answered(wish, tx)
                return True
            case QueueFull() | ShuttingDown():
                return False
            case KeyReused():
                self._report("P2", f"{wish.key} was never used for anything else")
                return True
            case _:
                return wish.key is None
