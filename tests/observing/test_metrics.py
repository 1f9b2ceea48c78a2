"""`/metrics` of a real node tells what happened, in what the catalogue names, and asks the store for next to nothing."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from aiohttp import web
from prometheus_client.parser import text_string_to_metric_families

from nonchalant.access import LanePattern, Scope
from nonchalant.app import Nonchalant, Wrap
from nonchalant.config import parse_settings
from nonchalant.errors import LeaseLost, StoreUnavailable
from nonchalant.observing import catalogue as c
from nonchalant.ports import Store
from nonchalant.words import LaneKey
from tests.anvil import Anvil
from tests.postgres import Cluster
from tests.service.conftest import OTHER, SENDER, SETTINGS, Running, chain, live, running, service
from tests.service.keyed import a_holder, keyed
from tests.service.receiver import Message, receiving

__all__ = ["chain", "live", "service"]

LANE = LaneKey(31337, SENDER)
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def parsed(page: str) -> Samples:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


async def page(running: Running, **headers: str) -> str:
    async with running.session.get(running.url + "/metrics", headers=headers) as answer:
        assert answer.status == 200
        return await answer.text()


def value(samples: Samples, metric: c.Metric | str, **labels: str) -> float | None:
    return samples.get((str(metric), frozenset(labels.items())))


async def until(running: Running, condition: Callable[[Samples], Any]) -> Samples:
    async with asyncio.timeout(60):
        while not condition(samples := parsed(await page(running))):  # noqa: ASYNC110 - as a scraper does
            await asyncio.sleep(0.1)
    return samples


async def seen(live: Running, tx_id: str, state: str) -> None:
    async with asyncio.timeout(60):
        while (await live.get(f"/v1/transactions/{tx_id}"))[1]["state"] != state:  # noqa: ASYNC110 - as a client does
            await asyncio.sleep(0.05)


async def settled(live: Running, chain: Anvil, count: int = 1) -> list[Any]:
    """Send so many, and mine until they are final."""
    sent = [await live.post({"chain_id": 31337, "from": SENDER, "to": OTHER, "value": 1}) for _ in range(count)]
    ids = [tx["id"] for _, tx, _ in sent]
    for one in ids:  # a block that is faster than our record would skip a part of the way
        await seen(live, one, "sent")
    async with asyncio.timeout(60):
        while True:
            await chain.mine()
            told = [(await live.get(f"/v1/transactions/{one}"))[1] for one in ids]
            if all(tx["state"] == "confirmed" for tx in told):
                return told
            await asyncio.sleep(0.05)


async def test_the_whole_way_of_a_transaction_is_measured(live: Running, chain: Anvil) -> None:
    await settled(live, chain, 3)
    samples = parsed(await page(live))
    chain_id = {"chain": "31337"}
    assert value(samples, c.ACCEPTED, **chain_id) == 3
    assert value(samples, c.INTAKE_ANSWERS, answer="accepted") == 3
    assert value(samples, c.ATTEMPTS, **chain_id, kind="original") == 3
    assert value(samples, c.ENDED, **chain_id, state="confirmed") == 3
    for part in ("accepted_signed", "signed_sent", "sent_mined", "mined_final", "accepted_final"):
        assert value(samples, f"{c.WAY}_count", **chain_id, part=part) == 3, part
    for stage in ("accept", "assign", "sign", "broadcast", "watch", "settle"):
        assert (value(samples, f"{c.STAGE}_count", stage=stage) or 0) >= 1, stage
    assert value(samples, c.LANE_BALANCE, **chain_id, address=SENDER) != 0
    assert value(samples, c.LEASE_CHANGES, change="taken") == 1
    endpoint = {**chain_id, "endpoint": chain.url.removeprefix("http://")}
    assert value(samples, c.ENDPOINT_UP, **endpoint) == 1
    assert value(samples, c.ENDPOINT_LAG, **endpoint) == 0
    assert value(samples, c.SENDS, **endpoint, answer="accepted") == 3
    assert 1 <= (value(samples, c.HEAD, **chain_id) or 0) <= await chain.height()
    assert value(samples, c.CALLS, method="POST", route="/v1/transactions", status="202") == 3


async def test_what_is_accepted_and_signed_at_once_is_counted_as_any_other_and_once(
    live: Running, chain: Anvil
) -> None:
    await settled(live, chain)
    body = {"chain_id": 31337, "from": SENDER, "to": OTHER, "gas": 50_000}
    posted, admitted = 1, list[str]()
    async with asyncio.timeout(60):
        while len(admitted) < 3:
            _, tx, _ = await live.post(body, headers={"Idempotency-Key": f"key {posted}"})
            posted += 1
            if tx["state"] != "queued":
                assert tx["hash"] is not None
                admitted.append(tx["id"])
            await seen(live, tx["id"], "sent")
            await chain.mine()
    _, again, _ = await live.post(body, headers={"Idempotency-Key": f"key {posted - 1}"})
    assert again["id"] == tx["id"]
    samples = await until(live, lambda found: value(found, c.INTAKE_ANSWERS, answer="repeated"))
    assert value(samples, c.ACCEPTED, chain="31337") == posted
    assert value(samples, c.INTAKE_ANSWERS, answer="accepted") == posted
    assert value(samples, c.INTAKE_ANSWERS, answer="repeated") == 1
    assert value(samples, f"{c.WAY}_count", chain="31337", part="accepted_signed") == posted
    assert value(samples, c.ATTEMPTS, chain="31337", kind="original") == posted
    assert value(samples, f"{c.STAGE}_count", stage="admit") == len(admitted)
    assert value(samples, c.INTAKE_WAITING) == 0
    told = await live.node.store.history(admitted[0])
    assert [event.kind for event in told][:2] == ["tx.accepted", "tx.signed"]


async def test_everything_on_the_page_is_in_the_catalogue(live: Running, chain: Anvil) -> None:
    await settled(live, chain)
    known = {name for metric in c.CATALOGUE for name in c.series_of(metric)}
    labels = {name: set(metric.labels) for metric in c.CATALOGUE for name in c.series_of(metric)}
    for name, found in parsed(await page(live)):
        assert name in known
        assert {label for label, _ in found} - {"le"} == labels[name], name


async def test_a_scraper_may_ask_for_openmetrics(service: Running) -> None:
    text = await page(service, Accept="application/openmetrics-text;version=1.0.0")
    assert text.endswith("# EOF\n")


async def test_what_waits_is_told_with_its_age(service: Running) -> None:
    for _ in range(4):
        await service.post({"chain_id": 31337, "from": SENDER, "to": OTHER})
    samples = await until(service, lambda found: value(found, c.LIVE, chain="31337", state="queued"))
    assert value(samples, c.LIVE, chain="31337", state="queued") == 4
    assert (value(samples, c.OLDEST, chain="31337") or 0) > 0
    assert value(samples, c.TROUBLED, chain="31337") == 1  # nobody answers there
    assert value(samples, c.ENDPOINT_UP, chain="31337", endpoint="127.0.0.1:1") == 0


async def test_what_has_not_happened_yet_is_told_as_zero(service: Running) -> None:
    samples = parsed(await page(service))
    assert value(samples, c.SUPERSEDED, chain="31337") == 0
    assert value(samples, c.ENDED, chain="31337", state="failed") == 0
    assert value(samples, c.ATTEMPTS, chain="31337", kind="bump") == 0
    assert value(samples, c.LEASE_CHANGES, change="lost") == 0
    assert value(samples, c.LANE_RESTARTS, why="unexpected") == 0


async def test_what_was_refused_is_told_by_reason(service: Running) -> None:
    body = {"chain_id": 31337, "from": SENDER, "to": OTHER}
    for value_ in (1, 1, 2):
        await service.post({**body, "value": value_}, headers={"Idempotency-Key": "k"})
    samples = parsed(await page(service))
    answers = {name: value(samples, c.INTAKE_ANSWERS, answer=name) for name in ("accepted", "repeated", "key_reused")}
    assert answers == {"accepted": 1, "repeated": 1, "key_reused": 1}
    assert value(samples, c.CALLS, method="POST", route="/v1/transactions", status="422") == 1


async def test_paths_that_callers_invent_make_no_series(service: Running) -> None:
    for number in range(30):
        await service.get(f"/v1/nothing/{number}")
        await service.get(f"/v1/transactions/tx_{number}")
    samples = parsed(await page(service))
    assert value(samples, c.CALLS, method="GET", route="none", status="404") == 30
    assert value(samples, c.CALLS, method="GET", route="/v1/transactions/{id}", status="404") == 30
    await service.call("PROPFIND", "/v1/lanes")
    assert value(parsed(await page(service)), c.CALLS, method="other", route="none", status="405") == 1


async def test_a_paused_lane_is_counted(live: Running) -> None:
    await live.call("POST", f"/v1/lanes/31337/{SENDER}/pause", json={"reason": "tea"})
    await until(live, lambda found: value(found, c.LANES, chain="31337", condition="paused") == 1)


async def test_with_keys_the_page_needs_one_for_every_lane(tmp_path: Path) -> None:
    async with keyed(tmp_path) as service:
        for headers, status in (
            ({}, 401),
            (await a_holder(service, Scope.TX_WRITE), 403),
            (await a_holder(service, Scope.TX_READ, lanes=(LanePattern(31337, SENDER),)), 403),
            (await a_holder(service, Scope.TX_READ), 200),
            (await a_holder(service, Scope.ADMIN), 200),
        ):
            assert (await service.get("/metrics", headers=headers))[0] == status
        for probe in ("/livez", "/readyz"):
            assert (await service.get(probe))[0] == 200


class Counted:
    """A store that counts what it is asked, and fails when it is told to."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.fails: Exception | None = None
        self.only = ""

    def around(self, store: Store) -> Store:
        counted = self

        class Around:
            def __getattr__(self, name: str) -> Any:
                found = getattr(store, name)

                async def call(*args: Any, **kwargs: Any) -> Any:
                    counted.asked[name] += 1
                    if counted.fails is not None and counted.only in ("", name):
                        raise counted.fails
                    return await found(*args, **kwargs)

                return call

        return Around()  # type: ignore[return-value]


