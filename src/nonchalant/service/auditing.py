"""What people do with their power is written down before it is done.

What cannot be written is not done. So the log has everything that was ordered; where it did not come about, a second
entry says so, with the problem's code; where something new came of it, one names it. An order without either was carried
out, or cut off on the way.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable

import msgspec
import structlog

from nonchalant.access import Scope
from nonchalant.audit import Actor, Deed
from nonchalant.bodies import decode
from nonchalant.errors import CommitUnknown, NonchalantError, StoreUnavailable
from nonchalant.logs import redact
from nonchalant.service.front import Front, Route
from nonchalant.service.http import Answer, Call, Streaming
from nonchalant.service.lanes import find_lane, named_lane
from nonchalant.service.problems import describe
from nonchalant.values import replace

log = structlog.get_logger()


def carry_out(front: Front, route: Route, call: Call) -> Awaitable[Answer | Streaming]:
    """Have the call handled; one that is audited is written down first."""
    action = route.audited or (route.audited_of_admins if call.caller.may(Scope.ADMIN) else None)
    return route.handle(front, call) if action is None else _audited(front, route, call, action)


async def _audited(front: Front, route: Route, call: Call, action: str) -> Answer | Streaming:
    deed = Deed(
        actor=Actor.of(call.caller),
        action=action,
        subject=await _subject(front, route, call),
        data=await _parameters(route, call),
    )
    try:
        position = await front.node.store.note(deed)
    except CommitUnknown:
        raise StoreUnavailable("the audit log could not be written, so nothing was done; try again") from None
    try:
        answer = await route.handle(front, call)
    except Exception as error:  # whatever it is, it is told, and goes on to whoever answers it
        code = describe(error if isinstance(error, NonchalantError) else NonchalantError())[0].code
        await _note_more(front, replace(deed, action=f"{deed.action}.failed", data={"entry": position, "code": code}))
        raise
    made = answer.headers.get("Location") if isinstance(answer, Answer) else None
    if made is not None:  # what it is called was not known when it was ordered
        name = made.rpartition("/")[2]
        await _note_more(front, replace(deed, action=f"{deed.action}.made", subject=name, data={"entry": position}))
    return answer


async def _note_more(front: Front, deed: Deed) -> None:
    """What came of it; that it was ordered is written already, so this does not change the answer."""
    try:
        await front.node.store.note(deed)
    except NonchalantError as error:
        log.warning("audit.unwritten", action=deed.action, subject=deed.about, reason=str(error))


async def _parameters(route: Route, call: Call) -> dict[str, object]:
    """What the body says, but for what is secret. One that cannot be understood is refused here: nothing was ordered."""
    if route.takes is None:
        return {}
    body = decode(await call.json_body(may_be_empty=route.may_be_empty), route.takes)
    given: dict[str, object] = msgspec.to_builtins(body)
    said = {name: value for name, value in given.items() if name not in route.unwritten and value is not None}
    return dict(redact(None, "", said))  # a URL may carry a token: its host is enough


async def _subject(front: Front, route: Route, call: Call) -> str:
    """What it is about: the path's variable parts, a lane as one. `NotFound` if there is no such lane."""
    lane = named_lane(route.path, call)
    parts = list(call.parts)
    names = re.findall(r"{(\w+)}", route.path)
    if lane is not None:
        await find_lane(front, str(lane.chain_id), lane.address)
        place = names.index("chain_id")
        parts[place : place + 2] = [str(lane)]
    return "/".join(parts)
