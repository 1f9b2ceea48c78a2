"""The hand that does harm: what it can get at in the world, and what every kind of harm needs of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Protocol, TypeVar

from nonchalant.sim.blocks import Happening
from nonchalant.sim.chain import SimChain
from nonchalant.sim.chance import Chance
from nonchalant.sim.endpoint import Ailment
from nonchalant.sim.gate import Gate
from nonchalant.sim.loop import SimLoop
from nonchalant.sim.schedule import Fault, Kind
from nonchalant.sim.trace import Trace
from nonchalant.sim.trouble import Trouble, Troubles
from nonchalant.sim.wire import SimSigner
from nonchalant.words import Address, LaneKey

T = TypeVar("T")


class Realm(Protocol):
    """What of the world faults can get at."""

    chains: Sequence[SimChain]
    signers: Sequence[SimSigner]
    lanes: Sequence[LaneKey]
    lease_ttl: float

    def gates(self) -> Sequence[Gate]:
        """Of the nodes that live; the first ones come first again after a restart."""

    def skew(self, gate: Gate, seconds: float) -> None:
        """Set the node's wall clock off by so much."""

    def stop_node(self, gate: Gate) -> None:
        """Ask the node to stop, as a deployment does."""

    def take_key(self, gate: Gate, lane: LaneKey) -> bool:
        """Deploy the node anew without the lane's key; False if no other node has it, or it has it no more."""

    def restore_store(self, much: float) -> bool:
        """Stop every node and put an older copy of the store in place; False if there is none yet."""


class Hand:
    """`struck` counts the faults that did harm; `over`: they have ended, and all that can be is put right."""

    def __init__(self, realm: Realm, loop: SimLoop, chance: Chance, trace: Trace) -> None:
        self.realm = realm
        self.loop = loop
        self.chance = chance
        self.struck: Counter[Kind] = Counter()
        self.over = False
        self.liars: dict[tuple[int, Sequence[Ailment]], float] = {}  # until when somebody lies about such things
        self.debts: list[tuple[SimChain, Happening]] = []
        self.thieves: list[tuple[LaneKey, Callable[[], None]]] = []
        self._counted: set[Fault] = set()
        self._trace = trace

    def strike(self, fault: Fault, note: str = "") -> None:
        """It did harm; the first time counts."""
        if fault in self._counted:
            return
        self._counted.add(fault)
        self.struck[fault.kind] += 1
        self._trace("fault", f"{fault.kind} {note}".rstrip())

    def lay(self, troubles: Troubles, fault: Fault, ailment: StrEnum, odds: float, note: str) -> None:
        until = self.loop.time() + fault.seconds
        troubles.lay(Trouble(ailment, until, odds, lambda: self.strike(fault, note)))

    def is_only_liar(self, chain: SimChain, about: Sequence[Ailment], seconds: float) -> bool:
        """Whether nobody else of the chain lies about this; of more than one in three nobody could know better."""
        if self.liars.get((chain.chain_id, about), 0.0) > self.loop.time():
            return False
        self.liars[chain.chain_id, about] = self.loop.time() + seconds
        return True

    def later(self, seconds: float, undo: Callable[[], None]) -> None:
        """Put something right after a while, unless `stop` did it for all."""
        self.loop.call_later(seconds, lambda: None if self.over else undo())

    def repay(self, debt: tuple[SimChain, Happening]) -> None:
        if debt in self.debts:
            self.debts.remove(debt)
            chain, happening = debt
            chain.happen(happening)

    def gate(self, fault: Fault) -> Gate | None:
        gates = self.realm.gates()
        return pick(gates, fault) if gates else None

    def chain(self, fault: Fault) -> SimChain:
        return pick(self.realm.chains, fault)

    def address(self, fault: Fault, chain: SimChain) -> Address:
        return pick([lane for lane in self.realm.lanes if lane.chain_id == chain.chain_id], fault).address


def pick(among: Sequence[T], fault: Fault) -> T:
    return among[fault.who % len(among)]
