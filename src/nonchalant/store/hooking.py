"""Webhooks and what waits for them: who delivers, how far each has come, and the log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import msgspec

from nonchalant.access import LanePattern
from nonchalant.errors import DeliveryLost, RowMoved
from nonchalant.ports import Roll, WebhookOwner, WebhookWork
from nonchalant.store.rows import Row, to_json
from nonchalant.store.talk import Ask, Number, Procedure, ask, ask_for_each, change, change_each, millis, now
from nonchalant.webhooks import Delivery, DeliveryState, LiveSecret, Parcel, Webhook
from nonchalant.words import Millis

_read_secrets = msgspec.json.Decoder(list[tuple[str, int | None]]).decode
_read_names = msgspec.json.Decoder(list[str]).decode
_read_lanes = msgspec.json.Decoder(list[tuple[int | None, str | None]]).decode


def add(webhook: Webhook, most: int) -> Procedure[bool]:
    found = yield from ask("insert_webhook", **_columns(webhook), position=webhook.position, most=most)
    return bool(found)


def webhooks(webhook_id: str | None = None) -> Procedure[Sequence[Webhook]]:
    answer = yield Ask("webhooks", {} if webhook_id is None else {"id": webhook_id}, narrow=True)
    return [_webhook(row) for row in answer.rows]


def alter(webhook: Webhook) -> Procedure[None]:
    disabled = {"disabled_at": webhook.disabled_at, "disabled_why": webhook.disabled_why}
    if not (yield from change("update_webhook", **_columns(webhook), **disabled, version=webhook.version)):
        raise RowMoved(f"webhook {webhook.id} was changed by somebody else meanwhile")
    yield from change("hurry_deliveries", webhook_id=webhook.id)


def rewind(webhook_id: str, position: int) -> Procedure[bool]:
    return bool((yield from change("rewind_webhook", id=webhook_id, position=position)))


def remove(webhook_id: str) -> Procedure[bool]:
    return bool((yield from change("remove_webhook", id=webhook_id)))


# who delivers


def owners() -> Procedure[Roll]:
    found = yield from ask("webhook_owners")
    return Roll(
        [WebhookOwner(row["id"], row["version"], row["owner"], bool(row["disabled"])) for row in found],
        live_nodes=max(1, found[0]["live_nodes"]) if found else 1,
    )


def own(webhook_ids: Sequence[str], owner: str, ttl: float) -> Procedure[frozenset[str]]:
    each = [{"id": webhook_id} for webhook_id in sorted(webhook_ids)]
    found = yield from ask_for_each("own_webhook", each, owner=owner, ttl=millis(ttl))
    return frozenset(row["id"] for row in found)


def release(owner: str) -> Procedure[None]:
    yield from change("release_webhooks", owner=owner)


def load(webhook_id: str, owner: str, limit: int) -> Procedure[WebhookWork]:
    yield from _hold(webhook_id, owner)
    [webhook] = yield from webhooks(webhook_id)
    pending = yield from ask("pending_deliveries", webhook_id=webhook_id, limit=limit)
    at = yield from now()
    return WebhookWork(webhook, [_delivery(row) for row in pending], at)


def fan_out(webhook: Webhook, owner: str, upto: int, parcels: Sequence[Parcel]) -> Procedure[Sequence[Delivery]]:
    """What waits now that did not wait before. The cursor and the deliveries become true at once."""
    held = yield from _hold(webhook.id, owner)
    if (held["version"], held["position"]) != (webhook.version, webhook.position):
        raise RowMoved(f"webhook {webhook.id} was changed by somebody else meanwhile")
    yield from change("advance_webhook", id=webhook.id, position=upto)
    made = yield from ask_for_each("insert_delivery", [asdict(one) for one in parcels], webhook_id=webhook.id)
    return [_delivery(row) for row in made]


def record(webhook_id: str, owner: str, tried: Sequence[Delivery], disable: str | None, hurry: bool) -> Procedure[None]:
    yield from _hold(webhook_id, owner)
    each = [
        {
            "position": one.position,
            "state": one.state.value,
            "tries": one.tries,
            "next_at": one.next_at,
            "status": one.status,
            "error": one.error,
            "ended_at": one.ended_at,
        }
        for one in tried
    ]
    yield from change_each("record_delivery", each, webhook_id=webhook_id)
    if disable is not None:
        yield from change("disable_webhook", id=webhook_id, why=disable)
    if hurry:
        yield from change("hurry_deliveries", webhook_id=webhook_id)


def _hold(webhook_id: str, owner: str) -> Procedure[Row]:
    found = yield from ask("hold_webhook", id=webhook_id, owner=owner)
    if not found:
        raise DeliveryLost(f"webhook {webhook_id} is not ours to deliver for any more")
    return found[0]


# the log


def deliveries(
    webhook_id: str, *, state: DeliveryState | None, position: int | None, before: int | None, limit: int
) -> Procedure[Sequence[Delivery]]:
    asked: dict[str, Any] = {"state": state and state.value, "position": position, "before": before}
    given = {name: value for name, value in asked.items() if value is not None}
    answer = yield Ask("deliveries", {"webhook_id": webhook_id, "limit": limit, **given}, narrow=True)
    return [_delivery(row) for row in answer.rows]


def replay(webhook_id: str, position: int) -> Procedure[bool]:
    found = yield from change("replay_delivery", webhook_id=webhook_id, position=position)
    if found:
        yield from change("touch_webhook", id=webhook_id)
    return bool(found)


def forget(older_than: Millis, limit: int) -> Procedure[int]:
    at = yield from now()
    return (yield from change("forget_deliveries", before=at - older_than, limit=limit))


def position_since(since: Millis) -> Procedure[int | None]:
    yield Number()
    found = yield from ask("position_since", since=since)
    return int(found[0]["position"]) if found else None


# rows


def _columns(webhook: Webhook) -> dict[str, object]:
    return {
        "id": webhook.id,
        "tenant": webhook.tenant,
        "url": webhook.url,
        "secrets": to_json([(secret.text, secret.ends_at) for secret in webhook.secrets]),
        "kinds": to_json(webhook.kinds),
        "lanes": to_json([tuple(pattern) for pattern in webhook.lanes]),
        "description": webhook.description,
    }


def _webhook(row: Row) -> Webhook:
    return Webhook(
        id=row["id"],
        url=row["url"],
        secrets=tuple(LiveSecret(*secret) for secret in _read_secrets(row["secrets"])),
        kinds=tuple(_read_names(row["kinds"])),
        lanes=tuple(LanePattern(*pattern) for pattern in _read_lanes(row["lanes"])),
        tenant=row["tenant"],
        description=row["description"],
        position=row["position"],
        version=row["version"],
        created_at=row["created_at"],
        disabled_at=row["disabled_at"],
        disabled_why=row["disabled_why"],
        pending=row["pending"],
        waiting_since=row["waiting_since"],
    )


def _delivery(row: Row) -> Delivery:
    return Delivery(
        webhook_id=row["webhook_id"],
        position=row["position"],
        stream=row["stream"],
        kind=row["kind"],
        body=row["body"],
        state=DeliveryState(row["state"]),
        tries=row["tries"],
        next_at=row["next_at"],
        status=row["status"],
        error=row["error"],
        created_at=row["created_at"],
        ended_at=row["ended_at"],
    )
