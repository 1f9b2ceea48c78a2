"""The stream of events over HTTP: resumed by position, filtered, bounded, and never silent about what it cannot tell."""

import asyncio
import functools
from pathlib import Path
from typing import Any

import pytest

from nonchalant.access import LanePattern, Scope
from nonchalant.interest import KINDS
from nonchalant.model import Event
from nonchalant.service import events
from nonchalant.service.asgi import Limits
from nonchalant.words import LaneKey
from tests.e2e.rig import until
from tests.service.conftest import OTHER, SENDER, Running, running
from tests.service.keyed import OPERATOR, a_holder, bearer, hand_out, keyed
from tests.service.listening import listening

LANE = f"31337:{SENDER}"


def payment(value: int = 1, **more: Any) -> dict[str, Any]:
    return {"chain_id": 31337, "from": SENDER, "to": OTHER, "value": value, **more}


async def accept(service: Running, value: int = 1, **options: Any) -> str:
    status, tx, _ = await service.post(payment(value), **options)
    assert status == 202, tx
    return str(tx["id"])


def listen(service: Running, last_id: str | None = None, **query: Any) -> Any:
    return listening(service.session, service.url, last_id, **query)


def kinds_of(found: list[dict[str, Any]], tx_id: str) -> list[str]:
    return [event["kind"] for event in found if event["tx"] == tx_id]


async def test_events_come_as_they_happen_each_with_its_position(service: Running) -> None:
    async with listen(service, kind="tx.*") as listener:
        tx_id = await accept(service)
        event = await listener.next()
        assert event is not None
        assert (event["kind"], event["tx"]) == ("tx.accepted", tx_id)
        assert event["lane"] == {
            "chain_id": 31337,
            "address": (await service.get("/v1/lanes"))[1]["lanes"][0]["address"],
        }
        assert listener.retry == events.RETRY_MILLIS
        await service.call("POST", f"/v1/transactions/{tx_id}/hold", json={"reason": "wait"})
        await service.call("POST", f"/v1/transactions/{tx_id}/release")
        await listener.until(lambda seen: len(kinds_of(seen, tx_id)) >= 3)
        assert kinds_of(listener.events, tx_id) == ["tx.accepted", "tx.held", "tx.released"]
        positions = [event["position"] for event in listener.events]
        assert positions == sorted(set(positions))
    _, history, _ = await service.get(f"/v1/transactions/{tx_id}/events")
    assert listener.events == history["events"]


async def test_who_comes_back_is_told_all_that_he_missed(service: Running) -> None:
    async with listen(service, kind="tx.accepted") as listener:
        first = await accept(service)
        await listener.next()
    missed = [await accept(service) for _ in range(3)]
    for again in ({"last_id": listener.last_id}, {"after": listener.last_id}):
        async with listen(service, kind="tx.accepted", **again) as back:
            found = await back.until(lambda seen: len(seen) == 3)
            assert [event["tx"] for event in found] == missed
    # What the client names by itself is newer than what stands in its URL.
    async with listen(service, last_id=back.last_id, kind="tx.accepted", after="0") as back:
        last = await accept(service)
        assert (await back.next() or {})["tx"] == last
    async with listen(service, kind="tx.accepted", after="0") as back:
        found = await back.until(lambda seen: len(seen) == 5)
        assert [event["tx"] for event in found] == [first, *missed, last]


async def test_who_lost_the_connection_before_the_first_event_comes_back_to_where_he_was(service: Running) -> None:
    async with listen(service, kind="tx.accepted") as listener:
        reading = asyncio.create_task(listener.next())
        await until(lambda: listener.last_id, "the stream's position")
        reading.cancel()
    tx_id = await accept(service)
    async with listen(service, last_id=listener.last_id, kind="tx.accepted") as back:
        assert (await back.next() or {})["tx"] == tx_id


