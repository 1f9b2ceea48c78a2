"""What clients want done in a history, and how they behave: drawn from the seed before it begins."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from nonchalant.model import Fees, Payload, Request
from nonchalant.sim.chain import Terrain
from nonchalant.sim.chance import Chance
from nonchalant.sim.setting import millis
from nonchalant.sim.wire import GAS_CAP, Effect, Order, intrinsic_gas
from nonchalant.values import replace
from nonchalant.words import Address, LaneKey, OnSuperseded, Speed, TxId

RECIPIENT: Address = "0x" + "b0" * 20
TOO_LITTLE_GAS = 21_000  # for any data: every node refuses such bytes for what they are
TOO_MUCH_GAS = GAS_CAP + 1  # every node refuses it, but that proves nothing about the bytes
LEAST = 24
MOST = 44


@dataclass(frozen=True, slots=True, kw_only=True)
class Errand:
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
    valid_for: float | None = None  # seconds after which it is of no use any more
    confirmations: int | None = None
    on_superseded: OnSuperseded | None = None
    simulate: bool = False
    ahead: int | None = None  # it names its nonce: so many above what it is told is next
    others: tuple[Errand, ...] = ()  # what is asked for together with it, all or none
    led: bool = False  # another one asks for it

    @property
    def label(self) -> str:
        return self.order.label

    def requests(self, ids: Iterator[TxId]) -> list[Request]:
        """It, and what is asked for together with it."""
        first = self.request(next(ids))
        if not self.others:
            return [first]
        batch = f"batch_{first.id}"
        others = [replace(other.request(next(ids)), batch=batch) for other in self.others]
        return [replace(first, batch=batch), *others]

    def request(self, tx_id: TxId, asked_nonce: int | None = None) -> Request:
        return Request(
            id=tx_id,
            lane=self.lane,
            payload=self.payload,
            fees=self.fees,
            priority=self.priority,
            simulate=self.simulate,
            idempotency_key=self.key,
            body_hash=hashlib.sha256(repr((self.lane, self.payload, self.fees)).encode()).hexdigest(),
            valid_until=None if self.valid_for is None else millis(self.at + self.valid_for),
            confirmations=self.confirmations,
            on_superseded=self.on_superseded,
            asked_nonce=asked_nonce,
        )


def is_sound(payload: Payload) -> bool:
    """Whether a node can take its bytes at all."""
    return payload.gas is None or intrinsic_gas(payload.data) <= payload.gas <= GAS_CAP


def draw(chance: Chance, lanes: Sequence[LaneKey], terrains: Mapping[int, Terrain], span: float) -> list[Errand]:
    """Bursts and single errands over `span` seconds."""
    bursts = [chance.uniform(1.0, 0.95 * span) for _ in range(chance.randint(4, 8))] + [0.97 * span]
    times = sorted(
        chance.choice(bursts) + chance.uniform(0.0, 6.0) if chance.random() < 0.7 else chance.uniform(1.0, 0.98 * span)
        for _ in range(chance.randint(LEAST, MOST))
    )
    errands: list[Errand] = []
    for number, at in enumerate(times):
        lane = chance.choice(lanes)
        errand = _errand(chance, number, at, lane, _order(chance, f"t{number}", lane, errands))
        errands.append(_priced(chance, errand, terrains[lane.chain_id]))
    return errands


def volleys(chance: Chance, errands: Sequence[Errand]) -> list[Errand]:
    """The same, and some come several at a moment: of one account, by one node, which is likely to work it just then."""
    sent, left, at = list[Errand](), 0, 0.0
    for errand in errands:
        before = sent[-1] if sent else None
        if before is None or before.lane != errand.lane:
            sent.append(errand)
            left = 0
            continue
        if not left and chance.random() < 0.5:
            left, at = chance.randint(2, 4), before.at + chance.uniform(0.8, 4.0)
        left = max(0, left - 1)
        gas = errand.payload.gas or intrinsic_gas(errand.order.data()) + 50_000
        quick = replace(errand, at=at, node=before.node, simulate=False, payload=replace(errand.payload, gas=gas))
        sent.append(quick if left else errand)
    return sent


def gather(chance: Chance, errands: Sequence[Errand]) -> list[Errand]:
    """In some histories, clients that name their nonces, and errands that are run together."""
    if chance.random() < 0.7:
        return list(errands)
    gathered: list[Errand] = []
    for errand in errands:
        dice, last = chance.random(), gathered[-1] if gathered else None
        if dice < 0.15:
            gathered.append(replace(errand, ahead=chance.choice([0, 0, 0, 0, 1, 2])))
        elif dice < 0.35 and last is not None and last.key is not None and last.ahead is None and not last.led:
            led = replace(errand, led=True, key=None, at=last.at)
            gathered[-1:] = [led, replace(last, others=(*last.others, led))]
        else:
            gathered.append(errand)
    return gathered


def _errand(chance: Chance, number: int, at: float, lane: LaneKey, order: Order) -> Errand:
    key = f"key-{number}" if chance.random() < 0.75 else None
    payload = Payload(
        to=RECIPIENT if chance.random() < 0.95 else None,
        value=chance.randint(0, 10**12),
        data=order.data(),
        gas=_gas(chance, order),
    )
    return Errand(
        at=at,
        lane=lane,
        order=order,
        payload=payload,
        fees=chance.choice(list(Speed)),
        priority=5 if chance.random() < 0.7 else chance.randint(0, 9),
        key=key,
        node=chance.randint(0, 99),
        again_at=at + chance.uniform(0.0, 60.0) if key and chance.random() < 0.25 else None,
        valid_for=_patience(chance) if chance.random() < 0.15 else None,
        confirmations=chance.randint(1, 12) if chance.random() < 0.25 else None,
        on_superseded=chance.choice(list(OnSuperseded)) if chance.random() < 0.3 else None,
        simulate=chance.random() < 0.1,
    )


def _patience(chance: Chance) -> float:
    """Over before it is sent, while it is under way, or long after."""
    return chance.uniform(0.0, 1.0) if chance.random() < 0.3 else chance.uniform(1.0, 120.0)


def _order(chance: Chance, label: str, lane: LaneKey, earlier: Sequence[Errand]) -> Order:
    dice = chance.random()
    if dice < 0.08:
        return Order(label, Effect.REVERTS)
    if dice < 0.13:
        return Order(label, Effect.NEVER)
    can_run = (Effect.RUNS, Effect.AFTER)
    needed = [
        errand.label
        for errand in earlier
        if errand.lane == lane and errand.order.effect in can_run and is_sound(errand.payload)
    ]
    if dice < 0.25 and needed:
        return Order(label, Effect.AFTER, needed[-1])
    return Order(label)


def _gas(chance: Chance, order: Order) -> int | None:
    dice = chance.random()
    if dice < 0.06:
        return TOO_MUCH_GAS if dice < 0.02 else TOO_LITTLE_GAS
    return intrinsic_gas(order.data()) + chance.randint(20_000, 60_000) if dice < 0.5 else None


def _priced(chance: Chance, errand: Errand, terrain: Terrain) -> Errand:
    """Some name their price: enough for the dearest market, or thrifty."""
    dice = chance.random()
    if dice < 0.8:
        return errand
    thrifty = dice < 0.86
    cap = int(terrain.base_fee * (chance.uniform(1.3, 3.0) if thrifty else chance.uniform(6.5, 12.0)))
    tip = None if terrain.legacy else int(terrain.base_fee * chance.uniform(0.02, 0.2))
    return replace(errand, fees=Fees(cap, tip), thrifty=thrifty)
