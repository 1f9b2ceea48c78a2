"""Our own rules, each broken in one place. The simulator must catch every one, or it proves nothing.

A mutant replaces one named function or one named query for as long as it is in force; the code it breaks has no switch
for it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from nonchalant import (
    admit,
    advice,
    attend,
    broadcast,
    fees,
    heads,
    hooks,
    lifecycle,
    poison,
    policy,
    proof,
    reconcile,
    rescue,
    settle,
    tools,
    watch,
)
from nonchalant.advice import Adviser
from nonchalant.arrivals import Caller
from nonchalant.desk import Desk
from nonchalant.engine import Engine
from nonchalant.errors import CommitUnknown
from nonchalant.fees import FeeRules
from nonchalant.lanes import UNPLACED, Lane, Work
from nonchalant.model import Answer, Attempt, Fees, Lease, Receipt, Refused, Request, Slot, Transaction, View
from nonchalant.policy import NEVER_SENT
from nonchalant.ports import Advice
from nonchalant.proof import Search
from nonchalant.rejections import Fate, Rejection
from nonchalant.sim.node import NodeChain
from nonchalant.sim.world import SimEntropy, World
from nonchalant.store import queries
from nonchalant.store.sqlite import SqliteStore
from nonchalant.values import replace
from nonchalant.wishes import Bump
from nonchalant.words import Hash, LaneKey, SlotKind, State, TxId, Wanted

Mutant = Callable[[], AbstractContextManager[None]]

MUTANTS: dict[str, Mutant] = {}


def _mutant(name: str) -> Callable[[Callable[[], Iterator[None]]], Mutant]:
    def register(breaks: Callable[[], Iterator[None]]) -> Mutant:
        MUTANTS[name] = contextmanager(breaks)
        return MUTANTS[name]

    return register


@contextmanager
def in_force(name: str | None) -> Iterator[None]:
    """Break the rule inside this block; None breaks nothing."""
    if name is None:
        yield
        return
    with MUTANTS[name]():
        yield


@contextmanager
def _instead(owner: object, name: str, other: object) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, other)
    try:
        yield
    finally:
        setattr(owner, name, before)


@contextmanager
def _query(name: str, change: Callable[[str], str]) -> Iterator[None]:
    load = queries.load

    def changed(dialect: str) -> dict[str, str]:
        named = load(dialect)
        return named | {name: change(named[name])}

    with _instead(queries, "load", changed):
        yield


# who may write


@_mutant("no-epoch-check")
def _no_epoch_check() -> Iterator[None]:
    # Whoever once held the lease may write.
    with _query("fence", lambda _: "SELECT :now AS now"):
        yield


@_mutant("owner-id-reused")
def _owner_id_reused() -> Iterator[None]:
    """A process has its predecessor's id, finds its own lease, and goes on with it."""

    def entropy(self: World, name: str) -> SimEntropy:
        return made(self, name.partition(".")[0])

    made = World._entropy  # noqa: SLF001 - a mutant reaches where the rule is
    with (
        _instead(World, "_entropy", entropy),
        _query("acquire_lease", lambda sql: sql.replace("epoch = epoch + 1", "epoch = epoch + (owner IS NOT :owner)")),
    ):
        yield


@_mutant("reload-without-retaking-the-lease")
def _reload_without_retaking() -> Iterator[None]:
    async def retake(self: Engine, lane: LaneKey) -> Lease | None:
        return self.cluster.leases.get(lane)

    with _instead(Engine, "_retake", retake):
        yield


# when a slot is given up


@_mutant("slot-released-on-timeout")
def _slot_released_on_timeout() -> Iterator[None]:
    def is_releasable(desk: Desk, slot: Slot) -> bool:
        sendings = [desk.sendings.get(attempt.hash, NEVER_SENT) for attempt in slot.attempts]
        return rule(desk, slot) or all(one.uncertain and not one.accepted and not one.under_way for one in sendings)

    rule = broadcast.is_releasable
    with _instead(broadcast, "is_releasable", is_releasable):
        yield


