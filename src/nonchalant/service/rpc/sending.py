"""`eth_sendTransaction`: accepted, and answered once it is signed, so that the reply carries a real hash.

What gets no slot in time is called off, unless it has one just then: so whoever hears an error may send again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec

from nonchalant.access import NonceRule, Scope
from nonchalant.asking import OWNER_SECONDS
from nonchalant.errors import (
    BadRequest,
    CommitUnknown,
    MayHaveRun,
    NonceTaken,
    StoreUnavailable,
    TooLate,
    UnknownAccount,
    WishRefused,
)
from nonchalant.health import OUT_OF_FUNDS
from nonchalant.model import Attempt, Fees, Request, Transaction
from nonchalant.scalars import LARGEST_NUMBER, parse_address, parse_amount, parse_number
from nonchalant.service.rpc.asked import Asked
from nonchalant.service.rpc.envelope import UNDECODABLE
from nonchalant.service.rpc.failures import REFUSED, UNAVAILABLE, RpcError
from nonchalant.service.rpc.prices import Named, as_the_key_has_it
from nonchalant.values import replace
from nonchalant.wire import parse_request, rules_of
from nonchalant.words import Hash, LaneKey, State

# How long a client waits for a hash; most give up after half a minute.
HASH_SECONDS: Final = 20.0
# Another node may have signed it: look again, whether or not somebody here was told.
LOOK_AGAIN: Final = 1.0


class Access(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    address: str
    storage_keys: list[str] = []


class Sent(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    rename={
        "sender": "from",
        "gas_price": "gasPrice",
        "max_fee": "maxFeePerGas",
        "priority": "maxPriorityFeePerGas",
        "access_list": "accessList",
        "chain_id": "chainId",
    },
):
    """What clients send, types 0 to 2; quantities in 0x-hex. A field that is not here would be ignored, so it is refused."""

    sender: str
    to: str | None = None
    value: str | None = None
    data: str | None = None
    input: str | None = None
    gas: str | None = None
    gas_price: str | None = None
    max_fee: str | None = None
    priority: str | None = None
    access_list: list[Access] | None = None
    nonce: str | None = None
    chain_id: str | None = None
    type: str | None = None


_sent = msgspec.json.Decoder(Sent).decode

# What geth would say of the same, by the mark of what could not be signed.
_WORDS: Final = {
    OUT_OF_FUNDS: "insufficient funds for gas * price + value",
    "price_below_base_fee": "max fee per gas less than block base fee",
}

# How the same fields are called where requests are parsed.
_NAMES: Final = {"access_list": "accessList", "storage_keys": "storageKeys"}


async def send_transaction(asked: Asked) -> Hash:
    try:
        asked.takes(1, 1)
        asked.must(Scope.TX_WRITE)
        with asked.front.place_to_wait():
            request = await _request(asked)
            await asked.turn.comes()
            submitting = asyncio.ensure_future(asked.front.node.submit(request))
            # It is in the line before the next one of the batch is: tasks begin in the order in which they are made.
            asked.turn.is_over()
            try:
                tx, is_new = await submitting
            except NonceTaken as taken:
                raise RpcError(REFUSED, f"nonce too low: {taken}; ask eth_getTransactionCount", taken.code) from None
            first = await _first_hash(asked, tx, request, is_new=is_new)
            if not is_new and request.asked_nonce is not None and isinstance(request.fees, Fees):
                await _raise_price(asked, tx, request.fees)
            return first
    finally:
        asked.turn.is_over()


# what is asked for


async def _request(asked: Asked) -> Request:
    node, caller = asked.front.node, asked.visit.call.caller
    given = _decoded(asked.question.params[0])
    lane = asked.lane(parse_address(given.sender, "from"))
    if lane is None:
        raise UnknownAccount(f"unknown account: {given.sender} is not among those of eth_accounts")
    _check_chain(given, lane)
    named = Named(
        type=_quantity(given.type, "type"),
        gas_price=_amount(given.gas_price, "gasPrice"),
        max_fee=_amount(given.max_fee, "maxFeePerGas"),
        priority=_amount(given.priority, "maxPriorityFeePerGas"),
    )
    asked_nonce = _nonce(given, caller.nonces)
    fields: dict[str, object] = {
        "chain_id": lane.chain_id,
        "from": lane.address,
        "to": given.to,
        "value": _amount(given.value, "value") or 0,
        "data": _data(given),
        "gas": _quantity(given.gas, "gas"),
        "access_list": [
            {"address": entry.address, "storage_keys": entry.storage_keys} for entry in given.access_list or ()
        ],
    }
    try:
        request = parse_request(
            fields,
            tx_id=node.new_id(),
            settings=node.settings,
            lanes=node.known_lanes,
            caller=caller,
            idempotency_key=asked.idempotency_key,
        )
    except BadRequest as problem:
        raise _renamed(problem) from None
    market = await node.passage.market(lane.chain_id) if named.needs_market else None
    fees = named.fees(market)
    if fees is not None:
        # Not in what makes two requests the same: the same one at a better price is a bump.
        rules = rules_of(lane, node.settings, node.known_lanes)
        request = replace(request, fees=as_the_key_has_it(fees, caller.fees, rules))
    return replace(request, asked_nonce=asked_nonce)


def _decoded(param: msgspec.Raw) -> Sent:
    try:
        return _sent(param)
    except UNDECODABLE as problem:
        raise BadRequest(f"invalid transaction: {str(problem).replace('`', '')}"[:300]) from None


def _check_chain(given: Sent, lane: LaneKey) -> None:
    chain_id = _quantity(given.chain_id, "chainId")
    if chain_id is not None and chain_id != lane.chain_id:
        raise BadRequest(f"chainId does not match node's (have={chain_id}, want={lane.chain_id})")


def _nonce(given: Sent, rule: NonceRule) -> int | None:
    nonce = _quantity(given.nonce, "nonce")
    if nonce is not None and rule is NonceRule.REFUSE:
        raise BadRequest("this key must not name nonces: leave it out, they are given here", field="nonce")
    return nonce if rule is NonceRule.EXACT else None


def _data(given: Sent) -> str:
    if given.data is not None and given.input is not None and given.data.lower() != given.input.lower():
        raise BadRequest('both "data" and "input" are set and not equal')
    return given.input or given.data or "0x"


def _amount(text: str | None, field: str) -> int | None:
    return None if text is None else parse_amount(_hex(text, field), field)


def _quantity(text: str | None, field: str) -> int | None:
    return None if text is None else parse_number(_hex(text, field), field, LARGEST_NUMBER)


def _hex(text: str, field: str) -> str:
    """Decimal digits without 0x would be taken for ten times less, or sixteen, by somebody."""
    if not text.startswith("0x"):
        raise BadRequest("expected a quantity in 0x-hex", field=field)
    return text


def _renamed(problem: BadRequest) -> BadRequest:
    field = problem.field
    for ours, theirs in _NAMES.items():
        field = field.replace(ours, theirs) if field else None
    return type(problem)(problem.bare, field)


# what becomes of it


async def _first_hash(asked: Asked, tx: Transaction, request: Request, *, is_new: bool) -> Hash:
    """The hash under which it can be asked for from now on; `RpcError` if there will be none."""
    node, clock = asked.front.node, asyncio.get_running_loop().time
    deadline = clock() + HASH_SECONDS
    # Who may repeat the request under its name loses nothing by leaving; anybody else would pay twice.
    can_be_repeated = not is_new or request.idempotency_key is not None or request.asked_nonce is not None
    while True:
        left = deadline - clock()
        # Before it is read: what happens in between rings.
        news = asyncio.create_task(node.wait_for_change(tx.id, max(0.0, min(left, LOOK_AGAIN))))
        try:
            first = first_hash(await asked.front.attempts.find(tx.id) or ())
            if first is not None:
                return first
            if not tx.live:
                raise _ended(tx)
            if left <= 0 or asked.front.closing or (asked.visit.has_left and not can_be_repeated):
                return await _called_off(asked, tx, is_new=is_new)
            await news
            # Most news is that it is signed, and many calls share one look at that.
            first = first_hash(await asked.front.attempts.find(tx.id) or ())
            if first is not None:
                return first
            tx = await node.store.transaction(tx.id) or tx
        except (StoreUnavailable, CommitUnknown):
            # It is accepted: that nothing was written is not true of it, and whoever heard so would send it again.
            if left <= 0 or asked.front.closing:
                raise _in_doubt(tx) from None
            await news
        finally:
            news.cancel()


def first_hash(attempts: Sequence[Attempt]) -> Hash | None:
    """The one that was answered, or would have been. None: nothing of what was asked for is signed."""
    return next((attempt.hash for attempt in attempts if attempt.payload_version > 0), None)


async def _called_off(asked: Asked, tx: Transaction, *, is_new: bool) -> Hash:
    node = asked.front.node
    if not is_new:
        why = f"it still waits under the id {tx.id}{_because(tx)}; ask again in the same way"
        raise RpcError(REFUSED, f"not signed yet: {why}", "not_signed_yet", tx.id)
    try:
        await node.asking.call_off(tx.id)
    except TooLate:
        first = first_hash((await node.store.attempts([tx.id]))[tx.id])
        if first is None:
            raise _ended(await node.store.transaction(tx.id) or tx) from None
        return first
    except MayHaveRun:
        return await _held_back(asked, tx)
    raise RpcError(REFUSED, f"{_not_sent(tx)}; it was called off, and nothing will be sent", _code_of(tx), tx.id)


async def _held_back(asked: Asked, tx: Transaction) -> Hash:
    """Nothing of the lane is ended while it is compared with its chain; but nothing has to be sent after that either."""
    node = asked.front.node
    try:
        await node.asking.hold(tx.id, "it had no nonce in time, and whoever sent it was told that nothing will be sent")
    except TooLate:
        first = first_hash((await node.store.attempts([tx.id]))[tx.id])
        if first is None:
            raise _ended(await node.store.transaction(tx.id) or tx) from None
        return first
    why = "the account is being compared with its chain, so it is held"
    raise RpcError(
        REFUSED, f"{_not_sent(tx)}; {why}, and nothing will be sent unless somebody releases it", _code_of(tx), tx.id
    )


def _in_doubt(tx: Transaction) -> RpcError:
    words = f"it was accepted as {tx.id}, and the store does not answer now: it may still be sent, so look before you send it again"
    return RpcError(UNAVAILABLE, words, "store_unavailable", tx.id)


def _not_sent(tx: Transaction) -> str:
    """In the words that clients look for, where there are any."""
    code = tx.attention.code if tx.attention else None
    words = _WORDS.get(code or "", f"no nonce was given to it within {HASH_SECONDS:g} s")
    return f"{words}{_because(tx)}"


def _code_of(tx: Transaction) -> str:
    return tx.attention.code if tx.attention else "not_signed_in_time"


def _because(tx: Transaction) -> str:
    return f" ({tx.attention.reason})" if tx.attention else ""


def _ended(tx: Transaction) -> RpcError:
    """It came to nothing before anything was signed."""
    if tx.state is not State.FAILED:
        return RpcError(REFUSED, f"it was {tx.state} before it was signed; nothing was sent", tx.state.value, tx.id)
    reason = tx.failure or "it failed"
    for words in ("nonce too low", "nonce too high"):
        if reason.startswith(words):
            return RpcError(REFUSED, reason, words.replace(" ", "_"), tx.id)
    return RpcError(REFUSED, f"{reason}; nothing was sent", "failed", tx.id)


async def _raise_price(asked: Asked, tx: Transaction, named: Fees) -> None:
    """The same request again: if it offers more than it did so far, that is a bump."""
    node = asked.front.node
    attempts = (await node.store.attempts([tx.id]))[tx.id]
    offers = [attempt.fees for attempt in attempts if attempt.payload_version > 0]
    dearer = all(named.max_fee > offer.max_fee or (named.priority or 0) > (offer.priority or 0) for offer in offers)
    if not dearer:
        return
    try:
        await node.asking.bump(tx.id, named, patience=OWNER_SECONDS)
    except TooLate:
        return  # the chain has it: there is nothing to hurry
    except WishRefused as refusal:
        if refusal.why in ("already_executed", "nonce_used"):
            return
        words = "replacement transaction underpriced: " if refusal.why == "underpriced" else ""
        raise RpcError(REFUSED, f"{words}{refusal}", refusal.why, tx.id) from None
