"""The chain as it grows: receipts, block by block."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final

import msgspec

from bench.rpc import Rpc

LOOK_SECONDS: Final = 0.05


class Receipt(msgspec.Struct, rename="camel"):
    transaction_hash: str
    status: str


async def follow(rpc: Rpc) -> AsyncIterator[list[Receipt]]:
    """The receipts of each block, from the first one on; all of them successes."""
    number = 0
    while True:
        head = int(await rpc.call("eth_blockNumber", result=str), 16)
        while number < head:
            number += 1
            receipts: list[Receipt] = await rpc.call("eth_getBlockReceipts", hex(number), result=list[Receipt])
            failed = [receipt.transaction_hash for receipt in receipts if receipt.status != "0x1"]
            if failed:
                raise RuntimeError(f"{failed[0]} of block {number} failed, which no transfer should")
            yield receipts
        await asyncio.sleep(LOOK_SECONDS)


async def executed(rpc: Rpc, count: int) -> None:
    """Wait until the chain has executed so many."""
    async for receipts in follow(rpc):
        count -= len(receipts)
        if count <= 0:
            return
