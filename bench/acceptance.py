"""How many transactions a service accepts in a second by REST, each on disk before its answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import aiohttp

from bench import audit, books, generator, requests, site, usage
from bench.site import Site
from bench.work import CHAIN_ID, Transfer, payers, transfers
from tests.postgres import Cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """`most`: transactions a second that requests are written for; should a service take more, it ends earlier."""

    name: str
    write: Callable[[Iterable[Transfer]], Iterator[bytes]]
    together: int  # transactions of a request
    connections: int
    most: int


SINGLY: Final = Form(name="singly", write=requests.single, together=1, connections=64, most=12_000)
BATCHES: Final = Form(
    name="batches of 100", write=requests.batches, together=requests.TOGETHER, connections=8, most=40_000
)


@dataclass(frozen=True, slots=True)
class Accepted:
    rate: float  # transactions a second
    share: float  # what the generator used of one core
    cpu: float  # microseconds of our process for each


async def measured(form: Form, cluster: Cluster, *, seconds: float, paused: bool) -> Accepted:
    """`paused`: the lanes give out no nonces meanwhile, so that accepting is all that happens. Otherwise everything that
    was accepted is executed in the end, and audited."""
    async with site.opened(cluster, nodes=1) as place:
        [ours] = place.services
        if paused:
            await _pause(place)
        file = place.folder / "requests"
        generator.write(file, form.write(transfers(place.lanes, int(form.most * seconds))))
        before = usage.cpu(ours.pid)
        load = await generator.generate(ours.url, file, connections=form.connections, seconds=seconds)
        used = usage.cpu(ours.pid) - before
        acknowledged = load.answered * form.together
        await (_check_queued if paused else _check_executed)(place, acknowledged, form)
    return Accepted(acknowledged / load.seconds, load.share, used / acknowledged * 1e6)


async def _pause(place: Site) -> None:
    async with aiohttp.ClientSession(place.services[0].url, raise_for_status=True) as session:
        for address in payers(place.lanes):
            async with session.post(f"/v1/lanes/{CHAIN_ID}/{address}/pause", json={"reason": "benchmark"}):
                pass


async def _check_queued(place: Site, acknowledged: int, form: Form) -> None:
    async with books.opened(place.store) as kept:
        states = await books.states(kept)
    if set(states) != {"queued"}:
        raise audit.Failed(f"the lanes were paused, and yet the store holds {states}")
    _check_count(states["queued"], acknowledged, form)


async def _check_executed(place: Site, acknowledged: int, form: Form) -> None:
    async with books.opened(place.store) as kept:
        await books.settled(kept)
        stored = {row.value for row in await books.rows(kept)}
    await place.audit(each for each in transfers(place.lanes, max(stored)) if each.value in stored)
    _check_count(len(stored), acknowledged, form)


def _check_count(stored: int, acknowledged: int, form: Form) -> None:
    """What was asked last may be stored, and its answer not heard."""
    if not acknowledged <= stored <= acknowledged + form.connections * form.together:
        raise audit.Failed(f"{acknowledged} transactions were acknowledged, and {stored} are stored")
