"""A service that asks for keys, and holders of some."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from nonchalant.access import Scope
from nonchalant.audit import COMMAND_LINE, Actor
from nonchalant.keys import Key, KeyRequest, Written
from tests.service.conftest import SETTINGS, Running, running

WITH_KEYS = SETTINGS.replace('auth = "off"', 'auth = "keys"').replace(
    'key = { mnemonic = { file = "words" } }', 'key = { mnemonic = { file = "words" }, count = 2 }'
)
OPERATOR = Actor(id=COMMAND_LINE, name="test")

ADMIN = KeyRequest(name="admin", scopes=frozenset({Scope.ADMIN}))


@asynccontextmanager
async def keyed(folder: Path, settings: str = WITH_KEYS) -> AsyncIterator[Running]:
    async with running(folder, settings) as service:
        yield service


async def hand_out(service: Running, *scopes: Scope, **fields: Any) -> tuple[Key, Written]:
    wanted = KeyRequest(name=fields.pop("name", "some"), scopes=frozenset(scopes), **fields)
    return await service.node.keyring.make(wanted, OPERATOR)


async def a_holder(service: Running, *scopes: Scope, **fields: Any) -> dict[str, str]:
    """The headers that somebody with a new key sends."""
    return bearer((await hand_out(service, *scopes, **fields))[1])


def bearer(written: Written | str) -> dict[str, str]:
    return {"Authorization": f"Bearer {written if isinstance(written, str) else written.text}"}
