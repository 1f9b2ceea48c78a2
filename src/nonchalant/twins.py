"""Leaving to a person what may have run: what somebody would end, and what a lost commit may have done already."""

from __future__ import annotations

from contextlib import suppress

from nonchalant import lifecycle
from nonchalant.errors import CommitUnknown, RowMoved
from nonchalant.lanes import doubt_for
from nonchalant.model import Transaction
from nonchalant.ports import Store
from nonchalant.words import Millis


async def hold_for_twin(store: Store, tx: Transaction, now: Millis) -> bool:
    """Hold a queued transaction, from any node, if something did the same; its owner may never come to look at it.

    False: nothing is known that did. Who ends it after that has seen the mark.
    """
    twin = await store.twin_of(tx)
    if twin is None:
        return False
    held, events = lifecycle.step(tx, lifecycle.Held(doubt_for(twin, now)), now)
    with suppress(RowMoved, CommitUnknown):  # whoever asks again finds out
        await store.alter_queued(held, events, twin)
    return True
