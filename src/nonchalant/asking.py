"""Asking: what people want of transactions and lanes, taken by any node.

A queued transaction belongs to every node: what is wanted of it is one guarded write. What has a slot belongs to the
lane's owner: there the wish is written down, and the owner grants it. Whoever asks cannot know which of the two it is
at the moment of the write, so both are tried until one holds.
"""

from __future__ import annotations

from collections.abc import Callable

from nonchalant import lifecycle
from nonchalant.errors import (
    CommitUnknown,
    MayHaveRun,
    NotFound,
    RowMoved,
    StoreUnavailable,
    TooLate,
    TooManyReplacements,
    TooManyWishes,
    WishPending,
    WishRefused,
)
from nonchalant.model import Attention, Control, Event, Fees, Payload, Reply, Transaction
from nonchalant.ports import Clock, Entropy, Filter, Store, Wished
from nonchalant.twins import hold_for_twin
from nonchalant.wishes import MOST_REPLACEMENTS, Bump, Cancel, OfLane, OfTransaction, Replace, Wish
from nonchalant.words import HELD_MARK, LaneKey, Mode, Speed, State, TxId

# Open wishes a lane may have: its owner grants hundreds a second.
MOST_WISHES = 10_000

# How often a row that moves between being read and being written is tried again.
TRIES = 50

# How long the owner of a lane may take to say yes or no to a wish about a transaction. After that the wish stands, and
# who made it learns from the transaction what came of it.
OWNER_SECONDS = 5.0

# How long it may take to answer one about the lane, and how often either is looked for.
PATIENCE_SECONDS = 10.0
LOOK_SECONDS = 0.05

# Transactions cancelled in one go when a whole lane is.
PAGE = 500

Move = lifecycle.Cancelled | lifecycle.Replaced | lifecycle.Valued | lifecycle.Held | lifecycle.Released


