"""What each kind of fault does, to nodes, endpoints, chains and accounts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from nonchalant.sim.blocks import Deed, Happening
from nonchalant.sim.chain import ROOM, SimChain
from nonchalant.sim.chance import Chance
from nonchalant.sim.endpoint import GAPS, LIES_ABOUT_ACCOUNTS, Ailment
from nonchalant.sim.gate import Ambush, Boundary, StoreAilment
from nonchalant.sim.hand import Hand, pick
from nonchalant.sim.schedule import Fault, Kind
from nonchalant.sim.trouble import Trouble
from nonchalant.words import LaneKey

# What only one endpoint of a chain may say at a time.
LIES: Sequence[Sequence[Ailment]] = (LIES_ABOUT_ACCOUNTS, (Ailment.LYING,), (Ailment.SEND_REFUSED,))

# Where crashes and pauses lie in wait: anywhere, and where it hurts most.
STEPS = ("", "store.commit", "store.commit", "node.send", "node.send", "store.acquire", "store.accept", "signer.sign")

Harm = Callable[[Hand, Fault], None]
HARMS: dict[Kind, Harm] = {}


def harm(*kinds: Kind) -> Callable[[Harm], Harm]:
    def register(deed: Harm) -> Harm:
        HARMS.update(dict.fromkeys(kinds, deed))
        return deed

    return register


# nodes


@harm(Kind.CRASH)
def _crash(hand: Hand, fault: Fault) -> None:
    if gate := hand.gate(fault):

        def spring() -> None:
            gate.kill()
            hand.strike(fault, gate.name)

        # One that lasts no time is there at the very next step.
        gate.lay(_ambush(hand.chance, spring) if fault.seconds else Ambush("", Boundary.AFTER, 0, spring))


@harm(Kind.STOP)
def _stop(hand: Hand, fault: Fault) -> None:
    if gate := hand.gate(fault):
        hand.strike(fault, gate.name)
        hand.realm.stop_node(gate)


@harm(Kind.PAUSE)
def _pause(hand: Hand, fault: Fault) -> None:
    if gate := hand.gate(fault):
        seconds = hand.realm.lease_ttl * (0.5 + 2.5 * fault.much)

        def spring() -> None:
            gate.pause(seconds)
            hand.strike(fault, f"{gate.name} for {seconds:.1f} s")

        gate.lay(_ambush(hand.chance, spring))


def _ambush(chance: Chance, spring: Callable[[], None]) -> Ambush:
    side = Boundary.BEFORE if chance.random() < 0.5 else Boundary.AFTER
    return Ambush(chance.choice(STEPS), side, chance.randint(0, 5), spring)


@harm(Kind.CLOCK_SKEW)
def _clock_skew(hand: Hand, fault: Fault) -> None:
    if gate := hand.gate(fault):
        seconds = (fault.much - 0.5) * 7200
        hand.realm.skew(gate, seconds)
        hand.strike(fault, f"{gate.name} by {seconds:.0f} s")


@harm(Kind.WAKE_LOST, Kind.WAKE_DELAYED)
def _wakes(hand: Hand, fault: Fault) -> None:
    if gate := hand.gate(fault):
        hand.lay(gate.wake_troubles, fault, fault.kind, 0.8, gate.name)


@harm(Kind.STORE_REFUSED, Kind.COMMIT_UNSAID, Kind.COMMIT_LOST, Kind.COMMIT_LATE)
def _store_trouble(hand: Hand, fault: Fault) -> None:
    if gate := hand.gate(fault):
        # Seldom enough for work to go on between, but for a store that is quite away.
        odds = 1.0 if fault.kind is Kind.STORE_REFUSED and fault.much < 0.3 else 0.05 + 0.3 * fault.much
        if fault.kind is Kind.COMMIT_LATE:
            odds = 0.2 + 0.6 * fault.much
        hand.lay(gate.store_troubles, fault, StoreAilment(fault.kind.value), odds, gate.name)


# what all nodes share


@harm(Kind.KEY_MISSING)
def _take_key(hand: Hand, fault: Fault) -> None:
    gate, lane = hand.gate(fault), hand.chance.choice(hand.realm.lanes)
    if gate and hand.realm.take_key(gate, lane):
        hand.strike(fault, f"{gate.name} has no key of {lane.chain_id}/{lane.address[2:4]} from now on")


@harm(Kind.STORE_RESTORED)
def _restore(hand: Hand, fault: Fault) -> None:
    if hand.realm.restore_store(fault.much):
        hand.strike(fault)


@harm(Kind.SIGNER_DOWN)
def _signer_down(hand: Hand, fault: Fault) -> None:
    signer = pick(hand.realm.signers, fault)
    signer.down = True
    hand.strike(fault, signer.address[:6])
    hand.later(fault.seconds, lambda: setattr(signer, "down", False))


@harm(Kind.SIGNER_WRONG)
def _signer_wrong(hand: Hand, fault: Fault) -> None:
    elsewhere = [signer for signer in hand.realm.signers if not signer.in_process]
    if not elsewhere:
        return
    signer = pick(elsewhere, fault)
    signer.wrong = True
    hand.strike(fault, signer.address[:6])
    hand.later(fault.seconds, lambda: setattr(signer, "wrong", False))


# endpoints


@harm(
    Kind.ENDPOINT_DOWN,
    Kind.RATE_LIMITED,
    Kind.HEAD_ONLY,
    Kind.SEND_LOST,
    Kind.SEND_UNANSWERED,
    Kind.SEND_LATE,
    Kind.GAP_SWALLOWED,
    Kind.GAP_DROPPED,
)
def _endpoint_trouble(hand: Hand, fault: Fault) -> None:
    chain = hand.chain(fault)
    odds = 1.0 if hand.chance.random() < 0.5 else 0.4
    for endpoint in chain.endpoints if fault.much < 0.3 else [pick(chain.endpoints, fault)]:
        hand.lay(endpoint.troubles, fault, Ailment(fault.kind.value), odds, endpoint.name)


@harm(Kind.BLOCKS_PRUNED, Kind.RECEIPTS_PRUNED)
def _prune(hand: Hand, fault: Fault) -> None:
    chain = hand.chain(fault)
    for endpoint in chain.endpoints if fault.much < 0.2 else [pick(chain.endpoints, fault)]:
        endpoint.kept = _kept(chain, fault)
        hand.lay(endpoint.troubles, fault, Ailment(fault.kind.value), 1.0, f"{endpoint.name} keeps {endpoint.kept}")


def _kept(chain: SimChain, fault: Fault) -> int:
    """How many blocks below its head an endpoint has: sometimes those that are not final, mostly fewer."""
    return int(fault.much**3 * 1.5 * chain.terrain.finality_lag)


def _err_alone(hand: Hand, fault: Fault, ailment: Ailment, *, about: tuple[Ailment, ...], odds: float = 1.0) -> None:
    """One endpoint errs, unless another one errs about the same."""
    chain = hand.chain(fault)
    endpoint = pick(chain.endpoints, fault)
    if hand.is_only_liar(chain, about, fault.seconds):
        hand.lay(endpoint.troubles, fault, ailment, odds, endpoint.name)


@harm(Kind.SEND_REFUSED)
def _refuse_bytes(hand: Hand, fault: Fault) -> None:
    # What every endpoint refuses for what it is cannot be sent: here there is one that does not know better.
    _err_alone(hand, fault, Ailment.SEND_REFUSED, about=(Ailment.SEND_REFUSED,))


@harm(Kind.FINALIZED_LIE)
def _lie(hand: Hand, fault: Fault) -> None:
    _err_alone(hand, fault, Ailment.LYING, about=(Ailment.LYING,))


@harm(Kind.COUNT_HIGH, Kind.COUNT_LOW, Kind.BALANCE_HIGH, Kind.BALANCE_LOW)
def _miscount(hand: Hand, fault: Fault) -> None:
    _err_alone(hand, fault, Ailment(fault.kind.value), about=LIES_ABOUT_ACCOUNTS, odds=1.0 - fault.much / 2)


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


@harm(Kind.STAYS_SICK)
def _sicken(hand: Hand, fault: Fault) -> None:
    chain, ailment = hand.chain(fault), hand.chance.choice(LASTING)
    about = next((lies for lies in LIES if ailment in lies), None)
    if about is not None and not hand.is_only_liar(chain, about, math.inf):
        return
    endpoint = pick(chain.endpoints, fault)
    endpoint.kept = _kept(chain, fault)
    note = f"{endpoint.name} {ailment}"
    endpoint.troubles.lay(Trouble(ailment, math.inf, 1.0, lambda: hand.strike(fault, note), lasting=True))


@harm(Kind.LAGGING)
def _lag(hand: Hand, fault: Fault) -> None:
    chain = hand.chain(fault)
    endpoint = pick(chain.endpoints, fault)
    endpoint.frozen = True
    hand.strike(fault, endpoint.name)
    hand.later(fault.seconds, lambda: chain.rejoin(endpoint))


@harm(Kind.DISAGREEING)
def _disagree(hand: Hand, fault: Fault) -> None:
    chain = hand.chain(fault)
    endpoint = pick(chain.endpoints, fault)
    chain.fork(endpoint, 1 + int(fault.much * chain.terrain.finality_lag))
    hand.strike(fault, endpoint.name)
    hand.later(fault.seconds, lambda: chain.rejoin(endpoint))


@harm(Kind.POOL_EVICTION)
def _evict(hand: Hand, fault: Fault) -> None:
    chain = hand.chain(fault)
    endpoints = chain.endpoints if fault.much < 0.6 else [pick(chain.endpoints, fault)]
    held = [tx for endpoint in endpoints for tx in endpoint.pool.held()]
    if not held:
        return
    victim = pick(held, fault)
    for endpoint in endpoints:
        endpoint.pool.evict(victim.sender, victim.nonce)
    hand.strike(fault, f"nonce {victim.nonce} of {victim.sender[:6]}")


@harm(Kind.POOL_RESTART)
def _restart_pools(hand: Hand, fault: Fault) -> None:
    chain = hand.chain(fault)
    endpoints = chain.endpoints if fault.much < 0.5 else [pick(chain.endpoints, fault)]
    if not any(endpoint.pool.held() for endpoint in endpoints):
        return
    for endpoint in endpoints:
        endpoint.pool.clear()
    hand.strike(fault, " ".join(endpoint.name for endpoint in endpoints))


@harm(Kind.ACCOUNT_LIMIT)
def _limit_accounts(hand: Hand, fault: Fault) -> None:
    chain = hand.chain(fault)

    def limit(most: int) -> None:
        for endpoint in chain.endpoints:
            endpoint.pool.limit = most

    limit(1 + int(fault.much * 4))
    hand.strike(fault)
    hand.later(fault.seconds, lambda: limit(chain.terrain.account_limit))


# the chain as a whole


def _for_a_while(hand: Hand, fault: Fault, what: str, now: object, *, then: object) -> None:
    """The chain has this value while the fault lasts, and what it should have after it."""
    chain = hand.chain(fault)
    setattr(chain, what, now)
    hand.strike(fault)
    hand.later(fault.seconds, lambda: setattr(chain, what, then))


@harm(Kind.FINALITY_STALLED)
def _stall(hand: Hand, fault: Fault) -> None:
    if hand.chain(fault).terrain.tagged:
        _for_a_while(hand, fault, "finality_stalled", True, then=False)


@harm(Kind.FEE_SPIKE)
def _spike(hand: Hand, fault: Fault) -> None:
    chain = hand.chain(fault)
    chain.fee_level = int(chain.terrain.base_fee * (1.5 + 4 * fault.much))
    hand.strike(fault, f"to {chain.fee_level}")
    # A rush: while the price climbs, by an eighth a block, others fill the blocks.
    chain.room = 0
    rush = math.log(max(1.0, chain.fee_level / chain.head.base_fee), 1.125) * chain.terrain.block_time
    hand.later(rush, lambda: setattr(chain, "room", ROOM))
    # Half of them stay: to wait for better times must not pass for a rescue.
    if hand.chance.random() < 0.5:
        hand.later(fault.seconds, lambda: setattr(chain, "fee_level", chain.terrain.base_fee))


@harm(Kind.CONGESTION)
def _congest(hand: Hand, fault: Fault) -> None:
    _for_a_while(hand, fault, "room", int(fault.much * 3), then=ROOM)


@harm(Kind.NO_BLOCKS)
def _rest(hand: Hand, fault: Fault) -> None:
    _for_a_while(hand, fault, "resting", True, then=False)


@harm(Kind.GOSSIP_CUT)
def _cut_gossip(hand: Hand, fault: Fault) -> None:
    _for_a_while(hand, fault, "gossip", 0.0, then=hand.chain(fault).terrain.gossip)


@harm(Kind.REORG_KEPT, Kind.REORG_DROPPED, Kind.REORG_FOREIGN)
def _reorg(hand: Hand, fault: Fault) -> None:
    chain = hand.chain(fault)
    keep = {Kind.REORG_KEPT: 1.0, Kind.REORG_DROPPED: 0.0, Kind.REORG_FOREIGN: 0.5}[fault.kind]
    depth = 1 + int(fault.much * (chain.head.number - chain.final.number))
    if fault.kind is Kind.REORG_FOREIGN:
        chain.intrude(hand.address(fault, chain))
    if dropped := chain.reorg(depth, keep=keep, forget=hand.chance.random() < 0.6):
        hand.strike(fault, f"of {dropped}")


# others with the same key, and no money


@harm(Kind.FOREIGN)
def _intrude(hand: Hand, fault: Fault) -> None:
    chain = hand.chain(fault)
    chain.intrude(hand.address(fault, chain))
    hand.strike(fault)


@harm(Kind.FOREIGN_POOLED)
def _intrude_pools(hand: Hand, fault: Fault) -> None:
    chain = hand.chain(fault)
    price = int(chain.head.base_fee * (0.8 + 2 * fault.much))
    if chain.intrude_pools(hand.address(fault, chain), hand.chance.randint(0, 4), price):
        hand.strike(fault)


@harm(Kind.AUTHORISED)
def _authorise(hand: Hand, fault: Fault) -> None:
    chain = hand.chain(fault)
    chain.happen(Happening(Deed.AUTHORISED, hand.address(fault, chain)))
    hand.strike(fault)


@harm(Kind.DELEGATED)
def _delegate(hand: Hand, fault: Fault) -> None:
    chain = hand.chain(fault)
    address = hand.address(fault, chain)
    chain.happen(Happening(Deed.DELEGATED, address))
    hand.strike(fault, address[:6])
    # Half of them stay: one in flight must be enough to get everything done.
    if fault.much < 0.5:
        hand.later(fault.seconds, lambda: chain.happen(Happening(Deed.AUTHORISED, address)))


@harm(Kind.OUT_OF_FUNDS)
def _impoverish(hand: Hand, fault: Fault) -> None:
    chain = hand.chain(fault)
    address = hand.address(fault, chain)

    def steal() -> None:
        amount = 0 if hand.over else chain.drain(address, leave=int(fault.much * 10**16))
        if amount:
            debt = (chain, Happening(Deed.FUNDED, address, amount))
            hand.debts.append(debt)
            hand.strike(fault, address[:6])
            hand.later(fault.seconds, lambda: hand.repay(debt))

    def steal_at_once() -> None:
        if hand.over:
            return
        steal()
        chain.mine()
        for endpoint in chain.endpoints:
            endpoint.learn(chain.head, chain.final)
        # Who has the key for that signs more with it.
        hand.later(chain.terrain.block_time, lambda: chain.happen(Happening(Deed.AUTHORISED, address)))

    # Half of them wait until something is about to be sent, so that nobody saw it coming.
    if hand.chance.random() < 0.5:
        steal()
    else:
        hand.thieves.append((LaneKey(chain.chain_id, address), steal_at_once))


assert set(HARMS) == set(Kind), "every kind does harm"
