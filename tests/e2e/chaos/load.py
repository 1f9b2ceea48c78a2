"""The load: payments through any node, over HTTP, tried again under the same key until somebody says yes."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import aiohttp

from tests.anvil import CHAIN_ID
from tests.e2e.ledger import recipient

CLIENTS = 24
ANSWER_SECONDS = 8.0
REST_SECONDS = 0.2
ASKED_TWICE = 0.05
NAMED_GAS = 0.7  # those may be signed with their acceptance
CANCELLED = 0.03

# The load keeps pace with the harm, so that every harm meets something; and never stops to wait for it.
AHEAD = 0.02
LONGEST_PAUSE_SECONDS = 0.25

# What a node says that is there and cannot: its store or its owner is away, it is stopping, its queue is full.
COME_BACK = (429, 503)


@dataclass(slots=True)
class Load:
    """What was asked for and what was answered: `transactions`, or more if that is not enough to last.

    `share`: how much of what shall happen under the load has happened, from 0 to 1.
    """

    urls: Sequence[str]
    senders: Sequence[str]
    transactions: int
    share: Callable[[], float]
    chance: random.Random
    acknowledged: dict[str, str] = field(default_factory=dict)
    unwanted: set[str] = field(default_factory=set)  # keys whose cancel was asked for
    asked: int = 0
    unanswered: int = 0  # requests that nobody knows the fate of
    refused: int = 0
    repeated: int = 0
    admitted: int = 0  # signed when they were answered
    enough: bool = False
    _asked_at: float = 0.0

    async def run(self) -> None:
        patience = aiohttp.ClientTimeout(total=ANSWER_SECONDS)
        async with aiohttp.ClientSession(timeout=patience) as session, asyncio.TaskGroup() as group:
            for _ in range(CLIENTS):
                group.create_task(self._client(session))

    async def _client(self, session: aiohttp.ClientSession) -> None:
        while self.asked < self.transactions or not self.enough:
            now = time.monotonic()
            if not self.enough and now < self._asked_at + LONGEST_PAUSE_SECONDS and self._is_ahead():
                await asyncio.sleep(0.05)
                continue
            self._asked_at = now
            number, self.asked = self.asked, self.asked + 1
            await self._pay(session, f"c{number}", self.senders[number % len(self.senders)])

    def _is_ahead(self) -> bool:
        return self.asked > self.transactions * (self.share() + AHEAD)

    async def _pay(self, session: aiohttp.ClientSession, key: str, sender: str) -> None:
        body: dict[str, object] = {"chain_id": CHAIN_ID, "from": sender, "to": recipient(key), "value": 1}
        if self.chance.random() < NAMED_GAS:
            body["gas"] = 21_000
        headers = {"Idempotency-Key": key}
        said = await self._until_answered(session, "/v1/transactions", body, headers)
        self.acknowledged[key] = said["id"]
        self.admitted += said["state"] == "signed"
        if self.chance.random() < ASKED_TWICE:
            again = await self._until_answered(session, "/v1/transactions", body, headers)
            assert again["id"] == said["id"], f"{key} became {said['id']}, and asked again {again['id']}"
            self.repeated += 1
        if self.chance.random() < CANCELLED:
            self.unwanted.add(key)
            await self._until_answered(session, f"/v1/transactions/{said['id']}/cancel", {}, {}, too_late=409)

    async def _until_answered(
        self,
        session: aiohttp.ClientSession,
        path: str,
        body: dict[str, object],
        headers: dict[str, str],
        too_late: int | None = None,
    ) -> dict[str, str]:
        while True:
            url = self.chance.choice(self.urls) + path
            try:
                async with session.post(url, json=body, headers=headers) as answer:
                    said: dict[str, str] = await answer.json(content_type=None)
                    if answer.status in (202, too_late):
                        return said
                    assert answer.status in COME_BACK, f"{path} {body}: {answer.status} {said}"
                    self.refused += 1
            except (aiohttp.ClientError, TimeoutError, ValueError):
                self.unanswered += 1  # killed, frozen, or not up: nobody knows whether the request arrived
            await asyncio.sleep(REST_SECONDS)
