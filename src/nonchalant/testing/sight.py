"""What an endpoint shows of the chain: all of it, or less, or what is no longer so.

All answers agree with one head: what lies above it does not exist, and what was mined there is still pending. A
photograph keeps the blocks of its moment, with their receipts and the accounts of those who sent, so that they can be
shown after the node has left that fork. Calls and estimates are not kept: the node makes them on the newest block that
both have.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

from nonchalant.errors import NodeRefused
from nonchalant.testing.upstream import Upstream
from nonchalant.words import Address

Json = dict[str, Any]

COUNT: Final = "eth_getTransactionCount"
ACCOUNT: Final = (COUNT, "eth_getBalance", "eth_getCode")
# Where methods that read the state say at which block.
STATE: Final = {
    **dict.fromkeys(ACCOUNT, 1),
    "eth_getStorageAt": 2,
    "eth_call": 1,
    "eth_estimateGas": 1,
    "eth_createAccessList": 1,
    "eth_feeHistory": 1,
}


@dataclass(frozen=True, slots=True)
class Photograph:
    """The chain from block `low` to its `head`, as it was."""

    low: int
    head: int
    finalized: int | None
    blocks: dict[int, Json]  # with their transactions in full
    receipts: dict[int, list[Json]]
    accounts: dict[tuple[str, Address, int], str]


@dataclass(frozen=True, slots=True)
class Sight:
    """What is wrong with an endpoint's sight; nothing, as it is made."""

    lag: int = 0
    photograph: Photograph | None = None
    finality_ahead: int = 0
    finality_missing: bool = False

    @property
    def clear(self) -> bool:
        return self == Sight()


async def photograph(node: Upstream, depth: int, addresses: Collection[Address]) -> Photograph:
    """The last `depth` blocks and the head; accounts of the addresses and of all who sent something in them."""
    head, finalized = await _ends(node)
    numbers = range(max(0, head - depth), head + 1)
    blocks = await node.ask_all([("eth_getBlockByNumber", (hex(number), True)) for number in numbers])
    receipts = await node.ask_all([("eth_getBlockReceipts", (hex(number),)) for number in numbers])
    senders = {sent["from"].lower() for block in blocks for sent in block["transactions"]}
    keys = [
        (method, address, number)
        for number in numbers
        for address in sorted(senders.union(addresses))
        for method in ACCOUNT
    ]
    accounts = await node.ask_all([(method, (address, hex(number))) for method, address, number in keys])
    return Photograph(
        low=numbers[0],
        head=head,
        finalized=finalized,
        blocks=dict(zip(numbers, blocks, strict=True)),
        receipts=dict(zip(numbers, receipts, strict=True)),
        accounts=dict(zip(keys, accounts, strict=True)),
    )


async def look(sight: Sight, node: Upstream) -> View:
    """What the endpoint shows now."""
    kept = sight.photograph
    head, finalized = (kept.head, kept.finalized) if kept else await _ends(node)
    head = max(0, head - sight.lag)
    if sight.finality_missing or finalized is None:
        return View(node, head, None, kept)
    return View(node, head, min(head, max(0, finalized - sight.lag) + sight.finality_ahead), kept)


async def _ends(node: Upstream) -> tuple[int, int | None]:
    """The head and the finalised block; None where the node knows none."""
    head = int(await node.ask("eth_blockNumber"), 16)
    try:
        finalized = await node.ask("eth_getBlockByNumber", "finalized", False)
    except NodeRefused:
        return head, None
    return head, int(finalized["number"], 16) if finalized else None


