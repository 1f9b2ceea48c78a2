"""One line of the table: a contestant, and what it is measured on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from bench.chain import Kind
from bench.site import StoreKind

LIBRARY: Final = "library"
BY_SERVICE: Final = ("rest", "rest-batches", "json-rpc")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    name: str  # what `--only` calls it
    title: str
    contestant: str
    chain: Kind
    store: StoreKind = "postgresql"
    lanes: int = 20
    nodes: int = 1
    count: int

    @property
    def is_ours(self) -> bool:
        return self.is_library or self.is_service

    @property
    def is_library(self) -> bool:
        return self.contestant == LIBRARY

    @property
    def is_service(self) -> bool:
        return self.contestant in BY_SERVICE


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Of one run. Processor time is in microseconds a transaction."""

    done: float  # a second; ours: confirmed, which is final
    executed: float  # a second, as the contestant saw it
    seconds: float
    cpu: dict[str, float]  # by who used it


CASES: Final = (
    Case(
        name="limit", title="limit: pre-signed, blasted", contestant="limit", chain="stub", store="none", count=40_000
    ),
    Case(name="prototype", title="bare prototype", contestant="prototype", chain="stub", count=40_000),
    Case(name="library", title="ours: library", contestant=LIBRARY, chain="stub", count=40_000),
    Case(name="one-lane", title="ours: 1 lane", contestant=LIBRARY, chain="stub", lanes=1, count=15_000),
    Case(name="200-lanes", title="ours: 200 lanes", contestant=LIBRARY, chain="stub", lanes=200, count=40_000),
    Case(name="sqlite", title="ours: SQLite", contestant=LIBRARY, chain="stub", store="sqlite", count=40_000),
    Case(name="rest", title="ours: REST, singly", contestant="rest", chain="stub", count=20_000),
    Case(
        name="rest-batches", title="ours: REST, batches of 100", contestant="rest-batches", chain="stub", count=40_000
    ),
    Case(name="json-rpc", title="ours: JSON-RPC", contestant="json-rpc", chain="stub", count=20_000),
    Case(
        name="two-nodes",
        title="ours: REST batches, two nodes",
        contestant="rest-batches",
        chain="stub",
        nodes=2,
        count=40_000,
    ),
    Case(
        name="anvil-limit",
        title="limit: pre-signed, blasted",
        contestant="limit",
        chain="anvil",
        store="none",
        count=20_000,
    ),
    Case(name="anvil-prototype", title="bare prototype", contestant="prototype", chain="anvil", count=20_000),
    Case(name="anvil-library", title="ours: library", contestant=LIBRARY, chain="anvil", count=20_000),
    Case(
        name="web3-local",
        title="web3.py, local nonce",
        contestant="web3-local",
        chain="anvil",
        store="none",
        count=2_000,
    ),
    Case(
        name="web3-count",
        title="web3.py, asking the count",
        contestant="web3-count",
        chain="anvil",
        store="none",
        count=1_000,
    ),
)
