"""The simulated chain: the truth, the network that spreads it, and the port through which our nodes see it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from nonchalant.model import Draft, Fees, Recognised, Sealed
from nonchalant.sim import wire
from nonchalant.sim.blocks import Deed, Happening, SimBlock, build, common, genesis
from nonchalant.sim.chance import Chance
from nonchalant.sim.endpoint import GWEI, SimEndpoint
from nonchalant.sim.loop import SimLoop
from nonchalant.sim.pool import Flavour, No, Pool
from nonchalant.sim.wire import Order, SimTx
from nonchalant.words import Address, Hash, Wei

FOREIGN_PRICE: Wei = 500 * GWEI  # a foreign transaction that takes part in the next block, whatever that asks
ROOM = 12  # transactions a block
LARGEST_FEE_STEP = 8  # a base fee moves by at most an eighth a block
FOREIGN = "foreign"  # how the labels of transactions that are not ours begin


class Observer(Protocol):
    """Who watches the truth: the checker and the trace."""

    def arrived(self, endpoint: SimEndpoint, tx: SimTx, verdict: No | None) -> None:
        """Bytes of ours reached a node, and this is what it made of them (None: taken)."""

    def grown(self, head: SimBlock, dropped: Sequence[SimBlock]) -> None:
        """The canonical chain has a new head; the dropped blocks (highest first) are no longer on it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terrain:
    """What kind of chain it is. A `legacy` one keeps its base fee to itself: transactions name a gas price."""

    chain_id: int
    block_time: float
    finality_lag: int
    base_fee: Wei
    flavours: Sequence[Flavour]  # one an endpoint
    legacy: bool = False
    tagged: bool = True  # it has a `finalized` tag; without one, finality is a depth, and never stalls
    account_limit: int = 16
    data_price: Wei = 0  # charged a byte beside gas, as layer 2s do
    gas_cap: int | None = None  # of one transaction, as EIP-7825 has it
    gossip: float = 0.8  # how likely one node's transaction reaches another


