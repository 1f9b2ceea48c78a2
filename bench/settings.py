"""The settings of a node under measurement, as a user would write them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from bench.work import CHAIN_ID, PATH, PHRASE

PHRASE_VARIABLE: Final = "BENCH_PHRASE"
WINDOW: Final = 1_000  # a lane must carry thousands a second over blocks of 0.25 s; geth's 16 would be the measurement
QUEUE_LIMIT: Final = 10_000_000
POLL_SECONDS: Final = 0.06  # a quarter of the block time, as the documentation advises

os.environ[PHRASE_VARIABLE] = PHRASE


def write(folder: Path, *, url: str, store: str, lanes: int, port: int = 0) -> Path:
    file = folder / f"nonchalant-{port}.toml"
    file.write_text(f"""
store = "{store}"
listen = "127.0.0.1:{port}"
auth = "off"
log_format = "json"

[[chains]]
id = {CHAIN_ID}
endpoints = ["{url}"]
poll_interval = {POLL_SECONDS}

[[accounts]]
chains = [{CHAIN_ID}]
key = {{ mnemonic = {{ env = "{PHRASE_VARIABLE}" }}, path = "{PATH}", count = {lanes} }}
window = {WINDOW}
queue_limit = {QUEUE_LIMIT}
""")
    return file
