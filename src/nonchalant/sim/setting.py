"""What kind of world a seed makes: its chains, its accounts, and the settings its nodes run with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nonchalant.desk import LaneRules
from nonchalant.engine import ChainRules, EngineRules
from nonchalant.fees import FeeRules
from nonchalant.policy import Patience
from nonchalant.sim.chain import Terrain
from nonchalant.sim.chance import Chance
from nonchalant.sim.endpoint import GWEI
from nonchalant.sim.pool import FLAVOURS
from nonchalant.sim.wire import GAS_CAP
from nonchalant.windows import Pace
from nonchalant.words import LaneKey, Millis, Speed

BEGAN: Millis = 1_700_000_000_000
LEASE_SECONDS = 10.0

# What is called final by depth must be deeper than any reorg, as endpoints with a branch of their own see it.
SAFE_DEPTH = 2


def millis(seconds: float) -> Millis:
    """The time by the clocks on the wall, so long after a history began."""
    return BEGAN + int(seconds * 1000)


def terrains(chance: Chance) -> dict[int, Terrain]:
    return {
        chain_id: Terrain(
            chain_id=chain_id,
            block_time=chance.uniform(2.5, 6.0),
            finality_lag=chance.choice([2, 3, 4, 6, 8, 12, 20, 30]),
            base_fee=chance.randint(5, 40) * GWEI,
            flavours=[chance.choice(FLAVOURS) for _ in range(3)],
            legacy=chance.random() < 0.2,
            tagged=chance.random() < 0.8,
            account_limit=chance.choice([4, 8, 16, 16]),
            gas_cap=GAS_CAP,
        )
        for chain_id in range(1, chance.choice([2, 2, 2, 3]))
    }


def lanes(chance: Chance, chain_ids: Sequence[int]) -> list[LaneKey]:
    least = 2 if len(chain_ids) == 1 else 1
    return [
        LaneKey(chain_id, "0x" + f"a{number}" * 20)
        for chain_id in chain_ids
        for number in range(1, 1 + least + (chance.random() < 0.3))
    ]


def rules(chance: Chance, lanes: Sequence[LaneKey], terrains: Mapping[int, Terrain]) -> EngineRules:
    windows = {lane: chance.choice([1, 3, 6, 12]) for lane in lanes}
    return EngineRules(
        lease_seconds=LEASE_SECONDS,
        sweep_seconds=chance.choice([1.0, 2.0]),
        drain_seconds=5.0,
        chains={chain_id: _chain_rules(chance, terrain) for chain_id, terrain in terrains.items()},
        lanes={lane: _lane_rules(chance, windows, lane, terrains[lane.chain_id]) for lane in lanes},
    )


def _chain_rules(chance: Chance, terrain: Terrain) -> ChainRules:
    depth = None if terrain.tagged else terrain.finality_lag + SAFE_DEPTH
    return ChainRules(depth=depth, poll_seconds=chance.choice([1.0, 2.0, 3.0, 4.0]))


def _lane_rules(chance: Chance, windows: Mapping[LaneKey, int], lane: LaneKey, terrain: Terrain) -> LaneRules:
    return LaneRules(
        window=windows[lane],
        shared=chance.random() < 0.15,
        pace=Pace.STRICT if chance.random() < 0.12 else Pace.PIPELINED,
        unsettled=chance.choice([8, 4096, 4096]),
        batch=chance.choice([2, 100]),
        largest_window=max(windows.values()),
        fees=FeeRules(max_fee=terrain.base_fee * 14),  # more than the dearest market asks
        patience=Patience(
            resend_after=chance.randint(4_000, 12_000),
            bump_after={Speed.SLOW: 40_000, Speed.STANDARD: 20_000, Speed.FAST: 10_000},
        ),
    )
