"""What the outside sees of a lane."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from nonchalant.chain.evm.addresses import checksum
from nonchalant.model import Wei
from nonchalant.ports import LaneSummary
from nonchalant.views import AttentionView, show_attention, show_time
from nonchalant.windows import Pace


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveLane:
    """What this node knows of a lane beside the store. None: it does not know now."""

    window: int  # how many may be in flight now
    window_limit: int  # how many at most, as configured
    mode: Pace
    shared: bool = False  # others sign with the same key
    delegated: bool | None = None  # its code is: one in flight
    balance: Wei | None = None
    in_flight: int | None = None
    committed: Wei | None = None  # the most that everything in flight can take from the balance
    reserve: Wei | None = None  # of the balance, what is kept for bumping the lowest slots
    head: int | None = None


class LeaseView(msgspec.Struct, frozen=True, kw_only=True):
    """Who works the lane; `owner` null: nobody now."""

    owner: str | None
    epoch: int
    expires_at: str | None


class ControlView(msgspec.Struct, frozen=True, kw_only=True):
    """What people said the lane should do."""

    mode: str
    reason: str
    since: str | None


class LaneHealthView(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the lane gives out nonces of its own accord."""

    ok: bool
    trouble: AttentionView | None
    confirmed_at: str | None
    resets: int


class ReservationView(msgspec.Struct, frozen=True, kw_only=True):
    """A nonce that is kept for somebody who signs by himself."""

    nonce: int
    expires_at: str
    hash: str | None


class WishView(msgspec.Struct, frozen=True, kw_only=True):
    """Something that waits for the lane's owner."""

    kind: str
    tx: str | None
    since: str


class LaneView(msgspec.Struct, frozen=True, kw_only=True):
    """One account on one chain; what this node does not know now is null (`window`: no longer configured here)."""

    chain_id: int
    address: str
    next_nonce: int | None
    settled_below: int
    quarantined_below: int | None
    control: ControlView
    health: LaneHealthView
    pace: str | None
    window: int | None
    window_limit: int | None
    in_flight: int | None
    shared: bool | None
    delegated: bool | None
    transactions: dict[str, int]
    slots: dict[str, int]
    reservations: list[ReservationView]
    wishes: list[WishView]
    balance: str | None
    committed: str | None
    reserve: str | None
    head: int | None
    lease: LeaseView
    attention: AttentionView | None


class LanesView(msgspec.Struct, frozen=True, kw_only=True):
    lanes: list[LaneView]


class ReservedView(msgspec.Struct, frozen=True, kw_only=True):
    """A nonce to sign for. Whoever has `holder` speaks for it; it is told only here."""

    nonce: int
    holder: str
    expires_at: str


class UsedView(msgspec.Struct, frozen=True, kw_only=True):
    """That the nonce is used by this."""

    nonce: int
    hash: str


class ReleasedView(msgspec.Struct, frozen=True, kw_only=True):
    """That the nonce is given back."""

    nonce: int
    next_nonce: int


class SyncView(msgspec.Struct, frozen=True, kw_only=True):
    """What the chain says of the account now."""

    head: int
    final: int
    count: int
    final_count: int
    next_nonce: int
    settled_below: int
    live: int
    executed: int
    holes: list[int]


class FilledView(msgspec.Struct, frozen=True, kw_only=True):
    """Which holes are being closed."""

    filled: list[int]
    left: int


class KeptView(msgspec.Struct, frozen=True, kw_only=True):
    """A nonce of which something may still be executed."""

    nonce: int
    kind: str
    tx: str | None
    hash: str | None


class ResetView(msgspec.Struct, frozen=True, kw_only=True):
    """What holds after a reset, and what was given up for it."""

    next_nonce: int
    settled_below: int
    settled_below_before: int
    recalled: list[str]
    kept: list[KeptView]


class CancellingView(msgspec.Struct, frozen=True, kw_only=True):
    """How many transactions were asked not to run; their outcomes tell."""

    asked: int


def show_lane(summary: LaneSummary, now: LiveLane | None) -> LaneView:
    """None: the account is not configured any more."""
    record, control = summary.record, summary.control
    in_flight = None if now is None else now.in_flight
    return LaneView(
        chain_id=record.key.chain_id,
        address=checksum(record.key.address),
        next_nonce=record.next_nonce,
        settled_below=record.settled_below,
        quarantined_below=record.quarantined_below,
        control=ControlView(
            mode=control.mode.value,
            reason=control.reason,
            since=show_time(control.since) if control.since else None,
        ),
        health=LaneHealthView(
            ok=record.unhealthy is None,
            trouble=show_attention(record.unhealthy),
            confirmed_at=None if record.confirmed_at is None else show_time(record.confirmed_at),
            resets=record.resets,
        ),
        pace=None if now is None else now.mode.value,
        window=None if now is None else now.window,
        window_limit=None if now is None else now.window_limit,
        in_flight=0 if in_flight is None and not summary.slots else in_flight,
        shared=None if now is None else now.shared,
        delegated=None if now is None else now.delegated,
        transactions={state.value: count for state, count in summary.states.items()},
        slots=dict(summary.slots),
        reservations=[
            ReservationView(nonce=one.nonce, expires_at=show_time(one.deadline), hash=one.hash)
            for one in summary.reservations
        ],
        wishes=[WishView(kind=one.kind, tx=one.tx_id, since=show_time(one.made_at)) for one in summary.wishes],
        balance=_amount(None if now is None else now.balance),
        committed=_amount(None if now is None else now.committed),
        reserve=_amount(None if now is None else now.reserve),
        head=None if now is None else now.head,
        lease=LeaseView(
            owner=summary.owner,
            epoch=summary.epoch,
            expires_at=None if summary.owner is None else show_time(summary.expires_at),
        ),
        attention=show_attention(record.attention),
    )


def _amount(wei: Wei | None) -> str | None:
    return None if wei is None else str(wei)
