"""Which lanes a node takes: live nodes share the lanes that have work."""

from math import inf
from typing import cast

from nonchalant.cluster import CROWDED_SECONDS, LAPSED_SECONDS, PATIENT_SECONDS, Cluster
from nonchalant.engine import EngineRules
from nonchalant.model import Lease
from nonchalant.ports import LaneWork, Store
from nonchalant.words import LaneKey, State
from tests.stages.rig import ALICE, BOB, CHAIN, Rig, staged
from tests.store.acts import ManualClock

SWEEP_SECONDS = EngineRules().sweep_seconds

LANES = [LaneKey(31337, f"0x{number:040x}") for number in range(4)]


def a_node(*held: LaneKey, live_nodes: int = 1, clock: ManualClock | None = None) -> Cluster:
    node = Cluster(cast("Store", None), clock or ManualClock(), owner="me", ttl=10, lanes=LANES)
    node.leases = {lane: Lease(lane, "me", 1, 0.0) for lane in held}
    node._live_nodes = live_nodes
    return node


def in_a_crowd(node: Cluster, clock: ManualClock, work: list[LaneWork]) -> list[LaneKey]:
    """What it hands over once it has been crowded for long enough, however often it looks meanwhile."""
    for seconds in (0.0, 0.0, CROWDED_SECONDS - 0.1):
        clock.pass_seconds(seconds)
        assert node.to_hand_over(work) == []
    clock.pass_seconds(0.1)
    return node.to_hand_over(work)


def with_work(*lanes: LaneKey, held: tuple[LaneKey, ...] = ()) -> list[LaneWork]:
    return [LaneWork(lane, "me" if lane in held else None) for lane in lanes]


def test_a_node_alone_takes_every_lane_with_work() -> None:
    assert sorted(a_node().to_take(with_work(*LANES))) == LANES


def test_two_nodes_take_half_each() -> None:
    assert len(a_node(live_nodes=2).to_take(with_work(*LANES))) == 2


def test_what_is_held_counts_for_the_share() -> None:
    node = a_node(LANES[0], live_nodes=2)
    [taken] = node.to_take(with_work(*LANES, held=(LANES[0],)))
    assert taken in LANES[1:]


def test_a_lane_without_work_that_is_still_held_keeps_nobody_waiting() -> None:
    node = a_node(LANES[0])
    assert node.to_take(with_work(LANES[1])) == [LANES[1]]


def test_what_a_dead_node_had_is_left_to_others_for_a_moment_only() -> None:
    """Whose share it is may be dead too, and is counted until its own leases lapse."""
    clock = ManualClock()
    node = a_node(*LANES[:2], live_nodes=2, clock=clock)
    work = [*with_work(*LANES[:2], held=tuple(LANES[:2])), LaneWork(LANES[2], None, -0.1), LaneWork(LANES[3], None)]
    assert node.to_take(work) == []
    assert LAPSED_SECONDS < node.next_look(work) < 2 * LAPSED_SECONDS
    clock.pass_seconds(LAPSED_SECONDS)
    assert node.to_take(work) == [LANES[2]]
    clock.pass_seconds(PATIENT_SECONDS - LAPSED_SECONDS)
    assert set(node.to_take(work)) == {LANES[2], LANES[3]}


def test_what_a_dead_node_had_is_handed_over_again_if_somebody_lacks_it() -> None:
    clock = ManualClock()
    node = a_node(*LANES[:2], live_nodes=2, clock=clock)
    work = [*with_work(*LANES[:2], held=tuple(LANES[:2])), LaneWork(LANES[2], None, -0.1), LaneWork(LANES[3], "other")]
    assert node.to_take(work) == []
    clock.pass_seconds(LAPSED_SECONDS)
    assert node.to_take(work) == [LANES[2]]
    node.leases[LANES[2]] = Lease(LANES[2], "me", 2, 0.0)
    assert in_a_crowd(node, clock, [*with_work(*LANES[:3], held=tuple(LANES[:3])), work[3]]) == [LANES[2]]


def test_the_next_look_is_when_anothers_lease_ends() -> None:
    node = a_node(LANES[0], live_nodes=2)
    work = [LaneWork(LANES[0], "me", 0.1), LaneWork(LANES[1], "other", 7.5), LaneWork(LANES[2], "other", 0.3)]
    assert node.to_take(work) == []
    assert 0.3 < node.next_look(work) < 0.4
    assert node.next_look(work[:1]) == inf


def test_a_node_that_stays_alone_hands_nothing_over() -> None:
    clock = ManualClock()
    assert in_a_crowd(a_node(*LANES, clock=clock), clock, with_work(*LANES, held=tuple(LANES))) == []


def test_who_has_more_than_its_share_for_a_while_hands_over_a_little_at_a_time() -> None:
    clock = ManualClock()
    node = a_node(*LANES, live_nodes=2, clock=clock)
    assert in_a_crowd(node, clock, with_work(*LANES, held=tuple(LANES))) == [LANES[3]]
    del node.leases[LANES[3]]
    assert node.to_hand_over(with_work(*LANES, held=tuple(LANES[:3]))) == [LANES[2]]
    del node.leases[LANES[2]]
    assert node.to_hand_over(with_work(*LANES, held=tuple(LANES[:2]))) == []


def test_work_that_comes_and_goes_moves_nothing() -> None:
    clock = ManualClock()
    node, all_of_it = a_node(*LANES, live_nodes=2, clock=clock), with_work(*LANES, held=tuple(LANES))
    for work in (all_of_it, with_work(*LANES[:1], held=tuple(LANES[:1])), all_of_it):
        assert node.to_hand_over(work) == []
        clock.pass_seconds(CROWDED_SECONDS - 0.1)
    assert node.to_hand_over(all_of_it) == []


