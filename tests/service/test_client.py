"""The client libraries against a running service: every call of theirs, over real HTTP."""

import asyncio
import multiprocessing
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from eth_account import Account

import nonchalant.client
from nonchalant import (
    BadRequest,
    BadSettings,
    Fees,
    KeyReused,
    LaneDraining,
    NotFound,
    TooLate,
    UnknownAccount,
    UnknownChain,
    WishRefused,
)
from nonchalant.access import Scope
from nonchalant.client import (
    Ask,
    BlockingClient,
    Client,
    Forbidden,
    ServiceRefused,
    ServiceUnreachable,
    Unauthorized,
)
from tests import anvil
from tests.anvil import Anvil
from tests.e2e.rig import until
from tests.ports import free_port
from tests.service import flaky
from tests.service.conftest import CHECKSUMMED, OTHER, SENDER, SETTINGS, Running, running
from tests.service.keyed import hand_out, keyed
from tests.service.receiver import receiving

ASK: Ask = {"chain_id": 31337, "sender": SENDER, "to": OTHER, "value": 1000}
KEY = "nck_0123456789abcdef_" + "5ec7e7" * 10 + "5ec7"


@pytest.fixture
async def client(service: Running) -> AsyncIterator[Client]:
    async with Client(service.url) as client:
        yield client


# --- transactions ---


async def test_all_that_can_be_asked_for_arrives(client: Client) -> None:
    tx = await client.send(
        chain_id=31337,
        sender=SENDER,
        to=OTHER,
        value=2**70,
        data=b"\x01\x02",
        gas=50_000,
        access_list=({"address": OTHER, "storage_keys": ["0x" + "00" * 32]},),
        fees=Fees(10**9, 10**8),
        priority=7,
        valid_until="2090-01-01T00:00:00Z",
        confirmations=3,
        on_superseded="hold",
        simulate=True,
        abi=[{"type": "error", "name": "Nope", "inputs": []}],
        metadata={"order": 7},
        idempotency_key="invoice-42",
    )
    assert (tx.state, tx.sender, tx.value, tx.data, tx.gas) == ("queued", CHECKSUMMED, str(2**70), "0x0102", 50_000)
    assert (tx.fees.max_fee_per_gas, tx.fees.max_priority_fee_per_gas) == (str(10**9), str(10**8))
    assert (tx.priority, tx.confirmations, tx.on_superseded, tx.simulate) == (7, 3, "hold", True)
    assert (tx.metadata, tx.idempotency_key) == ({"order": 7}, "invoice-42")
    assert len(tx.access_list[0].storage_keys) == 1
    assert await client.get(tx.id) == await client.get(tx)


async def test_a_key_is_made_for_every_call_that_has_none(client: Client) -> None:
    one, other = await client.send(**ASK), await client.send(**ASK)
    assert one.id != other.id
    assert one.idempotency_key
    assert (await client.send(**ASK, idempotency_key=one.idempotency_key)).id == one.id


async def test_several_are_accepted_together_or_none(service: Running) -> None:
    async with flaky.before(service.url) as between, Client(between.url) as client:
        asks = [Ask(chain_id=31337, sender=SENDER, to=OTHER, value=number) for number in range(3)]
        with pytest.raises(BadRequest) as caught:
            await client.send_many([*asks, Ask(chain_id=31337, sender=SENDER, to="0x12")])
        assert caught.value.field == "transactions[3].to"
        assert [tx async for tx in client.transactions()] == []
        between.faults = [flaky.LOSE_ANSWER]
        sent = await client.send_many(asks)
        assert [tx.value for tx in sent.transactions] == ["0", "1", "2"]
        assert len([tx async for tx in client.transactions(batch=sent.batch)]) == 3
        assert len([tx async for tx in client.transactions()]) == 3


async def test_what_the_service_refuses_is_the_librarys_own_exception(client: Client) -> None:
    with pytest.raises(BadRequest, match=r"^to: ") as caught:
        await client.send(**{**ASK, "to": "0x12"})
    assert caught.value.field == "to"
    with pytest.raises(UnknownChain):
        await client.send(**{**ASK, "chain_id": 5})
    with pytest.raises(UnknownAccount):
        await client.send(**{**ASK, "sender": "0x" + "11" * 20})
    tx = await client.send(**ASK, idempotency_key="k")
    with pytest.raises(KeyReused):
        await client.send(**{**ASK, "value": 5}, idempotency_key="k")
    with pytest.raises(NotFound):
        await client.get("tx_../lanes?x=1")
    with pytest.raises(WishRefused) as refused:
        await client.release(await client.hold(tx), mark="superseded")
    assert refused.value.why == "held_for_another_reason"
    await client.cancel(tx)
    with pytest.raises(TooLate):
        await client.bump(tx)


