"""A node that answers every question of an endpoint well, unless a test scripts another answer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from nonchalant.chain.evm.endpoints import MANY_RECEIPTS, EvmEndpoint
from nonchalant.chain.evm.keccak import keccak
from nonchalant.model import BlockRef, Draft, Fees, Payload
from nonchalant.words import LaneKey
from tests.chain.misbehaving import Node, error, serving

ALICE = "0xf39fd6e51aad88f6f4ce6ab8827279cfffb92266"
HASH = "0x" + "ab" * 32
OTHER = "0x" + "cd" * 32
BLOCK = BlockRef(16, HASH)
RAW = b"\x02bytes"
DRAFT = Draft(lane=LaneKey(1, ALICE), nonce=0, payload=Payload(to=ALICE), gas=21_000, fees=Fees(9, 1))

GOOD: dict[str, Any] = {
    "eth_chainId": "0x1",
    "eth_getBlockByNumber": {
        "hash": HASH,
        "number": "0x10",
        "parentHash": OTHER,
        "transactions": [OTHER],
        "baseFeePerGas": "0x64",
        "gasLimit": "0x1c9c380",
    },
    "eth_getBlockByHash": {
        "hash": HASH,
        "number": "0x10",
        "parentHash": OTHER,
        "transactions": [{"hash": OTHER, "from": ALICE, "nonce": "0x1", "to": ALICE, "value": "0x2", "input": "0x03"}],
    },
    "eth_getTransactionReceipt": {
        "transactionHash": OTHER,
        "blockHash": HASH,
        "blockNumber": "0x10",
        "gasUsed": "0x5208",
        "status": "0x1",
        "effectiveGasPrice": "0x7",
        "contractAddress": None,
        "l1Fee": "0x9",
    },
    "eth_getTransactionCount": "0x5",
    "eth_getBalance": "0x6",
    "eth_getCode": "0x",
    "eth_call": "0x" + "00" * 31 + "09",
    "eth_estimateGas": "0x5208",
    "eth_gasPrice": "0x70",
    "eth_feeHistory": {
        "oldestBlock": "0x1",
        "baseFeePerGas": ["0x64", "0x65", "0x66"],
        "gasUsedRatio": [0.5, 0.5],
        "reward": [["0x1", "0x2", "0x3"], ["0x3", "0x4", "0x5"]],
    },
    "eth_sendRawTransaction": "0x" + keccak(RAW).hex(),
}
GOOD["eth_getBlockReceipts"] = [GOOD["eth_getTransactionReceipt"]]

QUESTIONS: dict[str, Callable[[EvmEndpoint], Awaitable[object]]] = {
    "view": lambda endpoint: endpoint.view(),
    "block by number": lambda endpoint: endpoint.block(16),
    "block by hash": lambda endpoint: endpoint.block(HASH),
    "receipts": lambda endpoint: endpoint.receipts(BLOCK, [OTHER]),
    "many receipts": lambda endpoint: endpoint.receipts(BLOCK, [OTHER] * MANY_RECEIPTS),
    "find": lambda endpoint: endpoint.find([OTHER]),
    "account": lambda endpoint: endpoint.account(ALICE, BLOCK),
    "pending": lambda endpoint: endpoint.pending(ALICE),
    "executed": lambda endpoint: endpoint.executed(BLOCK),
    "estimate": lambda endpoint: endpoint.estimate(ALICE, Payload(to=ALICE), BLOCK),
    "replay": lambda endpoint: endpoint.replay(ALICE, Payload(to=ALICE), 21_000, BLOCK),
    "market": lambda endpoint: endpoint.market(),
    "data fees": lambda endpoint: endpoint.data_fees([DRAFT, DRAFT]),
}


class Script:
    """Answers by method; an exception-free value is a result, a tuple (code, message) an error."""

    def __init__(self, **changed: object) -> None:
        self.answers = GOOD | changed

    def __call__(self, body: Any) -> Any:
        return [self.one(call) for call in body] if isinstance(body, list) else self.one(body)

    def one(self, call: dict[str, Any]) -> dict[str, Any]:
        headers_only = call["method"] == "eth_getBlockByHash" and not call["params"][1]
        answer = self.answers["eth_getBlockByNumber" if headers_only else call["method"]]
        if isinstance(answer, tuple):
            return error(call["id"], answer[1], answer[0])
        return {"jsonrpc": "2.0", "id": call["id"], "result": answer}


@asynccontextmanager
async def asking(node: Node, *, finality_tag: bool = True) -> AsyncIterator[EvmEndpoint]:
    endpoint = EvmEndpoint(1, node.url, "node", timeout=5, finality_tag=finality_tag, charges_for_data=True)
    try:
        yield endpoint
    finally:
        await endpoint.close()


def methods(node: Node) -> list[list[str]]:
    return [[call["method"] for call in (body if isinstance(body, list) else [body])] for body in node.bodies]


@asynccontextmanager
async def scripted(**changed: object) -> AsyncIterator[tuple[EvmEndpoint, Node]]:
    async with serving(Script(**changed)) as node, asking(node) as endpoint:
        yield endpoint, node
