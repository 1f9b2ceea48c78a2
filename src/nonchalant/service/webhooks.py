"""The calls about webhooks, which are the admin's."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from nonchalant.service.front import Front
from nonchalant.service.http import Answer, Call
from nonchalant.service.problems import PositionGone
from nonchalant.views import show_time
from nonchalant.webhook_views import (
    DeliveriesView,
    RotatedView,
    WebhooksView,
    show_delivery,
    show_made,
    show_test,
    show_webhook,
)
from nonchalant.webhooks import Webhook
from nonchalant.wire import parse_nothing, parse_reason
from nonchalant.wire_events import (
    LOG_FILTERS,
    parse_log_filter,
    parse_replay,
    parse_rotation,
    parse_webhook,
    parse_webhook_changes,
)


async def post_webhook(front: Front, call: Call) -> Answer:
    call.only(())
    desk = front.node.webhooks
    wanted, tenant, after = parse_webhook(await call.json_body(), desk.targets)
    if after is not None:
        await _check(front, after)
    made = await desk.add(wanted, tenant=tenant, after=after)
    headers = {"Location": f"/v1/webhooks/{made.id}"}
    return Answer(show_made(made, (await desk.kept()).last), 201, headers)


async def list_webhooks(front: Front, call: Call) -> Answer:
    call.only(())
    last = (await front.node.webhooks.kept()).last
    return Answer(WebhooksView(webhooks=[show_webhook(one, last) for one in await front.node.webhooks.all()]))


async def get_webhook(front: Front, call: Call) -> Answer:
    call.only(())
    return await _shown(front, await _find(front, call))


async def change_webhook(front: Front, call: Call) -> Answer:
    call.only(())
    desk = front.node.webhooks
    changes = parse_webhook_changes(await call.json_body(), desk.targets)
    return await _shown(front, await desk.change((await _find(front, call)).id, changes))


async def remove_webhook(front: Front, call: Call) -> Answer:
    call.only(())
    found = await _find(front, call)
    await front.node.webhooks.remove(found.id)
    return await _shown(front, found)


async def enable_webhook(front: Front, call: Call) -> Answer:
    return await _altered(front, call, front.node.webhooks.enable)


async def disable_webhook(front: Front, call: Call) -> Answer:
    why = parse_reason(await call.wish())
    return await _shown(front, await front.node.webhooks.disable((await _find(front, call)).id, why))


async def rotate_webhook(front: Front, call: Call) -> Answer:
    seconds = parse_rotation(await call.wish())
    webhook, secret = await front.node.webhooks.rotate((await _find(front, call)).id, seconds)
    old = webhook.secrets[1].ends_at if len(webhook.secrets) > 1 else None
    return Answer(RotatedView(secret=secret, old_secret_ends_at=None if old is None else show_time(old)))


async def test_webhook(front: Front, call: Call) -> Answer:
    parse_nothing(await call.wish())
    return Answer(show_test(await front.node.webhooks.test((await _find(front, call)).id)))


async def list_deliveries(front: Front, call: Call) -> Answer:
    wanted = parse_log_filter(call.only(LOG_FILTERS))
    webhook = await _find(front, call)
    found = await front.node.webhooks.deliveries(
        webhook.id, state=wanted.state, before=wanted.before, limit=wanted.limit
    )
    return Answer(
        DeliveriesView(
            deliveries=[show_delivery(one) for one in found],
            next_cursor=str(found[-1].position) if len(found) == wanted.limit else None,
        )
    )


async def replay_webhook(front: Front, call: Call) -> Answer:
    after, since = parse_replay(await call.wish())
    webhook, desk = await _find(front, call), front.node.webhooks
    if after is None:
        assert since is not None
        after = await desk.position_since(since)
    else:
        await _check(front, after)
    return await _shown(front, await desk.replay(webhook.id, after))


async def replay_delivery(front: Front, call: Call) -> Answer:
    parse_nothing(await call.wish())
    webhook = await _find(front, call)
    return Answer(show_delivery(await front.node.webhooks.replay_one(webhook.id, call.parts[1])))


async def _altered(front: Front, call: Call, alter: Callable[[str], Awaitable[Webhook]]) -> Answer:
    parse_nothing(await call.wish())
    return await _shown(front, await alter((await _find(front, call)).id))


async def _shown(front: Front, webhook: Webhook) -> Answer:
    return Answer(show_webhook(webhook, (await front.node.webhooks.kept()).last))


async def _find(front: Front, call: Call) -> Webhook:
    return await front.node.webhooks.find(call.parts[0])


async def _check(front: Front, after: int) -> None:
    """`PositionGone` if something would be missing."""
    kept = await front.node.webhooks.kept()
    if not kept.forgotten <= after <= kept.last:
        raise PositionGone(
            f"nothing can be delivered from position {after} on without a gap; choose one from {kept.forgotten} to "
            f"{kept.last}",
            kept,
        )
