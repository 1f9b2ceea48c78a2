"""The audit after chaos: every block of the chain and every row of the store, promise by promise.

What `scenarios/books.py` compares (each transaction ran as often as its state says, and nothing else ran) is only the
beginning: many nodes wrote these rows, so it also matters who wrote what, when, and in which order.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import asyncpg
from eth_utils import keccak

from tests.anvil import Anvil
from tests.e2e.scenarios import books
from tests.e2e.scenarios.books import Books, Rows

LIVE = ("queued", "signed", "sent", "mined")
NOTHING_LEFT = {
    "live transactions": f"SELECT count(*) FROM transactions WHERE state IN {LIVE}",
    "slots that are not final": "SELECT count(*) FROM slots WHERE NOT settled",
    "wishes without a reply": "SELECT count(*) FROM wishes WHERE reply IS NULL",
    "lanes that wait for the chain": "SELECT count(quarantined_below) FROM lanes",
    "lanes that are not open": "SELECT count(*) FROM controls WHERE mode <> 'open'",
    "marks on lanes": "SELECT count(attention) FROM lanes",
    "events without a position": "SELECT count(*) FROM events WHERE position IS NULL",
}


class Witness:
    """Asks the store for signed transactions that are on their way to the chain, before they are there.

    A server that is away cannot be asked; whoever passes then has only the time of signing to show.
    """

    SECONDS = 5.0

    def __init__(self, dsn: str, schema: str) -> None:
        self.recorded: set[bytes] = set()  # those that were committed when they passed
        self.missing: list[bytes] = []
        self._dsn = dsn
        self._schema = schema
        self._turn = asyncio.Lock()
        self._connection: asyncpg.Connection | None = None

    async def __call__(self, passing: Sequence[bytes]) -> None:
        hashes = {"0x" + keccak(raw).hex(): raw for raw in passing}
        async with self._turn:
            try:
                found = await self._known(list(hashes))
            except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError):
                await self.close()
                return
        self.recorded.update(hashes[known] for known in found)
        self.missing += [raw for hash, raw in hashes.items() if hash not in found]

    async def _known(self, hashes: list[str]) -> set[str]:
        if self._connection is None:
            options = {"search_path": self._schema}
            self._connection = await asyncpg.connect(self._dsn, timeout=self.SECONDS, server_settings=options)
        query = "SELECT hash FROM attempts WHERE hash = ANY ($1)"
        return {row["hash"] for row in await self._connection.fetch(query, hashes, timeout=self.SECONDS)}

    async def close(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None


@dataclass(frozen=True, slots=True)
class Verdict:
    ends: Counter[str]
    attempts: int
    sent: int  # signed transactions that left a node, counted on the wire
    witnessed: int  # those of them that the store was asked for on their way, and had
    epochs: int
    fillers: int
    bumps: int
    cancels: int
    losses: int  # how often the store was thought to have lost commits

    def __str__(self) -> str:
        ends = ", ".join(f"{state} {count}" for state, count in sorted(self.ends.items()))
        return (
            f"audit clean: {ends}; {self.attempts} attempts recorded, of which {self.sent} were seen on the wire, all "
            f"with an earlier time of signing, {self.witnessed} of them found in the store before they reached the chain; "
            f"{self.epochs} epochs; on the chain {self.bumps} bumps, {self.cancels} cancels, "
            f"{self.fillers} fillers; the store thought to have lost commits {self.losses} times"
        )


async def audit(
    node: Anvil,
    connection: asyncpg.Connection,
    *,
    acknowledged: Mapping[str, str],
    asked: int,
    unwanted: Collection[str],
    sent: Mapping[bytes, int],
    witness: Witness,
    stopped: Sequence[str],
) -> Verdict:
    """Raises unless everything holds. `sent`: the bytes that left a node, and when; `stopped`: who left in good order."""
    left = {what: await connection.fetchval(query) for what, query in NOTHING_LEFT.items()}
    assert not any(left.values()), f"P2, P8: left over: { ({what: count for what, count in left.items() if count}) }"
    kept = await connection.fetchval(
        "SELECT (SELECT count(*) FROM leases WHERE owner = ANY ($1)) + (SELECT count(*) FROM nodes WHERE owner = ANY ($1))",
        stopped,
    )
    assert kept == 0, "who stops in good order leaves no lease"
    ledger = Books(
        *[
            [dict(row) for row in await connection.fetch(query)]
            for query in (books.TRANSACTIONS, books.ATTEMPTS, books.SLOTS, books.EVENTS)
        ]
    )
    _nothing_lost(ledger, acknowledged, asked, unwanted)
    # P3, P7, and most of P4: each ran as its state says, and nothing ran that was not signed here.
    found = await books.audit(node, ledger, ledger.states)
    await _final_and_gapless(node, ledger)
    _recorded_first(ledger, sent)
    assert not witness.missing, f"P4: on their way before they were committed: {[raw.hex() for raw in witness.missing]}"
    epochs = await _fenced(ledger, connection)
    await _told_in_order(connection)
    return Verdict(
        ends=Counter(ledger.states.values()),
        attempts=len(ledger.attempts),
        sent=len(sent),
        witnessed=len(witness.recorded),
        epochs=epochs,
        fillers=found.fillers,
        bumps=found.bumps,
        cancels=found.cancels,
        losses=await connection.fetchval("SELECT incarnation FROM meta"),
    )


def _nothing_lost(ledger: Books, acknowledged: Mapping[str, str], asked: int, unwanted: Collection[str]) -> None:
    """P2: what was acknowledged is there, under the id that was told, and ended as it was asked for."""
    ids = {row["idempotency_key"]: row["id"] for row in ledger.transactions}
    assert len(ids) == len(ledger.transactions), "one key made two transactions"
    lost = {key: tx_id for key, tx_id in acknowledged.items() if ids.get(key) != tx_id}
    assert not lost, f"P2: acknowledged, and not in the store: {lost}"
    assert len(acknowledged) == asked == len(ids)
    wrong = {
        key: state
        for key, state in ledger.states.items()
        if state != "confirmed" and not (state == "cancelled" and key in unwanted)
    }
    assert not wrong, f"P7: ended as nobody asked: {wrong}"


async def _final_and_gapless(node: Anvil, ledger: Books) -> None:
    """P1, P5, P7: every account's nonces are 0 and up, once each, in blocks that are final, at the slot of who ran."""
    final = int((await node.rpc("eth_getBlockByNumber", "finalized", False))["number"], 16)
    slots = {(slot["address"], slot["nonce"]): slot["tx_id"] for slot in ledger.slots}
    nonces: dict[str, list[int]] = defaultdict(list)
    for deed in await books.read_chain(node):
        if deed.hash in ledger.attempts:
            nonces[deed.sender].append(deed.nonce)
            owner = ledger.attempts[deed.hash]["tx_id"]
            assert slots[deed.sender, deed.nonce] == owner, f"P1: {deed} ran at the slot of another"
            assert deed.block[0] <= final, f"P7: {deed} has ended, and is not final"
    for sender, taken in nonces.items():
        assert sorted(taken) == list(range(len(taken))), f"P5: {sender} has a gap: {sorted(taken)}"


