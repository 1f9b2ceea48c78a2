"""Webhooks in the store: one node delivers for each, the cursor and the deliveries move together, and the log is kept."""

import pytest

from nonchalant.access import EVERY_LANE, LanePattern
from nonchalant.errors import DeliveryLost, RowMoved
from nonchalant.ports import WebhookOwner
from nonchalant.store.contract import SqlStore
from nonchalant.values import replace
from nonchalant.webhooks import Delivery, DeliveryState, LiveSecret, Parcel, Webhook
from tests.examples import LANE
from tests.store.acts import ManualClock, accept

TTL = 10.0


def a_webhook(id: str = "wh_1", **fields: object) -> Webhook:
    given = {
        "url": "https://example.com/hook",
        "secrets": (LiveSecret("whsec_bmV3"), LiveSecret("whsec_b2xk", 5_000)),
        "kinds": ("tx.confirmed", "lane.*"),
        "lanes": (LanePattern(*LANE), LanePattern(1), LanePattern()),
        "tenant": "me",
        "description": "for the books",
        "position": 7,
    }
    return Webhook(id=id, **(given | fields))  # type: ignore[arg-type]


def parcels(*positions: int, stream: str = "tx_1") -> list[Parcel]:
    return [Parcel(position=position, stream=stream, kind="tx.sent", body=f"{{{position}}}") for position in positions]


async def add(store: SqlStore, id: str = "wh_1", **fields: object) -> Webhook:
    assert await store.add_webhook(a_webhook(id, **fields), most=10)
    found = await store.webhook(id)
    assert found is not None
    return found


async def owned(store: SqlStore, id: str = "wh_1", owner: str = "node-a", **fields: object) -> Webhook:
    made = await add(store, id, **fields)
    assert await store.own_webhooks([id], owner, TTL) == {id}
    return made


async def waiting(store: SqlStore, id: str = "wh_1", owner: str = "node-a") -> list[int]:
    return [one.position for one in (await store.load_webhook(id, owner, limit=100)).pending]


async def test_a_webhook_comes_back_as_it_was_written(store: SqlStore, clock: ManualClock) -> None:
    made = await add(store)
    assert made == a_webhook(created_at=clock.millis)
    assert [one.id for one in await store.webhooks()] == ["wh_1"]
    assert await store.webhook("wh_2") is None
    assert "whsec" not in repr(made)
    assert "example.com" not in repr(made)


async def test_there_are_only_so_many(store: SqlStore) -> None:
    assert await store.add_webhook(a_webhook("wh_1"), most=2)
    assert await store.add_webhook(a_webhook("wh_2"), most=2)
    assert not await store.add_webhook(a_webhook("wh_3"), most=2)


async def test_a_change_is_refused_if_another_came_before_it(store: SqlStore) -> None:
    made = await add(store)
    await store.alter_webhook(replace(made, url="https://example.com/other", disabled_at=5, disabled_why="why"))
    found = await store.webhook("wh_1")
    assert found is not None
    assert (found.url, found.disabled_at, found.disabled_why, found.version) == (
        "https://example.com/other",
        5,
        "why",
        2,
    )
    with pytest.raises(RowMoved):
        await store.alter_webhook(made)


async def test_one_node_at_a_time_delivers_until_its_time_is_over(store: SqlStore, clock: ManualClock) -> None:
    await add(store, "wh_1")
    await add(store, "wh_2")
    assert await store.own_webhooks(["wh_1", "wh_2", "wh_3"], "node-a", TTL) == {"wh_1", "wh_2"}
    assert await store.own_webhooks(["wh_1"], "node-b", TTL) == frozenset()
    clock.pass_seconds(TTL - 1)
    assert await store.own_webhooks(["wh_1"], "node-a", TTL) == {"wh_1"}
    clock.pass_seconds(2)
    assert await store.own_webhooks(["wh_1", "wh_2"], "node-b", TTL) == {"wh_2"}
    roll = await store.webhook_owners()
    assert list(roll.webhooks) == [WebhookOwner("wh_1", 1, "node-a", False), WebhookOwner("wh_2", 1, "node-b", False)]
    await store.release_webhooks("node-a")
    assert await store.own_webhooks(["wh_1", "wh_2"], "node-b", TTL) == {"wh_1", "wh_2"}