class Asking:
    def __init__(self, store: Store, clock: Clock, entropy: Entropy, *, arrived: Callable[[LaneKey], None]) -> None:
        self._store = store
        self._clock = clock
        self._entropy = entropy
        self._arrived = arrived

    # about one transaction: `patience` is how many seconds the owner may take to say yes or no (`WishRefused`), where it
    # is the owner's to say. Without an answer by then, the wish stands.

    async def cancel(self, tx_id: TxId, *, patience: float = 0.0) -> Transaction:
        """It will not run, if that can still be helped; the outcome tells. `MayHaveRun` while nobody knows whether it did."""
        return await self._ask(tx_id, Cancel(tx_id), lambda _: [lifecycle.Cancelled()], patience)

    async def call_off(self, tx_id: TxId) -> Transaction:
        """It will not run, and spends no nonce. `TooLate` once it has a slot: then nothing is done about it."""
        return await self._ask(tx_id, None, lambda _: [lifecycle.Cancelled()])

    async def replace(
        self, tx_id: TxId, payload: Payload, fees: Speed | Fees | None = None, *, patience: float = 0.0
    ) -> Transaction:
        """Another payload under the same id, at the same slot if it has one."""

        def moves(_: Transaction) -> list[Move]:
            return [lifecycle.Replaced(payload), *([] if fees is None else [lifecycle.Valued(fees)])]

        return await self._ask(tx_id, Replace(tx_id, payload, fees), moves, patience)

    async def bump(self, tx_id: TxId, fees: Speed | Fees | None = None, *, patience: float = 0.0) -> Transaction:
        """Offer more for it; while it is queued this only changes what will be offered."""
        moves: list[Move] = [] if fees is None else [lifecycle.Valued(fees)]
        return await self._ask(tx_id, Bump(tx_id, fees), lambda _: moves, patience)

    async def carry_out(self, act: OfTransaction, *, patience: float = 0.0) -> Transaction:
        """As the method of its name."""
        match act:
            case Cancel(tx_id):
                return await self.cancel(tx_id, patience=patience)
            case Replace(tx_id, payload, fees):
                return await self.replace(tx_id, payload, fees, patience=patience)
            case Bump(tx_id, fees):
                return await self.bump(tx_id, fees, patience=patience)

    async def hold(self, tx_id: TxId, reason: str = "") -> Transaction:
        """Keep a queued transaction from being sent. `TooLate` once it has a slot."""
        mark = Attention(HELD_MARK, reason or "somebody holds it; release it when it should go", self._clock.now())
        return await self._ask(tx_id, None, lambda tx: [] if tx.held else [lifecycle.Held(mark)])

    async def release(self, tx_id: TxId, mark: str = HELD_MARK) -> Transaction:
        """Let a held transaction go, at the place it had. `TooLate` once it has a slot.

        What is held for doubt may pay twice if it goes: whoever releases it names the `mark`, and so has seen it.
        """
        return await self._ask(tx_id, None, lambda tx: _released(tx, mark))

    async def _ask(
        self,
        tx_id: TxId,
        act: OfTransaction | None,
        moves: Callable[[Transaction], list[Move]],
        patience: float = 0.0,
    ) -> Transaction:
        wish_id = self._entropy.token()
        wished = False
        for _ in range(TRIES):
            tx = await self._store.transaction(tx_id)
            if tx is None:
                raise NotFound(f"there is no transaction {tx_id}")
            if not tx.live:
                if tx.state is State.CANCELLED and isinstance(act, Cancel):
                    return tx
                raise TooLate(f"{tx_id} is {tx.state} already")
            if isinstance(act, Replace) and len(tx.earlier) >= MOST_REPLACEMENTS:
                raise TooManyReplacements(
                    f"{tx_id} was replaced {len(tx.earlier)} times; cancel it, and send a new one"
                )
            if tx.state is State.QUEUED:
                if await self._altered(tx, moves(tx)):
                    break
            elif act is None:
                raise TooLate(f"{tx_id} is {tx.state}: only what is queued can be held, released or called off")
            elif tx.state is State.MINED and not isinstance(act, Cancel):
                raise TooLate(f"{tx_id} is executed in block {tx.receipt.block.number if tx.receipt else '?'} already")
            elif wished := await self._wished(Wish(wish_id, tx.lane, act)):
                break
        else:
            raise StoreUnavailable(f"{tx_id} moves too fast; ask again")
        self._arrived(tx.lane)
        if wished and patience > 0:
            _raise_if_refused(await self._heard(wish_id, patience))
        return await self._store.transaction(tx_id) or tx

    async def _altered(self, tx: Transaction, moves: list[Move]) -> bool:
        """Move a queued row. False: it is not as it was read; read it again."""
        if not moves:
            return True
        now, moved = self._clock.now(), tx
        events: list[Event] = []
        for move in moves:
            moved, told = lifecycle.step(moved, move, now)
            events += told
        try:
            # However many steps it takes, the row is written once.
            await self._store.alter_queued(lifecycle.one_version_on(moved, tx), events)
        except (RowMoved, CommitUnknown):
            return False
        except MayHaveRun:
            if await hold_for_twin(self._store, tx, now):
                raise MayHaveRun(
                    f"what {tx.id} would do was done, unknown to this store, so it is held: see its mark, then cancel it "
                    "again, or release it"
                ) from None
            raise
        return True

    async def _wished(self, wish: Wish) -> bool:
        """Write it down. False: the transaction has no slot now; look again."""
        try:
            answer = await self._store.wish(wish, limit=MOST_WISHES)
        except CommitUnknown:
            return False  # the same id again is the same wish
        if answer is Wished.TOO_MANY:
            raise TooManyWishes(f"{MOST_WISHES} wishes are open in lane {wish.lane}; try again later")
        return answer is Wished.TAKEN

    # about a lane

    async def control(self, lane: LaneKey, mode: Mode, reason: str = "") -> Control:
        """Open, pause or drain the lane, at once and on every node. `WishRefused` if it is halted: that it only opens."""
        before = await self._store.control(lane, mode, reason)
        if before.mode is Mode.HALTED and mode is not Mode.OPEN:
            raise WishRefused(f"the lane is halted ({before.reason}); resume it first", "lane_halted")
        self._arrived(lane)
        return Control(mode, reason, self._clock.now())

    async def cancel_all(self, lane: LaneKey) -> int:
        """Cancel everything that is live; how many were asked for.

        `MayHaveRun` if that cannot be asked for all of it now; what could be is cancelled all the same.
        """
        asked, undecided, before = 0, 0, None
        while True:
            page = await self._store.transactions(
                Filter(chain_id=lane.chain_id, sender=lane.address, live=True, before=before, limit=PAGE)
            )
            for tx in page:
                try:
                    await self.cancel(tx.id)
                    asked += 1
                except (TooLate, NotFound):
                    pass  # it ended meanwhile
                except MayHaveRun:
                    undecided += 1
            if len(page) < PAGE:
                break
            before = page[-1].place
        if undecided:
            raise MayHaveRun(
                f"{asked} were asked for; of {undecided} more nobody can say yet whether they ran: the store lost commits, and "
                "the lane is being compared with the chain; ask again"
            )
        return asked

    async def of_lane(self, lane: LaneKey, act: OfLane, seconds: float = PATIENCE_SECONDS) -> Reply:
        """Have the lane's owner do something, and wait for its answer.

        `WishRefused` with its reason; `WishPending` if nobody answered in time: then nothing was done, and nothing
        will be.
        """
        wish = Wish(self._entropy.token(), lane, act)
        while not await self._wished(wish):
            await self._clock.sleep(LOOK_SECONDS)
        self._arrived(lane)
        while (reply := await self._heard(wish.id, seconds)) is None:
            if await self._withdrawn(wish):
                raise WishPending(f"no node works lane {lane} now; nothing was done, ask again")
            seconds = LOOK_SECONDS
        _raise_if_refused(reply)
        return reply

    async def _heard(self, wish_id: str, seconds: float) -> Reply | None:
        """What the owner answers within that time; None: nothing."""
        deadline = self._clock.monotonic() + seconds
        while (reply := await self._store.reply(wish_id)) is None and self._clock.monotonic() < deadline:
            await self._clock.sleep(LOOK_SECONDS)
        return reply

    async def _withdrawn(self, wish: Wish) -> bool:
        try:
            return await self._store.withdraw(wish.id)
        except (CommitUnknown, StoreUnavailable):
            return False


def _released(tx: Transaction, mark: str) -> list[Move]:
    if not tx.held:
        return []
    code, reason = (tx.attention.code, tx.attention.reason) if tx.attention else (HELD_MARK, "")
    if code != mark:
        raise WishRefused(
            f"it is held for another reason ({reason}); if it should go all the same, release it with the mark {code}",
            "held_for_another_reason",
            {"mark": code},
        )
    return [lifecycle.Released()]


def _raise_if_refused(reply: Reply | None) -> None:
    if reply is not None and reply.refused is not None:
        raise WishRefused(str(reply.data.get("reason", reply.refused)), reply.refused, reply.data)