def _recorded_first(ledger: Books, sent: Mapping[bytes, int]) -> None:
    """P4: whatever left a node is recorded, with a time of signing before it left. When that was committed, no row tells: the
    witness does."""
    for raw, at in sent.items():
        attempt = ledger.attempts.get("0x" + keccak(raw).hex())
        assert attempt is not None, f"P4: sent, and nowhere recorded: {raw.hex()}"
        assert bytes(attempt["raw"]) == raw
        assert attempt["signed_at"] <= at, f"P4: sent at {at}, and recorded later: {attempt}"


async def _fenced(ledger: Books, connection: asyncpg.Connection) -> int:
    """P6: in a lane, nothing of an earlier epoch was ever written after something of a later one."""
    by_lane: dict[str, Rows] = defaultdict(list)
    for attempt in ledger.attempts.values():
        by_lane[attempt["address"]].append(attempt)
    epochs: dict[str, int] = dict(await connection.fetch("SELECT address, epoch FROM leases"))  # type: ignore[arg-type]
    told = await _leases_told(connection)
    for lane, attempts in by_lane.items():
        # They were numbered under the lane's lock, in the order in which they were written.
        written = [attempt["epoch"] for attempt in sorted(attempts, key=lambda attempt: attempt["number"])]
        assert written == sorted(written), f"P6: {lane}: a stale owner wrote: {written}"
        assert written[-1] <= epochs[lane]
        assert told[lane] == sorted(set(told[lane])), f"P6: {lane}: epochs do not rise: {told[lane]}"
    return sum(epochs.values())


async def _leases_told(connection: asyncpg.Connection) -> dict[str, list[int]]:
    found: dict[str, list[int]] = defaultdict(list)
    query = """
        SELECT address, (data::JSONB ->> 'epoch')::BIGINT AS epoch FROM events WHERE kind = 'lane.lease' ORDER BY position
    """
    for row in await connection.fetch(query):
        found[row["address"]].append(row["epoch"])
    return found


async def _told_in_order(connection: asyncpg.Connection) -> None:
    """A history begins with the acceptance and ends with the end, in the order of positions."""
    query = "SELECT tx_id, kind FROM events WHERE tx_id IS NOT NULL ORDER BY position"
    kinds: dict[str, list[Any]] = defaultdict(list)
    for row in await connection.fetch(query):
        kinds[row["tx_id"]].append(row["kind"])
    for tx_id, told in kinds.items():
        assert told[0] == "tx.accepted", f"{tx_id}: {told}"
        assert told[-1] in ("tx.confirmed", "tx.cancelled"), f"{tx_id}: {told}"
