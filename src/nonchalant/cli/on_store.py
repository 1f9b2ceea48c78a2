"""What an operator does on the store itself, without a service: whoever may read the settings may do it."""

from __future__ import annotations

import asyncio
import getpass
import socket
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from nonchalant.audit import COMMAND_LINE, Actor, Entry, Head
from nonchalant.config import load_settings
from nonchalant.errors import BadRequest
from nonchalant.key_views import show_key, show_new_key
from nonchalant.keyring import Keyring
from nonchalant.parts import open_store
from nonchalant.store.contract import SqlStore
from nonchalant.system import SystemClock, SystemEntropy
from nonchalant.wire import parse_key

PAGE = 500

T = TypeVar("T")


class OnStore:
    """The store that a settings file names; each act opens it anew."""

    def __init__(self, config: Path) -> None:
        self._settings = load_settings(config)
        self._clock, self._entropy = SystemClock(), SystemEntropy()

    def create_key(self, body: Mapping[str, object]) -> dict[str, Any]:
        wanted, now = parse_key(body), self._clock.now()
        if wanted.expires_at is not None and wanted.expires_at <= now:
            raise BadRequest("has passed already; no key was made", field="expires_at")

        async def act(store: SqlStore) -> object:
            made = await Keyring(store, self._entropy).make(wanted, _operator())
            return show_new_key(*made, now)

        return _plain(self._do(act))

    def list_keys(self) -> list[dict[str, Any]]:
        async def act(store: SqlStore) -> list[object]:
            found: list[object] = []
            before = None
            while page := await store.keys(before=before, limit=PAGE):
                found += [show_key(key, self._clock.now()) for key in page]
                before = page[-1].place
            return found

        return [_plain(one) for one in self._do(act)]

    def revoke_key(self, key_id: str) -> dict[str, Any]:
        async def act(store: SqlStore) -> object:
            return show_key(await Keyring(store, self._entropy).revoke(key_id, _operator()), self._clock.now())

        return _plain(self._do(act))

    def read_log(self, after: int, limit: int) -> tuple[Head, list[Entry]]:
        """Where it ends, and what follows that position."""

        async def act(store: SqlStore) -> tuple[Head, list[Entry]]:
            head = await store.audit_head()
            return head, list(await store.audit_after(after, limit=limit))

        return self._do(act)

    def _do(self, act: Callable[[SqlStore], Awaitable[T]]) -> T:
        async def opened() -> T:
            store = await open_store(self._settings, self._clock, self._entropy)
            try:
                return await act(store)
            finally:
                await store.close()

        return asyncio.run(opened())


def _operator() -> Actor:
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a container's user may have no name
        user = "?"
    return Actor(id=COMMAND_LINE, name=f"{user}@{socket.gethostname()}")


def _plain(view: object) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(view)
    return plain
