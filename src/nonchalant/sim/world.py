"""A seeded world: several nodes with the real stages on the real SQL, simulated chains, clients, and faults.

The one place in the simulator where clocks and chance are made. The same seed gives the same history, byte for byte.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nonchalant.asking import Asking
from nonchalant.engine import Engine
from nonchalant.errors import NonchalantError
from nonchalant.intake import Intake
from nonchalant.model import Transaction
from nonchalant.sim import haste, moves, poisons, schedule, setting, traffic
from nonchalant.sim.chain import SimChain
from nonchalant.sim.chance import Chance
from nonchalant.sim.clients import Clients, Operator
from nonchalant.sim.counsel import Counsel
from nonchalant.sim.endings import Endings
from nonchalant.sim.facts import Facts
from nonchalant.sim.faults import Faults
from nonchalant.sim.gate import Gate, gated_signer, gated_store
from nonchalant.sim.holders import Holders
from nonchalant.sim.journal import Journal, listening
from nonchalant.sim.loop import SimLoop, forgetting
from nonchalant.sim.moves import Move
from nonchalant.sim.node import Doorbell, Life, Node, NodeChain, NodeClock
from nonchalant.sim.obedience import Obedience
from nonchalant.sim.poisons import Poisons
from nonchalant.sim.properties import Checker, Edge
from nonchalant.sim.schedule import Kind
from nonchalant.sim.store import SimWitness, WatchedStore, new_database, older_database
from nonchalant.sim.trace import Trace
from nonchalant.sim.violations import BUG, Violation, Violations
from nonchalant.sim.wire import SimSigner
from nonchalant.store.witness import notice_restore
from nonchalant.windows import Pace
from nonchalant.words import LaneKey, Millis, State

LEAST_SECONDS = 600.0
BALANCE = 50 * 10**18

# Once the faults are over: how long until all nodes are up, have had their rest, and hold all leases.
QUIET_SECONDS = 50.0

# Everything settles within this long, and within that many times what finality takes: a lane that may have few
# transactions unsettled goes on in as many steps, after a quarantine perhaps.
SETTLE_SECONDS = 300.0
SETTLE_STEPS = 8

# How many histories have an attention hook.
HOOKED = 0.7

# How often a copy of the store is put aside, in a history that will need one.
COPY_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class History:
    """What came of one seed."""

    seed: int
    digest: str
    violations: tuple[Violation, ...]
    lines: tuple[str, ...]
    nodes: int
    lanes: int
    transactions: int
    faults: Mapping[Kind, int]
    edges: Mapping[Edge, int]
    moves: Mapping[Move, int]
    seconds: float


@dataclass(frozen=True, slots=True)
class Copy:
    """The store as it was, and how far each lane had got."""

    at: float
    content: bytes
    given_out: Mapping[LaneKey, int]


class SimEntropy:
    """Chance as a process gets it from its operating system."""

    def __init__(self, chance: Chance) -> None:
        self._chance = chance

    def token(self) -> str:
        return f"{self._chance.randint(0, 2**128 - 1):032x}"

    def uniform(self, low: float, high: float) -> float:
        return self._chance.uniform(low, high)


class TrueClock:
    """The time by which the database judges leases."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop

    def now(self) -> Millis:
        return setting.millis(self._loop.time())

    def monotonic(self) -> float:
        return self._loop.time()

    async def sleep(self, seconds: float) -> None:
        await self._loop.sleep(seconds)


def stopwatch() -> Callable[[], float]:
    """Real seconds since it was made: how fast histories run, never what happens in them."""
    began = time.monotonic()
    return lambda: time.monotonic() - began


def live(seed: int, *, keep: int | None = 400) -> History:
    """Live through the history of this seed. `keep` lines of its trace are kept, None: all."""
    with listening() as journal, forgetting():
        return _live(seed, keep, journal)


def _live(seed: int, keep: int | None, journal: Journal) -> History:
    world = World(seed, keep)
    journal.open(world.trace, world.broke)
    try:
        return world.run()
    finally:
        journal.close()


