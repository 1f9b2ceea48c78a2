"""The gates and the faults do what they say: a fault that does nothing would make every test pass."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from contextlib import suppress

import pytest

from nonchalant.errors import CommitUnknown, NonchalantError, StoreUnavailable
from nonchalant.sim.chain import SimChain
from nonchalant.sim.endpoint import LIES_ABOUT_ACCOUNTS
from nonchalant.sim.faults import Faults
from nonchalant.sim.gate import Ambush, Boundary, Gate, StoreAilment, gated_store
from nonchalant.sim.harms import LASTING
from nonchalant.sim.loop import SimLoop
from nonchalant.sim.schedule import Fault, Kind, draw
from nonchalant.sim.trace import Trace
from nonchalant.sim.trouble import Trouble
from nonchalant.sim.wire import SimSigner
from nonchalant.sim.world import World
from nonchalant.words import LaneKey
from tests.sim.realm import ALICE, BOB, SmallRealm, sealed


class Deeds:
    """Stands behind a gate as a store whose one write is `declare`."""

    def __init__(self, loop: SimLoop) -> None:
        self.done: list[float] = []
        self._loop = loop

    async def declare(self, lanes: Sequence[LaneKey]) -> None:
        self.done.append(self._loop.time())

    async def incarnation(self) -> int:
        return len(self.done)


class Behind:
    """One node's gate with a store behind it."""

    def __init__(self) -> None:
        self.realm = SmallRealm()
        self.loop = self.realm.loop
        self.gate = Gate("node-1", self.loop, random.Random(1))
        self.deeds = Deeds(self.loop)
        self.store = gated_store(self.deeds, self.gate, self.loop, random.Random(1))  # type: ignore[arg-type]

    def trouble(self, ailment: StoreAilment) -> None:
        self.gate.store_troubles.lay(Trouble(ailment, 1e9, 1.0, lambda: None))


def test_every_step_takes_a_while() -> None:
    node = Behind()
    node.realm.run(node.store.declare([]))
    assert 0 < node.deeds.done[0] < 0.01


@pytest.mark.parametrize(("side", "done"), [(Boundary.BEFORE, 0), (Boundary.AFTER, 1)])
def test_a_dead_node_neither_acts_nor_hears_nor_cleans_up(side: Boundary, done: int) -> None:
    node = Behind()
    cleaned: list[str] = []

    async def work() -> None:
        try:
            await node.store.declare([])
        finally:
            cleaned.append("up")

    async def main() -> None:
        node.gate.lay(Ambush("store.declare", side, 0, node.gate.kill))
        task = node.loop.create_task(work())
        await asyncio.wait([task], timeout=1000.0)
        assert not task.done()
        assert node.gate.died.done()
        assert (len(node.deeds.done), cleaned) == (done, [])

    node.realm.run(main())


def test_an_ambush_lets_pass_whom_it_does_not_wait_for() -> None:
    node = Behind()

    async def main() -> None:
        node.gate.lay(Ambush("store.declare", Boundary.BEFORE, 2, node.gate.kill))
        for _ in range(2):
            await node.store.incarnation()
            await node.store.declare([])
        assert not node.gate.dead
        node.loop.create_task(node.store.declare([]))
        await node.gate.died

    node.realm.run(main())


def test_a_paused_node_does_late_what_it_was_about_to_do() -> None:
    node = Behind()

    async def main() -> None:
        node.gate.lay(Ambush("store.declare", Boundary.BEFORE, 0, lambda: node.gate.pause(45.0)))
        await node.store.declare([])
        assert 45.0 < node.deeds.done[0] < 45.1

    node.realm.run(main())


@pytest.mark.parametrize(
    ("ailment", "error", "at_once", "in_the_end"),
    [
        (StoreAilment.REFUSED, StoreUnavailable, 0, 0),
        (StoreAilment.DONE_UNSAID, CommitUnknown, 1, 1),
        (StoreAilment.LOST_UNSAID, CommitUnknown, 0, 0),
        (StoreAilment.DONE_LATE, CommitUnknown, 0, 1),
    ],
)
def test_a_store_may_fail_before_after_and_instead_of_a_commit(
    ailment: StoreAilment, error: type[Exception], at_once: int, in_the_end: int
) -> None:
    node = Behind()

    async def main() -> None:
        node.trouble(ailment)
        with pytest.raises(error):
            await node.store.declare([])
        assert len(node.deeds.done) == at_once
        await node.loop.sleep(20.0)
        assert len(node.deeds.done) == in_the_end

    node.realm.run(main())


def test_a_read_is_never_of_unknown_outcome() -> None:
    node = Behind()

    async def main() -> None:
        node.trouble(StoreAilment.DONE_UNSAID)
        assert await node.store.incarnation() == 0

    node.realm.run(main())


