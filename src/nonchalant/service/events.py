"""The stream of events: server-sent events, from any position on, on any node.

The id of each is its position, so whoever reconnects, here or elsewhere, names the last one he had and misses none.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Sequence
from typing import Final

from nonchalant.errors import BadRequest, NonchalantError, NotFound
from nonchalant.interest import Interest
from nonchalant.scalars import LARGEST_NUMBER, parse_number
from nonchalant.service.front import Front
from nonchalant.service.http import Call, Streaming
from nonchalant.service.problems import PositionGone
from nonchalant.stream import Page, Told
from nonchalant.wire_events import parse_kinds, parse_lanes
from nonchalant.words import LaneKey

HEARTBEAT_SECONDS: Final = 15.0
RETRY_MILLIS: Final = 2_000
PAGES_AT_ONCE: Final = 64 * 1024  # bytes that go out in one piece

LISTS: Final = ("lane", "tx", "kind")
MOST_TRANSACTIONS: Final = 50  # each is looked up, with its history


async def stream_events(front: Front, call: Call) -> Streaming:
    given = call.lists(("after", *LISTS), repeatable=LISTS)
    interest = Interest.of(
        call.caller,
        kinds=parse_kinds(given.get("kind", ()), "kind"),
        lanes=parse_lanes(given.get("lane", ()), "lane"),
        tx_ids=frozenset(given.get("tx", ())),
    )
    if len(interest.tx_ids) > MOST_TRANSACTIONS:
        raise BadRequest(f"expected at most {MOST_TRANSACTIONS}", field="tx")
    await _check_that_there_are(front, call, interest)
    after = await _start(front, call, given.get("after"), interest)
    past = await _past(front, interest, after)
    front.check_for_a_stream()
    return Streaming(call, _frames(front, call, interest, past), front.place_to_stream())


async def _check_that_there_are(front: Front, call: Call, interest: Interest) -> None:
    """Whoever misspells a name would wait for ever; what he may not see is not there."""
    for chain_id, address in interest.lanes:
        if chain_id is not None and address is not None:
            lane = LaneKey(chain_id, address)
            if not call.caller.may_use(lane) or await front.node.store.lane(lane) is None:
                raise NotFound(f"there is no lane of {address} on chain {chain_id}; GET /v1/lanes lists them")
    for tx_id in interest.tx_ids:
        tx = await front.node.store.transaction(tx_id)
        if tx is None or not call.caller.may_see(tx):
            raise NotFound(f"there is no transaction {tx_id[:100]!r}")


async def _start(front: Front, call: Call, asked: Sequence[str] | None, interest: Interest) -> int:
    """After which position to begin. What a client names itself when it comes back is newer than what its URL says."""
    last_seen = call.header("Last-Event-ID")
    named = [parse_number(asked[0], "after", LARGEST_NUMBER)] if asked else []
    if last_seen:
        named = [parse_number(last_seen, "Last-Event-ID", LARGEST_NUMBER)]
    kept = await front.node.store.event_range()
    if not named:
        return kept.last
    [after] = named
    if after > kept.last:
        raise PositionGone(
            f"position {after} was not given to any event yet, the last is {kept.last}; it is of another store, or this "
            f"one was restored: read what you need by GET /v1/transactions and begin after {kept.last}",
            kept,
        )
    # A transaction that is kept has all its events.
    if after < kept.forgotten and not interest.tx_ids:
        raise PositionGone(
            f"events after position {after} are kept no more; nothing is missing after {kept.forgotten}: read what you need "
            f"by GET /v1/transactions and begin there",
            kept,
        )
    return after


async def _past(front: Front, interest: Interest, after: int) -> Page:
    """What is to be told first. The events of one transaction are found without looking at everybody's."""
    if not interest.tx_ids:
        return Page((), after)
    upto = (await front.node.store.event_range()).last
    found = [event for tx_id in interest.tx_ids for event in await front.node.store.history(tx_id)]
    found = [event for event in found if after < event.position <= upto and interest.wants(event)]
    return Page([Told(event) for event in sorted(found, key=lambda event: event.position)], max(after, upto))


async def _frames(front: Front, call: Call, interest: Interest, past: Page) -> AsyncGenerator[bytes, None]:
    """What goes over the wire. Ends when the client has left, or when this node stops."""
    stream, after = front.node.stream, past.upto
    ends = [asyncio.create_task(call.left()), asyncio.create_task(front.closes.wait())]
    try:
        yield f"retry: {RETRY_MILLIS}\n\n".encode()
        for piece in _pieces(past.told):
            yield piece
        # Whoever loses the connection before the first event comes back to here, not to some later time.
        yield f"id: {after}\n\n".encode()
        told_upto = after
        with stream.heard():
            while not any(end.done() for end in ends):
                news = stream.news
                try:
                    await front.gate.recognise(call)  # who was let in may have lost his key since
                    page = await stream.page(after)
                    seen = await stream.seen_by(interest, page.told)
                except NonchalantError as error:
                    yield f": {error}\n\n".encode()  # and the client comes back, to where it was
                    return
                for piece in _pieces(seen):
                    yield piece
                if seen:
                    told_upto = seen[-1].event.position
                after = page.upto
                if not page.told and not await _wait(news, ends):
                    # Where it stands goes along, or a client that wants little would come back to long ago.
                    yield _heartbeat(told_upto, after)
                    told_upto = after
        if front.closing:
            yield b": this node stops\n\n"
    finally:
        for end in ends:
            end.cancel()


async def _wait(news: asyncio.Event, ends: Iterable[asyncio.Task[object]]) -> bool:
    """For news, or for an end. False: neither came in time."""
    waiting = asyncio.create_task(news.wait())
    try:
        done, _ = await asyncio.wait([waiting, *ends], timeout=HEARTBEAT_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        return bool(done)
    finally:
        waiting.cancel()


def _heartbeat(told_upto: int, after: int) -> bytes:
    return b":\n\n" if told_upto == after else f":\nid: {after}\n\n".encode()


def _pieces(told: Sequence[Told]) -> Iterable[bytes]:
    piece = bytearray()
    for one in told:
        piece += b"id: %d\nevent: %s\ndata: %s\n\n" % (one.event.position, one.event.kind.encode(), one.text)
        if len(piece) >= PAGES_AT_ONCE:
            yield bytes(piece)
            piece.clear()
    if piece:
        yield bytes(piece)