async def test_a_disabled_one_is_nobodys(store: SqlStore) -> None:
    made = await add(store)
    await store.alter_webhook(replace(made, disabled_at=1, disabled_why="why"))
    assert await store.own_webhooks(["wh_1"], "node-a", TTL) == frozenset()
    assert (await store.webhook_owners()).webhooks[0].disabled


async def test_the_live_nodes_are_counted(store: SqlStore) -> None:
    await add(store)
    assert (await store.webhook_owners()).live_nodes == 1
    for name in ("a", "b", "c"):
        await store.heartbeat(name, TTL)
    assert (await store.webhook_owners()).live_nodes == 3


async def test_the_cursor_and_the_deliveries_move_together(store: SqlStore, clock: ManualClock) -> None:
    hook = await owned(store)
    made = await store.fan_out(hook, "node-a", 12, parcels(9, 11))
    assert list(made) == [
        Delivery(
            webhook_id="wh_1",
            position=position,
            stream="tx_1",
            kind="tx.sent",
            body=f"{{{position}}}",
            next_at=clock.millis,
            created_at=clock.millis,
        )
        for position in (9, 11)
    ]
    assert made[0].id == "msg_1_9"
    work = await store.load_webhook("wh_1", "node-a", limit=100)
    assert (work.webhook.position, work.webhook.pending, work.webhook.waiting_since) == (12, 2, clock.millis)
    assert list(work.pending) == list(made)
    assert work.at == clock.millis
    # Whoever read the cursor before that makes nothing of it twice.
    with pytest.raises(RowMoved):
        await store.fan_out(hook, "node-a", 12, parcels(9, 11))
    assert await waiting(store) == [9, 11]


async def test_who_is_not_its_owner_any_more_writes_nothing(store: SqlStore, clock: ManualClock) -> None:
    hook = await owned(store)
    [made] = await store.fan_out(hook, "node-a", 9, parcels(9))
    clock.pass_seconds(TTL + 1)
    for step in range(2):
        if step:
            await store.own_webhooks(["wh_1"], "node-b", TTL)
        with pytest.raises(DeliveryLost):
            await store.fan_out(replace(hook, position=9), "node-a", 10, parcels(10))
        with pytest.raises(DeliveryLost):
            await store.record_deliveries("wh_1", "node-a", [replace(made, tries=1)])
        with pytest.raises(DeliveryLost):
            await store.load_webhook("wh_1", "node-a", limit=10)
    assert await waiting(store, owner="node-b") == [9]


async def test_what_was_tried_is_written_down(store: SqlStore, clock: ManualClock) -> None:
    hook = await owned(store)
    first, second, third = await store.fan_out(hook, "node-a", 12, parcels(8, 9, 10))
    ended = replace(first, state=DeliveryState.DELIVERED, tries=1, status=200, ended_at=clock.millis)
    again = replace(second, tries=1, status=500, error="no", next_at=clock.millis + 5_000)
    given_up = replace(third, state=DeliveryState.FAILED, tries=10, error="silent", ended_at=clock.millis)
    await store.record_deliveries("wh_1", "node-a", [ended, again, given_up])
    assert list(await store.deliveries("wh_1", limit=10)) == [given_up, again, ended]
    assert list(await store.deliveries("wh_1", state=DeliveryState.PENDING, limit=10)) == [again]
    assert list(await store.deliveries("wh_1", before=10, limit=1)) == [again]
    assert list(await store.deliveries("wh_1", position=8, limit=1)) == [ended]
    # It is back: what waits need not wait longer.
    await store.record_deliveries("wh_1", "node-a", [], hurry=True)
    assert [one.next_at for one in (await store.load_webhook("wh_1", "node-a", limit=9)).pending] == [clock.millis]