class SimChain:
    """Port `Chain`. Blocks come by themselves once `start` was called."""

    def __init__(
        self, terrain: Terrain, loop: SimLoop, chance: Chance, balances: Mapping[Address, Wei], observer: Observer
    ) -> None:
        self.chain_id = terrain.chain_id
        self.charges_for_data = terrain.data_price > 0
        self.terrain = terrain
        self.head = self.final = genesis(terrain.chain_id, balances, terrain.base_fee)
        self.fee_level: Wei = terrain.base_fee  # where the base fee is heading
        self.room = ROOM
        self.gossip = terrain.gossip
        self.finality_stalled = False
        self.resting = False  # no blocks come
        self._loop = loop
        self._chance = chance
        self._observer = observer
        self._made = 0
        self._read: dict[bytes, SimTx] = {}
        self._coming: list[Happening] = []
        self._foreign: list[Address] = []
        self._foreigners = 0
        self.endpoints: Sequence[SimEndpoint] = [
            self._endpoint(number, flavour) for number, flavour in enumerate(terrain.flavours)
        ]

    def _endpoint(self, number: int, flavour: Flavour) -> SimEndpoint:
        pool = Pool(flavour, limit=self.terrain.account_limit, gas_cap=self.terrain.gas_cap)
        name = f"{flavour.name}-{number}"
        endpoint = SimEndpoint(name, self._loop, self._chance, self.head, pool, self._decode)
        endpoint.legacy = self.terrain.legacy
        endpoint.tagged = self.terrain.tagged
        endpoint.data_price = self.terrain.data_price
        endpoint.announce = self._gossip
        endpoint.arrived = self._observer.arrived
        return endpoint

    # the port

    def digest(self, draft: Draft) -> bytes:
        return wire.digest(draft)

    def seal(self, draft: Draft, signature: bytes, *, check: bool = True) -> Sealed:
        return wire.seal(draft, signature, check=check)

    def recognise(self, raw: bytes) -> Recognised:
        return wire.recognise(raw)

    # the truth

    def start(self) -> None:
        self._loop.call_later(self._chance.uniform(0.1, self.terrain.block_time), self._tick)

    def mine(self, *, empty: bool = False) -> SimBlock:
        """The next block, made by one of the nodes from its own pool."""
        producer = self._chance.choice(self.endpoints)
        candidates: list[SimTx] = []
        if not empty:
            candidates = producer.pool.pick(self.head.ledger, self._next_base_fee(self.head))
        happenings, self._coming = self._coming, []
        first = self._sign_foreign(self.head, happenings)
        block = self._build(self.head, happenings, [*first, *candidates])
        self._extend(block, ())
        return block

    def reorg(self, depth: int, *, keep: float, forget: bool) -> int:
        """Replace the last blocks by one more than there were; answers how many were dropped.

        Never reaches below finality. Each dropped transaction is in the new branch with chance `keep`; with `forget`
        nobody puts the others back into a pool.
        """
        root = self.head.at(max(self.head.number - depth, self.final.number))
        assert root is not None
        dropped = [block for block in self.head.down() if block.number > root.number]
        if not dropped:
            return 0
        orphans = [tx for block in reversed(dropped) for tx in block.transactions if self._chance.random() < keep]
        kept = {tx.hash for tx in orphans}
        lost = frozenset(tx.hash for block in dropped for tx in block.transactions) - kept
        # Money that came stays; an authorisation comes again.
        happenings = [happening for block in reversed(dropped) for happening in block.happenings]
        head = root
        for number in range(len(dropped) + 1):
            first = self._sign_foreign(head, happenings) if number == 0 else []
            head = self._build(head, happenings if number == 0 else (), [*first, *orphans])
        self._extend(head, dropped, lost if forget else frozenset())
        return len(dropped)

    def happen(self, happening: Happening) -> None:
        """Let it come with the next block."""
        self._coming.append(happening)

    def drain(self, address: Address, leave: Wei = 0) -> Wei:
        """Take the account's money away with the next block; answers how much, for giving it back."""
        amount = max(0, self.head.ledger.account(address).balance - leave)
        self.happen(Happening(Deed.DRAINED, address, amount))
        return amount

    def intrude(self, address: Address) -> None:
        """Someone else's transaction with the same key takes the next nonce in the next block, if it can pay."""
        self._foreign.append(address)

    def intrude_pools(self, address: Address, ahead: int, price: Wei) -> bool:
        """Someone else's transaction with the same key is sent, `ahead` above the next nonce; whether a pool took it."""
        nonce = self.head.ledger.account(address).count + ahead
        tx = self._foreign_tx(address, nonce, price)
        for endpoint in self.endpoints:
            endpoint.hear(tx)
        return any(endpoint.pool.holds(tx.hash) for endpoint in self.endpoints)

    def expel_squatters(self) -> None:
        """Pools drop the foreign transactions that no block takes at this price; in time all of them do."""
        for endpoint in self.endpoints:
            for tx in endpoint.pool.held():
                if tx.order.label.startswith(FOREIGN) and tx.max_fee < self.fee_level:
                    endpoint.pool.evict(tx.sender, tx.nonce)

    def fork(self, endpoint: SimEndpoint, depth: int) -> None:
        """The endpoint goes off on a branch of its own, from `depth` below the head, until `rejoin`."""
        root = self.head.at(max(self.head.number - depth, self.final.number, endpoint.final.number))
        assert root is not None
        side = root
        for _ in range(self.head.number - root.number + 1):
            side = self._build(side, (), endpoint.pool.pick(side.ledger, self._next_base_fee(side)))
        endpoint.forked = True
        endpoint.adopt(side)

    def rejoin(self, endpoint: SimEndpoint) -> None:
        endpoint.forked = False
        endpoint.frozen = False
        self._tell(endpoint)

    def canonical(self, block: SimBlock) -> bool:
        return self.head.has(block)

    def executions(self, label: str) -> list[SimBlock]:
        """The canonical blocks that executed a transaction with this label, highest first."""
        return [block for block in self.head.down() if any(tx.order.label == label for tx in block.transactions)]

    # how it goes on

    def _tick(self) -> None:
        self._loop.call_later(self.terrain.block_time * self._chance.uniform(0.6, 1.4), self._tick)
        if self.resting:
            return
        self.mine()
        for endpoint in self.endpoints:
            if endpoint.forked:
                base_fee = self._next_base_fee(endpoint.head)
                picked = endpoint.pool.pick(endpoint.head.ledger, base_fee)
                endpoint.adopt(self._build(endpoint.head, (), picked))

    def _build(self, parent: SimBlock, happenings: Sequence[Happening], candidates: Iterable[SimTx]) -> SimBlock:
        self._made += 1
        return build(
            parent,
            rank=self._made,
            base_fee=self._next_base_fee(parent),
            happenings=happenings,
            candidates=candidates,
            room=self.room,
        )

    def _extend(self, head: SimBlock, dropped: Sequence[SimBlock], forgotten: frozenset[Hash] = frozenset()) -> None:
        self.head = head
        if not self.finality_stalled:
            final = head.at(max(self.final.number, head.number - self.terrain.finality_lag))
            assert final is not None
            assert common(final, self.final) is self.final
            self.final = final
        self._observer.grown(head, dropped)
        for endpoint in self.endpoints:
            self._tell(endpoint, forgotten)

    def _tell(self, endpoint: SimEndpoint, forgotten: frozenset[Hash] = frozenset()) -> None:
        delay = self._chance.uniform(0.02, 0.9)
        self._loop.call_later(delay, endpoint.learn, self.head, self.final, forgotten)

    def _gossip(self, source: SimEndpoint, txs: Sequence[SimTx]) -> None:
        for endpoint in self.endpoints:
            if endpoint is source:
                continue
            for tx in txs:
                if self._chance.random() < self.gossip:
                    self._loop.call_later(self._chance.uniform(0.05, 2.0), endpoint.hear, tx)

    def _next_base_fee(self, parent: SimBlock) -> Wei:
        step = parent.base_fee // LARGEST_FEE_STEP
        return min(max(self.fee_level, parent.base_fee - step), parent.base_fee + step)

    def _sign_foreign(self, parent: SimBlock, happenings: Sequence[Happening]) -> list[SimTx]:
        """The foreign transactions that come with the next block, numbered as that block will find the accounts."""
        addresses, self._foreign = self._foreign, []
        taken: dict[Address, int] = {}
        for happening in happenings:
            if happening.deed in (Deed.AUTHORISED, Deed.DELEGATED):
                taken[happening.address] = taken.get(happening.address, 0) + 1
        signed = []
        for address in addresses:
            nonce = parent.ledger.account(address).count + taken.get(address, 0)
            taken[address] = taken.get(address, 0) + 1
            signed.append(self._foreign_tx(address, nonce, FOREIGN_PRICE))
        return signed

    def _foreign_tx(self, address: Address, nonce: int, price: Wei) -> SimTx:
        self._foreigners += 1
        order = Order(f"{FOREIGN}-{self.chain_id}-{self._foreigners}")
        return wire.foreign(self.chain_id, address, nonce, Fees(price, price), order)

    def _decode(self, raw: bytes) -> SimTx:
        tx = self._read.get(raw)
        if tx is None:
            tx = self._read[raw] = wire.read(raw, self.terrain.data_price)
        return tx
