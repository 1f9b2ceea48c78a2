"""A service of one account, and what callers write to it."""

import json
from pathlib import Path

from nonchalant.config import parse_settings
from nonchalant.model import Request
from nonchalant.wire import (
    parse_request,
)
from nonchalant.words import LaneKey

SENDER = "0xf39fd6e51aad88f6f4ce6ab8827279cfffb92266"
CHECKSUMMED = "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266"
OTHER = "0x70997970c51812dc3a010c7d01b50e0d17dc79c8"
WORD = "0x" + "ab" * 32

SETTINGS = parse_settings(
    """
    store = "sqlite:x.db"
    [[chains]]
    id = 31337
    endpoints = ["http://127.0.0.1:8545"]
    fees = { speed = "slow", max_fee_per_gas = "100 gwei", max_priority_fee_per_gas = "10 gwei" }
    [[accounts]]
    chains = [31337]
    key = { env = "KEY" }
    """,
    folder=Path("/"),
    environ={},
)
LANES = {LaneKey(31337, SENDER): SETTINGS.accounts[0]}
RULES = SETTINGS.chains[0].fees


def parse(body: object, idempotency_key: str | None = None) -> Request:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return parse_request(raw, tx_id="tx", settings=SETTINGS, lanes=LANES, idempotency_key=idempotency_key)


def send(**values: object) -> Request:
    """As the library does, with plain values."""
    return parse_request(
        {"chain_id": 31337, "from": SENDER, "to": OTHER} | values, tx_id="tx", settings=SETTINGS, lanes=LANES
    )


def body(**changes: object) -> dict[str, object]:
    return {"chain_id": 31337, "from": SENDER, "to": OTHER} | changes
