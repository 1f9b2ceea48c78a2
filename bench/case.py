"""One line of the table: a contestant, and what it is measured on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bench.chain import Kind

Store = Literal["postgresql", "sqlite", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    name: str  # what `--only` calls it
    contestant: str
    chain: Kind
    store: Store = "postgresql"
    lanes: int = 20
    count: int

    @property
    def is_ours(self) -> bool:
        return self.contestant == "library"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Of one run. Processor time is in microseconds a transaction."""

    done: float  # a second; ours: confirmed, which is final
    executed: float  # a second, as the contestant saw it
    seconds: float
    cpu: float
    chain_cpu: float
    database_cpu: float


CASES = (
    Case(name="limit", contestant="limit", chain="stub", store="none", count=40_000),
    Case(name="prototype", contestant="prototype", chain="stub", count=40_000),
    Case(name="library", contestant="library", chain="stub", count=20_000),
    Case(name="one-lane", contestant="library", chain="stub", lanes=1, count=10_000),
    Case(name="200-lanes", contestant="library", chain="stub", lanes=200, count=20_000),
    Case(name="sqlite", contestant="library", chain="stub", store="sqlite", count=20_000),
    Case(name="anvil-limit", contestant="limit", chain="anvil", store="none", count=20_000),
    Case(name="anvil-prototype", contestant="prototype", chain="anvil", count=20_000),
    Case(name="anvil-library", contestant="library", chain="anvil", count=20_000),
    Case(name="web3-local", contestant="web3.py, local nonce", chain="anvil", store="none", count=1_000),
    Case(name="web3-count", contestant="web3.py, asking the count", chain="anvil", store="none", count=1_000),
)
