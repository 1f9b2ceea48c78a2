"""The settings as values: what a node is told about its chains, its accounts and itself."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Literal

from nonchalant.fees import FeeRules
from nonchalant.health import HealthRules
from nonchalant.installation import Installation
from nonchalant.policy import DEFAULT_BUMP_AFTER, Blocks
from nonchalant.secret import Secret
from nonchalant.targets import Targets
from nonchalant.windows import Pace
from nonchalant.words import Millis, Speed, Wei

# Whether whoever calls the service must have a key.
Auth = Literal["keys", "off"]


class LogFormat(StrEnum):
    HUMAN = "human"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class Listen:
    """Where the service listens. Port 0: any free one."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


@dataclass(frozen=True, slots=True)
class PrivateKey:
    secret: Secret


@dataclass(frozen=True, slots=True)
class Keystore:
    path: Path
    password: Secret
    where: str = ""


@dataclass(frozen=True, slots=True)
class Mnemonic:
    """Accounts `path`/0 up to `path`/`count - 1`."""

    phrase: Secret
    path: str
    count: int
    where: str = ""


KeySource = PrivateKey | Keystore | Mnemonic


@dataclass(frozen=True, slots=True)
class EndpointSettings:
    name: str  # safe to print
    url: str = field(repr=False)  # may carry a password or an API key


class PriceSource(StrEnum):
    NODE = "node"
    FIXED = "fixed"
    ORACLE = "oracle"


class Unit(StrEnum):
    WEI = "wei"
    GWEI = "gwei"

    @property
    def decimals(self) -> int:
        return 9 if self is Unit.GWEI else 0


@dataclass(frozen=True, slots=True)
class FixedPrices:
    """What each speed pays for gas beyond the base fee; or in all, on a chain without one."""

    prices: Mapping[Speed, Wei]


@dataclass(frozen=True, slots=True, kw_only=True)
class OraclePrices:
    """A URL that answers with JSON, and where in it a speed's price stands: beyond the base fee, or in all on a chain
    without one or if `includes_base_fee`. An answer older than `max_age` is not used; both times are in seconds."""

    url: str = field(repr=False)  # may carry an API key
    headers: Mapping[str, Secret]
    paths: Mapping[Speed, tuple[str | int, ...]]
    unit: Unit
    includes_base_fee: bool = False
    timeout: float = 2.0
    max_age: float = 60.0


class DataFee(StrEnum):
    """How a chain charges for publishing a transaction, beside gas."""

    NONE = "none"
    OP_STACK = "op-stack"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainSettings:
    """`finality` is "tag" or how many blocks below the head count as final; the times are in seconds. `prices` None: as
    its nodes see them."""

    id: int
    endpoints: tuple[EndpointSettings, ...]
    finality: Literal["tag"] | int = "tag"
    poll_interval: float = 1.0
    request_timeout: float = 10.0
    fees: FeeRules = field(default_factory=FeeRules)
    bump_after: Mapping[Speed, Millis | Blocks] = field(default_factory=lambda: DEFAULT_BUMP_AFTER)
    prices: FixedPrices | OraclePrices | None = None
    data_fee: DataFee = DataFee.NONE
    rpc_methods: tuple[str, ...] = ()  # passed on beside what is anyway; "anvil_*" is all that begin so

    @property
    def charges_for_data(self) -> bool:
        return self.data_fee is not DataFee.NONE

    @property
    def depth(self) -> int | None:
        """None: finality is the nodes' `finalized` tag."""
        return None if self.finality == "tag" else self.finality


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountSettings:
    """`max_fee` and `max_priority` cap its prices beside the chain's own caps. None: only those count. `shared`: others
    sign with the same key."""

    chains: tuple[int, ...]
    key: KeySource
    window: int = 16
    mode: Pace = Pace.PIPELINED
    queue_limit: int = 10_000
    max_fee: Wei | None = None
    max_priority: Wei | None = None
    shared: bool = False
    health: HealthRules = field(default_factory=HealthRules)
    where: str = ""

    def capped(self, chain: FeeRules) -> FeeRules:
        """The chain's rules as they are for this account."""
        return chain.capped(max_fee=self.max_fee, max_priority=self.max_priority)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """`log_format` None: human on a terminal, else JSON."""

    store: str = field(repr=False)  # may carry a password; `store_name` does not
    listen: Listen = Listen("127.0.0.1", 8645)
    auth: Auth = "keys"
    log_format: LogFormat | None = None
    lease_seconds: float = 10.0
    retention: int = 90  # days, from a transaction's end
    attention_hook: str | None = None  # "package.module:function"
    webhook_targets: Targets = Targets.PUBLIC
    listen_dsn: str | None = field(default=None, repr=False)  # past a pooler, for wake-ups
    otlp_endpoint: str | None = field(default=None, repr=False)  # where traces go; may carry a password
    chains: tuple[ChainSettings, ...]
    accounts: tuple[AccountSettings, ...]

    @property
    def store_name(self) -> str:
        """As it may be printed."""
        return str(Installation.parse(self.store)) if Installation.is_meant_by(self.store) else self.store

    def chain(self, chain_id: int) -> ChainSettings | None:
        for chain in self.chains:
            if chain.id == chain_id:
                return chain
        return None
