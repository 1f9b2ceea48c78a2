"""One node of the simulated chain: its own lagging view, its own pool, its own way to fail."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum

from nonchalant.errors import NodeRefused, Unreachable
from nonchalant.model import (
    Account,
    Answer,
    Block,
    BlockRef,
    Draft,
    Executed,
    Market,
    Payload,
    Receipt,
    Refused,
    Unknown,
    View,
)
from nonchalant.sim.blocks import EXECUTION_GAS, SimBlock, common
from nonchalant.sim.chance import Chance
from nonchalant.sim.loop import SimLoop
from nonchalant.sim.pool import Gapped, No, Pool
from nonchalant.sim.trouble import Troubles
from nonchalant.sim.wire import SimTx, data_fee, intrinsic_gas, read_order
from nonchalant.values import replace
from nonchalant.words import Address, Hash, Speed, Wei

GWEI: Wei = 10**9
GAS_LIMIT = 30_000_000  # of a block, as nodes tell it
REVERTS = "execution reverted: the order does not run"
PATIENCE = 4.0  # seconds until a caller gives up on an answer


class Ailment(StrEnum):
    """What can be wrong with an endpoint's answers."""

    DOWN = "endpoint_down"
    RATE_LIMITED = "rate_limited"
    SEND_LOST = "send_timeout_before"  # the call times out, and the bytes never arrived
    SEND_UNANSWERED = "send_timeout_after"  # the call times out, but the bytes were taken
    SEND_LATE = "late_delivery"  # the call times out, and the bytes arrive much later
    SEND_REFUSED = "bytes_refused"  # it does not know this type of transaction
    LYING = "finalized_lie"
    HEAD_ONLY = "only_head_answers"
    COUNT_HIGH = "count_too_high"
    COUNT_LOW = "count_too_low"
    BALANCE_HIGH = "balance_too_high"
    BALANCE_LOW = "balance_too_low"
    BLOCKS_PRUNED = "blocks_pruned"
    RECEIPTS_PRUNED = "receipts_pruned"
    GAP_SWALLOWED = "gap_swallowed"  # success for a gapped nonce, and nothing is kept
    GAP_DROPPED = "gap_dropped"  # a gapped nonce is kept for a second


EVERY_CALL = (Ailment.DOWN, Ailment.RATE_LIMITED)
EVERY_QUESTION = (*EVERY_CALL, Ailment.HEAD_ONLY)
EVERY_SEND = (
    *EVERY_QUESTION,
    Ailment.SEND_LOST,
    Ailment.SEND_UNANSWERED,
    Ailment.SEND_LATE,
    Ailment.SEND_REFUSED,
)
LIES_ABOUT_ACCOUNTS = (Ailment.COUNT_HIGH, Ailment.COUNT_LOW, Ailment.BALANCE_HIGH, Ailment.BALANCE_LOW)
GAPS = {Ailment.GAP_SWALLOWED: Gapped.SWALLOWED, Ailment.GAP_DROPPED: Gapped.DROPPED}
GAP_SECONDS = 1.0
FAR_OFF = 1000
LIMITS = (
    (-32005, "daily request count exceeded, request rate limited"),
    (429, "Your app has exceeded its compute units per second capacity."),
    (-32007, "50/second request limit reached - reduce calls per second or upgrade your account at quicknode.com"),
)

Arrival = Callable[["SimEndpoint", SimTx, No | None], None]


