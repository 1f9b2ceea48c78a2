"""Which lanes a node takes: live nodes share the lanes that have work."""

from typing import cast

from nonchalant.cluster import Cluster
from nonchalant.model import LaneKey, Lease
from nonchalant.ports import Clock, LaneWork, Store

LANES = [LaneKey(31337, f"0x{number:040x}") for number in range(4)]


def a_node(*held: LaneKey, live_nodes: int = 1) -> Cluster:
    node = Cluster(cast("Store", None), cast("Clock", None), owner="me", ttl=10, lanes=LANES)
    node.leases = {lane: Lease(lane, "me", 1, 0.0) for lane in held}
    node._live_nodes = live_nodes
    return node


def with_work(*lanes: LaneKey, held: tuple[LaneKey, ...] = ()) -> list[LaneWork]:
    return [LaneWork(lane, "me" if lane in held else None) for lane in lanes]


def test_a_node_alone_takes_every_lane_with_work() -> None:
    assert a_node().to_take(with_work(*LANES)) == LANES


def test_two_nodes_take_half_each() -> None:
    assert a_node(live_nodes=2).to_take(with_work(*LANES)) == LANES[:2]


def test_what_is_held_counts_for_the_share() -> None:
    node = a_node(LANES[0], live_nodes=2)
    assert node.to_take(with_work(*LANES, held=(LANES[0],))) == [LANES[1]]


def test_a_lane_without_work_that_is_still_held_keeps_nobody_waiting() -> None:
    node = a_node(LANES[0])
    assert node.to_take(with_work(LANES[1])) == [LANES[1]]
