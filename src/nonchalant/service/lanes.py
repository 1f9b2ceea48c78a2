"""The calls about lanes."""

from __future__ import annotations

import asyncio
from typing import Final

from nonchalant.errors import NotFound
from nonchalant.interest import Interest
from nonchalant.lane_views import LanesView, LaneView, LiveLane, show_lane
from nonchalant.ports import LaneSummary
from nonchalant.service.front import Front
from nonchalant.service.http import Answer, Call
from nonchalant.stream import Told
from nonchalant.views import LaneEventsView, show_event
from nonchalant.wire import PAGE, parse_lane, parse_page
from nonchalant.words import LaneKey

# A lane is shown without its balance when its chain does not answer by then.
LANE_PATIENCE: Final = 2.0

# So many lanes of a list are asked about at once: thousands would keep one another waiting until none is answered.
ASKED_AT_ONCE: Final = 100


async def list_lanes(front: Front, call: Call) -> Answer:
    call.only(())
    places = {key: place for place, key in enumerate(front.node.known_lanes)}
    lanes = sorted(
        await front.node.store.lanes(call.caller.within),
        key=lambda lane: (places.get(lane.record.key, len(places)), lane.record.key),
    )
    shown: list[LaneView] = []
    silent: set[int] = set()
    for start in range(0, len(lanes), ASKED_AT_ONCE):
        some = lanes[start : start + ASKED_AT_ONCE]
        shown += await asyncio.gather(*(_lane(front, lane, silent) for lane in some))
    return Answer(LanesView(lanes=shown))


async def get_lane(front: Front, call: Call) -> Answer:
    call.only(())
    chain_id, address = call.parts
    return Answer(await _lane(front, await find_lane(front, chain_id, address)))


async def get_lane_events(front: Front, call: Call) -> Answer:
    before, limit = parse_page(call.only(PAGE), "cursor")
    chain_id, address = call.parts
    lane = (await find_lane(front, chain_id, address)).record.key
    events = await front.node.store.lane_history(lane, limit=limit, before=before)
    # As on the stream: what befell a transaction of another tenant is not told.
    seen = await front.node.stream.seen_by(Interest.of(call.caller), [Told(event) for event in events])
    return Answer(
        LaneEventsView(
            events=[show_event(one.event) for one in seen],
            next_cursor=str(events[-1].position) if len(events) == limit else None,
        )
    )


def named_lane(path: str, call: Call) -> LaneKey | None:
    """The lane that the call's path names; None: it names none. One that the caller may not use is not there for him."""
    if "{chain_id}/{address}" not in path:
        return None
    place = [part for part in path.split("/") if part.startswith("{")].index("{chain_id}")
    chain_id, address = call.parts[place : place + 2]
    lane = parse_lane(chain_id, address)
    if not call.caller.may_use(lane):
        raise _no_such_lane(chain_id, address)
    return lane


async def find_lane(front: Front, chain_id: str, address: str) -> LaneSummary:
    """Whether the caller may use it was looked at before."""
    summary = await front.node.store.lane(parse_lane(chain_id, address))
    if summary is None:
        raise _no_such_lane(chain_id, address)
    return summary


def _no_such_lane(chain_id: str, address: str) -> NotFound:
    return NotFound(f"there is no lane of {address} on chain {chain_id}; GET /v1/lanes lists them")


async def lane_shown(front: Front, key: LaneKey) -> LaneView:
    """The lane as it is now; it was there before."""
    summary = await front.node.store.lane(key)
    assert summary is not None
    return await _lane(front, summary)


async def _lane(front: Front, summary: LaneSummary, silent: set[int] | None = None) -> LaneView:
    """`silent`: chains that did not answer in time when others of the same list were looked at; nobody waits again."""
    key = summary.record.key
    account = front.node.known_lanes.get(key)
    if account is None:  # it was configured once
        return show_lane(summary, None)
    silent = set() if silent is None else silent
    if key.chain_id not in silent:
        try:
            async with asyncio.timeout(LANE_PATIENCE):
                return show_lane(summary, await front.node.live_lane(summary))
        except TimeoutError:
            silent.add(key.chain_id)
    return show_lane(
        summary,
        LiveLane(window=account.window, window_limit=account.window, mode=account.mode, shared=account.shared),
    )
