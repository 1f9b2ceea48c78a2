"""Watching: one follower a chain, however many lanes; and what its findings mean for one lane.

The follower links blocks by parent hash, matches their transactions with every live attempt, and believes nothing
that the linked chain does not hold. Its cost grows with blocks, not with pending transactions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import TypeVar

import structlog

from nonchalant import heads, lifecycle, policy, windows
from nonchalant.desk import Desk
from nonchalant.errors import NodeRefused, NonchalantError, Unreachable
from nonchalant.heads import Head
from nonchalant.lanes import Work
from nonchalant.model import Block, BlockRef, Hash, LaneKey, Market, Receipt, Slot, View
from nonchalant.poison import handling, subject_of
from nonchalant.ports import Chain, Clock, Endpoint

log = structlog.get_logger()
T = TypeVar("T")

# Further behind than this, the follower starts anew at finality and every live attempt is looked up instead.
MAX_WALK = 512

# An endpoint whose head stands still this long while the chain moves does not count for finality.
STALLED_SECONDS = 90.0

# How long one look at the endpoints waits for the slower ones.
LOOK_SECONDS = 1.0

# How long an endpoint is waited for before the next one is asked the same.
HEDGE_SECONDS = 1.0

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
        self.halted: str | None = None  # a final block vanished: nothing more is done on this chain
        # Everybody who answers is below what was final here: nothing can be decided by such a chain.
        self.is_behind = False
        self._troubled_since: float | None = None
        self._depth = depth
        self._clock = clock
        self._head: Head | None = None
        self._caught_up = False  # whether it reached what an endpoint shows: before that, nobody may decide by it
        self._asked: dict[str, asyncio.Task[View | None]] = {}  # endpoints that have not answered yet
        self._silence: dict[str, str] = {}  # why an endpoint did not answer when it last did not
        self._views: dict[str, View] = {}  # of the endpoints that answered the last poll
        self._progress: dict[str, tuple[int, float]] = {}  # an endpoint's head, and when it got there
        self._desks: dict[LaneKey, Desk] = {}
        self._watching: dict[Hash, LaneKey] = {}
        self._market: tuple[Market, BlockRef, float] | None = None
        self._broken: set[tuple[str, type[Exception]]] = set()  # adapters that broke, and how: told once
        self._unread: tuple[Hash, float] | None = None  # a block whose receipts are missing, and since when

    @property
    def _known(self) -> Head:
        """The chain so far, caught up or not: for following it only."""
        assert self._head is not None
        return self._head

    # what a lane sees

    @property
    def head(self) -> Head:
        if self._head is None or not self._caught_up:
            raise Unreachable(
                f"chain {self.chain.chain_id} has not been seen yet: {self.trouble or 'no answer so far'}"
            )
        if self.is_behind:
            raise Unreachable(self.trouble or "the chain is behind what was final here")
        return self._head

    @property
    def started(self) -> bool:
        return self._head is not None and self._caught_up

    @property
    def hears_nobody(self) -> bool:
        """Whether no endpoint answered when they were last asked."""
        return not self._views

    def sit_down(self, desk: Desk) -> None:
        """Tell this desk of everything that happens to its lane from now on."""
        self._desks[desk.key] = desk
        self.watch(desk.key, desk.lane.attempt_hashes())

    def stand_up(self, desk: Desk) -> None:
        if self._desks.get(desk.key) is desk:
            del self._desks[desk.key]
            self.forget([hash for hash, lane in self._watching.items() if lane == desk.key])

    def watch(self, lane: LaneKey, hashes: list[Hash]) -> None:
        for hash in hashes:
            self._watching[hash] = lane

    def forget(self, hashes: list[Hash]) -> None:
        for hash in hashes:
            self._watching.pop(hash, None)

    async def ask(self, question: Callable[[Endpoint], Awaitable[T]]) -> T:
        """Endpoint after endpoint; one that keeps us waiting has the next one asked beside it."""
        to_ask, asked = self._by_trust(), list[asyncio.Future[T]]()
        trouble: NonchalantError | None = None
        try:
            while to_ask or asked:
                if to_ask:
                    asked.append(asyncio.ensure_future(self._put(question, to_ask.pop(0))))
                patience = HEDGE_SECONDS if to_ask else None
                answered, _ = await asyncio.wait(asked, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
                for answer in [one for one in asked if one in answered]:
                    asked.remove(answer)
                    try:
                        return answer.result()
                    except Unreachable as error:
                        trouble = error
                    except NodeRefused as refusal:
                        # A full queue, a missing method or a lost state is this endpoint's own; another may answer.
                        if policy.is_verdict(refusal):
                            raise
                        trouble = refusal
        finally:
            for late in asked:
                late.cancel()
        raise trouble or Unreachable(f"no endpoint of chain {self.chain.chain_id} answers")

    async def ask_everyone(self, question: Callable[[Endpoint], Awaitable[T]]) -> list[T]:
        """Waits a moment for all of them, and longer only for as many as finality takes."""
        asked = [asyncio.ensure_future(self._put(question, endpoint)) for endpoint in self._by_trust()]
        waiting = set(asked)
        patience: float | None = LOOK_SECONDS
        try:
            while waiting:
                how = asyncio.ALL_COMPLETED if patience else asyncio.FIRST_COMPLETED
                _, waiting = await asyncio.wait(waiting, timeout=patience, return_when=how)
                patience = None
                if len(self._usable(asked)) >= heads.quorum(len(self.chain.endpoints)):
                    break
            return self._usable(asked)
        finally:
            for late in asked:
                late.cancel()

    async def _put(self, question: Callable[[Endpoint], Awaitable[T]], endpoint: Endpoint) -> T:
        """Ask one endpoint. If its adapter breaks on the answer, that is no answer, and the others go on."""
        try:
            return await question(endpoint)
        except NonchalantError:
            raise
        except Exception as error:
            if (endpoint.name, type(error)) not in self._broken:
                self._broken.add((endpoint.name, type(error)))
                log.exception("endpoint.broke", endpoint=endpoint.name)
            raise Unreachable(f"{endpoint.name} answered what cannot be read: {error!r}") from error

    @staticmethod
    def _usable(asked: Sequence[asyncio.Future[T]]) -> list[T]:
        """The answers that came and are answers; what nobody expects is raised."""
        answers = []
        for answer in asked:
            if not answer.done() or isinstance(answer.exception(), Unreachable | NodeRefused):
                continue
            answers.append(answer.result())
        return answers

    def _by_trust(self) -> list[Endpoint]:
        """Endpoints that answered the last poll, those that have our head first."""
        top = self._known.top.number
        answering = [endpoint for endpoint in self.chain.endpoints if endpoint.name in self._views]
        return sorted(answering, key=lambda endpoint: self._views[endpoint.name].head.number < top)

    async def market(self) -> Market:
        now, top = self._clock.monotonic(), self.head.top
        if self._market is None or self._market[1] != top or now - self._market[2] > MARKET_SECONDS:
            self._market = (await self.ask(lambda endpoint: endpoint.market()), top, now)
        return self._market[0]

    async def vouch(self, block: BlockRef) -> bool:
        head = self.head
        if head.has(block):
            return True
        if block.number > head.final.number or block.number in head.hashes:
            return False
        agreed = await self._agreed(block.number, list(self._views))
        if agreed is None:
            raise Unreachable(f"too few endpoints agree on what block {block.number} is")
        head.hashes[block.number] = agreed.hash
        return agreed == block

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
        views = await self._look()
        if not views:
            self.trouble = self._with_reasons(f"no endpoint of chain {self.chain.chain_id} answers")
            return
        if self._head is None and not await self._start(views):
            return
        final = self._known.final.number
        self.is_behind = all(view.head.number < final for view in views.values())
        if self.is_behind:
            self.trouble = f"the chain is behind block {final}, which was final here; if it was reset, resume the lane"
            return
        moved = await self._follow(views)
        if not self._caught_up:
            return
        moved |= await self._finalise(views)
        if moved:
            for desk in self._desks.values():
                desk.wake.set()

    async def _look(self) -> dict[str, View]:
        for endpoint in self.chain.endpoints:
            if endpoint.name not in self._asked:
                self._asked[endpoint.name] = asyncio.create_task(self._view(endpoint))
        # A slow endpoint is not waited for: its answer counts in the round in which it comes.
        await asyncio.wait(self._asked.values(), timeout=LOOK_SECONDS)
        done = {name: task for name, task in self._asked.items() if task.done()}
        for name in done:
            del self._asked[name]
        views = ((name, task.result()) for name, task in done.items())
        self._views = {name: view for name, view in views if view is not None}
        now = self._clock.monotonic()
        for name, view in self._views.items():
            height, _ = self._progress.get(name, (-1, now))
            if view.head.number != height:
                self._progress[name] = (view.head.number, now)
        return self._views

    async def _view(self, endpoint: Endpoint) -> View | None:
        try:
            return await endpoint.view()
        except (Unreachable, NodeRefused) as error:
            log.debug("endpoint.silent", endpoint=endpoint.name, reason=str(error))
            self._silence[endpoint.name] = str(error)
        except Exception:
            # One endpoint's adapter that breaks must not blind us to the others.
            log.exception("endpoint.broke", endpoint=endpoint.name)
            self._silence[endpoint.name] = f"{endpoint.name} cannot be read"
        return None

    async def _start(self, views: dict[str, View]) -> bool:
        """Begin at a block that everybody calls final."""
        healthy = self._keeping_up(views)
        height = heads.final_height(list(healthy.values()), len(self.chain.endpoints), self._depth)
        final = None if height is None else await self._agreed(height, list(healthy))
        if final is None:
            self.trouble = self._with_reasons("the endpoints do not agree on a final block to start from")
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
                path = await self._put(partial(self._path, target=target), endpoints[name])
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
        answers = await asyncio.gather(*(self._hash_at(endpoint, final.number) for endpoint in self.chain.endpoints))
        denied = sum(answer is not None and answer != final.hash for answer in answers)
        if denied >= heads.quorum(len(self.chain.endpoints)):
            self._halt(f"block {final.number} was final and is not on the chain any more")

    async def _hash_at(self, endpoint: Endpoint, height: int) -> Hash | None:
        """None: it does not say."""
        try:
            block = await self._put(lambda one: one.block(height), endpoint)
        except (Unreachable, NodeRefused):
            return None
        return None if block is None else block.hash

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
                log.warning("receipt.unreadable", hash=hash, height=block.number, reason=str(error))
                desk = self._desks.get(self._watching[hash])
                if desk is not None:
                    desk.account_due = True
        return found

    async def _receipts(self, endpoint: Endpoint, block: Block, wanted: list[Hash]) -> Sequence[Receipt]:
        if not wanted:
            return []
        try:
            return await self._put(lambda one: one.receipts(block.ref, wanted), endpoint)
        except (Unreachable, NodeRefused):
            return await self.ask(lambda other: other.receipts(block.ref, wanted))

    async def _finalise(self, views: dict[str, View]) -> bool:
        """Raise finality to what every healthy endpoint calls final, if it is a block of our own chain."""
        healthy = self._keeping_up(views)
        height = heads.final_height(list(healthy.values()), len(self.chain.endpoints), self._depth)
        if height is None:
            self.trouble = self._with_reasons("too few endpoints answer to call anything final")
            return False
        height = min(height, self.head.top.number)
        if height <= self.head.final.number:
            self.trouble = None
            return False
        agreed = await self._agreed(height, list(healthy))
        if agreed is None or not self.head.has(agreed):
            self.trouble = f"the endpoints disagree about block {height}, which should be final"
            log.warning("finality.disagreed", chain=self.chain.chain_id, height=height)
            return False
        self.trouble = None
        return self.head.finalise(agreed)

    def _with_reasons(self, trouble: str) -> str:
        """The trouble, and what the endpoints that do not answer last said."""
        silent = [reason for name, reason in self._silence.items() if name not in self._views]
        return f"{trouble}: {'; '.join(silent)}" if silent else trouble

    def _keeping_up(self, views: dict[str, View]) -> dict[str, View]:
        """Those that neither stand still while others move nor are hopelessly behind, if that leaves enough of them."""
        heights = [view.head.number for view in views.values()]
        now, usual = self._clock.monotonic(), heads.believed(heights)
        keeping_up = {}
        for name, view in views.items():
            height, since = self._progress[name]
            stalled = height < max(heights) and now - since > STALLED_SECONDS
            if not stalled and usual - view.head.number <= MAX_WALK:
                keeping_up[name] = view
        return keeping_up if len(keeping_up) >= heads.quorum(len(self.chain.endpoints)) else views

    async def _agreed(self, height: int, names: list[str]) -> BlockRef | None:
        """The block at this height on which all of these endpoints agree; None also when too few of them answer."""
        endpoints = [endpoint for endpoint in self.chain.endpoints if endpoint.name in names]
        answers = await asyncio.gather(*(self._hash_at(endpoint, height) for endpoint in endpoints))
        return heads.agreed(height, answers, least=heads.quorum(len(self.chain.endpoints)))

    async def _leap(self) -> None:
        """Too many blocks passed unseen: go on from a newer final block, if ours is still below it."""
        old = self._known
        if await self._agreed(old.final.number, list(self._views)) != old.final:
            await self._check_final(old.final)
        elif await self._start(self._views):
            self._known.hashes[old.final.number] = old.final.hash

    def start_over(self) -> None:
        """Follow the chain as it is now; what was known of it before does not count, and every lane is read anew."""
        self.halted, self._head, self._caught_up, self.is_behind = None, None, False, False
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


# the lane's part


async def watch(desk: Desk) -> bool:
    """Bring the lane's slots in line with the linked chain. True: something changed."""
    lane = desk.lane
    if _is_account_due(desk):
        await desk.see_account()
    found = await look_up(desk) if desk.lookup_due else []
    receipts, desk.inbox[:] = [*desk.inbox, *found], []
    executed: dict[int, list[Receipt]] = {}
    for receipt in receipts:
        nonce = lane.nonce_of(receipt.hash)
        if nonce is not None:
            executed.setdefault(nonce, []).append(receipt)
    changed = False
    for part in desk.slot_parts(lane.slots.values()):
        work, blocks = desk.work(), set[BlockRef]()
        for slot in part:
            with handling(subject_of(slot)):
                blocks |= await _bring_in_line(desk, work, slot, executed.get(slot.nonce, ()))
        window = windows.grown(lane.record.window, desk.rules.window, blocks=len(blocks))
        work.record(replace(work.lane_record, window=window))
        changed |= await desk.commit_part(work, part)
    return changed


