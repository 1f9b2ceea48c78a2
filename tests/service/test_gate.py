"""The gate: who is let in, who is not, and that nothing is learnt from being refused."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from nonchalant import keys
from nonchalant.access import ANYBODY, Caller, LanePattern, Scope
from nonchalant.errors import StoreUnavailable
from nonchalant.keys import Live
from nonchalant.service.lookup import Lookup
from nonchalant.service.rates import Rates
from tests.lessons import lesson
from tests.service.conftest import OTHER, SENDER, Running
from tests.service.keyed import OPERATOR, a_holder, bearer, hand_out, keyed

BODY = {"chain_id": 31337, "from": SENDER, "to": OTHER, "value": 1}


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Running]:
    async with keyed(tmp_path) as service:
        yield service


async def test_a_key_lets_its_holder_in(service: Running) -> None:
    headers = await a_holder(service, Scope.TX_WRITE, Scope.TX_READ)
    status, made, _ = await service.post(BODY, headers=headers)
    assert status == 202
    status, shown, _ = await service.get(f"/v1/transactions/{made['id']}", headers=headers)
    assert (status, shown["id"]) == (200, made["id"])


async def test_the_word_bearer_may_be_written_anyhow(service: Running) -> None:
    _, written = await hand_out(service, Scope.TX_READ)
    for word in ("bearer", "BEARER", "Bearer "):
        assert (await service.get("/v1/lanes", headers={"Authorization": f"{word} {written.text}"}))[0] == 200


async def test_probes_and_the_document_need_no_key(service: Running) -> None:
    for path in ("/livez", "/readyz", "/openapi.json"):
        assert (await service.get(path))[0] == 200


async def test_whoever_is_refused_learns_nothing_from_it(service: Running) -> None:
    _, late = await hand_out(service, Scope.ADMIN, expires_at=1)
    revoked, gone = await hand_out(service, Scope.ADMIN)
    await service.node.keyring.revoke(revoked.id, OPERATOR)
    _, right = await hand_out(service, Scope.ADMIN)
    wrong = right.text[:-1] + ("0" if right.text[-1] != "0" else "1")
    tries: list[Any] = [
        {},
        {"Authorization": ""},
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer nck_"},
        {"Authorization": f"Basic {right.text}"},
        {"Authorization": right.text},
        {"Authorization": "Bearer \xe4\xf6"},
        bearer(right.text.upper()),
        bearer(right.text + "0"),
        bearer(f"{right.text} {right.text}"),
        bearer(keys.write("0" * 16, "0" * 64)),
        bearer(late),
        bearer(gone),
        bearer(wrong),
        [("Authorization", f"Bearer {right.text}"), ("Authorization", f"Bearer {right.text}")],
    ]
    answers = set()
    for headers in tries:
        status, problem, sent = await service.get("/v1/keys", headers=headers)
        assert (status, sent["WWW-Authenticate"]) == (401, 'Bearer realm="nonchalant"'), headers
        answers.add(json.dumps(problem))
    [answer] = answers
    assert json.loads(answer)["code"] == "unauthorized"
    assert (await service.get("/v1/keys", headers=bearer(right)))[0] == 200


async def test_a_path_that_is_not_there_and_a_wrong_method_need_no_key_to_be_told(service: Running) -> None:
    assert (await service.get("/v1/nothing"))[0] == 404
    assert (await service.call("DELETE", "/v1/keys"))[0] == 405


@lesson("secrets-printed")
async def test_refused_calls_are_in_the_log_without_what_was_sent(
    service: Running, caplog: pytest.LogCaptureFixture
) -> None:
    _, written = await hand_out(service, Scope.TX_READ)
    wrong = written.text[:-4] + "ffff"
    for _ in range(3):
        await service.get("/v1/lanes", headers=bearer(wrong))
    said = caplog.text
    assert said.count("call.unauthorized") == 1  # one line a minute
    assert written.id in said
    assert wrong not in said
    assert wrong.rpartition("_")[2] not in said


async def test_a_refused_call_that_came_by_a_proxy_is_told_of_whom_it_is_from(
    service: Running, caplog: pytest.LogCaptureFixture
) -> None:
    await service.get("/v1/lanes", headers={"X-Forwarded-For": "203.0.113.7"})
    await service.get("/v1/lanes")
    assert caplog.text.count("call.unauthorized") == 2  # of different hosts
    assert "203.0.113.7" in caplog.text
    assert "127.0.0.1" in caplog.text


async def test_a_revoked_key_is_refused_by_the_next_call(service: Running) -> None:
    key, written = await hand_out(service, Scope.TX_READ)
    for _ in range(3):
        assert (await service.get("/v1/lanes", headers=bearer(written)))[0] == 200
    await service.node.keyring.revoke(key.id, OPERATOR)
    assert (await service.get("/v1/lanes", headers=bearer(written)))[0] == 401


async def test_a_key_revoked_at_one_node_is_refused_by_the_next_call_at_another(
    service: Running, tmp_path: Path
) -> None:
    admin = await a_holder(service, Scope.ADMIN)
    key, written = await hand_out(service, Scope.TX_READ)
    async with keyed(tmp_path) as other:
        for _ in range(3):
            assert (await other.get("/v1/lanes", headers=bearer(written)))[0] == 200
        assert (await service.call("POST", f"/v1/keys/{key.id}/revoke", headers=admin))[0] == 200
        assert (await other.get("/v1/lanes", headers=bearer(written)))[0] == 401


async def test_a_call_that_waits_ends_when_its_key_is_revoked(service: Running) -> None:
    key, written = await hand_out(service, Scope.TX_READ, Scope.TX_WRITE)
    _, made, _ = await service.post(BODY, headers=bearer(written))
    waiting = asyncio.create_task(
        service.get(f"/v1/transactions/{made['id']}?wait=60&after=99", headers=bearer(written))
    )
    await asyncio.sleep(0.2)
    await service.node.keyring.revoke(key.id, OPERATOR)
    async with asyncio.timeout(30):
        assert (await waiting)[0] == 401


async def test_who_has_a_key_may_call_the_service_by_any_name(service: Running) -> None:
    headers = await a_holder(service, Scope.TX_READ)
    assert (await service.get("/v1/lanes", headers=headers | {"Host": "nonchalant.internal"}))[0] == 200
    assert (await service.get("/readyz", headers={"Host": "10.1.2.3:8645"}))[0] == 200


async def test_a_store_that_does_not_answer_is_no_reason_to_let_anybody_in(
    service: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    headers = await a_holder(service, Scope.TX_READ)

    async def away(ids: Sequence[str]) -> object:
        raise StoreUnavailable

    monkeypatch.setattr(service.node.store, "live_keys", away)
    status, problem, sent = await service.get("/v1/lanes", headers=headers)
    assert (status, problem["code"], sent["Retry-After"]) == (503, "store_unavailable", "1")


# ownership, beside what the matrix shows


async def test_an_account_that_the_key_may_not_use_is_refused_by_its_field_whether_we_have_it_or_not(
    service: Running,
) -> None:
    headers = await a_holder(service, Scope.TX_WRITE, lanes=(LanePattern(31337, OTHER),))
    assert (await service.post(BODY | {"from": OTHER}, headers=headers))[0] == 202
    problems = []
    for sender in (SENDER, "0x" + "12" * 20):
        status, problem, _ = await service.post(BODY | {"from": sender}, headers=headers)
        assert (status, problem["code"], problem["field"]) == (403, "forbidden", "from")
        problems.append(problem)
    assert problems[0] == problems[1]


async def test_tenants_do_not_share_idempotency_keys(service: Running) -> None:
    ids = set()
    for tenant in ("one", "two"):
        headers = await a_holder(service, Scope.TX_WRITE, tenant=tenant)
        for _ in range(2):
            status, made, _ = await service.post(BODY, headers=headers | {"Idempotency-Key": "same"})
            assert status == 202
            ids.add(made["id"])
    assert len(ids) == 2
    others = await a_holder(service, Scope.TX_WRITE, tenant="one", name="another of the same")
    status, made, sent = await service.post(BODY, headers=others | {"Idempotency-Key": "same"})
    assert (status, sent["Idempotency-Replayed"]) == (202, "true")
    assert made["id"] in ids


async def test_pages_of_a_tenant_are_full_however_many_others_are_between(service: Running) -> None:
    one = await a_holder(service, Scope.TX_WRITE, Scope.TX_READ, tenant="one")
    two = await a_holder(service, Scope.TX_WRITE, tenant="two")
    mine = []
    for _ in range(5):
        mine.append((await service.post(BODY, headers=one))[1]["id"])
        for _ in range(3):
            await service.post(BODY, headers=two)
    found, cursor = [], None
    while True:
        query = "?limit=2" + (f"&cursor={cursor}" if cursor else "")
        _, page, _ = await service.get(f"/v1/transactions{query}", headers=one)
        found += [tx["id"] for tx in page["transactions"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
        assert len(page["transactions"]) == 2
    assert found == mine[::-1]


# how many share one look


class SlowStore:
    """Answers when it is told to, and counts."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.go = asyncio.Event()
        self.revoked: set[str] = set()

    async def live_keys(self, ids: Sequence[str]) -> dict[str, Live]:
        self.asked.append(list(ids))
        found = {id: Live(ANYBODY, "digest") for id in ids if id not in self.revoked}
        await self.go.wait()
        return found


