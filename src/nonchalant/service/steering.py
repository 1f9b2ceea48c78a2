"""The calls that steer a lane, and that reserve its nonces for those who sign by themselves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from nonchalant.lane_views import (
    CancellingView,
    FilledView,
    ReleasedView,
    ReservedView,
    ResetView,
    SyncView,
    UsedView,
)
from nonchalant.scalars import LARGEST_NUMBER, parse_number
from nonchalant.service.front import Front
from nonchalant.service.http import Answer, Call
from nonchalant.service.lanes import find_lane, lane_shown
from nonchalant.steering import LaneHandle
from nonchalant.views import show_time
from nonchalant.wire import (
    parse_fill,
    parse_holder,
    parse_nothing,
    parse_reason,
    parse_reserve,
    parse_reset,
    parse_used,
)


async def pause_lane(front: Front, call: Call) -> Answer:
    return await _said(front, call, LaneHandle.pause)


async def drain_lane(front: Front, call: Call) -> Answer:
    return await _said(front, call, LaneHandle.drain)


async def resume_lane(front: Front, call: Call) -> Answer:
    return await _said(front, call, LaneHandle.resume)


async def _said(front: Front, call: Call, say: Callable[[LaneHandle, str], Awaitable[object]]) -> Answer:
    """Say how the lane should be run; the lane as it is then."""
    lane = await _lane(front, call)
    await say(lane, parse_reason(await call.wish()))
    return Answer(await lane_shown(front, lane.key))


async def sync_lane(front: Front, call: Call) -> Answer:
    lane = await _lane(front, call)
    parse_nothing(await call.wish())
    return Answer(msgspec.convert(await lane.sync(), SyncView))


async def fill_lane(front: Front, call: Call) -> Answer:
    lane = await _lane(front, call)
    return Answer(msgspec.convert(await lane.fill(parse_fill(await call.wish())), FilledView))


async def reset_lane(front: Front, call: Call) -> Answer:
    lane = await _lane(front, call)
    return Answer(msgspec.convert(await lane.reset(force=parse_reset(await call.wish())), ResetView))


async def cancel_lane(front: Front, call: Call) -> Answer:
    lane = await _lane(front, call)
    parse_nothing(await call.wish())
    return Answer(CancellingView(asked=await lane.cancel_all()), 202)


async def reserve_nonce(front: Front, call: Call) -> Answer:
    lane = await _lane(front, call)
    slot = await lane.take(parse_reserve(await call.wish()))
    assert slot.deadline is not None
    return Answer(ReservedView(nonce=slot.nonce, holder=slot.holder, expires_at=show_time(slot.deadline)), 201)


async def use_nonce(front: Front, call: Call) -> Answer:
    lane, nonce = await _lane(front, call), _nonce(call)
    holder, hash, raw = parse_used(await call.wish())
    await lane.reserved(nonce, holder).used(hash, raw)
    return Answer(UsedView(nonce=nonce, hash=hash))


async def release_nonce(front: Front, call: Call) -> Answer:
    lane, nonce = await _lane(front, call), _nonce(call)
    slot = lane.reserved(nonce, parse_holder(await call.wish()))
    return Answer(ReleasedView(nonce=nonce, next_nonce=await slot.release()))


async def _lane(front: Front, call: Call) -> LaneHandle:
    """`NotFound` unless there is such a lane; `UnknownAccount` if it is not configured any more."""
    key = (await find_lane(front, *call.parts[:2])).record.key
    return front.node.lane(key.chain_id, key.address)


def _nonce(call: Call) -> int:
    return parse_number(call.parts[2], "nonce", LARGEST_NUMBER)
