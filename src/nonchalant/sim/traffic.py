"""What clients ask for in a history, and how they behave: drawn from the seed before it begins."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from nonchalant.model import Address, Fees, LaneKey, Payload, Request, Speed, TxId
from nonchalant.sim.chain import Terrain
from nonchalant.sim.chance import Chance
from nonchalant.sim.wire import Effect, Order, intrinsic_gas

RECIPIENT: Address = "0x" + "b0" * 20
TOO_LITTLE_GAS = 21_000  # for any data: every node refuses such bytes for what they are
LEAST = 24
MOST = 44


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """One thing a client wants done, once. With a key it asks until it knows; without, only while it may."""

    at: float
    lane: LaneKey
    order: Order
    payload: Payload
    fees: Speed | Fees
    priority: int
    key: str | None
    node: int  # whom it asks first
    again_at: float | None = None  # when it posts the same once more, though it was answered
    thrifty: bool = False  # its price is below what a dear market asks

    @property
    def label(self) -> str:
        return self.order.label

    @property
    def sound(self) -> bool:
        """Whether a node can take its bytes at all."""
        return self.payload.gas is None or self.payload.gas >= intrinsic_gas(self.payload.data)

    def request(self, tx_id: TxId) -> Request:
        return Request(
            id=tx_id,
            lane=self.lane,
            payload=self.payload,
            fees=self.fees,
            priority=self.priority,
            idempotency_key=self.key,
            body_hash=hashlib.sha256(repr((self.lane, self.payload, self.fees)).encode()).hexdigest(),
        )


def draw(chance: Chance, lanes: Sequence[LaneKey], terrains: Mapping[int, Terrain], span: float) -> list[Wish]:
    """Bursts and single wishes over `span` seconds."""
    bursts = [chance.uniform(1.0, 0.95 * span) for _ in range(chance.randint(4, 8))] + [0.97 * span]
    times = sorted(
        chance.choice(bursts) + chance.uniform(0.0, 6.0) if chance.random() < 0.7 else chance.uniform(1.0, 0.98 * span)
        for _ in range(chance.randint(LEAST, MOST))
    )
    wishes: list[Wish] = []
    for number, at in enumerate(times):
        lane = chance.choice(lanes)
        wish = _wish(chance, number, at, lane, _order(chance, f"t{number}", lane, wishes))
        wishes.append(_priced(chance, wish, terrains[lane.chain_id]))
    return wishes


def _wish(chance: Chance, number: int, at: float, lane: LaneKey, order: Order) -> Wish:
    key = f"key-{number}" if chance.random() < 0.75 else None
    payload = Payload(
        to=RECIPIENT if chance.random() < 0.95 else None,
        value=chance.randint(0, 10**12),
        data=order.data(),
        gas=_gas(chance, order),
    )
    return Wish(
        at=at,
        lane=lane,
        order=order,
        payload=payload,
        fees=chance.choice(list(Speed)),
        priority=5 if chance.random() < 0.7 else chance.randint(0, 9),
        key=key,
        node=chance.randint(0, 99),
        again_at=at + chance.uniform(0.0, 60.0) if key and chance.random() < 0.25 else None,
    )


def _order(chance: Chance, label: str, lane: LaneKey, earlier: Sequence[Wish]) -> Order:
    dice = chance.random()
    if dice < 0.08:
        return Order(label, Effect.REVERTS)
    if dice < 0.13:
        return Order(label, Effect.NEVER)
    needed = [wish.label for wish in earlier if wish.lane == lane and wish.order.effect is Effect.RUNS and wish.sound]
    if dice < 0.25 and needed:
        return Order(label, Effect.AFTER, needed[-1])
    return Order(label)


def _gas(chance: Chance, order: Order) -> int | None:
    dice = chance.random()
    if dice < 0.06:
        return TOO_LITTLE_GAS
    return intrinsic_gas(order.data()) + chance.randint(20_000, 60_000) if dice < 0.2 else None


def _priced(chance: Chance, wish: Wish, terrain: Terrain) -> Wish:
    """Some name their price: enough for the dearest market, or thrifty."""
    dice = chance.random()
    if dice < 0.8:
        return wish
    thrifty = dice < 0.86
    cap = int(terrain.base_fee * (chance.uniform(1.3, 3.0) if thrifty else chance.uniform(6.5, 12.0)))
    tip = None if terrain.legacy else int(terrain.base_fee * chance.uniform(0.02, 0.2))
    return replace(wish, fees=Fees(cap, tip), thrifty=thrifty)
