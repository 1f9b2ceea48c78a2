"""The engine of one node: it runs the stages for every lane it holds, wakes them, and starts a lane anew after an error.

Stages do not call each other. The row's state is the hand-over, so recovery after a crash is running the stages again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial

import structlog
from structlog.contextvars import bind_contextvars

from nonchalant import reconcile, same_chain, taken, troubles
from nonchalant.admit import admit
from nonchalant.arrivals import Caller
from nonchalant.asking import Asking
from nonchalant.assign import assign
from nonchalant.attend import attend
from nonchalant.broadcast import broadcast
from nonchalant.cluster import Cluster
from nonchalant.desk import BEHIND_MARK, HALTED_MARK, Desk, LaneRules
from nonchalant.errors import LeaseLost, NodeRefused, NonchalantError, Poisoned, Unreachable
from nonchalant.follow import Follower
from nonchalant.grant import grant
from nonchalant.housekeeping import RETENTION, Housekeeping
from nonchalant.lanes import Lane
from nonchalant.model import Attention, Lease
from nonchalant.notify import Notifier
from nonchalant.poison import CAREFUL, WORLDLY, Strikes
from nonchalant.ports import Adviser, Chain, Clock, Entropy, Meter, Signer, Sink, Store
from nonchalant.rescue import rescue
from nonchalant.settle import settle
from nonchalant.tend import tend
from nonchalant.values import replace
from nonchalant.waiting import nap, within
from nonchalant.watch import watch
from nonchalant.words import LaneKey, Millis, Mode

log = structlog.get_logger()

Stage = Callable[[Desk], Awaitable[bool]]

# What the chain says comes first; what was decided goes out last.
STAGES: tuple[Stage, ...] = (
    watch,
    settle,
    reconcile.reconcile,
    grant,
    broadcast,
    tend,
    assign,
    admit,
    rescue,
    attend,
    broadcast,
)

# What there is to do where something was accepted, and nothing else has happened since all of them were run.
BRIEFLY: tuple[Stage, ...] = (assign, admit, broadcast)

# Passes over the stages before the lane lets others run, whatever else there is to do.
PASSES = 20

# How long a lane waits for a wake-up before it looks at its timers, while something is in flight.
TICK_SECONDS = 1.0

# So long nothing but time may pass before all stages are run again, also where there is always something to send.
BRIEFLY_FOR: Millis = 1_000

# How long an idle lane is kept, in case there is more to send.
LINGER_SECONDS = 5.0

# How long the sends under way are waited for when this node stops, and tasks that were told to end.
HANG_UP_SECONDS = 5.0
CANCEL_SECONDS = 1.0

# After an error a lane rests, longer each time, before it is loaded anew.
REST_SECONDS = 0.5
LONGEST_REST_SECONDS = 30.0

# How long after its start a node leaves what is past its deadline to whoever compares its lane with the chain first, and
# how long a new owner waits until enough endpoints say what the account executed. Not for ever: a chain that cannot be
# reached keeps nothing from expiring, and one endpoint is enough to go on.
UNSURE_SECONDS = 15.0

# How long the granting of what a hook wants is waited for, beside the lane's work.
ANSWER_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class ChainRules:
    depth: int | None = None  # None: the chain's `finalized` tag decides
    poll_seconds: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRules:
    lease_seconds: float = 10.0
    sweep_seconds: float = 1.0
    drain_seconds: float = 7.0  # more than the last sends get: what they said is recorded then
    retention: Millis = RETENTION  # how long what has ended is kept
    chains: Mapping[int, ChainRules] = field(default_factory=dict)
    lanes: Mapping[LaneKey, LaneRules] = field(default_factory=dict)


class Engine:
    def __init__(
        self,
        *,
        store: Store,
        chains: Mapping[int, Chain],
        signers: Mapping[LaneKey, Signer],
        rules: EngineRules,
        clock: Clock,
        entropy: Entropy,
        sinks: tuple[Sink, ...] = (),
        adviser: Adviser | None = None,
        meter: Meter | None = None,
    ) -> None:
        self.followers = {
            chain_id: Follower(chain, depth=rules.chains[chain_id].depth, clock=clock)
            for chain_id, chain in chains.items()
        }
        self.cluster = Cluster(store, clock, owner=entropy.token(), ttl=rules.lease_seconds, lanes=signers.keys())
        self.notifier = Notifier(store, sinks)
        self.desks: dict[LaneKey, Desk] = {}
        self._housekeeping = Housekeeping(store, clock, retention=rules.retention)
        self._adviser = adviser
        self._meter = meter
        self._asking = Asking(store, clock, entropy, arrived=self.poke)
        self._store = store
        self._signers = signers
        self._rules = rules
        self._clock = clock
        self._workers: dict[LaneKey, asyncio.Task[None]] = {}
        self._services: list[asyncio.Task[None]] = []
        self._elsewhere: frozenset[LaneKey] = frozenset()  # lanes that others worked when we last looked
        self._began = 0.0
        self._compared: set[LaneKey] = set()  # lanes of which we saw since our start what their chain says
        self._unsure: frozenset[LaneKey] = frozenset()  # lanes with work of which we did not, when we last looked
        self._sweep_now = asyncio.Event()
        self._next_look = rules.sweep_seconds  # how long until the next sweep at most
        self._stopped = asyncio.Event()

    # life

    async def start(self) -> None:
        """Declare the lanes and begin; what was left undone is found by the first sweep."""
        self._began = self._clock.monotonic()
        await self._store.declare(list(self._signers))
        await self.cluster.beat()
        for chain_id, follower in self.followers.items():
            self._serve(self._follow(follower, self._rules.chains[chain_id].poll_seconds))
        self._serve(self._keep_leases())
        self._serve(self._sweep_for_ever())
        if self.notifier.sinks:
            self._serve(self._notify())

    @property
    def is_running(self) -> bool:
        return bool(self._services) and not self._stopped.is_set()

    async def stop(self) -> None:
        """Finish what is under way, hand the lanes over, and leave."""
        self._stopped.set()
        for desk in self.desks.values():
            desk.wake.set()
        workers = dict(self._workers)
        await within(self._clock, self._rules.drain_seconds, list(workers.values()))
        late = {lane: task for lane, task in workers.items() if not task.done()}
        if late:
            log.warning("lanes.cut_short", lanes=[str(lane) for lane in late])
        ending = [*late.values(), *self._services]
        for task in ending:
            task.cancel()
        # One that does not end is left: what it still wants to write, the store refuses.
        await within(self._clock, CANCEL_SECONDS, ending)
        await self.cluster.leave()
        if self.notifier.sinks:
            await self._number_what_was_told()

    async def _number_what_was_told(self) -> None:
        """There may be no other node that does."""
        self.notifier.tell()
        numbering = asyncio.create_task(self._guarded("numbering", self.notifier.number()))
        await within(self._clock, CANCEL_SECONDS, [numbering])
        numbering.cancel()

    def poke(self, lane: LaneKey) -> None:
        """Something is wanted of this lane. A poke may be lost: the sweep finds the work all the same."""
        desk = self.desks.get(lane)
        if desk is not None:
            desk.orders_due = True
        self.feed(lane)

    def feed(self, lane: LaneKey) -> None:
        """Something was accepted for this lane, and nothing else: its owner need not read what people want of it."""
        desk = self.desks.get(lane)
        if desk is None:
            self._sweep_now.set()
        else:
            desk.assign_due = True
            desk.wake.set()
        self.notifier.tell()

    def offer(self, caller: Caller) -> bool:
        """Have a request accepted and signed at once, if this node works its lane and nothing waits there. False: its
        caller has to go to the queue; else he is told, sooner or later, what becomes of him."""
        desk = self.desks.get(caller.request.lane)
        if desk is None or not desk.arrivals.take(caller):
            return False
        desk.wake.set()
        return True

    def hear(self, lanes: Sequence[LaneKey]) -> None:
        """Another node did something in these lanes, or somewhere. What a third one works is that one's business."""
        for lane in lanes:
            if lane in self._signers and lane not in self._elsewhere:
                self.poke(lane)
        self.notifier.tell()

    def hear_free(self, lanes: Sequence[LaneKey]) -> None:
        """Another node let these go. If there was work when we last looked, somebody should take them now."""
        if not self._elsewhere.isdisjoint(lanes):
            self._sweep_now.set()

    # services

    def _serve(self, service: Coroutine[None, None, None]) -> None:
        # Every line that it logs, and all that it begins, names this node.
        context = copy_context()
        context.run(bind_contextvars, node=self.cluster.owner)
        self._services.append(asyncio.create_task(service, context=context))

    async def _follow(self, follower: Follower, seconds: float) -> None:
        while True:
            await self._guarded("follow", follower.poll())
            if follower.halted is not None:
                await self._guarded("halt", self._halt(follower, follower.halted))
            await self._clock.sleep(seconds)

    async def _halt(self, follower: Follower, reason: str) -> None:
        """Stop every lane of the chain, on every node and over restarts; then see what the chain is now."""
        await self._store.halt(follower.chain.chain_id, reason)
        for desk in self.desks.values():
            if desk.key.chain_id == follower.chain.chain_id:
                desk.control = replace(desk.control, mode=Mode.HALTED, reason=reason)
                desk.orders_due = True
        follower.start_over()

    async def _keep_leases(self) -> None:
        while True:
            await self._clock.sleep(self._rules.lease_seconds / 4)
            await self._guarded("lease", self._beat())

    async def _beat(self) -> None:
        for lane in await self.cluster.beat():
            desk = self.desks.get(lane)
            log.warning("lease.lost", lane=str(lane), epoch=None if desk is None else desk.lease.epoch)
            if lane in self._workers:
                self._workers[lane].cancel()
        for lane, lease in self.cluster.leases.items():
            desk = self.desks.get(lane)
            if desk is not None and desk.lease.epoch == lease.epoch:
                desk.lease = lease

    async def _notify(self) -> None:
        while True:
            await self._guarded("notify", self.notifier.drain())
            await nap(self._clock, self.notifier.wake, self._rules.sweep_seconds)

    async def _sweep_for_ever(self) -> None:
        while True:
            await self._guarded("sweep", self._sweep())
            await self._guarded("housekeeping", self._keep_house())
            await nap(self._clock, self._sweep_now, min(self._next_look, self._rules.sweep_seconds))

    async def _sweep(self) -> None:
        """Find work whose wake-up was lost, and lanes that nobody works."""
        self._next_look = self._rules.sweep_seconds
        if self._stopped.is_set():
            return
        work = await self.cluster.look(marked=self._adviser is not None)
        self._elsewhere = frozenset(found.lane for found in work if found.owner not in (None, self.cluster.owner))
        # Also of those that others work: whoever has one may not have looked yet.
        self._unsure = frozenset(found.lane for found in work) - self._compared
        for found in work:
            if found.lane in self.desks:
                self.poke(found.lane)
        for lane in self.cluster.to_hand_over(work):
            if lane in self.desks:
                log.info("lane.handed_over", lane=str(lane), epoch=self.desks[lane].lease.epoch)
                self.desks[lane].handed_over = True
                self.desks[lane].wake.set()
        for lane in self.cluster.to_take(work):
            if lane in self._workers:
                continue
            lease = await self.cluster.take(lane)
            if lease is not None and self._stopped.is_set():
                return  # taken while we were told to stop: it is let go with the others
            if lease is not None:
                self._workers[lane] = asyncio.create_task(self._own(lease))
        self._next_look = self.cluster.next_look(work)

    async def _keep_house(self) -> None:
        if self._stopped.is_set():
            return
        is_young = self._clock.monotonic() - self._began < UNSURE_SECONDS
        if await self._housekeeping.round(self._unsure - self._compared if is_young else ()):
            self.notifier.tell()
        await self.notifier.number()

    async def _guarded(self, what: str, action: Awaitable[None]) -> None:
        """A service outlives its errors: each is logged once, and the next round tries again."""
        try:
            await action
        except NonchalantError as error:
            log.warning("service.failed", service=what, reason=str(error))
        except Exception:  # without this service the node would only seem alive
            # Nobody expected it, so it is told with all its frames.
            log.exception("service.broke", service=what)

    # one lane

    async def _own(self, lease: Lease) -> None:
        """Work the lane until it is idle, or lost, or this node stops."""
        lane, rest, strikes = lease.lane, REST_SECONDS, Strikes()
        try:
            while True:
                bind_contextvars(lane=str(lane), epoch=lease.epoch)
                began = self._clock.monotonic()
                try:
                    await self._work(lease, strikes)
                    await self.cluster.let_go(lane)
                    return
                except LeaseLost as error:
                    log.info("lease.lost", lane=str(lane), reason=str(error))
                    self.cluster.leases.pop(lane, None)
                    return
                except Poisoned as poison:
                    # It is known who did it, and it is left aside if it does so again: no need to rest longer.
                    log.exception(
                        "lane.poisoned",
                        lane=str(lane),
                        subject=poison.subject,
                        tx=troubles.transaction_in(poison.subject),
                    )
                    self._restarts("poisoned")
                    rest = REST_SECONDS
                except WORLDLY as error:
                    log.warning("lane.restarted", lane=str(lane), reason=str(error))
                    self._restarts("expected")
                except NonchalantError as error:
                    log.warning("lane.restarted", lane=str(lane), reason=str(error))
                    self._restarts("expected")
                    strikes.broke(error)
                except Exception as error:  # here ends whatever no stage can answer
                    # It is told once, then the lane starts anew; the others go on.
                    log.exception("lane.broke", lane=str(lane))
                    self._restarts("unexpected")
                    strikes.broke(error)
                if self._clock.monotonic() - began > LONGEST_REST_SECONDS:
                    rest, strikes.restarts = REST_SECONDS, 0
                await self._rest(rest)
                rest = min(rest * 2, LONGEST_REST_SECONDS)
                # The epoch rises before the lane is read again: a commit of unknown outcome has happened or never will.
                again = await self._retake(lane)
                if again is None:
                    return
                lease = again
        finally:
            # The lease itself stays on the list: whoever stops this node lets it go.
            self._workers.pop(lane, None)

    def _restarts(self, why: str) -> None:
        if self._meter is not None:
            self._meter.restarted(why)

    async def _rest(self, seconds: float) -> None:
        """For so long, or until this node stops."""
        over = asyncio.ensure_future(self._clock.sleep(seconds))
        stopped = asyncio.ensure_future(self._stopped.wait())
        try:
            await asyncio.wait([over, stopped], return_when=asyncio.FIRST_COMPLETED)
        finally:
            over.cancel()
            stopped.cancel()

    async def _retake(self, lane: LaneKey) -> Lease | None:
        while not self._stopped.is_set():
            try:
                return await self.cluster.take(lane)
            except NonchalantError as error:
                log.warning("lease.unknown", lane=str(lane), reason=str(error))
                await self._rest(REST_SECONDS)
        return None

    async def _work(self, lease: Lease, strikes: Strikes) -> None:
        follower = self.followers[lease.lane.chain_id]
        desk = await self._sit_down(lease, follower, strikes)
        try:
            await self._take_over(desk, follower)
            await troubles.tell_broken(desk)
            began = self._clock.monotonic()
            idle_since: float | None = None
            while not (self._stopped.is_set() or desk.handed_over):
                was_halted = desk.is_halted
                await troubles.tell_aside(desk)
                await self._round(desk, follower)
                if desk.clock.monotonic() - began > LONGEST_REST_SECONDS:
                    await troubles.tell_recovery(desk)
                if desk.retired or (was_halted and not desk.is_halted):
                    return  # to be read anew: what was known before does not count
                now = self._clock.monotonic()
                if self._is_idle(desk):
                    idle_since = now if idle_since is None else idle_since
                    if now - idle_since >= LINGER_SECONDS:
                        await troubles.tell_recovery(desk)
                        return
                else:
                    idle_since = None
                desk.orders_due |= bool(strikes.tried_since)
                stands_still = desk.is_halted or follower.halted is not None
                seconds = TICK_SECONDS if stands_still else min(TICK_SECONDS, taken.due_in(desk))
                await nap(self._clock, desk.wake, seconds)
            await self._hang_up(desk)
        finally:
            if desk.asking is not None:
                desk.asking.cancel()
            desk.arrivals.close()
            follower.stand_up(desk)
            self.desks.pop(desk.key, None)

    async def _hang_up(self, desk: Desk) -> None:
        """Let the sends under way end, and record what they said."""
        sending = [outlet.task for outlet in desk.outlets.values() if outlet.task is not None]
        await within(self._clock, HANG_UP_SECONDS, sending)
        desk.leaving = True
        await self._run(broadcast, desk)

    async def _sit_down(self, lease: Lease, follower: Follower, strikes: Strikes) -> Desk:
        loaded = await self._store.load(lease)
        store_ahead = loaded.at - int(self._clock.monotonic() * 1000)
        desk = Desk(
            lane=Lane(loaded.record, loaded.slots, loaded.transactions, loaded.strangers, loaded.final_below),
            lease=lease,
            incarnation=await self._store.incarnation(),
            rules=self._rules.lanes[lease.lane],
            store=self._store,
            chain=follower.chain,
            signer=self._signers[lease.lane],
            eyes=follower,
            clock=self._clock,
            store_ahead=store_ahead,
            final_by_depth=self._rules.chains[lease.lane.chain_id].depth is not None,
            strikes=strikes,
            adviser=self._adviser,
            carry_out=partial(self._asking.carry_out, patience=ANSWER_SECONDS),
        )
        if strikes.careful:
            strikes.careful, desk.careful_until = False, desk.ticks() + CAREFUL
        follower.sit_down(desk)
        self.desks[desk.key] = desk
        return desk

    async def _take_over(self, desk: Desk, follower: Follower) -> None:
        """Before anything else: what does the chain say of this account?"""
        began = self._clock.monotonic()
        while not (self._stopped.is_set() or desk.retired):
            try:
                await same_chain.check(desk)
                if desk.is_halted:
                    return
                await desk.see_account()
                if not desk.lane.is_vouched and self._clock.monotonic() - began < UNSURE_SECONDS:
                    raise Unreachable(f"too few endpoints tell what {desk.key.address} has executed")
                await reconcile.begin(desk)
                await desk.unmark(HALTED_MARK, BEHIND_MARK)
                self._compared.add(desk.key)
                return
            except (Unreachable, NodeRefused) as error:
                if desk.is_worth_telling("take-over"):
                    log.info("lane.waits_for_chain", lane=str(desk.key), reason=str(error))
                await troubles.tell_trouble(desk, follower)
                desk.check_lease()
                await nap(self._clock, desk.wake, TICK_SECONDS)

    async def _round(self, desk: Desk, follower: Follower) -> None:
        if follower.halted is not None or desk.is_halted:
            await self._stand_still(desk, follower)
            return
        await troubles.tell_trouble(desk, follower)
        if follower.trouble is None and not desk.retired:
            await desk.unmark(BEHIND_MARK)
        for _ in range(PASSES):
            changed = set[Stage]()
            for stage in self._stages(desk):
                if desk.retired or desk.is_halted:
                    return
                if await self._run(stage, desk):
                    changed.add(stage)
            if changed:
                self.notifier.tell()
            # What assigning and admitting leave to do, the stages behind them have done; there may be more of it.
            if not changed - {assign, admit} and not (changed and (desk.assign_due or desk.arrivals)):
                return

    def _stages(self, desk: Desk) -> Sequence[Stage]:
        """What is to be run now, in its order."""
        if desk.was_just_fed():
            return BRIEFLY
        desk.look_around(BRIEFLY_FOR)
        return STAGES

    async def _stand_still(self, desk: Desk, follower: Follower) -> None:
        """Nothing at all is done in a halted lane but to look whether somebody opened it."""
        if desk.orders_due:
            desk.orders_due = False
            desk.control = (await self._store.orders(desk.key)).control
        if desk.is_halted and not desk.retired:
            work = desk.work()
            work.mark_lane(Attention(HALTED_MARK, follower.halted or desk.control.reason, work.at))
            await desk.commit(work)

    async def _run(self, stage: Stage, desk: Desk) -> bool:
        desk.stage = stage.__name__
        began = self._clock.monotonic()
        try:
            changed = await stage(desk)
            desk.waits.pop(desk.stage, None)
            if changed and self._meter is not None:
                self._meter.worked(desk.stage, self._clock.monotonic() - began)
            return changed
        except Poisoned as poison:
            desk.strikes.strike(desk.stage, poison, desk.ticks())
            # What was found by working one at a time may have others behind it.
            desk.strikes.careful |= desk.careful
            raise
        except (Unreachable, NodeRefused) as error:
            if desk.is_worth_telling(desk.stage):
                log.info("stage.waits", stage=stage.__name__, lane=str(desk.key), reason=str(error))
            desk.assign_due = True
            since, _ = desk.waits.get(desk.stage, (desk.ticks(), ""))
            desk.waits[desk.stage] = (since, f"{desk.stage} waits: {error}; look at the endpoints")
            return False

    def _is_idle(self, desk: Desk) -> bool:
        waits = (
            desk.assign_due
            or desk.arrivals
            or desk.asking
            or desk.heard
            or desk.strikes.tried_since
            or desk.hook_troubles
            or desk.marked_queued
            or desk.postponed
            or desk.kept_until is not None
            or desk.awaits_finality
            or desk.inbox
            or desk.answers
            or desk.taken
        )
        return not desk.lane.slots and not waits and desk.lane.record.quarantined_below is None
