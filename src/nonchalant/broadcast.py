"""Broadcasting: signed bytes go to every endpoint, in nonce order, and what the endpoints say is recorded.

Sending never holds the lane up: each endpoint has its own queue, and its answers come back to the desk. An answer is
accepted, refused or unknown; unknown counts as possibly sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence

import structlog
from msgspec.structs import replace

from nonchalant import lifecycle, policy, taken, windows
from nonchalant.desk import FILLER_MARK, FILLER_PAUSE, Desk, Outlet
from nonchalant.errors import LeaseLost
from nonchalant.lanes import Work
from nonchalant.model import Accepted, Answer, Attempt, Attention, Refused, Slot, Unknown
from nonchalant.poison import handling, subject_of
from nonchalant.policy import NEVER_SENT, Sending
from nonchalant.ports import Endpoint
from nonchalant.rejections import Fate, Rejection
from nonchalant.taken import tell as tell_taken
from nonchalant.windows import TooHigh
from nonchalant.words import Hash, State, Wanted

log = structlog.get_logger()

# Handed over in one call; more waits for the endpoint's answer.
CHUNK = 100

Said = tuple[Hash, str, Answer]

FILLER_REASON = (
    "every node refuses a transfer of nothing to oneself, so a gap stays open; tried again every half minute, "
    "ask whoever runs the chain what it demands of one"
)


async def broadcast(desk: Desk) -> bool:
    """Record what endpoints answered, then hand over what is due. True: something changed."""
    changed = await _record_answers(desk)
    if desk.leaving:
        return changed
    everybody, now = desk.chain.endpoints, desk.store_now()
    for slot in desk.lane.open_slots()[: desk.window]:
        newest = slot.newest
        # A holder of a reservation may keep its bytes to itself.
        if newest is None or not newest.raw:
            continue
        due = is_due(desk, newest)
        if not due and not desk.gapped:
            continue
        # A new owner, or a reorg, finds it due: rescuing has something else signed for the slot.
        if policy.has_expired(slot, desk.lane.transaction_of(slot), now):
            continue
        _hand_over(desk, newest, everybody if due else _with_a_gap(desk, slot, everybody))
    desk.gapped.clear()
    return changed


def _with_a_gap(desk: Desk, slot: Slot, endpoints: Sequence[Endpoint]) -> list[Endpoint]:
    """Those that lack something at the slot, or above it."""
    return [endpoint for endpoint in endpoints if slot.nonce <= desk.gapped.get(endpoint.name, -1)]


def is_due(desk: Desk, attempt: Attempt) -> bool:
    """Whether it has not been handed over since it was signed, loaded, or found to be missing."""
    return desk.sending(attempt.hash).at is None


def _hand_over(desk: Desk, attempt: Attempt, endpoints: Sequence[Endpoint]) -> None:
    now = desk.ticks()
    for endpoint in endpoints:
        outlet = desk.outlets.get(endpoint.name)
        if outlet is None:
            outlet = desk.outlets[endpoint.name] = Outlet(endpoint)
        if attempt.hash in outlet.waiting:
            continue
        outlet.waiting[attempt.hash] = attempt.raw
        desk.sendings[attempt.hash] = desk.sending(attempt.hash).started(now, desk.head.top.number)
        if outlet.task is None:
            outlet.asked_at = now
            outlet.task = asyncio.create_task(_empty(desk, outlet))


async def _empty(desk: Desk, outlet: Outlet) -> None:
    """Send until nothing waits. One task an endpoint, so that its nonces arrive in order."""
    try:
        while outlet.waiting:
            chunk = list(outlet.waiting.items())[:CHUNK]
            outlet.asked_at = desk.ticks()
            answers = await _send(desk, outlet.endpoint, [raw for _, raw in chunk])
            accepted = list[Hash]()
            for (hash, _), answer in zip(chunk, answers, strict=True):
                del outlet.waiting[hash]
                desk.answers.append((hash, outlet.endpoint.name, answer))
                if isinstance(answer, Accepted) and not _is_told(desk, hash):
                    accepted.append(hash)
            taken.note(desk, accepted)
            if taken.due(desk) or not all(isinstance(answer, Accepted) for answer in answers):
                desk.wake.set()  # else it has time until there is something to do
    except LeaseLost:
        pass  # the lane's next commit says so too
    finally:
        outlet.task = None
        # However it ended, nothing waits here for ever: what was not answered counts as possibly sent.
        desk.answers += [(hash, outlet.endpoint.name, Unknown("the send was cut short")) for hash in outlet.waiting]
        outlet.waiting.clear()


async def _send(desk: Desk, endpoint: Endpoint, raws: list[bytes]) -> list[Answer]:
    """One answer each. An adapter that breaks on one of them must not keep the others from being sent."""
    try:
        answers = await send_all(desk, endpoint, raws)
        if len(answers) == len(raws):
            return answers
        log.error("endpoint.broke", endpoint=endpoint.name, reason=f"{len(answers)} answers to {len(raws)} sends")
    except LeaseLost:
        raise
    except Exception:  # an adapter that breaks has said nothing of what the node did
        # The bytes may have been taken.
        log.exception("endpoint.broke", endpoint=endpoint.name)
    if len(raws) == 1:
        return [Unknown(f"{endpoint.name} cannot be understood")]
    return [answer for raw in raws for answer in await _send(desk, endpoint, [raw])]


async def send_all(desk: Desk, endpoint: Endpoint, raws: list[bytes]) -> list[Answer]:
    desk.check_lease()
    return list(await endpoint.send(raws))


async def _record_answers(desk: Desk) -> bool:
    answers, desk.answers[:] = list(desk.answers), []
    said: dict[int, list[Said]] = {}
    for hash, endpoint, answer in answers:
        nonce = desk.lane.nonce_of(hash)
        if nonce is not None and isinstance(answer, Accepted):
            if hash in desk.sendings:
                desk.sendings[hash] = desk.sendings[hash].finished(Fate.ACCEPTED, endpoint)
        elif nonce is not None:
            said.setdefault(nonce, []).append((hash, endpoint, answer))
        elif hash in desk.sendings:  # settled meanwhile
            fate, rejection = policy.fate_of(answer)
            desk.sendings[hash] = desk.sendings[hash].finished(fate, endpoint, rejection)
    changed = False
    for part in desk.slot_parts([desk.lane.slots[nonce] for nonce in sorted(said)]) if said else ():
        work, window = desk.work(), desk.window
        with handling() as whom:
            for slot in part:
                whom.subject = subject_of(slot)
                for told in said[slot.nonce]:
                    window = _record(desk, work, slot.nonce, told, window)
                _conclude(desk, work, slot)
        _shrink(desk, work, {slot.nonce for slot in part}, window)
        changed |= await desk.commit_part(work, part)
    return await _tell_taken(desk) or changed


async def _tell_taken(desk: Desk) -> bool:
    due = taken.due(desk)
    if not due:
        return False
    changed = False
    for part in desk.slot_parts(taken.slots(desk, due)):
        work = desk.work()
        with handling() as whom:
            for slot in part:
                whom.subject = subject_of(slot)
                tell_taken(desk, work, slot)
        changed |= await desk.commit_part(work, part)
    taken.told(desk)
    return changed


def _is_told(desk: Desk, hash: Hash) -> bool:
    """Whether the store knows that a node has it, or need not: its slot is gone."""
    nonce = desk.lane.nonce_of(hash)
    if nonce is None:
        return True
    attempt = _attempt(desk, nonce, hash)
    return attempt.sent_at is not None and attempt.answer == policy.ACCEPTED


def _record(desk: Desk, work: Work, nonce: int, said: Said, window: int) -> int:
    """What one answer means for its attempt; the window, once it was heard."""
    hash, endpoint, answer = said
    fate, rejection = policy.fate_of(answer)
    if rejection is Rejection.NONCE_TOO_HIGH:
        window = _heed_too_high(desk, nonce, hash, endpoint, window)
    if hash in desk.sendings:
        desk.sendings[hash] = desk.sendings[hash].finished(fate, endpoint, rejection)
    if rejection is not None:
        assert isinstance(answer, Refused)
        _heed(desk, work, nonce, hash, endpoint, rejection, answer)
    else:
        _note(desk, work, nonce, hash, policy.UNKNOWN if fate is Fate.POSSIBLY_SENT else policy.ACCEPTED)
    return window


def _heed_too_high(desk: Desk, nonce: int, hash: Hash, endpoint: str, window: int) -> int:
    """The window, once an endpoint called a nonce too high."""
    before = [slot for slot in desk.lane.open_slots() if slot.nonce < nonce]
    match windows.too_high(desk.sending(hash), endpoint, (_sending_of(desk, slot) for slot in before)):
        case TooHigh.RESEND:
            desk.gapped[endpoint] = max(nonce, desk.gapped.get(endpoint, nonce))
        case TooHigh.SHRINK:
            return windows.shrunk(window, len(before))
        case TooHigh.WAIT:
            pass
    return window


def _shrink(desk: Desk, work: Work, touched: Collection[int], window: int) -> None:
    """Remember how much the nodes take; what they do not goes as soon as there is room."""
    waiting = desk.lane.open_slots()
    for before, slot in enumerate(waiting):
        if slot.nonce in touched:
            window = windows.after_answers(window, _sending_of(desk, slot), before)
    if window == desk.window:
        return
    log.info("window.shrunk", lane=str(desk.key), window=window)
    work.record(replace(work.lane_record, window=window))
    for slot in waiting[window:]:
        sending = desk.sendings.get(slot.newest.hash) if slot.newest else None
        if slot.newest and sending and policy.ACCEPTED not in sending.said.values():
            desk.sendings[slot.newest.hash] = replace(sending, at=None)


def _sending_of(desk: Desk, slot: Slot) -> Sending:
    """Of what should run at the slot."""
    return NEVER_SENT if slot.newest is None else desk.sending(slot.newest.hash)


def _heed(desk: Desk, work: Work, nonce: int, hash: Hash, endpoint: str, rejection: Rejection, answer: Refused) -> None:
    """A refusal is a hint to look, never a verdict on the transaction."""
    if rejection in (Rejection.NONCE_TOO_LOW, Rejection.ALREADY_KNOWN):
        desk.lookup_due = desk.account_due = True
    if rejection.fate is Fate.ACCEPTED:
        _note(desk, work, nonce, hash, policy.ACCEPTED)
        return
    _note(desk, work, nonce, hash, rejection.value)
    work.event(
        "attempt.refused",
        tx_id=_attempt(desk, nonce, hash).tx_id,
        nonce=nonce,
        hash=hash,
        endpoint=endpoint,
        reason=rejection.value,
        message=answer.message[:500],
    )


def _note(desk: Desk, work: Work, nonce: int, hash: Hash, answer: str) -> None:
    attempt = work.as_answered(_attempt(desk, nonce, hash))
    if hash in desk.taken:
        answer = policy.ACCEPTED  # one that has it outweighs those that do not
    if attempt.sent_at is None or attempt.answer not in (answer, policy.ACCEPTED):
        first = attempt.sent_at or (desk.taken[hash].at if hash in desk.taken else work.at)
        work.answered(replace(attempt, sent_at=first, answer=answer))


def _attempt(desk: Desk, nonce: int, hash: Hash) -> Attempt:
    attempt = desk.lane.slots[nonce].attempt(hash)
    assert attempt is not None
    return attempt


def _conclude(desk: Desk, work: Work, slot: Slot) -> None:
    """What the answers so far mean for the slot's transaction."""
    tx = desk.lane.transaction_of(slot)
    if slot.receipt is not None:
        return
    if is_releasable(desk, slot):
        _release(desk, work, slot)
        return
    if tx is not None and tx.state is State.SIGNED and any(_may_be_held_by_a_node(desk, a) for a in slot.attempts):
        work.move(tx, lifecycle.Broadcast())


