"""Following a chain: one follower, however many lanes.

It links blocks by parent hash, matches their transactions with every live attempt, and believes nothing that the
linked chain does not hold. Its cost grows with blocks, not with pending transactions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import TypeVar

import structlog

from nonchalant import heads
from nonchalant.desk import Desk
from nonchalant.errors import NodeRefused, Unreachable
from nonchalant.heads import Head
from nonchalant.model import Block, BlockRef, Market, Receipt, View
from nonchalant.panel import Panel
from nonchalant.ports import Chain, Clock, Endpoint
from nonchalant.words import Hash, LaneKey

log = structlog.get_logger()
T = TypeVar("T")

# Further behind than this, the follower starts anew at finality and every live attempt is looked up instead.
MAX_WALK = 512

# Prices are asked again after this long, even within one block.
MARKET_SECONDS = 3.0

# A chain that cannot be followed for this long is worth telling people.
TROUBLE_SECONDS = 60.0
BEHIND_SECONDS = 15.0  # nobody has what was final: somebody should look soon

# How long a chain waits for receipts that no endpoint can tell. One that cannot be read must not stop everybody.
RECEIPT_SECONDS = 30.0


class Follower:
    """The chain as this node sees it (`desk.Eyes`)."""

    def __init__(self, chain: Chain, *, depth: int | None, clock: Clock) -> None:
        self.chain = chain
        self.trouble: str | None = None  # why settling stands still, for people
        self.reorgs = 0  # how often blocks that were linked were replaced, for people
        self.halted: str | None = None  # a final block vanished: nothing more is done on this chain
        # Everybody who answers is below what was final here: nothing can be decided by such a chain.
        self.behind_since: float | None = None  # None: it is not so; on the clock's monotonic seconds
        self._troubled_since: float | None = None
        self._depth = depth
        self._clock = clock
        self._head: Head | None = None
        self._caught_up = False  # whether it reached what an endpoint shows: before that, nobody may decide by it
        self._panel = Panel(chain, clock)
        self._desks: dict[LaneKey, Desk] = {}
        self._watching: dict[Hash, LaneKey] = {}
        self._market: tuple[Market, BlockRef, float] | None = None
        self._displaced: dict[BlockRef, bool] = {}  # asked for since the last poll: many slots share a block
        self._unread: tuple[Hash, float] | None = None  # a block whose receipts are missing, and since when

    @property
    def _known(self) -> Head:
        """The chain so far, caught up or not: for following it only."""
        assert self._head is not None
        return self._head

    @property
    def is_behind(self) -> bool:
        return self.behind_since is not None

    # what a lane sees

    @property
    def head(self) -> Head:
        if self._head is None or not self._caught_up:
            raise Unreachable(
                f"chain {self.chain.chain_id} has not been seen yet: {self.trouble or 'no answer so far'}"
            )
        if self.behind_since is not None:
            raise Unreachable(self.trouble or "the chain is behind what was final here")
        return self._head

    @property
    def started(self) -> bool:
        return self._head is not None and self._caught_up

    @property
    def remembered(self) -> int:
        """How many blocks it keeps in mind, also of a chain that nobody may decide by."""
        return len(self._head.hashes) if self._head is not None else 0

    @property
    def hears_nobody(self) -> bool:
        """Whether no endpoint answered when they were last asked."""
        return not self._panel.views

    def sit_down(self, desk: Desk) -> None:
        """Tell this desk of everything that happens to its lane from now on."""
        self._desks[desk.key] = desk
        self.watch(desk.key, desk.lane.attempt_hashes())

    def stand_up(self, desk: Desk) -> None:
        if self._desks.get(desk.key) is desk:
            del self._desks[desk.key]
            self.forget([hash for hash, lane in self._watching.items() if lane == desk.key])

    def watch(self, lane: LaneKey, hashes: list[Hash]) -> None:
        self._watching |= dict.fromkeys(hashes, lane)

    def forget(self, hashes: list[Hash]) -> None:
        for hash in hashes:
            self._watching.pop(hash, None)

    async def ask(self, question: Callable[[Endpoint], Awaitable[T]]) -> T:
        return await self._panel.ask(question, top=self._known.top.number)

    async def ask_everyone(self, question: Callable[[Endpoint], Awaitable[T]]) -> list[T]:
        return await self._panel.ask_everyone(question, top=self._known.top.number)

    async def market(self) -> Market:
        now, top = self._clock.monotonic(), self.head.top
        if self._market is None or self._market[1] != top or now - self._market[2] > MARKET_SECONDS:
            self._market = (await self.ask(lambda endpoint: endpoint.market()), top, now)
        return self._market[0]

    async def vouch(self, block: BlockRef) -> bool:
        head = self.head
        if head.has(block):
            return True
        if block.number > head.final.number:
            if await self._is_displaced(block):
                return False
            raise Unreachable(f"too few endpoints show another block {block.number}")
        if block.number in head.hashes:
            return False
        agreed = await self._panel.agreed(block.number, list(self._panel.views))
        if agreed is None:
            raise Unreachable(f"too few endpoints agree on what block {block.number} is")
        head.hashes[block.number] = agreed.hash
        return agreed == block

    async def _is_displaced(self, block: BlockRef) -> bool:
        """Whether another block is at its height: on our chain, and for at least half of all endpoints.

        Our chain is the longest that any endpoint shows, which may be one that is on a branch of its own; and a chain
        that is not that high says nothing of what is above it.
        """
        if block.number > self.head.top.number:
            return False
        if block not in self._displaced:
            answers = await self.ask_everyone(lambda endpoint: endpoint.block(block.number))
            named = [answer.hash for answer in answers if answer is not None]
            denied = len(named) - named.count(block.hash)
            self._displaced[block] = denied >= self._panel.quorum and denied > named.count(block.hash)
        return self._displaced[block]

    # following

    @property
    def lasting_trouble(self) -> str | None:
        """Why the chain cannot be followed, once that has lasted; None: it can, or it is too early to say."""
        patience = BEHIND_SECONDS if self.is_behind else TROUBLE_SECONDS
        if self._troubled_since is None or self._clock.monotonic() - self._troubled_since < patience:
            return None
        return self.trouble

    async def poll(self) -> None:
        """Look once at every endpoint; link what is new; tell the desks."""
        await self._poll()
        if self.trouble is None:
            self._troubled_since = None
        elif self._troubled_since is None:
            self._troubled_since = self._clock.monotonic()

    async def _poll(self) -> None:
        if self.halted:
            return
        views = await self._panel.look()
        self._displaced.clear()
        if not views:
            self.trouble = self._panel.with_reasons(f"no endpoint of chain {self.chain.chain_id} answers")
            return
        if self._head is None and not await self._start(views):
            return
        final = self._known.final.number
        if any(view.head.number >= final for view in views.values()):
            self.behind_since = None
        else:
            self.behind_since = self._clock.monotonic() if self.behind_since is None else self.behind_since
            self.trouble = f"the chain is behind block {final}, which was final here; if it was reset, resume the lane"
            return
        moved = await self._follow(views)
        if not self._caught_up:
            return
        moved |= await self._finalise(views)
        if moved:
            for desk in self._desks.values():
                desk.wake.set()

    async def _start(self, views: dict[str, View]) -> bool:
        """Begin at a block that everybody calls final."""
        healthy = self._panel.keeping_up(views, within=MAX_WALK)
        height = heads.final_height(list(healthy.values()), len(self.chain.endpoints), self._depth)
        final = None if height is None else await self._panel.agreed(height, list(healthy))
        if final is None:
            self.trouble = self._panel.with_reasons("the endpoints do not agree on a final block to start from")
            return False
        self._head = Head(final)
        self._caught_up = False
        for desk in self._desks.values():
            desk.lookup_due = desk.account_due = True
        return True

    async def _follow(self, views: dict[str, View]) -> bool:
        """Link the best head any endpoint shows; ours wins a tie. True: the chain we see changed."""
        head = self._known
        endpoints = {endpoint.name: endpoint for endpoint in self.chain.endpoints}
        best_first = sorted(views, key=lambda name: (-views[name].head.number, not head.has(views[name].head)))
        for name in best_first:
            target = views[name].head
            if head.has(target):
                self._caught_up = True
                return False
            try:
                path = await self._panel.ask_one(partial(self._path, target=target), endpoints[name])
                linked = bool(path) and await self._link(endpoints[name], path)
                self._caught_up |= self._known.has(target)
                return linked
            except (Unreachable, NodeRefused) as error:
                log.info("head.unlinked", endpoint=name, height=target.number, reason=str(error))
                if self.halted:
                    return False
        return False

    async def _path(self, endpoint: Endpoint, target: BlockRef) -> list[Block]:
        """The blocks from our chain up to the target. Empty: finality is gone, or too far away."""
        head = self._known
        if target.number - head.top.number > MAX_WALK:
            await self._leap()
            return []
        # The usual case is a few blocks straight on: ask for them at once, and check that they link.
        ahead = range(head.top.number + 1, target.number + 1)
        found = await asyncio.gather(*(endpoint.block(number) for number in ahead))
        straight = [block for block in found if block is not None]
        if straight and _is_linked(straight, target) and head.links(straight[0]) and len(straight) == len(ahead):
            return straight
        path = [await _block(endpoint, target.hash)]
        while not head.links(path[-1]):
            if path[-1].number <= head.final.number + 1:
                await self._check_final(head.final)
                raise Unreachable(f"{endpoint.name} is on a chain without our final block {head.final.number}")
            path.append(await _block(endpoint, path[-1].parent))
        return path[::-1]

    async def _check_final(self, final: BlockRef) -> None:
        """One endpoint that denies our final block is wrong; half of all endpoints mean that finality broke."""
        answers = await asyncio.gather(
            *(self._panel.hash_at(endpoint, final.number) for endpoint in self.chain.endpoints)
        )
        denied = sum(answer is not None and answer != final.hash for answer in answers)
        if denied >= self._panel.quorum:
            self._halt(f"block {final.number} was final and is not on the chain any more")

    async def _link(self, endpoint: Endpoint, path: list[Block]) -> bool:
        """Collect the receipts of our own attempts in the new blocks, then put the blocks on our chain.

        A block whose receipts cannot be had yet is not linked: it will be asked for again, though not for ever.
        """
        receipts: list[Receipt] = []
        linked: list[Block] = []
        for block in path:
            wanted = [hash for hash in block.transactions if hash in self._watching]
            try:
                receipts += await self._receipts(endpoint, block, wanted)
            except (Unreachable, NodeRefused) as error:
                log.info("receipts.missing", endpoint=endpoint.name, height=block.number, reason=str(error))
                if not self._has_waited_for(block):
                    break
                receipts += await self._receipts_one_by_one(block, wanted)
            linked.append(block)
        if not linked:
            return False
        removed = self._known.extend(linked)
        if removed:
            self.reorgs += 1
            log.info("head.reorged", chain=self.chain.chain_id, depth=len(removed), height=linked[0].number)
            for desk in self._desks.values():
                desk.account_due = True
        for receipt in receipts:
            lane = self._watching.get(receipt.hash)
            if lane is not None and lane in self._desks:
                self._desks[lane].inbox.append(receipt)
        return True

    def _has_waited_for(self, block: Block) -> bool:
        """Whether its receipts have been missing for so long that those that can be had must do."""
        now = self._clock.monotonic()
        if self._unread is None or self._unread[0] != block.hash:
            self._unread = (block.hash, now)
        return now - self._unread[1] >= RECEIPT_SECONDS

    async def _receipts_one_by_one(self, block: Block, wanted: list[Hash]) -> list[Receipt]:
        """Those that anybody can tell. The lane of one that nobody can sees its nonce used, and looks for it itself."""
        found: list[Receipt] = []
        for hash in wanted:
            try:
                found += await self.ask(_receipt_question(block.ref, hash))
            except (Unreachable, NodeRefused) as error:
                lane = self._watching[hash]
                log.warning("receipt.unreadable", lane=str(lane), hash=hash, height=block.number, reason=str(error))
                desk = self._desks.get(lane)
                if desk is not None:
                    desk.account_due = True
        return found

    async def _receipts(self, endpoint: Endpoint, block: Block, wanted: list[Hash]) -> Sequence[Receipt]:
        if not wanted:
            return []
        try:
            return await self._panel.ask_one(lambda one: one.receipts(block.ref, wanted), endpoint)
        except (Unreachable, NodeRefused):
            return await self.ask(lambda other: other.receipts(block.ref, wanted))

    async def _finalise(self, views: dict[str, View]) -> bool:
        """Raise finality to what every healthy endpoint calls final, if it is a block of our own chain."""
        healthy = self._panel.keeping_up(views, within=MAX_WALK)
        height = heads.final_height(list(healthy.values()), len(self.chain.endpoints), self._depth)
        if height is None:
            self.trouble = self._panel.with_reasons("too few endpoints answer to call anything final")
            return False
        height = min(height, self.head.top.number)
        if height <= self.head.final.number:
            self.trouble = None
            return False
        named = await self._panel.hashes_at(height, list(healthy))
        if len(set(named)) <= 1 and len(named) < self._panel.quorum:
            self.trouble = self._panel.with_reasons(f"too few endpoints tell block {height}, which should be final")
            return False
        agreed = heads.agreed(height, named, least=self._panel.quorum)
        if agreed is None or not self.head.has(agreed):
            self.trouble = f"the endpoints disagree about block {height}, which should be final"
            log.warning("finality.disagreed", chain=self.chain.chain_id, height=height)
            return False
        self.trouble = None
        return self.head.finalise(agreed)

    async def _leap(self) -> None:
        """Too many blocks passed unseen: go on from a newer final block, if ours is still below it."""
        old = self._known
        if await self._panel.agreed(old.final.number, list(self._panel.views)) != old.final:
            await self._check_final(old.final)
        elif await self._start(self._panel.views):
            self._known.hashes[old.final.number] = old.final.hash

    def start_over(self) -> None:
        """Follow the chain as it is now; what was known of it before does not count, and every lane is read anew."""
        self.halted, self._head, self._caught_up, self.behind_since = None, None, False, None
        for desk in self._desks.values():
            desk.retired = True
            desk.wake.set()

    def _halt(self, reason: str) -> None:
        """Finality broke: what we called final is gone. Nothing is safe to send before a person has looked."""
        self.halted = reason
        self.trouble = reason
        log.error("chain.halted", chain=self.chain.chain_id, reason=reason)
        for desk in self._desks.values():
            desk.wake.set()


def _receipt_question(block: BlockRef, hash: Hash) -> Callable[[Endpoint], Awaitable[Sequence[Receipt]]]:
    return lambda endpoint: endpoint.receipts(block, [hash])


async def _block(endpoint: Endpoint, hash: Hash) -> Block:
    block = await endpoint.block(hash)
    if block is None:
        raise Unreachable(f"{endpoint.name} does not have block {hash}, which it named")
    return block


def _is_linked(blocks: list[Block], target: BlockRef) -> bool:
    return blocks[-1].ref == target and all(lower.hash == upper.parent for lower, upper in pairwise(blocks))
