"""The limit: bytes signed beforehand, handed over as fast as the node takes them, their receipts read block by block."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

from bench import blocks
from bench.order import Order, Outcome, Stopwatch
from bench.rpc import Rpc, batch, check_sent, connected
from bench.signing import sign
from bench.work import keys, transfers

BATCH: Final = 100
AT_ONCE: Final = 8


async def run(order: Order) -> Outcome:
    lanes = _bodies(order.lanes, order.count)
    turns = [iter(lane) for lane in lanes]
    async with connected(order.url) as rpc:
        watch = Stopwatch(order)
        seen = asyncio.create_task(blocks.executed(rpc, order.count))
        async with asyncio.TaskGroup() as group:
            for number in range(min(AT_ONCE, order.lanes)):
                group.create_task(_blast(rpc, turns[number::AT_ONCE]))
        await seen
        return watch.stop()


async def _blast(rpc: Rpc, lanes: list[Iterator[bytes]]) -> None:
    """A lane's batches one after another, in the order of their nonces."""
    while lanes:
        lanes = [lane for lane in lanes if await _send_next(rpc, lane)]


async def _send_next(rpc: Rpc, lane: Iterator[bytes]) -> bool:
    body = next(lane, None)
    if body is None:
        return False
    check_sent(await rpc.post(body))
    return True


def _bodies(lanes: int, count: int) -> list[list[bytes]]:
    """Whole requests, ready to be sent."""
    known = keys(lanes)
    raws: list[list[str]] = [[] for _ in range(lanes)]
    for transfer in transfers(lanes, count):
        mine = raws[transfer.lane]
        raw = sign(known[transfer.lane], len(mine), bytes.fromhex(transfer.to[2:]), transfer.value)
        mine.append("0x" + raw.hex())
    return [
        [
            batch("eth_sendRawTransaction", [(raw,) for raw in mine[at : at + BATCH]])
            for at in range(0, len(mine), BATCH)
        ]
        for mine in raws
    ]