async def _bring_in_line(desk: Desk, work: Work, slot: Slot, receipts: Iterable[Receipt]) -> set[BlockRef]:
    """What the linked chain says of one slot; the blocks that are news for it."""
    blocks = set[BlockRef]()
    if slot.receipt is not None and await _is_canonical(desk, slot.receipt.block) is False:
        slot = _reorged(desk, work, slot)
    for receipt in receipts:
        if slot.receipt is not None or _is_hearsay(desk, slot, receipt):
            continue
        match await _is_canonical(desk, receipt.block):
            case True:
                slot = _included(desk, work, slot, receipt)
                blocks.add(receipt.block)
            case None:
                desk.inbox.append(receipt)  # nobody can say yet: ask again in the next round
            case False:
                pass
    await _tell_depth(desk, work, slot)
    return blocks


def _is_account_due(desk: Desk) -> bool:
    """Whether to ask again what the account has executed: nothing else shows who used a nonce without telling us."""
    lane, head = desk.lane, desk.head
    if head.final.number != desk.seen_final:
        # A nonce that somebody used is news again whenever finality moves.
        desk.account_due |= bool(lane.lost_slots())
        desk.seen_final = head.final.number
    if desk.account_due or desk.seen_at == head.top:
        return desk.account_due
    # A count that is too low may have been one endpoint's error; nothing else would ask again.
    return lane.is_behind or any(slot.reservation is not None for slot in lane.open_slots())