@pytest.fixture
async def counted(tmp_path: Path) -> AsyncIterator[tuple[Nonchalant, Counted]]:
    (tmp_path / "words").write_text("test test test test test test test test test test test junk")
    (tmp_path / "words").chmod(0o600)
    store = Counted()
    settings = parse_settings(SETTINGS, folder=tmp_path, environ={})
    async with Nonchalant.open(settings, wrap=Wrap(store=store.around)) as node:
        yield node, store
        store.fails = None


async def test_looking_often_asks_the_store_once(counted: tuple[Nonchalant, Counted]) -> None:
    node, store = counted
    for _ in range(50):
        await node.observatory.page("")
        assert await node.trouble() is None
    assert store.asked["overview"] == 1
    assert store.asked["incarnation"] <= 1


async def test_a_store_that_does_not_answer_makes_the_node_unready_and_is_counted(
    counted: tuple[Nonchalant, Counted],
) -> None:
    node, store = counted
    assert await node.trouble() is None
    store.fails = StoreUnavailable("it is away")
    async with asyncio.timeout(60):
        while await node.trouble() != "the store does not answer":  # noqa: ASYNC110 - as a probe does
            await asyncio.sleep(0.1)
    samples = parsed((await node.observatory.page(""))[0].decode())
    assert (value(samples, c.STORE_ERRORS, error="unavailable") or 0) >= 1
    store.fails = None
    async with asyncio.timeout(60):
        while await node.trouble() is not None:  # noqa: ASYNC110 - as a probe does
            await asyncio.sleep(0.1)


