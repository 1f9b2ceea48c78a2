"""What the stub answers, as JSON bytes; what many ask for is written once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec

from nonchalant.chain.evm.decoding import RawTransaction, unrlp
from nonchalant.ports import Clock
from nonchalant.testing.stub.ledger import BASE_FEE, GAS_LIMIT, INVALID, TIP, Block, Ledger, Refusal

NO_SUCH_METHOD: Final = -32601
TRANSFER_GAS: Final = 21_000
BALANCE: Final = hex(10**27)
BLOOM: Final = "0x" + "00" * 256
ZERO_HASH: Final = "0x" + "00" * 32
NO_ONE: Final = "0x" + "00" * 20
MOST_HISTORY: Final = 1_024
KEPT: Final = 64  # blocks whose receipts are kept as they were written

_encode = msgspec.json.Encoder().encode
NULL: Final = b"null"


class _Call(msgspec.Struct):
    method: str
    id: msgspec.Raw = msgspec.Raw(b"null")
    params: list[Any] = []


_read_one = msgspec.json.Decoder(_Call).decode
_read_many = msgspec.json.Decoder(list[_Call]).decode


class Answers:
    def __init__(self, ledger: Ledger, *, final_depth: int, clock: Clock) -> None:
        self._ledger = ledger
        self._clock = clock
        self._final_depth = final_depth
        self._receipts_of = lru_cache(maxsize=KEPT)(self._write_receipts)
        self._hashes_of = lru_cache(maxsize=KEPT)(self._write_block)
        self._methods: Mapping[str, Callable[..., bytes]] = {
            "eth_sendRawTransaction": self._send,
            "eth_chainId": lambda: _encode(hex(ledger.chain_id)),
            "net_version": lambda: _encode(str(ledger.chain_id)),
            "web3_clientVersion": lambda: _encode("stub/nonchalant"),
            "eth_blockNumber": lambda: _encode(hex(ledger.head.number)),
            "eth_getBlockByNumber": self._block_at,
            "eth_getBlockByHash": self._block_of,
            "eth_getBlockReceipts": self._block_receipts,
            "eth_getTransactionReceipt": self._receipt,
            "eth_getTransactionByHash": self._transaction,
            "eth_getTransactionCount": self._count,
            "eth_getBalance": lambda _address, _at="latest": _encode(BALANCE),
            "eth_getCode": lambda _address, _at="latest": b'"0x"',
            "eth_call": lambda _call, _at="latest": b'"0x"',
            "eth_estimateGas": lambda _call, _at="latest": _encode(hex(TRANSFER_GAS)),
            "eth_gasPrice": lambda: _encode(hex(BASE_FEE + TIP)),
            "eth_maxPriorityFeePerGas": lambda: _encode(hex(TIP)),
            "eth_feeHistory": self._fee_history,
            "stub_hold": self._hold,
            "stub_release": self._release,
        }

    def reply(self, body: bytes) -> bytes:
        """To one call, or to a batch of them."""
        try:
            if body.lstrip()[:1] == b"[":
                return b"[" + b",".join([self._reply(call) for call in _read_many(body)]) + b"]"
            return self._reply(_read_one(body))
        except (msgspec.DecodeError, UnicodeDecodeError) as problem:
            return _error(NULL, -32700, str(problem))

    def _reply(self, call: _Call) -> bytes:
        method = self._methods.get(call.method)
        if method is None:
            return _error(bytes(call.id), NO_SUCH_METHOD, f"the method {call.method} does not exist/is not available")
        try:
            result = method(*call.params)
        except Refusal as refusal:
            return _error(bytes(call.id), refusal.code, refusal.message)
        except (TypeError, ValueError, AttributeError):  # whatever a caller may put in the place of a parameter
            return _error(bytes(call.id), INVALID, f"invalid params for {call.method}")
        return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (bytes(call.id), result)

    def _send(self, raw: str) -> bytes:
        return b'"%b"' % self._ledger.send(bytes.fromhex(raw[2:]), self._clock.now()).encode()

    # what no real node does

    def _hold(self, addresses: Sequence[str]) -> bytes:
        self._ledger.held.update(address.lower() for address in addresses)
        return b"true"

    def _release(self, addresses: Sequence[str]) -> bytes:
        self._ledger.held.difference_update(address.lower() for address in addresses)
        return b"true"

    # blocks

    def _named(self, tag: str) -> int:
        """The height that a tag or a number means; it may be above the head."""
        head = self._ledger.head.number
        match tag:
            case "latest" | "pending":
                return head
            case "finalized" | "safe":
                return max(0, head - self._final_depth)
            case "earliest":
                return 0
            case _:
                return int(tag, 16)

    def _at(self, tag: str) -> Block | None:
        number = self._named(tag)
        blocks = self._ledger.blocks
        return blocks[number] if 0 <= number < len(blocks) else None

    def _of(self, hash: str) -> Block | None:
        number = self._ledger.number_of.get(hash)
        return None if number is None else self._ledger.blocks[number]

    def _block_at(self, tag: str, full: bool = False) -> bytes:
        return self._shown(self._at(tag), full=full)

    def _block_of(self, hash: str, full: bool = False) -> bytes:
        return self._shown(self._of(hash), full=full)

    def _shown(self, block: Block | None, *, full: bool) -> bytes:
        if block is None:
            return NULL
        if full:
            return _encode(_header(block) | {"transactions": [self._written(tx, block, n) for n, tx in _listed(block)]})
        return self._hashes_of(block.number)

    def _write_block(self, number: int) -> bytes:
        block = self._ledger.blocks[number]
        return _encode(_header(block) | {"transactions": [tx.hash for tx in block.transactions]})

    # what ran

    def _block_receipts(self, which: str) -> bytes:
        block = self._of(which) if len(which) == len(ZERO_HASH) else self._at(which)
        return NULL if block is None else self._receipts_of(block.number)

    def _write_receipts(self, number: int) -> bytes:
        block = self._ledger.blocks[number]
        return b"[" + b",".join([_receipt(tx, block, index) for index, tx in _listed(block)]) + b"]"

    def _receipt(self, hash: str) -> bytes:
        place = self._ledger.place_of.get(hash)
        if place is None:
            return NULL
        block = self._ledger.blocks[place[0]]
        return _receipt(block.transactions[place[1]], block, place[1])

    def _transaction(self, hash: str) -> bytes:
        place = self._ledger.place_of.get(hash)
        if place is not None:
            block = self._ledger.blocks[place[0]]
            return _encode(self._written(block.transactions[place[1]], block, place[1]))
        pooled = self._ledger.pooled.get(hash)
        return NULL if pooled is None else _encode(self._written(pooled, None, None))

    def _written(self, tx: RawTransaction, block: Block | None, index: int | None) -> dict[str, object]:
        raw, at = self._ledger.taken[tx.hash]
        return _fields(tx, block, index) | _signature(tx.kind, raw) | {"stubReceivedAt": hex(at)}

    def _count(self, address: str, tag: str = "latest") -> bytes:
        address = address.lower()
        if tag == "pending":
            return _encode(hex(self._ledger.pending_count(address)))
        return _encode(hex(self._ledger.count(address, self._named(tag))))

    def _fee_history(self, blocks: str | int, newest: str = "latest", percentiles: Sequence[float] = ()) -> bytes:
        asked = blocks if isinstance(blocks, int) else int(blocks, 16)
        count = min(asked, self._named(newest) + 1, MOST_HISTORY)
        return _encode(
            {
                "oldestBlock": hex(self._named(newest) + 1 - count),
                "baseFeePerGas": [hex(BASE_FEE)] * (count + 1),
                "gasUsedRatio": [0.5] * count,
                "reward": [[hex(TIP)] * len(percentiles)] * count,
            }
        )


def _listed(block: Block) -> enumerate[RawTransaction]:
    return enumerate(block.transactions)


def _error(number: bytes, code: int, message: str) -> bytes:
    return b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (number, _encode({"code": code, "message": message}))


def _header(block: Block) -> dict[str, object]:
    return {
        "number": hex(block.number),
        "hash": block.hash,
        "parentHash": block.parent,
        "timestamp": hex(block.at),
        "baseFeePerGas": hex(BASE_FEE),
        "gasLimit": hex(GAS_LIMIT),
        "gasUsed": hex(TRANSFER_GAS * len(block.transactions)),
        "miner": NO_ONE,
        "logsBloom": BLOOM,
        "stateRoot": ZERO_HASH,
        "size": "0x220",
        "extraData": "0x",
    }


def _fields(tx: RawTransaction, block: Block | None, index: int | None) -> dict[str, object]:
    return {
        "type": hex(tx.kind),
        "hash": tx.hash,
        "blockHash": None if block is None else block.hash,
        "blockNumber": None if block is None else hex(block.number),
        "transactionIndex": None if index is None else hex(index),
        "from": tx.sender,
        "to": tx.to,
        "nonce": hex(tx.nonce),
        "value": hex(tx.value),
        "gas": hex(tx.gas),
        "input": "0x" + tx.data.hex(),
        "maxFeePerGas": hex(tx.max_fee),
        "maxPriorityFeePerGas": hex(tx.priority),
        "gasPrice": hex(min(tx.max_fee, BASE_FEE + tx.priority)),
        "chainId": None if tx.chain_id is None else hex(tx.chain_id),
    }


def _signature(kind: int, raw: bytes) -> dict[str, object]:
    """Whoever does not believe the list of payers can see who signed."""
    fields = unrlp(raw[1:] if kind else raw)
    v, r, s = (hex(int.from_bytes(field, "big")) for field in fields[-3:] if isinstance(field, bytes))
    signed: dict[str, object] = {"v": v, "r": r, "s": s}
    if not kind:
        return signed
    listed = [{"address": address, "storageKeys": keys} for address, keys in _hexed(fields[-4])]
    return signed | {"yParity": v, "accessList": listed}


def _hexed(item: Any) -> Any:
    return "0x" + item.hex() if isinstance(item, bytes) else [_hexed(part) for part in item]


# Written by hand: half of all that the stub does is this. As long as a real one, so that reading it costs the same.
_RECEIPT = (
    '{"type":"0x%x","status":"0x1","transactionHash":"%s","blockHash":"%s","blockNumber":"0x%x","transactionIndex":'
    '"0x%x","from":"%s","to":%s,"gasUsed":"0x5208","cumulativeGasUsed":"0x%x","effectiveGasPrice":"0x%x",'
    f'"contractAddress":null,"logs":[],"logsBloom":"{BLOOM}"}}'
)


def _receipt(tx: RawTransaction, block: Block, index: int) -> bytes:
    payee = "null" if tx.to is None else f'"{tx.to}"'
    price = min(tx.max_fee, BASE_FEE + tx.priority)
    place = (block.hash, block.number, index)
    return (_RECEIPT % (tx.kind, tx.hash, *place, tx.sender, payee, TRANSFER_GAS * (index + 1), price)).encode()
