"""What is none of our business is asked of a node: reading, as far as that changes nothing and answers one call alone."""

from __future__ import annotations

from typing import Final

import msgspec

from nonchalant.config import ChainSettings
from nonchalant.service.rpc.asked import Asked
from nonchalant.service.rpc.failures import NoSuchMethod

NAMESPACES: Final = ("eth_", "net_", "web3_")

# What begins so changes something: at the node, or on the chain, unknown to us.
_WRITING: Final = (
    "eth_send",
    "eth_sign",
    "eth_submit",
    "eth_cancel",
    "eth_set",
    "eth_resend",
    "eth_get_work",
    "eth_getWork",
)

# A node keeps these for whoever asked it first. Where a chain has several endpoints, the next call may reach another.
FILTERS: Final = frozenset(
    {
        "eth_newFilter",
        "eth_newBlockFilter",
        "eth_newPendingTransactionFilter",
        "eth_getFilterChanges",
        "eth_getFilterLogs",
        "eth_uninstallFilter",
    }
)
_SUBSCRIBING: Final = frozenset({"eth_subscribe", "eth_unsubscribe"})


def refusal(method: str, chain: ChainSettings) -> str | None:
    """Why a method is not passed on; None: it is."""
    if is_allowed(method, chain):
        return None
    if method in _SUBSCRIBING:
        return "HTTP carries no subscriptions; poll, or read GET /v1/events"
    if method in FILTERS:
        if len(chain.endpoints) == 1:
            return None
        return "this chain has several endpoints, and filters live in one; use eth_getLogs"
    if not method.startswith(NAMESPACES):
        return "only eth_, net_ and web3_ are passed on, and what the chain's setting rpc_methods names"
    if method.startswith(_WRITING):
        return "it would send or sign past the accounts that are managed here"
    return None


def is_allowed(method: str, chain: ChainSettings) -> bool:
    """Whether the settings name it."""
    namespace = method.partition("_")[0] + "_*"
    return method in chain.rpc_methods or namespace in chain.rpc_methods


async def pass_on(asked: Asked) -> msgspec.Raw:
    """As a healthy endpoint answers; `NoSuchMethod` if it is not asked."""
    question, chain = asked.question, asked.chain
    why = refusal(question.method, chain)
    if why is not None:
        raise NoSuchMethod(question.method, why)
    return msgspec.Raw(await asked.front.node.passage.ask(chain.id, question.method, question.params))