async def test_a_list_goes_on_over_its_pages(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nonchalant.client.calling.PAGE", 2)
    sent = [(await client.send(**{**ASK, "value": number})).id for number in range(5)]
    held = await client.hold(sent[2])
    assert [tx.id async for tx in client.transactions()] == sent[::-1]
    assert [tx.id async for tx in client.transactions(sender=SENDER, state="queued", chain_id=31337)] == sent[::-1]
    assert [tx.id async for tx in client.transactions(idempotency_key=held.idempotency_key)] == [held.id]
    assert [tx async for tx in client.transactions(state="mined")] == []
    assert [tx async for tx in client.transactions(hash=b"\x01" * 32)] == []


async def test_wishes_change_what_is_queued_and_the_history_tells(client: Client) -> None:
    tx = await client.send(**ASK)
    assert (await client.hold(tx, "wrong invoice")).held
    assert not (await client.release(tx)).held
    assert (await client.bump(tx, "fast")).fees.speed == "fast"
    replaced = await client.replace(tx, to=SENDER, value=5, data=b"\x07", fees=Fees(10**9))
    assert (replaced.value, replaced.data, replaced.fees.gas_price, len(replaced.earlier)) == (
        "5",
        "0x07",
        str(10**9),
        1,
    )
    assert (await client.cancel(tx)).state == "cancelled"
    assert (await client.settled(tx)).state == "cancelled"
    kinds = [event.kind for event in await client.history(tx)]
    assert kinds == [
        "tx.accepted",
        "tx.held",
        "tx.released",
        "attempt.bumped",
        "tx.replaced",
        "attempt.bumped",
        "tx.cancelled",
    ]


async def test_waiting_ends_with_the_time_that_was_given(client: Client) -> None:
    tx = await client.send(**ASK)
    with pytest.raises(TimeoutError, match=tx.id):
        await client.settled(tx, timeout=0.05)
    assert (await client.get(tx, wait=0.05)).state == "queued"
    assert (await client.get(tx, wait=30, after=tx.version - 1)).version >= tx.version


async def test_a_transaction_is_sent_bumped_and_waited_for_on_a_real_chain(live: Running, chain: Anvil) -> None:
    async with Client(live.url) as client:
        tx = await client.send(**ASK)
        while (tx := await client.get(tx, wait=30, after=tx.version)).state != "sent":
            pass
        bumped = await client.bump(tx)
        assert len(bumped.attempts) == 2
        ended = asyncio.create_task(client.settled(tx, timeout=120))
        await until(ended.done, "settled", tick=chain.mine, every=0.2)
        outcome = await ended
        assert outcome.state == "confirmed"
        assert outcome.receipt is not None
        assert outcome.receipt.hash == bumped.attempts[1].hash
        assert [found.id async for found in client.transactions(hash=bumped.attempts[0].hash)] == [tx.id]


# --- lanes ---


async def test_lanes_are_listed_and_steered(client: Client) -> None:
    lanes = await client.lanes()
    assert CHECKSUMMED in {lane.address for lane in lanes}
    lane = client.lane(31337, SENDER)
    assert (await lane.pause("key rotation")).control.reason == "key rotation"
    assert (await lane.drain()).control.mode == "draining"
    with pytest.raises(LaneDraining):
        await client.send(**ASK)
    assert (await lane.resume()).control.mode == "open"
    await client.send(**ASK)
    assert await lane.cancel_all() == 1
    assert (await lane.show()).transactions == {}
    with pytest.raises(NotFound):
        await client.lane(31337, "0x" + "11" * 20).show()


async def test_the_tools_answer_what_they_found(live: Running, chain: Anvil) -> None:
    async with Client(live.url) as client:
        lane = client.lane(31337, SENDER)
        assert (await lane.sync()).next_nonce == 0
        assert (await lane.fill()).filled == []
        with pytest.raises(WishRefused):
            await lane.fill(7)
        assert (await lane.reset(force=True)).next_nonce == 0


async def test_a_nonce_is_reserved_used_and_given_back(live: Running, chain: Anvil) -> None:
    async with Client(live.url) as client:
        lane = client.lane(31337, SENDER)
        async with lane.reserve() as slot:
            assert slot.expires_at is not None
            assert slot.holder not in repr(slot)
        assert (await lane.show()).reservations == []
        kept = await lane.take(seconds=100)
        assert kept.nonce == slot.nonce
        assert await lane.reserved(kept.nonce, kept.holder).release() == kept.nonce
        async with lane.reserve() as slot:
            signed = Account.sign_transaction(
                {
                    "chainId": 31337,
                    "nonce": slot.nonce,
                    "to": bytes.fromhex(OTHER[2:]),
                    "value": 1,
                    "gas": 21_000,
                    "maxFeePerGas": 10**10,
                    "maxPriorityFeePerGas": 10**9,
                },
                anvil.KEYS[0],
            )
            await slot.used(signed.hash, signed.raw_transaction)
        assert [one.hash for one in (await lane.show()).reservations] == ["0x" + bytes(signed.hash).hex()]
        with pytest.raises(ValueError, match="my own"):
            async with lane.reserve() as slot:
                raise ValueError("my own")
        assert slot.nonce in {one.nonce for one in (await lane.show()).reservations}


# --- what gets lost on the way ---


async def test_a_lost_answer_is_asked_for_again_and_nothing_is_sent_twice(service: Running) -> None:
    async with flaky.before(service.url) as between, Client(between.url) as client:
        between.faults = [flaky.LOSE_ANSWER, flaky.LOSE_CALL]
        tx = await client.send(**ASK)
        assert len(between.seen) == 3
        assert len({headers["Idempotency-Key"] for _, _, headers in between.seen}) == 1
        between.faults = [flaky.LOSE_CALL]
        assert [found.id async for found in client.transactions()] == [tx.id]


async def test_a_service_that_says_when_to_come_back_is_believed(service: Running) -> None:
    problem = '{"type":"urn:x","title":"x","status":%d,"detail":"later","code":"%s"}'
    async with flaky.before(service.url) as between, Client(between.url) as client:
        between.faults = [
            (429, "0", problem % (429, "queue_full")),
            (503, "0", problem % (503, "shutting_down")),
            (502, "0", "<html>bad gateway</html>"),
        ]
        tx = await client.send(**ASK)
        assert len(between.seen) == 4
        # Nothing was done, so that it may be asked again whatever it is ...
        between.faults = [(503, "0", problem % (503, "busy"))]
        assert (await client.hold(tx)).held
        # ... but not where nobody knows.
        for unknown in ((503, "0", problem % (503, "store_unavailable")), (502, "0", "<html>"), flaky.LOSE_ANSWER):
            between.seen.clear()
            between.faults = [unknown]
            with pytest.raises((nonchalant.StoreUnavailable, ServiceUnreachable)):
                await client.release(tx)
            assert len(between.seen) == 1
        # An hour is too long to sit there.
        between.faults = [(429, "3600", problem % (429, "queue_full"))]
        with pytest.raises(nonchalant.QueueFull):
            await client.send(**ASK)


async def test_retries_end_and_the_error_tells_how_to_go_on(service: Running) -> None:
    async with flaky.before(service.url) as between, Client(between.url, retries=1) as client:
        between.faults = [flaky.LOSE_ANSWER] * 2
        with pytest.raises(ServiceUnreachable, match=r"idempotency_key='[0-9a-f]{32}'") as caught:
            await client.send(**ASK)
        assert caught.value.heard
        key = caught.value.idempotency_key
        assert [tx.idempotency_key async for tx in client.transactions()] == [key]
        between.faults = [(500, "0", "<html>what?</html>")]
        with pytest.raises(ServiceUnreachable, match="HTTP status 500"):
            await client.lanes()


@pytest.mark.parametrize(("status", "code"), [(503, "shutting_down"), (503, "store_unavailable"), (429, "queue_full")])
async def test_a_refusal_after_a_lost_answer_does_not_hide_that_the_first_try_may_count(
    service: Running, status: int, code: str
) -> None:
    problem = f'{{"type":"urn:x","title":"x","status":{status},"detail":"later","code":"{code}"}}'
    async with flaky.before(service.url) as between, Client(between.url, retries=1) as client:
        between.faults = [flaky.LOSE_ANSWER, (status, "0", problem)]
        with pytest.raises(ServiceUnreachable, match=r"idempotency_key='[0-9a-f]{32}'") as caught:
            await client.send(**ASK)
        assert caught.value.heard
        assert [tx.idempotency_key async for tx in client.transactions()] == [caught.value.idempotency_key]


async def test_a_service_that_is_not_there_was_not_heard() -> None:
    async with Client(f"http://127.0.0.1:{free_port()}", retries=1) as client:
        with pytest.raises(ServiceUnreachable, match="set NONCHALANT_URL") as caught:
            await client.cancel("tx_1")
        assert not caught.value.heard


async def test_a_service_that_is_away_for_a_while_is_waited_for(service: Running) -> None:
    async with flaky.before(service.url) as between, Client(between.url, retries=0) as client:
        tx = await client.send(**ASK)
        await client.cancel(tx)
        between.faults = [flaky.LOSE_CALL] * 3
        assert (await client.settled(tx, timeout=60)).state == "cancelled"
        between.faults = [flaky.LOSE_CALL] * 4  # aiohttp itself asks again on a connection that it used before
        with pytest.raises(ServiceUnreachable):
            await client.settled(tx)


# --- events ---


async def test_events_come_as_they_happen_and_by_what_is_wanted(service: Running, client: Client) -> None:
    seen: list[Any] = []

    async def read(**wanted: Any) -> None:
        async for event in client.events(**wanted):
            seen.append(event)  # noqa: PERF401 - as they come

    tx = await client.send(**ASK)
    [accepted] = await client.history(tx)
    reading = asyncio.create_task(read(after=0, kinds=["tx.*"], lanes=[(31337, SENDER)]))
    await until(lambda: seen == [accepted], "what was before", seconds=60)
    await client.hold(tx)
    await client.cancel(tx)
    await until(lambda: len(seen) == 3, "what came then", seconds=60)
    assert [event.kind for event in seen] == ["tx.accepted", "tx.held", "tx.cancelled"]
    reading.cancel()
    other = await client.send(**ASK)
    async for event in client.events(after=0, transactions=[other]):
        assert (event.tx, event.kind) == (other.id, "tx.accepted")
        break
    with pytest.raises(BadRequest):
        await anext(client.events(kinds=["tx.nonsense"]))
    with pytest.raises(ServiceRefused) as caught:
        await anext(client.events(after=10**6))
    assert (caught.value.status, caught.value.code) == (410, "position_gone")


async def test_events_are_neither_lost_nor_repeated_where_the_stream_is_cut(service: Running) -> None:
    async with flaky.before(service.url) as between, Client(between.url) as client:
        sent = [await client.send(**ASK) for _ in range(10)]
        expected = [event for tx in sent for event in await client.history(tx)]
        between.seen.clear()
        between.cuts = [0, 40, 150, 700]
        seen = []
        async for event in client.events(after=0, kinds=["tx.accepted"]):
            seen.append(event)
            if len(seen) == len(expected):
                break
        assert seen == expected
        assert len(between.seen) == 5
        between.faults = [flaky.LOSE_CALL] * 20
        with pytest.raises(ServiceUnreachable):
            async with Client(between.url, retries=1) as hasty:
                await anext(hasty.events(after=0))


async def test_the_blocking_client_iterates_over_events(service: Running) -> None:
    def work() -> None:
        with BlockingClient(service.url) as client:
            tx = client.send(**ASK)
            for event in client.events(after=0, transactions=[tx]):
                assert event.kind == "tx.accepted"
                break

    await asyncio.to_thread(work)


# --- who calls ---


async def test_the_key_goes_with_every_call_and_is_never_shown(
    service: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "key"
    kept.write_text(KEY + "\n")
    kept.chmod(0o600)
    async with flaky.before(service.url) as between:
        monkeypatch.setenv("NONCHALANT_URL", between.url + "/")
        monkeypatch.setenv("NONCHALANT_KEY", KEY)
        for given in ({"key": KEY}, {"key_file": kept}, {}):
            between.seen.clear()
            async with Client(**given) as client:  # type: ignore[arg-type]
                await client.lanes()
                assert between.seen[0][2]["Authorization"] == f"Bearer {KEY}"
                assert KEY not in repr(client) + repr(client._service)
                between.faults = [(302, "0", "<html>elsewhere</html>")]
                with pytest.raises(ServiceUnreachable) as caught:
                    await client.lanes()
                assert KEY not in str(caught.value) + repr(caught.value)


async def test_who_may_not_is_told_so_and_an_admin_hands_out_keys(tmp_path: Path) -> None:
    async with keyed(tmp_path) as service:
        _, admins = await hand_out(service, Scope.ADMIN)
        async with Client(service.url) as nobody:
            with pytest.raises(Unauthorized) as refused:
                await nobody.lanes()
            assert (refused.value.status, refused.value.code) == (401, "unauthorized")
        async with Client(service.url, key=admins.text) as admin:
            made = await admin.keys.create(
                name="shop",
                scopes=[Scope.TX_WRITE, "tx:read"],
                lanes=[f"31337:{SENDER}"],
                expires_at="2090-01-01T00:00:00Z",
            )
            assert made.key not in repr(made)
            assert (await admin.keys.get(made.id)).scopes == ["tx:read", "tx:write"]
            assert made.id in {key.id async for key in admin.keys.list()}
            async with Client(service.url, key=made.key) as shop:
                tx = await shop.send(**ASK)
                with pytest.raises(Forbidden):
                    await shop.lane(31337, SENDER).pause()
                async for event in shop.events(after=0):
                    assert event.tx == tx.id
                    break
                assert not (await admin.keys.revoke(made.id)).live
                with pytest.raises(Unauthorized):
                    await shop.get(tx)
            assert [entry.subject async for entry in admin.keys.audit()][-2:] == [made.id, made.id]

        def blocking() -> list[str]:
            with BlockingClient(service.url, key=admins.text) as client:
                assert client.keys.get(made.id).name == "shop"
                assert len(list(client.keys.audit())) > 1
                return [key.id for key in client.keys.list()]

        assert made.id in await asyncio.to_thread(blocking)


async def test_webhooks_are_made_tried_and_removed(tmp_path: Path) -> None:
    targets = 'webhook_targets = "any"\nlease_seconds = 2\n'
    async with (
        running(tmp_path, targets + SETTINGS) as service,
        receiving() as receiver,
        Client(service.url) as client,
    ):
        hooks = client.webhooks
        made = await hooks.create(receiver.url, kinds=["tx.*"], lanes=[f"31337:{SENDER}"], description="the shop's")
        assert made.secret.startswith("whsec_")
        assert made.secret not in repr(made)
        tested = await hooks.test(made.id)
        assert tested.delivered, tested
        await client.send(**ASK)

        async def delivered() -> list[Any]:
            return [one async for one in hooks.deliveries(made.id, state="delivered")]

        [delivery] = await until(delivered, "delivered", seconds=60)
        assert delivery.kind == "tx.accepted"
        assert (await hooks.replay_delivery(made.id, delivery.id)).id == delivery.id
        assert (await hooks.change(made.id, description="ours")).description == "ours"
        assert not (await hooks.disable(made.id, "moving")).enabled
        assert (await hooks.enable(made.id)).enabled
        rotated = await hooks.rotate(made.id, 60)
        assert rotated.secret not in repr(rotated)
        assert (await hooks.replay(made.id, after=0)).id == made.id
        assert (await hooks.get(made.id)).id == made.id

        def blocking() -> list[str]:
            with BlockingClient(service.url) as client:
                ids = [one.id for one in client.webhooks.list()]
                client.webhooks.remove(made.id)
                return ids

        assert await asyncio.to_thread(blocking) == [made.id]
        assert [one async for one in hooks.list()] == []


def test_what_cannot_be_a_url_or_a_key_is_refused_without_being_repeated(tmp_path: Path) -> None:
    for url in (
        "ftp://x",
        "localhost:8645",
        "http://",
        "http://user:5ec7e7@x",
        "http://[::1",
        "http://x:99999",
        "http://x?key=1",
    ):
        with pytest.raises(BadSettings) as caught:
            Client(url)
        assert "5ec7e7" not in str(caught.value)
    for key in ("", " ", "5ec7e7\r\nHost: evil", "5ec7e7ü", "5ec7e7 5ec7e7"):
        with pytest.raises(BadSettings) as caught:
            Client(key=key)
        assert "5ec7e7" not in str(caught.value)
    with pytest.raises(BadSettings, match="not both"):
        Client(key=KEY, key_file="b")
    readable = tmp_path / "key"
    readable.write_text(KEY)
    readable.chmod(0o644)
    with pytest.raises(BadSettings):
        Client(key_file=readable)


# --- the blocking one ---


async def test_the_blocking_client_does_the_same(service: Running) -> None:
    def work() -> None:
        with BlockingClient(service.url) as client:
            tx = client.send(**ASK, idempotency_key="k")
            assert client.send(**ASK, idempotency_key="k").id == tx.id
            assert [found.id for found in client.transactions()] == [tx.id]
            assert [event.kind for event in client.history(tx)] == ["tx.accepted"]
            assert client.release(client.hold(tx)).held is False
            assert client.bump(tx, "fast").fees.speed == "fast"
            assert client.replace(tx, to=SENDER).to == CHECKSUMMED
            with pytest.raises(TimeoutError):
                client.settled(tx, timeout=0.05)
            lane = client.lane(31337, SENDER)
            assert lane.pause("why").control.reason == "why"
            assert lane.show().control == lane.show().control
            assert lane.resume().control.mode == "open"
            assert client.cancel(tx).state == "cancelled"
            assert client.settled(tx).state == "cancelled"
            assert len(client.lanes()) > 0
            with pytest.raises(NotFound):
                client.get("tx_none")

    before = set(threading.enumerate())
    await asyncio.to_thread(work)
    assert [one for one in set(threading.enumerate()) - before if one.name == "nonchalant-client"] == []


async def test_a_blocking_reservation_is_used_or_given_back(live: Running, chain: Anvil) -> None:
    def work() -> None:
        with BlockingClient(live.url) as client:
            lane = client.lane(31337, SENDER)
            with lane.reserve() as slot:
                assert slot.holder not in repr(slot)
            assert lane.show().reservations == []
            kept = lane.take(60)
            lane.reserved(kept.nonce, kept.holder).used("0x" + "ab" * 32)
            assert [one.nonce for one in lane.show().reservations] == [kept.nonce]

    await asyncio.to_thread(work)


async def test_threads_share_a_blocking_client(service: Running) -> None:
    with BlockingClient(service.url) as client:
        sent = await asyncio.gather(*(asyncio.to_thread(client.send, **ASK) for _ in range(20)))
        assert len({tx.id for tx in sent}) == 20
        await asyncio.to_thread(client.close)
        assert len(await asyncio.to_thread(client.lanes)) > 0  # it begins anew


async def test_a_child_process_has_its_own_connections(service: Running) -> None:
    client = BlockingClient(service.url)
    first = await asyncio.to_thread(client.send, **ASK)

    def child() -> None:
        os._exit(0 if client.get(first.id).id == first.id else 1)

    forked = multiprocessing.get_context("fork").Process(target=child)
    forked.start()
    await until(lambda: forked.exitcode is not None, "the child ended", seconds=60)
    assert forked.exitcode == 0
    await asyncio.to_thread(client.close)


# --- its name space ---


def test_every_public_name_of_the_client_is_there() -> None:
    assert nonchalant.client.__all__ == sorted(nonchalant.client.__all__)
    for name in nonchalant.client.__all__:
        assert getattr(nonchalant.client, name) is not None


def test_the_blocking_client_has_all_that_the_client_has() -> None:
    def public(kind: type[Any]) -> set[str]:
        return {name for name in vars(kind) if not name.startswith("_")} - {"inner", "loop"}

    assert public(nonchalant.client.BlockingClient) == public(nonchalant.client.Client) | {"do"}
    assert public(nonchalant.client.BlockingLane) == public(nonchalant.client.ClientLane)
    assert public(nonchalant.client.BlockingKeys) == public(nonchalant.client.Keys)
    assert public(nonchalant.client.BlockingWebhooks) == public(nonchalant.client.Webhooks)
    assert public(nonchalant.client.BlockingReservation) == public(nonchalant.client.Reservation) - {"leave"}


def test_importing_the_client_imports_no_engine() -> None:
    code = "import sys, nonchalant.client; print(*sys.modules)"
    loaded = set(
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    )
    heavy = {"aiohttp", "asyncpg", "coincurve", "eth_account", "sqlite3", "typer", "uvicorn", "web3"}
    assert loaded & (heavy | {"nonchalant.app", "nonchalant.engine", "nonchalant.service.asgi"}) == set()