async def test_while_one_look_is_under_way_the_next_ones_collect() -> None:
    store = SlowStore()
    lookup = Lookup(store.live_keys)
    first = asyncio.create_task(lookup.find("a"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    later = [asyncio.create_task(lookup.find(f"k{n % 3}")) for n in range(300)]
    await asyncio.sleep(0)
    store.revoked = {"k1"}  # after they were asked for, before anybody looks
    later[5].cancel()
    store.go.set()
    assert await first is not None
    found = await asyncio.gather(*later, return_exceptions=True)
    assert store.asked == [["a"], ["k0", "k1", "k2"]]
    assert [one is not None for one in found] == [n % 3 != 1 for n in range(300)]
    assert isinstance(found[5], asyncio.CancelledError)


async def test_very_many_different_keys_are_looked_up_in_parts() -> None:
    store = SlowStore()
    store.go.set()
    lookup = Lookup(store.live_keys)
    found = await asyncio.gather(*(lookup.find(f"{n:04}") for n in range(1200)))
    assert all(one is not None for one in found)
    assert sum(len(ids) for ids in store.asked) == 1200
    assert max(len(ids) for ids in store.asked) <= 500


async def test_a_look_that_fails_fails_those_who_wait_for_it_and_nobody_after_them() -> None:
    class Failing(SlowStore):
        async def live_keys(self, ids: Sequence[str]) -> dict[str, Live]:
            if not self.asked:
                self.asked.append(list(ids))
                raise StoreUnavailable("away")
            return await super().live_keys(ids)

    store = Failing()
    store.go.set()
    lookup = Lookup(store.live_keys)
    failed = await asyncio.gather(lookup.find("a"), lookup.find("b"), return_exceptions=True)
    assert [type(one) for one in failed] == [StoreUnavailable, StoreUnavailable]
    assert await lookup.find("a") is not None


# rates


def a_caller(rate: float | None, key_id: str = "key_1") -> Caller:
    return Caller(key_id=key_id, name="x", scopes=frozenset(), rate=rate)


def test_a_bucket_holds_a_second_of_calls_and_fills_again() -> None:
    rates, caller = Rates(), a_caller(5)
    assert [rates.take(caller, 100.0) for _ in range(5)] == [0.0] * 5
    assert rates.take(caller, 100.0) == pytest.approx(0.2)
    assert rates.take(caller, 100.1) == pytest.approx(0.1)
    assert rates.take(caller, 100.2) == 0.0
    assert rates.take(a_caller(5, "key_2"), 100.2) == 0.0
    assert [rates.take(caller, 200.0) for _ in range(6)][4:] == [0.0, pytest.approx(0.2)]


def test_a_slow_rate_lets_one_in_at_a_time() -> None:
    rates, caller = Rates(), a_caller(0.1)
    assert rates.take(caller, 0.0) == 0.0
    assert rates.take(caller, 0.0) == pytest.approx(10.0)
    assert rates.take(caller, 10.0) == 0.0


def test_a_batch_of_more_than_a_second_is_let_in_once_and_paid_for() -> None:
    rates, caller = Rates(), a_caller(10)
    assert rates.take(caller, 0.0, 30) == 0.0
    assert rates.take(caller, 0.0) == pytest.approx(2.1)
    assert rates.take(caller, 2.0) == pytest.approx(0.1)
    assert rates.take(caller, 2.1) == 0.0


def test_who_has_no_rate_is_not_counted_and_memory_is_bounded() -> None:
    rates = Rates(most=3)
    assert [rates.take(a_caller(None), 0.0) for _ in range(100)] == [0.0] * 100
    assert rates.take(ANYBODY, 0.0) == 0.0
    for n in range(10):
        rates.take(a_caller(1, f"key_{n}"), 0.0)
    assert len(rates._buckets) == 3


async def test_who_calls_too_often_is_told_when_to_come_back(service: Running) -> None:
    slow = await a_holder(service, Scope.TX_READ, rate=0.02, name="slow")
    other = await a_holder(service, Scope.TX_READ)
    assert (await service.get("/v1/lanes", headers=slow))[0] == 200
    status, problem, sent = await service.get("/v1/lanes", headers=slow)
    assert (status, problem["code"]) == (429, "rate_limited")
    assert 1 <= int(sent["Retry-After"]) <= 50
    assert "0.02 calls a second" in problem["detail"]
    assert (await service.get("/v1/lanes", headers=other))[0] == 200


# without keys


async def test_without_keys_the_guard_against_other_names_stays(tmp_path: Path) -> None:
    from tests.service.conftest import running

    async with running(tmp_path) as service:
        status, problem, _ = await service.get("/livez", headers={"Host": "evil.example"})
        assert (status, problem["code"]) == (421, "wrong_host")
        assert (await service.get("/v1/lanes", headers=bearer("anything")))[0] == 200


async def test_a_service_with_keys_may_listen_anywhere(tmp_path: Path) -> None:
    from nonchalant.config import Listen
    from nonchalant.service.server import bind

    with bind(Listen("0.0.0.0", 0)) as listening:
        assert listening.family is socket.AF_INET
