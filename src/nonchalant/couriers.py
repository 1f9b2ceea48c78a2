"""Who delivers: each webhook has one node at a time, and live nodes share them.

As with lanes, the store's clock says whose a webhook is; a node that died loses it when its time is over, one that
stops lets it go.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from zlib import crc32

import structlog

from nonchalant.courier import FINISH_SECONDS, Courier, Kit
from nonchalant.errors import NonchalantError
from nonchalant.ports import Roll
from nonchalant.waiting import nap, within
from nonchalant.words import Millis

# Of the time a webhook is ours, the last part in which we do nothing: clocks and commits take their time.
MARGIN: Final = 0.2

# The log of what was delivered, or given up.
LOG_KEPT: Final[Millis] = 7 * 24 * 3_600_000
FORGOTTEN_AT_ONCE: Final = 1_000
FORGET_SECONDS: Final = 600.0

log = structlog.get_logger()


@dataclass(slots=True)
class _Working:
    courier: Courier
    task: asyncio.Task[None]


class Couriers:
    """All of this node's. `ttl`: for how long a webhook is ours without another word."""

    def __init__(self, kit: Kit, *, ttl: float) -> None:
        self._kit = kit
        self._ttl = ttl
        self._working: dict[str, _Working] = {}
        self._wake = asyncio.Event()
        self._forget_at = 0.0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._keep_looking())

    def poke(self) -> None:
        """Somebody changed a webhook."""
        self._wake.set()

    def backlogs(self) -> Mapping[str, tuple[int, Millis]]:
        """By webhook that is delivered for here: how much waits, and how old the oldest of it is."""
        return {id: one.courier.backlog() for id, one in self._working.items() if not one.task.done()}

    async def stop(self) -> None:
        """Finish what is under way, and let others go on."""
        if self._task is None:
            return
        self._task.cancel()
        await within(self._kit.clock, 1.0, [self._task])
        for one in self._working.values():
            one.courier.stop()
        working = [one.task for one in self._working.values()]
        for late in await within(self._kit.clock, FINISH_SECONDS + 1.0, working):
            late.cancel()
        if working:
            await self._kit.store.release_webhooks(self._kit.owner)

    async def _keep_looking(self) -> None:
        while True:
            try:
                await self._look()
                await self._forget()
            except NonchalantError as error:
                log.warning("webhooks.failed", reason=str(error))
            except Exception:  # without this nothing would be delivered any more
                # Nobody expected it, so it is told with all its frames.
                log.exception("webhooks.broke")
            await nap(self._kit.clock, self._wake, self._ttl / 4)

    async def _look(self) -> None:
        """Keep what is ours, take what nobody has, and notice what changed."""
        began = self._kit.clock.monotonic()
        roll = await self._kit.store.webhook_owners()
        self._working = {id: one for id, one in self._working.items() if not one.task.done()}
        wanted = to_deliver_for(roll, self._kit.owner)
        ours = await self._kit.store.own_webhooks(wanted, self._kit.owner, self._ttl) if wanted else frozenset()
        versions = {one.id: one.version for one in roll.webhooks}
        for webhook_id in ours:
            held_until = began + self._ttl * (1 - MARGIN)
            if webhook_id in self._working:
                courier = self._working[webhook_id].courier
                courier.held_until = held_until
                if courier.version < versions[webhook_id]:
                    courier.reload()
            else:
                courier = Courier(webhook_id, self._kit, held_until)
                self._working[webhook_id] = _Working(courier, asyncio.create_task(courier.run()))
        for webhook_id, one in self._working.items():
            if webhook_id not in wanted:  # another node's, disabled or gone
                one.courier.stop()

    async def _forget(self) -> None:
        if self._kit.clock.monotonic() >= self._forget_at:
            gone = await self._kit.store.forget_deliveries(older_than=LOG_KEPT, limit=FORGOTTEN_AT_ONCE)
            if gone < FORGOTTEN_AT_ONCE:
                self._forget_at = self._kit.clock.monotonic() + FORGET_SECONDS


def to_deliver_for(roll: Roll, owner: str) -> Sequence[str]:
    """Those that are ours, and as many of those that nobody has as make up our share."""
    enabled = [one for one in roll.webhooks if not one.disabled]
    share = -(-len(enabled) // roll.live_nodes)
    ours = [one.id for one in enabled if one.owner == owner]
    # Each node begins elsewhere: those who look at the same moment should not all want the same.
    free = sorted((one.id for one in enabled if one.owner is None), key=lambda id: crc32(f"{owner} {id}".encode()))
    return ours + free[: max(0, share - len(ours))]
