"""API keys, as an admin's client sees them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Required, TypedDict, Unpack
from urllib.parse import quote

from nonchalant.access import FeeRule, NonceRule, Scope
from nonchalant.key_views import AuditView, EntryView, KeysView, KeyView, NewKeyView

if TYPE_CHECKING:
    from nonchalant.client.service import Service


class KeyAsk(TypedDict, total=False):
    """A key to make. `lanes` are patterns: `*`, `1:*`, `1:0x…`; `rate` is in calls a second, for each node."""

    name: Required[str]
    scopes: Required[Iterable[Scope | str]]
    tenant: str
    lanes: Iterable[str]
    nonces: NonceRule | str
    fees: FeeRule | str
    rate: float | None
    expires_at: datetime | int | str | None


class Keys:
    """The keys of a service, for those whose own has the scope `admin`."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def create(self, **ask: Unpack[KeyAsk]) -> NewKeyView:
        """Make a key. Its `key` is told here and never again."""
        given = {name: value for name, value in ask.items() if value is not None}
        for name in ("scopes", "lanes"):
            if isinstance(value := given.get(name), Iterable):
                given[name] = [str(one) for one in value]
        if isinstance(until := given.get("expires_at"), datetime):
            given["expires_at"] = until.isoformat()
        return await self._service.post("/v1/keys", NewKeyView, given)

    async def list(self) -> AsyncIterator[KeyView]:
        """All keys, newest first; never their secrets."""
        query: dict[str, object] = {}
        while True:
            page = await self._service.get("/v1/keys", KeysView, query)
            for key in page.keys:
                yield key
            if page.next_cursor is None:
                return
            query["cursor"] = page.next_cursor

    async def get(self, id: str) -> KeyView:
        return await self._service.get(f"/v1/keys/{quote(id, safe='')}", KeyView)

    async def revoke(self, id: str) -> KeyView:
        """Let nobody in by it any more, on any node."""
        return await self._service.post(f"/v1/keys/{quote(id, safe='')}/revoke", KeyView)

    async def audit(self, after: int = 0) -> AsyncIterator[EntryView]:
        """What was done with keys and by admins, oldest first, after this position."""
        while True:
            page = await self._service.get("/v1/audit", AuditView, {"after": after})
            for entry in page.entries:
                yield entry
                after = entry.position
            if not page.entries or after >= page.head.position:
                return