@_mutant("slot-rebound-after-insufficient-funds")
def _slot_rebound_after_insufficient_funds() -> Iterator[None]:
    def fate_of(answer: Answer) -> tuple[Fate, Rejection | None]:
        fate, rejection = rule(answer)
        return (Fate.BYTES_REFUSED if rejection is Rejection.INSUFFICIENT_FUNDS else fate), rejection

    rule = policy.fate_of
    with _instead(policy, "fate_of", fate_of):
        yield


@_mutant("requeue-on-nonce-too-low")
def _requeue_on_nonce_too_low() -> Iterator[None]:
    too_low: WeakKeyDictionary[Work, set[int]] = WeakKeyDictionary()

    def heed(
        desk: Desk, work: Work, nonce: int, hash: Hash, endpoint: str, rejection: Rejection, said: Refused
    ) -> None:
        if rejection is Rejection.NONCE_TOO_LOW:
            too_low.setdefault(work, set()).add(nonce)
        heeded(desk, work, nonce, hash, endpoint, rejection, said)

    def conclude(desk: Desk, work: Work, slot: Slot) -> None:
        tx = desk.lane.transaction_of(slot)
        if slot.nonce in too_low.get(work, ()) and slot.receipt is None and tx is not None:
            work.settle(slot)
            work.move(tx, lifecycle.Superseded(None))
        else:
            concluded(desk, work, slot)

    heeded, concluded = broadcast._heed, broadcast._conclude  # noqa: SLF001 - a mutant reaches where the rule is
    with _instead(broadcast, "_heed", heed), _instead(broadcast, "_conclude", conclude):
        yield


@_mutant("requeue-at-latest")
def _requeue_at_latest() -> Iterator[None]:
    with _instead(settle, "is_consumed_for_good", _is_consumed_at_the_head):
        yield


@_mutant("requeue-on-missing-receipt")
def _requeue_on_missing_receipt() -> Iterator[None]:
    async def ask_for_receipts(desk: Desk, _floor: int, hashes: frozenset[Hash]) -> Search:
        wanted = sorted(hashes)
        found = await desk.eyes.ask(lambda endpoint: endpoint.find(wanted))
        return Search(desk.head.final, 0, ours=[receipt for receipt in found if receipt is not None])

    with (
        _instead(settle, "is_consumed_for_good", _is_consumed_at_the_head),
        _instead(proof, "read_final_blocks", ask_for_receipts),
    ):
        yield


def _is_consumed_at_the_head(desk: Desk, slot: Slot) -> bool:
    return slot.nonce < desk.lane.count


@_mutant("reset-while-attempts-live")
def _reset_while_attempts_live() -> Iterator[None]:
    """By force, whatever is not executed goes back to the queue, wherever its bytes are."""

    def never_left(_desk: Desk, slot: Slot) -> bool:
        return slot.receipt is None and slot.reservation is None

    def recall(desk: Desk, work: Work, slot: Slot) -> None:
        tx = desk.lane.transaction_of(slot)
        if tx is None or tx.state is State.SIGNED:
            rule(desk, work, slot)
            return
        work.move(tx, lifecycle.Superseded(None))
        work.free(slot)
        desk.drop(slot.attempts)

    rule = tools._recall  # noqa: SLF001 - a mutant reaches where the rule is
    with _instead(tools, "_never_left", never_left), _instead(tools, "_recall", recall):
        yield


@_mutant("expired-reservation-given-to-a-transaction")
def _expired_reservation_given_away() -> Iterator[None]:
    async def move_slots(desk: Desk, *, can_sign: bool) -> bool:
        work = desk.work()
        for slot in desk.lane.open_slots():
            if slot.kind is SlotKind.RESERVATION and policy.is_forfeited(slot, desk.store_now()):
                work.free(slot)
                desk.assign_due = True
        return await desk.commit(work) or await rule(desk, can_sign=can_sign)

    rule = rescue._move_slots  # noqa: SLF001 - a mutant reaches where the rule is
    with _instead(rescue, "_move_slots", move_slots):
        yield


