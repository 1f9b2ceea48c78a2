"""Fillers: transfers of nothing to oneself that close holes. Whichever attempt is mined at a nonce settles it."""

from __future__ import annotations

from collections.abc import Sequence

from nonchalant import fees as prices
from nonchalant import policy, signing
from nonchalant.desk import SIGNER_MARK, Desk
from nonchalant.errors import NodeRefused
from nonchalant.lanes import Work
from nonchalant.model import Attempt, Draft, Payload
from nonchalant.values import replace
from nonchalant.words import Address, AttemptKind, SlotKind, Speed

# Fillers a lane may have at once: a wide gap is closed in steps, each of which the next blocks confirm.
MOST_FILLERS = 64

NOBODY: Address = "0x" + "00" * 20


def room(desk: Desk) -> int:
    """How many more fillers the lane may have now."""
    return max(0, MOST_FILLERS - sum(slot.kind is SlotKind.FILLER for slot in desk.lane.open_slots()))


async def fill(desk: Desk, work: Work, holes: Sequence[int]) -> list[Attempt]:
    """Sign a filler for each hole and bind it there. `NodeRefused` if the node will not say what one takes."""
    payload = Payload.nothing(desk.key.address)
    market = await desk.eyes.market()
    gas = await gas_for_nothing(desk)
    offer = prices.opening(Speed.FAST, market, desk.rules.fees)
    prepared = [
        signing.prepare(
            desk, Draft(lane=desk.key, nonce=nonce, payload=payload, gas=gas, fees=offer), AttemptKind.FILLER, None, 0
        )
        for nonce in holes
    ]
    attempts = await signing.sign(desk, prepared)
    for attempt in attempts:
        work.bind(attempt.nonce, SlotKind.FILLER, attempt)
    next_nonce = max(desk.lane.next_nonce, desk.lane.next_after(list(holes)))
    work.record(replace(work.lane_record, next_nonce=next_nonce))
    desk.clear_mark(work, SIGNER_MARK)
    return attempts


async def gas_for_nothing(desk: Desk) -> int:
    """What a transfer of nothing to ourselves takes. Code that the account was given may refuse it: then it fails on
    the chain, which takes the nonce all the same, and it needs no more than a transfer to nobody."""
    try:
        return await desk.estimate(Payload.nothing(desk.key.address))
    except NodeRefused as refusal:
        if policy.refusal_verdict(refusal) is not policy.Estimate.REVERTS:
            raise
    return await desk.estimate(Payload.nothing(NOBODY))
