"""Requests to a service, written out beforehand: whoever sends them does nothing else while it is timed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

import msgspec

from bench.work import CHAIN_ID, GAS, Transfer

TOGETHER: Final = 100  # transactions of a batch

_encode = msgspec.json.Encoder().encode


def single(transfers: Iterable[Transfer]) -> Iterator[bytes]:
    return (_post("/v1/transactions", _encode(_fields(transfer))) for transfer in transfers)


def batches(transfers: Iterable[Transfer]) -> Iterator[bytes]:
    waiting = iter(transfers)
    while together := list(islice(waiting, TOGETHER)):
        yield _post("/v1/transactions/batch", _encode({"transactions": list(map(_fields, together))}))


def rpc(transfers: Iterable[Transfer]) -> Iterator[bytes]:
    for transfer in transfers:
        call = {"from": transfer.sender, "to": transfer.to, "value": hex(transfer.value), "gas": hex(GAS)}
        question = {"jsonrpc": "2.0", "id": transfer.value, "method": "eth_sendTransaction", "params": [call]}
        yield _post(f"/rpc/{CHAIN_ID}", _encode(question))


def _fields(transfer: Transfer) -> dict[str, object]:
    return {
        "chain_id": CHAIN_ID,
        "from": transfer.sender,
        "to": transfer.to,
        "value": str(transfer.value),
        "gas": GAS,
    }


def _post(path: str, body: bytes) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body
