"""The chain's own truth: what was executed, read from the node's blocks and never from our tables, and the comparison."""

from __future__ import annotations

import asyncio
import hashlib
import json
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from tests.anvil import Anvil


def recipient(key: str) -> str:
    """An address nobody else pays: what it holds tells how often its one transaction ran."""
    return "0x" + hashlib.sha256(key.encode()).hexdigest()[:40]


@dataclass(frozen=True, slots=True)
class Deed:
    """One transaction on the canonical chain."""

    hash: str
    sender: str
    nonce: int
    to: str | None
    value: int
    block: int
    block_hash: str

    @property
    def does_nothing(self) -> bool:
        return self.to == self.sender and self.value == 0


async def deeds(node: Anvil) -> list[Deed]:
    """Everything the chain executed, from its first block to its head."""
    blocks = [await node.rpc("eth_getBlockByNumber", hex(number), True) for number in range(await node.height() + 1)]
    return [
        Deed(
            tx["hash"],
            tx["from"],
            int(tx["nonce"], 16),
            tx["to"],
            int(tx["value"], 16),
            int(block["number"], 16),
            block["hash"],
        )
        for block in blocks
        for tx in block["transactions"]
    ]


@dataclass(frozen=True, slots=True)
class Row:
    """A transaction as the store's file has it."""

    id: str
    key: str | None
    sender: str
    state: str
    nonce: int | None
    hash: str | None
    block_hash: str | None
    held: bool
    attention: str | None
    to: str | None


def rows(store: Path | Tables) -> list[Row]:
    """Every transaction in the store, read past our own code."""
    return [_row(row) for row in _tables(store).ask("SELECT * FROM transactions ORDER BY place")]


def _row(row: Any) -> Row:
    receipt: Any = json.loads(row["receipt"]) if row["receipt"] else None
    attention: Any = json.loads(row["attention"]) if row["attention"] else None
    return Row(
        row["id"],
        row["idempotency_key"],
        row["address"],
        row["state"],
        row["nonce"],
        row["hash"],
        None if receipt is None else _block_hash(receipt),
        bool(row["held"]),
        None if attention is None else attention[0],
        json.loads(row["payload"]).get("to"),
    )


def _block_hash(receipt: dict[str, Any]) -> str:
    block = receipt["block"]
    found: str = block["hash"] if isinstance(block, dict) else block[1]
    return found


def count_states(store: Path | Tables) -> Counter[str]:
    return Counter(dict(ask(store, "SELECT state, count(*) FROM transactions GROUP BY state")))


def has_open_slots(store: Path | Tables) -> bool:
    """Whether a nonce is still on its way to the chain, be it a filler's, or a lane waits for some."""
    query = "SELECT (SELECT count(*) FROM slots WHERE NOT settled) + (SELECT count(quarantined_below) FROM lanes)"
    return ask(store, query) != [(0,)]


def ask(store: Path | Tables, query: str) -> list[Any]:
    """Rows of the store itself; none if it has no tables yet."""
    return [tuple(row) for row in _tables(store).ask(query)]


class Tables(Protocol):
    """A store's tables, read past our own code. Rows are known by their columns' names and in their order."""

    def ask(self, query: str) -> list[Any]:
        """None if there are no tables yet: it was killed before it made them."""
        ...


def _tables(store: Path | Tables) -> Tables:
    return File(store) if isinstance(store, Path) else store


@dataclass(frozen=True, slots=True)
class File:
    path: Path

    def ask(self, query: str) -> list[Any]:
        if not self.path.exists():
            return []
        with closing(sqlite3.connect(f"file:{self.path}?mode=ro", uri=True, timeout=10)) as connection:
            connection.row_factory = sqlite3.Row
            try:
                return connection.execute(query).fetchall()
            except sqlite3.OperationalError as error:
                if "no such table" not in str(error):
                    raise
                return []


@dataclass(frozen=True, slots=True)
class Audit:
    """What a comparison of the chain with the store found; it raised unless all of it agrees."""

    executed: int
    fillers: int
    bumped: int
    by_account: dict[str, int]


async def audit(
    node: Anvil,
    store: Path | Tables,
    acknowledged: Collection[str],
    *,
    foreign: Sequence[str] = (),
    failed: Sequence[str] = (),
) -> Audit:
    """Every acknowledged transaction ran exactly once, as the store says; nonces have no gap; nothing else ran.

    `foreign` are hashes that others made with our keys, `failed` the keys of what must never run.
    """
    on_chain = await deeds(node)
    by_recipient: dict[str | None, list[Deed]] = defaultdict(list)
    by_sender: dict[str, list[Deed]] = defaultdict(list)
    for deed in on_chain:
        by_recipient[deed.to].append(deed)
        by_sender[deed.sender].append(deed)
    stored = rows(store)
    for row in stored:
        if row.key in failed:
            assert (row.state, row.nonce, by_recipient[row.to]) == ("failed", None, [])
    keys = {row.key for row in stored}
    assert len(keys) == len(stored), "one idempotency key made two transactions"
    stored = [row for row in stored if row.key not in failed]
    lost = sorted(set(acknowledged) - {key for key in keys if key is not None})
    assert not lost, f"acknowledged, and not in the store: {lost}"
    for row in stored:
        assert row.key is not None
        assert row.to == recipient(row.key)
        ran = by_recipient[row.to]
        assert len(ran) == 1, f"{row.key} ran {len(ran)} times: {ran}; the store says {row}"
        assert row.state == "confirmed", f"{row.key} ran, and is called {row.state}"
        assert (row.nonce, row.hash, row.block_hash) == (ran[0].nonce, ran[0].hash, ran[0].block_hash)
    balances = await asyncio.gather(*(node.rpc("eth_getBalance", row.to, "latest") for row in stored))
    assert {int(balance, 16) for balance in balances} == {1}
    senders = {row.sender for row in stored}
    ours = [row.hash for row in stored]
    fillers = [deed for deed in on_chain if deed.sender in senders and deed.does_nothing]
    known = {*ours, *(deed.hash for deed in fillers), *foreign}
    strangers = [deed for deed in on_chain if deed.sender in senders and deed.hash not in known]
    assert not strangers, f"executed by our accounts, and asked for by nobody: {strangers}"
    for sender in senders:
        nonces = sorted(deed.nonce for deed in by_sender[sender])
        assert nonces == list(range(len(nonces)))
        for tag in ("latest", "pending"):
            count = int(await node.rpc("eth_getTransactionCount", sender, tag), 16)
            assert count == len(nonces), f"{sender} has {count} at {tag}, and {len(nonces)} are on the chain"
    return Audit(
        executed=len(stored),
        fillers=len(fillers),
        bumped=_bumped(store),
        by_account={sender: len(by_sender[sender]) for sender in sorted(senders)},
    )


def _bumped(store: Path | Tables) -> int:
    [[found]] = ask(store, "SELECT count(*) FROM attempts WHERE kind = 'bump'")
    return int(found)