# what the chain is believed


@_mutant("one-endpoint-finalized-believed")
def _one_endpoint_finalized_believed() -> Iterator[None]:
    def final_height(views: Sequence[View], configured: int, depth: int | None) -> int | None:
        tags = [view.finalized.number for view in views if view.finalized is not None]
        return max(tags, default=None) if depth is None else rule(views, configured, depth)

    rule = heads.final_height
    with _instead(heads, "final_height", final_height):
        yield


@_mutant("one-confirmation-is-final")
def _one_confirmation_is_final() -> Iterator[None]:
    def is_final(desk: Desk, receipt: Receipt) -> bool:
        return desk.head.has(receipt.block)

    with _instead(settle, "is_final", is_final):
        yield


@_mutant("nonce-from-pending-count")
def _nonce_from_pending_count() -> Iterator[None]:
    async def see_account(self: Desk) -> None:
        await rule(self)
        assert isinstance(self.chain, NodeChain)
        node = self.chain.truth.endpoints[0]
        mine = [tx.nonce for tx in node.pool.executable(node.head.ledger) if tx.sender == self.key.address]
        self.lane.count = max([self.lane.count, *(nonce + 1 for nonce in mine)])

    rule = Desk.see_account
    with _instead(Desk, "see_account", see_account):
        yield


@_mutant("only-newest-hash-watched")
def _only_newest_hash_watched() -> Iterator[None]:
    def with_attempt(self: Slot, attempt: Attempt) -> Slot:
        return replace(self, attempts=(attempt,))

    def nonce_of(self: Lane, hash: Hash) -> int | None:
        nonce = rule(self, hash)
        known = nonce is not None and nonce in self.slots and self.slots[nonce].attempts[-1].hash == hash
        return nonce if known else None

    rule = Lane.nonce_of
    with _instead(Slot, "with_attempt", with_attempt), _instead(Lane, "nonce_of", nonce_of):
        yield


@_mutant("loaded-without-lookup")
def _loaded_without_lookup() -> Iterator[None]:
    async def look_up(desk: Desk) -> list[Receipt]:
        desk.lookup_due = False
        return []

    with _instead(watch, "look_up", look_up):
        yield


@_mutant("restored-store-trusted")
def _restored_store_trusted() -> Iterator[None]:
    with _instead(reconcile, "is_suspect", lambda _desk: False):
        yield


# how bytes go out


@_mutant("broadcast-before-commit")
def _broadcast_before_commit() -> Iterator[None]:
    async def commit(self: Desk, work: Work) -> bool:
        for attempt in work.change().attempts:
            for endpoint in self.chain.endpoints:
                await endpoint.send([attempt.raw])
        return await rule(self, work)

    rule = Desk.commit
    with _instead(Desk, "commit", commit):
        yield


@_mutant("no-rebroadcast-after-crash")
def _no_rebroadcast_after_crash() -> Iterator[None]:
    def is_due(desk: Desk, attempt: Attempt) -> bool:
        return attempt.epoch == desk.lease.epoch and rule(desk, attempt)

    rule = broadcast.is_due
    with _instead(broadcast, "is_due", is_due):
        yield