async def test_only_what_is_asked_for_is_told(service: Running) -> None:
    _, lanes, _ = await service.get("/v1/lanes")
    addresses = [lane["address"] for lane in lanes["lanes"]]
    one = await accept(service)
    other = await accept(service)
    await service.call("POST", f"/v1/transactions/{one}/hold")
    cases: list[tuple[dict[str, Any], list[tuple[str, str]]]] = [
        ({"tx": one}, [("tx.accepted", one), ("tx.held", one)]),
        ({"tx": [one, other], "kind": "tx.accepted"}, [("tx.accepted", one), ("tx.accepted", other)]),
        ({"kind": "tx.held,tx.released"}, [("tx.held", one)]),
        (
            {"lane": LANE, "kind": ["tx.accepted", "tx.held"]},
            [("tx.accepted", one), ("tx.accepted", other), ("tx.held", one)],
        ),
        ({"lane": "31337:*", "kind": "tx.held"}, [("tx.held", one)]),
        ({"lane": f"*:{SENDER},1:*", "kind": "tx.held"}, [("tx.held", one)]),
    ]
    assert SENDER in [address.lower() for address in addresses]
    for query, expected in cases:
        async with listen(service, after="0", **query) as listener:
            found = await listener.until(lambda seen: len(seen) == len(expected))  # noqa: B023
            assert [(event["kind"], event["tx"]) for event in found] == expected, query


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"kind": "tx.confirmd"}, "kind"),
        ({"kind": "*"}, "kind"),
        ({"lane": "31337"}, "lane"),
        ({"lane": "x:0x"}, "lane"),
        ({"after": "-1"}, "after"),
        ({"after": ["1", "2"]}, "after"),
        ({"since": "1"}, "since"),
    ],
)
async def test_what_cannot_be_understood_is_refused(service: Running, query: dict[str, Any], field: str) -> None:
    status, problem, _ = await service.get("/v1/events", params=query)
    assert (status, problem["field"]) == (400, field)


async def test_what_does_not_exist_is_not_waited_for(service: Running) -> None:
    for query in ({"tx": "tx_0"}, {"lane": f"1:{SENDER}"}):
        status, problem, _ = await service.get("/v1/events", params=query)
        assert (status, problem["code"]) == (404, "not_found")


async def test_a_position_nobody_was_given_is_refused_with_those_that_were(service: Running) -> None:
    await accept(service)
    last = await service.node.store.last_position()
    status, problem, _ = await service.get("/v1/events", headers={"Last-Event-ID": str(last + 1000)})
    assert (status, problem["code"]) == (410, "position_gone")
    assert problem["data"]["oldest"] == 0
    assert problem["data"]["last"] >= last


async def test_a_position_that_retention_took_away_is_refused_with_the_oldest_one(service: Running) -> None:
    first = await accept(service)
    [told] = [e for e in await service.node.store.history(first) if e.kind == "tx.accepted"]
    await service.call("POST", f"/v1/transactions/{first}/cancel")
    kept = await accept(service)
    gone_upto = (await service.node.store.history(first))[-1].position
    while await service.node.store.forget_settled(older_than=-60_000, limit=100):
        pass
    assert await service.node.store.transaction(first) is None
    status, problem, _ = await service.get("/v1/events", params={"after": str(told.position)})
    assert (status, problem["code"]) == (410, "position_gone")
    oldest = problem["data"]["oldest"]
    assert oldest >= gone_upto
    async with listen(service, after=str(oldest)) as listener:
        later = await accept(service)
        await listener.until(lambda seen: later in [event["tx"] for event in seen])
    # Of a transaction that is kept, nothing is missing.
    async with listen(service, after="0", tx=kept) as listener:
        assert (await listener.next() or {})["kind"] == "tx.accepted"


async def test_an_idle_stream_shows_that_it_lives_and_where_it_stands(
    service: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "HEARTBEAT_SECONDS", 0.05)
    async with listen(service, kind="tx.held") as listener:
        reading = asyncio.create_task(listener.next())
        tx_id = await accept(service)  # moves the stream on, though it is not told here
        accepted = (await service.node.store.history(tx_id))[0].position
        await until(lambda: listener.comments and int(listener.last_id or 0) >= accepted, "a sign of life")
        await service.call("POST", f"/v1/transactions/{tx_id}/hold")
        assert ((await reading) or {})["tx"] == tx_id


