"""The bare prototype: batches are inserted, signed, updated, sent, and confirmed by the receipts of each block.

No leases, no history, no prices, no rescue, no other node: what is left is about what the hot path must cost at least.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Final

import asyncpg

from bench import blocks
from bench.order import Order, Outcome, Stopwatch
from bench.rpc import Rpc, batch, check_sent, connected
from bench.signing import sign
from bench.work import Transfer, keys, transfers
from nonchalant.chain.evm.keccak import keccak

INSERTED: Final = 200  # at once
SENT: Final = 100
AT_ONCE: Final = 8

TABLE: Final = """
CREATE TABLE transactions (
    id      BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    address TEXT NOT NULL,
    "to"    TEXT NOT NULL,
    value   BIGINT NOT NULL,
    state   TEXT NOT NULL,
    nonce   BIGINT,
    hash    TEXT UNIQUE,
    raw     BYTEA
)
"""
INSERT: Final = """
INSERT INTO transactions (address, "to", value, state)
SELECT address, "to", value, 'queued' FROM unnest($1::TEXT[], $2::TEXT[], $3::BIGINT[]) AS new (address, "to", value)
RETURNING id
"""
SIGN: Final = """
UPDATE transactions SET state = 'sent', nonce = signed.nonce, hash = signed.hash, raw = signed.raw
FROM unnest($1::BIGINT[], $2::BIGINT[], $3::TEXT[], $4::BYTEA[]) AS signed (id, nonce, hash, raw)
WHERE transactions.id = signed.id
"""
CONFIRM: Final = "UPDATE transactions SET state = 'confirmed' WHERE hash = ANY($1::TEXT[])"


async def run(order: Order) -> Outcome:
    known = keys(order.lanes)
    nonces = [0] * order.lanes
    async with (
        connected(order.url) as rpc,
        asyncpg.create_pool(order.store, min_size=AT_ONCE + 1, max_size=AT_ONCE + 1) as pool,
    ):
        await pool.execute(TABLE)
        watch = Stopwatch(order)
        async with asyncio.TaskGroup() as group:
            group.create_task(_confirm(rpc, pool, order.count))
            for number in range(min(AT_ONCE, order.lanes)):
                group.create_task(_work(rpc, pool, _share(order, number), known, nonces))
        return watch.stop()


def _share(order: Order, worker: int) -> Iterator[Transfer]:
    """A lane is one worker's alone, so its nonces go out in their order."""
    return (each for each in transfers(order.lanes, order.count) if each.lane % AT_ONCE == worker)


async def _work(rpc: Rpc, pool: Any, mine: Iterator[Transfer], known: Sequence[Any], nonces: list[int]) -> None:
    while asked := list(islice(mine, INSERTED)):
        rows = await pool.fetch(
            INSERT, [each.sender for each in asked], [each.to for each in asked], [each.value for each in asked]
        )
        signed = []
        for each, row in zip(asked, rows, strict=True):
            nonce = nonces[each.lane]
            nonces[each.lane] += 1
            raw = sign(known[each.lane], nonce, bytes.fromhex(each.to[2:]), each.value)
            signed.append((row["id"], nonce, "0x" + keccak(raw).hex(), raw))
        await pool.execute(SIGN, *map(list, zip(*signed, strict=True)))
        for at in range(0, len(signed), SENT):
            body = batch("eth_sendRawTransaction", [("0x" + raw.hex(),) for *_, raw in signed[at : at + SENT]])
            check_sent(await rpc.post(body))


async def _confirm(rpc: Rpc, pool: Any, count: int) -> None:
    async for receipts in blocks.follow(rpc):
        if receipts:
            await pool.execute(CONFIRM, [receipt.transaction_hash for receipt in receipts])
        count -= len(receipts)
        if count <= 0:
            return
