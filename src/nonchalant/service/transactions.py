"""The calls about transactions."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Final

from nonchalant.asking import OWNER_SECONDS
from nonchalant.errors import BadRequest, NotFound
from nonchalant.fees import FeeRules
from nonchalant.model import Transaction
from nonchalant.scalars import LARGEST_NUMBER, parse_number
from nonchalant.service.front import Front
from nonchalant.service.http import Answer, Call, Gone
from nonchalant.values import replace
from nonchalant.views import BatchView, EventsView, TransactionsView, TransactionView, show_event, show_transaction
from nonchalant.waiting_for import NOTHING_KNOWN
from nonchalant.wire import (
    FILTERS,
    parse_batch,
    parse_bump,
    parse_filter,
    parse_nothing,
    parse_reason,
    parse_release,
    parse_replacement,
    parse_request,
    rules_of,
)

LONGEST_WAIT: Final = 60.0
# Another node may have made the change: look again, whether or not somebody here was told.
LOOK_AGAIN: Final = 1.0


async def post_transaction(front: Front, call: Call) -> Answer:
    call.only(())
    node = front.node
    request = parse_request(
        await call.json_body(),
        tx_id=node.new_id(),
        settings=node.settings,
        lanes=node.known_lanes,
        caller=call.caller,
        idempotency_key=call.header("Idempotency-Key"),
    )
    tx, created = await node.submit(request)
    headers = {"Location": f"/v1/transactions/{tx.id}"}
    if not created:
        headers["Idempotency-Replayed"] = "true"
    return Answer(show_transaction(tx, ()) if created else await _shown(front, tx), 202, headers)


async def post_batch(front: Front, call: Call) -> Answer:
    call.only(())
    node = front.node
    requests = parse_batch(
        await call.json_body(),
        new_id=node.new_id,
        settings=node.settings,
        lanes=node.known_lanes,
        caller=call.caller,
        idempotency_key=call.header("Idempotency-Key"),
    )
    front.gate.charge(call.caller, len(requests) - 1)
    found, created = await node.submit_together(requests)
    batch = found[0].batch
    assert batch is not None
    headers = {"Location": f"/v1/transactions?batch={batch}"}
    if created:
        shown = [show_transaction(tx, ()) for tx in found]
    else:
        headers["Idempotency-Replayed"] = "true"
        shown = await _listed(front, found)
    return Answer(BatchView(batch=batch, transactions=shown), 202, headers)


async def get_transaction(front: Front, call: Call) -> Answer:
    given = call.only(("wait", "after"))
    patience = _seconds(given.get("wait", "0"))
    after = parse_number(given["after"], "after", LARGEST_NUMBER) if "after" in given else None
    tx = await _find(front, call)
    if patience > 0 and not _has_moved(tx, after):
        with front.place_to_wait():
            tx = await _moved(front, call, tx, after, patience)
    return Answer(await _shown(front, tx))


async def list_transactions(front: Front, call: Call) -> Answer:
    wanted = replace(parse_filter(call.only(FILTERS)), within=call.caller.within)
    found = await front.node.store.transactions(wanted)
    return Answer(
        TransactionsView(
            transactions=await _listed(front, found),
            next_cursor=str(found[-1].place) if len(found) == wanted.limit else None,
        )
    )


async def get_history(front: Front, call: Call) -> Answer:
    call.only(())
    tx = await _find(front, call)
    events = await front.node.store.history(tx.id)
    return Answer(EventsView(events=[show_event(event) for event in events]))


async def cancel_transaction(front: Front, call: Call) -> Answer:
    parse_nothing(await call.wish())
    tx = await _find(front, call)
    return await _wished(front, await front.node.asking.cancel(tx.id, patience=OWNER_SECONDS))


async def bump_transaction(front: Front, call: Call) -> Answer:
    body, tx = await call.wish(), await _find(front, call)
    fees = parse_bump(body, _rules_of(front, tx))
    return await _wished(front, await front.node.asking.bump(tx.id, fees, patience=OWNER_SECONDS))


async def replace_transaction(front: Front, call: Call) -> Answer:
    body, tx = await call.wish(), await _find(front, call)
    payload, fees = parse_replacement(body, _rules_of(front, tx))
    return await _wished(front, await front.node.asking.replace(tx.id, payload, fees, patience=OWNER_SECONDS))


async def hold_transaction(front: Front, call: Call) -> Answer:
    reason = parse_reason(await call.wish())
    tx = await _find(front, call)
    return await _wished(front, await front.node.asking.hold(tx.id, reason))


async def release_transaction(front: Front, call: Call) -> Answer:
    mark = parse_release(await call.wish())
    tx = await _find(front, call)
    return await _wished(front, await front.node.asking.release(tx.id, mark))


async def _wished(front: Front, tx: Transaction) -> Answer:
    return Answer(await _shown(front, tx), 202)


def _rules_of(front: Front, tx: Transaction) -> FeeRules:
    return rules_of(tx.lane, front.node.settings, front.node.known_lanes)


async def _find(front: Front, call: Call) -> Transaction:
    """The transaction that the path names; `NotFound` also if the caller may not see it."""
    (tx_id,) = call.parts
    tx = await front.node.store.transaction(tx_id)
    if tx is None or not call.caller.may_see(tx):
        raise NotFound(f"there is no transaction {tx_id[:100]!r}")
    return tx


def _has_moved(tx: Transaction, after: int | None) -> bool:
    return not tx.live or (after is not None and tx.version > after)


async def _moved(front: Front, call: Call, tx: Transaction, after: int | None, patience: float) -> Transaction:
    """The transaction once it has moved, or as it is when the time is over or the service closes."""
    clock = asyncio.get_running_loop().time
    deadline = clock() + patience
    # A client that gave up gives its place back.
    leaving = asyncio.create_task(call.left())
    try:
        while not _has_moved(tx, after) and (left := deadline - clock()) > 0 and not front.closing:
            await front.node.wait_for_change(tx.id, min(left, LOOK_AGAIN))
            if leaving.done():
                raise Gone
            await front.gate.recognise(call)  # who was let in may have lost his key since
            tx = await _find(front, call)
    finally:
        leaving.cancel()
    return tx


async def _listed(front: Front, found: Sequence[Transaction]) -> list[TransactionView]:
    attempts = await front.node.store.attempts([tx.id for tx in found])
    around = await front.node.situations(found)
    return [
        # Without the blocks above each: a page would be megabytes of them.
        show_transaction(tx, attempts.get(tx.id, ()), replace(around.get(tx.id, NOTHING_KNOWN), above=None))
        for tx in found
    ]


async def _shown(front: Front, tx: Transaction) -> TransactionView:
    attempts = await front.node.store.attempts([tx.id])
    around = await front.node.situations([tx])
    return show_transaction(tx, attempts.get(tx.id, ()), around.get(tx.id, NOTHING_KNOWN))


def _seconds(text: str) -> float:
    # As JSON writes numbers, and no other way that Python would read.
    seconds = float(text) if re.fullmatch(r"[0-9]{1,20}(\.[0-9]{1,30})?([eE][-+]?[0-9]{1,3})?", text) else -1.0
    if not 0 <= seconds <= LONGEST_WAIT:
        raise BadRequest(f"expected seconds from 0 to {LONGEST_WAIT:g}", field="wait")
    return seconds
