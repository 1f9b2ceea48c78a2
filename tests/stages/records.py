"""What the store says, as a bystander reads it who stands behind nobody's gate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from nonchalant.model import Attempt, Event, Transaction
from nonchalant.ports import Clock, LaneSummary
from nonchalant.sim.store import SimWitness, new_database, older_database
from nonchalant.store.sqlite import SqliteStore
from nonchalant.store.witness import notice_restore
from nonchalant.words import AttemptKind, LaneKey, State
from tests.stages.setting import ALICE

T = TypeVar("T")


class Records:
    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.database = new_database("00" * 16)
        self._witness = SimWitness()
        self.lost_commits = False

    @property
    def store(self) -> SqliteStore:
        return SqliteStore(
            writer=self.database,
            reader=self.database,
            offload_write=in_place,
            offload_read=in_place,
            clock=self.clock,
            witness=self._witness,
        )

    def put_back(self, copy: bytes) -> None:
        """An older copy of the database stands in its place."""
        self.database = older_database(copy)
        self.lost_commits = True
        notice_restore(self.database, self._witness)

    def forget_witness(self) -> None:
        self._witness.forget()

    async def read(self, tx: Transaction) -> Transaction:
        found = await self.store.transaction(tx.id)
        assert found is not None, f"{tx.id} is lost"
        return found

    async def state(self, tx: Transaction) -> State:
        return (await self.read(tx)).state

    async def states(self, txs: Sequence[Transaction]) -> list[State]:
        return [await self.state(tx) for tx in txs]

    async def nonces(self, txs: Sequence[Transaction]) -> list[int | None]:
        return [(await self.read(tx)).nonce for tx in txs]

    async def mark(self, tx: Transaction) -> str | None:
        """The code of what it was marked for."""
        attention = (await self.read(tx)).attention
        return attention and attention.code

    async def attempts(self, tx: Transaction) -> Sequence[Attempt]:
        return (await self.store.attempts([tx.id]))[tx.id]

    async def history(self, tx: Transaction) -> list[str]:
        return [event.kind for event in await self.store.history(tx.id)]

    async def events(self, kind: str, lane: LaneKey = ALICE) -> list[Event]:
        every = await self.store.events_after(0, limit=100_000)
        return [event for event in every if event.kind == kind and event.lane == lane]

    async def kinds(self, tx: Transaction) -> list[AttemptKind]:
        """What was signed for it, in order."""
        return [attempt.kind for attempt in await self.attempts(tx)]

    async def told(self, tx: Transaction, kind: str) -> list[dict[str, Any]]:
        """What its events of this kind say."""
        return [dict(event.data) for event in await self.store.history(tx.id) if event.kind == kind]

    def wishes_open(self) -> int:
        return int(self.database.execute("SELECT count(*) FROM wishes WHERE reply IS NULL").fetchone()[0])

    async def lane(self, lane: LaneKey = ALICE) -> LaneSummary:
        found = await self.store.lane(lane)
        assert found is not None
        return found

    async def lane_mark(self, lane: LaneKey = ALICE) -> str | None:
        attention = (await self.lane(lane)).record.attention
        return attention and attention.code

    def slots(self, lane: LaneKey = ALICE) -> dict[int, str]:
        """Every slot there ever was: its nonce, and what it is bound to."""
        found = self.database.execute(
            "SELECT nonce, coalesce(tx_id, kind) AS bound FROM slots WHERE chain_id = ? AND address = ? ORDER BY nonce",
            lane,
        )
        return {row["nonce"]: row["bound"] for row in found}

    def attempts_ever(self, lane: LaneKey = ALICE) -> int:
        return int(
            self.database.execute("SELECT count(*) FROM attempts WHERE chain_id = ? AND address = ?", lane).fetchone()[
                0
            ]
        )


async def in_place(act: Callable[[], T]) -> T:
    return act()
