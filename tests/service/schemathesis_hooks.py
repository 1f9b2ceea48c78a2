"""What schemathesis is told about the service it tries: loaded by it, in a process of its own.

Of what it makes up, a part is given a name that exists, or only 404 would ever be tried; and nobody waits a minute.
"""

from __future__ import annotations

import os
import zlib
from typing import Any

import requests
import schemathesis

CHAIN_ID = 31337
LANE = "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266"
OTHER = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8"
LONGEST_WAIT = 0.02


def _share(value: object, parts: int) -> int:
    """One of so many parts, always the same for the same value."""
    return zlib.crc32(repr(value).encode()) % parts


def _transactions() -> list[str]:
    """Some that exist; asked once."""
    if not _known:
        url, key = os.environ["NONCHALANT_TRIED"], os.environ["NONCHALANT_TRIED_WITH"]
        for number in range(10):
            body = {"chain_id": CHAIN_ID, "from": LANE, "to": OTHER, "value": number, "priority": 0}
            _known.append(
                requests.post(f"{url}/v1/transactions", json=body, headers={"Authorization": key}, timeout=60).json()[
                    "id"
                ]
            )
    return _known


_known: list[str] = []


@schemathesis.hook
def map_path_parameters(context: Any, path_parameters: dict[str, Any] | None) -> dict[str, Any] | None:
    given = dict(path_parameters or {})
    if "address" in given and _share(given, 4):
        given |= {"chain_id": CHAIN_ID, "address": LANE}
    if "id" in given and "/transactions/" in context.operation.path and _share(given, 4):
        known = _transactions()
        given["id"] = known[_share(given["id"], len(known))]
    return given or path_parameters


@schemathesis.hook
def map_query(context: Any, query: dict[str, Any] | None) -> dict[str, Any] | None:
    if query and isinstance(query.get("wait"), int | float):
        return {**query, "wait": min(query["wait"], LONGEST_WAIT)}
    return query


@schemathesis.hook
def map_body(context: Any, body: Any) -> Any:
    if not isinstance(body, dict) or not _share(body, 4):
        return body
    if context.operation.path == "/v1/transactions":
        return _sendable(body)
    if context.operation.path == "/v1/transactions/batch" and isinstance(body.get("transactions"), list):
        items = [_sendable(one) if isinstance(one, dict) else one for one in body["transactions"]]
        return {**body, "transactions": items}
    return body


def _sendable(body: dict[str, Any]) -> dict[str, Any]:
    """With a chain and an account that are there, wherever it names any."""
    names = {"chain_id": CHAIN_ID, "from": LANE, "to": OTHER}
    return {key: names.get(key, value) for key, value in body.items()}
