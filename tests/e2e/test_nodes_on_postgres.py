"""Nodes on one PostgreSQL: any of them accepts, one works the account, and another goes on when it has gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import asyncpg
import pytest

from nonchalant.app import Nonchalant
from nonchalant.config import Settings
from nonchalant.values import replace
from nonchalant.words import LaneKey, State
from tests import anvil
from tests.e2e.rig import settings
from tests.e2e.site import ALICE, Site, pay
from tests.postgres import Cluster

LANE = LaneKey(anvil.CHAIN_ID, ALICE)


@pytest.fixture
async def shared(site: Site, postgres: Cluster) -> AsyncIterator[Settings]:
    """The same for every node, in a schema of this test's own."""
    made = settings(site.folder, site.chain.url, accounts=1, lease=120)
    yield replace(made, store=f"{postgres.dsn}?schema=nodes")
    connection = await asyncpg.connect(postgres.dsn)
    await connection.execute("SET client_min_messages = error; DROP SCHEMA nodes CASCADE")
    await connection.close()


async def owner(node: Nonchalant) -> str | None:
    found = await node.store.lane(LANE)
    return None if found is None else found.owner


async def test_what_one_node_accepts_another_works_and_hands_over_when_it_stops(site: Site, shared: Settings) -> None:
    async with Nonchalant.open(shared) as stays:
        async with Nonchalant.open(shared) as leaves:
            first = await pay(leaves, "first")
            await site.become([first], State.SENT, mine=False)
            names = {node.engine.cluster.owner: node for node in (stays, leaves)}
            working = names[str(await owner(stays))]
            [other] = [node for node in names.values() if node is not working]
            handles = [await pay(other, f"more{number}") for number in range(5)]
            await site.become(handles, State.SENT, mine=False)
            assert await owner(stays) == working.engine.cluster.owner
        # Whoever had it, nobody waits for a lease to run out.
        last = await pay(stays, "last")
        everything = [await stays.transaction(handle.id) for handle in (first, *handles, last)]
        await site.settle(*everything, seconds=100)
        assert {handle.transaction.state for handle in everything} == {State.CONFIRMED}
        assert [handle.transaction.nonce for handle in everything] == list(range(7))
        assert await owner(stays) in (None, stays.engine.cluster.owner)


async def test_what_a_node_lets_go_is_taken_at_once(
    site: Site, shared: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a sweep: they look for work when they are told, or when they start."""
    monkeypatch.setattr("nonchalant.parts.SWEEP_SECONDS", 3600.0)
    async with AsyncExitStack() as life:
        leaves = await life.enter_async_context(Nonchalant.open(shared))
        sent = await pay(leaves, "sent")
        await site.become([sent], State.SENT, mine=False)
        async with Nonchalant.open(shared) as stays:
            # Once it has looked, it knows whose the account is.
            async with asyncio.timeout(100):
                while not stays.engine._elsewhere:  # noqa: ASYNC110 - nobody tells when a node has looked
                    await asyncio.sleep(0.02)
            await life.aclose()
            kept = await stays.transaction(sent.id)
            await site.settle(kept, seconds=100)
            assert kept.transaction.state is State.CONFIRMED
            assert await owner(stays) in (None, stays.engine.cluster.owner)


async def test_what_one_node_accepts_its_owner_hears_of_at_once(
    site: Site, shared: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a sweep, and without a block: nobody would ever look."""
    monkeypatch.setattr("nonchalant.parts.SWEEP_SECONDS", 3600.0)
    async with Nonchalant.open(shared) as works, Nonchalant.open(shared) as accepts:
        first = await pay(works, "first")
        await site.become([first], State.SENT, mine=False)
        assert await owner(works) == works.engine.cluster.owner
        for number in range(3):
            told = await pay(accepts, f"told{number}")
            await site.become([told], State.SENT, mine=False)
        assert await owner(works) == works.engine.cluster.owner


async def test_a_node_goes_on_when_its_connections_were_cut(site: Site, shared: Settings, postgres: Cluster) -> None:
    async with Nonchalant.open(shared) as node:
        handles = []
        for number in range(4):
            handles.append(await pay(node, f"tx{number}"))
            connection = await asyncpg.connect(postgres.dsn)
            await connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'nonchalant'"
            )
            await connection.close()
        await site.settle(*handles)
        assert [handle.transaction.state for handle in handles] == [State.CONFIRMED] * 4
        assert await site.count() == 4
        assert await node.store.incarnation() == 0