@_mutant("bump-below-replacement-step")
def _bump_below_replacement_step() -> Iterator[None]:
    def replacement_floor(previous: Fees, _rules: FeeRules) -> Fees:
        tip = previous.priority
        return Fees(previous.max_fee * 104 // 100 + 1, None if tip is None else tip * 104 // 100 + 1)

    with _instead(fees, "replacement_floor", replacement_floor):
        yield


@dataclass
class _Deaf:
    """A caller that was told already."""

    request: Request

    def admitted(self, tx: Transaction) -> None: ...

    def sent_away(self, doubt: CommitUnknown | None = None) -> None: ...


@_mutant("acknowledged-before-commit")
def _acknowledged_before_commit() -> Iterator[None]:
    rule = admit.serve

    async def serve(
        desk: Desk, callers: Sequence[Caller], ready: Sequence[Caller], attempts: Sequence[Attempt]
    ) -> bool:
        deaf = {id(caller): _Deaf(caller.request) for caller in ready}
        for caller in ready:
            caller.admitted(caller.request.accepted(UNPLACED, desk.store_now()))
        everybody = [deaf.get(id(caller), caller) for caller in callers]
        return await rule(desk, everybody, list(deaf.values()), attempts)

    with _instead(admit, "serve", serve):
        yield


@_mutant("cancel-resends-the-original-after-a-reorg")
def _cancel_resends_the_original() -> Iterator[None]:
    def reorged(desk: Desk, work: Work, slot: Slot) -> Slot:
        opened, tx = rule(desk, work, slot), desk.lane.transaction_of(slot)
        if tx is not None and opened.wanted is Wanted.CANCEL:
            opened = replace(opened, wanted=Wanted.PAYLOAD, payload_version=tx.payload_version)
            work.slot(opened)
        return opened

    rule = watch._reorged  # noqa: SLF001 - a mutant reaches where the rule is
    with _instead(watch, "_reorged", reorged):
        yield


@_mutant("filler-never-sent")
def _filler_never_sent() -> Iterator[None]:
    with _instead(rescue, "holes_to_fill", lambda _desk: []):
        yield


# how work is found


@_mutant("wake-up-lost-without-sweep")
def _wake_up_lost_without_sweep() -> Iterator[None]:
    async def sweep_for_ever(self: Engine) -> None:
        while True:
            await self._guarded("sweep", self._sweep())
            await self._sweep_now.wait()
            self._sweep_now.clear()

    with _instead(Engine, "_sweep_for_ever", sweep_for_ever):
        yield


@_mutant("queued-found-by-cursor")
def _queued_found_by_cursor() -> Iterator[None]:
    cursors: WeakKeyDictionary[SqliteStore, dict[LaneKey, int]] = WeakKeyDictionary()

    async def queued(
        self: SqliteStore, lane: LaneKey, *, limit: int, skip: Collection[TxId] = ()
    ) -> Sequence[Transaction]:
        mine = cursors.setdefault(self, {})
        after = mine.get(lane, 0)
        found = [tx for tx in await rule(self, lane, limit=limit + 1000, skip=skip) if tx.place > after][:limit]
        mine[lane] = max([after, *(tx.place for tx in found)])
        return found

    rule = SqliteStore.queued
    with _instead(SqliteStore, "queued", queued):
        yield


# what an attention hook may do


@_mutant("hook-heard-after-its-time")
def _hook_heard_after_its_time() -> Iterator[None]:
    with _instead(advice, "HOOK_SECONDS", 3600.0):
        yield


@_mutant("hook-price-unchecked")
def _hook_price_unchecked() -> Iterator[None]:
    """Whatever it offers is offered."""

    def checked(self: Adviser, tx: Transaction, answer: object) -> Advice:
        if isinstance(answer, hooks.Bump) and isinstance(answer.fees, Fees):
            return Bump(tx.id, answer.fees)
        return rule(self, tx, answer)

    rule = Adviser._checked  # noqa: SLF001 - a mutant reaches where the rule is
    with _instead(Adviser, "_checked", checked):
        yield


@_mutant("hook-asked-without-rest")
def _hook_asked_without_rest() -> Iterator[None]:
    with _instead(attend, "AGAIN", 0):
        yield


@_mutant("poison-never-left-aside")
def _poison_never_left_aside() -> Iterator[None]:
    with _instead(poison, "STRIKES", 1_000_000):
        yield