@staged(nodes=0)
async def test_what_nobody_else_takes_is_kept_until_nodes_come_or_go(rig: Rig) -> None:
    """Not every node has every key: a lane must not go to and fro."""
    clock = ManualClock()
    node = Cluster(rig.store, clock, owner="me", ttl=10, lanes=LANES)
    await rig.store.declare(LANES)
    await rig.store.heartbeat("other", 10)
    await node.beat()
    for lane in LANES:
        await node.take(lane)
    held = with_work(*LANES, held=tuple(LANES))
    free = [*held[:3], LaneWork(LANES[3], None)]
    assert in_a_crowd(node, clock, held) == [LANES[3]]
    await node.let_go(LANES[3])
    # A fair node would have taken it: it has less than its share.
    for seconds in (0.0, 0.0, PATIENT_SECONDS - 0.1):
        clock.pass_seconds(seconds)
        assert node.to_take(free) == []
    clock.pass_seconds(0.1)
    assert node.to_take(free) == [LANES[3]]
    await node.take(LANES[3])
    assert node.to_hand_over(held) == [LANES[2]]
    await rig.store.heartbeat("third", 10)
    await node.beat()
    assert node.to_hand_over(held) == [LANES[3]]


@staged()
async def test_a_node_that_joins_gets_its_share_and_nothing_under_way_is_dropped(rig: Rig) -> None:
    old = rig.node
    txs = [*await rig.submit_all(["a1", "a2"], ALICE), *await rig.submit_all(["b1", "b2"], BOB)]
    for tx in txs:
        await rig.reaches(tx, State.SENT)
    young = await rig.start_node()
    await rig.advance(20.0)
    owners = {(await rig.lane(lane)).owner for lane in (ALICE, BOB)}
    assert owners == {old.engine.cluster.owner, young.engine.cluster.owner}
    assert [await rig.state(tx) for tx in txs] == [State.SENT] * 4
    await rig.mine(2)
    await rig.finalise()
    assert [await rig.state(tx) for tx in txs] == [State.CONFIRMED] * 4
    assert [rig.executions(label) for label in ("a1", "a2", "b1", "b2")] == [1, 1, 1, 1]


@staged()
async def test_a_node_that_joins_gets_its_share_however_busy_the_others_are(rig: Rig) -> None:
    """Each request for a lane that nobody works has its node look for work: it must not take what it just gave away."""
    old = rig.node

    async def traffic() -> None:
        for number in range(400):
            for lane in (ALICE, BOB):
                await rig.submit(f"{lane.address[2:4]}-{number}", lane, via=old)
            await rig.advance(0.05)

    busy = rig.spawn(traffic())
    await rig.advance(2.0)
    young = await rig.start_node()
    await busy
    owners = {(await rig.lane(lane)).owner for lane in (ALICE, BOB)}
    assert owners == {old.engine.cluster.owner, young.engine.cluster.owner}


HOLDERS = tuple(LaneKey(CHAIN, f"0x{number:040x}") for number in range(1, 10))


async def busy_lanes(rig: Rig) -> None:
    for lane in HOLDERS:
        await rig.submit(lane.address, lane)
    await rig.advance(8.0)  # crowded nodes have handed over what they had too much of


async def holdings(rig: Rig) -> dict[str, set[LaneKey]]:
    """Which node has which lanes."""
    names = {node.engine.cluster.owner: node.name for node in rig.nodes}
    found: dict[str, set[LaneKey]] = {node.name: set() for node in rig.nodes}
    for lane in HOLDERS:
        owner = (await rig.lane(lane)).owner
        if owner is not None:
            found[names[owner]].add(lane)
    return found


async def until_taken(rig: Rig, lanes: set[LaneKey], dead: set[str]) -> float:
    """How long it takes until somebody who lives has all of these."""
    began = rig.loop.time()
    while lanes - set().union(*(held for name, held in (await holdings(rig)).items() if name not in dead)):
        assert rig.loop.time() < began + 60.0
        await rig.advance(0.01)
    return rig.loop.time() - began


@staged(nodes=3, lanes=HOLDERS)
async def test_a_dead_nodes_lanes_are_taken_as_soon_as_its_leases_lapse_and_shared_evenly(rig: Rig) -> None:
    await busy_lanes(rig)
    dead = rig.nodes[0]
    left = (await holdings(rig))[dead.name]
    assert len(left) == 3
    rig.kill(dead)
    took = await until_taken(rig, left, {dead.name})
    # Nobody's patience was needed: who lives knew of the death by then.
    assert took < rig.setting.lease_seconds + LAPSED_SECONDS
    await rig.advance(1.0)
    assert sorted(map(len, (await holdings(rig)).values())) == [0, 4, 5]


@staged(nodes=3, lanes=HOLDERS)
async def test_that_another_died_meanwhile_does_not_hold_them_up(rig: Rig) -> None:
    """The second is counted among the living until its own leases lapse, and a share is left to it."""
    await busy_lanes(rig)
    first, second, heir = rig.nodes
    had = await holdings(rig)
    rig.kill(first)
    await rig.advance(rig.setting.lease_seconds - 2.0)
    rig.kill(second)
    took = await until_taken(rig, had[first.name], {first.name, second.name})
    assert took <= 2.0 + SWEEP_SECONDS
    took += await until_taken(rig, had[second.name], {first.name, second.name})
    assert took <= rig.setting.lease_seconds + SWEEP_SECONDS
    assert (await holdings(rig))[heir.name] == set(HOLDERS)
