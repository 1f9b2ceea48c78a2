"""One call and its answer as the OpenAPI document shows them. Clients speak JSON-RPC without reading it."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from nonchalant.bodies import Body


class RpcBody(Body, frozen=True, kw_only=True):
    """One call; a list of up to 100 of them is a batch."""

    jsonrpc: Literal["2.0"]
    id: int | str | None
    method: str
    params: list[Any] = msgspec.field(default_factory=list)


class RpcErrorView(msgspec.Struct, frozen=True, kw_only=True):
    code: int
    message: str
    data: Any = None


class RpcView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One answer, with a result or an error; for a batch, a list of them in the order of the calls."""

    jsonrpc: str
    id: int | float | str | None
    result: Any = None
    error: RpcErrorView | None = None
