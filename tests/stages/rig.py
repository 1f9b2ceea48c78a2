"""A rig for the stages: real engines on the real SQL, a simulated chain that moves only when a test says so.

Time is virtual and blocks come by `mine`, so a test says exactly what happens when. Whatever a test is about, the rig
also watches three promises on the chain's own truth: no payload runs twice (P3), no node sees bytes that the store does
not know (P4), and no stage raises what nobody expected.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import inspect
import random
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, TypeVar

from nonchalant.advice import Adviser
from nonchalant.asking import Asking
from nonchalant.engine import Engine
from nonchalant.errors import FeeAboveCap, NodeRefused, Unreachable
from nonchalant.fees import is_within_caps
from nonchalant.hooks import Hook
from nonchalant.intake import Intake
from nonchalant.model import Account, Fees, Payload, Request, Transaction
from nonchalant.sim.blocks import Deed, Happening, SimBlock
from nonchalant.sim.chain import SimChain, Terrain
from nonchalant.sim.endpoint import SimEndpoint
from nonchalant.sim.gate import Ambush, Boundary, Gate, StoreAilment, gated_signer, gated_store
from nonchalant.sim.journal import Journal, listening
from nonchalant.sim.loop import SimLoop, forgetting
from nonchalant.sim.node import Doorbell, Life, NodeClock, whose
from nonchalant.sim.pool import No
from nonchalant.sim.schedule import Kind
from nonchalant.sim.trace import Trace
from nonchalant.sim.trouble import Trouble
from nonchalant.sim.wire import Effect, Order, SimSigner, SimTx
from nonchalant.sim.world import SimEntropy, TrueClock
from nonchalant.values import replace
from nonchalant.words import Hash, LaneKey, OnSuperseded, Speed, State, Wei
from tests.stages.records import Records, in_place
from tests.stages.setting import (
    ABROAD,  # noqa: F401 - a test takes the cast and the rig from one place
    ALICE,
    BOB,  # noqa: F401 - as above
    CHAIN,
    ETHER,  # noqa: F401 - as above
    GWEI,
    OTHER_CHAIN,
    RECIPIENT,
    Setting,
)
from tests.stages.voices import FOR_EVER, Dice, HeardChain, Voice

T = TypeVar("T")

# After a block: every endpoint has heard of it, the follower has looked, the stages have run.
BLOCK_SECONDS = 3.0


class Rig(Records):
    def __init__(self, setting: Setting, loop: SimLoop, trace: Trace) -> None:
        super().__init__(TrueClock(loop))
        self.setting = setting
        self.loop = loop
        self.trace = trace
        self.broken: list[str] = []  # promises that did not hold, and errors that nobody expected
        self.arrivals: list[tuple[str, SimTx, No | None]] = []  # what nodes of the chain got from us, in order
        self.nodes: list[Life] = []
        self.dice = self._chance = Dice(1)
        self._ours: dict[Hash, str] = {}  # the label of everything we ever sent
        self._tolerated: set[str] = set()
        self._tasks: list[asyncio.Task[Any]] = []
        self._ids = SimEntropy(random.Random("ids"))
        balances = {lane.address: setting.balance for lane in setting.lanes}
        self.chains = {
            chain_id: SimChain(self._terrain(chain_id), loop, self._chance, balances, self)
            for chain_id in setting.chain_ids
        }
        self._voices = {
            chain_id: [Voice(endpoint, chain) for endpoint in chain.endpoints]
            for chain_id, chain in self.chains.items()
        }
        self.signers = {lane: SimSigner(lane.address) for lane in setting.lanes}

    def _terrain(self, chain_id: int) -> Terrain:
        return Terrain(
            chain_id=chain_id,
            block_time=4.0,
            finality_lag=self.setting.finality_lag,
            base_fee=self.setting.base_fee,
            flavours=self.setting.flavours,
            legacy=self.setting.legacy,
            account_limit=self.setting.account_limit,
            data_price=self.setting.data_price,
            gossip=0.0,
        )

    # parts

    @property
    def chain(self) -> SimChain:
        return self.chains[CHAIN]

    @property
    def endpoints(self) -> Sequence[Voice]:
        return self._voices[CHAIN]

    @property
    def endpoints_abroad(self) -> Sequence[Voice]:
        return self._voices[OTHER_CHAIN]

    @property
    def node(self) -> Life:
        """The youngest one."""
        return self.nodes[-1]

    @property
    def signer(self) -> SimSigner:
        return self.signers[ALICE]

    # nodes of ours

    async def start_node(self) -> Life:
        name = f"n{len(self.nodes) + 1}"
        token = whose.set(name)
        gate = Gate(name, self.loop, self._chance)
        clock = NodeClock(self.loop, gate, self.clock.now, 1000.0 * (len(self.nodes) + 1))
        store = gated_store(self.store, gate, self.loop, self._chance)
        entropy = SimEntropy(random.Random(name))
        engine = Engine(
            store=store,
            chains={
                chain_id: HeardChain(chain, self._voices[chain_id], gate) for chain_id, chain in self.chains.items()
            },
            signers={lane: gated_signer(signer, gate) for lane, signer in self.signers.items()},
            rules=self.setting.rules(),
            clock=clock,
            entropy=entropy,
            adviser=None if self.setting.hook is None else self._adviser(self.setting.hook),
        )
        fed, bell = Doorbell(gate, self.loop, self._chance), Doorbell(gate, self.loop, self._chance)
        fed.ring, bell.ring = engine.feed, engine.poke
        limits = dict.fromkeys(self.setting.lanes, self.setting.queue_limit)
        intake = Intake(store, clock, limits=limits, arrived=fed, offer=engine.offer)
        life = Life(name, gate, clock, engine, store, intake, Asking(store, clock, entropy, arrived=bell))
        self.nodes.append(life)
        await engine.start()
        whose.reset(token)
        return life

    def _adviser(self, hook: Hook) -> Adviser:
        def check(_lane: LaneKey, fees: Fees) -> None:
            if not is_within_caps(fees, self.setting.fees):
                raise FeeAboveCap("above the cap")

        return Adviser(
            hook, in_place, parse=lambda _lane, given: (self.payload(str(given["label"])), None), check=check
        )

    def kill(self, node: Life) -> None:
        """As `kill -9`: nothing of it runs any more, no clean-up either."""
        node.gate.kill()

    def kill_at(self, node: Life, step: str, side: Boundary = Boundary.BEFORE) -> None:
        """Kill it when it next does this (`store.commit`, `node.send`, `signer.sign`)."""
        node.gate.lay(Ambush(step, side, 0, node.gate.kill))

    def freeze_at(self, node: Life, step: str, seconds: float, side: Boundary = Boundary.BEFORE) -> None:
        """It stands still when it next does this, and then goes on as if nothing had been."""
        node.gate.lay(Ambush(step, side, 0, lambda: node.gate.pause(seconds)))

    def spoil_store(self, node: Life, ailment: StoreAilment, odds: float = 1.0) -> None:
        node.gate.store_troubles.lay(Trouble(ailment, FOR_EVER, odds, lambda: None))

    def lose_wake_ups(self, node: Life) -> None:
        node.gate.wake_troubles.lay(Trouble(Kind.WAKE_LOST, FOR_EVER, 1.0, lambda: None))

    async def stop(self, node: Life) -> None:
        """As SIGTERM."""
        await node.intake.close()
        await node.engine.stop()
        node.gate.kill()

    async def restore_store(self, copy: bytes) -> None:
        """Every node dies, an older copy of the database is put in place, and one node starts on it."""
        for node in self.nodes:
            node.gate.kill()
        self.put_back(copy)
        await self.start_node()

    # time

    async def advance(self, seconds: float) -> None:
        await self.loop.sleep(seconds)

    async def mine(self, blocks: int = 1, *, empty: bool = False, chain: SimChain | None = None) -> None:
        """Blocks, each seen and digested by everyone before the next."""
        for _ in range(blocks):
            (chain or self.chain).mine(empty=empty)
            await self.advance(BLOCK_SECONDS)

    async def finalise(self, *, empty: bool = False) -> None:
        """What is at the head now becomes final."""
        await self.mine(self.setting.finality_lag, empty=empty)

    async def ends(self, tx: Transaction) -> Transaction:
        """The transaction once the chain has had its say, at finality."""
        await self.mine()
        await self.finalise()
        deadline = self.loop.time() + 10.0
        while (ended := await self.read(tx)).live:
            assert self.loop.time() < deadline, f"{ended.state} at finality: {ended}"
            await self.advance(0.1)
        return ended

    async def reorg(self, depth: int, *, keep: bool = False, forget: bool = True) -> None:
        """The last blocks give way to one more than they were, with (or without) what they had executed."""
        self.chain.reorg(depth, keep=1.0 if keep else 0.0, forget=forget)
        await self.advance(BLOCK_SECONDS)

    async def reset_chain(self, blocks: int = 1) -> None:
        """The chain begins anew, and its nodes know nothing of what was: as when a dev chain is started again."""
        first = self.chain.head.at(0)
        assert first is not None
        self.chain.head = self.chain.final = first
        for endpoint in self.chain.endpoints:
            endpoint.head = endpoint.final = first
            endpoint._blocks = {first.hash: first}
            endpoint.pool.clear()
        await self.mine(blocks)

    async def reaches(self, tx: Transaction, state: State, seconds: float = 30.0) -> Transaction:
        """The transaction, once it is in this state. When it is sent, every endpoint that answers has answered."""
        deadline = self.loop.time() + seconds
        while (now := await self.read(tx)).state is not state:
            assert self.loop.time() < deadline, f"{now.state}, not {state}, after {seconds} s: {now}"
            await self.advance(0.1)
        if state is State.SENT:
            await self.advance(0.5)
        return await self.read(tx)

    async def tells(self, tx: Transaction, kind: str, seconds: float = 30.0) -> Transaction:
        """The transaction, once its history has such an event."""
        deadline = self.loop.time() + seconds
        while kind not in (history := await self.history(tx)):
            assert self.loop.time() < deadline, f"no {kind} after {seconds} s: {history}"
            await self.advance(0.1)
        return await self.read(tx)

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = self.loop.create_task(work)
        self._tasks.append(task)
        return task

    # what people ask for

    @property
    def asking(self) -> Asking:
        """Any node's side of wishes; here the youngest one's."""
        return Asking(self.store, self.clock, self._ids, arrived=self.node.engine.poke)

    @staticmethod
    def payload(label: str, effect: Effect = Effect.RUNS, after: str = "", **fields: Any) -> Payload:
        return Payload(**{"to": RECIPIENT, "data": Order(label, effect, after).data()} | fields)

    def request(
        self,
        label: str,
        lane: LaneKey = ALICE,
        *,
        effect: Effect = Effect.RUNS,
        after: str = "",
        key: str | None = None,
        fees: Speed | Fees = Speed.STANDARD,
        priority: int = 5,
        simulate: bool = False,
        valid_for: float | None = None,
        confirmations: int | None = None,
        on_superseded: OnSuperseded | None = None,
        asked_nonce: int | None = None,
        **payload: Any,
    ) -> Request:
        wanted = self.payload(label, effect, after, **payload)
        return Request(
            id=self._ids.token(),
            lane=lane,
            payload=wanted,
            fees=fees,
            priority=priority,
            simulate=simulate,
            confirmations=confirmations,
            on_superseded=on_superseded,
            asked_nonce=asked_nonce,
            idempotency_key=key,
            body_hash=hashlib.sha256(repr((lane, wanted, fees)).encode()).hexdigest(),
            valid_until=None if valid_for is None else self.clock.now() + round(valid_for * 1000),
        )

    async def submit(self, label: str, lane: LaneKey = ALICE, *, via: Life | None = None, **wish: Any) -> Transaction:
        tx, _ = await (via or self.node).intake.submit(self.request(label, lane, **wish))
        return tx

    async def submit_all(self, labels: Iterable[str], lane: LaneKey = ALICE, **wish: Any) -> list[Transaction]:
        """Together, in this order: they share a commit."""
        return list(await asyncio.gather(*(self.submit(label, lane, **wish) for label in labels)))

    # what is true

    def account(self, lane: LaneKey = ALICE) -> Account:
        return self.chains[lane.chain_id].head.ledger.account(lane.address)

    def executions(self, label: str) -> int:
        """How often the canonical chain executed something of ours with this label."""
        return len([tx for tx in self._executed() if tx.order.label == label and tx.hash in self._ours])

    def order_of_execution(self, lane: LaneKey = ALICE) -> list[str]:
        """Labels of what the account executed, ours or not, by nonce; a filler has none."""
        mine = [tx for tx in self._executed() if (tx.chain_id, tx.sender) == lane]
        return [tx.order.label for tx in sorted(mine, key=lambda tx: tx.nonce)]

    def _executed(self) -> Iterable[SimTx]:
        return (tx for chain in self.chains.values() for block in chain.head.down() for tx in block.transactions)

    def sent(self, label: str) -> list[SimTx]:
        """What arrived at nodes of the chain under this label, in order, once for each endpoint and each time."""
        return [tx for _, tx, _ in self.arrivals if tx.order.label == label]

    # others

    def intrude(self, lane: LaneKey = ALICE) -> None:
        """Somebody else with the key uses the next nonce in the next block."""
        self.chains[lane.chain_id].intrude(lane.address)

    def intrude_as(self, tx: SimTx, *, price: Wei = 400 * GWEI) -> None:
        """Somebody else with the key did the very same at the same nonce, dearer: all pools take that instead."""
        twin = replace(tx, hash="0x" + hashlib.sha256(b"twin" + tx.hash.encode()).hexdigest(), max_fee=price, tip=price)
        for voice in self.endpoints:
            voice.endpoint.hear(twin)
            assert voice.endpoint.pool.holds(twin.hash)

    def authorise(self, lane: LaneKey = ALICE) -> None:
        """The key signed an authorisation, and somebody's transaction carries it in the next block."""
        self.chains[lane.chain_id].happen(Happening(Deed.AUTHORISED, lane.address))

    def delegate(self, lane: LaneKey = ALICE) -> None:
        """The same, and it gives the account code: most pools hold one transaction of it from then on."""
        self.chains[lane.chain_id].happen(Happening(Deed.DELEGATED, lane.address))

    def drain(self, lane: LaneKey = ALICE, leave: Wei = 0) -> Wei:
        return self.chains[lane.chain_id].drain(lane.address, leave)

    def fund(self, amount: Wei, lane: LaneKey = ALICE) -> None:
        self.chains[lane.chain_id].happen(Happening(Deed.FUNDED, lane.address, amount))

    # what the rig watches by itself (`sim.chain.Observer`)

    def arrived(self, endpoint: SimEndpoint, tx: SimTx, verdict: No | None) -> None:
        self.arrivals.append((endpoint.name, tx, verdict))
        self._ours[tx.hash] = tx.order.label
        known = self.database.execute("SELECT 1 FROM attempts WHERE hash = ?", [tx.hash]).fetchone()
        if known is None and not self.lost_commits:
            self.broken.append(f"P4: {endpoint.name} got bytes that the store does not know: {tx}")

    def grown(self, head: SimBlock, dropped: Sequence[SimBlock]) -> None:
        ran = Counter(
            (tx.chain_id, self._ours[tx.hash])
            for block in head.down()
            for tx in block.transactions
            if self._ours.get(tx.hash)
        )
        self.broken += [f"P3: {label} ran {times} times" for (_, label), times in ran.items() if times > 1]

    def tolerate(self, event: str) -> None:
        """This error is what the test is about: logging it is right."""
        self._tolerated.add(event)

    def broke(self, what: str) -> None:
        if not what.startswith(tuple(self._tolerated)):
            self.broken.append(what)

    def unhandled(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.broken.append(f"unhandled: {context.get('message')}: {context.get('exception')!r}")


Test = Callable[..., Coroutine[Any, Any, None]]


def staged(**settings: Any) -> Callable[[Test], Callable[..., None]]:
    """Run the test inside a rig of its own, in virtual time; `settings` are fields of `Setting`."""

    def decorate(test: Test) -> Callable[..., None]:
        @functools.wraps(test)
        def run(**fixtures: Any) -> None:
            with listening() as journal, forgetting():
                _live(lambda rig: test(rig, **fixtures), Setting(**settings), journal)

        signature = inspect.signature(test)
        others = [parameter for name, parameter in signature.parameters.items() if name != "rig"]
        run.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
        return run

    return decorate


def _live(test: Callable[[Rig], Coroutine[Any, Any, None]], setting: Setting, journal: Journal) -> None:
    loop = SimLoop(random.Random(1))
    trace = Trace(loop, keep=None)
    rig = Rig(setting, loop, trace)

    async def main() -> None:
        loop.set_exception_handler(rig.unhandled)
        for _ in range(setting.nodes):
            await rig.start_node()
        await rig.advance(2.0)  # they have seen the chain
        await test(rig)

    journal.open(trace, rig.broke)
    try:
        loop.run(main())
        assert rig.broken == []
    except BaseException:
        print(*trace.lines, sep="\n")
        raise
    finally:
        journal.close()
        rig.database.close()


def unreachable() -> Unreachable:
    return Unreachable("no answer came")


def refused(message: str, code: int | None = -32000) -> NodeRefused:
    return NodeRefused(message, code)
