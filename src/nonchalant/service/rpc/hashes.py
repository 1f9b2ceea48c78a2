"""The first hash stays valid: a transaction and its receipt are found under it, whatever took its slot in the end.

Only what carries the user's payload lends its status. What a cancel took, or somebody else, is a receipt that failed, of
the block that decided it; what may still run has none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from nonchalant.errors import BadRequest, Unreachable
from nonchalant.model import Attempt, Transaction
from nonchalant.ports import Filter
from nonchalant.scalars import parse_hash
from nonchalant.service.rpc.asked import Asked
from nonchalant.service.rpc.envelope import value_of
from nonchalant.service.rpc.passing import pass_on
from nonchalant.words import Millis, State

NO_LOGS: Final = "0x" + "00" * 256
NOWHERE: Final = {"blockHash": None, "blockNumber": None, "transactionIndex": None}
WHERE: Final = tuple(NOWHERE)


@dataclass(frozen=True, slots=True)
class Found:
    """A transaction of ours, with the attempt that has the hash which was asked for."""

    tx: Transaction
    attempts: Sequence[Attempt]
    asked_for: Attempt


@dataclass(frozen=True, slots=True)
class Ran:
    """What the chain did about it. `attempt` None: none of its own; the receipt is made up, but for its block."""

    receipt: dict[str, Any]
    attempt: Attempt | None

    @property
    def carries_payload(self) -> bool:
        return self.attempt is not None and self.attempt.payload_version > 0


async def transaction_by_hash(asked: Asked) -> object:
    asked.takes(1, 1)
    found = await _find(asked)
    if found is None:
        return await pass_on(asked)
    ran = await _ran(asked, found)
    return shown_transaction(asked.front.node.passage.show(found.asked_for.raw), found.tx, ran)


async def receipt(asked: Asked) -> object:
    asked.takes(1, 1)
    found = await _find(asked)
    if found is None:
        return await pass_on(asked)
    ran = await _ran(asked, found)
    return None if ran is None else shown_receipt(found, ran)


def shown_transaction(shown: dict[str, object], tx: Transaction, ran: Ran | None) -> dict[str, object]:
    """Always the payload that was asked for; only where it is comes from what ran."""
    if ran is None:
        return {**shown, **NOWHERE, "nonchalantHash": tx.hash, "nonchalantState": tx.state.value}
    where = {name: ran.receipt.get(name) for name in WHERE}
    return {**shown, **where, **_told(tx, ran)}


def shown_receipt(found: Found, ran: Ran) -> dict[str, object]:
    asked_for = found.asked_for.hash
    same = {**ran.receipt, "transactionHash": asked_for, **_told(found.tx, ran)}
    if ran.carries_payload:
        return {**same, "logs": [{**log, "transactionHash": asked_for} for log in ran.receipt.get("logs") or ()]}
    payload = found.tx.payload_of(found.asked_for.payload_version)
    return {**same, "to": payload.to, "status": "0x0", "logs": [], "logsBloom": NO_LOGS, "contractAddress": None}


def _told(tx: Transaction, ran: Ran) -> dict[str, object]:
    state: State
    if ran.carries_payload:
        state = State.MINED if tx.state in (State.QUEUED, State.SIGNED, State.SENT) else tx.state
    else:
        state = State.CANCELLED if tx.live else tx.state  # a cancel is in a block, and not final yet
    return {
        "nonchalantHash": None if ran.attempt is None else ran.attempt.hash,
        "nonchalantState": state.value,
    }


async def _find(asked: Asked) -> Found | None:
    """None: it is not ours, or not the caller's to see; a node may know it. So may it know what took the place of
    something of ours."""
    try:
        hash = parse_hash(str(value_of(asked.question.params[0], "hash")), "hash")
    except BadRequest:
        return None
    store, caller = asked.front.node.store, asked.visit.call.caller
    signed = await store.transactions(Filter(hash=hash, chain_id=asked.chain.id))
    visible = [tx for tx in signed if caller.may_see(tx)]
    attempts = await store.attempts([tx.id for tx in visible])
    for tx in visible:
        for attempt in attempts[tx.id]:
            if attempt.hash == hash and attempt.payload_version > 0 and attempt.raw:
                return Found(tx, attempts[tx.id], attempt)
    return None


async def _ran(asked: Asked, found: Found) -> Ran | None:
    """None: it may still run. The node is asked for all that could have run: its blocks may be ahead of what we saw."""
    tx = found.tx
    if tx.receipt is not None:
        ran = await _receipts(asked, [one for one in found.attempts if one.hash == tx.receipt.hash])
        if ran is not None or not tx.live:
            return ran
    ran = await _receipts(asked, found.attempts)
    if ran is not None or tx.live:
        return ran
    block = await _block_at(asked, tx.updated_at)
    return None if block is None else Ran(_made_up(found, block), None)


async def _receipts(asked: Asked, attempts: Sequence[Attempt]) -> Ran | None:
    """Where a node has one of these executed. `Unreachable` if it does not say."""
    answers = await asyncio.gather(*(_ask(asked, "eth_getTransactionReceipt", attempt.hash) for attempt in attempts))
    for attempt, answer in zip(attempts, answers, strict=True):
        if isinstance(answer, dict) and answer.get("blockHash") is not None:
            return Ran(answer, attempt)
    return None


async def _ask(asked: Asked, method: str, *params: object) -> Any:
    raw = await asked.front.node.passage.ask(asked.chain.id, method, params)
    return msgspec.json.decode(raw)


async def _block_at(asked: Asked, at: Millis) -> dict[str, Any] | None:
    """The first block since then: the same one whoever asks and whenever. None: there is none yet."""
    newest = await _ask(asked, "eth_getBlockByNumber", "latest", False)
    if _seconds(newest) * 1000 < at:
        return None
    low, high = 0, int(newest["number"], 16)
    found = newest
    while low < high:
        middle = (low + high) // 2
        block = await _ask(asked, "eth_getBlockByNumber", hex(middle), False)
        if _seconds(block) * 1000 >= at:
            high, found = middle, block
        else:
            low = middle + 1
    return dict(found)


def _seconds(block: Any) -> int:
    if not isinstance(block, dict):
        raise Unreachable("the endpoint does not have a block below its newest one")
    return int(block["timestamp"], 16)


def _made_up(found: Found, block: dict[str, Any]) -> dict[str, Any]:
    """The receipt of what ended with no slot of its own: it failed, did nothing and cost nothing."""
    return {
        "blockHash": block["hash"],
        "blockNumber": block["number"],
        "transactionIndex": "0x0",
        "from": found.tx.lane.address,
        "cumulativeGasUsed": "0x0",
        "gasUsed": "0x0",
        "effectiveGasPrice": "0x0",
        "type": "0x0" if found.asked_for.fees.priority is None else "0x2",
    }
