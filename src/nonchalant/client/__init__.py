"""A running service, called from Python: the client libraries.

    async with Client() as client:
        tx = await client.send(chain_id=1, sender="0x…", to="0x…", value=10**15)
        outcome = await client.settled(tx)

What is named here is public; everything else may change. No engine is opened, and little is imported.
"""

from nonchalant.client.asks import Ask
from nonchalant.client.blocking import (
    BlockingClient,
    BlockingKeys,
    BlockingLane,
    BlockingReservation,
    BlockingWebhooks,
)
from nonchalant.client.calling import Client
from nonchalant.client.keys import KeyAsk, Keys
from nonchalant.client.lanes import ClientLane, Reservation
from nonchalant.client.refusals import ServiceRefused, ServiceUnreachable, Unauthorized
from nonchalant.client.webhooks import Webhooks
from nonchalant.errors import Forbidden
from nonchalant.key_views import EntryView, KeyView, NewKeyView
from nonchalant.lane_views import FilledView, LaneView, ReservedView, ResetView, SyncView
from nonchalant.views import AttemptView, BatchView, EventView, FeesView, OutcomeView, ReceiptView, TransactionView
from nonchalant.webhook_views import DeliveryView, RotatedView, TestedView, WebhookMadeView, WebhookView

__all__ = [
    "Ask",
    "AttemptView",
    "BatchView",
    "BlockingClient",
    "BlockingKeys",
    "BlockingLane",
    "BlockingReservation",
    "BlockingWebhooks",
    "Client",
    "ClientLane",
    "DeliveryView",
    "EntryView",
    "EventView",
    "FeesView",
    "FilledView",
    "Forbidden",
    "KeyAsk",
    "KeyView",
    "Keys",
    "LaneView",
    "NewKeyView",
    "OutcomeView",
    "ReceiptView",
    "Reservation",
    "ReservedView",
    "ResetView",
    "RotatedView",
    "ServiceRefused",
    "ServiceUnreachable",
    "SyncView",
    "TestedView",
    "TransactionView",
    "Unauthorized",
    "WebhookMadeView",
    "WebhookView",
    "Webhooks",
]
