"""Webhooks, as an admin's client sees them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from datetime import datetime
from typing import TYPE_CHECKING
from urllib.parse import quote

from nonchalant.webhook_views import (
    DeliveriesView,
    DeliveryView,
    RotatedView,
    TestedView,
    WebhookMadeView,
    WebhooksView,
    WebhookView,
)

if TYPE_CHECKING:
    from nonchalant.client.service import Service


class Webhooks:
    """Where events are delivered to, for those whose key has the scope `admin`."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def create(
        self,
        url: str,
        *,
        kinds: Iterable[str] | None = None,
        lanes: Iterable[str] | None = None,
        tenant: str | None = None,
        description: str | None = None,
        after: int | None = None,
    ) -> WebhookMadeView:
        """Have events delivered there. The `secret` that signs them is told here and never again."""
        body = _said(url=url, kinds=kinds, lanes=lanes, tenant=tenant, description=description, after=after)
        return await self._service.post("/v1/webhooks", WebhookMadeView, body)

    async def list(self) -> AsyncIterator[WebhookView]:
        for webhook in (await self._service.get("/v1/webhooks", WebhooksView)).webhooks:
            yield webhook

    async def get(self, id: str) -> WebhookView:
        return await self._service.get(_path(id), WebhookView)

    async def change(
        self,
        id: str,
        *,
        url: str | None = None,
        kinds: Iterable[str] | None = None,
        lanes: Iterable[str] | None = None,
        description: str | None = None,
    ) -> WebhookView:
        """Change where its events go, or which; what is left out stays, and what waits is tried now."""
        body = _said(url=url, kinds=kinds, lanes=lanes, description=description)
        return await self._service.patch(_path(id), WebhookView, body)

    async def remove(self, id: str) -> WebhookView:
        """With what waits for it, and its log."""
        return await self._service.delete(_path(id), WebhookView)

    async def enable(self, id: str) -> WebhookView:
        """Deliver again, from where it stopped."""
        return await self._service.post(f"{_path(id)}/enable", WebhookView)

    async def disable(self, id: str, reason: str = "") -> WebhookView:
        """Deliver nothing more until it is enabled."""
        return await self._service.post(f"{_path(id)}/disable", WebhookView, {"reason": reason})

    async def rotate(self, id: str, seconds: float = 86_400.0) -> RotatedView:
        """Make a new secret; the one before it signs too for so long."""
        return await self._service.post(f"{_path(id)}/rotate", RotatedView, {"seconds": seconds})

    async def test(self, id: str) -> TestedView:
        """Send a test event now; what the receiver said."""
        return await self._service.post(f"{_path(id)}/test", TestedView)

    async def replay(
        self, id: str, *, after: int | None = None, since: datetime | int | str | None = None
    ) -> WebhookView:
        """Deliver again whatever came after a position, or since a time."""
        when = since.isoformat() if isinstance(since, datetime) else since
        return await self._service.post(f"{_path(id)}/replay", WebhookView, _said(after=after, since=when))

    async def deliveries(self, id: str, *, state: str | None = None) -> AsyncIterator[DeliveryView]:
        """What was delivered, what waits and what was given up, newest event first."""
        query: dict[str, object] = {"state": state}
        while True:
            page = await self._service.get(f"{_path(id)}/deliveries", DeliveriesView, query)
            for delivery in page.deliveries:
                yield delivery
            if page.next_cursor is None:
                return
            query["cursor"] = page.next_cursor

    async def replay_delivery(self, id: str, delivery_id: str) -> DeliveryView:
        """Deliver this one again."""
        path = f"{_path(id)}/deliveries/{quote(delivery_id, safe='')}/replay"
        return await self._service.post(path, DeliveryView)


def _path(id: str) -> str:
    return f"/v1/webhooks/{quote(id, safe='')}"


def _said(**fields: object) -> dict[str, object]:
    """What is None is left out."""
    return {
        name: list(value) if isinstance(value, Iterable) and not isinstance(value, str) else value
        for name, value in fields.items()
        if value is not None
    }