def _is_hearsay(desk: Desk, slot: Slot, receipt: Receipt) -> bool:
    """Whether only the holder of a reservation says that this hash belongs to his nonce; then the count must tell."""
    attempt = slot.attempt(receipt.hash)
    if attempt is None or attempt.raw:
        return False
    desk.account_due |= not desk.lane.is_consumed(slot)
    return True


async def _tell_depth(desk: Desk, work: Work, slot: Slot) -> None:
    """Say it once a mined transaction has as many blocks above it as was asked, and again when a fork replaces them."""
    tx = desk.lane.transaction_of(slot)
    if tx is None or tx.confirmations is None or slot.receipt is None:
        return
    asked, tx = tx.confirmations, work.latest(tx)
    if tx.deep is not None and await _is_canonical(desk, tx.deep) is False:
        tx = work.move(tx, lifecycle.Forked())
    if tx.deep is None:
        above = desk.head.above(slot.receipt.block, asked)
        if len(above) == asked:
            work.move(tx, lifecycle.Deepened(above))


async def _is_canonical(desk: Desk, block: BlockRef) -> bool | None:
    """Whether the linked chain holds the block; None: too few endpoints say, which changes nothing."""
    try:
        return await desk.eyes.vouch(block)
    except Unreachable:
        return None


async def look_up(desk: Desk) -> list[Receipt]:
    """Every live attempt by hash, once: those that an endpoint shows executed. What none shows proves nothing."""
    hashes = desk.lane.attempt_hashes()
    answers = [await desk.eyes.ask(lambda endpoint: endpoint.find(hashes))] if hashes else []
    shown = {receipt.hash for answer in answers for receipt in answer if receipt is not None}
    unshown = [slot for slot in desk.lane.lost_slots() if not any(one.hash in shown for one in slot.attempts)]
    if unshown:
        # Its nonce is used: an endpoint may have forgotten by what, and another may know.
        missing = [attempt.hash for slot in unshown for attempt in slot.attempts]
        answers += await desk.eyes.ask_everyone(lambda endpoint: endpoint.find(missing))
    desk.lookup_due = False
    return [receipt for answer in answers for receipt in answer if receipt is not None]


def _reorged(desk: Desk, work: Work, slot: Slot) -> Slot:
    lane = desk.lane
    open_again = replace(slot, receipt=None)
    work.slot(open_again)
    tx = lane.transaction_of(slot)
    if tx is not None:
        work.move(tx, lifecycle.Reorged())
    lane.count = min(lane.count, slot.nonce)
    desk.account_due = True
    # Due at once: a pool may have forgotten what the old chain had executed.
    for attempt in slot.attempts:
        if attempt.hash in desk.sendings:
            desk.sendings[attempt.hash] = replace(desk.sendings[attempt.hash], at=None)
    return open_again


def _included(desk: Desk, work: Work, slot: Slot, receipt: Receipt) -> Slot:
    lane = desk.lane
    tx = lane.transaction_of(slot)
    if tx is not None:
        work.move(tx, lifecycle.Included(receipt))
    lane.count = max(lane.count, slot.nonce + 1)
    return work.include(slot, receipt)
