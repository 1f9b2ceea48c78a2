"""What happened in a history, as far as the promises speak of it: bytes, blocks, commits. No judgement here."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from nonchalant.model import Attempt, Transaction
from nonchalant.sim.blocks import Deed, SimBlock
from nonchalant.sim.chain import FOREIGN, SimChain
from nonchalant.sim.loop import SimLoop
from nonchalant.sim.traffic import Errand
from nonchalant.sim.wire import SimTx, read_order, root_of
from nonchalant.store import rows
from nonchalant.words import HELD_MARK, AttemptKind, Hash, LaneKey, State, TxId


@dataclass(slots=True)
class Known:
    """An attempt that was committed at some time."""

    hash: Hash
    lane: LaneKey
    nonce: int
    tx_id: TxId | None
    kind: AttemptKind
    version: int  # which of the transaction's payloads it carries; 0: it does nothing
    rank: int  # the order in which attempts were committed
    store: int  # which store knew it last: a restored one is another


@dataclass(slots=True)
class Deeds:
    """What one chain has executed on its canonical branch, by the root of its label."""

    canonical: set[Hash] = field(default_factory=set)
    executed: set[Hash] = field(default_factory=set)
    counts: Counter[str] = field(default_factory=Counter)


class Facts:
    """Kept beside the store, so that a store that forgets does not make us forget."""

    def __init__(self, loop: SimLoop, errands: Sequence[Errand]) -> None:
        self.chains: Mapping[int, SimChain] = {}
        self.errands = {errand.label: errand for errand in errands}
        self.stores = 0  # how often an older copy was put in the store's place
        self.accepted: set[TxId] = set()
        self.acknowledged: dict[TxId, str] = {}
        self.lost: set[TxId] = set()  # accepted, and gone with the store that had accepted them
        # By the root of its label: attempts of replacements that went with a lost store, whether or not what they replaced
        # was kept. Nobody could know them for its own, nor for what is asked for again, so what they did counts as a
        # stranger's.
        self.torn: dict[str, set[Hash]] = {}
        self.states: dict[TxId, State] = {}
        self.attempts: dict[Hash, Known] = {}
        self.unwanted: set[str] = set()  # labels that somebody asked to cancel
        self.holders: dict[tuple[LaneKey, int], str] = {}  # which process took the lease with this epoch
        self.left: dict[tuple[LaneKey, int], dict[TxId | None, Hash]] = {}  # whose bytes reached a node, by slot
        self.born: dict[Hash, float] = {}
        self._loop = loop
        self._deeds: dict[int, Deeds] = {}
        self._owners: dict[LaneKey, str] = {}
        self._database: sqlite3.Connection | None = None

    # the store

    def opened(self, database: sqlite3.Connection) -> None:
        self._database = database

    def restored(self, database: sqlite3.Connection) -> None:
        """Another, older store from here on. What it does not know is lost, but stays a fact."""
        roots = {tx.id: read_order(tx.payload.data).root for tx in self.transactions()}
        self._database = database
        self.stores += 1
        self.lost |= roots.keys() - self.ids()
        self.holders.clear()
        self._owners.clear()
        self.left.clear()
        self.states = {row["id"]: State(row["state"]) for row in self.rows("SELECT id, state FROM transactions")}
        for row in self.rows("SELECT hash FROM attempts"):
            self.attempts[row["hash"]].store = self.stores
        kept = {tx.id: tx for tx in self.transactions()}
        for hash, known in self.attempts.items():
            tx_id = known.tx_id or ""
            if tx_id in roots and known.version > (kept[tx_id].payload_version if tx_id in kept else 1):
                self.torn.setdefault(roots[tx_id], set()).add(hash)

    def rows(self, sql: str, *columns: object) -> list[sqlite3.Row]:
        assert self._database is not None
        return self._database.execute(sql, columns).fetchall()

    def ids(self) -> set[TxId]:
        return {row["id"] for row in self.rows("SELECT id FROM transactions")}

    def transactions(self) -> list[Transaction]:
        return [rows.transaction(row) for row in self.rows("SELECT * FROM transactions")]

    def live(self, lane: LaneKey | None = None) -> list[Transaction]:
        """What has not come to its end, and is not held."""
        found = self.rows(
            "SELECT * FROM transactions WHERE state IN ('queued', 'signed', 'sent', 'mined') AND held = 0"
        )
        live = [rows.transaction(row) for row in found]
        return [tx for tx in live if lane is None or tx.lane == lane]

    def held_by_people(self) -> list[TxId]:
        """What somebody asked to be held, and not the lane's owner for a doubt of its own."""
        held = [rows.transaction(row) for row in self.rows("SELECT * FROM transactions WHERE held = 1")]
        return [tx.id for tx in held if tx.attention is not None and tx.attention.code == HELD_MARK]

    def is_stored(self, hash: Hash) -> bool:
        """Whether the store, as it is now, has this attempt."""
        return bool(self.rows("SELECT 1 FROM attempts WHERE hash = ?", hash))

    def slots(self, lane: LaneKey) -> set[int]:
        """Nonces that are bound and not final."""
        found = self.rows("SELECT nonce FROM slots WHERE chain_id = ? AND address = ? AND settled = 0", *lane)
        return {row["nonce"] for row in found}

    def used_reservations(self) -> list[tuple[LaneKey, int]]:
        """Nonces whose holder says that he signed something for them, and that are not final."""
        found = self.rows(
            "SELECT chain_id, address, nonce FROM slots WHERE kind = 'reservation' AND settled = 0"
            " AND EXISTS (SELECT 1 FROM attempts WHERE (chain_id, address, nonce, tx_id IS NULL) ="
            " (slots.chain_id, slots.address, slots.nonce, 1))"
        )
        return [(LaneKey(row["chain_id"], row["address"]), row["nonce"]) for row in found]

    def unsettled_slots(self) -> bool:
        return bool(self.rows("SELECT 1 FROM slots WHERE settled = 0 LIMIT 1"))

    # leases

    def acquire(self, who: str, lane: LaneKey, epoch: int) -> str:
        """The process that took this epoch first."""
        self._owners[lane] = who
        return self.holders.setdefault((lane, epoch), who)

    def owner(self, lane: LaneKey) -> str | None:
        """The process that took the lease last."""
        return self._owners.get(lane)

    def epoch(self, lane: LaneKey) -> int:
        """Under which its owner works it now."""
        [row] = self.rows("SELECT epoch FROM leases WHERE chain_id = ? AND address = ?", *lane)
        return int(row["epoch"])

    # attempts

    def commit(self, attempt: Attempt, lane: LaneKey) -> None:
        known = Known(
            attempt.hash,
            lane,
            attempt.nonce,
            attempt.tx_id,
            attempt.kind,
            attempt.payload_version,
            len(self.attempts),
            self.stores,
        )
        self.attempts.setdefault(attempt.hash, known)

    def attempts_of(self, tx: Transaction) -> list[Known]:
        return [known for known in self.attempts.values() if known.tx_id == tx.id]

    def is_known(self, known: Known) -> bool:
        """Whether the store of now has it."""
        return known.store == self.stores

    def is_torn(self, known: Known) -> bool:
        """Whether it is of a replacement that nobody could know of any more."""
        return any(known.hash in hashes for hashes in self.torn.values())

    def lost_nonces(self) -> list[tuple[LaneKey, int]]:
        """Nonces that were given out by commits that are lost."""
        return [(known.lane, known.nonce) for known in self.attempts.values() if not self.is_known(known)]

    def highest(self) -> dict[LaneKey, int]:
        """The highest nonce of each lane whose bytes a node has had."""
        highest: dict[LaneKey, int] = {}
        for lane, nonce in self.left:
            highest[lane] = max(nonce, highest.get(lane, -1))
        return highest

    # the chains

    def grow(self, chain: SimChain, head: SimBlock, dropped: Sequence[SimBlock]) -> list[SimBlock]:
        """Follow the canonical chain; the blocks that are new on it, highest first."""
        deeds = self._deeds.setdefault(chain.chain_id, Deeds())
        for block in dropped:
            deeds.canonical.discard(block.hash)
            deeds.counts.subtract(tx.order.root for tx in block.transactions)
            deeds.executed.difference_update(tx.hash for tx in block.transactions)
        new: list[SimBlock] = []
        for block in head.down():
            if block.hash in deeds.canonical:
                break
            new.append(block)
            deeds.canonical.add(block.hash)
            deeds.counts.update(tx.order.root for tx in block.transactions)
            deeds.executed.update(tx.hash for tx in block.transactions)
            self.born.setdefault(block.hash, self._loop.time())
        return new

    def executions(self, chain_id: int, label: str) -> int:
        """How often the canonical chain has executed it, or what replaced it."""
        if chain_id not in self._deeds:
            return 0
        root, deeds = root_of(label), self._deeds[chain_id]
        return deeds.counts[root] - len(self.torn.get(root, set()) & deeds.executed)

    def consumed(self, lane: LaneKey, *, final: bool) -> int:
        """The account's count at the head, or at finality."""
        chain = self.chains[lane.chain_id]
        return (chain.final if final else chain.head).ledger.account(lane.address).count

    def reached(self, lane: LaneKey) -> int:
        """The most that any endpoint ever showed the account to have executed, also on branches that are gone."""
        return max(endpoint.reached.get(lane.address, 0) for endpoint in self.chains[lane.chain_id].endpoints)

    def canonical(self, lane: LaneKey) -> Iterator[tuple[SimBlock, SimTx]]:
        """Everything the account executed, newest first."""
        for block in self.chains[lane.chain_id].head.down():
            for tx in block.transactions:
                if tx.sender == lane.address:
                    yield block, tx

    def is_used_by_others(self, lane: LaneKey) -> bool:
        return any(tx.order.label.startswith(FOREIGN) for _, tx in self.canonical(lane)) or any(
            one.deed in (Deed.AUTHORISED, Deed.DELEGATED) and one.address == lane.address
            for block in self.chains[lane.chain_id].head.down()
            for one in block.happenings
        )

    # names

    def errand_of(self, tx: Transaction) -> Errand:
        return self.errands[read_order(tx.payload.data).root]

    def name(self, tx: Transaction) -> str:
        return f"{self.errand_of(tx).label}({tx.id[:4]})"


def short(lane: LaneKey) -> str:
    return f"{lane.chain_id}/{lane.address[2:4]}"