class Whole:
    """The least that faults can be done to."""

    def __init__(self) -> None:
        self.lease_ttl = 15.0
        self.small = SmallRealm()
        self.chains: Sequence[SimChain] = [self.small.chain]
        self.signers: Sequence[SimSigner] = [SimSigner(ALICE), SimSigner(BOB)]
        self.lanes: Sequence[LaneKey] = [LaneKey(7, ALICE), LaneKey(7, BOB)]
        self.gate = Gate("node-1", self.small.loop, random.Random(2))
        self.skewed = 0.0
        self.restored = 0
        self.keyless: list[LaneKey] = []
        self.trace = Trace(self.small.loop)
        self.faults = Faults(self, self.small.loop, random.Random(3), self.trace)

    def gates(self) -> Sequence[Gate]:
        return [] if self.gate.dead else [self.gate]

    def skew(self, gate: Gate, seconds: float) -> None:
        self.skewed = seconds

    def stop_node(self, gate: Gate) -> None:
        gate.kill()

    def take_key(self, gate: Gate, lane: LaneKey) -> bool:
        self.keyless.append(lane)
        return True

    def restore_store(self, much: float) -> bool:
        self.restored += 1
        return True


@pytest.mark.parametrize("kind", Kind)
def test_every_kind_of_fault_strikes_a_world_that_works(kind: Kind) -> None:
    whole = Whole()
    chain, loop = whole.small.chain, whole.small.loop
    deeds, genesis = Deeds(loop), chain.head.ref
    store = gated_store(deeds, whole.gate, loop, random.Random(1))  # type: ignore[arg-type]

    async def use() -> None:
        for nonce in range(40):
            with suppress(NonchalantError):
                await store.declare([])
            for endpoint in chain.endpoints:
                await endpoint.send([sealed(nonce).raw, sealed(nonce + 3).raw])  # the second behind a gap
                for question in (
                    endpoint.view(),
                    endpoint.account(ALICE, endpoint.head.ref),
                    endpoint.block(0),
                    endpoint.receipts(genesis, []),
                ):
                    with suppress(NonchalantError):
                        await question
            whole.gate.wake_troubles.strike(loop.time(), (Kind.WAKE_LOST, Kind.WAKE_DELAYED))
            await loop.sleep(0.4)

    async def main() -> None:
        chain.start()
        task = loop.create_task(use())
        for who in range(24):
            whole.faults.inject(Fault(0.0, kind, 30.0, who, who / 24))
            await loop.sleep(1.0)
        await asyncio.wait([task], timeout=500.0)
        whole.faults.stop()

    whole.small.run(main())
    assert whole.faults.struck[kind] > 0
    assert set(whole.faults.struck) == {kind}
    assert any(str(kind) in line for line in whole.trace.lines)


def test_after_the_faults_stop_nothing_is_wrong_any_more() -> None:
    whole = Whole()
    chain, loop = whole.small.chain, whole.small.loop

    async def main() -> None:
        chain.start()
        whole.faults.start(draw(random.Random(4), 300.0))
        await loop.sleep(300.0)
        whole.faults.stop()
        struck = sum(whole.faults.struck.values())
        await loop.sleep(30.0)
        for endpoint in chain.endpoints:
            if endpoint.troubles.strike(loop.time(), LASTING):
                continue  # but for one that stays sick
            assert (await endpoint.view()).head.number >= chain.head.number - 1
            assert endpoint.head.at(chain.head.number - 1) is chain.head.parent
        assert chain.final.number >= chain.head.number - 5
        assert chain.head.ledger.account(ALICE).balance > 10**17
        await loop.sleep(300.0)
        assert sum(whole.faults.struck.values()) == struck

    whole.small.run(main())


def test_a_schedule_has_enough_of_enough_kinds_and_is_the_seed_s_own() -> None:
    schedules = [draw(random.Random(seed), 600.0) for seed in range(300)]
    assert all(len(schedule) >= 15 and len({fault.kind for fault in schedule}) >= 5 for schedule in schedules)
    assert {fault.kind for schedule in schedules for fault in schedule} == set(Kind)
    assert draw(random.Random(7), 600.0) == schedules[7]


def test_what_stays_sick_is_one_endpoint_and_the_end_of_faults_does_not_heal_it() -> None:
    whole = Whole()
    for who in range(40):
        whole.faults.inject(Fault(0.0, Kind.COUNT_HIGH, 30.0, who, 0.5))
        whole.faults.inject(Fault(0.0, Kind.STAYS_SICK, 0.0, 1, 0.5))
    whole.faults.stop()
    sick = [endpoint.troubles.strike(1e6, LASTING) is not None for endpoint in whole.small.chain.endpoints]
    assert sick == [False, True, False]
    assert not whole.small.chain.endpoints[1].troubles.strike(1e6, LIES_ABOUT_ACCOUNTS), "another one lied already"


def test_a_world_takes_a_key_only_while_another_node_has_it() -> None:
    world = World(3)
    lane = world.lanes[0]
    gates = [Gate(f"n{number}.1", world.loop, random.Random(1)) for number in range(len(world.gates()) or 3)]
    world.stop_node = lambda _gate: None  # type: ignore[method-assign]
    taken = [world.take_key(gate, lane) for gate in gates]
    assert taken[:2] == [True, True]
    assert world.take_key(gates[0], lane) is False
    assert not all(lane in lacking for lacking in world._keyless.values())


def test_no_two_endpoints_lie_at_once() -> None:
    whole = Whole()
    for who in (0, 1, 2):
        whole.faults.inject(Fault(0.0, Kind.FINALIZED_LIE, 30.0, who, 0.5))

    async def main() -> None:
        await whole.small.settle(6)
        views = [await endpoint.view() for endpoint in whole.small.chain.endpoints]
        final = whole.small.chain.final.ref
        assert sum(view.finalized != final for view in views) == 1

    whole.small.run(main())
