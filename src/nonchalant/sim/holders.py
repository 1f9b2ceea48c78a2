"""Those who sign by themselves: they reserve a nonce, and do with it what they like."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from nonchalant.asking import Asking
from nonchalant.model import Draft, Fees, Payload, Reply, Sealed
from nonchalant.ports import Entropy
from nonchalant.sim import wire
from nonchalant.sim.chain import SimChain
from nonchalant.sim.loop import SimLoop
from nonchalant.sim.moves import Ask, Move, Way
from nonchalant.sim.wire import Order
from nonchalant.wishes import Release, Reserve, Use
from nonchalant.words import Address, LaneKey

RECIPIENT: Address = "0x" + "0d" * 20
DEAR = 12  # times the base fee: any market takes it

Want = Callable[[Asking], Awaitable[object]]


class Ears(Protocol):
    """How somebody asks nodes for something."""

    async def hear(self, first: int, want: Want, *, once: bool = False) -> list[Any]: ...


class Holders:
    def __init__(self, chains: Sequence[SimChain], loop: SimLoop, entropy: Entropy, moves: Counter[Move]) -> None:
        self._chains = {chain.chain_id: chain for chain in chains}
        self._loop = loop
        self._entropy = entropy
        self._moves = moves
        self._signed = 0

    async def reserve(self, ask: Ask, ears: Ears) -> None:
        holder, until = self._entropy.token(), self._loop.time() + ask.seconds
        act = Reserve(holder, round(ask.seconds * 1000))
        for reply in await ears.hear(ask.node, lambda asking: asking.of_lane(ask.lane, act), once=True):
            assert isinstance(reply, Reply)
            nonce = int(str(reply.data["nonce"]))
            await self._loop.sleep(self._entropy.uniform(0.0, 0.8) * ask.seconds)
            await self._go_on(ask, ears, holder, nonce, until)

    async def _go_on(self, ask: Ask, ears: Ears, holder: str, nonce: int, until: float) -> None:
        signed = self._sign(ask.lane, nonce)
        match ask.way:
            case Way.BYTES:
                act: Use | Release = Use(nonce, holder, signed.hash, signed.raw)
            case Way.HASH | Way.UNSENT:
                act = Use(nonce, holder, signed.hash)
            case Way.RELEASED:
                act = Release(nonce, holder)
            case Way.SILENT | Way.LATE | Way.FORGOTTEN:
                if ask.way is Way.LATE:
                    await self._loop.sleep(until - self._loop.time() + self._entropy.uniform(0.1, 30.0))
                    self._moves[Move.OUTSIDE_LATE] += 1
                if ask.way is not Way.FORGOTTEN:
                    self._send(ask.lane, signed)
                return
        if ask.way is Way.HASH:
            self._send(ask.lane, signed)
        await ears.hear(ask.node + 1, lambda asking: asking.of_lane(ask.lane, act))

    def _sign(self, lane: LaneKey, nonce: int) -> Sealed:
        self._signed += 1
        chain = self._chains[lane.chain_id]
        data = Order(f"outside-{lane.chain_id}-{self._signed}").data()
        price = chain.terrain.base_fee * DEAR
        draft = Draft(
            lane=lane,
            nonce=nonce,
            payload=Payload(to=RECIPIENT, data=data),
            gas=wire.intrinsic_gas(data) + 30_000,
            fees=Fees(price, None if chain.terrain.legacy else price // 10),
        )
        return chain.seal(draft, wire.signature(lane.address, chain.digest(draft)))

    def _send(self, lane: LaneKey, signed: Sealed) -> None:
        """Past us: nobody of ours knows when, or whether at all."""
        tx = wire.read(signed.raw, self._chains[lane.chain_id].terrain.data_price)
        for endpoint in self._chains[lane.chain_id].endpoints:
            endpoint.hear(tx)
