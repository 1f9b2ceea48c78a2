"""A small chain to look at, without the engine."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Sequence
from typing import TypeVar

from nonchalant.model import Draft, Fees, Payload, Sealed
from nonchalant.sim import wire
from nonchalant.sim.blocks import SimBlock
from nonchalant.sim.chain import SimChain, Terrain
from nonchalant.sim.endpoint import SimEndpoint
from nonchalant.sim.loop import SimLoop, forgetting
from nonchalant.sim.pool import GETH, Flavour, No
from nonchalant.sim.wire import Order, SimTx
from nonchalant.words import LaneKey

T = TypeVar("T")
GWEI = 10**9
ALICE = "0x" + "a1" * 20
BOB = "0x" + "b0" * 20


class Notes:
    """An observer that writes everything down."""

    def __init__(self) -> None:
        self.arrivals: list[tuple[str, SimTx, No | None]] = []
        self.heads: list[SimBlock] = []
        self.dropped: list[SimBlock] = []

    def arrived(self, endpoint: SimEndpoint, tx: SimTx, verdict: No | None) -> None:
        self.arrivals.append((endpoint.name, tx, verdict))

    def grown(self, head: SimBlock, dropped: Sequence[SimBlock]) -> None:
        self.heads.append(head)
        self.dropped.extend(dropped)


class SmallRealm:
    """Three endpoints of one flavour, two accounts; blocks come when `mine` is called."""

    def __init__(self, *, flavour: Flavour = GETH, seed: int = 1, gossip: float = 1.0, balance: int = 10**18) -> None:
        self.loop = SimLoop(random.Random(seed))
        self.notes = Notes()
        terrain = Terrain(
            chain_id=7,
            block_time=4.0,
            finality_lag=4,
            base_fee=20 * GWEI,
            flavours=(flavour,) * 3,
            account_limit=4,
            gossip=gossip,
        )
        balances = {ALICE: balance, BOB: balance}
        self.chain = SimChain(terrain, self.loop, random.Random(seed), balances, self.notes)

    def run(self, main: Awaitable[T]) -> T:
        with forgetting():
            return self.loop.run(main)

    async def settle(self, blocks: int = 1) -> None:
        """That many blocks, each known to everyone before the next."""
        for _ in range(blocks):
            self.chain.mine()
            await self.loop.sleep(2.5)

    async def execute_first(self, endpoint: SimEndpoint, *, blocks: int) -> SimBlock:
        """Hand Alice's first transaction to this endpoint and mine so many blocks; the one in which it ran."""
        await endpoint.send([sealed(0).raw])
        await self.loop.sleep(3.0)
        await self.settle(blocks)
        [ran] = self.chain.executions("order-0")
        return ran


def sealed(nonce: int, label: str = "", *, price: int = 60, tip: int = 2, gas: int = 60_000, value: int = 0) -> Sealed:
    """Signed by Alice; prices in gwei."""
    draft = Draft(
        lane=LaneKey(7, ALICE),
        nonce=nonce,
        payload=Payload(to=BOB, value=value, data=Order(label or f"order-{nonce}").data()),
        gas=gas,
        fees=Fees(price * GWEI, tip * GWEI),
    )
    return wire.seal(draft, wire.signature(ALICE, wire.digest(draft)))