def is_releasable(desk: Desk, slot: Slot) -> bool:
    """Whether the slot can be given back: no attempt left, because everybody refused the bytes themselves."""
    return policy.is_unsendable(slot, desk.lease.epoch, desk.sendings)


def _release(desk: Desk, work: Work, slot: Slot) -> None:
    tx = desk.lane.transaction_of(slot)
    if tx is not None and slot.wanted in (Wanted.CANCEL, Wanted.EXPIRY):
        work.move(tx, lifecycle.Recalled())
        work.move(tx, lifecycle.Cancelled() if slot.wanted is Wanted.CANCEL else lifecycle.Expired())
    elif tx is not None:
        work.move(tx, lifecycle.Failed(f"no node accepts these bytes: {work.as_answered(slot.attempts[-1]).answer}"))
    else:
        desk.fill_after = desk.ticks() + FILLER_PAUSE
        work.mark_lane(Attention(FILLER_MARK, FILLER_REASON, work.at))
    work.free(slot)
    desk.drop(slot.attempts)


def _may_be_held_by_a_node(desk: Desk, attempt: Attempt) -> bool:
    """Whether a node took it, or may have: a plain refusal leaves it unsent, though its slot stays bound."""
    sending = desk.sending(attempt.hash)
    return sending.accepted or sending.uncertain or attempt.hash in desk.taken