async def test_a_receiver_that_wants_nothing_more_is_left_alone(store: SqlStore, clock: ManualClock) -> None:
    hook = await owned(store)
    [made] = await store.fan_out(hook, "node-a", 9, parcels(9))
    await store.record_deliveries("wh_1", "node-a", [replace(made, tries=1, status=410)], disable="gone")
    found = await store.webhook("wh_1")
    assert found is not None
    assert (found.disabled_at, found.disabled_why, found.pending) == (clock.millis, "gone", 1)


async def test_a_rewound_cursor_makes_everything_wait_once_more(store: SqlStore, clock: ManualClock) -> None:
    hook = await owned(store)
    first, _ = await store.fan_out(hook, "node-a", 9, parcels(8, 9))
    await store.record_deliveries(
        "wh_1", "node-a", [replace(first, state=DeliveryState.DELIVERED, tries=1, status=200, ended_at=clock.millis)]
    )
    assert await store.rewind_webhook("wh_1", 7)
    assert not await store.rewind_webhook("wh_2", 7)
    hook = (await store.load_webhook("wh_1", "node-a", limit=9)).webhook
    again = await store.fan_out(hook, "node-a", 9, parcels(8, 9))
    assert [(one.position, one.tries, one.state) for one in again] == [(8, 0, DeliveryState.PENDING)]
    assert await waiting(store) == [8, 9]


async def test_a_cursor_is_set_back_and_never_forward(store: SqlStore) -> None:
    """Of a receiver that was down for long the cursor is far behind: what it has not come to must not be skipped."""
    hook = await owned(store)
    await store.fan_out(hook, "node-a", 9, parcels(9))
    assert await store.rewind_webhook("wh_1", 5_000)
    assert (await store.load_webhook("wh_1", "node-a", limit=9)).webhook.position == 9


async def test_one_delivery_can_be_wanted_once_more(store: SqlStore, clock: ManualClock) -> None:
    hook = await owned(store)
    [made] = await store.fan_out(hook, "node-a", 9, parcels(9))
    failed = replace(made, state=DeliveryState.FAILED, tries=10, status=500, error="no", ended_at=clock.millis)
    await store.record_deliveries("wh_1", "node-a", [failed])
    assert await waiting(store) == []
    assert await store.replay_delivery("wh_1", 9)
    assert not await store.replay_delivery("wh_1", 10)
    assert list((await store.load_webhook("wh_1", "node-a", limit=9)).pending) == [made]
    assert (await store.webhook_owners()).webhooks[0].version == 2


async def test_the_log_is_kept_for_a_while_and_goes_with_its_webhook(store: SqlStore, clock: ManualClock) -> None:
    hook = await owned(store)
    first, second = await store.fan_out(hook, "node-a", 9, parcels(8, 9))
    done = [replace(one, state=DeliveryState.DELIVERED, ended_at=clock.millis) for one in (first, second)]
    await store.record_deliveries("wh_1", "node-a", done)
    await store.fan_out(replace(hook, position=9), "node-a", 10, parcels(10))
    clock.pass_seconds(100)
    assert await store.forget_deliveries(older_than=200_000, limit=10) == 0
    assert await store.forget_deliveries(older_than=50_000, limit=1) == 1
    assert await store.forget_deliveries(older_than=50_000, limit=10) == 1
    assert [one.position for one in await store.deliveries("wh_1", limit=10)] == [10]
    assert await store.remove_webhook("wh_1")
    assert not await store.remove_webhook("wh_1")
    assert await store.deliveries("wh_1", limit=10) == []


async def test_a_time_is_found_among_the_positions(store: SqlStore, clock: ManualClock) -> None:
    assert await store.position_since(0) is None
    await accept(store, "early")
    clock.pass_seconds(100)
    await accept(store, "late")
    early, late = await store.events_after(0, limit=10)
    assert await store.position_since(0) == early.position
    assert await store.position_since(early.at + 1) == late.position
    assert await store.position_since(late.at + 1) is None


def test_every_lane_is_the_default() -> None:
    assert a_webhook(lanes=EVERY_LANE).interest.lanes == EVERY_LANE
