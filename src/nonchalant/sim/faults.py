"""Does the scheduled faults to the world when their time comes.

A fault counts once, when it first does harm; one that met nobody does not count.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Protocol, TypeVar

from nonchalant.model import Address, LaneKey
from nonchalant.sim.blocks import Deed, Happening
from nonchalant.sim.chain import ROOM, SimChain
from nonchalant.sim.chance import Chance
from nonchalant.sim.endpoint import GAPS, LIES_ABOUT_ACCOUNTS, Ailment
from nonchalant.sim.gate import Ambush, Boundary, Gate, StoreAilment
from nonchalant.sim.loop import SimLoop
from nonchalant.sim.schedule import Fault, Kind
from nonchalant.sim.trace import Trace
from nonchalant.sim.trouble import Trouble, Troubles
from nonchalant.sim.wire import SimSigner

T = TypeVar("T")

# What only one endpoint of a chain may say at a time.
LIES: Sequence[Sequence[Ailment]] = (LIES_ABOUT_ACCOUNTS, (Ailment.LYING,), (Ailment.SEND_REFUSED,))

# Where crashes and pauses lie in wait: anywhere, and where it hurts most.
STEPS = ("", "store.commit", "store.commit", "node.send", "node.send", "store.acquire", "store.accept", "signer.sign")


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


class Faults:
    """The hand that does harm. `struck` counts what did."""

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

    def start(self, schedule: Sequence[Fault]) -> None:
        for fault in schedule:
            self.loop.call_at(fault.at, self.inject, fault)

    def inject(self, fault: Fault) -> None:
        if not self.over:
            _HARMS[fault.kind](self, fault)

    def stop(self) -> None:
        """From here on nothing new goes wrong, and what is wrong is put right, but for a market that stays dear."""
        self.over = True
        for gate in self.realm.gates():
            gate.clear()
        for signer in self.realm.signers:
            signer.down = signer.wrong = False
        for chain in self.realm.chains:
            chain.finality_stalled = False
            chain.room = ROOM
            chain.resting = False
            chain.gossip = chain.terrain.gossip
            for endpoint in chain.endpoints:
                endpoint.troubles.end()
                endpoint.pool.limit = chain.terrain.account_limit
                chain.rejoin(endpoint)
            chain.expel_squatters()
        while self.debts:
            self.repay(self.debts[0])

    def accepted(self, lane: LaneKey) -> None:
        """Something is about to be sent from this account: who waited for that strikes now."""
        for thief in [thief for thief in self.thieves if thief[0] == lane]:
            self.thieves.remove(thief)
            self.loop.call_soon(thief[1])

    # for the harms below

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
        return _pick(gates, fault) if gates else None

    def chain(self, fault: Fault) -> SimChain:
        return _pick(self.realm.chains, fault)

    def address(self, fault: Fault, chain: SimChain) -> Address:
        return _pick([lane for lane in self.realm.lanes if lane.chain_id == chain.chain_id], fault).address


Harm = Callable[[Faults, Fault], None]
_HARMS: dict[Kind, Harm] = {}


def _harm(*kinds: Kind) -> Callable[[Harm], Harm]:
    def register(harm: Harm) -> Harm:
        _HARMS.update(dict.fromkeys(kinds, harm))
        return harm

    return register


def _pick(among: Sequence[T], fault: Fault) -> T:
    return among[fault.who % len(among)]


# nodes


@_harm(Kind.CRASH)
def _crash(faults: Faults, fault: Fault) -> None:
    if gate := faults.gate(fault):

        def spring() -> None:
            gate.kill()
            faults.strike(fault, gate.name)

        # One that lasts no time is there at the very next step.
        gate.lay(_ambush(faults.chance, spring) if fault.seconds else Ambush("", Boundary.AFTER, 0, spring))


@_harm(Kind.STOP)
def _stop(faults: Faults, fault: Fault) -> None:
    if gate := faults.gate(fault):
        faults.strike(fault, gate.name)
        faults.realm.stop_node(gate)


@_harm(Kind.PAUSE)
def _pause(faults: Faults, fault: Fault) -> None:
    if gate := faults.gate(fault):
        seconds = faults.realm.lease_ttl * (0.5 + 2.5 * fault.much)

        def spring() -> None:
            gate.pause(seconds)
            faults.strike(fault, f"{gate.name} for {seconds:.1f} s")

        gate.lay(_ambush(faults.chance, spring))


def _ambush(chance: Chance, spring: Callable[[], None]) -> Ambush:
    side = Boundary.BEFORE if chance.random() < 0.5 else Boundary.AFTER
    return Ambush(chance.choice(STEPS), side, chance.randint(0, 5), spring)


@_harm(Kind.CLOCK_SKEW)
def _clock_skew(faults: Faults, fault: Fault) -> None:
    if gate := faults.gate(fault):
        seconds = (fault.much - 0.5) * 7200
        faults.realm.skew(gate, seconds)
        faults.strike(fault, f"{gate.name} by {seconds:.0f} s")


@_harm(Kind.WAKE_LOST, Kind.WAKE_DELAYED)
def _wakes(faults: Faults, fault: Fault) -> None:
    if gate := faults.gate(fault):
        faults.lay(gate.wake_troubles, fault, fault.kind, 0.8, gate.name)


@_harm(Kind.STORE_REFUSED, Kind.COMMIT_UNSAID, Kind.COMMIT_LOST, Kind.COMMIT_LATE)
def _store_trouble(faults: Faults, fault: Fault) -> None:
    if gate := faults.gate(fault):
        # Seldom enough for work to go on between, but for a store that is quite away.
        odds = 1.0 if fault.kind is Kind.STORE_REFUSED and fault.much < 0.3 else 0.05 + 0.3 * fault.much
        if fault.kind is Kind.COMMIT_LATE:
            odds = 0.2 + 0.6 * fault.much
        faults.lay(gate.store_troubles, fault, StoreAilment(fault.kind.value), odds, gate.name)


# what all nodes share


@_harm(Kind.KEY_MISSING)
def _take_key(faults: Faults, fault: Fault) -> None:
    gate, lane = faults.gate(fault), faults.chance.choice(faults.realm.lanes)
    if gate and faults.realm.take_key(gate, lane):
        faults.strike(fault, f"{gate.name} has no key of {lane.chain_id}/{lane.address[2:4]} from now on")


@_harm(Kind.STORE_RESTORED)
def _restore(faults: Faults, fault: Fault) -> None:
    if faults.realm.restore_store(fault.much):
        faults.strike(fault)


@_harm(Kind.SIGNER_DOWN)
def _signer_down(faults: Faults, fault: Fault) -> None:
    signer = _pick(faults.realm.signers, fault)
    signer.down = True
    faults.strike(fault, signer.address[:6])
    faults.later(fault.seconds, lambda: setattr(signer, "down", False))


@_harm(Kind.SIGNER_WRONG)
def _signer_wrong(faults: Faults, fault: Fault) -> None:
    signer = _pick(faults.realm.signers, fault)
    signer.wrong = True
    faults.strike(fault, signer.address[:6])
    faults.later(fault.seconds, lambda: setattr(signer, "wrong", False))


# endpoints


@_harm(
    Kind.ENDPOINT_DOWN,
    Kind.RATE_LIMITED,
    Kind.HEAD_ONLY,
    Kind.SEND_LOST,
    Kind.SEND_UNANSWERED,
    Kind.SEND_LATE,
    Kind.GAP_SWALLOWED,
    Kind.GAP_DROPPED,
)
def _endpoint_trouble(faults: Faults, fault: Fault) -> None:
    chain = faults.chain(fault)
    odds = 1.0 if faults.chance.random() < 0.5 else 0.4
    for endpoint in chain.endpoints if fault.much < 0.3 else [_pick(chain.endpoints, fault)]:
        faults.lay(endpoint.troubles, fault, Ailment(fault.kind.value), odds, endpoint.name)


@_harm(Kind.BLOCKS_PRUNED, Kind.RECEIPTS_PRUNED)
def _prune(faults: Faults, fault: Fault) -> None:
    chain = faults.chain(fault)
    for endpoint in chain.endpoints if fault.much < 0.2 else [_pick(chain.endpoints, fault)]:
        endpoint.kept = _kept(chain, fault)
        faults.lay(endpoint.troubles, fault, Ailment(fault.kind.value), 1.0, f"{endpoint.name} keeps {endpoint.kept}")


def _kept(chain: SimChain, fault: Fault) -> int:
    """How many blocks below its head an endpoint has: sometimes those that are not final, mostly fewer."""
    return int(fault.much**3 * 1.5 * chain.terrain.finality_lag)


@_harm(Kind.SEND_REFUSED)
def _refuse_bytes(faults: Faults, fault: Fault) -> None:
    # What every endpoint refuses for what it is cannot be sent: here there is one that does not know better.
    chain = faults.chain(fault)
    endpoint = _pick(chain.endpoints, fault)
    if faults.is_only_liar(chain, (Ailment.SEND_REFUSED,), fault.seconds):
        faults.lay(endpoint.troubles, fault, Ailment.SEND_REFUSED, 1.0, endpoint.name)


@_harm(Kind.FINALIZED_LIE)
def _lie(faults: Faults, fault: Fault) -> None:
    chain = faults.chain(fault)
    endpoint = _pick(chain.endpoints, fault)
    if faults.is_only_liar(chain, (Ailment.LYING,), fault.seconds):
        faults.lay(endpoint.troubles, fault, Ailment.LYING, 1.0, endpoint.name)


@_harm(Kind.COUNT_HIGH, Kind.COUNT_LOW, Kind.BALANCE_HIGH, Kind.BALANCE_LOW)
def _miscount(faults: Faults, fault: Fault) -> None:
    chain = faults.chain(fault)
    endpoint = _pick(chain.endpoints, fault)
    if faults.is_only_liar(chain, LIES_ABOUT_ACCOUNTS, fault.seconds):
        faults.lay(endpoint.troubles, fault, Ailment(fault.kind.value), 1.0 - fault.much / 2, endpoint.name)


# What one endpoint of three may suffer from for ever, and everything must settle all the same.
LASTING = (
    *LIES_ABOUT_ACCOUNTS,
    Ailment.DOWN,
    Ailment.RATE_LIMITED,
    Ailment.HEAD_ONLY,
    Ailment.SEND_LOST,
    Ailment.SEND_REFUSED,
    Ailment.LYING,
    Ailment.BLOCKS_PRUNED,
    Ailment.RECEIPTS_PRUNED,
    *GAPS,
)


@_harm(Kind.STAYS_SICK)
def _sicken(faults: Faults, fault: Fault) -> None:
    chain, ailment = faults.chain(fault), faults.chance.choice(LASTING)
    about = next((lies for lies in LIES if ailment in lies), None)
    if about is not None and not faults.is_only_liar(chain, about, math.inf):
        return
    endpoint = _pick(chain.endpoints, fault)
    endpoint.kept = _kept(chain, fault)
    note = f"{endpoint.name} {ailment}"
    endpoint.troubles.lay(Trouble(ailment, math.inf, 1.0, lambda: faults.strike(fault, note), lasting=True))


@_harm(Kind.LAGGING)
def _lag(faults: Faults, fault: Fault) -> None:
    chain = faults.chain(fault)
    endpoint = _pick(chain.endpoints, fault)
    endpoint.frozen = True
    faults.strike(fault, endpoint.name)
    faults.later(fault.seconds, lambda: chain.rejoin(endpoint))


@_harm(Kind.DISAGREEING)
def _disagree(faults: Faults, fault: Fault) -> None:
    chain = faults.chain(fault)
    endpoint = _pick(chain.endpoints, fault)
    chain.fork(endpoint, 1 + int(fault.much * chain.terrain.finality_lag))
    faults.strike(fault, endpoint.name)
    faults.later(fault.seconds, lambda: chain.rejoin(endpoint))


@_harm(Kind.POOL_EVICTION)
def _evict(faults: Faults, fault: Fault) -> None:
    chain = faults.chain(fault)
    endpoints = chain.endpoints if fault.much < 0.6 else [_pick(chain.endpoints, fault)]
    held = [tx for endpoint in endpoints for tx in endpoint.pool.held()]
    if not held:
        return
    victim = _pick(held, fault)
    for endpoint in endpoints:
        endpoint.pool.evict(victim.sender, victim.nonce)
    faults.strike(fault, f"nonce {victim.nonce} of {victim.sender[:6]}")


@_harm(Kind.POOL_RESTART)
def _restart_pools(faults: Faults, fault: Fault) -> None:
    chain = faults.chain(fault)
    endpoints = chain.endpoints if fault.much < 0.5 else [_pick(chain.endpoints, fault)]
    if not any(endpoint.pool.held() for endpoint in endpoints):
        return
    for endpoint in endpoints:
        endpoint.pool.clear()
    faults.strike(fault, " ".join(endpoint.name for endpoint in endpoints))


@_harm(Kind.ACCOUNT_LIMIT)
def _limit_accounts(faults: Faults, fault: Fault) -> None:
    chain = faults.chain(fault)

    def limit(most: int) -> None:
        for endpoint in chain.endpoints:
            endpoint.pool.limit = most

    limit(1 + int(fault.much * 4))
    faults.strike(fault)
    faults.later(fault.seconds, lambda: limit(chain.terrain.account_limit))


# the chain as a whole


@_harm(Kind.FINALITY_STALLED)
def _stall(faults: Faults, fault: Fault) -> None:
    chain = faults.chain(fault)
    if not chain.terrain.tagged:
        return
    chain.finality_stalled = True
    faults.strike(fault)
    faults.later(fault.seconds, lambda: setattr(chain, "finality_stalled", False))


@_harm(Kind.FEE_SPIKE)
def _spike(faults: Faults, fault: Fault) -> None:
    chain = faults.chain(fault)
    chain.fee_level = int(chain.terrain.base_fee * (1.5 + 4 * fault.much))
    faults.strike(fault, f"to {chain.fee_level}")
    # A rush: while the price climbs, by an eighth a block, others fill the blocks.
    chain.room = 0
    rush = math.log(max(1.0, chain.fee_level / chain.head.base_fee), 1.125) * chain.terrain.block_time
    faults.later(rush, lambda: setattr(chain, "room", ROOM))
    # Half of them stay: to wait for better times must not pass for a rescue.
    if faults.chance.random() < 0.5:
        faults.later(fault.seconds, lambda: setattr(chain, "fee_level", chain.terrain.base_fee))


@_harm(Kind.CONGESTION)
def _congest(faults: Faults, fault: Fault) -> None:
    chain = faults.chain(fault)
    chain.room = int(fault.much * 3)
    faults.strike(fault)
    faults.later(fault.seconds, lambda: setattr(chain, "room", ROOM))


@_harm(Kind.NO_BLOCKS)
def _rest(faults: Faults, fault: Fault) -> None:
    chain = faults.chain(fault)
    chain.resting = True
    faults.strike(fault)
    faults.later(fault.seconds, lambda: setattr(chain, "resting", False))


@_harm(Kind.GOSSIP_CUT)
def _cut_gossip(faults: Faults, fault: Fault) -> None:
    chain = faults.chain(fault)
    chain.gossip = 0.0
    faults.strike(fault)
    faults.later(fault.seconds, lambda: setattr(chain, "gossip", chain.terrain.gossip))


@_harm(Kind.REORG_KEPT, Kind.REORG_DROPPED, Kind.REORG_FOREIGN)
def _reorg(faults: Faults, fault: Fault) -> None:
    chain = faults.chain(fault)
    keep = {Kind.REORG_KEPT: 1.0, Kind.REORG_DROPPED: 0.0, Kind.REORG_FOREIGN: 0.5}[fault.kind]
    depth = 1 + int(fault.much * (chain.head.number - chain.final.number))
    if fault.kind is Kind.REORG_FOREIGN:
        chain.intrude(faults.address(fault, chain))
    if dropped := chain.reorg(depth, keep=keep, forget=faults.chance.random() < 0.6):
        faults.strike(fault, f"of {dropped}")


# others with the same key, and no money


@_harm(Kind.FOREIGN)
def _intrude(faults: Faults, fault: Fault) -> None:
    chain = faults.chain(fault)
    chain.intrude(faults.address(fault, chain))
    faults.strike(fault)


@_harm(Kind.FOREIGN_POOLED)
def _intrude_pools(faults: Faults, fault: Fault) -> None:
    chain = faults.chain(fault)
    price = int(chain.head.base_fee * (0.8 + 2 * fault.much))
    if chain.intrude_pools(faults.address(fault, chain), faults.chance.randint(0, 4), price):
        faults.strike(fault)


@_harm(Kind.AUTHORISED)
def _authorise(faults: Faults, fault: Fault) -> None:
    chain = faults.chain(fault)
    chain.happen(Happening(Deed.AUTHORISED, faults.address(fault, chain)))
    faults.strike(fault)


@_harm(Kind.DELEGATED)
def _delegate(faults: Faults, fault: Fault) -> None:
    chain = faults.chain(fault)
    address = faults.address(fault, chain)
    chain.happen(Happening(Deed.DELEGATED, address))
    faults.strike(fault, address[:6])
    # Half of them stay: one in flight must be enough to get everything done.
    if fault.much < 0.5:
        faults.later(fault.seconds, lambda: chain.happen(Happening(Deed.AUTHORISED, address)))


@_harm(Kind.OUT_OF_FUNDS)
def _impoverish(faults: Faults, fault: Fault) -> None:
    chain = faults.chain(fault)
    address = faults.address(fault, chain)

    def steal() -> None:
        amount = 0 if faults.over else chain.drain(address, leave=int(fault.much * 10**16))
        if amount:
            debt = (chain, Happening(Deed.FUNDED, address, amount))
            faults.debts.append(debt)
            faults.strike(fault, address[:6])
            faults.later(fault.seconds, lambda: faults.repay(debt))

    def steal_at_once() -> None:
        if faults.over:
            return
        steal()
        chain.mine()
        for endpoint in chain.endpoints:
            endpoint.learn(chain.head, chain.final)
        # Who has the key for that signs more with it.
        faults.later(chain.terrain.block_time, lambda: chain.happen(Happening(Deed.AUTHORISED, address)))

    # Half of them wait until something is about to be sent, so that nobody saw it coming.
    if faults.chance.random() < 0.5:
        steal()
    else:
        faults.thieves.append((LaneKey(chain.chain_id, address), steal_at_once))


assert set(_HARMS) == set(Kind), "every kind does harm"
