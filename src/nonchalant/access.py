"""Who calls, and what he may do. How keys are kept and checked is said elsewhere; this is what one stands for."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from nonchalant.words import Address, LaneKey

if TYPE_CHECKING:  # the command line names scopes, and does without Structs
    from nonchalant.model import Transaction

DEFAULT_TENANT = "default"


class Scope(StrEnum):
    TX_WRITE = "tx:write"  # hand over transactions, and change one's mind about them
    TX_READ = "tx:read"
    LANE_ADMIN = "lane:admin"  # steer lanes, and reserve their nonces
    SIGN = "sign"  # have something signed that is not sent by us
    ADMIN = "admin"  # keys, webhooks, every tenant's transactions, and whatever the others allow, on all lanes


class LanePattern(NamedTuple):
    """The lanes a key is for; None stands for any."""

    chain_id: int | None = None
    address: Address | None = None

    def fits(self, lane: LaneKey) -> bool:
        return self.chain_id in (None, lane.chain_id) and self.address in (None, lane.address)

    def __str__(self) -> str:
        return "*" if self == (None, None) else ":".join("*" if part is None else str(part) for part in self)


EVERY_LANE = (LanePattern(),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Within:
    """What a listing is kept to; None: to nothing."""

    tenant: str | None = None
    lanes: tuple[LanePattern, ...] | None = None


EVERYTHING = Within()


class NonceRule(StrEnum):
    """What a nonce means that a JSON-RPC client names."""

    EXACT = "exact"  # this nonce or none
    ORDER = "order"  # only in which order they come
    REFUSE = "refuse"  # it must not name one


class FeeRule(StrEnum):
    """What prices mean that a JSON-RPC client names."""

    WISH = "wish"  # what to begin with; the account's own caps limit what is paid in the end
    CAP = "cap"  # the most that is ever paid


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """On whose behalf a call is made. `key_id` None: nobody has to say who he is here.

    Who has the scope `admin` has all of them, on all lanes: `lanes` binds him to nothing.
    """

    key_id: str | None
    name: str
    scopes: frozenset[Scope]
    tenant: str = DEFAULT_TENANT
    lanes: tuple[LanePattern, ...] = EVERY_LANE
    nonces: NonceRule = NonceRule.EXACT
    fees: FeeRule = FeeRule.WISH
    rate: float | None = None  # calls a second; None: as many as the node takes

    def may(self, scope: Scope) -> bool:
        return scope in self.scopes or self.is_admin

    def may_use(self, lane: LaneKey) -> bool:
        return self.is_admin or any(pattern.fits(lane) for pattern in self.lanes)

    def may_see(self, tx: Transaction) -> bool:
        """A transaction of another tenant is not there, as far as he can tell."""
        return self.may_use(tx.lane) and (self.is_admin or self.tenant == tx.tenant)

    @property
    def is_admin(self) -> bool:
        return Scope.ADMIN in self.scopes

    @property
    def within(self) -> Within:
        """What a listing may show him."""
        return EVERYTHING if self.is_admin else Within(tenant=self.tenant, lanes=self.lanes)


# Who calls where no keys are asked for.
ANYBODY = Caller(key_id=None, name="anybody", scopes=frozenset(Scope))
