"""The long runs: what a transaction costs with little and with much of something, in turn."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from itertools import chain as in_turn
from typing import Final

import msgspec

from bench import audit, books, site
from bench.acts import Act, Bench, Scope
from bench.growth import cost, crowd, idle, past, room
from bench.growth.cost import Cost
from bench.progress import Step
from bench.site import Site
from bench.work import transfers

SETTLED: Final = (0, 1_000, 100_000, 1_000_000)
LANES: Final = (1, 100, 10_000)
PENDING: Final = (10, 1_000, 10_000)
NAMES: Final = ("settled", "lanes", "pending", "room", "idle")
IDLE_LANES: Final = 10_000
COUNT: Final = 20_000

FILLS_A_SECOND: Final = 3_000  # settled transactions, as a guess before the first is made
KEPT_FROM: Final = 500_000  # settled ones that take so long to make that every round uses the same


def acts(scope: Scope) -> list[Act]:
    count = scope.transactions or COUNT // scope.shorter
    kept: dict[int, Kept] = {}
    made: list[Act] = []
    for number in range(1, scope.rounds + 1):
        if "settled" in scope.only:
            made += [
                Act(
                    Step(f"{settled:,} settled", number, 12 + count / 2_000 + settled / FILLS_A_SECOND),
                    partial(_settled, settled, count, kept),
                )
                for settled in _up_to(SETTLED, scope)
            ]
        if "lanes" in scope.only:
            made += [
                Act(Step(f"{lanes:,} lanes", number, 12 + count / 1_000), partial(_lanes, lanes, count))
                for lanes in _up_to(LANES, scope)
            ]
        if "pending" in scope.only:
            made += [
                Act(Step(f"{pending:,} pending", number, 15 + count / 1_000), partial(_pending, pending, count))
                for pending in _up_to(PENDING, scope)
            ]
    if "room" in scope.only:
        made.append(Act(Step("room in a database", scope.rounds, 40), partial(_room, count)))
    if "idle" in scope.only:
        made.append(Act(Step("idle lanes", scope.rounds, 60), partial(_idle, IDLE_LANES // scope.shorter)))
    return made


def _up_to(steps: tuple[int, ...], scope: Scope) -> list[int]:
    """A short benchmark leaves out what takes long."""
    return [step for step in steps if step <= max(steps) // scope.shorter]


@dataclass(slots=True)
class Kept:
    """A site that is used by every round, and how much was sent on it."""

    place: Site
    sent: int = field(default=past.REAL)


async def _settled(settled: int, count: int, kept: dict[int, Kept], bench: Bench) -> str:
    if settled >= KEPT_FROM:
        if settled not in kept:
            kept[settled] = Kept(await bench.stack.enter_async_context(past.settled(bench.cluster, settled)))
        found = await _with_past(kept[settled].place, kept[settled].sent, count)
        kept[settled].sent += count
    else:
        async with past.settled(bench.cluster, settled) as place:
            found = await _with_past(place, past.REAL if settled else 0, count)
    return _note(bench, "settled", settled, found)


async def _with_past(place: Site, sent: int, count: int) -> Cost:
    """`sent`: how many the chain has executed here before."""
    order = msgspec.structs.replace(place.order("library", count=count), first=sent + 1)
    found = await cost.measured(order)
    async with books.opened(place.store) as kept:
        rows = [row for row in await books.rows(kept) if row.nonce is None or row.nonce >= place.first_nonce]
    deeds = await audit.deeds(place.chain.rpc)
    audit.check(deeds, rows, transfers(place.lanes, sent + count), first_nonce=place.first_nonce)
    return found


async def _lanes(lanes: int, count: int, bench: Bench) -> str:
    async with site.opened(bench.cluster, lanes=lanes) as place:
        found = await cost.measured(place.order("library", count=count))
        await place.audit(transfers(lanes, count))
    return _note(bench, "lanes", lanes, found)


async def _pending(pending: int, count: int, bench: Bench) -> str:
    async with site.opened(bench.cluster, lanes=past.LANES + crowd.LANES) as place:
        order = place.order("crowd", count=count)
        order = msgspec.structs.replace(order, lanes=past.LANES, pending=pending)
        found = await cost.measured(order)
        await place.audit(in_turn(transfers(order.lanes, count), crowd.crowd(order)))
    return _note(bench, "pending", pending, found)


def _note(bench: Bench, what: str, how_many: int, found: Cost) -> str:
    bench.found.growth[what][how_many].append(found)
    return f"{found.done:,.0f}/s, {found.cpu:.0f} µs of a core each, {found.memory / 2**20:.0f} MiB"


async def _room(count: int, bench: Bench) -> str:
    bench.found.room["PostgreSQL"] = await room.on_postgres(bench.cluster, count)
    bench.found.room["SQLite"] = await room.on_sqlite(bench.cluster, count)
    return ", ".join(f"{store} {taken.left:,.0f} bytes" for store, taken in bench.found.room.items())


async def _idle(lanes: int, bench: Bench) -> str:
    found = await idle.measured(lanes)
    bench.found.idle.append(found)
    return f"{found.queries:.1f} queries a second, {found.memory / 2**20:.0f} MiB"
