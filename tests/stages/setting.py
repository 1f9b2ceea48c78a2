"""What a test of the stages starts from: who there is, on which chain, under which rules."""

from __future__ import annotations

from dataclasses import dataclass, field

from nonchalant.desk import LaneRules
from nonchalant.engine import ChainRules, EngineRules
from nonchalant.fees import FeeRules
from nonchalant.health import HealthRules
from nonchalant.hooks import Hook
from nonchalant.policy import Patience
from nonchalant.sim.pool import GETH, Flavour
from nonchalant.windows import Pace
from nonchalant.words import Address, LaneKey, Wei

GWEI: Wei = 10**9
ETHER: Wei = 10**18
RECIPIENT: Address = "0x" + "b0" * 20
CHAIN, OTHER_CHAIN = 7, 8
ALICE, BOB = LaneKey(CHAIN, "0x" + "a1" * 20), LaneKey(CHAIN, "0x" + "a2" * 20)
ABROAD = LaneKey(OTHER_CHAIN, "0x" + "a1" * 20)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What a test starts from; it names only what it is about."""

    nodes: int = 1
    lanes: tuple[LaneKey, ...] = (ALICE, BOB)
    flavours: tuple[Flavour, ...] = (GETH, GETH, GETH)  # one an endpoint
    finality_lag: int = 4
    depth: int | None = None
    legacy: bool = False
    balance: Wei = 10 * ETHER
    base_fee: Wei = 20 * GWEI
    account_limit: int = 64
    data_price: Wei = 0  # that the chain charges a byte, beside gas
    queue_limit: int = 1000
    window: int = 16
    pace: Pace = Pace.PIPELINED
    shared: bool = False
    health: HealthRules = field(default_factory=HealthRules)
    largest_window: int = 16
    unsettled: int = 4096
    batch: int = 100
    fees: FeeRules = field(default_factory=FeeRules)
    patience: Patience = field(default_factory=Patience)
    lease_seconds: float = 10.0
    retention: int = 90 * 24 * 3_600_000
    hook: Hook | None = None  # asked about what is marked, in place
    drain_seconds: float = EngineRules().drain_seconds

    @property
    def chain_ids(self) -> list[int]:
        return sorted({lane.chain_id for lane in self.lanes})

    def rules(self) -> EngineRules:
        lane = LaneRules(
            window=self.window,
            pace=self.pace,
            shared=self.shared,
            health=self.health,
            unsettled=self.unsettled,
            batch=self.batch,
            largest_window=self.largest_window,
            fees=self.fees,
            patience=self.patience,
        )
        return EngineRules(
            lease_seconds=self.lease_seconds,
            retention=self.retention,
            drain_seconds=self.drain_seconds,
            chains=dict.fromkeys(self.chain_ids, ChainRules(depth=self.depth)),
            lanes=dict.fromkeys(self.lanes, lane),
        )
