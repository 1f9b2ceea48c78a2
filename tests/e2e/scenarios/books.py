"""The exact audit of a scenario: the chain's own blocks, receipts and counts against every row of the store's file.

Nothing of our own code reads either side. Whatever happened on the way, the end must be this: each transaction ran as
often as its state says (once, or never), with the payload that was asked for; its account's nonces have no gap; every
transaction of the account is one that the store signed, or a stranger's that the test knows of.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.anvil import Anvil

# How an end is told, and whether the payload ran.
RAN = {"confirmed": "0x1", "reverted": "0x0"}
NEVER_RAN = frozenset({"failed", "cancelled", "expired", "queued", "held"})

What = tuple[str | None, int, str]  # to, value, data


@dataclass(frozen=True, slots=True)
class Deed:
    """One transaction on the canonical chain, with its receipt's status."""

    hash: str
    sender: str
    nonce: int
    to: str | None
    value: int
    data: str
    block: tuple[int, str]
    status: str

    @property
    def what(self) -> What:
        return self.to, self.value, self.data

    @property
    def does_nothing(self) -> bool:
        return self.what == (self.sender, 0, "0x")


@dataclass(frozen=True, slots=True)
class Audit:
    """What ran, beside what was asked for."""

    fillers: int
    bumps: int
    cancels: int
    replacements: int


async def read_chain(node: Anvil) -> list[Deed]:
    """Everything the chain executed, from its first block to its head."""
    found = []
    for number in range(await node.height() + 1):
        block = await node.rpc("eth_getBlockByNumber", hex(number), True)
        if not block["transactions"]:
            continue
        receipts = await node.rpc("eth_getBlockReceipts", hex(number))
        statuses = {receipt["transactionHash"]: receipt["status"] for receipt in receipts}
        found += [
            Deed(
                tx["hash"],
                tx["from"],
                int(tx["nonce"], 16),
                tx["to"],
                int(tx["value"], 16),
                tx["input"],
                (int(block["number"], 16), block["hash"]),
                statuses[tx["hash"]],
            )
            for tx in block["transactions"]
        ]
    return found


Rows = list[dict[str, Any]]

# What the books are read by, on either store.
TRANSACTIONS = "SELECT * FROM transactions ORDER BY place"
ATTEMPTS = "SELECT * FROM attempts"
SLOTS = "SELECT * FROM slots"
EVENTS = "SELECT tx_id, kind FROM events WHERE tx_id IS NOT NULL"


class Books:
    """The store's tables, as they are."""

    def __init__(self, transactions: Rows, attempts: Rows, slots: Rows, events: Rows) -> None:
        self.transactions = transactions
        self.attempts = {row["hash"]: row for row in attempts}
        self.slots = slots
        self.events: dict[str, Counter[str]] = defaultdict(Counter)
        for event in events:
            self.events[event["tx_id"]][event["kind"]] += 1
        self.attempts_of: dict[str, Rows] = defaultdict(list)
        for attempt in self.attempts.values():
            self.attempts_of[attempt["tx_id"]].append(attempt)

    @classmethod
    def of(cls, path: Path) -> Books:
        """From a file on disk."""
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=10)) as connection:
            connection.row_factory = sqlite3.Row
            queries = (TRANSACTIONS, ATTEMPTS, SLOTS, EVENTS)
            return cls(*([dict(row) for row in connection.execute(query)] for query in queries))

    @property
    def states(self) -> dict[str, str]:
        """By idempotency key; what is held is called held."""
        return {row["idempotency_key"]: "held" if row["held"] else row["state"] for row in self.transactions}


