"""Thousands of bodies that are nearly right, or nothing at all: each is answered, none with a 5xx.

By a seed of our own instead of Hypothesis, whose choosing would take longer than the answers.
"""

import asyncio
import json
import random
from collections import Counter
from typing import Any
from urllib.parse import quote

from nonchalant.service.asgi import Service
from nonchalant.service.examples import EXAMPLES
from nonchalant.service.front import Route
from nonchalant.service.routes import ROUTES
from nonchalant.service.rpc.shapes import RpcBody
from tests.anvil import Anvil
from tests.service.conftest import CHECKSUMMED, OTHER, SENDER, Running

SEED = 20261116
BODIES = 6_000
AT_ONCE = 64

Case = tuple[str, str, bytes, dict[str, str]]

JUNK: list[object] = [
    *(None, True, False, 0, -1, 1, 5, 9, 10, 1.5, -0.0, 1e300, 2**53, 2**63, 2**64, 2**255, 2**256, -(2**300)),
    *("", " ", "0", "1", "-1", "+1", "1e3", "0x", "0x0", "0X1", "0xzz", "1_000", "١٢", "x" * 300, "x" * 20_000),
    *("\0", "\ud800", "\u202e", "queued", "slow", "fast", "requeue", "held", "2030-01-31T12:00:00Z", "9999-99-99"),
    *("0x" + "00" * 20, "0x" + "ab" * 32, "0x" + "0" * 63, SENDER, CHECKSUMMED, OTHER, CHECKSUMMED.swapcase()),
    *([], {}, [[]], [None], {"": ""}, {"a": {"b": {"c": []}}}, [SENDER, OTHER], {"speed": "fast"}, {"type": "error"}),
]
WORDS = sorted({name for kind in EXAMPLES for name in kind.__struct_encode_fields__} | {"nonce", "", "\0", "a", "type"})


def spoilt(chance: random.Random, value: Any) -> Any:
    """It, with something in it changed, left out or added."""
    if isinstance(value, dict) and value and chance.random() < 0.8:
        name = chance.choice(list(value))
        match chance.randrange(4):
            case 0:
                return {key: item for key, item in value.items() if key != name}
            case 1:
                return {**value, chance.choice(WORDS): chance.choice(JUNK)}
            case _:
                return {**value, name: spoilt(chance, value[name])}
    if isinstance(value, list) and value and chance.random() < 0.8:
        place = chance.randrange(len(value))
        return [*value[:place], spoilt(chance, value[place]), *value[place + chance.randrange(2) :]]
    junk = chance.choice(JUNK)
    return nested(chance, junk) if chance.random() < 0.1 else junk


def nested(chance: random.Random, value: object) -> object:
    for _ in range(chance.choice([2, 15, 17, 60, 200])):
        value = [value] if chance.random() < 0.5 else {"a": value}
    return value


def bytes_of(chance: random.Random, value: object) -> bytes:
    """As JSON, or as what is left of it."""
    raw = json.dumps(value, ensure_ascii=chance.random() < 0.9 or "\ud800" in repr(value)).encode("utf-8", "replace")
    place = chance.randrange(len(raw) + 1)
    match chance.randrange(30):
        case 0:
            return raw[:place]
        case 1:
            return raw[:place] + chance.randbytes(3) + raw[place:]
        case 2:
            return b"\xef\xbb\xbf" + raw
        case 3:
            return raw + raw
        case 4:
            return raw.replace(b"{", b'{"chain_id":1,"chain_id":2,', 1)
        case 5:
            return b"[" * 100_000
        case 6:
            return b'{"metadata":' * 20_000
        case 7:
            return chance.randbytes(place)
        case _:
            return raw


def path_of(chance: random.Random, route: Route, known: list[str]) -> str:
    names = {"chain_id": "31337", "address": SENDER, "nonce": str(chance.randrange(5)), "id": chance.choice(known)}
    path = route.path
    for name, value in names.items():
        given = (
            value if chance.random() < 0.9 else quote(str(chance.choice(JUNK)), safe="", errors="replace")[:200] or "-"
        )
        path = path.replace(f"{{{name}}}", given)
    return path


def made_up(chance: random.Random, known: list[str]) -> Case:
    # JSON-RPC says in its answers what is wrong with a body (tests/service/test_rpc_fuzzed.py).
    route = chance.choice([route for route in ROUTES if route.takes not in (None, RpcBody)])
    body: Any = dict(EXAMPLES[route.takes])  # type: ignore[index]
    for _ in range(chance.choice([0, 1, 1, 1, 2, 3])):
        body = spoilt(chance, body)
    headers = {"Content-Type": "application/json"}
    if chance.random() < 0.2:
        headers["Idempotency-Key"] = chance.choice(["a", "b", "x" * 300, " ", "é", "a\tb"])
    return route.method, path_of(chance, route, known), bytes_of(chance, body), headers


async def call(service: Service, method: str, path: str, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
    """As the server does it, without a socket in between."""
    said: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        said.append(message)

    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
    }
    await service(scope, receive, send)
    return said[0]["status"], b"".join(message.get("body", b"") for message in said[1:])


async def test_thousands_of_bodies_are_answered_and_none_with_a_5xx(live: Running, chain: Anvil) -> None:
    await chain.set_block_time(1)
    chance, service = random.Random(SEED), Service(live.node)
    known = [(await live.post({**EXAMPLES[ROUTES[0].takes], "value": n}))[1]["id"] for n in range(8)]  # type: ignore[index]
    cases = [made_up(chance, known) for _ in range(BODIES)]
    seen: Counter[int] = Counter()

    async def ask() -> None:
        while cases:
            method, path, raw, headers = cases.pop()
            status, answer = await call(service, method, path, raw, headers)
            seen[status] += 1
            assert status < 500, (method, path, raw[:2_000], answer)
            told = json.loads(answer)
            assert status < 400 or (told["status"], bool(told["code"])) == (status, True)

    await asyncio.gather(*(ask() for _ in range(AT_ONCE)))
    print(f"fuzzed bodies: {seen.total()}, answered {dict(sorted(seen.items()))}")
    assert seen.total() == BODIES
    assert {202, 400, 404, 409} <= set(seen)
