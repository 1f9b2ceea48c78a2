"""A running service, called from Python: the client libraries.

    async with Client() as client:
        tx = await client.send(chain_id=1, sender="0x…", to="0x…", value=10**15)
        outcome = await client.settled(tx)

What is named here is public; everything else may change. No engine is opened, and little is imported.
"""

from nonchalant.client.asks import Ask
from nonchalant.client.blocking import BlockingClient, BlockingLane, BlockingReservation
from nonchalant.client.calling import Client
from nonchalant.client.lanes import ClientLane, Reservation
from nonchalant.client.refusals import Forbidden, ServiceRefused, ServiceUnreachable, Unauthorized
from nonchalant.lane_views import FilledView, LaneView, ReservedView, ResetView, SyncView
from nonchalant.views import AttemptView, BatchView, EventView, FeesView, OutcomeView, ReceiptView, TransactionView

__all__ = [
    "Ask",
    "AttemptView",
    "BatchView",
    "BlockingClient",
    "BlockingLane",
    "BlockingReservation",
    "Client",
    "ClientLane",
    "EventView",
    "FeesView",
    "FilledView",
    "Forbidden",
    "LaneView",
    "OutcomeView",
    "ReceiptView",
    "Reservation",
    "ReservedView",
    "ResetView",
    "ServiceRefused",
    "ServiceUnreachable",
    "SyncView",
    "TransactionView",
    "Unauthorized",
]
