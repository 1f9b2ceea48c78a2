"""Twenty thousand JSON-RPC requests by a seed, from sound to senseless: each is answered, and none breaks anything."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from typing import Any

import pytest
import structlog

from nonchalant.service.asgi import Service
from nonchalant.service.rpc.methods import METHODS
from tests.anvil import Anvil
from tests.e2e.rig import until
from tests.service.conftest import OTHER, SENDER, Running

SEED = 20_261_116
REQUESTS = 20_000
AT_ONCE = 24
# Such a part of them really sends; the others are wrong in some way, or only read.
SENDS = 0.005

HASH = "0x" + "ab" * 32
# Not eth_feeHistory: anvil 1.7.1 aborts when it is asked for too many blocks.
READING = (
    *("eth_blockNumber", "eth_getBlockByNumber", "eth_call", "eth_getLogs", "eth_gasPrice", "eth_getBalance"),
    *("eth_getCode", "net_listening", "web3_clientVersion", "eth_newFilter", "eth_subscribe"),
    *("eth_estimateGas", "debug_traceTransaction", "admin_peers", "eth_sendBundle", "", "é", "a" * 300, "rpc.on"),
)
ODD: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        0,
        -1,
        1.5,
        1e308,
        2**64,
        2**300,
        "",
        "0x",
        "0x0",
        "0xzz",
        "0x" + "f" * 64,
        "latest",
        "pending",
    ),
    *(
        "0x" + "f" * 65,
        "\u0000",
        "\ud83d\ude00",
        "x" * 5_000,
        SENDER,
        OTHER,
        SENDER.upper(),
        HASH,
        HASH.upper(),
        [],
        {},
    ),
    *([[]], {"a": {}}, [1, "2", None], {"": ""}, {"from": SENDER}, {"from": OTHER, "to": SENDER}),
)
FIELDS = (
    *("from", "to", "value", "data", "input", "gas", "gasPrice", "maxFeePerGas", "maxPriorityFeePerGas", "accessList"),
    *("nonce", "chainId", "type", "blobs", "authorizationList", "vaule"),
)
TYPED = {
    "types": {"EIP712Domain": [{"name": "name", "type": "string"}], "Mail": [{"name": "to", "type": "address"}]},
    "primaryType": "Mail",
    "domain": {"name": "x"},
    "message": {"to": SENDER},
}


def transaction(chance: random.Random) -> dict[str, Any]:
    tx: dict[str, Any] = {"from": SENDER, "to": OTHER, "value": "0x1"}
    if chance.random() < SENDS:
        return tx
    for _ in range(chance.choice([1, 1, 2, 3])):
        tx[chance.choice(FIELDS)] = chance.choice(ODD)
    # Whatever else is right, this one must not be accepted: accepting is for the few above.
    tx.setdefault(chance.choice(["vaule", "blobs"]), chance.choice(ODD))
    return tx


def params(chance: random.Random, method: str) -> Any:
    if chance.random() < 0.1:
        return chance.choice(ODD)
    if method == "eth_sendTransaction":
        return [transaction(chance), *([chance.choice(ODD)] if chance.random() < 0.1 else [])]
    if "Typed" in method and chance.random() < 0.5:
        spoilt = {**TYPED, chance.choice(list(TYPED)): chance.choice([*ODD, TYPED["types"]])}
        return [SENDER, chance.choice([TYPED, spoilt, json.dumps(spoilt)])]
    usual = {
        "eth_getTransactionCount": [SENDER, "latest"],
        "eth_sign": [SENDER, "0x12"],
        "personal_sign": ["0x12", SENDER],
    }
    if chance.random() < 0.5:
        return usual.get(method, [HASH])
    return [chance.choice(ODD) for _ in range(chance.choice([0, 1, 1, 2, 2, 3, 20]))]


def question(chance: random.Random) -> Any:
    if chance.random() < 0.05:
        return chance.choice(ODD)
    method = chance.choice([*METHODS]) if chance.random() < 0.8 else chance.choice(READING)
    made: dict[str, Any] = {"jsonrpc": "2.0", "id": chance.randrange(9), "method": method}
    made["params"] = params(chance, method)
    if chance.random() < 0.15:
        made[chance.choice(["jsonrpc", "id", "method", "params", "more"])] = chance.choice(ODD)
    if chance.random() < 0.1:
        del made[chance.choice(list(made))]
    return made


def body(chance: random.Random) -> bytes:
    kind = chance.random()
    if kind < 0.15:
        made: Any = [question(chance) for _ in range(chance.choice([0, 1, 2, 3, 5, 101]))]
    else:
        made = question(chance)
    raw = json.dumps(made, ensure_ascii=chance.random() < 0.5).encode(errors="surrogatepass")
    if kind > 0.93:  # cut, or with a byte changed
        at = chance.randrange(len(raw) + 1)
        return chance.choice([raw[:at], raw[:at] + bytes([chance.randrange(256)]) + raw[at + 1 :], b"[" * 3_000 + raw])
    return raw


async def post(service: Service, raw: bytes) -> tuple[int, bytes]:
    """As the server does it, without a socket in between; the client stays until it has its answer."""
    came, said = [{"type": "http.request", "body": raw, "more_body": False}], list[Any]()

    async def receive() -> dict[str, Any]:
        return came.pop() if came else await asyncio.Future()

    async def send(message: Any) -> None:
        said.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/rpc/31337",
        "raw_path": b"/rpc/31337",
        "query_string": b"",
        "headers": [(b"content-type", b"application/json")],
    }
    await service(scope, receive, send)
    return said[0]["status"], b"".join(message.get("body", b"") for message in said[1:])


def is_answer(one: Any) -> bool:
    return isinstance(one, dict) and one["jsonrpc"] == "2.0" and "id" in one and ("result" in one) != ("error" in one)


@pytest.mark.filterwarnings("ignore")  # of libraries that are shown senseless typed data
async def test_twenty_thousand_requests_are_answered_and_none_with_a_5xx(live: Running, chain: Anvil) -> None:
    await chain.set_block_time(1)
    await until(lambda: live.node.engine.followers[31337].started, "the chain seen")
    chance, service = random.Random(SEED), Service(live.node)
    left = REQUESTS
    seen: Counter[object] = Counter()

    async def ask() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            raw = body(chance)
            status, answer = await post(service, raw)
            assert status == (200 if answer else 204), (raw[:2_000], status, answer)
            found = json.loads(answer) if answer else []
            for one in found if isinstance(found, list) else [found]:
                assert is_answer(one), (raw[:2_000], one)
                error = one.get("error")
                seen[error["code"] if error else "result"] += 1
                assert error is None or error["message"], (raw[:2_000], one)
                assert error is None or error.get("data") != {"code": "internal"}, (raw[:2_000], one)

    with structlog.testing.capture_logs() as logged:
        await asyncio.gather(*(ask() for _ in range(AT_ONCE)))
    print(f"fuzzed JSON-RPC: {REQUESTS} requests, answered {seen.most_common()}")
    assert chain.process.returncode is None  # or whatever was passed on to it was not tested
    assert [line for line in logged if line["log_level"] in ("error", "critical")] == []
    assert {"result", -32700, -32600, -32601, -32602, -32000} <= set(seen)
