"""One example of each body, for readers of the OpenAPI document and for tools that try it out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from nonchalant.bodies import (
    BatchBody,
    Body,
    BumpBody,
    FillBody,
    HolderBody,
    KeyBody,
    NothingBody,
    ReasonBody,
    ReleaseBody,
    ReplaceBody,
    ReplayBody,
    ReserveBody,
    ResetBody,
    RotateBody,
    TransactionBody,
    UsedBody,
    WebhookBody,
    WebhookChanges,
)
from nonchalant.notation import ADDRESS_EXAMPLE, HASH_EXAMPLE, SENDER_EXAMPLE
from nonchalant.service.rpc.shapes import RpcBody

_TRANSFER: Final = {"chain_id": 31337, "from": SENDER_EXAMPLE, "to": ADDRESS_EXAMPLE, "value": "1000000000000000"}
_HOLDER: Final = "0123456789abcdef0123456789abcdef"

EXAMPLES: Final[Mapping[type[Body], Mapping[str, Any]]] = {
    TransactionBody: {**_TRANSFER, "fees": {"speed": "fast"}, "metadata": {"invoice": 4711}},
    BatchBody: {"transactions": [_TRANSFER, {**_TRANSFER, "priority": 7}]},
    ReplaceBody: {"to": ADDRESS_EXAMPLE, "value": "2000000000000000"},
    BumpBody: {"fees": {"max_fee_per_gas": "30000000000", "max_priority_fee_per_gas": "2000000000"}},
    ReasonBody: {"reason": "the contract is being upgraded"},
    ReleaseBody: {"mark": "held"},
    FillBody: {"nonce": 7},
    ResetBody: {"force": False},
    ReserveBody: {"seconds": 30},
    UsedBody: {"holder": _HOLDER, "hash": HASH_EXAMPLE},
    HolderBody: {"holder": _HOLDER},
    KeyBody: {
        "name": "billing",
        "scopes": ["tx:write", "tx:read"],
        "lanes": [f"31337:{SENDER_EXAMPLE}"],
        "expires_at": "2030-01-31T12:00:00Z",
    },
    WebhookBody: {"url": "https://example.com/nonchalant", "kinds": ["tx.confirmed", "tx.reverted"]},
    WebhookChanges: {"kinds": ["tx.*"]},
    RotateBody: {"seconds": 86_400},
    ReplayBody: {"after": 4711},
    NothingBody: {},
    RpcBody: {"jsonrpc": "2.0", "id": 1, "method": "eth_getTransactionCount", "params": [SENDER_EXAMPLE, "latest"]},
}