async def audit(
    node: Anvil,
    store: Path | Books,
    expected: Mapping[str, str],
    *,
    foreign: Collection[str] = (),
    left_over: bool = False,
) -> Audit:
    """Raises unless chain and store agree to the last transaction.

    `expected` is the state of each key; `foreign` are hashes that others made with our keys. `left_over`: something is
    expected to be in flight still.
    """
    books = store if isinstance(store, Books) else Books.of(store)
    chain = await read_chain(node)
    assert books.states == expected
    by_hash = {deed.hash: deed for deed in chain}
    ours = {row["address"] for row in books.transactions}
    by_sender: dict[str, dict[What, list[Deed]]] = defaultdict(lambda: defaultdict(list))
    for deed in chain:
        by_sender[deed.sender][deed.what].append(deed)
    for row in books.transactions:
        _check(row, books, by_sender[row["address"]], by_hash)
    strangers = [deed for deed in chain if deed.sender in ours and deed.hash not in {*books.attempts, *foreign}]
    assert not strangers, f"executed by our accounts, and neither signed here nor known to the test: {strangers}"
    assert set(foreign) <= set(by_hash), "what somebody else did is on the chain"
    for address in ours:
        await _check_account(node, address, chain, books, left_over=left_over)
    ran = [books.attempts[deed.hash] for deed in chain if deed.hash in books.attempts]
    kinds = Counter(attempt["kind"] for attempt in ran)
    assert all(by_hash[one["hash"]].does_nothing for one in ran if one["kind"] in {"filler", "cancel"})
    return Audit(
        fillers=kinds["filler"], bumps=kinds["bump"], cancels=kinds["cancel"], replacements=kinds["replacement"]
    )


def _check(row: dict[str, Any], books: Books, done: Mapping[What, list[Deed]], by_hash: Mapping[str, Deed]) -> None:
    """One transaction: it ran as often as its state says, as it says, and its end was told once."""
    key, state = row["idempotency_key"], row["state"]
    payloads = [_what(one) for one in [*json.loads(row["earlier"] or "[]"), json.loads(row["payload"])]]
    ran = [deed for what in set(payloads) for deed in done.get(what, ())]
    mine = [one for one in books.attempts_of[row["id"]] if one["hash"] in by_hash]
    assert len(mine) <= 1, f"{key} consumed {len(mine)} nonces"
    if state in RAN:
        assert len(ran) == 1, f"{key} ran {len(ran)} times and is called {state}"
        assert mine, f"{key} ran by bytes that are nowhere recorded: {ran}"
        [deed], [attempt] = ran, mine
        assert deed.what == payloads[attempt["payload_version"] - 1], key
        assert deed.status == RAN[state], f"{key} is called {state}"
        assert (row["nonce"], row["hash"]) == (deed.nonce, deed.hash), key
        receipt = json.loads(row["receipt"])
        assert tuple(receipt["block"]) == deed.block, key
        assert receipt["succeeded"] == (state == "confirmed")
    else:
        # Somebody else may have done the same; ours did not.
        own = [deed for deed in ran if deed.hash in books.attempts]
        assert not own, f"{key} ran, and is called {state}"
        assert all(by_hash[one["hash"]].does_nothing for one in mine), key
        assert bool(mine) == (row["hash"] in by_hash), f"{key}: {row['hash']} is what ran, if anything did"
    ends = Counter({kind: n for kind, n in books.events[row["id"]].items() if kind.removeprefix("tx.") in _ENDS})
    assert ends == ({f"tx.{state}": 1} if state in _ENDS else {}), f"{key} is {state}, and was told {ends}"


def _what(payload: dict[str, Any]) -> What:
    return payload["to"], int(payload["value"]), "0x" + payload["data"]


_ENDS = frozenset({"confirmed", "reverted", "failed", "cancelled", "expired"})


async def _check_account(node: Anvil, address: str, chain: list[Deed], books: Books, *, left_over: bool) -> None:
    nonces = sorted(deed.nonce for deed in chain if deed.sender == address)
    counts = {tag: int(await node.rpc("eth_getTransactionCount", address, tag), 16) for tag in ("latest", "pending")}
    # A nonce may be consumed by no transaction of the account's own: an authorisation does that too.
    assert len(set(nonces)) == len(nonces)
    assert max(nonces, default=-1) < counts["latest"]
    if left_over:
        return
    open_slots = [slot for slot in books.slots if slot["address"] == address and not slot["settled"]]
    assert not open_slots, f"{address} has slots that are not final: {open_slots}"
    assert counts["pending"] == counts["latest"], f"{address} has something in the pool"
