"""The calls about keys, and about what was done with them."""

from __future__ import annotations

from nonchalant.audit import Actor
from nonchalant.errors import BadRequest, NotFound
from nonchalant.key_views import AuditView, KeysView, show_entry, show_head, show_key, show_new_key
from nonchalant.service.front import Front
from nonchalant.service.http import Answer, Call
from nonchalant.wire import parse_key, parse_nothing, parse_page


async def list_keys(front: Front, call: Call) -> Answer:
    before, limit = parse_page(call.only(("cursor", "limit")), "cursor")
    found = await front.node.store.keys(before=before, limit=limit)
    now = front.node.now()
    return Answer(
        KeysView(
            keys=[show_key(key, now) for key in found],
            next_cursor=str(found[-1].place) if len(found) == limit else None,
        )
    )


async def get_key(front: Front, call: Call) -> Answer:
    call.only(())
    (key_id,) = call.parts
    key = await front.node.store.key(key_id)
    if key is None:
        raise NotFound(f"there is no key {key_id[:100]!r}; GET /v1/keys lists them")
    return Answer(show_key(key, front.node.now()))


async def create_key(front: Front, call: Call) -> Answer:
    call.only(())
    wanted, now = parse_key(await call.json_body()), front.node.now()
    if wanted.expires_at is not None and wanted.expires_at <= now:
        raise BadRequest("has passed already; no key was made", field="expires_at")
    key, written = await front.node.keyring.make(wanted, Actor.of(call.caller))
    return Answer(show_new_key(key, written, now), 201, {"Location": f"/v1/keys/{key.id}"})


async def revoke_key(front: Front, call: Call) -> Answer:
    parse_nothing(await call.wish())
    (key_id,) = call.parts
    key = await front.node.keyring.revoke(key_id, Actor.of(call.caller))
    return Answer(show_key(key, front.node.now()))


async def list_audit(front: Front, call: Call) -> Answer:
    after, limit = parse_page(call.only(("after", "limit")), "after")
    # The head first: what is written meanwhile is not missing.
    head = await front.node.store.audit_head()
    entries = await front.node.store.audit_after(after or 0, limit=limit)
    return Answer(AuditView(entries=[show_entry(entry) for entry in entries], head=show_head(head)))
