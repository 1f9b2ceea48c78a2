"""Webhooks and their log as callers see them. A secret is in what makes it, and nowhere else."""

from __future__ import annotations

from typing import Any

import msgspec

from nonchalant.access import LanePattern
from nonchalant.chain.evm.addresses import checksum
from nonchalant.notation import CursorText, TimeText, TxIdText, Whole
from nonchalant.views import show_time
from nonchalant.webhooks import Delivery, DeliveryState, Said, Webhook


class WebhookView(msgspec.Struct, frozen=True, kw_only=True):
    """`lanes` are `chain:address`, where `*` stands for any. `behind`: events it was not told of yet, wanted or not."""

    id: str
    url: str
    kinds: list[str]
    lanes: list[str]
    tenant: str | None
    description: str
    enabled: bool
    disabled_at: TimeText | None
    disabled_why: str | None
    position: Whole
    behind: Whole
    pending: Whole
    waiting_since: TimeText | None
    secrets: Whole
    created_at: TimeText


class WebhookMadeView(WebhookView, frozen=True, kw_only=True):
    """`secret` is shown this once: `whsec_` and the key in base64."""

    secret: str

    def __repr__(self) -> str:
        return f"<WebhookMadeView {self.id}>"  # without the secret


class RotatedView(msgspec.Struct, frozen=True, kw_only=True):
    """`secret` is shown this once; the one before it signs too until `old_secret_ends_at`."""

    secret: str
    old_secret_ends_at: TimeText | None

    def __repr__(self) -> str:
        return f"<RotatedView {self.old_secret_ends_at}>"  # without the secret


class WebhooksView(msgspec.Struct, frozen=True, kw_only=True):
    webhooks: list[WebhookView]


class TestedView(msgspec.Struct, frozen=True, kw_only=True):
    """What the receiver said; without a `status` it said nothing, and `error` says why."""

    delivered: bool
    status: int | None
    error: str | None


class DeliveryView(msgspec.Struct, frozen=True, kw_only=True):
    """`id` is the `webhook-id` that the receiver got, at every try; `status` and `error` are what the last try met."""

    id: str
    position: Whole
    kind: str
    state: DeliveryState
    tries: Whole
    next_try_at: TimeText | None
    status: int | None
    error: str | None
    created_at: TimeText
    ended_at: TimeText | None
    stream: TxIdText


class DeliveriesView(msgspec.Struct, frozen=True, kw_only=True):
    deliveries: list[DeliveryView]
    next_cursor: CursorText | None


def show_webhook(webhook: Webhook, last_position: int) -> WebhookView:
    return WebhookView(**_fields(webhook, last_position))


def show_made(webhook: Webhook, last_position: int) -> WebhookMadeView:
    return WebhookMadeView(**_fields(webhook, last_position), secret=webhook.secrets[0].text)


def _fields(webhook: Webhook, last_position: int) -> dict[str, Any]:
    return {
        "id": webhook.id,
        "url": webhook.url,
        "kinds": list(webhook.kinds),
        "lanes": [_lane(pattern) for pattern in webhook.lanes],
        "tenant": webhook.tenant,
        "description": webhook.description,
        "enabled": webhook.disabled_at is None,
        "disabled_at": None if webhook.disabled_at is None else show_time(webhook.disabled_at),
        "disabled_why": webhook.disabled_why,
        "position": webhook.position,
        "behind": max(0, last_position - webhook.position),
        "pending": webhook.pending,
        "waiting_since": None if webhook.waiting_since is None else show_time(webhook.waiting_since),
        "secrets": len(webhook.secrets),
        "created_at": show_time(webhook.created_at),
    }


def show_delivery(delivery: Delivery) -> DeliveryView:
    pending = delivery.state is DeliveryState.PENDING
    return DeliveryView(
        id=delivery.id,
        position=delivery.position,
        kind=delivery.kind,
        state=delivery.state,
        tries=delivery.tries,
        next_try_at=show_time(delivery.next_at) if pending else None,
        status=delivery.status,
        error=delivery.error,
        created_at=show_time(delivery.created_at),
        ended_at=None if delivery.ended_at is None else show_time(delivery.ended_at),
        stream=delivery.stream,
    )


def show_test(said: Said) -> TestedView:
    return TestedView(delivered=said.delivered, status=said.status, error=said.error)


def _lane(pattern: LanePattern) -> str:
    address = "*" if pattern.address is None else checksum(pattern.address)
    return f"{'*' if pattern.chain_id is None else pattern.chain_id}:{address}"
