"""What passes through the fault proxy: each request is decided on, handed to the node or not, and recorded."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, TypeVar

import msgspec

from nonchalant.chain.evm.decoding import RawTransaction, decode, hash_of
from nonchalant.errors import NodeRefused, Unreachable
from nonchalant.testing.faults import (
    SEND,
    CallFault,
    Canned,
    Hang,
    HttpAnswer,
    Late,
    Outcome,
    Rule,
    Silence,
    Slow,
)
from nonchalant.testing.rules import Held, Pooled, PoolRule, Refusal, Swallowed, Verdict
from nonchalant.testing.sight import ACCOUNT, Sight, View, look
from nonchalant.testing.upstream import Upstream
from nonchalant.values import replace
from nonchalant.words import Hash

F = TypeVar("F")
Json = dict[str, Any]

DELEGATION: Final = "0xef0100"  # how an account's code starts that an EIP-7702 authorisation delegated


class Told(StrEnum):
    """What the client heard about a transaction."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    NOTHING = "nothing"


@dataclass(slots=True, eq=False, kw_only=True)
class Sent:
    """One `eth_sendRawTransaction` that came to the proxy, and what became of it. Times are the event loop's."""

    raw: bytes
    hash: Hash
    transaction: RawTransaction | None  # None: bytes that we cannot read
    at: float
    told: Told = Told.NOTHING
    message: str = ""  # of the refusal that the client heard
    delivered_at: float | None = None  # when the node was handed the bytes, the last time
    taken: bool = False  # whether it took them then


@dataclass(frozen=True, slots=True)
class Call:
    id: object
    method: str
    params: list[Any]
    sent: Sent | None

    @property
    def transaction(self) -> RawTransaction | None:
        return self.sent.transaction if self.sent else None