async def test_streams_are_bounded_and_their_places_come_back(tmp_path: Path) -> None:
    async with running(tmp_path, limits=Limits(streams=2)) as service:
        async with listen(service), listen(service):
            status, problem, headers = await service.get("/v1/events")
            assert (status, problem["code"]) == (503, "busy")
            assert int(headers["Retry-After"]) > 0
        await until(lambda: _is_free(service), "a place free")


async def _status(service: Running) -> int:
    async with service.session.get(f"{service.url}/v1/events") as answer:
        return answer.status


async def test_a_head_request_is_answered_and_holds_nothing_open(service: Running) -> None:
    async with asyncio.timeout(60), service.session.head(f"{service.url}/v1/events") as answer:
        assert answer.status == 200


async def test_streams_end_when_the_node_stops(service: Running) -> None:
    async with listen(service, kind="tx.*") as listener:
        reading = asyncio.create_task(listener.next())
        await asyncio.sleep(0)
        service.stop.set()
        assert await reading is None
        assert "this node stops" in listener.comments
    async with asyncio.timeout(60):
        await service.serving


async def test_who_reads_nothing_is_cut_off_and_gives_his_place_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "Streaming", functools.partial(events.Streaming, unread_seconds=0.2))
    async with running(tmp_path, limits=Limits(streams=1)) as service:
        host, port = service.url.removeprefix("http://").split(":")
        _, writer = await asyncio.open_connection(host, int(port))
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(f"GET /v1/events HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        await until(lambda: _is_busy(service), "its place taken")
        await until(lambda: service.node.stream._floor is not None, "all that is told goes to it")
        # More than all the buffers between us hold.
        last, lane = await service.node.store.last_position(), LaneKey(31337, SENDER)
        for number in range(1, 41):
            told = Event(kind="lane.paused", lane=lane, at=0, position=last + number, data={"reason": "x" * 1_000_000})
            await service.node.stream.deliver([told])
        await until(lambda: _is_free(service), "its place free")
        writer.close()


async def _is_busy(service: Running) -> bool:
    return await _status(service) == 503


async def _is_free(service: Running) -> bool:
    return await _status(service) == 200


def test_the_kinds_are_those_that_can_be_told() -> None:
    from docs.inventory import events as told

    assert set(KINDS) == {event.name for event in told()}


async def test_each_key_hears_of_its_own_transactions_and_lanes_until_it_is_revoked(tmp_path: Path) -> None:
    async with keyed(tmp_path) as service:
        both = (Scope.TX_WRITE, Scope.TX_READ)
        mine = await a_holder(service, *both, tenant="mine")
        yours = await a_holder(service, *both, tenant="yours", lanes=(LanePattern(31337, SENDER),))
        admin = await a_holder(service, Scope.ADMIN)
        key, written = await hand_out(service, *both, tenant="mine")
        ids = {name: await accept(service, headers=headers) for name, headers in (("mine", mine), ("yours", yours))}
        for headers, expected in ((mine, [ids["mine"]]), (yours, [ids["yours"]]), (admin, list(ids.values()))):
            async with listening(service.session, service.url, headers=headers, after="0", kind="tx.*") as listener:
                last = await accept(service, headers=yours if headers == yours else mine)
                found = await listener.until(lambda seen: last in [event["tx"] for event in seen])  # noqa: B023
                # Whatever is of others, or of a run of this loop before, is not among them unless it may be.
                assert [event["tx"] for event in found][: len(expected)] == expected
        foreign = f"31337:{OTHER}"
        for headers, query in ((mine, {"tx": ids["yours"]}), (yours, {"lane": foreign})):
            assert (await service.get("/v1/events", headers=headers, params=query))[0] == 404
        assert (await service.get("/v1/events"))[0] == 401
        async with listening(service.session, service.url, headers=bearer(written), kind="tx.*") as listener:
            await service.node.keyring.revoke(key.id, OPERATOR)
            await accept(service, headers=mine)
            assert await listener.next() is None