class World:
    """Also what faults get at (`hand.Realm`)."""

    lease_ttl = setting.LEASE_SECONDS

    def __init__(self, seed: int, keep: int | None = 400) -> None:
        self._seed = seed
        chance = self._chance("terrain")
        self.loop = SimLoop(self._chance("loop"))
        self.trace = Trace(self.loop, keep=keep)
        self.clock = TrueClock(self.loop)
        self._span = chance.uniform(400.0, 500.0)
        terrains = setting.terrains(chance)
        self.lanes: Sequence[LaneKey] = setting.lanes(chance, list(terrains))
        errands = traffic.draw(self._chance("traffic"), self.lanes, terrains, self._span)
        errands = traffic.volleys(self._chance("volleys"), errands)
        self._errands = traffic.gather(self._chance("gathering"), errands)
        self._faults_to_come = schedule.draw(self._chance("schedule"), self._span)
        self._rules = setting.rules(chance, self.lanes, terrains)
        self._queue_limits = {lane: chance.choice([8, 1000, 1000]) for lane in self.lanes}
        self._facts = Facts(self.loop, self._errands)
        self._report = Violations(seed, self.loop, self.trace)
        self._asks = moves.draw(self._chance("moves"), self._errands, self.lanes, terrains, self._span)
        hurried, resets = haste.draw(self._chance("haste"), self._errands, self.lanes, list(terrains))
        self._faults_to_come = sorted([*self._faults_to_come, *hurried], key=lambda fault: fault.at)
        self._asks += resets
        # One that no operator opens again: what is on its way settles, and nothing else goes.
        self._shut = chance.choice(self.lanes) if chance.random() < 0.15 else None
        self._obedience = Obedience(self._facts, self._report, self.loop)
        self._checker = Checker(self._facts, self._report, self.trace, self._obedience)
        self._endings = Endings(self._facts, self._report, self._checker, self._obedience, self.loop)
        balances = {lane.address: BALANCE for lane in self.lanes}
        self.chains: Sequence[SimChain] = [
            SimChain(terrain, self.loop, self._chance(f"chain {chain_id}"), balances, self._checker)
            for chain_id, terrain in terrains.items()
        ]
        keys = self._chance("keys")
        self._signer_of = {lane: SimSigner(lane.address, in_process=keys.random() < 0.7) for lane in self.lanes}
        self.signers: Sequence[SimSigner] = list(self._signer_of.values())
        self._io = self._chance("io")
        self._faults = Faults(self, self.loop, self._chance("faults"), self.trace)
        self._witness = SimWitness()
        self._database = new_database(SimEntropy(self._chance("store")).token())
        self._copies: list[Copy] = []
        self._store_up = asyncio.Event()
        self._store_up.set()
        self._nodes = [
            Node(f"n{number}", self.loop, self._io, self.trace, self._begin)
            for number in range(chance.choice([3, 3, 3, 4]))
        ]
        self._lives: dict[str, Life] = {}
        self._keyless: dict[str, set[LaneKey]] = {node.name: set() for node in self._nodes}
        self._tasks: list[asyncio.Task[Any]] = []
        entropy = SimEntropy(self._chance("clients"))
        people = self._obedience.moves
        asked = self._chance("hook").random() < HOOKED
        counsel = Counsel(self._chance, terrains, self._rules, self._facts, self._report, people)
        self._counsel = counsel if asked else None
        self._poisons = Poisons(poisons.draw(self._chance("poison"), self._errands), people)
        holders = Holders(self.chains, self.loop, entropy, people)
        self._clients = Clients(
            self._nodes, self.loop, entropy, self._checker, self._report, people, holders, self._facts
        )
        self._operator = Operator(self._clients, self._facts, self._obedience, self.loop)
        self._over = self.loop.create_future()
        self._facts.chains = {chain.chain_id: chain for chain in self.chains}
        self._facts.opened(self._database)
        strict = (lane for lane, rule in self._rules.lanes.items() if rule.pace is Pace.STRICT)
        self._obedience.strict = frozenset(strict)
        self._obedience.shared = frozenset(lane for lane, rule in self._rules.lanes.items() if rule.shared)
        self._obedience.prices = {lane: rule.fees for lane, rule in self._rules.lanes.items()}
        self._obedience.is_poisonous = self._poisons.is_poisonous
        self._report.at_the_first = self._break_off
        self._checker.now = self._obedience.now = self.clock.now
        self._checker.engine_of = lambda who: self._lives[who].engine
        self._checker.told_of_work = self._faults.accepted

    def _chance(self, use: str) -> Chance:
        """Each use has its own source, so that one more draw here does not change everything there."""
        return random.Random(f"{self._seed} {use}")

    # the history

    def run(self) -> History:
        try:
            self.loop.run(self._main())
        except Exception as error:  # noqa: BLE001 - told with its seed like any other, and the other histories go on
            self.broke(repr(error))
        return History(
            seed=self._seed,
            digest=self.trace.digest(),
            violations=tuple(self._report.found[:1]),
            lines=tuple(self.trace.lines),
            nodes=len(self._nodes),
            lanes=len(self.lanes),
            transactions=len(self._facts.accepted),
            faults=Counter(self._faults.struck),
            edges=Counter(self._checker.edges),
            moves=+self._obedience.moves,
            seconds=self.loop.time(),
        )

    async def _main(self) -> None:
        self.loop.set_exception_handler(self._unhandled)
        for chain in self.chains:
            chain.start()
        for node in self._nodes:
            self._spawn(node.run(self._store_up))
        for errand in self._errands:
            self._spawn(self._clients.ask_for(errand))
        for ask in self._asks:
            self._spawn(self._clients.act(ask))
        self._faults.start(self._faults_to_come)
        if any(fault.kind is Kind.STORE_RESTORED for fault in self._faults_to_come):
            self._spawn(self._copy_store())
        await self._pass(self._span)
        self._heal()
        await self._settle()
        if self._over.done():
            self._over.result()
        if not self._report.found:
            self._endings.check_end()

    async def _pass(self, until: float) -> None:
        """Let time pass, checking sizes, unless a promise is broken before."""
        while self.loop.time() < until and not self._over.done():
            await asyncio.wait([self._over], timeout=min(10.0, until - self.loop.time()))
            for node in self._nodes:
                if node.life is not None and not node.life.gate.dead:
                    self._checker.check_sizes(node.life.engine, self._queue_limits)

    def _heal(self) -> None:
        self.trace("world", "nothing goes wrong any more")
        self._faults.stop()
        for node in self._nodes:
            node.hurry = True
        if self._poisons.mend():
            # What broke them is mended in the code: they are deployed anew.
            for gate in self.gates():
                self.stop_node(gate)
        self._spawn(self._operator.look_after(self.lanes, self._shut))

    async def _settle(self) -> None:
        """Everything must come to its end by itself, lanes that can pay the market first."""
        stopped = self.loop.time()
        finality = max(chain.terrain.finality_lag * chain.terrain.block_time for chain in self.chains)
        enough = SETTLE_SECONDS + SETTLE_STEPS * finality
        while not self._over.done():
            quiet = self.loop.time() - stopped
            if self._clients.asking == 0 and self.loop.time() >= LEAST_SECONDS and self._is_settled():
                return
            if quiet > 2 * enough:
                return  # what is left is named by the last check
            if quiet > QUIET_SECONDS:
                self._endings.check_quiet()
            if quiet > enough and any(chain.fee_level != chain.terrain.base_fee for chain in self.chains):
                self._endings.check_dear_market(self.lanes)
                for chain in self.chains:
                    chain.fee_level = chain.terrain.base_fee
            await self._pass(self.loop.time() + 5.0)

    def _is_settled(self) -> bool:
        """Whether nothing is under way any more."""
        waiting = [tx for tx in self._facts.live() if not self._may_wait(tx)]
        return not waiting and not self._facts.unsettled_slots()

    def _may_wait(self, tx: Transaction) -> bool:
        return tx.state is State.QUEUED and not self._obedience.is_open(tx.lane)

    def _break_off(self) -> None:
        if not self._over.done():
            self._over.set_result(None)

    def broke(self, what: str) -> None:
        """An error nobody expected: the code says so itself."""
        self._report(BUG, what)

    def _unhandled(self, _loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        error = context.get("exception")
        if not isinstance(error, NonchalantError):
            self.broke(f"{context.get('message')}: {error!r}")

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self.loop.create_task(work)
        task.add_done_callback(self._finished)
        self._tasks.append(task)

    def _finished(self, task: asyncio.Task[None]) -> None:
        """An error in the simulator itself ends the run."""
        error = None if task.cancelled() else task.exception()
        if error is not None and not self._over.done():
            self._over.set_exception(error)

    # nodes

    def _begin(self, name: str) -> Life:
        gate, entropy = Gate(name, self.loop, self._io), self._entropy(name)
        clock = NodeClock(self.loop, gate, self.clock.now, self._io.uniform(0.0, 1e6))
        notice_restore(self._database, self._witness)
        lacking = self._keyless[name.partition(".")[0]]
        store = WatchedStore(name, self._database, self.clock, self._witness, self._checker, self._poisons.commit)
        gated = gated_store(store, gate, self.loop, self._io)
        engine = Engine(
            store=gated,
            chains={
                chain.chain_id: NodeChain(chain, gate, self._obedience.handed_over, self._poisons)
                for chain in self.chains
            },
            signers={
                lane: gated_signer(signer, gate) for lane, signer in self._signer_of.items() if lane not in lacking
            },
            rules=self._rules,
            clock=clock,
            entropy=entropy,
            adviser=self._counsel.adviser(gate, self.loop, self._io) if self._counsel else None,
        )
        fed, bell = Doorbell(gate, self.loop, self._io), Doorbell(gate, self.loop, self._io)
        fed.ring, bell.ring = engine.feed, engine.poke
        intake = Intake(gated, clock, limits=self._queue_limits, arrived=fed, offer=engine.offer)
        life = Life(name, gate, clock, engine, gated, intake, Asking(gated, clock, entropy, arrived=bell))
        self._lives[name] = life
        return life

    def _entropy(self, name: str) -> SimEntropy:
        return SimEntropy(self._chance(f"process {name}"))

    # what faults do to nodes and store

    def gates(self) -> Sequence[Gate]:
        return [node.gate for node in self._nodes if node.gate]

    def skew(self, gate: Gate, seconds: float) -> None:
        self._lives[gate.name].clock.skew_millis = int(seconds * 1000)

    def stop_node(self, gate: Gate) -> None:
        node = next(node for node in self._nodes if node.gate is gate)
        node.stop(self._lives[gate.name])

    def take_key(self, gate: Gate, lane: LaneKey) -> bool:
        mine = self._keyless[gate.name.partition(".")[0]]
        others = [lacking for lacking in self._keyless.values() if lacking is not mine]
        if lane in mine or all(lane in lacking for lacking in others):
            return False
        mine.add(lane)
        self.stop_node(gate)
        return True

    def restore_store(self, much: float) -> bool:
        old = [copy for copy in self._copies if copy.at < self.loop.time() - 1.0 and self._is_near_enough(copy)]
        if not old or not self._store_up.is_set():
            return False
        self._store_up.clear()
        for gate in self.gates():
            gate.kill()
        # Mostly a young copy: what was lost is still under way then.
        copy = old[-1 - int(much**2 * min(len(old), 8))]
        self._copies = [kept for kept in self._copies if kept.at <= copy.at]
        self._spawn(self._put_back(copy.content, forget_witness=much * 10 % 1 < 0.4))
        return True

    async def _copy_store(self) -> None:
        while True:
            await self.loop.sleep(COPY_SECONDS * self._io.uniform(0.3, 1.7))
            found = self._facts.rows("SELECT chain_id, address, coalesce(next_nonce, 0) AS next FROM lanes")
            given_out = {LaneKey(row["chain_id"], row["address"]): int(row["next"]) for row in found}
            self._copies.append(Copy(self.loop.time(), self._database.serialize(), given_out))
            del self._copies[:-20]

    def _is_near_enough(self, copy: Copy) -> bool:
        """Whether all that would be lost is final, or within the window in which lost bytes are reckoned with."""
        for known in self._facts.attempts.values():
            settled = self._facts.consumed(known.lane, final=True)
            window = self._rules.lanes[known.lane].largest_window
            if known.nonce >= max(copy.given_out.get(known.lane, 0), settled) + window:
                return False
        return True

    async def _put_back(self, copy: bytes, *, forget_witness: bool) -> None:
        await self.loop.sleep(self._io.uniform(0.5, 5.0))
        lost, self._database = self._database, older_database(copy)
        self.trace("world", "the store is an older copy now")
        self._facts.restored(self._database)
        self._obedience.restored()
        lost.close()
        if forget_witness and await self._chain_shows_what_was_lost():
            self.trace("world", "and its witness is gone")
            self._witness.forget()
        self._store_up.set()

    async def _chain_shows_what_was_lost(self) -> bool:
        """Without a witness only the chain can tell: wait until every endpoint shows all that was lost as final.

        Of a lane that the copy has never used, nobody can tell: an account may have a past of its own.
        """
        unused = {
            LaneKey(row["chain_id"], row["address"])
            for row in self._facts.rows("SELECT chain_id, address FROM lanes WHERE next_nonce IS NULL")
        }
        # Nor of one that others use too: what the store does not know may be theirs.
        unused |= self._obedience.shared
        if any(lane in unused for lane, _ in self._facts.lost_nonces()):
            return False
        for _ in range(60):
            if self._faults.over:
                break
            if all(self._is_final_everywhere(lane, nonce) for lane, nonce in self._facts.lost_nonces()):
                return True
            await self.loop.sleep(3.0)
        return False

    def _is_final_everywhere(self, lane: LaneKey, nonce: int) -> bool:
        chain = self._facts.chains[lane.chain_id]
        return all(endpoint.final.ledger.account(lane.address).count > nonce for endpoint in chain.endpoints)
