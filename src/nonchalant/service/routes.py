"""The table of calls: what each takes, does and answers. The OpenAPI document is written from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from nonchalant.access import LanePattern, Scope
from nonchalant.bodies import (
    BatchBody,
    BumpBody,
    FillBody,
    HolderBody,
    KeyBody,
    NothingBody,
    ReasonBody,
    ReleaseBody,
    ReplaceBody,
    ReplayBody,
    ReserveBody,
    ResetBody,
    RotateBody,
    TransactionBody,
    UsedBody,
    WebhookBody,
    WebhookChanges,
)
from nonchalant.errors import Forbidden
from nonchalant.key_views import AuditView, KeysView, KeyView, NewKeyView
from nonchalant.lane_views import (
    CancellingView,
    FilledView,
    LanesView,
    LaneView,
    ReleasedView,
    ReservedView,
    ResetView,
    SyncView,
    UsedView,
)
from nonchalant.notation import BATCH_PATTERN
from nonchalant.service import events, keys, lanes, steering, transactions, webhooks
from nonchalant.service.front import ADDRESS, HASH, KEY, TEXT, TEXTS, WHOLE, Front, Parameter, Route
from nonchalant.service.http import EVENT_STREAM, Answer, Call
from nonchalant.service.problems import NotReady
from nonchalant.service.rpc import calls
from nonchalant.service.rpc.shapes import RpcBody, RpcView
from nonchalant.views import BatchView, EventsView, LaneEventsView, TransactionsView, TransactionView
from nonchalant.webhook_views import (
    DeliveriesView,
    DeliveryView,
    RotatedView,
    TestedView,
    WebhookMadeView,
    WebhooksView,
    WebhookView,
)
from nonchalant.wire import FILTERS, PAGE


class Health(msgspec.Struct, frozen=True):
    status: str


async def live(_front: Front, call: Call) -> Answer:
    call.only(())
    return Answer(Health("alive"))


async def ready(front: Front, call: Call) -> Answer:
    call.only(())
    trouble = "this node is stopping" if front.closing else await front.node.trouble()
    if trouble is not None:
        raise NotReady(trouble)
    return Answer(Health("ready"))


async def openapi(_front: Front, call: Call) -> Answer:
    from nonchalant.service.openapi import document  # which is written from this table

    call.only(())
    return Answer(document())


async def metrics(front: Front, call: Call) -> Answer:
    call.only(())
    if not call.caller.is_admin and LanePattern() not in call.caller.lanes:
        raise Forbidden("metrics tell of every lane, and this key is not for every lane; ask for one that is")
    page, media_type = await front.node.observatory.page(call.header("Accept") or "")
    return Answer(page, media_type=media_type)


_TOOLS: Final = (
    ("pause", "Give out no more nonces; what has one goes on.", steering.pause_lane, ReasonBody, LaneView, 200),
    ("drain", "As pause, and take no new requests either.", steering.drain_lane, ReasonBody, LaneView, 200),
    (
        "resume",
        "Give out nonces again, and believe its chain as it is.",
        steering.resume_lane,
        ReasonBody,
        LaneView,
        200,
    ),
    ("sync", "Look at the chain anew.", steering.sync_lane, NothingBody, SyncView, 200),
    ("fill", "Close holes by transfers of nothing.", steering.fill_lane, FillBody, FilledView, 200),
    ("reset", "Take the chain's word for the next nonce.", steering.reset_lane, ResetBody, ResetView, 200),
    ("cancel", "Cancel all that is live.", steering.cancel_lane, NothingBody, CancellingView, 202),
    (
        "reservations",
        "Keep a nonce for somebody who signs by himself.",
        steering.reserve_nonce,
        ReserveBody,
        ReservedView,
        201,
    ),
    ("reservations/{nonce}/used", "Say what was signed for it.", steering.use_nonce, UsedBody, UsedView, 200),
    (
        "reservations/{nonce}/release",
        "Give it back: nothing was signed.",
        steering.release_nonce,
        HolderBody,
        ReleasedView,
        200,
    ),
)

# What the audit log calls a tool, where the path's word does not say it.
_AUDITED: Final = {
    "reservations": "reserve",
    "reservations/{nonce}/used": "reservation.used",
    "reservations/{nonce}/release": "reservation.release",
}

_VERBS: Final = (
    (
        "cancel",
        "Let it not run, if that can still be helped: the outcome tells.",
        transactions.cancel_transaction,
        NothingBody,
    ),
    ("bump", "Offer more for it: so much, or what the market asks.", transactions.bump_transaction, BumpBody),
    ("replace", "Let something else run in its place, under its id.", transactions.replace_transaction, ReplaceBody),
    ("hold", "Keep it queued until it is released.", transactions.hold_transaction, ReasonBody),
    ("release", "Let it go on, at the place it had.", transactions.release_transaction, ReleaseBody),
)

_ABOUT_FILTERS: Final[Mapping[str, tuple[str, Mapping[str, Any]]]] = {
    "state": ("in this state", {"$ref": "#/components/schemas/State"}),
    "chain_id": ("on this chain", WHOLE),
    "from": ("of this account", ADDRESS),
    "nonce": ("at this nonce", WHOLE),
    "hash": ("with an attempt of this hash", HASH),
    "idempotency_key": ("accepted under this key", KEY),
    "batch": ("accepted together with others, as this batch", {**TEXT, "pattern": BATCH_PATTERN}),
    "cursor": ("`next_cursor` of the page before", {**TEXT, "pattern": "^[0-9]+$"}),
    "limit": ("at most this many", {"type": "integer", "minimum": 1, "maximum": 500, "default": 50}),
}

IDEMPOTENCY_KEY: Final = Parameter("Idempotency-Key", "1 to 255 printable ASCII characters", KEY)
REPLAYED: Final = Parameter(
    "Idempotency-Replayed", "`true`: the key was used before, and nothing is new", {**TEXT, "enum": ["true"]}
)

_WEBHOOK_VERBS: Final = (
    ("enable", "Deliver again, from where it stopped.", webhooks.enable_webhook, NothingBody, WebhookView),
    ("disable", "Deliver nothing more until it is enabled.", webhooks.disable_webhook, ReasonBody, WebhookView),
    (
        "rotate",
        "Make a new secret; the one before it signs too for a while.",
        webhooks.rotate_webhook,
        RotateBody,
        RotatedView,
    ),
    (
        "test",
        "Send a test event now, and answer what the receiver said.",
        webhooks.test_webhook,
        NothingBody,
        TestedView,
    ),
)

_WEBHOOKS: Final = (
    Route(
        method="POST",
        path="/v1/webhooks",
        does="Have events delivered to a URL. The secret that signs them is in the answer, this once.",
        handle=webhooks.post_webhook,
        scope=Scope.ADMIN,
        takes=WebhookBody,
        answers=WebhookMadeView,
        status=201,
        answer_headers=(Parameter("Location", "where it is", TEXT, required=True),),
        problems=(409, 410),
        audited="webhook.create",
    ),
    Route(
        method="GET",
        path="/v1/webhooks",
        does="All webhooks.",
        handle=webhooks.list_webhooks,
        scope=Scope.ADMIN,
        answers=WebhooksView,
    ),
    Route(
        method="GET",
        path="/v1/webhooks/{id}",
        does="One webhook.",
        handle=webhooks.get_webhook,
        scope=Scope.ADMIN,
        answers=WebhookView,
        problems=(404,),
    ),
    Route(
        method="PATCH",
        path="/v1/webhooks/{id}",
        does="Change where its events go, or which; what waits is tried now.",
        handle=webhooks.change_webhook,
        scope=Scope.ADMIN,
        takes=WebhookChanges,
        answers=WebhookView,
        problems=(404,),
        audited="webhook.change",
    ),
    Route(
        method="DELETE",
        path="/v1/webhooks/{id}",
        does="Remove it, with what waits for it and its log.",
        handle=webhooks.remove_webhook,
        scope=Scope.ADMIN,
        answers=WebhookView,
        problems=(404,),
        audited="webhook.remove",
    ),
    *(
        Route(
            method="POST",
            path=f"/v1/webhooks/{{id}}/{verb}",
            does=does,
            handle=handle,
            scope=Scope.ADMIN,
            takes=takes,
            may_be_empty=True,
            answers=answers,
            problems=(404,),
            audited=f"webhook.{verb}",
        )
        for verb, does, handle, takes, answers in _WEBHOOK_VERBS
    ),
    Route(
        method="POST",
        path="/v1/webhooks/{id}/replay",
        does="Deliver again whatever came after a position, or since a time.",
        handle=webhooks.replay_webhook,
        scope=Scope.ADMIN,
        takes=ReplayBody,
        answers=WebhookView,
        problems=(404, 410),
        audited="webhook.replay",
    ),
    Route(
        method="GET",
        path="/v1/webhooks/{id}/deliveries",
        does="What was delivered, what waits and what was given up, newest event first.",
        handle=webhooks.list_deliveries,
        scope=Scope.ADMIN,
        answers=DeliveriesView,
        query=(
            Parameter("state", "in this state", {"$ref": "#/components/schemas/DeliveryState"}),
            Parameter("cursor", *_ABOUT_FILTERS["cursor"]),
            Parameter("limit", *_ABOUT_FILTERS["limit"]),
        ),
        problems=(404,),
    ),
    Route(
        method="POST",
        path="/v1/webhooks/{id}/deliveries/{delivery_id}/replay",
        does="Deliver this one again.",
        handle=webhooks.replay_delivery,
        scope=Scope.ADMIN,
        takes=NothingBody,
        may_be_empty=True,
        answers=DeliveryView,
        problems=(404,),
        audited="webhook.replay_delivery",
    ),
)

ROUTES: Final = (
    Route(
        method="POST",
        path="/v1/transactions",
        does="Hand over a transaction. Repeating a call with the same Idempotency-Key answers the same transaction.",
        handle=transactions.post_transaction,
        scope=Scope.TX_WRITE,
        takes=TransactionBody,
        answers=TransactionView,
        status=202,
        headers=(IDEMPOTENCY_KEY,),
        answer_headers=(Parameter("Location", "where it is", TEXT, required=True), REPLAYED),
        problems=(409, 410, 422, 429),
    ),
    Route(
        method="POST",
        path="/v1/transactions/batch",
        does="Hand over several transactions: all are accepted, or none is. One Idempotency-Key is for the whole.",
        handle=transactions.post_batch,
        scope=Scope.TX_WRITE,
        takes=BatchBody,
        answers=BatchView,
        status=202,
        headers=(IDEMPOTENCY_KEY,),
        answer_headers=(Parameter("Location", "where they are listed", TEXT, required=True), REPLAYED),
        problems=(409, 410, 422, 429),
    ),
    Route(
        method="GET",
        path="/v1/transactions",
        does="List transactions, newest first.",
        handle=transactions.list_transactions,
        scope=Scope.TX_READ,
        answers=TransactionsView,
        query=[Parameter(name, *_ABOUT_FILTERS[name]) for name in FILTERS],
    ),
    Route(
        method="GET",
        path="/v1/transactions/{id}",
        does="One transaction, now or once it has changed.",
        handle=transactions.get_transaction,
        scope=Scope.TX_READ,
        answers=TransactionView,
        query=(
            Parameter(
                "wait",
                "answer when it has ended, at the latest after this many seconds",
                {"type": "number", "minimum": 0, "maximum": transactions.LONGEST_WAIT},
            ),
            Parameter("after", "with `wait`: answer as soon as its `version` is above this", WHOLE),
        ),
        problems=(404,),
    ),
    Route(
        method="GET",
        path="/v1/transactions/{id}/events",
        does="Its history, oldest first.",
        handle=transactions.get_history,
        scope=Scope.TX_READ,
        answers=EventsView,
        problems=(404,),
    ),
    *(
        Route(
            method="POST",
            path=f"/v1/transactions/{{id}}/{verb}",
            does=does,
            handle=handle,
            scope=Scope.TX_WRITE,
            takes=takes,
            may_be_empty=takes is not ReplaceBody,
            answers=TransactionView,
            status=202,
            problems=(404, 409, 429),
            audited_of_admins=f"transaction.{verb}",
        )
        for verb, does, handle, takes in _VERBS
    ),
    Route(
        method="GET",
        path="/v1/lanes",
        does="All lanes.",
        handle=lanes.list_lanes,
        scope=Scope.TX_READ,
        answers=LanesView,
    ),
    Route(
        method="GET",
        path="/v1/lanes/{chain_id}/{address}",
        does="One account on one chain.",
        handle=lanes.get_lane,
        scope=Scope.TX_READ,
        answers=LaneView,
        problems=(404,),
    ),
    Route(
        method="GET",
        path="/v1/lanes/{chain_id}/{address}/events",
        does="What it told of itself (the `lane.` events), newest first.",
        handle=lanes.get_lane_events,
        scope=Scope.TX_READ,
        answers=LaneEventsView,
        query=[Parameter(name, *_ABOUT_FILTERS[name]) for name in PAGE],
        problems=(404,),
    ),
    *(
        Route(
            method="POST",
            path=f"/v1/lanes/{{chain_id}}/{{address}}/{tool}",
            does=does,
            handle=handle,
            scope=Scope.LANE_ADMIN,
            takes=takes,
            may_be_empty=takes not in (UsedBody, HolderBody),
            answers=answers,
            status=status,
            problems=(404, 409, 429),
            audited=f"lane.{_AUDITED.get(tool, tool)}",
            unwritten=("holder",),
        )
        for tool, does, handle, takes, answers, status in _TOOLS
    ),
    Route(
        method="POST",
        path="/rpc/{chain_id}",
        does="JSON-RPC 2.0 as web3 clients speak it, one call or a batch; its errors have status 200.",
        handle=calls.post_rpc,
        scope=Scope.TX_READ,
        takes=RpcBody,
        answers=RpcView,
        or_several=True,
        or_nothing=True,
        headers=(IDEMPOTENCY_KEY,),
        problems=(404,),
    ),
    Route(
        method="GET",
        path="/v1/events",
        does="Events as they happen, as server-sent events; from a position on, if one is named.",
        handle=events.stream_events,
        scope=Scope.TX_READ,
        answers=None,
        media_type=EVENT_STREAM,
        query=(
            Parameter("lane", "of these lanes, each `chain:address`, where `*` stands for any", TEXTS),
            Parameter("tx", "of these transactions", TEXTS),
            Parameter("kind", "of these kinds, or families such as `tx.*`", TEXTS),
            Parameter("after", "from this position on; without it, from now on", WHOLE),
        ),
        headers=(
            Parameter(
                "Last-Event-ID",
                "the position of the last event that was seen; `after` gives way",
                {**TEXT, "pattern": "^[0-9]*$", "examples": ["4711"]},
            ),
        ),
        problems=(404, 410),
    ),
    *_WEBHOOKS,
    Route(
        method="GET",
        path="/v1/keys",
        does="All keys, newest first; never their secrets.",
        handle=keys.list_keys,
        scope=Scope.ADMIN,
        answers=KeysView,
        query=[Parameter(name, *_ABOUT_FILTERS[name]) for name in ("cursor", "limit")],
    ),
    Route(
        method="POST",
        path="/v1/keys",
        does="Make a key. It is told in this answer, and never again.",
        handle=keys.create_key,
        scope=Scope.ADMIN,
        takes=KeyBody,
        answers=NewKeyView,
        status=201,
        answer_headers=(Parameter("Location", "where it is", TEXT, required=True),),
    ),
    Route(
        method="GET",
        path="/v1/keys/{id}",
        does="One key.",
        handle=keys.get_key,
        scope=Scope.ADMIN,
        answers=KeyView,
        problems=(404,),
    ),
    Route(
        method="POST",
        path="/v1/keys/{id}/revoke",
        does="Let nobody in by it any more, on any node.",
        handle=keys.revoke_key,
        scope=Scope.ADMIN,
        takes=NothingBody,
        may_be_empty=True,
        answers=KeyView,
        problems=(404,),
    ),
    Route(
        method="GET",
        path="/v1/audit",
        does="The audit log, oldest first, and where it ends.",
        handle=keys.list_audit,
        scope=Scope.ADMIN,
        answers=AuditView,
        query=(
            Parameter("after", "the position to go on from", WHOLE),
            Parameter(*("limit", *_ABOUT_FILTERS["limit"])),
        ),
    ),
    Route(
        method="GET",
        path="/livez",
        does="Whether the process answers.",
        handle=live,
        scope=None,
        answers=Health,
    ),
    Route(method="GET", path="/readyz", does="Whether this node takes work.", handle=ready, scope=None, answers=Health),
    Route(
        method="GET",
        path="/openapi.json",
        does="All of this as an OpenAPI document.",
        handle=openapi,
        scope=None,
        answers=None,
    ),
    Route(
        method="GET",
        path="/metrics",
        does="How this node does, for Prometheus.",
        handle=metrics,
        scope=Scope.TX_READ,
        answers=None,
        media_type="text/plain",
    ),
)