class SimEndpoint:
    """Sees the chain through `head` and `final`, which follow the truth as late as its faults want it."""

    def __init__(
        self, name: str, loop: SimLoop, chance: Chance, first: SimBlock, pool: Pool, read: Callable[[bytes], SimTx]
    ) -> None:
        self.name = name
        self.head = first
        self.final = first
        self.pool = pool
        self.troubles = Troubles(chance)
        self.legacy = False  # it knows no base fee: what a block asks at least shows in the gas price only
        self.tagged = True  # it says what is finalized
        self.data_price: Wei = 0  # charged a byte, beside gas
        self.frozen = False  # it hears of no blocks
        self.forked = False  # it follows a branch of its own
        self.kept = 0  # how many blocks below its head it still has, once it prunes
        self.announce: Callable[[SimEndpoint, Sequence[SimTx]], None] = lambda _endpoint, _txs: None
        self.arrived: Arrival = lambda _endpoint, _tx, _verdict: None
        self.reached: dict[Address, int] = {}  # the most that a head of its ever showed an account to have executed
        self._blocks = {block.hash: block for block in first.down()}
        self._loop = loop
        self._chance = chance
        self._read = read

    async def rpc(self, method: str, params: Sequence[object]) -> bytes:
        """Nobody asks it anything for others."""
        raise NodeRefused(f"the method {method} does not exist/is not available ({len(params)} params)", -32601)

    # what the network tells it

    def learn(self, head: SimBlock, final: SimBlock, forgotten: frozenset[Hash] = frozenset()) -> None:
        """A newer head, unless it is cut off or has heard of a newer one already."""
        if self.frozen or self.forked or head.rank <= self.head.rank:
            return
        if final.number > self.final.number:
            self.final = final
        self.adopt(head, forgotten)

    def adopt(self, head: SimBlock, forgotten: frozenset[Hash] = frozenset()) -> None:
        """Make this the canonical head; what the old branch had goes back into the pool, if the client does that."""
        old, self.head = self.head, head
        for address, account in head.ledger.accounts.items():
            self.reached[address] = max(account.count, self.reached.get(address, 0))
        for block in head.down():
            if block.hash in self._blocks:
                break
            self._blocks[block.hash] = block
        if old is not head.parent and self.pool.flavour.reinjects:
            root = common(old, head)
            lost = [tx for block in old.down() if block.number > root.number for tx in reversed(block.transactions)]
            for tx in reversed(lost):
                if tx.hash not in forgotten:
                    self.pool.offer(tx, head.ledger, head.base_fee)
        self.pool.prune(head.ledger)

    def hear(self, tx: SimTx) -> None:
        """Gossip from another node."""
        self._offer(tx)

    # the port

    async def view(self) -> View:
        await self._answer(EVERY_CALL)
        finalized = self.final
        if self.troubles.strike(self._loop.time(), (Ailment.LYING,)):
            finalized = self.head
        return View(self.head.ref, finalized.ref if self.tagged else None)

    async def block(self, ref: int | Hash) -> Block | None:
        await self._answer()
        # By hash, nodes also answer with blocks of branches they have left.
        found = self.head.at(ref) if isinstance(ref, int) else self._blocks.get(ref)
        return found.plain() if found and not self._is_pruned(found, Ailment.BLOCKS_PRUNED) else None

    async def receipts(self, block: BlockRef, hashes: Sequence[Hash]) -> Sequence[Receipt]:
        await self._answer()
        found = self._has(block)
        if self._is_pruned(found, Ailment.RECEIPTS_PRUNED):
            raise Unreachable(f"{self.name} has no receipts of block {block.number} any more")
        return [found.receipts[wanted] for wanted in hashes if wanted in found.receipts]

    async def find(self, hashes: Sequence[Hash]) -> Sequence[Receipt | None]:
        await self._answer()
        wanted = set(hashes)
        found: dict[Hash, Receipt] = {}
        for block in self.head.down():
            here = {tx_hash: block.receipts[tx_hash] for tx_hash in block.hashes if tx_hash in wanted}
            if here and self._is_pruned(block, Ailment.BLOCKS_PRUNED, Ailment.RECEIPTS_PRUNED):
                break
            found.update(here)
            if len(found) == len(wanted):
                break
        return [found.get(tx_hash) for tx_hash in hashes]

    async def account(self, address: Address, block: BlockRef) -> Account:
        await self._answer()
        truth = self._has(block).ledger.account(address)
        lie = self.troubles.strike(self._loop.time(), LIES_ABOUT_ACCOUNTS)
        count, balance = truth.count, truth.balance
        match lie.kind if lie else None:
            case Ailment.COUNT_HIGH:
                count += self._chance.choice((1, 3, FAR_OFF))
            case Ailment.COUNT_LOW:
                count = max(0, count - self._chance.choice((1, 3, FAR_OFF)))
            case Ailment.BALANCE_HIGH:
                balance = (balance + GWEI) * FAR_OFF
            case Ailment.BALANCE_LOW:
                balance //= self._chance.choice((2, 10**30))
            case _:
                pass
        return replace(truth, count=count, balance=balance)

    async def pending(self, address: Address) -> int:
        await self._answer()
        return self.pool.next_nonce(address, self.head.ledger)

    async def executed(self, block: BlockRef) -> Sequence[Executed]:
        await self._answer()
        return self._has(block).executed()

    async def estimate(self, sender: Address, payload: Payload, block: BlockRef) -> int:
        await self._answer()
        ledger = self._has(block).ledger
        if ledger.refuses(read_order(payload.data)):
            raise NodeRefused(REVERTS, 3, "0x")
        if payload.value > ledger.account(sender).balance:
            raise NodeRefused(f"insufficient funds for transfer: address {sender}", -32000)
        return intrinsic_gas(payload.data) + (EXECUTION_GAS if payload.data else 0)

    async def replay(self, sender: Address, payload: Payload, gas: int, block: BlockRef) -> str | None:  # noqa: ARG002 - the port's
        await self._answer()
        before = self._has(block).parent
        return REVERTS if before is not None and before.ledger.refuses(read_order(payload.data)) else None

    async def market(self) -> Market:
        await self._answer()
        base = self.head.base_fee
        tips = {Speed.SLOW: GWEI, Speed.STANDARD: 3 * GWEI // 2, Speed.FAST: 3 * GWEI}
        gas_price = base + tips[Speed.STANDARD]
        if self.legacy:
            return Market(base_fee=None, gas_price=gas_price, priority={}, gas_limit=GAS_LIMIT)
        return Market(base_fee=base, gas_price=gas_price, priority=tips, gas_limit=GAS_LIMIT)

    async def data_fees(self, drafts: Sequence[Draft]) -> Sequence[Wei]:
        await self._answer()
        return [data_fee(draft, self.data_price) for draft in drafts]

    async def send(self, raws: Sequence[bytes]) -> Sequence[Answer]:
        trouble = self.troubles.strike(self._loop.time(), EVERY_SEND)
        match trouble.kind if trouble else None:
            case None:
                return [self._take(raw) for raw in raws]
            case Ailment.RATE_LIMITED:
                return [self._limit()] * len(raws)
            case Ailment.SEND_REFUSED:
                return [Refused("transaction type not supported", -32000)] * len(raws)
            case Ailment.SEND_UNANSWERED:
                # Some of a batch may have got through before the connection broke.
                for raw in raws[: self._chance.randint(1, len(raws))]:
                    self._take(raw)
            case Ailment.SEND_LATE:
                self._loop.call_later(self._chance.uniform(5.0, 120.0), self._take_all, tuple(raws))
            case _:
                pass  # down or lost: nothing arrived
        await self._loop.sleep(PATIENCE)
        return [Unknown("time-out")] * len(raws)

    def _take(self, raw: bytes) -> Answer:
        tx = self._read(raw)
        verdict = self._offer(tx)
        answer = self.pool.answer(tx, verdict, self.head.ledger)
        self.arrived(self, tx, verdict)
        if verdict is None:
            self.announce(self, self._executable_from(tx))
        return answer

    def _offer(self, tx: SimTx) -> No | None:
        pool, ledger = self.pool, self.head.ledger
        if tx.nonce <= pool.next_nonce(tx.sender, ledger):
            return pool.offer(tx, ledger, self.head.base_fee)
        trouble = self.troubles.strike(self._loop.time(), GAPS)
        pool.gapped = GAPS[Ailment(trouble.kind)] if trouble else pool.flavour.gapped
        verdict = pool.offer(tx, ledger, self.head.base_fee)
        if pool.gapped is Gapped.DROPPED and verdict is None:
            self._loop.call_later(GAP_SECONDS, self._drop_gapped, tx)
        return verdict

    def _drop_gapped(self, tx: SimTx) -> None:
        waits = tx.nonce > self.pool.next_nonce(tx.sender, self.head.ledger)
        if waits and self.pool.at(tx.sender, tx.nonce) is tx:
            self.pool.evict(tx.sender, tx.nonce)

    def _take_all(self, raws: Sequence[bytes]) -> None:
        for raw in raws:
            self._take(raw)

    def _executable_from(self, tx: SimTx) -> list[SimTx]:
        """What can run now that `tx` is here: itself, and what waited behind it; nothing if it waits itself."""
        mine = [other for other in self.pool.executable(self.head.ledger) if other.sender == tx.sender]
        return [other for other in mine if other.nonce >= tx.nonce] if tx in mine else []

    def _has(self, ref: BlockRef) -> SimBlock:
        block = self.head.at(ref.number)
        if block is None or block.hash != ref.hash:
            raise Unreachable(f"{self.name} does not have block {ref.number}")
        if self._is_pruned(block, Ailment.BLOCKS_PRUNED):
            raise NodeRefused(f"missing trie node {block.hash[2:]} (path ) state is not available", -32000)
        return block

    def _is_pruned(self, block: SimBlock, *ailments: Ailment) -> bool:
        if block.number >= self.head.number - self.kept:
            return False
        return self.troubles.strike(self._loop.time(), ailments) is not None

    async def _answer(self, ailments: Sequence[Ailment] = EVERY_QUESTION) -> None:
        trouble = self.troubles.strike(self._loop.time(), ailments)
        if trouble is None:
            return
        if trouble.kind is Ailment.RATE_LIMITED:
            refusal = self._limit()
            raise NodeRefused(refusal.message, refusal.code)
        if trouble.kind is Ailment.HEAD_ONLY and self._chance.random() < 0.5:
            raise NodeRefused("the method does not exist/is not available", -32601)
        await self._loop.sleep(PATIENCE)
        raise Unreachable(f"{self.name} did not answer")

    def _limit(self) -> Refused:
        code, message = self._chance.choice(LIMITS)
        return Refused(message, code)
