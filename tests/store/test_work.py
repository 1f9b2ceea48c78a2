"""Which lanes have work: whatever state they are in, the walk over indexes finds what reading every row would."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field

import pytest

from nonchalant.ports import Store
from nonchalant.words import LaneKey
from tests.store.acts import TTL, ManualClock, sql

SEEDS = 8
LANES = [LaneKey(chain_id, f"0x{number:040x}") for chain_id in (1, 9, 10, 2**40) for number in (0, 1, 9, 10, 2**159)]
STATES = ("queued", "signed", "sent", "mined", "confirmed", "reverted", "failed", "cancelled", "expired")
INCARNATION = 3


@dataclass
class State:
    """What a lane has, and so what it needs."""

    mode: str | None = None
    compared: bool = True  # with its chain, since the store last lost commits
    quarantined: bool = False
    unhealthy: bool = False
    bound: bool = False  # has a slot that is not final
    wished: bool = False
    queued: list[tuple[bool, bool]] = field(default_factory=list)  # held, marked

    def has_work(self, *, marked: bool) -> bool:
        if self.bound or self.wished or self.unhealthy:
            return True
        if self.mode in (None, "open") and any(not held for held, _ in self.queued):
            return True
        if self.queued and (self.quarantined or not self.compared):
            return True
        return marked and any(mark for _, mark in self.queued)


async def make(store: Store, lane: LaneKey, chance: random.Random) -> State:
    """A lane in any state that the schema allows. Most have little: it is the only thing that may find them."""
    made = State()

    def comes(likely: float = 0.15) -> bool:
        return chance.random() < likely

    key = (lane.chain_id, lane.address)
    if comes(0.4):
        made.mode = chance.choice(("open", "paused", "draining", "halted"))
        await sql(store, "INSERT INTO controls VALUES (?, ?, ?, '', 1)", *key, made.mode)
    made.compared, made.quarantined, made.unhealthy = not comes(), comes(), comes(0.1)
    await sql(
        store,
        "UPDATE lanes SET incarnation = ?, quarantined_below = ?, unhealthy = ? WHERE chain_id = ? AND address = ?",
        INCARNATION if made.compared else chance.randrange(INCARNATION),
        9 if made.quarantined else None,
        "{}" if made.unhealthy else None,
        *key,
    )
    for number in range(chance.choice((0, 0, 1, 1, 2, 6))):
        state = chance.choice(STATES) if comes(0.6) else "queued"
        held, marked = state == "queued" and comes(0.7), comes(0.3)
        if state == "queued":
            made.queued.append((held, marked))
        has_nonce = state in ("signed", "sent", "mined", "confirmed", "reverted")
        await sql(
            store,
            "INSERT INTO transactions (place, id, chain_id, address, state, held, priority, tenant, body_hash,"
            " payload, fees, nonce, hash, receipt, failure, attention, created_at, updated_at)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, '', '', '', '', ?, ?, ?, ?, ?, 1, 1)",
            LANES.index(lane) * 100 + number + 1,
            f"{lane} {number}",
            *key,
            state,
            held,
            chance.randrange(10),
            number if has_nonce else None,
            f"{lane} {number}" if has_nonce else None,
            "{}" if state in ("mined", "confirmed", "reverted") else None,
            "{}" if state == "failed" else None,
            json.dumps([]) if marked else None,
        )
    for nonce in range(chance.choice((0, 0, 0, 1, 3))):
        settled = comes(0.8)
        made.bound |= not settled
        await sql(
            store,
            "INSERT INTO slots (chain_id, address, nonce, kind, wanted, payload_version, settled, settled_at)"
            " VALUES (?, ?, ?, 'filler', 'nothing', 0, ?, ?)",
            *key,
            nonce,
            settled,
            1 if settled else None,
        )
    for number in range(chance.choice((0, 0, 0, 1, 2))):
        answered = comes(0.8)
        made.wished |= not answered
        await sql(
            store,
            "INSERT INTO wishes (id, chain_id, address, kind, body, made_at, reply) VALUES (?, ?, ?, 'sync', '', 1, ?)",
            f"{lane} {number}",
            *key,
            "{}" if answered else None,
        )
    return made


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_work_is_found_in_whatever_state_a_lane_is(store: Store, clock: ManualClock, seed: int) -> None:
    chance = random.Random(seed)
    declared = [lane for lane in LANES if chance.random() < 0.8]
    await store.declare(declared)
    await sql(store, "UPDATE meta SET incarnation = ?", INCARNATION)
    states = {lane: await make(store, lane, chance) for lane in declared}
    lapsed, held, released = (frozenset(chance.sample(declared, 4)) for _ in range(3))
    for lane in sorted(lapsed):
        await store.acquire(lane, "dead", TTL)
    clock.pass_seconds(TTL)
    for lane in sorted(held):
        await store.acquire(lane, "alive", TTL)
    for lane in sorted(released - held):
        await sql(
            store,
            "UPDATE leases SET owner = NULL, expires_at = 0 WHERE chain_id = ? AND address = ?",
            *lane,
        )
    for marked in (False, True):
        found = await store.lanes_with_work(marked=marked)
        assert [work.lane for work in found] == sorted(
            lane for lane, state in states.items() if state.has_work(marked=marked)
        )
        for work in found:
            assert work.owner == ("alive" if work.lane in held else None)
            assert work.lapsed == (work.lane in lapsed - held - released)
