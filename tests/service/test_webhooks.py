"""Webhooks over HTTP, to a real receiver that believes only what the stock library does."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from nonchalant import courier, webhook_desk, webhooks
from tests.e2e.rig import until
from tests.lessons import lesson
from tests.service.conftest import OTHER, SENDER, SETTINGS, Running, running
from tests.service.receiver import Message, Receiver, receiving, take_it

TARGETS = 'webhook_targets = "any"\nlease_seconds = 2\n'


@pytest.fixture
async def hooked(tmp_path: Path) -> AsyncIterator[Running]:
    """A service that may deliver to this machine."""
    async with running(tmp_path, TARGETS + SETTINGS) as service:
        yield service


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as receiver:
        yield receiver


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """The schedule of tries, in milliseconds instead of hours."""
    monkeypatch.setattr(webhooks, "SCHEDULE", (0, *(50,) * 9))


async def hook(service: Running, url: str, **fields: Any) -> dict[str, Any]:
    status, made, headers = await service.call("POST", "/v1/webhooks", json={"url": url, **fields})
    assert status == 201, made
    assert headers["Location"] == f"/v1/webhooks/{made['id']}"
    return made  # type: ignore[no-any-return]


async def accept(service: Running) -> str:
    status, tx, _ = await service.post({"chain_id": 31337, "from": SENDER, "to": OTHER, "value": 1})
    assert status == 202, tx
    return str(tx["id"])


async def bother(service: Running, tx_id: str) -> None:
    """Two more events. Only once for each: what is told again takes the place of what was told before."""
    for verb in ("hold", "release"):
        status, _, _ = await service.call("POST", f"/v1/transactions/{tx_id}/{verb}")
        assert status == 202


async def shown(service: Running, made: dict[str, Any]) -> dict[str, Any]:
    return (await service.get(f"/v1/webhooks/{made['id']}"))[1]  # type: ignore[no-any-return]


async def act(service: Running, made: dict[str, Any], verb: str, body: object = None) -> Any:
    options = {} if body is None else {"json": body}
    status, answer, _ = await service.call("POST", f"/v1/webhooks/{made['id']}/{verb}", **options)
    assert status == 200, answer
    return answer


@lesson("webhook-signatures")
async def test_events_are_delivered_signed_and_in_order(hooked: Running, receiver: Receiver) -> None:
    made = await hook(hooked, receiver.url, kinds=["tx.*"], description="for the books")
    tx_id = await accept(hooked)
    await bother(hooked, tx_id)
    got = await receiver.has(3)
    _, history, _ = await hooked.get(f"/v1/transactions/{tx_id}/events")
    assert [one.event for one in got] == history["events"]
    for one in got:
        assert one.is_signed_by(made["secret"])
        assert one.content == {"type": one.event["kind"], "timestamp": one.event["at"], "data": one.event}
        assert made["secret"] not in str(one.headers)
    assert len({one.id for one in got}) == 3
    await until(lambda: _is_idle(hooked, made), "nothing waits")
    _, log, _ = await hooked.get(f"/v1/webhooks/{made['id']}/deliveries")
    assert [one["position"] for one in log["deliveries"]] == [one.event["position"] for one in reversed(got)]
    assert {(one["state"], one["tries"], one["status"]) for one in log["deliveries"]} == {("delivered", 1, 204)}


async def _is_idle(service: Running, made: dict[str, Any]) -> bool:
    return (await shown(service, made))["pending"] == 0


async def test_the_secret_is_shown_once(hooked: Running, receiver: Receiver) -> None:
    made = await hook(hooked, receiver.url)
    assert made["secret"].startswith("whsec_")
    _, listed, _ = await hooked.get("/v1/webhooks")
    assert [one["id"] for one in listed["webhooks"]] == [made["id"]]
    key = made["secret"].removeprefix("whsec_")
    for answer in (listed, await shown(hooked, made), await act(hooked, made, "disable")):
        assert key not in str(answer)
    assert made | {"secret": None} == {**(await act(hooked, made, "enable")), "secret": None}


async def test_only_what_is_wanted_is_delivered(hooked: Running, receiver: Receiver) -> None:
    await hook(hooked, receiver.url + "/held", kinds=["tx.held"])
    await hook(hooked, receiver.url + "/elsewhere", lanes=["1:*"])
    await hook(hooked, receiver.url + "/here", kinds=["tx.*"], lanes=[f"31337:{SENDER}"])
    tx_id = await accept(hooked)
    await bother(hooked, tx_id)
    got = await receiver.has(4)
    assert sorted(one.kind for one in got) == ["tx.accepted", "tx.held", "tx.held", "tx.released"]


async def test_a_webhook_may_be_kept_to_one_tenant(hooked: Running, receiver: Receiver) -> None:
    other = await hook(hooked, receiver.url + "/other", kinds=["tx.*"], tenant="other")
    await hook(hooked, receiver.url + "/ours", kinds=["tx.*"], tenant="default")
    tx_id = await accept(hooked)
    await bother(hooked, tx_id)
    await receiver.has(3)
    assert (await hooked.get(f"/v1/webhooks/{other['id']}/deliveries"))[1]["deliveries"] == []


async def test_what_is_wrong_with_a_webhook_is_said(hooked: Running) -> None:
    for body, field in (
        ({}, "url"),
        ({"url": "ftp://a.example"}, "url"),
        ({"url": "https://a.example", "kinds": ["tx.nothing"]}, "kinds"),
        ({"url": "https://a.example", "lanes": []}, "lanes"),
        ({"url": "https://a.example", "lanes": ["31337"]}, "lanes"),
        ({"url": "https://a.example", "tenant": ""}, "tenant"),
        ({"url": "https://a.example", "secret": "x"}, "secret"),
        ({"url": "https://a.example", "description": "a\nb"}, "description"),
    ):
        status, problem, _ = await hooked.call("POST", "/v1/webhooks", json=body)
        assert (status, problem["field"]) == (400, field), problem
    status, problem, _ = await hooked.call("POST", "/v1/webhooks", json={"url": "https://a.example", "after": 10**9})
    assert (status, problem["code"]) == (410, "position_gone")
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/test"), ("GET", "/deliveries"), ("POST", "/rotate")):
        status, problem, _ = await hooked.call(method, f"/v1/webhooks/wh_0{path}")
        assert (status, problem["code"]) == (404, "not_found")


@lesson("webhook-targets")
async def test_ones_own_network_is_refused_unless_allowed(service: Running) -> None:
    for url in ("http://example.com/", "https://127.0.0.1/", "https://[::ffff:10.0.0.1]/", "https://localhost/"):
        status, problem, _ = await service.call("POST", "/v1/webhooks", json={"url": url})
        assert (status, problem["field"]) == (400, "url")
        assert "webhook_targets" in problem["detail"]


async def test_there_are_only_so_many(hooked: Running, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook_desk, "MOST_WEBHOOKS", 1)
    await hook(hooked, receiver.url)
    status, problem, _ = await hooked.call("POST", "/v1/webhooks", json={"url": receiver.url})
    assert (status, problem["code"]) == (409, "too_many_webhooks")


async def test_two_secrets_sign_while_one_takes_the_others_place(hooked: Running, receiver: Receiver) -> None:
    made = await hook(hooked, receiver.url, kinds=["tx.accepted"])
    rotated = await act(hooked, made, "rotate", {"seconds": 3600})
    assert rotated["old_secret_ends_at"] is not None
    await accept(hooked)
    [both] = await receiver.has(1)
    assert both.is_signed_by(made["secret"])
    assert both.is_signed_by(rotated["secret"])
    last = await act(hooked, made, "rotate", {"seconds": 0})
    assert last["old_secret_ends_at"] is None
    await accept(hooked)
    one = (await receiver.has(2))[1]
    assert one.is_signed_by(last["secret"])
    assert not one.is_signed_by(made["secret"])
    assert not one.is_signed_by(rotated["secret"])


async def test_a_receiver_that_is_gone_is_left_alone_and_goes_on_where_it_stopped(hooked: Running) -> None:
    async def gone(_: Message) -> web.StreamResponse:
        return web.Response(status=410)

    async with receiving(gone) as receiver:
        made = await hook(hooked, receiver.url, kinds=["tx.accepted"])
        first = await accept(hooked)
        await until(lambda: _is_disabled(hooked, made), "disabled")
        assert "410" in (await shown(hooked, made))["disabled_why"]
        missed = [await accept(hooked) for _ in range(3)]
        assert len(receiver.tried) == 1
        receiver.answer = take_it
        assert (await act(hooked, made, "enable"))["enabled"]
        got = await receiver.has(4)
        assert [one.event["tx"] for one in got] == [first, *missed]


async def _is_disabled(service: Running, made: dict[str, Any]) -> bool:
    return not (await shown(service, made))["enabled"]


async def test_later_events_of_a_transaction_wait_for_the_earlier_one_and_others_do_not(
    hooked: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of three tries fail, and of one transaction all; what is of one transaction stays in order all the same."""
    monkeypatch.setattr(webhooks, "SCHEDULE", (0, *(50,) * 10_000))
    tries: dict[str, int] = {}
    stuck: list[str] = []
    repaired = False

    async def unreliable(message: Message) -> web.StreamResponse:
        tries[message.id] = tries.get(message.id, 0) + 1
        if not stuck:
            stuck.append(message.event["tx"])
        if (message.event["tx"] in stuck and not repaired) or tries[message.id] < 3:
            return web.Response(status=(500, 302, 404)[tries[message.id] % 3], headers={"Location": "/elsewhere"})
        return web.Response()

    async with receiving(unreliable) as receiver:
        await hook(hooked, receiver.url, kinds=["tx.*"])
        ids = [await accept(hooked) for _ in range(4)]
        for tx_id in ids:
            await bother(hooked, tx_id)
        everything = ["tx.accepted", "tx.held", "tx.released"]
        for tx_id in set(ids) - set(stuck):
            await until(lambda: receiver.of(tx_id) == everything, lambda: str(receiver.of(tx_id)))  # noqa: B023
        assert receiver.of(stuck[0]) == []
        assert {one.kind for one in receiver.tried if one.event["tx"] == stuck[0]} == {"tx.accepted"}
        repaired = True
        await until(lambda: receiver.of(stuck[0]) == everything, lambda: str(receiver.of(stuck[0])))


