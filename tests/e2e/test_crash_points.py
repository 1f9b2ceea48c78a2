"""`kill -9` at every numbered crash point: what was acknowledged settles exactly once, counted on the chain."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from nonchalant.ports import Endpoint, Signer, Store
from nonchalant.testing.crashpoints import Point, calls_of
from tests.e2e.crashes import Story, occurrences, survive
from tests.postgres import Cluster

# The calls that a node makes in each story, and how many of their first occurrences are points of their own.
POINTS = {
    Story.SENDING: {
        "store.declare": 1,
        "store.heartbeat": 1,
        "store.lanes_with_work": 2,
        "store.orders": 1,
        "store.overdue": 1,
        "store.forget_replies": 1,
        "store.forget_settled": 1,
        "store.last_position": 1,
        "store.events_after": 1,
        "store.accept": 1,
        "store.acquire": 2,
        "store.load": 2,
        "store.incarnation": 1,
        "store.queued": 3,
        "store.commit": 12,
        "store.renew": 1,
        "store.release": 1,
        "store.close": 1,
        "endpoint.view": 2,
        "endpoint.block": 2,
        "endpoint.account": 3,
        "endpoint.market": 2,
        "endpoint.estimate": 2,
        "endpoint.send": 4,
        "endpoint.receipts": 2,
        "signer.sign": 4,
    },
    Story.TAKING_OVER: {
        "store.acquire": 1,
        "store.load": 1,
        "endpoint.find": 1,
        "endpoint.send": 2,
        "store.commit": 6,
    },
    Story.SUPERSEDED: {"endpoint.executed": 1, "store.commit": 8, "endpoint.send": 3},
    Story.RECONCILING: {"store.known_attempts": 1, "store.commit": 8, "endpoint.send": 2},
    Story.JUDGING: {"store.has_queued_before": 1},
}

# What people ask and want, which the stages never do: there the caller dies, and the owner's part is a commit.
QUESTIONS = (
    *("transaction", "transactions", "attempts", "history", "lane", "lanes", "lane_history", "standings", "reply"),
    *("event_range", "tenants", "numbering", "overview", "key", "keys", "live_keys", "audit_after", "audit_head"),
)
WANTS = ("accept_together", "alter_queued", "control", "wish", "withdraw", "add_key", "revoke_key", "note")
ASKED_BY_PEOPLE = {f"store.{call}" for call in (*QUESTIONS, *WANTS)} | {"endpoint.rpc"}

# Calls that no story here makes: shared accounts, chains that charge for data, a chain that broke its word, the question
# why something reverted, whose answer is only told, what an attention hook is asked about, who may have run already in a
# restored store, and whose the nonces were that are final and have no slot.
IN_NO_STORY = {
    "endpoint.pending",
    "endpoint.data_fees",
    "endpoint.replay",
    "store.bound",
    "store.halt",
    "store.marked",
    "store.twin_of",
}

# Points of one test, survived at once: most of the time is spent waiting for a dead node's lease to run out.
AT_ONCE = 3

CASES = [
    pytest.param(story, call, first, min(first + AT_ONCE - 1, times), id=f"{story.name.lower()}-{call}-{first}")
    for story, calls in POINTS.items()
    for call, times in calls.items()
    for first in range(1, times + 1, AT_ONCE)
]

# On PostgreSQL more of them at once, from whatever calls: there is one server for all.
AT_ONCE_ON_POSTGRES = 10

EVERY_POINT = {
    story: [text for call, times in calls.items() for text in occurrences(call, 1, times)]
    for story, calls in POINTS.items()
}
TOGETHER = [
    pytest.param(story, texts[first : first + AT_ONCE_ON_POSTGRES], id=f"{story.name.lower()}-{texts[first]}")
    for story, texts in EVERY_POINT.items()
    for first in range(0, len(texts), AT_ONCE_ON_POSTGRES)
]


# A hang, not a busy machine: each wait within has a deadline of its own, and says what it waited for.
LONGEST_SECONDS = 900


def test_every_call_of_a_port_is_a_crash_point() -> None:
    ports = {"store": Store, "endpoint": Endpoint, "signer": Signer}
    calls = {f"{name}.{call}" for name, port in ports.items() for call in calls_of(port)}
    covered = {call for calls in POINTS.values() for call in calls}
    assert calls == covered | ASKED_BY_PEOPLE | IN_NO_STORY


@pytest.mark.timeout(LONGEST_SECONDS)
@pytest.mark.parametrize(("story", "call", "first", "last"), CASES)
async def test_a_node_killed_anywhere_leaves_nothing_lost_and_nothing_twice(
    story: Story, call: str, first: int, last: int, tmp_path: Path
) -> None:
    async with asyncio.TaskGroup() as group:
        for text in occurrences(call, first, last):
            group.create_task(survive(tmp_path / text.replace(":", "-"), story, Point.parse(text)))


@pytest.mark.timeout(LONGEST_SECONDS)
@pytest.mark.parametrize(("story", "points"), TOGETHER)
async def test_so_does_one_on_postgres(story: Story, points: Sequence[str], tmp_path: Path, postgres: Cluster) -> None:
    async with asyncio.TaskGroup() as group:
        for text in points:
            group.create_task(survive(tmp_path / text.replace(":", "-"), story, Point.parse(text), server=postgres))
