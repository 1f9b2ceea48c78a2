"""What the outside sees of a lane."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from nonchalant.chain.evm.addresses import checksum
from nonchalant.notation import AddressText, HashText, HolderText, TimeText, TxIdText, WeiText, Whole
from nonchalant.ports import LaneSummary
from nonchalant.views import AttentionView, show_attention, show_time
from nonchalant.windows import Pace
from nonchalant.words import Mode, SlotKind, Wei


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
    epoch: Whole
    expires_at: TimeText | None


class ControlView(msgspec.Struct, frozen=True, kw_only=True):
    """What people said the lane should do."""

    mode: Mode
    reason: str
    since: TimeText | None


class LaneHealthView(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the lane gives out nonces of its own accord."""

    ok: bool
    trouble: AttentionView | None
    confirmed_at: TimeText | None
    resets: Whole


class ReservationView(msgspec.Struct, frozen=True, kw_only=True):
    """A nonce that is kept for somebody who signs by himself."""

    nonce: Whole
    expires_at: TimeText
    hash: HashText | None


class WishView(msgspec.Struct, frozen=True, kw_only=True):
    """Something that waits for the lane's owner."""

    kind: str
    tx: TxIdText | None
    since: TimeText


class LaneView(msgspec.Struct, frozen=True, kw_only=True):
    """One account on one chain; what this node does not know now is null (`window`: no longer configured here)."""

    chain_id: Whole
    address: AddressText
    next_nonce: Whole | None
    settled_below: Whole
    quarantined_below: Whole | None
    control: ControlView
    health: LaneHealthView
    pace: Pace | None
    window: Whole | None
    window_limit: Whole | None
    in_flight: Whole | None
    shared: bool | None
    delegated: bool | None
    transactions: dict[str, Whole]
    slots: dict[str, Whole]
    reservations: list[ReservationView]
    wishes: list[WishView]
    balance: WeiText | None
    committed: WeiText | None
    reserve: WeiText | None
    head: Whole | None
    lease: LeaseView
    attention: AttentionView | None


class LanesView(msgspec.Struct, frozen=True, kw_only=True):
    lanes: list[LaneView]


class ReservedView(msgspec.Struct, frozen=True, kw_only=True):
    """A nonce to sign for. Whoever has `holder` speaks for it; it is told only here."""

    nonce: Whole
    holder: HolderText
    expires_at: TimeText


class UsedView(msgspec.Struct, frozen=True, kw_only=True):
    """That the nonce is used by this."""

    nonce: Whole
    hash: HashText


class ReleasedView(msgspec.Struct, frozen=True, kw_only=True):
    """That the nonce is given back."""

    nonce: Whole
    next_nonce: Whole


class SyncView(msgspec.Struct, frozen=True, kw_only=True):
    """What the chain says of the account now."""

    head: Whole
    final: Whole
    count: Whole
    final_count: Whole
    next_nonce: Whole
    settled_below: Whole
    live: Whole
    executed: Whole
    holes: list[Whole]


class FilledView(msgspec.Struct, frozen=True, kw_only=True):
    """Which holes are being closed."""

    filled: list[Whole]
    left: Whole


class KeptView(msgspec.Struct, frozen=True, kw_only=True):
    """A nonce of which something may still be executed."""

    nonce: Whole
    kind: SlotKind
    tx: TxIdText | None
    hash: HashText | None


class ResetView(msgspec.Struct, frozen=True, kw_only=True):
    """What holds after a reset, and what was given up for it."""

    next_nonce: Whole
    settled_below: Whole
    settled_below_before: Whole
    recalled: list[TxIdText]
    kept: list[KeptView]


class CancellingView(msgspec.Struct, frozen=True, kw_only=True):
    """How many transactions were asked not to run; their outcomes tell."""

    asked: Whole


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
            mode=control.mode,
            reason=control.reason,
            since=show_time(control.since) if control.since else None,
        ),
        health=LaneHealthView(
            ok=record.unhealthy is None,
            trouble=show_attention(record.unhealthy),
            confirmed_at=None if record.confirmed_at is None else show_time(record.confirmed_at),
            resets=record.resets,
        ),
        pace=None if now is None else now.mode,
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