async def test_what_is_given_up_is_in_the_log_and_the_rest_goes_on(hooked: Running, hasty: None) -> None:
    async def picky(message: Message) -> web.StreamResponse:
        return web.Response(status=500, text="no\nnever") if message.kind == "tx.accepted" else web.Response()

    async with receiving(picky) as receiver:
        made = await hook(hooked, receiver.url, kinds=["tx.*"])
        tx_id = await accept(hooked)
        await bother(hooked, tx_id)
        await receiver.has(2)
        assert receiver.of(tx_id) == ["tx.held", "tx.released"]
        _, log, _ = await hooked.get(f"/v1/webhooks/{made['id']}/deliveries", params={"state": "failed"})
        [failed] = log["deliveries"]
        assert (failed["tries"], failed["status"], failed["error"]) == (10, 500, "no")
        # Somebody repaired it: this one once more, under the same id.
        receiver.answer = take_it
        again = await act(hooked, made, f"deliveries/{failed['id']}/replay")
        assert (again["state"], again["tries"]) == ("pending", 0)
        assert (await receiver.has(3))[2].id == failed["id"]
    for wrong in ("msg_0_1", f"{failed['id']}0", "x", "msg_" + "9" * 30):
        status, _, _ = await hooked.call("POST", f"/v1/webhooks/{made['id']}/deliveries/{wrong}/replay")
        assert status == 404


