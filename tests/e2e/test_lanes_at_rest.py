"""Thousands of accounts on a node: those without work have no lease, no desk, and nobody asks about them."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar, cast

import asyncpg

from nonchalant.app import Nonchalant, Wrap
from nonchalant.config import parse_settings
from nonchalant.ports import Endpoint, Store
from nonchalant.testing.crashpoints import calls_of
from nonchalant.words import LaneKey, State
from tests import anvil
from tests.e2e.rig import payment, until
from tests.e2e.site import ALICE, Site
from tests.postgres import Cluster

P = TypeVar("P")
LANES = 2_000
SWEEPS = 3

# What a node asks about all of its lanes at once; of the chain, one look at its head and the new blocks.
OF_THE_STORE = {
    *("declare", "heartbeat", "lanes_with_work", "overdue", "last_position", "events_after"),
    *("forget_replies", "forget_settled"),
}
OF_THE_CHAIN = {"view", "block"}


class Counts:
    """How often each call of a port was made, and about which lanes."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.lanes: Counter[LaneKey] = Counter()

    def around(self, inner: P, port: type) -> P:
        """The same port, counted."""
        acts = {name: staticmethod(self._counted(name, getattr(inner, name))) for name in calls_of(port)}
        double = type(f"Counted{port.__name__}", (), acts)()
        for field in port.__annotations__:
            setattr(double, field, getattr(inner, field))
        return cast("P", double)

    def _counted(self, name: str, act: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def call(*args: object, **kwargs: object) -> object:
            self.calls[name] += 1
            for value in (*args, *kwargs.values()):
                named = getattr(value, "lane", value)
                if isinstance(named, LaneKey):
                    self.lanes[named] += 1
            return await act(*args, **kwargs)

        return call


@asynccontextmanager
async def a_node(site: Site, cluster: Cluster, lanes: int) -> AsyncIterator[tuple[Nonchalant, Counts, Counts]]:
    text = f"""
        store = "{cluster.dsn}?schema=rest"
        auth = "off"
        [[chains]]
        id = {anvil.CHAIN_ID}
        endpoints = ["{site.chain.url}"]
        poll_interval = 0.2
        [[accounts]]
        chains = [{anvil.CHAIN_ID}]
        key = {{ mnemonic = {{ env = "PHRASE" }}, count = {lanes} }}
    """
    settings = parse_settings(text, folder=site.folder, environ={})
    asked, seen = Counts(), Counts()
    wrap = Wrap(
        store=lambda store: asked.around(store, Store), endpoint=lambda endpoint: seen.around(endpoint, Endpoint)
    )
    async with Nonchalant.open(settings, wrap=wrap) as node:
        yield node, asked, seen


async def test_lanes_without_work_have_no_lease_and_no_desk_and_nobody_asks_about_them(
    site: Site, postgres: Cluster, monkeypatch: Any
) -> None:
    monkeypatch.setenv("PHRASE", anvil.MNEMONIC)
    try:
        async with a_node(site, postgres, LANES) as (node, asked, seen):
            await until(lambda: asked.calls["lanes_with_work"] >= SWEEPS, "some sweeps")
            assert len(node.known_lanes) == LANES
            assert (node.engine.desks, node.engine.cluster.leases, asked.lanes) == ({}, {}, {})
            assert set(asked.calls) <= OF_THE_STORE
            assert set(seen.calls) <= OF_THE_CHAIN
            # One of them has work: that one is taken, and no other.
            handle = await node.send(**payment("one"))
            await site.become([handle], State.CONFIRMED)
            assert set(asked.lanes) == {LaneKey(anvil.CHAIN_ID, ALICE)}
            await until(lambda: not node.engine.desks and not node.engine.cluster.leases, "at rest again")
    finally:
        connection = await asyncpg.connect(postgres.dsn)
        await connection.execute("SET client_min_messages = error; DROP SCHEMA IF EXISTS rest CASCADE")
        await connection.close()