async def test_a_write_that_the_fence_refuses_is_counted(counted: tuple[Nonchalant, Counted]) -> None:
    node, store = counted
    store.fails, store.only = LeaseLost("another's"), "load"
    await node.send(chain_id=31337, sender=SENDER, to=OTHER)
    async with asyncio.timeout(60):
        while not node.observatory.tallies.counted(c.FENCED):  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.05)


async def test_with_many_lanes_only_some_are_told_singly(tmp_path: Path, chain: Anvil) -> None:
    settings = SETTINGS.replace("http://127.0.0.1:1", chain.url).replace(
        'key = { mnemonic = { file = "words" } }', 'key = { mnemonic = { file = "words" }, count = 130 }'
    )
    async with running(tmp_path, settings) as live:
        for lane in live.node.known_lanes:
            await live.post({"chain_id": lane.chain_id, "from": lane.address, "to": OTHER})
        samples = await until(live, lambda found: value(found, c.LANES_WORKED, chain="31337") == 130)
        told = [key for key in samples if key[0] == c.LANE_IN_FLIGHT.name]
        assert len(told) == c.MOST_LANES


async def test_on_postgresql_lost_wake_ups_are_told(tmp_path: Path, postgres: Cluster) -> None:
    settings = SETTINGS.replace("sqlite:nonchalant.db", f"{postgres.dsn}?schema=watched")
    async with running(tmp_path, settings) as service:
        await until(service, lambda found: value(found, c.WAKES_CONNECTED) == 1)
        samples = parsed(await page(service))
        assert value(samples, c.WAKES_LOST) == 0
        assert any(name == c.BUILD.name and ("store", "postgresql") in labels for name, labels in samples)
        connection = await asyncpg.connect(postgres.dsn)
        await connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND query LIKE '%LISTEN%'"
        )
        await connection.close()
        samples = await until(service, lambda found: value(found, c.WAKES_LOST))
        assert value(samples, c.WAKES_LOST) == 1


async def test_what_a_receiver_does_not_take_is_told_as_lag(tmp_path: Path) -> None:
    is_down = True

    async def answer(_: Message) -> web.StreamResponse:
        return web.Response(status=500 if is_down else 204)

    settings = 'webhook_targets = "any"\n' + SETTINGS
    async with receiving(answer) as receiver, running(tmp_path, settings) as service:
        _, made, _ = await service.call("POST", "/v1/webhooks", json={"url": receiver.url})
        await service.post({"chain_id": 31337, "from": SENDER, "to": OTHER})
        samples = await until(service, lambda found: value(found, c.WEBHOOK_LAG, webhook=made["id"]))
        assert (value(samples, c.WEBHOOK_WAITING, webhook=made["id"]) or 0) >= 1
        await until(service, lambda found: value(found, c.WEBHOOK_TRIES, outcome="failed"))
        is_down = False
        samples = await until(service, lambda found: value(found, c.WEBHOOK_TRIES, outcome="delivered"))
        assert (value(samples, f"{c.WEBHOOK_SECONDS}_count") or 0) >= 1