async def test_a_dead_receiver_slows_nobody_else_and_its_backlog_stays_in_the_store(
    hooked: Running, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(courier, "BACKLOG", 20)

    async def hang(_: Message) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError

    async with receiving(hang) as dead:
        stuck = await hook(hooked, dead.url)
        nowhere = await hook(hooked, "http://127.0.0.1:1/")
        await hook(hooked, receiver.url, kinds=["tx.*"])
        ids = [await accept(hooked) for _ in range(30)]
        for tx_id in ids:
            await bother(hooked, tx_id)
        await receiver.has(90)
        assert {tuple(receiver.of(tx_id)) for tx_id in ids} == {("tx.accepted", "tx.held", "tx.released")}
        for made in (stuck, nowhere):
            standing = await shown(hooked, made)
            assert 0 < standing["pending"] <= 20
            assert standing["behind"] > 0
            assert standing["waiting_since"] is not None
        assert 1 < dead.most_under_way <= courier.AT_ONCE


async def test_a_receiver_that_is_back_is_not_left_waiting(hooked: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that waits is tried at once when one was taken; only this one came back by the schedule."""
    monkeypatch.setattr(webhooks, "SCHEDULE", (0, 400, *(3_600_000,) * 8))
    up = False

    async def down(_: Message) -> web.StreamResponse:
        return web.Response(status=200 if up else 503)

    async with receiving(down) as receiver:
        await hook(hooked, receiver.url, kinds=["tx.accepted"])
        early = [await accept(hooked) for _ in range(8)]
        await receiver.has(16, "tried")  # all of them twice: the next try is in an hour
        up = True
        late = await accept(hooked)
        got = await receiver.has(9)
        assert {one.event["tx"] for one in got} == {*early, late}


async def test_the_test_button_says_what_the_receiver_said(hooked: Running, receiver: Receiver) -> None:
    made = await hook(hooked, receiver.url)
    assert await act(hooked, made, "test") == {"delivered": True, "status": 204, "error": None}
    [one] = [one for one in receiver.taken if one.kind == "webhook.test"]
    assert one.is_signed_by(made["secret"])

    async def redirect(_: Message) -> web.StreamResponse:
        return web.Response(status=307, headers={"Location": receiver.url}, text="x" * 10_000_000)

    async with receiving(redirect) as elsewhere:
        await hooked.call("PATCH", f"/v1/webhooks/{made['id']}", json={"url": elsewhere.url})
        said = await act(hooked, made, "test")
        assert (said["delivered"], said["status"], said["error"]) == (False, 307, "x" * 200)
    said = await act(hooked, made, "test")
    assert (said["delivered"], said["status"]) == (False, None)
    assert said["error"]


async def test_what_was_delivered_can_be_delivered_again(hooked: Running, receiver: Receiver) -> None:
    made = await hook(hooked, receiver.url, kinds=["tx.accepted"])
    ids = [await accept(hooked) for _ in range(5)]
    got = list(await receiver.has(5))
    await until(lambda: _is_idle(hooked, made), "nothing waits")
    await act(hooked, made, "replay", {"after": got[2].event["position"]})
    again = (await receiver.has(7))[5:]
    assert [one.event["tx"] for one in again] == ids[3:]
    assert [one.id for one in again] == [one.id for one in got[3:]]
    await until(lambda: _is_idle(hooked, made), "nothing waits")
    await act(hooked, made, "replay", {"since": got[0].event["at"]})
    assert {one.id for one in (await receiver.has(12))[7:]} == {one.id for one in got}
    for body in ({}, {"after": 1, "since": 1}, {"since": "yesterday"}):
        status, _, _ = await hooked.call("POST", f"/v1/webhooks/{made['id']}/replay", json=body)
        assert status == 400
    status, _, _ = await hooked.call("POST", f"/v1/webhooks/{made['id']}/replay", json={"after": 10**9})
    assert status == 410


async def test_a_webhook_can_begin_in_the_past(hooked: Running, receiver: Receiver) -> None:
    before = [await accept(hooked) for _ in range(3)]
    await hook(hooked, receiver.url, kinds=["tx.accepted"], after=0)
    assert [one.event["tx"] for one in await receiver.has(3)] == before


async def test_the_log_has_pages(hooked: Running, receiver: Receiver) -> None:
    made = await hook(hooked, receiver.url, kinds=["tx.accepted"])
    ids = [await accept(hooked) for _ in range(5)]
    await receiver.has(5)
    found: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        _, page, _ = await hooked.get(f"/v1/webhooks/{made['id']}/deliveries", params={"limit": "2", **cursor})
        found += [one["stream"] for one in page["deliveries"]]
        if page["next_cursor"] is None:
            break
        cursor = {"cursor": page["next_cursor"]}
    assert found == ids[::-1]


async def test_one_that_is_removed_gets_nothing_more(hooked: Running, receiver: Receiver) -> None:
    made = await hook(hooked, receiver.url, kinds=["tx.accepted"])
    other = await hook(hooked, receiver.url + "/other", kinds=["tx.held"])
    await accept(hooked)
    await receiver.has(1)
    status, _, _ = await hooked.call("DELETE", f"/v1/webhooks/{made['id']}")
    assert status == 200
    tx_id = await accept(hooked)
    await bother(hooked, tx_id)
    assert [one.kind for one in await receiver.has(2)] == ["tx.accepted", "tx.held"]
    assert [one["id"] for one in (await hooked.get("/v1/webhooks"))[1]["webhooks"]] == [other["id"]]


async def test_a_node_that_starts_again_delivers_what_the_last_one_left(tmp_path: Path) -> None:
    async def down(_: Message) -> web.StreamResponse:
        return web.Response(status=500)

    async with receiving(down) as receiver:
        async with running(tmp_path, TARGETS + SETTINGS) as first:
            await hook(first, receiver.url, kinds=["tx.accepted"])
            ids = [await accept(first) for _ in range(3)]
            await receiver.has(3, "tried")
        receiver.answer = take_it
        async with running(tmp_path, TARGETS + SETTINGS) as second:
            ids.append(await accept(second))
            got = await receiver.has(4)
            assert {one.event["tx"] for one in got} == set(ids)