class Traffic:
    """The faults in force, and what has passed."""

    def __init__(self, node: Upstream) -> None:
        self.node = node
        self.call_rules: list[Rule[CallFault]] = []
        self.request_rules: list[Rule[Outcome]] = []
        self.slow_rules: list[Rule[Slow]] = []
        self.pool_rules: list[Rule[PoolRule]] = []
        self.sight = Sight()
        self.sent: list[Sent] = []
        self.held: list[Sent] = []
        self.calls: Counter[str] = Counter()
        self.requests = 0
        self.addresses: set[str] = set()  # that were asked about, or sent something
        self._handing_over = asyncio.Lock()

    async def reply(self, body: bytes) -> tuple[Outcome, float]:
        """What the client gets for this request, and how many seconds later than it could."""
        self.requests += 1
        try:
            calls, batch = self._read(body)
        except (msgspec.DecodeError, TypeError, KeyError):
            calls, batch = [], False  # no JSON-RPC: that is for the node to say
        delay = sum(fault.seconds for fault in _striking(self.slow_rules, calls))
        fault = next(_striking(self.request_rules, calls), None)
        if fault is not None and not fault.delivered:
            return fault, delay
        try:
            reply = await self._answered(body, calls, batch)
        except Unreachable as problem:
            return HttpAnswer(502, str(problem).encode(), "text/plain"), delay
        if fault is None:
            return reply, delay
        for call in calls:
            if call.sent:
                call.sent.told, call.sent.message = Told.NOTHING, ""
        return fault, delay

    async def hand_over(self, sent: Sent) -> Json:
        """Give the bytes to the node, whose pool has our rules; its answer, as `result` or `error`."""
        async with self._handing_over:  # else two could be judged by the same pool
            verdict = await self._verdict(sent)
            sent.delivered_at = _now()
            if isinstance(verdict, Refusal):
                answer = _error(verdict)
            elif isinstance(verdict, Swallowed):
                answer = {"result": sent.hash}
            else:
                answer = await _said(self.node.ask(SEND, "0x" + sent.raw.hex()))
            sent.taken = verdict is None and "result" in answer
        return answer

    def see(self, **change: Any) -> None:
        self.sight = replace(self.sight, **change)

    # reading

    def _read(self, body: bytes) -> tuple[list[Call], bool]:
        request = msgspec.json.decode(body)
        batch = isinstance(request, list)
        calls = [self._call(each) for each in (request if batch else [request])]
        for call in calls:
            self.calls[call.method] += 1
            if call.sent:
                self.sent.append(call.sent)
                self.addresses |= {call.transaction.sender} if call.transaction else set()
            elif call.method in ACCOUNT and call.params:
                self.addresses.add(str(call.params[0]).lower())
        return calls, batch

    @staticmethod
    def _call(item: Json) -> Call:
        method, params = str(item["method"]), item.get("params") or []
        sent = None
        if method == SEND:
            with suppress(ValueError, TypeError, IndexError):  # no bytes at all: that is for the node to say
                raw = bytes.fromhex(params[0].removeprefix("0x"))
                sent = Sent(raw=raw, hash=hash_of(raw), transaction=_decoded(raw), at=_now())
        return Call(item.get("id"), method, params, sent)

    # answering

    async def _answered(self, body: bytes, calls: Sequence[Call], batch: bool) -> Outcome:
        healthy = not (self.call_rules or self.pool_rules) and self.sight.clear
        if healthy or not calls:
            return await self._untouched(body, calls)
        view = None if self.sight.clear else await look(self.sight, self.node)
        answers = [await self._answer(call, view) for call in calls]
        items = [
            {"jsonrpc": "2.0", "id": call.id, **answer}
            for call, answer in zip(calls, answers, strict=True)
            if answer is not None
        ]
        if not items:
            return Hang()
        return HttpAnswer(200, msgspec.json.encode(items if batch else items[0]))

    async def _untouched(self, body: bytes, calls: Sequence[Call]) -> HttpAnswer:
        """The whole request as it came, which is what nodes are fast at."""
        handed_over = _now()
        answer = await self.node.forward(body)
        sending = {call.id: call.sent for call in calls if call.sent}
        if sending:
            answers = msgspec.json.decode(answer)
            bare = answers if isinstance(answers, dict) else None  # one error for a whole batch, or the one answer
            by_id = {each["id"]: each for each in answers} if bare is None else {}
            for number, sent in sending.items():
                said = bare or by_id.get(number, {})
                sent.delivered_at, sent.taken = handed_over, "result" in said
                if said:
                    _tell(sent, said)
        return HttpAnswer(200, answer)

    async def _answer(self, call: Call, view: View | None) -> Json | None:
        """`result` or `error`; None: the client hears nothing."""
        answer = await self._after_faults(call, view)
        if call.sent and answer:
            _tell(call.sent, answer)
        return answer

    async def _after_faults(self, call: Call, view: View | None) -> Json | None:
        match next(_striking(self.call_rules, [call]), None):
            case Refusal() as refusal:
                return _error(refusal)
            case Canned(result):
                return {"result": result}
            case Silence(delivered):
                if delivered:
                    await self._from_node(call, view)
                return None
            case Swallowed() if call.sent:
                return {"result": call.sent.hash}
            case Late(answered) if call.sent:
                self.held.append(call.sent)
                return {"result": call.sent.hash} if answered else None
            case _:
                return await self._from_node(call, view)

    async def _from_node(self, call: Call, view: View | None) -> Json:
        if call.sent:
            return await self.hand_over(call.sent)
        if view is not None and view.concerns(call.method):
            return await _said(view.answer(call.method, call.params))
        return await _said(self.node.ask(call.method, *call.params))

    # the pool

    async def _verdict(self, sent: Sent) -> Verdict:
        transaction = sent.transaction
        rules = [rule for rule in self.pool_rules if rule.wants(SEND, transaction)]
        if not rules or transaction is None:
            return None
        pooled = await self._pooled(transaction)
        known = transaction.nonce in pooled.held and pooled.held[transaction.nonce].hash == transaction.hash
        if known or transaction.nonce < pooled.count:
            return None  # nodes look at that first, and ours does
        for rule in rules:
            verdict = rule.fault.judge(transaction, pooled)
            if verdict is not None:
                rule.strike()
                return verdict
        return None

    async def _pooled(self, transaction: RawTransaction) -> Pooled:
        """Read anew each time, because others may use the node too; good for pools of hundreds, slow beyond."""
        sender = transaction.sender
        count, next_nonce, code, content = await self.node.ask_all(
            [
                ("eth_getTransactionCount", (sender, "latest")),
                ("eth_getTransactionCount", (sender, "pending")),
                ("eth_getCode", (sender, "latest")),
                ("txpool_content", ()),
            ]
        )
        pools = [(owner.lower(), held) for part in ("pending", "queued") for owner, held in content[part].items()]
        return Pooled(
            count=int(count, 16),
            next_nonce=int(next_nonce, 16),
            held={int(nonce): _held(each) for owner, held in pools if owner == sender for nonce, each in held.items()},
            size=sum(len(held) for _, held in pools),
            delegated=code.startswith(DELEGATION),
        )


def _striking(rules: Sequence[Rule[F]], calls: Sequence[Call]) -> Iterator[F]:
    """The faults that want one of the calls; each is counted as it is taken."""
    for rule in tuple(rules):
        if any(rule.wants(call.method, call.transaction) for call in calls):
            rule.strike()
            yield rule.fault


async def _said(question: Awaitable[object]) -> Json:
    try:
        return {"result": await question}
    except NodeRefused as refusal:
        return _error(Refusal(refusal.message, refusal.node_code or -32000, refusal.data))


def _error(refusal: Refusal) -> Json:
    more = {} if refusal.data is None else {"data": refusal.data}
    return {"error": {"code": refusal.code, "message": refusal.message, **more}}


def _tell(sent: Sent, answer: Json) -> None:
    sent.told = Told.REFUSED if "error" in answer else Told.ACCEPTED
    sent.message = answer["error"]["message"] if "error" in answer else ""


def _decoded(raw: bytes) -> RawTransaction | None:
    try:
        return decode(raw)
    except ValueError:
        return None


def _held(pooled: Json) -> Held:
    price = pooled.get("gasPrice", "0x0")
    return Held(
        hash=pooled["hash"],
        max_fee=int(pooled.get("maxFeePerGas") or price, 16),
        priority=int(pooled.get("maxPriorityFeePerGas") or price, 16),
    )


def _now() -> float:
    return asyncio.get_running_loop().time()
