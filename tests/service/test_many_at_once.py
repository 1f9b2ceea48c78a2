"""Many clients at once, over real connections, on one node and on two: one transaction a key, nothing twice in a
listing, nothing left out of it, and news of another node at once."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import asyncpg
import pytest

from nonchalant.service import transactions
from tests.postgres import Cluster
from tests.service.conftest import OTHER, SENDER, SETTINGS, Running, running

SCHEMA = "many_at_once"
BODY = {"chain_id": 31337, "from": SENDER, "to": OTHER, "value": "1000"}
RETRIES = 1_000


@pytest.fixture(params=["one node on SQLite", "two nodes on PostgreSQL"])
async def nodes(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[list[Running]]:
    if request.param == "one node on SQLite":
        async with running(tmp_path) as service:
            yield [service]
        return
    async with two_nodes(tmp_path, request.getfixturevalue("postgres")) as both:
        yield both


@pytest.fixture
async def pair(tmp_path: Path, postgres: Cluster) -> AsyncIterator[list[Running]]:
    async with two_nodes(tmp_path, postgres) as both:
        yield both


@asynccontextmanager
async def two_nodes(folder: Path, postgres: Cluster) -> AsyncIterator[list[Running]]:
    settings = SETTINGS.replace("sqlite:nonchalant.db", f"{postgres.dsn}?schema={SCHEMA}")
    async with AsyncExitStack() as life:
        yield [await life.enter_async_context(running(folder, settings)) for _ in range(2)]
    connection = await asyncpg.connect(postgres.dsn)
    await connection.execute(f"SET client_min_messages = error; DROP SCHEMA {SCHEMA} CASCADE")
    await connection.close()


async def everything(node: Running, query: str = "", limit: int = 7) -> list[str]:
    """All pages of a listing, one after the other."""
    found, cursor = [], ""
    while cursor is not None:
        _, page, _ = await node.get(f"/v1/transactions?limit={limit}{query}{f'&cursor={cursor}' if cursor else ''}")
        found += [tx["id"] for tx in page["transactions"]]
        cursor = page["next_cursor"]
    return found


async def ask_at_once(nodes: list[Running], path: str, body: object, count: int) -> list[tuple[int, Any, bool]]:
    """The same request under one key so many times, each on a connection of its own, all of them open at once."""
    all_are_here = asyncio.Barrier(count)

    async def ask(session: aiohttp.ClientSession, number: int) -> tuple[int, Any, bool]:
        url = nodes[number % len(nodes)].url
        async with session.get(f"{url}/livez") as probe:  # connects
            await probe.read()
        await all_are_here.wait()
        async with session.post(url + path, json=body, headers={"Idempotency-Key": "once"}) as answer:
            return answer.status, await answer.json(), "Idempotency-Replayed" in answer.headers

    async with AsyncExitStack() as life:
        sessions = [await life.enter_async_context(aiohttp.ClientSession()) for _ in range(count)]
        return await asyncio.gather(*(ask(session, number) for number, session in enumerate(sessions)))


async def test_a_thousand_retries_at_once_make_one_transaction(nodes: list[Running]) -> None:
    answers = await ask_at_once(nodes, "/v1/transactions", BODY, RETRIES)
    assert Counter(status for status, _, _ in answers) == {202: RETRIES}
    [made] = {shown["id"] for _, shown, _ in answers}
    assert sum(not replayed for _, _, replayed in answers) == 1
    for node in nodes:
        assert await everything(node) == [made]
    events = (await nodes[0].get(f"/v1/transactions/{made}/events"))[1]["events"]
    assert [event["kind"] for event in events].count("tx.accepted") == 1


async def test_retries_of_a_batch_at_once_make_one_batch(nodes: list[Running]) -> None:
    body = {"transactions": [{**BODY, "value": number} for number in range(10)]}
    answers = await ask_at_once(nodes, "/v1/transactions/batch", body, 200)
    assert Counter(status for status, _, _ in answers) == {202: 200}
    [made] = {tuple(tx["id"] for tx in shown["transactions"]) for _, shown, _ in answers}
    assert sum(not replayed for _, _, replayed in answers) == 1
    for node in nodes:
        assert await everything(node) == list(made)[::-1]


async def test_under_one_key_one_of_two_bodies_wins_and_the_other_is_refused(nodes: list[Running]) -> None:
    async def ask(number: int) -> tuple[int, Any]:
        node = nodes[number % len(nodes)]
        body = {**BODY, "value": number % 3}
        status, shown, _ = await node.post(body, headers={"Idempotency-Key": "contested"})
        return status, shown.get("value", shown["code"] if status != 202 else None)

    answers = Counter(await asyncio.gather(*(ask(number) for number in range(90))))
    accepted = {value: count for (status, value), count in answers.items() if status == 202}
    assert list(accepted.values()) == [30]
    assert answers[422, "idempotency_key_reused"] == 60
    assert len(await everything(nodes[0])) == 1


async def test_pages_hold_everything_once_while_others_write(nodes: list[Running]) -> None:
    acknowledged: list[str] = []
    writers, each = 6, 25

    async def write(number: int) -> None:
        for _ in range(each):
            status, tx, _ = await nodes[number % len(nodes)].post(BODY)
            assert status == 202
            acknowledged.append(tx["id"])

    writing = asyncio.gather(*(write(number) for number in range(writers)))
    walks = 0
    while not writing.done() or walks == 0:
        for query in ("", "&state=queued", f"&from={SENDER}", "&chain_id=31337"):
            before = set(acknowledged)
            found = await everything(nodes[walks % len(nodes)], query)
            walks += 1
            assert len(found) == len(set(found)), "nothing twice"
            assert before <= set(found), "nothing skipped"
    await writing
    found = await everything(nodes[0])
    assert sorted(found) == sorted(acknowledged)
    assert len(found) == writers * each


async def test_who_waits_on_one_node_hears_at_once_what_another_did(
    pair: list[Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nobody looks by himself: only news can wake whoever waits.
    monkeypatch.setattr(transactions, "LOOK_AGAIN", 3600.0)
    here, there = pair
    _, tx, _ = await here.post(BODY)
    path = f"/v1/transactions/{tx['id']}"
    changed = asyncio.create_task(there.get(f"{path}?wait=60&after={tx['version']}"))
    ended = asyncio.create_task(there.get(f"{path}?wait=60"))
    await asyncio.sleep(0.3)
    assert not changed.done()
    await here.call("POST", f"{path}/hold")
    async with asyncio.timeout(45):
        _, shown, _ = await changed
    assert (shown["held"], shown["version"]) == (True, tx["version"] + 1)
    assert not ended.done()
    await here.call("POST", f"{path}/cancel")
    async with asyncio.timeout(45):
        _, shown, _ = await ended
    assert shown["state"] == "cancelled"