class View:
    """One moment of an endpoint's sight; a batch is answered from one."""

    def __init__(self, node: Upstream, head: int, finalized: int | None, kept: Photograph | None) -> None:
        self._node = node
        self._head = head
        self._finalized = finalized
        self._kept = kept
        # Up to here the node's own answers are the ones to show.
        self._shared = head if kept is None else min(head, kept.low - 1)
        self._answers: dict[str, Callable[[Sequence[Any]], Awaitable[object]]] = {
            "eth_blockNumber": self._block_number,
            "eth_getBlockByNumber": self._block,
            "eth_getBlockByHash": self._block,
            "eth_getBlockReceipts": self._block_receipts,
            "eth_getTransactionReceipt": self._receipt,
            "eth_getTransactionByHash": self._transaction,
            "eth_getLogs": self._logs,
        }

    def concerns(self, method: str) -> bool:
        """Whether the answer depends on what is shown of the chain."""
        return method in self._answers or method in STATE

    async def answer(self, method: str, params: Sequence[Any]) -> object:
        """The result of a method that concerns the view; `NodeRefused` as the node would say it."""
        if method in STATE:
            return await self._state(method, list(params))
        return await self._answers[method](params)

    # blocks

    async def _block_number(self, _: Sequence[Any]) -> object:
        return hex(self._head)

    async def _block(self, params: Sequence[Any]) -> object:
        number, full = await self._number(params[0]), params[1:2] == [True]
        if number is None or number > self._head:
            return None
        if number > self._shared:
            return _written(self._photographed(number), full)
        return await self._node.ask("eth_getBlockByNumber", hex(number), full)

    async def _block_receipts(self, params: Sequence[Any]) -> object:
        number = await self._number(params[0])
        if number is None or number > self._head:
            return None
        if number > self._shared and self._kept:
            return self._kept.receipts[number]
        return await self._node.ask("eth_getBlockReceipts", hex(number))

    # transactions

    async def _receipt(self, params: Sequence[Any]) -> object:
        for receipts in self._kept_up_to_head(self._kept.receipts) if self._kept else ():
            for receipt in receipts:
                if receipt["transactionHash"] == params[0]:
                    return receipt
        receipt = await self._node.ask("eth_getTransactionReceipt", *params)
        return receipt if receipt and self._shows(receipt) else None

    async def _transaction(self, params: Sequence[Any]) -> object:
        for block in self._kept_up_to_head(self._kept.blocks) if self._kept else ():
            for transaction in block["transactions"]:
                if transaction["hash"] == params[0]:
                    return transaction
        transaction = await self._node.ask("eth_getTransactionByHash", *params)
        if not transaction or transaction["blockNumber"] is None or self._shows(transaction):
            return transaction
        return {**transaction, "blockHash": None, "blockNumber": None, "transactionIndex": None}

    async def _logs(self, params: Sequence[Any]) -> object:
        [wanted] = params
        if "blockHash" not in wanted:
            ends = {key: await self._number(wanted.get(key, "latest")) for key in ("fromBlock", "toBlock")}
            wanted = {**wanted, **{key: hex(number or 0) for key, number in ends.items()}}
        logs = await self._node.ask("eth_getLogs", wanted)
        return [log for log in logs if self._shows(log)]

    # state

    async def _state(self, method: str, params: list[Any]) -> object:
        place = STATE[method]
        tag = params[place] if len(params) > place else "latest"
        if method == COUNT and tag == "pending":
            return await self._node.ask(method, *params)  # the pool is no part of the view
        if isinstance(tag, dict):  # EIP-1898
            tag = tag.get("blockNumber") or tag["blockHash"]
        number = await self._number(tag)
        if number is None or number > self._head:
            raise NodeRefused("header not found", -32000)
        if self._kept and method in ACCOUNT:
            known = self._kept.accounts.get((method, str(params[0]).lower(), number))
            if known is not None:
                return known
        return await self._node.ask(method, *params[:place], hex(await self._common(number)), *params[place + 1 :])

    async def _common(self, number: int) -> int:
        """The highest block up to this one that the node shares with what is shown."""
        while number > self._shared:
            block = await self._node.ask("eth_getBlockByNumber", hex(number), False)
            if block and block["hash"] == self._photographed(number)["hash"]:
                break
            number -= 1
        return max(0, number)

    # what is shown

    async def _number(self, ref: str) -> int | None:
        """The block that a number, a tag or a hash means here: it may lie above the head; None for an unknown hash."""
        match ref:
            case "latest" | "pending":
                return self._head
            case "earliest":
                return 0
            case "finalized" | "safe":
                if self._finalized is None:
                    raise NodeRefused(f"{ref} block not found", -32000)
                return self._finalized
            case _ if len(ref) == 66:
                return await self._number_of(ref)
            case _:
                return int(ref, 16)

    async def _number_of(self, block_hash: str) -> int | None:
        for block in self._kept_up_to_head(self._kept.blocks) if self._kept else ():
            if block["hash"] == block_hash:
                return int(block["number"], 16)
        block = await self._node.ask("eth_getBlockByHash", block_hash, False)
        number = int(block["number"], 16) if block else None
        return number if number is not None and number <= self._shared else None

    def _shows(self, mined: Json) -> bool:
        """Whether what the node has in a block (of its own fork) is in one that is shown."""
        return int(mined["blockNumber"], 16) <= self._shared

    def _photographed(self, number: int) -> Json:
        assert self._kept is not None
        return self._kept.blocks[number]

    def _kept_up_to_head(self, kept: dict[int, Any]) -> list[Any]:
        return [each for number, each in kept.items() if number <= self._head]


def _written(block: Json, full: bool) -> Json:
    return block if full else {**block, "transactions": [each["hash"] for each in block["transactions"]]}
