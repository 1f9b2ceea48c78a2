"""One EVM node as the stages see it, and the chain that several of them serve."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

import msgspec

from nonchalant.chain.evm import decoding, encoding, pricing, publishing, reverts, wire
from nonchalant.chain.evm.keccak import keccak
from nonchalant.chain.evm.rpc import UNDECODABLE, Call, Reply, Rpc
from nonchalant.errors import NodeRefused, Unencodable, Unreachable
from nonchalant.model import (
    Accepted,
    Account,
    Answer,
    Block,
    BlockRef,
    Draft,
    Executed,
    Fees,
    Market,
    Payload,
    Receipt,
    Recognised,
    Refused,
    Sealed,
    Unknown,
    View,
)
from nonchalant.ports import Endpoint
from nonchalant.rejections import Rejection, classify
from nonchalant.values import replace
from nonchalant.words import Address, Hash, Speed, Wei

T = TypeVar("T")

CHAIN_ID: Final = Call("eth_chainId", shared=True)
FEE_HISTORY: Final = Call("eth_feeHistory", ("0x14", "latest", tuple(wire.PERCENTILES.values())), shared=True)
NO_SUCH_METHOD: Final = frozenset({-32601, -32602, -32004})  # unknown, called otherwise, or not offered
# From here on the whole block's receipts are cheaper than single ones: hosted nodes charge them like 25 to 33, and
# what is not asked of anvil singly costs it the same again (its work grows with block size times receipts).
MANY_RECEIPTS: Final = 32
PASSED_AT_ONCE: Final = 32  # questions of others that one node is asked at a time


class EvmEndpoint:
    """One node. It is asked which chain it serves with its first question, with each `view`, and again after it was
    unreachable; while that is another chain than ours, it answers nothing and is handed nothing.

    `quotes`, which their maker closes, come before the node's own prices. `charges_for_data`: it is an OP-stack node,
    which takes a fee beside gas for publishing."""

    def __init__(
        self,
        chain_id: int,
        url: str,
        name: str,
        *,
        timeout: float,
        finality_tag: bool,
        quotes: pricing.Quotes | None = None,
        charges_for_data: bool = False,
    ) -> None:
        self.name = name
        self._chain_id = chain_id
        self._rpc = Rpc(url, name, timeout=timeout)
        # What others ask travels apart, and each question alone: it may be malformed, or take a node seconds.
        self._passing = Rpc(url, name, timeout=timeout, batch_items=1, concurrency=PASSED_AT_ONCE)
        self._finality_tag = finality_tag
        self._quotes = quotes
        self._charges_for_data = charges_for_data
        self._recognised = False
        self._has_block_receipts = True

    def __repr__(self) -> str:
        return f"EvmEndpoint({self.name})"

    async def view(self) -> View:
        if not self._finality_tag:
            who, latest = await self._rpc.calls([CHAIN_ID, _header_at("latest")])
            self._recognise(who)
            return View(self._latest(latest).ref, None)
        # The older block first: then it cannot overtake the head between the two answers.
        who, finalized, latest = await self._rpc.calls([CHAIN_ID, _header_at("finalized"), _header_at("latest")])
        self._recognise(who)
        return View(self._latest(latest).ref, self._finalized(finalized))

    async def block(self, ref: int | Hash) -> Block | None:
        method = "eth_getBlockByNumber" if isinstance(ref, int) else "eth_getBlockByHash"
        [reply] = await self._ask(Call(method, (hex(ref) if isinstance(ref, int) else ref, False)))
        block = self._read(method, wire.block, reply)
        if block is not None and ref not in (block.number, block.hash):
            raise Unreachable(f"{self.name} answered with block {block.number} ({block.hash}) when asked for {ref}")
        return block

    async def receipts(self, block: BlockRef, hashes: Sequence[Hash]) -> Sequence[Receipt]:
        receipts = None
        if len(hashes) >= MANY_RECEIPTS and self._has_block_receipts:
            receipts = await self._receipts_of_block(block, frozenset(hashes))
        if receipts is None:
            receipts = {receipt.hash: receipt for receipt in await self.find(hashes) if receipt is not None}
        wanted = [receipts.get(each) for each in hashes]
        found = [receipt for receipt in wanted if receipt is not None and receipt.block == block]
        if len(found) < len(hashes):
            raise Unreachable(
                f"{self.name} has {len(found)} of {len(hashes)} receipts of block {block.number} ({block.hash})"
            )
        return found

    async def find(self, hashes: Sequence[Hash]) -> Sequence[Receipt | None]:
        method = "eth_getTransactionReceipt"
        replies = await self._ask(*(Call(method, (each,)) for each in hashes), ordered=False)
        receipts: list[Receipt | None] = []
        trouble: list[NodeRefused | Unreachable] = []
        for asked, reply in zip(hashes, replies, strict=True):
            try:
                receipt = self._read(method, wire.receipt, reply)
                if receipt is not None and receipt.hash != asked:
                    raise Unreachable(f"{self.name} answered with the receipt of {receipt.hash} when asked for {asked}")
            except (NodeRefused, Unreachable) as problem:
                # One that cannot be read says nothing of the others.
                trouble.append(problem)
                receipt = None
            receipts.append(receipt)
        if trouble and len(trouble) == len(hashes):
            raise trouble[0]
        return receipts

    async def account(self, address: Address, block: BlockRef) -> Account:
        at = hex(block.number)
        # The header last: if the block is still there, the answers before it were about that block.
        count, balance, code, header = await self._ask(
            Call("eth_getTransactionCount", (address, at)),
            Call("eth_getBalance", (address, at)),
            Call("eth_getCode", (address, at)),
            _header_at(at),
        )
        self._must_have(block, header)
        return Account(
            self._read("eth_getTransactionCount", wire.count, count),
            self._read("eth_getBalance", wire.number, balance),
            self._read("eth_getCode", wire.is_delegated, code),
        )

    async def pending(self, address: Address) -> int:
        [reply] = await self._ask(Call("eth_getTransactionCount", (address, "pending")))
        return self._read("eth_getTransactionCount", wire.count, reply)

    async def executed(self, block: BlockRef) -> Sequence[Executed]:
        [reply] = await self._ask(Call("eth_getBlockByHash", (block.hash, True)))
        found = self._read("eth_getBlockByHash", wire.executed, reply)
        if found is None or found[0] != block:
            raise Unreachable(f"{self.name} does not have block {block.number} ({block.hash})")
        return found[1]

    async def estimate(self, sender: Address, payload: Payload, block: BlockRef) -> int:
        # On its newest block, which has ours below it: a caller may have seen there what our head does not show yet, a
        # contract that it calls now, and for what is not there any gas would seem enough.
        at = hex(block.number)
        question = Call("eth_estimateGas", (_as_call(sender, payload), "latest"))
        estimate, header = await self._ask(question, _header_at(at))
        found = self._must_have(block, header)
        if isinstance(estimate, NodeRefused):
            # It may have refused because the block came only just after. Now it is there: this answer counts.
            estimate, header = await self._ask(question, _header_at(at))
            self._must_have(block, header)
        if isinstance(estimate, NodeRefused):
            spent = _short_of_gas(estimate, payload.gas or found.gas_limit)
            raise _explained(spent or estimate, payload.abi)
        return self._read("eth_estimateGas", wire.gas, estimate)

    async def replay(self, sender: Address, payload: Payload, gas: int, block: BlockRef) -> str | None:
        question = Call("eth_call", (_as_call(sender, replace(payload, gas=gas)), hex(max(0, block.number - 1))))
        reply, header = await self._ask(question, _header_at(hex(block.number)))
        self._must_have(block, header)
        if isinstance(reply, Unreachable):
            raise reply
        if not isinstance(reply, NodeRefused):
            return None
        told = _explained(reply, payload.abi)
        # Any other refusal is the node's own: most have no state of older blocks.
        is_told = (
            told is not reply or classify(reply.message, reply.node_code, reply.data) is Rejection.EXECUTION_REVERTED
        )
        return told.message[: reverts.LINE_CHARACTERS] if is_told else None

    async def market(self) -> Market:
        quote = None if self._quotes is None else await self._quotes.quote()
        if quote is not None:
            head, base_fee, _ = self._fees(*await self._ask(_header_at("latest"), FEE_HISTORY))
            market = pricing.priced(base_fee, quote)
            if market is not None:
                return replace(market, gas_limit=head.gas_limit)
        return await self._own_market()

    async def data_fees(self, drafts: Sequence[Draft]) -> Sequence[Wei]:
        if not self._charges_for_data:
            return [0] * len(drafts)
        questions = [_fee_question(draft) for draft in drafts]
        replies = await self._ask(*(each for each in questions if each is not None), ordered=False)
        answers = iter(replies)
        return [0 if each is None else self._data_fee(next(answers)) for each in questions]

    async def send(self, raws: Sequence[bytes]) -> Sequence[Answer]:
        try:
            if not self._recognised:
                [who] = await self._rpc.calls([CHAIN_ID])
                self._recognise(who)
        except Unreachable as problem:
            return [Unknown(f"not handed over: {problem}")] * len(raws)
        replies = await self._rpc.calls([Call("eth_sendRawTransaction", ("0x" + raw.hex(),)) for raw in raws])
        self._note_trouble(replies)
        return [self._answer(raw, reply) for raw, reply in zip(raws, replies, strict=True)]

    async def rpc(self, method: str, params: Sequence[object]) -> bytes:
        if not self._recognised:
            [who] = await self._rpc.calls([CHAIN_ID])
            self._recognise(who)
        return await self._passing.call(method, *params)

    async def close(self) -> None:
        await self._rpc.close()
        await self._passing.close()

    # asking

    async def _ask(self, *calls: Call, ordered: bool = True) -> list[Reply]:
        if self._recognised:
            replies = await self._rpc.calls(calls, ordered=ordered)
        else:
            who, *replies = await self._rpc.calls((CHAIN_ID, *calls), ordered=ordered)
            self._recognise(who)
        self._note_trouble(replies)
        return replies

    def _recognise(self, who: Reply) -> None:
        self._recognised = False
        if isinstance(who, NodeRefused):
            raise Unreachable(f"{self.name} does not say which chain it serves: {who.message}")
        served = self._read("eth_chainId", wire.number, who)
        if served != self._chain_id:
            raise Unreachable(f"{self.name} answers for chain {served}, not {self._chain_id}; correct its url")
        self._recognised = True

    def _note_trouble(self, replies: Sequence[Reply]) -> None:
        if any(isinstance(reply, Unreachable) for reply in replies):
            self._recognised = False  # who answers next may be another

    # reading

    def _read(self, method: str, parse: Callable[[bytes], T], reply: Reply) -> T:
        if isinstance(reply, NodeRefused | Unreachable):
            raise reply
        try:
            return parse(reply)
        except UNDECODABLE:
            raise Unreachable(f"{self.name} answered {method} with something that cannot be understood") from None

    def _latest(self, reply: Reply) -> wire.Header:
        header = self._read("eth_getBlockByNumber", wire.header, reply)
        if header is None:
            raise Unreachable(f"{self.name} has no latest block")
        return header

    def _finalized(self, reply: Reply) -> BlockRef:
        header = None if isinstance(reply, NodeRefused) else self._read("eth_getBlockByNumber", wire.header, reply)
        if header is None:
            said = f" ({reply.message})" if isinstance(reply, NodeRefused) else ""
            raise Unreachable(
                f"{self.name} has no `finalized` block{said}; if its chain knows no such tag, set the chain's "
                "finality to a depth, such as finality = 12"
            )
        return header.ref

    def _must_have(self, block: BlockRef, reply: Reply) -> wire.Header:
        header = None if isinstance(reply, NodeRefused) else self._read("eth_getBlockByNumber", wire.header, reply)
        if header is None or header.ref != block:
            raise Unreachable(f"{self.name} does not have block {block.number} ({block.hash}) on its chain")
        return header

    async def _own_market(self) -> Market:
        latest, history, price = await self._ask(_header_at("latest"), FEE_HISTORY, Call("eth_gasPrice", shared=True))
        head, base_fee, priority = self._fees(latest, history)
        limit = head.gas_limit
        if base_fee is None:
            gas_price = self._read("eth_gasPrice", wire.number, price)
            return Market(base_fee=None, gas_price=gas_price, priority={}, gas_limit=limit)
        # Either gas price or history may be missing on some nodes; the other one will do.
        if isinstance(price, NodeRefused):
            gas_price = base_fee + priority.get(Speed.STANDARD, 0)
        else:
            gas_price = self._read("eth_gasPrice", wire.number, price)
        priority = priority or dict.fromkeys(Speed, max(0, gas_price - base_fee))
        return Market(base_fee=base_fee, gas_price=gas_price, priority=priority, gas_limit=limit)

    def _fees(self, latest: Reply, history: Reply) -> tuple[wire.Header, Wei | None, dict[Speed, Wei]]:
        """The newest block, the base fee of the next one, None on a chain without one, and recent tips, empty if the
        node has none."""
        head = self._latest(latest)
        if head.base_fee is None or isinstance(history, NodeRefused):
            return head, head.base_fee, {}
        fees = self._read("eth_feeHistory", wire.fee_history, history)
        return head, head.base_fee if fees.next_base_fee is None else fees.next_base_fee, fees.priority

    def _data_fee(self, reply: Reply) -> Wei:
        try:
            return self._read("eth_call", publishing.fee, reply)
        except (Unreachable, NodeRefused) as problem:
            raise Unreachable(
                f"{self.name} does not tell the fee for data ({problem}); if its chain is no OP-stack chain, "
                "take data_fee out of its settings"
            ) from None

    async def _receipts_of_block(self, block: BlockRef, wanted: frozenset[Hash]) -> dict[Hash, Receipt] | None:
        """By hash; None if the node has to be asked for each."""
        [reply] = await self._ask(Call("eth_getBlockReceipts", (block.hash,), shared=True))
        if isinstance(reply, NodeRefused):
            self._has_block_receipts = reply.node_code not in NO_SUCH_METHOD
            return None
        receipts = self._read("eth_getBlockReceipts", lambda raw: wire.receipts(raw, wanted), reply)
        if receipts is None:
            raise Unreachable(f"{self.name} does not have block {block.number} ({block.hash})")
        return {receipt.hash: receipt for receipt in receipts}

    def _answer(self, raw: bytes, reply: Reply) -> Answer:
        if isinstance(reply, NodeRefused):
            return Refused(reply.message, reply.node_code, reply.data)
        if isinstance(reply, Unreachable):
            return Unknown(str(reply))
        ours = "0x" + keccak(raw).hex()
        if reply == b'"%s"' % ours.encode():  # as nearly every node writes it
            return Accepted()
        try:
            answered = wire.sent_hash(reply)
        except UNDECODABLE:
            return Unknown(f"{self.name} answered eth_sendRawTransaction with something that is no hash")
        if answered != ours:
            return Unknown(f"{self.name} answered with hash {answered} for {ours}")
        return Accepted()


_ALLOWANCE: Final = re.compile(r"gas required exceeds allowance\D{0,3}(\d{1,20})", re.ASCII | re.IGNORECASE)


def _short_of_gas(refusal: NodeRefused, most: int | None) -> NodeRefused | None:
    """A payload that ran out of all the gas it may have, in plain words; None if the node speaks of something else.

    Nodes say the same of an account whose funds buy less gas than that.
    """
    told = _ALLOWANCE.search(refusal.message)
    if most is None or told is None or int(told[1]) < most:
        return None
    return NodeRefused(f"execution reverted: out of gas, {told[1]} are not enough", refusal.node_code)


def _explained(refusal: NodeRefused, abi: str | None) -> NodeRefused:
    """The refusal in words, where the contract left its reason as data."""
    data = reverts.revert_data(refusal.message, refusal.data)
    if not data:
        return refusal
    return NodeRefused(f"execution {reverts.explain(data, _errors(abi))}", refusal.node_code, refusal.data)


def _errors(abi: str | None) -> Sequence[Mapping[str, object]]:
    return () if abi is None else msgspec.json.decode(abi, type=list[dict[str, object]])


def _fee_question(draft: Draft) -> Call | None:
    """None: it cannot be encoded, so it will never be published."""
    try:
        return publishing.question(draft)
    except Unencodable:
        return None


def _header_at(tag: str) -> Call:
    return Call("eth_getBlockByNumber", (tag, False), shared=True)


def _as_call(sender: Address, payload: Payload) -> dict[str, object]:
    call: dict[str, object] = {"from": sender, "value": hex(payload.value), "data": "0x" + payload.data.hex()}
    if payload.to is not None:
        call["to"] = payload.to
    if payload.gas is not None:
        call["gas"] = hex(payload.gas)
    if payload.access_list:
        call["accessList"] = [{"address": address, "storageKeys": keys} for address, keys in payload.access_list]
    return call


class EvmChain:
    """One chain: its nodes, which their maker closes, and how its transactions are written."""

    def __init__(self, chain_id: int, endpoints: Sequence[Endpoint], *, charges_for_data: bool = False) -> None:
        self.chain_id = chain_id
        self.charges_for_data = charges_for_data
        self.endpoints = endpoints

    def digest(self, draft: Draft) -> bytes:
        self._must_be_ours(draft)
        return encoding.digest(draft)

    def seal(self, draft: Draft, signature: bytes, *, check: bool = True) -> Sealed:
        self._must_be_ours(draft)
        return encoding.seal(draft, signature, check=check)

    def recognise(self, raw: bytes) -> Recognised:
        try:
            read = decoding.decode(raw)
        except ValueError as problem:
            raise Unencodable(f"these bytes are no transaction that can be sent: {problem}") from None
        fees = Fees(read.max_fee, read.priority if read.kind == 2 else None)
        return Recognised(
            hash=read.hash, chain_id=read.chain_id, sender=read.sender, nonce=read.nonce, gas=read.gas, fees=fees
        )

    def _must_be_ours(self, draft: Draft) -> None:
        if draft.lane.chain_id != self.chain_id:
            raise Unencodable(f"a draft for chain {draft.lane.chain_id} came to chain {self.chain_id}")
